"""JSON Lines: one record a line. Cells are read as those of CSV: as texts, as they are written in the file."""

from __future__ import annotations

import codecs
import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables.dialects import clean_cells
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OBJECT = re.compile(rb'\s*\{\s*("|\}|$)')
_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")
_WORDS = {True: "true", False: "false"}

_AS_JSON_LINES = "JSON Lines, as DataFrame.to_json(lines=True, orient='records') does"


def is_json(head: bytes) -> bool:
    """Tell whether a file that begins with these bytes is JSON: CSV has column names there."""
    head = head.removeprefix(codecs.BOM_UTF8)
    return _OBJECT.match(head) is not None or _ARRAY.match(head) is not None


class JsonLines:
    """A file of records: the names of its columns, and its rows piece by piece.

    ``place``: where its bytes are; ``path``: what the user calls it.
    """

    def __init__(self, place: Path, path: Path) -> None:
        self._place, self._path = place, path

    def find_names(self) -> list[str]:
        """Return the names of all columns, in the order in which they first occur; every line is read."""
        names: dict[str, None] = {}
        for record in self._read_records():
            names |= dict.fromkeys(record)
        return list(names)

    def read_tables(self, names: list[str], rows: int) -> Iterator[pa.Table]:
        """Yield these columns in tables of at most so many rows; a column that a record lacks is missing there."""
        records = self._read_records()
        while some := list(islice(records, rows)):
            columns = [pa.array([record.get(name) for record in some], pa.large_string()) for name in names]
            yield pa.table([clean_cells(column) for column in columns], names=names)

    def _read_records(self) -> Iterator[dict[str, str | None]]:
        with self._place.open("rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line.strip():
                    yield self._read_record(line, number)

    def _read_record(self, line: bytes, number: int) -> dict[str, str | None]:
        try:
            # Numbers stay as they are written, so that nothing is lost, and whole numbers are not made floats.
            pairs = json.loads(
                line.decode(), parse_int=str, parse_float=str, parse_constant=_read_constant, object_pairs_hook=_Pairs
            )
        except UnicodeDecodeError as error:
            raise self._explain(number, "expected UTF-8 text, got a broken character; save it again") from error
        except (ValueError, RecursionError) as error:
            why = one_line(error, 80)
            raise self._explain(
                number,
                f"expected a JSON record in one line ({why}); write {_AS_JSON_LINES}",
            ) from error
        if not isinstance(pairs, _Pairs):
            got = one_line(line.decode(), 40)
            raise self._explain(number, f'expected a record such as {{"a": 1}}, got {got}; write {_AS_JSON_LINES}')
        record = dict(pairs)
        if len(record) < len(pairs):
            raise self._explain(number, "expected every column name once, got one more than once; rename them")
        return {name: self._read_cell(name, value, number) for name, value in record.items()}

    def _read_cell(self, name: str, value: Any, number: int) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return _WORDS[value]
        kind = "a record" if isinstance(value, _Pairs) else "a list"
        raise self._explain(
            number, f"column {one_line(name, 60)!r}: expected one value, got {kind}; make a column of each of its parts"
        )

    def _explain(self, number: int, what: str) -> UserError:
        return UserError(f"{self._path}: line {number}: {what}")


class _Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object, with names that occur twice."""


def _read_constant(word: str) -> str | None:
    """Return what NaN, Infinity and -Infinity are, which Python writes although JSON has no such words."""
    return None if word == "NaN" else word.replace("Infinity", "inf")
