"""Parquet, Feather and Excel files are read in a separate process: a damaged one can crash the library that reads it.

``arrow_work`` or ``excel_work`` is what runs in that process. It checks every cell, so that nothing that comes back can
crash this one.
"""

from __future__ import annotations

import json
import logging
import weakref
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from metricgrad.comparison.child_process import Child
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables import arrow_work
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator


log = logging.getLogger("metricgrad")

_EXCEL_WORK = str(Path(__file__).with_name("excel_work.py"))  # not imported here, since it needs the extra "excel"


class ArrowFile:
    """A file of a kind, "parquet", "feather" or "excel": its schema, and its rows piece by piece.

    ``place``: where its bytes are; ``path``: what the user calls it.
    """

    def __init__(self, place: Path, path: Path, kind: str) -> None:
        self._place, self._path, self._kind = place, path, kind
        self._child: Child | None = self._start()  # it imports pyarrow while the caller goes on

    def _start(self) -> Child:
        file = _EXCEL_WORK if self._kind == "excel" else arrow_work.__file__
        child = Child(file, self._kind, str(self._place))
        weakref.finalize(self, child.stop)
        return child

    @cached_property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        schema = self._read_schema(self._child or self._start())
        if self._kind == "excel" and schema.metadata:
            log.warning("%s %s", self._path, one_line(schema.metadata[b"note"].decode(), 200))
        return schema.remove_metadata()

    def read(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Yield these columns in batches of at most so many rows."""
        _ = self.schema  # which the process tells before anything else
        child, self._child = self._child, None
        if child is None:  # it has read the file already, for another call
            child = self._start()
            self._read_schema(child)
        request = json.dumps({"names": names, "rows": rows}).encode()
        try:
            with self._refuse_damaged(child):
                child.stdin.write(request)
                child.stdin.close()
                yield from pa.ipc.open_stream(child.stdout)
            self._check_end(child)
        finally:
            child.stop()

    def _read_schema(self, child: Child) -> pa.Schema:
        with self._refuse_damaged(child):
            stream = pa.ipc.open_stream(child.stdout)
            stream.read_all()  # to its end, after which the next one begins
            return stream.schema

    @contextmanager
    def _refuse_damaged(self, child: Child) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            child.stdout.close()  # the process ends if it has not
            raise self._explain(child.explain() or one_line(error)) from error

    def _check_end(self, child: Child) -> None:
        """Raise unless the process did all of its work: a stream that breaks off may look like one that ends."""
        why = child.explain()
        if why is not None:
            raise self._explain(why)

    def _explain(self, why: str) -> UserError:
        return UserError(f"{self._path}: cannot be read ({one_line(why, 200)}); write or copy the file again")
