"""Tables in files (CSV, JSON Lines, Parquet, Feather, Excel): read whole or in pieces, written whole or not at all."""

from __future__ import annotations

import importlib.util
import logging
import weakref
from collections import Counter
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from metricgrad.atomic_files import replacing
from metricgrad.comparison.child_process import find_free_memory
from metricgrad.comparison.errors import WRONG_CALL, UserError, writing
from metricgrad.comparison.tables.arrow_files import ArrowFile
from metricgrad.comparison.tables.dialects import Dialect, find_dialect, read_tables
from metricgrad.comparison.tables.json_lines import JsonLines, is_json
from metricgrad.comparison.tables.packed_files import UnpackedFile, is_spreadsheet, peek
from metricgrad.estimators.columns.numbers import UNREADABLE
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pandas as pd

log = logging.getLogger("metricgrad")

ROWS_PER_PIECE = 1 << 16
"""The number of rows in a piece of a stream."""

_KINDS = {b"PAR1": "parquet", b"ARROW1": "feather", b"\xd0\xcf\x11\xe0": "excel"}
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"PK\x03\x04": "zip"}
_OTHERS = {
    b"\x28\xb5\x2f\xfd": "a zstd archive",
    b"\x80\x04": "a pickle, which could run any code",
    b"\x80\x05": "a pickle, which could run any code",
    b"FEA1": "Feather of version 1",
    b"\x89HDF": "an HDF5 file",
}
_HEAD = 1 << 12  # bytes that show what kind a file is


def read(
    path: str | Path | Source,
    rows: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    texts: Collection[str] = (),
    seed: int = 0,
) -> pd.DataFrame:
    """Read a table, or some columns of it; with ``rows``, a random sample of that many rows, in their order.

    A file that would take up more than a quarter of the free memory is refused with the number of rows that would fit.
    Texts of a CSV file become numbers where a whole column is numbers, except in the columns named by ``texts``.
    """
    source = path if isinstance(path, Source) else Source(path)
    pieces = source.pieces(columns=columns)
    kept = _read_within(source.path, pieces, find_memory_limit()) if rows is None else _sample_rows(pieces, rows, seed)
    table = pa.concat_tables(kept).combine_chunks() if kept else pa.table({})
    if not table.num_rows:
        raise UserError(f"{source.path}: expected rows below the column names, got none")
    table = pa.table(
        {
            name: column if name in texts else _parse_numbers(column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )
    return as_frame(table)


def stream(
    path: str | Path, rows: int = ROWS_PER_PIECE, columns: Sequence[str] | None = None
) -> Iterator[pd.DataFrame]:
    """Yield a table in pieces of at most ``rows`` rows, in bounded memory; cells of a CSV file stay texts."""
    for piece in Source(path).pieces(rows, columns):
        yield as_frame(piece)


class Source:
    """A file to read from: its kind, the names of its columns, and its rows piece by piece."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._place = self.path
        head = _read_head(self.path)
        compression = _find(head, _COMPRESSIONS)
        if compression == "gzip" and not is_json(peek(self.path, "gzip")):
            self.kind = "csv.gz"  # which is read as it is
        elif compression == "zip" and is_spreadsheet(self.path):
            self.kind = "excel"
        else:
            if compression is not None:
                unpacked = UnpackedFile(self.path, compression)
                weakref.finalize(self, unpacked.close)
                self._place = unpacked.path
                head = _read_head(self._place)
            self.kind = _find_kind(self.path, head)
        if self.kind == "excel" and importlib.util.find_spec("python_calamine") is None:
            raise UserError(f"{path}: to read Excel files, install metricgrad[excel], or save it as CSV")
        self._arrow = ArrowFile(self._place, self.path, self.kind) if self.kind in _READ_BY_A_CHILD else None
        self._json = JsonLines(self._place, self.path) if self.kind == "jsonl" else None

    @cached_property
    def names(self) -> list[str]:
        """The names of the columns."""
        if self._arrow is not None:
            names = list(self._arrow.schema.names)
        elif self._json is not None:
            names = self._json.find_names()
        else:
            names = list(self._dialect.names)
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            shown = ", ".join(repr(one_line(name, 40)) for name in twice[:5])
            raise UserError(f"{self.path}: expected every column name once, got {shown} more than once; rename them")
        return names

    @cached_property
    def _dialect(self) -> Dialect:
        return find_dialect(self._place, self.path, self.kind == "csv.gz")

    def pieces(self, rows: int = ROWS_PER_PIECE, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield tables of at most ``rows`` rows with these columns, or all."""
        names = self.names if columns is None else list(columns)
        tables: Iterator[pa.Table]
        if self._arrow is not None:
            tables = (pa.Table.from_batches([batch]) for batch in self._arrow.read(names, rows))
        elif self._json is not None:
            tables = self._json.read_tables(names, rows)
        else:
            tables = read_tables(self._place, self.path, self._dialect, names)
        for table in tables:
            for start in range(0, table.num_rows, rows):
                yield table.slice(start, rows)

    def make_empty(self, columns: Sequence[str]) -> pa.Table:
        """Return a table without rows that has these columns."""
        if self._arrow is None:
            return pa.table({name: pa.array([], pa.large_string()) for name in columns})
        return self._arrow.schema.empty_table().select(columns)


_READ_BY_A_CHILD = ("parquet", "feather", "excel")


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD)
    except OSError as error:
        why = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{path}: expected a CSV, Parquet or Feather file, which {why}; check the path") from error


def _find(head: bytes, marks: dict[bytes, str]) -> str | None:
    """Return what a file is that begins with one of the marks."""
    return next((kind for mark, kind in marks.items() if head.startswith(mark)), None)


def _find_kind(path: Path, head: bytes) -> str:
    """Return the kind of a file by its first bytes; CSV has none of its own."""
    other = _find(head, _OTHERS | {mark: f"{name} within an archive" for mark, name in _COMPRESSIONS.items()})
    if other is not None:
        raise UserError(
            f"{path}: expected CSV, JSON Lines, Parquet, Feather or Excel, got {other}; save it as one of these"
        )
    return _find(head, _KINDS) or ("jsonl" if is_json(head) else "csv")


def find_memory_limit() -> int:
    """Return the most bytes that a table may take: a quarter of the free memory, since training copies it."""
    return (find_free_memory() or 8 << 30) // 4


def _read_within(path: Path, pieces: Iterable[pa.Table], limit: int) -> list[pa.Table]:
    kept, size, rows = [], 0, 0
    for piece in pieces:
        kept.append(piece)
        rows += piece.num_rows
        size += _estimate_size(piece)
        if size > limit:
            fit = int(0.8 * rows * limit / size)
            fit -= fit % 10 ** max(0, len(str(fit)) - 2)
            raise UserError(
                f"{path}: expected a table that fits into memory ({limit / 1e9:.3g} GB), got more after {rows} "
                f"rows; take a random sample of it with --rows {max(fit, 1)}"
            )
    return kept


def _estimate_size(piece: pa.Table) -> int:
    """Return the bytes that a table takes up as a frame, in which no cell takes fewer than eight.

    Nulls and runs of equal cells take none in a file, however many there are.
    """
    return sum(max(column.nbytes, 8 * piece.num_rows) for column in piece.columns)


def _sample_rows(pieces: Iterable[pa.Table], rows: int, seed: int) -> list[pa.Table]:
    """Return ``rows`` random rows: every row draws a number, and the lowest numbers are kept."""
    if rows < 1:
        raise UserError(f"--rows: expected a number of at least 1, got {rows}", WRONG_CALL)
    generator = np.random.default_rng(seed)
    kept: list[pa.Table] = []
    drawn = np.empty(0)
    for piece in pieces:
        numbers = generator.random(piece.num_rows)
        if len(drawn) >= rows:
            few = numbers < drawn.max()
            piece, numbers = piece.filter(few), numbers[few]
        kept.append(piece)
        drawn = np.concatenate((drawn, numbers))
        if len(drawn) > rows:
            lowest = np.sort(np.argpartition(drawn, rows)[:rows])
            kept, drawn = [pa.concat_tables(kept).take(lowest)], drawn[lowest]
    return kept


def _parse_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of texts as numbers if all of them are numbers."""
    if pa.types.is_large_string(column.type) and column.null_count < len(column):
        for kind in (pa.int64(), pa.float64()):
            try:
                return column.cast(kind)
            except pa.ArrowInvalid:
                continue
    return column


def as_frame(table: pa.Table) -> pd.DataFrame:
    """Return a table as a pandas frame, decimal numbers as floats."""
    # Notes of pandas, of which anyone may have written any, would make columns the index, or change their types.
    table = table.replace_schema_metadata()
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    try:
        return _to_pandas(table)
    except UNREADABLE:
        for field in table.schema:
            _check_convertible(table.select([field.name]), field)
        raise


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    return table.to_pandas(split_blocks=True, date_as_object=False)


def _check_convertible(column: pa.Table, field: pa.Field) -> None:
    """Raise a ``UserError`` if a table of one column cannot be converted."""
    try:
        _to_pandas(column)
    except UNREADABLE as error:
        raise UserError(
            f"data: column {one_line(field.name, 60)!r}: expected numbers, texts or dates, got "
            f"{one_line(field.type, 60)} ({one_line(error, 120)}); convert it, or leave it out of the file"
        ) from error


# Writing


class Writer:
    """Writes tables one after the other, all with the column types of the first."""

    def __init__(self, path: Path | pa.NativeFile, kind: str) -> None:
        self._path, self._kind = path, kind
        self._file: Any = None
        self._schema: pa.Schema | None = None

    def add(self, table: pa.Table | pd.DataFrame) -> None:
        """Append rows."""
        table = table if isinstance(table, pa.Table) else pa.Table.from_pandas(table, preserve_index=False)
        if self._kind.startswith("csv") and table.num_columns == 1:
            table = _show_empty_cells(table)
        try:
            if self._file is None:
                self._schema = table.schema.remove_metadata()
                self._file = self._open(self._schema)
            table = table.cast(self._schema)
            if self._kind == "parquet":
                self._file.write_table(table)
            else:
                self._file.write(table)
        except pa.ArrowException as error:
            raise UserError(
                f"{self._kind}: expected cells that such a file can hold, got others ({one_line(error, 120)}); leave "
                "the column out, or write another kind of file"
            ) from error

    def _open(self, schema: pa.Schema) -> Any:
        if self._kind == "parquet":
            repeating = [field.name for field in schema if not pa.types.is_floating(field.type)]
            return pq.ParquetWriter(self._path, schema, use_dictionary=repeating, write_page_checksum=True)
        if self._kind == "feather":
            return pa.ipc.new_file(str(self._path), schema, options=pa.ipc.IpcWriteOptions(compression="lz4"))
        self._sink = pa.output_stream(str(self._path), compression="gzip" if self._kind == "csv.gz" else None)
        return pa.csv.CSVWriter(self._sink, schema, write_options=pa.csv.WriteOptions(quoting_style="needed"))

    def close(self) -> None:
        """Write what is buffered, and close the file."""
        if self._file is not None:
            self._file.close()
        if hasattr(self, "_sink"):
            self._sink.close()


def _show_empty_cells(table: pa.Table) -> pa.Table:
    """Return a table of one column with empty texts for missing cells: readers skip empty lines, but not ``""``."""
    kind = table.schema.types[0]
    if not pa.types.is_integer(kind) and not pa.types.is_string(kind):
        return table
    texts = table.column(0).cast(pa.string()).fill_null("")
    return pa.table([texts], names=table.column_names)


def find_kind(path: str | Path) -> str:
    """Return the kind of file to write, by its suffix, or raise a ``UserError``."""
    suffixes = {".csv": "csv", ".csv.gz": "csv.gz", ".parquet": "parquet", ".feather": "feather", ".arrow": "feather"}
    name = Path(path).name.lower()
    for suffix, kind in suffixes.items():
        if name.endswith(suffix):
            return kind
    raise UserError(f"{path}: expected a name that ends in {', '.join(suffixes)}, got {name!r}; rename it", WRONG_CALL)


@contextmanager
def write(path: str | Path) -> Iterator[Writer]:
    """Open a file to write tables into, of the kind of its suffix; it appears when it is complete, or not at all.

    >>> import tempfile, pandas as pd
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with write(f"{place}/a.csv") as file:
    ...         file.add(pd.DataFrame({"a": [1, 2]}))
    ...     read(f"{place}/a.csv")["a"].tolist()
    [1, 2]
    """
    path = Path(path)
    kind = find_kind(path)
    with writing(path), replacing(path) as fresh:
        writer = Writer(fresh, kind)
        try:
            yield writer
        finally:
            writer.close()
