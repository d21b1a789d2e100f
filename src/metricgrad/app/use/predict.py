"""``metricgrad predict``: predictions of a run's model for a file of any size, in pieces, on all cores."""

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

from metricgrad.app.errors import WRITE, WRONG_CALL, UserError, one_line, suggest
from metricgrad.app.runs import folder as runs
from metricgrad.app.runs.model import encode_features
from metricgrad.app.tables import files

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from concurrent.futures import Future

    from metricgrad.app.runs.model import Model

WHAT = ("both", "labels", "scores")

_CELLS = 1 << 22  # the most encoded cells in a piece: 16 MB per copy


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
    """Write one row of predictions for every row of the data, in their order, and return a summary.

    ``what``: labels, scores or both. ``keep``: columns of the data to copy to the output, such as an id. ``force``:
    replace an existing output. ``jobs``: the number of pieces to predict at once. ``progress``: called with the number
    of rows of every finished piece.
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
                f"id: expected a column of the data, got {one_line(name)!r}; {suggest(name, source.names)}", WRONG_CALL
            )
    predictor = _Predictor(model, what, tuple(keep))
    if clash := set(keep) & set(predictor.names):
        raise UserError(f"id: {min(clash)!r} is the name of a column of predictions; rename it in the data", WRONG_CALL)
    columns = list(dict.fromkeys((*keep, *model.schema.inputs)))
    jobs = jobs or os.cpu_count() or 1
    start, rows = time.perf_counter(), 0
    pieces = source.pieces(predictor.rows, columns)
    with files.write(output) as file, closing(_predict_in_order(predictor, pieces, jobs)) as tables:
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
        "predicted": {name: int(predictor.predicted[name]) for name in model.schema.classes},
        "unknown": dict(predictor.unknown),
        "seconds": round(seconds, 3),
        "warnings": [
            f"column {one_line(name, 60)!r}: {count} cells ({count / rows:.1%}) are unknown to the model "
            "(new categories, or texts in a column of numbers) and count as missing"
            for name, count in predictor.unknown.items()
        ],
    }


def _check_output(output: Path, data: Path, force: bool) -> None:
    files.find_kind(output)
    if output.exists():
        if data.exists() and output.samefile(data):
            raise UserError(f"{output}: expected a file other than the data; choose another --output", WRONG_CALL)
        if output.is_dir() or not force:
            raise UserError(f"{output}: exists already; choose another --output, or replace it with --force", WRITE)


@dataclass(eq=False)
class _Predictor:
    """Turns pieces of the data into pieces of the output, and counts predictions and unknown cells."""

    model: Model
    what: str
    keep: tuple[str, ...]
    predicted: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        schema = self.model.schema
        binary, multilabel = schema.task == "binary", schema.task == "multilabel"
        self.scores = ["score"] if binary else [f"score {name}" for name in schema.classes]
        self.labels = [f"prediction {name}" for name in schema.classes] if multilabel else ["prediction"]
        self.names = [*(self.labels if self.what != "scores" else ()), *(self.scores if self.what != "labels" else ())]
        width = len(self.model.encoder.get_feature_names_out())
        self.rows = min(files.ROWS, max(1024, _CELLS // max(1, width)))
        # Encoding has a cost per piece, scoring is faster within the cache: four parts per piece are fastest.
        self.part = -(-self.rows // 4)

    def __call__(self, piece: pa.Table) -> tuple[pa.Table, np.ndarray, dict[str, int]]:
        model, unknown = self.model, dict[str, int]()
        features = encode_features(model.encoder, model.schema.to_features(files.as_frame(piece), unknown))
        parts = (features[start : start + self.part] for start in range(0, len(features), self.part))
        scores = np.concatenate([model.scorer.scores(part) for part in parts])
        decided = model.decide(scores)
        columns: list[pa.Array | pa.ChunkedArray] = [piece.column(name) for name in self.keep]
        if self.what != "scores":
            columns += (
                [pa.array(column) for column in decided.T] if decided.ndim == 2 else [self._name_classes(decided)]
            )
        if self.what != "labels":
            columns += [pa.array(column) for column in np.atleast_2d(scores.T)]
        counts = decided.sum(0) if decided.ndim == 2 else np.bincount(decided, minlength=len(model.schema.classes))
        return pa.table(columns, names=[*self.keep, *self.names]), counts, unknown

    def _name_classes(self, decided: np.ndarray) -> pa.Array:
        labels = pa.array(self.model.schema.target.labels)
        return labels.take(pa.array(decided))

    def add(self, counts: np.ndarray, unknown: dict[str, int]) -> None:
        self.predicted.update(dict(zip(self.model.schema.classes, map(int, counts), strict=True)))
        self.unknown.update(unknown)


def _predict_in_order(predictor: _Predictor, pieces: Iterable[pa.Table], jobs: int) -> Generator[pa.Table]:
    """Yield the output in the order of the data, with at most ``jobs`` pieces being predicted at once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the pieces run on different cores
    pool = ThreadPoolExecutor(jobs)
    waiting: deque[Future[tuple[pa.Table, np.ndarray, dict[str, int]]]] = deque()
    try:
        for piece in pieces:
            waiting.append(pool.submit(predictor, piece))
            if len(waiting) > jobs:
                yield _take_finished(predictor, waiting)
        while waiting:
            yield _take_finished(predictor, waiting)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _take_finished(
    predictor: _Predictor, waiting: deque[Future[tuple[pa.Table, np.ndarray, dict[str, int]]]]
) -> pa.Table:
    table, counts, unknown = waiting.popleft().result()
    predictor.add(counts, unknown)
    return table
