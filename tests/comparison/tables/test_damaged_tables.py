"""Damaged and odd Parquet and Feather files: read as valid rows, or refused in one line, and never a crash."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from damaged_tables import make_damaged
from metricgrad.comparison import child_process
from metricgrad.comparison.child_process import Child
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.options import _find_large_group, _read_groups
from metricgrad.comparison.tables import arrow_work, files
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.times import read_times
from odd_tables import ODD, replace_column
from tables import binary

# The last one is a Feather file that ended the process which read it.
NUMBERS = [*range(24), 528]


@pytest.mark.parametrize("number", NUMBERS)
def test_damaged_files_are_refused_or_read(number: int, tmp_path: Path) -> None:
    path = make_damaged(number, tmp_path)
    with suppress(UserError):  # which is always of one line
        frame = files.read(path)
        pa.Table.from_pandas(frame).validate(full=True)


def _overwrite(table: pa.Table, old: bytes, new: bytes, compression: str = "uncompressed") -> bytes:
    """Return a Feather file with some of its bytes replaced."""
    sink = io.BytesIO()
    pa.feather.write_feather(table, sink, compression=compression)
    data = sink.getvalue()
    assert data.count(old) >= 1
    return data.replace(old, new, 1)


def _as_bytes(*numbers: int) -> bytes:
    return np.array(numbers, dtype=np.int32).tobytes()


WORDS = pa.array(["aa", "bb", "cc", "dd"] * 50)
OFFSETS = _as_bytes(0, 2, 4, 6, 8, 10)
FORGED: dict[str, tuple[pa.Array, bytes, bytes]] = {
    "texts beyond the file": (WORDS, OFFSETS, _as_bytes(0, 2, 2**30, 2**30 + 2, 8, 10)),
    "texts of negative length": (WORDS, OFFSETS, _as_bytes(0, -(2**31), 4, 6, 8, 10)),
    "texts that are no UTF-8": (WORDS, b"aabbccdd", b"a\xffbbccdd"),
    "categories that do not exist": (
        WORDS.dictionary_encode(),
        _as_bytes(0, 1, 2, 3, 0, 1),
        _as_bytes(0, 1, 2**30, 3, 0, 1),
    ),
    "lists beyond the file": (
        pa.array([[1.0, 2.0]] * 200),
        OFFSETS,
        _as_bytes(0, 2, 2**30, 6, 8, 10),
    ),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_cells_are_refused_before_they_are_used(case: str, tmp_path: Path) -> None:
    cells, old, new = FORGED[case]
    path = tmp_path / "a.feather"
    path.write_bytes(_overwrite(pa.table({"a": cells}), old, new))
    with pytest.raises(UserError, match=r"a.feather: cannot be read \(ArrowInvalid: .*write or copy the file again$"):
        list(files.stream(path))


def test_nulls_of_any_number_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "find_memory_limit", lambda: 10**6)
    pa.feather.write_feather(pa.table({"a": pa.nulls(10**6)}), str(tmp_path / "a.feather"))  # a few hundred bytes
    with pytest.raises(UserError, match="fits into memory"):
        files.read(tmp_path / "a.feather")


def test_checksums_are_verified(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = np.arange(1000) / 7
    with files.write(path) as file:
        file.add(pa.table({"a": values}))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # of a number, which would be another one
    path.write_bytes(data)
    with pytest.raises(UserError, match="cannot be read"):
        files.read(path)


# The separate process


def _work(tmp_path: Path, text: str) -> str:
    path = tmp_path / "work.py"
    path.write_text(f"import os, signal, sys\ndef work(limit, *words):\n    {text}\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "it crashes its library (SIGSEGV)"),
        ("limit(0); bytearray(1 << 40)", "MemoryError:"),
        ("os.kill(os.getpid(), signal.SIGXCPU)", "its library did not finish reading it"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("print('x' * 10**6, file=sys.stderr)", None),
    ],
)
def test_why_a_process_failed(text: str, message: str | None, tmp_path: Path) -> None:
    process = Child(_work(tmp_path, text.replace("\n", "\\n")))
    why = process.explain()
    process.stop()
    assert why == message


def test_a_crash_while_rows_are_read_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "work.py"
    source = Path(arrow_work.__file__).read_text()
    crash = "            stream.write_batch(batch)\n            sys.stdout.buffer.flush()\n            os.abort()\n"
    script.write_text(source.replace("            stream.write_batch(batch)\n", crash))
    monkeypatch.setattr(arrow_work, "__file__", str(script))
    pq.write_table(pa.table({"a": range(100)}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"a.parquet: cannot be read \(it crashes its library \(SIGABRT\)\)"):
        files.read(tmp_path / "a.parquet")


def test_a_file_is_read_again_and_left_in_the_middle(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(100), "a.b": range(100)}), tmp_path / "a.parquet")
    source = files.Source(tmp_path / "a.parquet")
    assert source.names == ["a", "a.b"]
    assert [piece.num_rows for piece in source.pieces(60)] == [60, 40]
    first = next(iter(source.pieces(10, ["a.b", "a"])))
    assert first.column_names == ["a.b", "a"]
    assert next(iter(source.pieces(10, ["a"]))).column_names == ["a"]


def test_the_limit_of_memory_is_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    resource: Any = pytest.importorskip("resource")
    limits: dict[int, int] = {}
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.update({which: pair[0]}))
    monkeypatch.setattr(child_process, "find_free_memory", lambda: 3 << 30)
    child_process._limit(0)
    small = limits[resource.RLIMIT_AS]
    child_process._limit(1 << 40)
    assert limits[resource.RLIMIT_AS] - (1 << 40) - small <= (1 << 30) + (64 << 20)


# Cells of another type than in training

GOOD = pa.Table.from_pandas(binary(120), preserve_index=False).replace_schema_metadata()


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.of(files.as_frame(GOOD), "ripe")


def _read(frame: Any) -> Any:
    return Schema.of(frame, "ripe").to_features(frame)


@pytest.mark.parametrize("what", ODD)
def test_odd_cells_cost_one_line(what: str, schema: Schema, tmp_path: Path) -> None:
    calls: list[Callable[[Any, str], Any]] = [
        lambda frame, name: _read(frame),
        lambda frame, name: schema.to_features(frame, Gaps()),
        lambda frame, name: schema.encode_targets(schema.keep_labelled(frame)),
        lambda frame, name: (_read_groups(frame[name]), _find_large_group(frame, name)),
        lambda frame, name: read_times(frame[name], None),
    ]
    for name in GOOD.column_names:
        table = replace_column(GOOD, name, what)
        for call in calls:
            with suppress(UserError):  # which is always of one line
                call(files.as_frame(table), name)
        with suppress(UserError), files.write(tmp_path / "a.csv") as file:
            file.add(table.select([name]))
