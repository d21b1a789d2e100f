"""Parquet and Feather files are read in a separate process, since a damaged file can crash the library that reads it.

``arrow_work`` is what runs in that process. It checks every cell, so that nothing that comes back can crash this one.
"""

from __future__ import annotations

import json
import weakref
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from metricgrad.comparison.child_process import Child
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables import arrow_work
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class ArrowFile:
    """A file of a kind, "parquet" or "feather": its schema, and its rows piece by piece."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind
        self._child: Child | None = self._start()  # it imports pyarrow while the caller goes on

    def _start(self) -> Child:
        child = Child(arrow_work.__file__, self._kind, str(self._path))
        weakref.finalize(self, child.stop)
        return child

    @cached_property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return self._read_schema(self._child or self._start())

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
