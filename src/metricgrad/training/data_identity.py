"""The identity of data: short names of values and files, and whether a file changed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def stamp(name: str, path: Path) -> tuple[int, int]:
    """Return what changes when a file does: its size and time of change."""
    try:
        found = path.stat()
    except OSError as error:
        raise ValueError(f"{name}: expected a file that can be read, got {str(path)!r} ({error.strerror})") from error
    return found.st_size, found.st_mtime_ns


def fingerprint_file(path: Path) -> str:
    """Return a short name of a file's size and content: of 64 stretches of it at equal distances, the ends included."""
    size, stretch = path.stat().st_size, 4096
    places = {max(0, size - stretch) * i // 63 for i in range(64)}
    with path.open("rb") as file:
        pieces = [file.seek(place) >= 0 and file.read(stretch) for place in sorted(places)]
    return fingerprint((size, pieces))


def changed_error(path: Path) -> ValueError:
    """Return the error of a file that is not what it was."""
    return ValueError(f"{str(path)!r} was changed since the stream was made; make a new one")


def fingerprint(what: Any) -> str:
    """Return a short name of plain values."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
