"""The identity of data: short names of values and files, and whether a file changed."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def stamp_file(name: str, path: Path) -> tuple[int, int]:
    """Return what changes when a file does: its size and time of change."""
    try:
        status = path.stat()
    except OSError as error:
        raise ValueError(f"{name}: expected a file that can be read, got {str(path)!r} ({error.strerror})") from error
    return status.st_size, status.st_mtime_ns


def fingerprint_file(path: Path) -> str:
    """Return a short name of a file's size and content: of 64 stretches of it at equal distances, the ends included."""
    size = path.stat().st_size
    stretch = 4096
    starts = {max(0, size - stretch) * i // 63 for i in range(64)}
    pieces = []
    with path.open("rb") as file:
        for start in sorted(starts):
            file.seek(start)
            pieces.append(file.read(stretch))
    return fingerprint((size, pieces))


def changed_error(path: Path) -> ValueError:
    """Return the error of a file that is not what it was."""
    return ValueError(f"{str(path)!r} was changed since the stream was made; make a new one")


def fingerprint(what: Any) -> str:
    """Return a short name of plain values."""
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]
