"""Writing a run folder: file by file, each whole or not at all, so that a run can be killed and resumed.

    run.json           the manifest: format, state ("running" or "finished"), hashes of the files and of itself
    config.json        the options and the hash of the data: everything that determines the results
    config.toml        the options for people, and for --config
    stdin.csv, frame.parquet  the data, if they came from standard input, or from a frame in memory
    environment.json   versions and machine
    splits.npz         the rows of every repeat
    candidates/        the units: NAME-REPEAT.json with its own hash, the scores of the test rows in NAME-REPEAT.npy,
                       and those of the training rows, out of fold, in NAME-REPEAT-out-of-fold.npy
    results/           the outcome of each contender in each repeat
    results.parquet    the same in one table
    model/             the shipped model: estimator/, as mg.save writes it, schema.json, manifest.json with the rule,
                       class_scores.json, a summary of the scores of each class, and rows.bin, hashes of the rows that
                       it was trained on
    summary.json       the leaderboard and the verdict
    report.html        the same for people
    model_card.md      what the model is, for those who use it
    Dockerfile         the model as a service, if metricgrad serve --dockerfile wrote it

Nothing in it is ever unpickled.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad import atomic_files, strict_json
from metricgrad.comparison.contender_outcomes import average_scores
from metricgrad.comparison.errors import RUN, UserError, writing
from metricgrad.comparison.outcomes import Outcome
from metricgrad.comparison.run_folder import (
    FORMAT,
    Run,
    describe_environment,
    hash_file,
    list_types,
    locked,
    now,
    open_run,
    read_bytes,
    refuse_invalid,
    write,
)
from metricgrad.comparison.temporary_models import TemporaryModels
from metricgrad.comparison.unit_files import SUFFIXES, CandidateRecord, name_file, pack_candidate, parse_scores
from metricgrad.storage import folders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from metricgrad.comparison.candidate_runs import CandidateRun
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.splits import Split

INPUTS = {"stdin.csv", "frame.parquet"}
"""Data that a run folder holds because they are in no other file."""

RUN_FILES = {
    "run.json",
    "config.json",
    "config.toml",
    "environment.json",
    "splits.npz",
    "candidates",
    "results",
    "results.parquet",
    "summary.json",
    "model",
    "report.html",
    "model_card.md",
    "lock",
    "Dockerfile",
    *INPUTS,
}
"""The names in a run folder."""

_WRITTEN = re.compile(
    rf"{'|'.join(map(re.escape, RUN_FILES))}"
    r"|candidates/[\w.-]+-\d{3,}(\.json|\.npy|-out-of-fold\.npy)|results/[\w.-]+-\d{3,}\.json"
    r"|model/(rows\.bin|(schema|manifest|class_scores)\.json|estimator(/[\w-][\w.-]*){0,3})"
)
"""The relative paths that a run may write."""


HOW_TO_REPEAT_A_UNIT = "delete it and resume, to run this unit again"


class RunWriter(Run):
    """A run folder that is being written."""

    @classmethod
    @contextmanager
    def create(cls, path: Path, kind: str, config: dict[str, Any], force: bool = False) -> Iterator[RunWriter]:
        """Make a new run folder and lock it; ``force`` replaces an older one."""
        there = path.exists()
        if there and (not path.is_dir() or any(path.iterdir())):
            if not force:
                raise UserError(
                    f"{path}: exists already; choose another --out, or use --resume or --force",
                    RUN,
                )
            check_replaceable(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            with writing(path):
                _remove(path)
            try:
                with writing(path):
                    for name in ("candidates", "results"):
                        (path / name).mkdir()
                run_writer = cls(
                    path, {"format": FORMAT, "kind": kind, "state": "running", "created": now(), "files": {}}
                )
                for name, data in (("config.json", config), ("environment.json", describe_environment())):
                    run_writer.manifest["files"][name] = run_writer.add_json(name, data)
                run_writer.write_manifest()
                yield run_writer
            except BaseException:
                # A comparison can be resumed; an incomplete training run is of no use.
                if kind != "compare" or not (path / "run.json").is_file():
                    _remove(path, lock=True)
                    if not there and not any(path.iterdir()):
                        path.rmdir()
                raise

    @classmethod
    @contextmanager
    def resume(cls, path: Path) -> Iterator[RunWriter]:
        """Open and lock an unfinished run folder."""
        open_run(path)
        with locked(path):
            _remove(path, unfinished=True)  # incomplete files of a process that was killed
            _check_ours(path, [name for name in list_entries(path) if name.startswith("model")], "replacing the model")
            yield cls(path, open_run(path).manifest)

    def reopen(self, repeats: int | None = None, ship: str | None = None) -> None:
        """Mark the run as running, with another number of repeats or another contender to ship if given."""
        added = {key: value for key, value in (("repeats", repeats), ("ship", ship)) if value is not None}
        if added or self.manifest["state"] == "finished":
            kept = {name: self.manifest["files"][name] for name in ("config.json", "environment.json")}
            self.manifest |= {**added, "state": "running", "files": kept}
            self.manifest.pop("finished", None)
            self.write_manifest()

    def keep_data(self, path: Path) -> None:
        """Copy the data into the folder."""
        place = self.path / path.name
        with writing(place), atomic_files.replacing(place) as fresh:
            shutil.copyfile(path, fresh)

    def add_json(self, name: str, data: object) -> str:
        """Write plain data as JSON, and return its hash."""
        packed = folders.as_json(data)
        write(self.path / name, packed)
        return strict_json.sha256(packed)

    def add_text(self, name: str, text: str) -> None:
        """Write a text."""
        write(self.path / name, text.encode())

    def add_splits(self, splits: Sequence[Split]) -> None:
        """Write the rows of every repeat: training rows, test rows, and the fold that each row is left out of."""
        arrays = {}
        for i, split in enumerate(splits):
            fold_sizes = [len(left_out) for _, left_out in split.folds]
            arrays[f"train-{i}"] = split.train
            arrays[f"test-{i}"] = split.test
            arrays[f"left-out-{i}"] = split.left_out
            arrays[f"fold-{i}"] = np.repeat(np.arange(len(fold_sizes)), fold_sizes)
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        write(self.path / "splits.npz", packed.getvalue())

    # Candidates and outcomes

    @cached_property
    def _records(self) -> dict[tuple[str, int], CandidateRecord]:
        """The finished candidates by name and repeat, read once, after the hashes of their scores were verified."""
        found = {}
        for path in sorted((self.path / "candidates").glob("[!.]*.json")):
            data = read_bytes(path)
            with refuse_invalid(path, HOW_TO_REPEAT_A_UNIT):
                record = CandidateRecord.from_json(strict_json.unseal(data, dict[str, Any], path.name))
                if record.file_name != path.stem:
                    raise ValueError(f"expected the unit of its file name, got {record.file_name}")
            for which in SUFFIXES:
                self._read_score_bytes(record, which)
            found[record.candidate, record.repeat] = record
        return found

    def has_candidate(self, candidate: str, repeat: int) -> bool:
        """Return whether a unit is finished."""
        return (candidate, repeat) in self._records

    def add_candidate(self, run: CandidateRun) -> None:
        """Write a finished unit: its scores first, so that a unit with a JSON file is complete."""
        self.temporary.add_models(run.candidate, run.repeat, run.models)
        record, files = pack_candidate(run)
        for name, data in files.items():
            write(self.path / "candidates" / name, data)
        self._records[record.candidate, record.repeat] = record

    def read_record(self, candidate: str, repeat: int) -> CandidateRecord:
        """Return what is kept of a finished unit."""
        return self._records[candidate, repeat]

    def read_candidate_scores(self, candidate: str, repeat: int, rows: int, columns: int | None) -> np.ndarray:
        """Return the scores of the test rows: of ``columns`` columns, or one per row if None."""
        return self._read_scores(self._records[candidate, repeat], "scores", rows, columns)

    def read_out_of_fold(self, candidate: str, repeat: int, rows: int, columns: int | None) -> np.ndarray:
        """Return the scores of the training rows by the models that did not see them, fold after fold."""
        return self._read_scores(self._records[candidate, repeat], "out_of_fold", rows, columns)

    def read_outcome_scores(self, outcome: Outcome, columns: int | None) -> np.ndarray:
        """Return a contender's scores of the test rows."""
        each = {
            name: self.read_candidate_scores(name, outcome.repeat, outcome.test_rows, columns)
            for name in outcome.weights
        }
        return average_scores(outcome.weights, each)

    def _read_scores(self, record: CandidateRecord, which: str, rows: int, columns: int | None) -> np.ndarray:
        data = self._read_score_bytes(record, which)
        with refuse_invalid(self._name_scores(record, which), HOW_TO_REPEAT_A_UNIT):
            return parse_scores(data, rows, columns)

    def _read_score_bytes(self, record: CandidateRecord, which: str) -> bytes:
        path = self._name_scores(record, which)
        data = read_bytes(path)
        with refuse_invalid(path, HOW_TO_REPEAT_A_UNIT):
            if strict_json.sha256(data) != getattr(record, which):
                raise ValueError("was changed since it was written (its sha256 differs)")
        return data

    def _name_scores(self, record: CandidateRecord, which: str) -> Path:
        return self.path / "candidates" / f"{record.file_name}{SUFFIXES[which]}"

    def add_outcome(self, outcome: Outcome) -> None:
        """Write the outcome of a contender in a repeat."""
        name = name_file(outcome.contender, outcome.repeat)
        write(self.path / "results" / f"{name}.json", strict_json.seal(outcome.to_json()))

    def read_outcomes(self) -> list[Outcome]:
        """Return the outcomes that were written."""
        found = []
        for path in sorted((self.path / "results").glob("[!.]*.json")):
            data = read_bytes(path)
            with refuse_invalid(path, HOW_TO_REPEAT_A_UNIT):
                outcome = Outcome.from_json(strict_json.unseal(data, dict[str, Any], path.name))
                if name_file(outcome.contender, outcome.repeat) != path.stem:
                    raise ValueError(f"expected the outcome of its file name, got {outcome.contender!r}")
            found.append(outcome)
        return found

    def add_table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table as Parquet."""
        packed = io.BytesIO()
        frame.to_parquet(packed, index=False)
        write(self.path / name, packed.getvalue())

    @cached_property
    def temporary(self) -> TemporaryModels:
        """What is kept until the report is made."""
        return TemporaryModels()

    def add_model(self, model: ShippedModel) -> None:
        """Write the shipped model, whole or not at all."""
        with writing(self.path / "model"):
            _remove(self.path, under="model/")  # written by a run that was stopped afterwards
            folders.write(self.path / "model", *model.to_files())

    def finish(self, trust_own_types: bool = False) -> None:
        """Mark the run as finished in the manifest, and add the hashes of all files.

        The model is read first: with versions of libraries that do not fit together it could be written, but not read.
        ``trust_own_types``: whether it may hold types of the user's own.
        """
        # Types of the user's own are of this process; whoever reads the folder later must trust them by name.
        self.trusted = list_types(self.path) if trust_own_types else ()
        self.check_model()
        files = [p for p in sorted(self.path.iterdir()) if p.is_file() and p.name in RUN_FILES - {"run.json", "lock"}]
        hashes = {p.name: hash_file(p) for p in files}
        self.manifest |= {"state": "finished", "finished": now(), "files": hashes | self.manifest["files"]}
        self.write_manifest()


# Only files that a run wrote may be deleted


def check_replaceable(path: Path) -> None:
    """Raise if a folder is not a run folder, or holds files that no run wrote."""
    if not path.is_dir() or not (path / "run.json").is_file():
        raise UserError(f"{path}: --force replaces only run folders, and this is not one; choose another --out", RUN)
    _check_ours(path, list_entries(path), "--force")


def _check_ours(path: Path, names: list[str], what: str) -> None:
    for name in names:
        if not _is_ours(path, name):
            raise UserError(f"{path}: {what} would delete {name!r}, which no run wrote; move it away", RUN)


def list_entries(path: Path) -> list[str]:
    """Return the relative paths of all files and folders in a folder, contents first; links are not followed."""
    found = []
    for folder, names, files in os.walk(path, topdown=False):
        inner = Path(folder).relative_to(path)
        found += [(inner / name).as_posix() for name in (*sorted(files), *sorted(names))]
    return found


def _is_ours(path: Path, name: str) -> bool:
    if any(atomic_files.TEMPORARY.fullmatch(part) for part in name.split("/")):
        return True
    return _WRITTEN.fullmatch(name) is not None and not (path / name).is_symlink()


def _remove(path: Path, *, lock: bool = False, unfinished: bool = False, under: str = "") -> None:
    """Delete the files of a run: all, only incomplete ones (``unfinished``), or only those ``under`` a path."""
    for name in list_entries(path):
        temporary = any(atomic_files.TEMPORARY.fullmatch(part) for part in name.split("/"))
        if not _is_ours(path, name) or (unfinished and not temporary) or not f"{name}/".startswith(under):
            continue
        place = path / name
        if place.is_dir() and not place.is_symlink():
            if not any(place.iterdir()):
                place.rmdir()
        elif lock or name != "lock":
            place.unlink(missing_ok=True)
