"""Files and folders that appear whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TEMPORARY = re.compile(r"\.metricgrad-.+\.[0-9a-f]{16}(\.old)?")
"""The names of files and folders that are not finished yet, or of what they replace."""


def make_temporary_path(path: Path, mark: str = ".metricgrad-") -> Path:
    """Return a new name beside a path, which differs from the names of all others."""
    return path.with_name(f"{mark}{path.name}.{secrets.token_hex(8)}")


def wait_until_written(path: Path) -> None:
    """Wait until a file is on the disk, or the names in a folder are, where the system can open folders."""
    folder = path.is_dir()
    if folder and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def replacing(path: Path, fresh: Path | None = None) -> Iterator[Path]:
    """Give a path beside another to write a file to: it takes the other's place at the end of the block.

    If the block or the renaming fails, the new file is removed and the old one stays. ``fresh``: the path to write to,
    by default a new one.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = pathlib.Path(folder) / "a.txt"
    ...     with replacing(place) as fresh:
    ...         _ = fresh.write_text("whole")
    ...     [path.name for path in place.parent.iterdir()], place.read_text()
    (['a.txt'], 'whole')
    """
    fresh = make_temporary_path(path) if fresh is None else fresh
    try:
        yield fresh
        wait_until_written(fresh)
        fresh.replace(path)
    finally:
        with suppress(OSError):  # it has its new name, or was never made
            fresh.unlink()


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, even if the machine stops."""
    with replacing(path) as fresh, fresh.open("xb") as file:
        file.write(data)


def write_folder(folder: Path, files: Mapping[str, bytes], replaced: bool) -> None:
    """Write a folder of files whole or not at all; ``replaced``: in the place of an existing one."""
    fresh = make_temporary_path(folder)
    try:
        fresh.mkdir()
        for name, data in files.items():
            place = fresh / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            wait_until_written(place)
        _move(fresh, folder, replaced)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _move(fresh: Path, folder: Path, replaced: bool) -> None:
    """Rename a new folder into its place, and delete what it replaces; should renaming fail, the old is put back."""
    old = fresh.with_name(f"{fresh.name}.old")
    if replaced:
        folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)
