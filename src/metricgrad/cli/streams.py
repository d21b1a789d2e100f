"""Standard input as the data, and standard output for predictions: ``-`` in place of a path."""

from __future__ import annotations

import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from metricgrad.comparison.errors import WRITE, UserError, writing

if TYPE_CHECKING:
    from collections.abc import Iterator

STANDARD = "-"


@contextmanager
def open_data(data: str) -> Iterator[str]:
    """Give the path of the data; standard input is copied to a temporary file, since it must be read more than once."""
    if data != STANDARD:
        yield data
        return
    if sys.stdin is None:
        raise UserError("DATA: expected data on standard input, which is closed; pass the path of a file")
    with _temporary_file("stdin.csv") as path:
        with writing(path), path.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        try:
            yield str(path)
        except UserError as error:
            raise UserError(str(error).replace(str(path), "standard input"), error.code) from error


@contextmanager
def open_output(output: Path) -> Iterator[Path]:
    """Give the path to write to; what is written for standard output goes there when it is complete."""
    if str(output) != STANDARD:
        yield output
        return
    if sys.__stdout__ is None:
        raise UserError("--output: expected an open standard output, got a closed one; pass the path of a file", WRITE)
    with _temporary_file("stdout.csv") as path:
        yield path
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


@contextmanager
def _temporary_file(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="metricgrad-") as folder:
        yield Path(folder) / name
