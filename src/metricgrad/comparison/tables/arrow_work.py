"""What the separate process of ``arrow_files`` does: reads a Parquet or Feather file, and hands valid rows over.

It imports nothing of metricgrad. Standard output gets a stream without rows, which has the schema; then, for the
request on standard input, one with the rows.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_THREADS = 4  # each of them takes address space, of which there is a limit


def work(limit: Callable[[int], None], kind: str, path: str) -> None:
    """Read a file of a kind, "parquet" or "feather"."""
    pa.set_cpu_count(min(_THREADS, os.cpu_count() or 1))
    limit(Path(path).stat().st_size)
    with pa.memory_map(path) as raw, _OPEN[kind](raw) as file:
        schema = _find_schema(file)
        _write(schema, [])
        request = json.loads(sys.stdin.buffer.read() or "null")
        if request is not None:
            names = request["names"]
            chosen = pa.schema([schema.field(name) for name in names])
            _write(chosen, _READ[kind](file, names, request["rows"]))


def _find_schema(file: Any) -> pa.Schema:
    schema = file.schema_arrow if isinstance(file, pq.ParquetFile) else file.schema
    return schema.remove_metadata()


def _write(schema: pa.Schema, batches: Any) -> None:
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
        for batch in batches:
            batch.validate(full=True)
            stream.write_batch(batch)
    sys.stdout.buffer.flush()


def _read_parquet(file: pq.ParquetFile, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in file.iter_batches(rows, columns=names):
        yield batch.select(names)  # in this order, and without "size.min", which begins like "size"


def _read_feather(file: Any, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    for place in range(file.num_record_batches):
        batch = file.get_batch(place).select(names)
        # The whole batch, before any of it is used.
        batch.validate(full=True)
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _open_parquet(raw: Any) -> pq.ParquetFile:
    return pq.ParquetFile(raw, page_checksum_verification=True)  # of the files that have checksums


_OPEN: dict[str, Callable[[Any], Any]] = {"parquet": _open_parquet, "feather": pa.ipc.open_file}
_READ: dict[str, Callable[[Any, list[str], int], Iterator[pa.RecordBatch]]] = {
    "parquet": _read_parquet,
    "feather": _read_feather,
}
