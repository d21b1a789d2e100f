"""``metricgrad predict`` for a folder of Parquet files: one file of predictions for each, once, whatever fails.

The output folder holds the predictions under the names of the data, and for each a record, ``_metricgrad/NAME.json``,
with the hashes of the model and options, of the data and of the predictions. A record is written before its file, so
that every file has one, and a file counts as done only if all hashes agree.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pyarrow as pa

from metricgrad import __version__, atomic_files, strict_json
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import WRITE, WRONG_CALL, UserError, writing
from metricgrad.comparison.inference.parts import HOW_TO_GO_ON, PartTask, list_parts, map_parts, share_model
from metricgrad.comparison.inference.predictor import Predictor
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.workers import open_workers
from metricgrad.messages import one_line
from metricgrad.strict_json import Name, Range, Sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORDS = "_metricgrad"
"""The folder of the records in an output folder; readers of Parquet folders skip names that begin with "_"."""

_Count = Annotated[int, Range(0, 2**53)]


@dataclass(frozen=True)
class FolderOptions:
    """The options of ``predict`` for a folder; see there."""

    what: str
    keep: tuple[str, ...]
    force: bool
    jobs: int
    cluster: str | None
    allow_missing: bool


class Record(TypedDict):
    """What is known of a file of predictions.

    ``call``: the hash of the model and the options. ``data``, ``predictions``: the hashes of the two files.
    ``predicted``: how often each class was predicted. ``missing``, ``unknown``: the gaps, by column.
    """

    call: Sha256
    data: Sha256
    predictions: Sha256
    rows: _Count
    predicted: list[_Count]
    missing: dict[Name, _Count]
    unknown: dict[Name, _Count]


def predict_folder(
    run: str | Path, folder: Path, output: Path, options: FolderOptions, progress: Callable[[int], None]
) -> dict[str, Any]:
    """Write the predictions for every file of a folder, and return a summary; files that are done are skipped."""
    if output.exists() and output.samefile(folder):
        raise UserError(f"{output}: expected a folder other than the data; choose another --output", WRONG_CALL)
    parts = list_parts(folder)
    predictor = Predictor(runs.load(run).model, options.what, options.keep)
    model = share_model(run)
    skipped = 0
    with (
        open_workers(min(options.jobs, len(parts)), options.cluster, HOW_TO_GO_ON) as workers,
        _open_output(output, _hash_call(run, options), {part.name for part in parts}, options.force) as place,
    ):
        about = (options.what, options.keep)
        tasks = [
            PartTask(part, model, about, number, done=place.find_done(part.name)) for number, part in enumerate(parts)
        ]
        for task, found in map_parts(workers, predict_part, tasks):
            gaps = found.gaps if isinstance(found, Predicted) else _read_gaps(place.records[task.part.name])
            gaps.check(predictor.model.schema, task.part.path, options.allow_missing)
            if isinstance(found, Predicted):
                place.add(task.part.name, found)
            else:
                skipped += 1
            progress(place.records[task.part.name]["rows"])
        for part in parts:
            record = place.records[part.name]
            predictor.add(record["predicted"], _read_gaps(record))
    if not predictor.gaps.rows:
        raise UserError(f"{folder}: expected rows to predict, got none")
    return {**predictor.summarise(), "files": len(parts), "skipped": skipped}


def _read_gaps(record: Record) -> Gaps:
    return Gaps(record["rows"], Counter(record["missing"]), Counter(record["unknown"]))


def _hash_call(run: str | Path, options: FolderOptions) -> str:
    """Return the hash of everything but the data that determines predictions."""
    manifest = runs.read_bytes(Path(run) / "model" / "manifest.json")
    about = {"model": strict_json.sha256(manifest), "what": options.what, "keep": options.keep, "version": __version__}
    return strict_json.sha256(strict_json.as_json(about))


# On the workers


@dataclass(frozen=True)
class Predicted:
    """The predictions for a file, as the bytes of a Parquet file, with the hash of the data and counts."""

    content: bytes
    data: str
    predicted: list[int]
    gaps: Gaps


def predict_part(task: PartTask, path: Path, sha256: str) -> Predicted:
    """Return the predictions for a file; ``sha256`` is its hash."""
    predictor = Predictor(task.model, *task.about)
    source = files.Source(path)
    if source.kind != "parquet":
        raise UserError(f"{path}: expected a Parquet file, got {source.kind}; write it again")
    predictor.check(source.names)
    sink = pa.BufferOutputStream()
    writer = files.Writer(sink, "parquet")

    def add(piece: pa.Table) -> None:
        table, counts, gaps = predictor(piece)
        predictor.add(counts, gaps)
        writer.add(table)

    for piece in source.pieces(predictor.rows, predictor.columns):
        add(piece)
    if not predictor.gaps.rows:
        add(source.make_empty(predictor.columns))
    writer.close()
    predicted = [int(predictor.predicted[name]) for name in predictor.model.schema.classes]
    return Predicted(sink.getvalue().to_pybytes(), sha256, predicted, predictor.gaps)


# The output folder


@dataclass(eq=False)
class _Output:
    """An output folder, locked; ``records``: of the files of this call, by name."""

    path: Path
    call: str
    records: dict[str, Record]

    def find_done(self, name: str) -> str | None:
        """Return the hash of the data whose predictions are there, None if they have to be made."""
        record = self.records.get(name)
        place = self.path / name
        if record is None or not place.is_file() or runs.hash_file(place) != record["predictions"]:
            return None
        return record["data"]

    def add(self, name: str, found: Predicted) -> None:
        """Write a record and its file."""
        record: Record = {
            "call": self.call,
            "data": found.data,
            "predictions": strict_json.sha256(found.content),
            "rows": found.gaps.rows,
            "predicted": found.predicted,
            "missing": dict(found.gaps.missing),
            "unknown": dict(found.gaps.unknown),
        }
        runs.write(self.path / RECORDS / f"{name}.json", strict_json.seal({**record}))
        runs.write(self.path / name, found.content)
        self.records[name] = record


@contextmanager
def _open_output(path: Path, call: str, names: set[str], force: bool) -> Iterator[_Output]:
    """Open and lock an output folder, new or of an earlier call that did not finish.

    ``names``: of the files of this call. ``force``: remove the predictions of other calls.
    """
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not (path / RECORDS).is_dir())):
        raise UserError(f"{path}: exists already, and predict did not write it; choose another --output", WRITE)
    inner = path / RECORDS
    if inner.is_symlink():
        raise UserError(f"{inner}: expected a folder, got a link, which is not followed; remove it", WRITE)
    with writing(path):
        inner.mkdir(parents=True, exist_ok=True)
    with runs.locked(inner, "--output"):
        with writing(path):
            _remove_unfinished(path)
            found = {place.stem: _read_record(place) for place in sorted(inner.glob("[!.]*.json"))}
            _check_ours(path, found)
            others = [name for name, one in found.items() if name not in names or (one and one["call"] != call)]
            if others and not force:
                raise UserError(
                    f"{path}: holds {one_line(others[0], 60)!r} of another model, other options or other data; choose "
                    "another --output, or replace it with --force",
                    WRITE,
                )
            if force:
                for name in found:
                    # The record goes last, so that every file has one.
                    (path / name).unlink(missing_ok=True)
                    (inner / f"{name}.json").unlink()
                found = {}
        yield _Output(path, call, {name: one for name, one in found.items() if one is not None})


def _read_record(path: Path) -> Record | None:
    """Return a record, None if it cannot be used: its file has to be made again."""
    try:
        found: Record = strict_json.unseal(runs.read_bytes(path), Record, path.name)
    except ValueError:
        return None
    return found


def _remove_unfinished(path: Path) -> None:
    """Remove the incomplete files of a process that was killed."""
    for place in (*path.iterdir(), *(path / RECORDS).iterdir()):
        if atomic_files.TEMPORARY.fullmatch(place.name) and place.is_file() and not place.is_symlink():
            place.unlink()


def _check_ours(path: Path, known: dict[str, Any]) -> None:
    for place in sorted(path.iterdir()):
        if place.name != RECORDS and place.name not in known:
            raise UserError(
                f"{path}: holds {one_line(place.name, 60)!r}, which predict did not write; move it away", WRITE
            )
