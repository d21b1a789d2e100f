"""Damaged Parquet and Feather files, each made from its number alone."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

ROWS = 200
KINDS = ("feather", "parquet")
_HEAD = 8  # by its first bytes a file is recognised; these stay


def make_table(seed: int) -> pa.Table:
    """Return a table with columns of many types, and a target "ripe"."""
    r = random.Random(seed)  # noqa: S311
    words = [None if r.random() < 0.05 else r.choice(["flat", "round", "a longer word", "süß"]) for _ in range(ROWS)]
    days = [dt.datetime(2020, 1, 1) + dt.timedelta(hours=r.randrange(10**5)) for _ in range(ROWS)]
    return pa.table(
        {
            "size": pa.array([None if r.random() < 0.05 else r.gauss(0, 1) for _ in range(ROWS)]),
            "count": pa.array([r.randrange(5) for _ in range(ROWS)], pa.int32()),
            "shape": pa.array(words),
            "farm": pa.array(words).dictionary_encode(),
            "day": pa.array(days),
            "sweet": pa.array([r.random() < 0.5 for _ in range(ROWS)]),
            "sizes": pa.array([[r.random() for _ in range(r.randrange(3))] for _ in range(ROWS)]),
            "price": pa.array([decimal.Decimal(r.randrange(10**4)) for _ in range(ROWS)], pa.decimal128(20, 2)),
            "ripe": pa.array([r.choice(["no", "yes"]) for _ in range(ROWS)]),
        }
    )


def write_whole(table: pa.Table, kind: str, r: random.Random) -> bytes:
    """Return the bytes of a file, with a compression that the format offers."""
    sink = io.BytesIO()
    if kind == "feather":
        rows = r.choice([ROWS, ROWS // 4])
        pa.feather.write_feather(
            table, sink, compression=r.choice(["uncompressed", "uncompressed", "lz4", "zstd"]), chunksize=rows
        )
    else:
        pq.write_table(
            table,
            sink,
            compression=r.choice(["none", "snappy", "zstd", "gzip"]),
            use_dictionary=r.random() < 0.5,
            data_page_version=r.choice(["1.0", "2.0"]),
            row_group_size=r.choice([ROWS, ROWS // 4]),
        )
    return sink.getvalue()


def damage(data: bytes, r: random.Random) -> bytes:
    """Return bytes of which some were changed, overwritten by large numbers, moved or cut off."""
    found = bytearray(data)
    how = r.choice(["flip", "large", "large", "large", "noise", "move", "cut"])
    for _ in range(r.choice([1, 1, 2, 8, 30])):
        at = r.randrange(_HEAD, len(found) - 8)
        if how == "flip":
            found[at] ^= 1 << r.randrange(8)
        elif how == "large":
            at -= at % 4
            size = r.choice([4, 4, 8])
            number = r.choice([-1, 0, 1, -(2 ** (8 * size - 1)), 2 ** (8 * size - 1) - 1, r.randrange(2**24)])
            found[at : at + size] = number.to_bytes(size, "little", signed=True)
        elif how == "noise":
            found[at : at + 4] = r.randbytes(4)
        elif how == "move":
            other = r.randrange(_HEAD, len(found) - 8)
            found[at : at + 8] = found[other : other + 8]
    if how == "cut":
        del found[r.randrange(_HEAD, len(found)) :]
    return bytes(found)


def make_damaged(number: int, place: Path) -> Path:
    """Write the damaged file of a number into a folder."""
    r = random.Random(f"table {number}")  # noqa: S311
    kind = KINDS[number % 2]
    path = place / f"{number}.{kind}"
    path.write_bytes(damage(write_whole(make_table(number % 7), kind, r), r))
    return path
