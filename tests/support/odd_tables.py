"""Tables whose cells are of another type than they were in training, each made from its number alone."""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Make = Callable[[random.Random, int], pa.Array]


def _lists(inner: Callable[[random.Random], Any]) -> Make:
    return lambda r, rows: pa.array([[inner(r) for _ in range(r.randrange(3))] for _ in range(rows)])


def _whole(kind: pa.DataType, least: int, most: int) -> Make:
    return lambda r, rows: pa.array([r.randint(least, most) for _ in range(rows)], pa.int64()).view(kind)


def _each(make: Callable[[random.Random], Any], kind: pa.DataType | None = None) -> Make:
    return lambda r, rows: pa.array([make(r) for _ in range(rows)], kind)


_DAY = dt.date(2020, 1, 1)
ODD: dict[str, Make] = {
    "lists of numbers": _lists(lambda r: r.random()),
    "lists of texts": _lists(lambda r: r.choice("abc")),
    "lists of lists": _lists(lambda r: [r.random()]),
    "structs": _each(lambda r: {"a": r.randrange(3), "b": None}),
    "maps": _each(lambda r: [("a", r.randrange(3))], pa.map_(pa.string(), pa.int64())),
    "bytes": _each(lambda r: r.randbytes(3)),
    "fixed bytes": _each(lambda r: r.randbytes(3), pa.binary(3)),
    "times": _each(lambda r: dt.time(r.randrange(24))),
    "durations": _each(lambda r: dt.timedelta(days=r.randrange(10**5))),
    "dates": _each(lambda r: _DAY + dt.timedelta(days=r.randrange(3000))),
    "dates out of range": _each(lambda r: r.randint(-(2**31), 2**31 - 1), pa.date32()),
    "seconds out of range": _whole(pa.timestamp("s"), -(2**62), 2**62),
    "milliseconds out of range": _whole(pa.timestamp("ms"), -(2**62), 2**62),
    "microseconds out of range": _whole(pa.timestamp("us"), -(2**62), 2**62),
    "nanoseconds with a zone": _whole(pa.timestamp("ns", "Europe/Prague"), -(2**62), 2**62),
    "seconds with a zone": _whole(pa.timestamp("s", "Europe/Prague"), -(2**62), 2**62),
    "an unknown zone": _whole(pa.timestamp("s", "Mars/Olympus"), 0, 2**31),
    "nulls": lambda r, rows: pa.nulls(rows),
    "decimals": _each(lambda r: decimal.Decimal(r.randrange(10**9)).scaleb(-3), pa.decimal128(30, 3)),
    "large decimals": _each(lambda r: decimal.Decimal(10**37), pa.decimal128(38, 0)),
    "categories of numbers": lambda r, rows: _each(lambda r: r.random())(r, rows).dictionary_encode(),
    "categories of dates": lambda r, rows: ODD["dates"](r, rows).dictionary_encode(),
    "categories of bytes": lambda r, rows: ODD["bytes"](r, rows).dictionary_encode(),
    "large numbers": _whole(pa.uint64(), -1, -1),
    "half floats": lambda r, rows: _each(lambda r: r.random(), pa.float32())(r, rows).cast(pa.float16()),
    "infinities": _each(lambda r: r.choice([float("inf"), float("-inf"), float("nan"), 1e308])),
    "booleans": _each(lambda r: r.random() < 0.5),
    "control characters": _each(lambda r: r.choice(["\x1b[31m", "\0", "\n", "\u202e", ""])),
    "long texts": _each(lambda r: "x" * r.choice([0, 1, 10**5])),
    "runs": lambda r, rows: pa.RunEndEncodedArray.from_arrays(pa.array([rows], pa.int32()), pa.array([1.5])),
    "views of texts": lambda r, rows: _each(lambda r: r.choice("abc"))(r, rows).cast(pa.string_view()),
    "intervals": _each(lambda r: (1, 2, 3), pa.month_day_nano_interval()),
    "unions": lambda r, rows: pa.UnionArray.from_sparse(
        pa.array([i % 2 for i in range(rows)], pa.int8()), [pa.array(range(rows)), pa.array(["a"] * rows)]
    ),
}


def replace_column(table: pa.Table, column: str, what: str, seed: int = 0) -> pa.Table:
    """Return a table with the cells of a column replaced by odd ones."""
    cells = ODD[what](random.Random(seed), table.num_rows)  # noqa: S311
    return table.set_column(table.column_names.index(column), column, cells)
