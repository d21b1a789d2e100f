"""How one kind of estimator is saved and loaded: a codec, which is a class in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.storage.folders import Contents, Files
    from metricgrad.storage.manifests import Attributes, Manifest


@dataclass(frozen=True)
class Written:
    """What an estimator adds to its folder.

    ``about``: to the manifest, beside what all kinds have; a new key is declared in ``manifests.Manifest``.
    ``versions``: of the libraries that only this kind uses.
    """

    about: Contents = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    """What was read of a folder: the parameters, the fitted attributes that JSON files hold, and all else.

    ``trusted``: names of types that skops may make besides those that it trusts.
    """

    parameters: Attributes
    fitted: Attributes
    manifest: Manifest
    files: Files
    trusted: Sequence[str] = ()


class Codec(Protocol):
    """How estimators of one kind are written and read."""

    kind: Any
    """The class of the estimators."""
    in_files: tuple[str, ...]
    """The parameters that files of their own hold, and not the manifest."""

    def write(self, estimator: Any) -> Written:
        """Return what a fitted estimator adds to its folder."""

    def read(self, manifest: Manifest, files: Files) -> Attributes:
        """Return the fitted attributes that the manifest and other JSON files hold, checked; no other file is read."""

    def restore(self, saved: Saved) -> Any:
        """Return the estimator with its fitted attributes and what the other files hold."""
