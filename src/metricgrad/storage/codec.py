"""How one kind of estimator is saved and loaded: a codec, which is a class in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Written:
    """What an estimator adds to its folder.

    ``about``: to the manifest, beside what all kinds have; a new key is declared in ``manifests.Manifest``. ``files``:
    by name. ``versions``: of the libraries that only this kind uses.
    """

    about: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


class Codec(Protocol):
    """How estimators of one kind are written and read."""

    kind: Any
    """The class of the estimators."""
    in_files: tuple[str, ...]
    """The parameters that files of their own hold, and not the manifest."""

    def write(self, estimator: Any) -> Written:
        """Return what a fitted estimator adds to its folder."""

    def read(self, manifest: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
        """Return the fitted attributes that the manifest and other JSON files hold, checked; no other file is read."""

    def restore(
        self,
        parameters: dict[str, Any],
        fitted: dict[str, Any],
        manifest: dict[str, Any],
        files: dict[str, bytes],
        trusted: Sequence[str],
    ) -> Any:
        """Return the estimator of these parameters, with its fitted attributes and what the other files hold."""
