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
from metricgrad.training.data_identity import changed_error, fingerprint, fingerprint_file, stamp

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
        found = [(path, stamp("paths", path), _metadata(path)) for path in _files(paths)]
        filled = [file for file in found if file[2].num_rows]
        if not filled:
            raise ValueError(f"paths: expected at least one row, got none in {len(found)} files")
        self.paths, self._stamps, self._metadata = (list(column) for column in zip(*filled, strict=True))
        self.features = [features] if isinstance(features, str) else list(features)
        self.target, self.weight = target if isinstance(target, str) else list(target), weight
        self._widths, self._types = self._agreed()
        every = [(f, g) for f, metadata in enumerate(self._metadata) for g in range(metadata.num_row_groups)]
        rows = [self._metadata[f].row_group(g).num_rows for f, g in every]
        self._groups = [group for group, size in zip(every, rows, strict=True) if size]
        shared: dict[str, Any] = {"seed": seed, "rank": rank, "world_size": world_size}
        super().__init__([size for size in rows if size], batch_size, shuffle=shuffle, buffer=buffer, **shared)

    @property
    def _named(self) -> dict[str, list[str]]:
        """The columns of each part of a batch."""
        target = [self.target] if isinstance(self.target, str) else self.target
        return {"features": self.features, "target": target} | ({"weight": [self.weight]} if self.weight else {})

    def _agreed(self) -> tuple[dict[str, int], dict[str, Any]]:
        """Return the width of each column and the type of each part of a batch, the same in all files."""
        widths: dict[str, int] = {}
        types: dict[str, Any] = {part: np.float32 if part == "features" else np.int64 for part in self._named}
        for path, metadata in zip(self.paths, self._metadata, strict=True):
            schema = _schema(path, metadata)
            for part, names in self._named.items():
                if not names:
                    raise ValueError(f"{part}: expected at least one column, got none")
                for name in names:
                    width, whole = _form(part, name, path, schema)
                    if widths.setdefault(name, width) != width:
                        raise ValueError(
                            f"{part}: expected {widths[name]} numbers a row in column {name!r} of {path.name}, as in "
                            f"{self.paths[0].name}, got {width}; write all files with one width"
                        )
                    types[part] = types[part] if whole else np.float32
        return widths, types

    def _read(self, block: int) -> RowTensors:
        f, group = self._groups[block]
        path = self.paths[f]
        if stamp("paths", path) != self._stamps[f]:
            raise changed_error(path)
        names = list(dict.fromkeys(name for names in self._named.values() for name in names))
        try:
            with pq.ParquetFile(path, metadata=self._metadata[f], memory_map=True) as file:
                table = file.read_row_group(group, names, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(path, group) from error
        if len(table) != self._sizes[block]:
            raise _damaged(path, group)
        return tuple(self._part(part, table, path) for part in self._named)

    def _part(self, part: str, table: pa.Table, path: Path) -> Tensor:
        """Return the columns of a part of a batch side by side, or as one dimension where there is a name alone."""
        names = self._named[part]
        out = np.empty((len(table), sum(self._widths[name] for name in names)), self._types[part])
        low = 0
        for name in names:
            high = low + self._widths[name]
            _fill(out[:, low:high], part, name, table.column(name), path)
            low = high
        flat = part == "weight" or (part == "target" and isinstance(self.target, str))
        return torch.from_numpy(out[:, 0] if flat else out)

    @cached_property
    def _identity(self) -> str:
        files = [(path.name, fingerprint_file(path)) for path in self.paths]
        return fingerprint([files, self._sizes, self._named, isinstance(self.target, str)])


def _files(paths: Any) -> list[Path]:
    given = [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]
    found = [file for path in given for file in (sorted(path.glob("*.parquet")) if path.is_dir() else [path])]
    if not found:
        raise ValueError(f"paths: expected Parquet files or a folder of some, got none in {[str(p) for p in given]}")
    return found


def _metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"paths: expected a Parquet file, got {str(path)!r}") from error


def _schema(path: Path, metadata: pq.FileMetaData) -> pa.Schema:
    try:
        return metadata.schema.to_arrow_schema()
    except pa.ArrowException as error:
        raise ValueError(f"paths: expected columns of known types in {str(path)!r}, got others") from error


def _damaged(path: Path, group: int) -> ValueError:
    return ValueError(f"paths: row group {group} of {str(path)!r} cannot be read; is it damaged?")


def _form(part: str, name: str, path: Path, schema: pa.Schema) -> tuple[int, bool]:
    """Return how many numbers a row of a column has, and whether they are whole."""
    if schema.names.count(name) != 1:
        found = "two columns" if name in schema.names else "no column"
        raise ValueError(f"{part}: {found} {name!r} in {path.name}; it has {', '.join(schema.names)}")
    kind, width = schema.field(name).type, 1
    if part == "features" and pa.types.is_fixed_size_list(kind) and kind.list_size:
        kind, width = kind.value_type, kind.list_size
    elif pa.types.is_dictionary(kind):
        kind = kind.value_type
    whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    if not (whole or pa.types.is_floating(kind) or (pa.types.is_decimal(kind) and width == 1)):
        raise ValueError(f"{part}: expected numbers in column {name!r} of {path.name}, got {kind}; {_advice(kind)}")
    return width, whole


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_null(kind):
        return "fill it, or leave the file out"
    if pa.types.is_nested(kind):
        return "for features, write lists of one length as fixed-size lists of numbers: pa.list_(pa.float32(), length)"
    return "encode it as numbers"


def _numbers(part: str, name: str, column: pa.ChunkedArray, path: Path) -> Any:
    """Return a column as an array, ``(N, width)``."""
    chunks, kind = column.chunks, column.type
    if pa.types.is_fixed_size_list(kind):
        chunks, kind = [chunk.flatten() for chunk in chunks], kind.value_type
    elif pa.types.is_dictionary(kind):
        chunks, kind = [chunk.dictionary_decode() for chunk in chunks], kind.value_type
    inner = pa.chunked_array(chunks, kind)
    if nulls := max(column.null_count, inner.null_count):
        raise ValueError(f"{part}: expected no nulls in column {name!r} of {path.name}, got {nulls}; fill or drop them")
    inner = inner.cast(pa.float64()) if pa.types.is_decimal(kind) else inner
    return inner.to_numpy().reshape(len(column), -1)


def _fill(out: Any, part: str, name: str, column: pa.ChunkedArray, path: Path) -> None:
    """Write a column into an array, or raise if that would change its numbers by more than rounding."""
    array = _numbers(part, name, column, path)
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
        large = array[np.abs(array.astype(np.float64)) > _LARGE].astype(np.float64)
        rounded = large[(large == np.floor(large)) & (large != large.astype(np.float32))]
        if len(rounded):
            raise ValueError(
                f"{part}: expected whole numbers up to 2**24 {where}, since float32 rounds others, got "
                f"{rounded[0]:.0f}; write it as whole numbers in all files"
            )


_LARGE = 2**24
