"""``metricgrad predict``: a run's model on a file of any size, in pieces, on all cores."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from metricgrad.app.errors import WRITE, WRONG_CALL, UserError, near, one_line
from metricgrad.app.runs import folder as runs
from metricgrad.app.tables import files

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from metricgrad.app.runs.folder import Model

WHAT = ("both", "labels", "scores")

_CELLS = 1 << 22  # numbers of a piece: 16 MB a copy


def predict(
    run: str | Path,
    data: str | Path,
    output: str | Path,
    *,
    what: str = "both",
    keep: Sequence[str] = (),
    force: bool = False,
    jobs: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write a row of predictions for every row of the data, in their order, and return what happened.

    ``what``: labels, scores or both. ``keep``: columns of the data to write along, such as an id. ``force``: replace
    the output. ``jobs``: how many pieces at once. ``progress``: told the number of rows of every piece that is done.
    """
    if what not in WHAT:
        raise UserError(f"what: expected one of {', '.join(WHAT)}, got {what!r}", WRONG_CALL)
    _check_output(Path(output), Path(data), force)
    model = runs.load(run).model
    source = files.Source(data)
    model.schema.check(source.names)
    for name in keep:
        if name not in source.names:
            raise UserError(
                f"id: expected a column of the data, got {one_line(name)!r}; {near(name, source.names)}", WRONG_CALL
            )
    work = _Work(model, what, tuple(keep))
    if clash := set(keep) & set(work.names):
        raise UserError(f"id: {min(clash)!r} is the name of a column of predictions; rename it in the data", WRONG_CALL)
    columns = list(dict.fromkeys((*keep, *model.schema.inputs)))
    jobs = jobs or os.cpu_count() or 1
    start, rows = time.perf_counter(), 0
    pieces = source.pieces(work.rows, columns)
    with files.write(output) as file, closing(_in_order(work, pieces, jobs)) as tables:
        for table in tables:
            file.add(table)
            rows += table.num_rows
            if progress is not None:
                progress(table.num_rows)
        if not rows:
            raise UserError(f"{data}: expected rows to predict, got none")
    seconds = time.perf_counter() - start
    return {
        "run": str(run),
        "data": str(data),
        "output": str(output),
        "rows": rows,
        "predicted": {name: int(work.predicted[name]) for name in model.schema.classes},
        "unknown": dict(work.unknown),
        "seconds": round(seconds, 3),
        "warnings": [
            f"column {one_line(name, 60)!r}: {count} cells ({count / rows:.1%}) mean nothing to the model "
            "(new categories, or texts for numbers) and count as missing"
            for name, count in work.unknown.items()
        ],
    }


def _check_output(output: Path, data: Path, force: bool) -> None:
    files.kind_of(output)
    if output.exists():
        if data.exists() and output.samefile(data):
            raise UserError(f"{output}: expected another file than the data; choose another --output", WRONG_CALL)
        if output.is_dir() or not force:
            raise UserError(f"{output}: exists already; choose another --output, or replace it with --force", WRITE)


@dataclass(eq=False)
class _Work:
    """From a piece of the data to a piece of the output."""

    model: Model
    what: str
    keep: tuple[str, ...]
    predicted: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        schema = self.model.schema
        each = schema.task != "binary"
        self.scores = [f"score {name}" for name in schema.classes] if each else ["score"]
        many = schema.task == "multilabel"
        self.labels = [f"prediction {name}" for name in schema.classes] if many else ["prediction"]
        self.names = [*(self.labels if self.what != "scores" else ()), *(self.scores if self.what != "labels" else ())]
        width = len(self.model.encoder.get_feature_names_out())
        self.rows = min(files.ROWS, max(1024, _CELLS // max(1, width)))
        # Encoding costs per piece, scoring per byte that leaves the cache: four parts of a piece are fastest.
        self.part = -(-self.rows // 4)

    def __call__(self, piece: pa.Table) -> tuple[pa.Table, Any, dict[str, int]]:
        model, unknown = self.model, dict[str, int]()
        features = runs.encoded(model.encoder, model.schema.features(files.as_frame(piece), unknown))
        parts = (features[start : start + self.part] for start in range(0, len(features), self.part))
        scores = np.concatenate([model.scorer.scores(part) for part in parts])
        decided = model.decide(scores)
        columns: list[Any] = [piece.column(name) for name in self.keep]
        if self.what != "scores":
            columns += [pa.array(column) for column in decided.T] if decided.ndim == 2 else [self._named(decided)]
        if self.what != "labels":
            columns += [pa.array(column) for column in np.atleast_2d(scores.T)]
        counts = decided.sum(0) if decided.ndim == 2 else np.bincount(decided, minlength=len(model.schema.classes))
        return pa.table(columns, names=[*self.keep, *self.names]), counts, unknown

    def _named(self, decided: Any) -> Any:
        labels = pa.array(self.model.schema.target.labels)
        return labels.take(pa.array(decided))

    def add(self, counts: Any, unknown: dict[str, int]) -> None:
        self.predicted.update(dict(zip(self.model.schema.classes, map(int, counts), strict=True)))
        self.unknown.update(unknown)


def _in_order(work: _Work, pieces: Iterable[pa.Table], jobs: int) -> Generator[pa.Table]:
    """Yield the output in the order of the data, with as many pieces under way as there are jobs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the pieces share the cores out
    pool = ThreadPoolExecutor(jobs)
    waiting: deque[Any] = deque()
    try:
        for piece in pieces:
            waiting.append(pool.submit(work, piece))
            if len(waiting) > jobs:
                yield _done(work, waiting)
        while waiting:
            yield _done(work, waiting)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _done(work: _Work, waiting: deque[Any]) -> pa.Table:
    table, counts, unknown = waiting.popleft().result()
    work.add(counts, unknown)
    return table
