"""Values that files hold by name: a kind is known to files by being defined, and no other list has to be kept."""

from __future__ import annotations

from typing import Any

KINDS: dict[str, Any] = {}
"""Every kind of value that a file may name, by name: what is defined in this library and nothing else."""


class Storable:
    """Base class of the dataclasses that ``mg.save`` writes and ``mg.load`` makes again from their fields.

    A subclass in this library is known to files by its name. ``abstract=True``, or a name that begins with "_": it
    only serves as a base. A subclass in other code is not known to files: a file must not choose which code runs.

    >>> from metricgrad.decisions import Threshold
    >>> KINDS["Threshold"] is Threshold
    True
    """

    def __init_subclass__(cls, abstract: bool = False, **options: Any) -> None:
        super().__init_subclass__(**options)
        if abstract or cls.__name__.startswith("_") or not cls.__module__.startswith("metricgrad."):
            return
        known = KINDS.setdefault(cls.__name__, cls)
        if known.__module__ != cls.__module__:
            raise TypeError(f"{cls.__name__}: expected a name of its own, got that of {known.__module__}; rename it")
        KINDS[cls.__name__] = cls


def kinds_in(module: str) -> list[str]:
    """Return the names of the kinds that a module of this library defines, in that order."""
    return [name for name, kind in KINDS.items() if kind.__module__ == module]
