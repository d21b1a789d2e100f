"""Compressed files: what is in them is unpacked into a temporary file, and read as any other."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import tempfile
import zipfile
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from metricgrad.comparison.errors import UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_BYTES = 2 << 30
"""The most that a file may become when it is unpacked, or a hundred times its size if that is more."""

_BLOCK = 1 << 20
_DAMAGED = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile, RuntimeError, NotImplementedError)
_OPEN: dict[str, Callable[[Path], Any]] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_SPREADSHEETS = ("[Content_Types].xml", "content.xml")  # files in the archives of Excel and OpenDocument


def is_spreadsheet(path: Path) -> bool:
    """Tell whether a zip archive is a spreadsheet."""
    try:
        with zipfile.ZipFile(path) as archive:
            return not {*archive.namelist()}.isdisjoint(_SPREADSHEETS)
    except _DAMAGED:
        return False


def peek(path: Path, compression: str) -> bytes:
    """Return the first bytes of what a compressed file holds; nothing if it is damaged."""
    try:
        with _OPEN[compression](path) as raw:
            found: bytes = raw.read(_BLOCK)
            return found
    except _DAMAGED:
        return b""


class UnpackedFile:
    """A temporary file with the contents of a compressed one; ``close`` removes it."""

    def __init__(self, path: Path, compression: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="metricgrad-")
        self.path = Path(self._folder.name) / "data"
        limit = max(MOST_BYTES, 100 * path.stat().st_size)
        try:
            with ExitStack() as stack:
                raw = (
                    _open_only_file(path, stack)
                    if compression == "zip"
                    else stack.enter_context(_OPEN[compression](path))
                )
                _copy(raw, stack.enter_context(self.path.open("wb")), path, limit)
        except _DAMAGED as error:
            self.close()
            raise UserError(
                f"{path}: its {compression} stream is damaged ({one_line(error, 120)}); compress or copy it again"
            ) from error
        except UserError:
            self.close()
            raise

    def close(self) -> None:
        """Remove the temporary file."""
        self._folder.cleanup()


def _open_only_file(path: Path, stack: ExitStack) -> IO[bytes]:
    """Return the only file in a zip archive; folders and the notes of macOS do not count."""
    archive = stack.enter_context(zipfile.ZipFile(path))
    found = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
    if len(found) != 1:
        raise UserError(f"{path}: expected a zip archive of one file, got {len(found)} files; unpack it first")
    if found[0].flag_bits & 1:
        raise UserError(f"{path}: expected a zip archive without a password, got one with; unpack it first")
    return stack.enter_context(archive.open(found[0]))


def _copy(raw: Any, file: IO[bytes], path: Path, limit: int) -> None:
    """Copy all bytes, up to a limit: a forged archive may unpack to any size."""
    free = shutil.disk_usage(tempfile.gettempdir()).free
    size = 0
    while block := raw.read(_BLOCK):
        size += len(block)
        if size > min(limit, free // 2):
            raise UserError(
                f"{path}: expected a file that unpacks to at most {min(limit, free // 2) / 1e9:.3g} GB, got more; "
                "unpack it first"
            )
        file.write(block)
