"""What the separate process of ``arrow_files`` does for spreadsheets: reads the first sheet with calamine, as texts.

As ``arrow_work``, it imports nothing of metricgrad, and writes a stream without rows, then one with those asked for.
Cells are written as in a CSV file, so that both are read in the same way.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from python_calamine import CalamineWorkbook

if TYPE_CHECKING:
    from collections.abc import Callable

_WORDS = {True: "true", False: "false"}


def work(limit: Callable[[int], None], kind: str, path: str) -> None:
    """Read the first sheet of a spreadsheet that has any cells."""
    limit(Path(path).stat().st_size)
    book = CalamineWorkbook.from_path(path)
    sheets = {name: rows for name in book.sheet_names if (rows := book.get_sheet_by_name(name).to_python())}
    if not sheets:
        raise ValueError("expected a sheet with column names and rows, got empty ones")
    name, rows = next(iter(sheets.items()))
    names = [_write_cell(cell) or f"column {place}" for place, cell in enumerate(rows[0], 1)]
    note = {"note": f"has {len(sheets)} sheets, of which the first, {name!r}, was read"} if len(sheets) > 1 else None
    columns = [
        pa.array([_write_cell(row[place]) for row in rows[1:]], pa.large_string()) for place in range(len(names))
    ]
    table = pa.Table.from_arrays(columns, schema=pa.schema([(one, pa.large_string()) for one in names], metadata=note))
    _write(table.schema, [])
    request = json.loads(sys.stdin.buffer.read() or "null")
    if request is not None:
        chosen = table.select(request["names"])
        _write(chosen.schema, chosen.to_batches(max_chunksize=request["rows"]))


def _write_cell(cell: Any) -> str | None:
    """Return a cell as it would be written to a CSV file; None if it is empty."""
    if isinstance(cell, bool):
        return _WORDS[cell]
    if isinstance(cell, float):  # as all numbers of a spreadsheet are
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else repr(cell)
    if isinstance(cell, dt.datetime):
        midnight = cell.time() == dt.time()
        return cell.date().isoformat() if midnight else cell.isoformat(sep=" ")
    text = str(cell).strip()
    return text or None


def _write(schema: pa.Schema, batches: Any) -> None:
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    sys.stdout.buffer.flush()
