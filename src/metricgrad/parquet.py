"""Batches from Parquet files; needs the extra "streaming"."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from metricgrad.streaming import Rows, Stream, changed, fingerprint, stamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class ParquetBatches(Stream):
    """Batches ``(features, targets)`` or ``(features, targets, weight)`` from Parquet files, a row group at a time.

    ``paths``: a file, a folder (its *.parquet, by name), or a list of files, all with the same columns. ``features``:
    the names of columns of numbers, which become ``(N, F)`` float32; a column of fixed-size lists (an embedding) counts
    as so many. ``target``: a name, for ``(N,)`` targets, or a list of names for ``(N, K)``; whole numbers and booleans
    become int64, others float32. ``weight``: the name of a column. Further keywords as for ``Stream``: ``shuffle``,
    ``buffer``, ``seed``, ``rank``, ``world_size``. Row groups of a quarter of the buffer or less mix well; pyarrow's
    own default is a million rows.

    A column that is missing, holds text or nulls, and a file that changed since, raise ``ValueError``.

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
        **options: Any,
    ) -> None:
        self.paths = _files(paths)
        self.features = [features] if isinstance(features, str) else list(features)
        self.target, self.weight = target if isinstance(target, str) else list(target), weight
        self._stamps = [stamp("paths", path) for path in self.paths]
        self._metadata = [_metadata(path) for path in self.paths]
        self._groups = [(f, g) for f, found in enumerate(self._metadata) for g in range(found.num_row_groups)]
        for path, found in zip(self.paths, self._metadata, strict=True):
            self._check_columns(path, found.schema.to_arrow_schema())
        sizes = [self._metadata[f].row_group(g).num_rows for f, g in self._groups]
        if not sum(sizes):
            raise ValueError(f"paths: expected at least one row, got none in {len(self.paths)} files")
        super().__init__(sizes, batch_size, **options)

    @property
    def _named(self) -> dict[str, list[str]]:
        """The columns of each part of a batch."""
        target = [self.target] if isinstance(self.target, str) else self.target
        return {"features": self.features, "target": target} | ({"weight": [self.weight]} if self.weight else {})

    def _check_columns(self, path: Path, schema: pa.Schema) -> None:
        for part, names in self._named.items():
            if not names:
                raise ValueError(f"{part}: expected at least one column, got none")
            for name in names:
                if name not in schema.names:
                    raise ValueError(f"{part}: no column {name!r} in {path.name}; it has {', '.join(schema.names)}")
                kind = schema.field(name).type
                kind = kind.value_type if part == "features" and pa.types.is_fixed_size_list(kind) else kind
                if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
                    raise ValueError(f"{part}: expected numbers in column {name!r} of {path.name}, got {kind}")

    def _read(self, block: int) -> Rows:
        f, group = self._groups[block]
        path = self.paths[f]
        if stamp("paths", path) != self._stamps[f]:
            raise changed(path)
        names = list(dict.fromkeys(name for names in self._named.values() for name in names))
        try:
            with pq.ParquetFile(path, metadata=self._metadata[f], memory_map=True) as file:
                table = file.read_row_group(group, names, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"paths: row group {group} of {str(path)!r} cannot be read; is it damaged?") from error
        parts = []
        for part, own in self._named.items():
            arrays = [_numbers(part, name, table.column(name), path) for name in own]
            kind = np.float32 if part == "features" else _kind(arrays)
            flat = part == "weight" or (part == "target" and isinstance(self.target, str))
            parts.append(torch.from_numpy(arrays[0].astype(kind)) if flat else _side_by_side(arrays, kind))
        return tuple(parts)

    def _identity(self) -> str:
        return fingerprint(
            [[(path.name, size) for path, (size, _) in zip(self.paths, self._stamps, strict=True)], self._sizes]
        )


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


def _numbers(part: str, name: str, column: pa.ChunkedArray, path: Path) -> Any:
    """Return a column as an array, ``(N,)`` or, of fixed-size lists, ``(N, width)``."""
    width = column.type.list_size if pa.types.is_fixed_size_list(column.type) else 0
    inner = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type) if width else column
    nulls = column.null_count + (inner.null_count if width else 0)
    if nulls:
        raise ValueError(f"{part}: expected no nulls in column {name!r} of {path.name}, got {nulls}; fill or drop them")
    array = inner.to_numpy()
    return array.reshape(-1, width) if width else array


def _kind(arrays: list[Any]) -> Any:
    return np.int64 if all(array.dtype.kind in "biu" for array in arrays) else np.float32


def _side_by_side(arrays: list[Any], kind: Any) -> Tensor:
    widths = [1 if array.ndim == 1 else array.shape[1] for array in arrays]
    out = np.empty((len(arrays[0]), sum(widths)), kind)
    places = [0, *np.cumsum(widths).tolist()]
    for array, (low, high) in zip(arrays, pairwise(places), strict=True):
        out[:, low:high] = array.reshape(len(array), -1)
    return torch.from_numpy(out)
