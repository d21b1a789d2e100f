"""Batches from Parquet files; needs the extra "streaming"."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from metricgrad.training.batch_stream import RowTensors, Stream
from metricgrad.training.data_identity import changed_error, fingerprint, fingerprint_file, stamp_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class ParquetBatches(Stream):
    """Batches ``(features, targets)`` or ``(features, targets, weight)`` from Parquet files, a row group at a time.

    Dictionary-encoded numbers and decimals are numbers. Files without rows are skipped. Row groups of a quarter of the
    buffer or less mix well; pyarrow's own default is a million rows. Iterate over it, or over ``loader()``; an epoch
    that ran to its end moves on to the next.

    Parameters
    ----------
    paths : str, Path or sequence of these
        A file, a folder (its ``*.parquet``, by name), or a list of files, all with the same columns.
    features : str or sequence of str
        The names of columns of numbers, which become ``(N, F)`` float32; a column of fixed-size lists (an embedding)
        counts as that many.
    target : str or sequence of str
        The name of a column, for ``(N,)`` targets, or a list of names for ``(N, K)``; int64 if all of these columns are
        whole numbers or booleans in all files, float32 otherwise.
    batch_size : int
        The size of a batch over all processes; each process gets its disjoint part of it.
    weight : str, optional
        The name of a column of weights, of a type by the same rule.
    shuffle : bool, default True
        Shuffle blocks of rows, and the rows within every ``buffer`` of them; False gives them in order.
    buffer : int, default 65536
        How many rows are shuffled together, which memory must hold up to four times; below the size of a block, blocks
        do not mix.
    seed : int, default 0
        The order of an epoch follows from the seed, the epoch and the number of processes and workers.
    rank : int, optional
        The number of this process, together with ``world_size``; by default that of ``torch.distributed`` if it runs,
        otherwise 0.
    world_size : int, optional
        The number of processes, together with ``rank``; by default that of ``torch.distributed`` if it runs, otherwise
        1.

    Attributes
    ----------
    rows : int
        The number of rows.
    epoch : int
        The epoch that the next iteration gives.
    position : int
        How much of the epoch was given out.

    Raises
    ------
    ValueError
        If a column is missing, holds text, nulls, lists of several lengths or numbers that the type cannot hold, if a
        file changed since, or if a batch has fewer rows than there are processes.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "data.parquet"
    >>> pq.write_table(pa.table({"a": [0.5, 1.5, 2.5], "b": [1, 2, 3], "y": [0, 1, 1]}), path)
    >>> for features, targets in ParquetBatches(path, ["a", "b"], "y", batch_size=4, shuffle=False):
    ...     print(features, targets)
    tensor([[0.5000, 1.0000],
            [1.5000, 2.0000],
            [2.5000, 3.0000]]) tensor([0, 1, 1])

    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        features: str | Sequence[str],
        target: str | Sequence[str],
        batch_size: int,
        *,
        weight: str | None = None,
        shuffle: bool = True,
        buffer: int = 1 << 16,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        files = _list_files(paths)
        self.paths = []
        self._stamps = []
        self._metadata = []
        for path in files:
            file_stamp = stamp_file("paths", path)
            metadata = _read_metadata(path)
            if metadata.num_rows:
                self.paths.append(path)
                self._stamps.append(file_stamp)
                self._metadata.append(metadata)
        if not self.paths:
            raise ValueError(f"paths: expected at least one row, got none in {len(files)} files")
        self.features = [features] if isinstance(features, str) else list(features)
        self.target = target if isinstance(target, str) else list(target)
        self.weight = weight
        self._widths, self._types = self._agree_on_columns()
        self._groups = []  # the number of the file, and of the row group in it
        group_sizes = []
        for file_number, metadata in enumerate(self._metadata):
            for group in range(metadata.num_row_groups):
                size = metadata.row_group(group).num_rows
                if size:
                    self._groups.append((file_number, group))
                    group_sizes.append(size)
        super().__init__(
            group_sizes, batch_size, shuffle=shuffle, buffer=buffer, seed=seed, rank=rank, world_size=world_size
        )

    @property
    def _column_names(self) -> dict[str, list[str]]:
        """The columns of each part of a batch."""
        target = [self.target] if isinstance(self.target, str) else self.target
        names = {"features": self.features, "target": target}
        if self.weight:
            names["weight"] = [self.weight]
        return names

    def _agree_on_columns(self) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the width of each column and the type of each part of a batch, the same in all files."""
        widths: dict[str, int] = {}
        types: dict[str, Any] = {part: np.float32 if part == "features" else np.int64 for part in self._column_names}
        for path, metadata in zip(self.paths, self._metadata, strict=True):
            schema = _read_schema(path, metadata)
            for part, names in self._column_names.items():
                if not names:
                    raise ValueError(f"{part}: expected at least one column, got none")
                for name in names:
                    width, is_whole = _describe_column(part, name, path, schema)
                    if widths.setdefault(name, width) != width:
                        raise ValueError(
                            f"{part}: expected {widths[name]} numbers a row in column {name!r} of {path.name}, as in "
                            f"{self.paths[0].name}, got {width}; write all files with one width"
                        )
                    if not is_whole:
                        types[part] = np.float32
        return widths, types

    def _read(self, block: int) -> RowTensors:
        file_number, group = self._groups[block]
        path = self.paths[file_number]
        if stamp_file("paths", path) != self._stamps[file_number]:
            raise changed_error(path)
        names: dict[str, None] = {}  # each once, in order
        for part_names in self._column_names.values():
            names.update(dict.fromkeys(part_names))
        try:
            with pq.ParquetFile(path, metadata=self._metadata[file_number], memory_map=True) as file:
                table = file.read_row_group(group, list(names), use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise _damaged_error(path, group) from error
        if len(table) != self._sizes[block]:
            raise _damaged_error(path, group)
        return tuple(self._stack_columns(part, table, path) for part in self._column_names)

    def _stack_columns(self, part: str, table: pa.Table, path: Path) -> Tensor:
        """Return the columns of a part of a batch side by side, or as one dimension where there is a name alone."""
        names = self._column_names[part]
        width = sum(self._widths[name] for name in names)
        out = np.empty((len(table), width), self._types[part])
        first_column = 0
        for name in names:
            next_column = first_column + self._widths[name]
            _fill_columns(out[:, first_column:next_column], part, name, table.column(name), path)
            first_column = next_column
        is_vector = part == "weight" or (part == "target" and isinstance(self.target, str))
        return torch.from_numpy(out[:, 0] if is_vector else out)

    @cached_property
    def _identity(self) -> str:
        files = [(path.name, fingerprint_file(path)) for path in self.paths]
        return fingerprint([files, self._sizes, self._column_names, isinstance(self.target, str)])


def _list_files(paths: Any) -> list[Path]:
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    files: list[Path] = []
    for path in given:
        files += sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"paths: expected Parquet files or a folder of some, got none in {[str(p) for p in given]}")
    return files


def _read_metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"paths: expected a Parquet file, got {str(path)!r}") from error


def _read_schema(path: Path, metadata: pq.FileMetaData) -> pa.Schema:
    try:
        return metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        raise ValueError(f"paths: expected columns of known types in {str(path)!r}, got others") from error


def _damaged_error(path: Path, group: int) -> ValueError:
    return ValueError(f"paths: row group {group} of {str(path)!r} cannot be read; is it damaged?")


def _describe_column(part: str, name: str, path: Path, schema: pa.Schema) -> tuple[int, bool]:
    """Return how many numbers a row of a column has, and whether they are whole."""
    if schema.names.count(name) != 1:
        found = "two columns" if name in schema.names else "no column"
        raise ValueError(f"{part}: {found} {name!r} in {path.name}; it has {', '.join(schema.names)}")
    kind = schema.field(name).type
    width = 1
    if part == "features" and pa.types.is_fixed_size_list(kind) and kind.list_size:
        width = kind.list_size
        kind = kind.value_type
    elif pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    is_fraction = pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and width == 1)
    if not (is_whole or is_fraction):
        raise ValueError(f"{part}: expected numbers in column {name!r} of {path.name}, got {kind}; {_advise(kind)}")
    return width, is_whole


def _advise(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "fill it, or leave the file out"
    if pa.types.is_nested(kind):
        return "for features, write lists of one length as fixed-size lists of numbers: pa.list_(pa.float32(), length)"
    return "encode it as numbers"


def _read_numbers(part: str, name: str, column: pa.ChunkedArray, path: Path) -> Any:
    """Return a column as an array, ``(N, width)``."""
    chunks = column.chunks
    kind = column.type
    if pa.types.is_fixed_size_list(kind):
        chunks = [chunk.flatten() for chunk in chunks]
        kind = kind.value_type
    elif pa.types.is_dictionary(kind):
        chunks = [chunk.dictionary_decode() for chunk in chunks]
        kind = kind.value_type
    numbers = pa.chunked_array(chunks, kind)
    if nulls := max(column.null_count, numbers.null_count):
        raise ValueError(f"{part}: expected no nulls in column {name!r} of {path.name}, got {nulls}; fill or drop them")
    if pa.types.is_decimal(kind):
        numbers = numbers.cast(pa.float64())
    return numbers.to_numpy().reshape(len(column), -1)


def _fill_columns(out: Any, part: str, name: str, column: pa.ChunkedArray, path: Path) -> None:
    """Write a column into an array, or raise if that would change its numbers by more than rounding."""
    array = _read_numbers(part, name, column, path)
    where = f"in column {name!r} of {path.name}"
    try:
        with np.errstate(over="raise"):
            out[...] = array
    except FloatingPointError as error:
        raise ValueError(
            f"{part}: expected numbers that float32 can hold {where}, got larger ones; scale it"
        ) from error
    if out.dtype == np.int64 and array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{part}: expected whole numbers below 2**63 {where}, got {array.max()}; renumber the classes")
    if part == "target" and out.dtype == np.float32:
        large = array[np.abs(array.astype(np.float64)) > _MAX_EXACT_FLOAT32].astype(np.float64)
        is_whole = large == np.floor(large)
        is_rounded = large != large.astype(np.float32)
        rounded = large[is_whole & is_rounded]
        if len(rounded):
            raise ValueError(
                f"{part}: expected whole numbers up to 2**24 {where}, since float32 rounds others, got "
                f"{rounded[0]:.0f}; write it as whole numbers in all files"
            )


_MAX_EXACT_FLOAT32 = 2**24
