"""``metricgrad predict``: predictions of a run's model, for a file of any size in pieces, or for a folder of files."""

from __future__ import annotations

import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import WRITE, WRONG_CALL, UserError
from metricgrad.comparison.inference.parts import check_cluster
from metricgrad.comparison.inference.predict_folder import FolderOptions, predict_folder
from metricgrad.comparison.inference.predictor import OUTPUTS, Predictor
from metricgrad.comparison.tables import files

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from concurrent.futures import Future

    import numpy as np
    import pyarrow as pa

    from metricgrad.comparison.tables.gaps import Gaps


def predict(
    run: str | Path,
    data: str | Path,
    output: str | Path,
    *,
    what: str = "both",
    keep: Sequence[str] = (),
    force: bool = False,
    jobs: int | None = None,
    cluster: str | None = None,
    allow_missing: bool = False,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Write one row of predictions for every row of the data, in their order, and return a summary.

    ``data``: a file; or a folder of Parquet files, then ``output`` is a folder of files of the same names. ``what``:
    labels, scores or both. ``keep``: columns of the data to copy to the output, such as an id. ``force``: replace an
    existing output. ``jobs``: the number of pieces, or files of a folder, to predict at once. ``cluster``: the address
    of a Dask scheduler, whose workers predict the files of a folder. ``allow_missing``: go on if a column of a file is
    mostly unknown, see ``Gaps``. ``progress``: called with the number of rows of every finished piece or file.
    """
    if what not in OUTPUTS:
        raise UserError(f"what: expected one of {', '.join(OUTPUTS)}, got {what!r}", WRONG_CALL)
    check_cluster(data, cluster)
    jobs = jobs or os.cpu_count() or 1
    progress = progress or (lambda rows: None)
    start = time.perf_counter()
    if Path(data).is_dir():
        options = FolderOptions(what, tuple(keep), force, jobs, cluster, allow_missing)
        found = predict_folder(run, Path(data), Path(output), options, progress)
    else:
        _check_output(Path(output), Path(data), force)
        predictor = Predictor(runs.load(run).model, what, tuple(keep))
        found = _predict_file(predictor, data, output, jobs, allow_missing, progress)
    seconds = round(time.perf_counter() - start, 3)
    return {"run": str(run), "data": str(data), "output": str(output), **found, "seconds": seconds}


def _predict_file(
    predictor: Predictor,
    data: str | Path,
    output: str | Path,
    jobs: int,
    allow_missing: bool,
    progress: Callable[[int], None],
) -> dict[str, Any]:
    source = files.Source(data)
    predictor.check(source.names)
    pieces = source.pieces(predictor.rows, predictor.columns)
    with files.write(output) as file, closing(_predict_in_order(predictor, pieces, jobs)) as tables:
        for table in tables:
            file.add(table)
            progress(table.num_rows)
        if not predictor.gaps.rows:
            raise UserError(f"{data}: expected rows to predict, got none")
        predictor.gaps.check(predictor.model.schema, data, allow_missing)  # before the file appears
    return predictor.summarise()


def _check_output(output: Path, data: Path, force: bool) -> None:
    files.find_kind(output)
    if output.exists():
        if data.exists() and output.samefile(data):
            raise UserError(f"{output}: expected a file other than the data; choose another --output", WRONG_CALL)
        if output.is_dir() or not force:
            raise UserError(f"{output}: exists already; choose another --output, or replace it with --force", WRITE)


def _predict_in_order(predictor: Predictor, pieces: Iterable[pa.Table], jobs: int) -> Generator[pa.Table]:
    """Yield the output in the order of the data, with at most ``jobs`` pieces being predicted at once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the pieces run on different cores
    pool = ThreadPoolExecutor(jobs)
    waiting: deque[Future[tuple[pa.Table, np.ndarray, Gaps]]] = deque()
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


def _take_finished(predictor: Predictor, waiting: deque[Future[tuple[pa.Table, np.ndarray, Gaps]]]) -> pa.Table:
    table, counts, gaps = waiting.popleft().result()
    predictor.add(counts, gaps)
    return table
