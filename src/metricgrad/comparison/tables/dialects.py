"""CSV of any common dialect: finds encoding, separator, quotes and column names, and reads rows."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import logging
import re
import tempfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from metricgrad.comparison.errors import UserError
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("metricgrad")

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null")
"""Cells of a CSV file that count as missing."""

_HEAD = 1 << 18
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_RAGGED = re.compile(r"(?:Row #(\d+): )?Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


@dataclass(frozen=True)
class Dialect:
    """How to read a CSV file. ``header_lines``: the number of lines of the column names."""

    names: tuple[str, ...]
    header_lines: int
    separator: str
    quote: str
    encoding: str
    gzipped: bool


def find_dialect(place: Path, path: Path, gzipped: bool) -> Dialect:
    """Return how to read a file, or raise a ``UserError`` that says why it cannot be read.

    ``place``: where its bytes are; ``path``: what the user calls it.
    """
    encoding = _find_encoding(place, path, gzipped)
    with _open_bytes(place, gzipped) as raw:
        head = codecs.getincrementaldecoder(encoding)().decode(raw.read(_HEAD)).lstrip("\ufeff")
    if not head.strip():
        raise UserError(f"{path}: expected column names and rows, got an empty file")
    if "\0" in head:
        raise UserError(f"{path}: expected a table, got a file of another kind; save it as CSV")
    quote = _find_quote(head)
    separator = max(",;\t|", key=lambda one: _rate_separator(head, one, quote))
    rows, header_lines = _read_records(head, separator, quote)
    return Dialect(_check_names(path, rows[0]), header_lines, separator, quote, encoding, gzipped)


def read_tables(
    place: Path, path: Path, dialect: Dialect, columns: list[str], threads: bool = True
) -> Iterator[pa.Table]:
    """Yield the rows of a CSV file in pieces; all cells are texts, or null if missing. Paths as in ``find_dialect``.

    pyarrow gets no Python objects (a handler of ragged rows, a decoder): its threads outlive an error, and one that
    needs Python while the interpreter is shutting down aborts the process.
    """
    try:
        with _find_utf8(place, dialect) as (utf8, compression), pa.input_stream(utf8, compression=compression) as raw:
            reader = pa.csv.open_csv(
                raw,
                pa.csv.ReadOptions(
                    column_names=list(dialect.names),
                    skip_rows=dialect.header_lines,
                    block_size=1 << 23,
                    use_threads=threads,
                ),
                pa.csv.ParseOptions(delimiter=dialect.separator, quote_char=dialect.quote, newlines_in_values=True),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(dialect.names, pa.large_string()), include_columns=columns
                ),
            )
            for batch in reader:
                yield pa.table([clean_cells(column) for column in batch.columns], names=columns)
    except (pa.ArrowException, UnicodeDecodeError, OSError, EOFError) as error:
        if ragged := _RAGGED.search(str(error)):
            number, expected, got, text = ragged.groups()
            if number is None and threads:  # only a single thread knows the number of the row
                for _ in read_tables(place, path, dialect, columns, threads=False):
                    pass
            where = "" if number is None else f"row {int(number) + dialect.header_lines - 1}: "
            raise UserError(
                f"{path}: {where}expected {expected} cells as in the line of column names, got {got} "
                f"({one_line(text, 60)}); put cells that hold {dialect.separator!r} in quotes, or correct the row"
            ) from error
        if "Empty CSV" in str(error) or "Could not skip initial" in str(error):  # the file has column names only
            return
        raise UserError(f"{path}: cannot be read as CSV ({one_line(error, 200)}); save it again") from error


@contextmanager
def _find_utf8(path: Path, dialect: Dialect) -> Iterator[tuple[str, str | None]]:
    """Give the path of a file in UTF-8, and its compression: the file itself, or a temporary copy."""
    if dialect.encoding == "utf-8":
        yield str(path), "gzip" if dialect.gzipped else None
        return
    with tempfile.TemporaryDirectory(prefix="metricgrad-") as folder:
        copy = Path(folder) / "utf-8.csv"
        decoder = codecs.getincrementaldecoder(dialect.encoding)()
        with _open_bytes(path, dialect.gzipped) as raw, copy.open("wb") as file:
            while block := raw.read(_HEAD):
                file.write(decoder.decode(block).encode())
        yield str(copy), None


def clean_cells(column: pa.Array) -> pa.Array:
    """Return the cells of a CSV column without surrounding spaces, null if missing."""
    column = pc.ascii_trim_whitespace(column)
    return pc.if_else(pc.is_in(column, pa.array(MISSING, column.type)), pa.scalar(None, column.type), column)


def _open_bytes(path: Path, gzipped: bool) -> IO[bytes]:
    return gzip.open(path) if gzipped else path.open("rb")  # type: ignore[return-value]


def _find_encoding(place: Path, path: Path, gzipped: bool) -> str:
    """Return the encoding; the whole file is decoded, so that no error occurs later."""
    encoding = "utf-8"
    try:
        with _open_bytes(place, gzipped) as raw:
            block = raw.read(_HEAD)
            encoding = _guess_encoding(block)
            decoder = codecs.getincrementaldecoder(encoding)()
            while block:
                decoder.decode(block)
                block = raw.read(_HEAD)
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            raise UserError(
                f"{path}: expected {encoding.upper()} text, got a broken character ({error.reason}); "
                "save it again, as UTF-8"
            ) from error
        log.warning("%s is not UTF-8 and was read as Latin-1; save it as UTF-8 if letters look wrong", path)
        return "latin-1"
    except (EOFError, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: its gzip stream is damaged ({error}); compress or copy it again") from error
    return encoding


def _guess_encoding(block: bytes) -> str:
    """Return the encoding that the first bytes of a file suggest."""
    if block.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for encoding, zeros in (("utf-16-le", block[1::2]), ("utf-16-be", block[::2])):
        if len(block) >= 4 and zeros.count(0) > 0.9 * len(zeros):
            return encoding
    return "utf-8"


def _find_quote(head: str) -> str:
    single = len(re.findall(r"(?:^|[,;\t|])\s*'[^'\n]*'\s*(?=[,;\t|\r\n])", head, re.MULTILINE))
    return "'" if single > 1 and '"' not in head else '"'


def _read_records(head: str, separator: str, quote: str, most: int = 200) -> tuple[list[list[str]], int]:
    """Return the first records that are not blank, and the number of lines up to the end of the first."""
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator, quotechar=quote)
    rows: list[list[str]] = []
    header_lines = 1
    try:
        for row in reader:
            if row:
                header_lines = header_lines if rows else reader.line_num
                rows.append(row)
            if len(rows) > most:
                break
    except csv.Error:  # a very long cell: the records before it are enough
        pass
    # The last record may be incomplete.
    return (rows[:-1] if 2 < len(rows) <= most and len(head) >= _HEAD // 4 else rows) or [[head]], header_lines


def _rate_separator(head: str, separator: str, quote: str) -> tuple[bool, bool, float, int]:
    """Rate a separator: as many names as cells, lines of equal width, many columns."""
    rows, _ = _read_records(head, separator, quote)
    widths = Counter(len(row) for row in rows[1:] or rows)
    width, count = widths.most_common(1)[0]
    return len(rows[0]) > 1, len(rows[0]) == width, count / max(1, len(rows[1:])), len(rows[0])


def _check_names(path: Path, header: list[str]) -> tuple[str, ...]:
    names = [cell.strip() for cell in header]
    if all(_NUMBER.fullmatch(name) for name in names):
        shown = one_line(", ".join(names), 60)
        raise UserError(f"{path}: expected column names in the first line, got numbers ({shown}); add a line of names")
    # Spreadsheets and pandas leave the column name of row numbers empty.
    return tuple(name or f"column {place}" for place, name in enumerate(names, 1))
