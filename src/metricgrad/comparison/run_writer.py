"""Writing a run folder: file by file, each whole or not at all, so that a run can be killed and resumed.

    run.json           the manifest: format, state ("running" or "finished"), hashes of the files and of itself
    config.json        the options and the hash of the data: everything that determines the results
    config.toml        the options for people, and for --config
    stdin.csv, frame.parquet  the data, if they came from standard input, or from a frame in memory
    environment.json   versions and machine
    splits.npz         the rows of every repeat
    results/           the units: NAME-REPEAT.json with its own hash, the scores of the test rows in NAME-REPEAT.npy,
                       and those of the held-out rows in NAME-REPEAT-held.npy
    results.parquet    the same in one table
    model/             the shipped model: estimator/, encoder.skops, schema.json, manifest.json with the rule, and
                       rows.bin, hashes of the rows that it was trained on; with many categories or texts also
                       encoder.safetensors and words.json
    summary.json       the leaderboard and the verdict
    report.html        the same for people
    model_card.md      what the model is, for those who use it

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
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from metricgrad import atomic_files, strict_json
from metricgrad.comparison.contenders.table import CONTENDERS
from metricgrad.comparison.errors import RUN, UserError, writing
from metricgrad.comparison.protocol import Outcome
from metricgrad.comparison.run_folder import (
    FORMAT,
    Run,
    describe_environment,
    hash_file,
    locked,
    now,
    open_run,
    read_bytes,
    refuse_invalid,
    write,
)
from metricgrad.comparison.temporary_models import Scratch
from metricgrad.comparison.unit_files import SCORES, name_unit, pack_unit, parse_scores
from metricgrad.storage import folders
from metricgrad.strict_json import Sha256  # noqa: TC001 (read at run time)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from metricgrad.comparison.protocol import SavedScorer
    from metricgrad.comparison.shipped_model import Model
    from metricgrad.comparison.splits import Split

INPUTS = {"stdin.csv", "frame.parquet"}
"""Data that a run folder holds because they are in no other file."""

OURS = {
    "run.json",
    "config.json",
    "config.toml",
    "environment.json",
    "splits.npz",
    "results",
    "results.parquet",
    "summary.json",
    "model",
    "report.html",
    "model_card.md",
    "lock",
    *INPUTS,
}
"""The names in a run folder."""

_UNITS = "|".join(re.escape(name.replace(" ", "-")) for name in CONTENDERS)
_WRITTEN = re.compile(
    rf"{'|'.join(map(re.escape, OURS))}|results/({_UNITS})-\d{{3,}}(\.json|\.npy|-held\.npy)"
    r"|model/(encoder\.(skops|safetensors)|rows\.bin|(schema|words|manifest)\.json|estimator)"
    r"|model/estimator/(member-\d+-)?((manifest|history|prior|linear)\.json|(weights|linear)\.safetensors|scaler\.skops)"
    r"|model/estimator/((member-\d+-)?(trees|booster-\d+)\.\w+|ensemble\.json)"
)
"""The relative paths that a run may write."""


AGAIN = "delete it and resume, to run this unit again"


class _Hashes(TypedDict):
    scores: Sha256
    held_out: NotRequired[Sha256]


class Workspace(Run):
    """A run folder that is being written."""

    @classmethod
    @contextmanager
    def create(cls, path: Path, kind: str, config: dict[str, Any], force: bool = False) -> Iterator[Workspace]:
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
                    (path / "results").mkdir()
                space = cls(path, {"format": FORMAT, "kind": kind, "state": "running", "created": now(), "files": {}})
                for name, data in (("config.json", config), ("environment.json", describe_environment())):
                    space.manifest["files"][name] = space.add_json(name, data)
                space.write_manifest()
                yield space
            except BaseException:
                # A comparison can be resumed; an incomplete training run is of no use.
                if kind != "compare" or not (path / "run.json").is_file():
                    _remove(path, lock=True)
                    if not there and not any(path.iterdir()):
                        path.rmdir()
                raise

    @classmethod
    @contextmanager
    def resume(cls, path: Path) -> Iterator[Workspace]:
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
        """Write the rows of every repeat."""
        parts = {"fit": "fit", "held": "held_out", "test": "test"}  # the name in the file, and the attribute
        arrays = {f"{name}-{i}": getattr(split, part) for i, split in enumerate(splits) for name, part in parts.items()}
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        write(self.path / "splits.npz", packed.getvalue())

    def add_unit(
        self, outcome: Outcome, scores: np.ndarray, held_out: np.ndarray, scorer: SavedScorer | None = None
    ) -> None:
        """Write a finished unit: its scores first, so that a unit with a JSON file is complete.

        ``scorer`` is kept in scratch.
        """
        if scorer is not None:
            self.scratch.add_scorer(outcome.contender, outcome.repeat, scorer)
        for name, data in pack_unit(outcome, scores, held_out).items():
            write(self.path / "results" / name, data)

    def read_finished(self) -> list[Outcome]:
        """Return the finished units, after the hashes of their scores were verified."""
        found = [self._read_unit(path)[0] for path in sorted((self.path / "results").glob("[!.]*.json"))]
        for outcome in found:
            for which in self._read_hashes(outcome):
                self._read_score_bytes(outcome, which)
        return found

    def read_scores(self, outcome: Outcome, classes: int | None) -> np.ndarray:
        """Return a unit's scores of the test rows: of ``classes`` columns, or one score per row if None."""
        return self._read_array(outcome, "scores", outcome.test_rows, classes)

    def has_held_out(self, outcome: Outcome) -> bool:
        """Return whether a unit has scores of the held-out rows; earlier versions did not write them."""
        return "held_out" in self._read_hashes(outcome)

    def read_held_out(self, outcome: Outcome, rows: int, classes: int | None) -> np.ndarray:
        """Return a unit's scores of the held-out rows, which it must have."""
        return self._read_array(outcome, "held_out", rows, classes)

    def _read_array(self, outcome: Outcome, which: str, rows: int, classes: int | None) -> np.ndarray:
        data = self._read_score_bytes(outcome, which)
        with refuse_invalid(self._name_scores(outcome, which), AGAIN):
            found = parse_scores(data, rows, classes)
            if classes is None and found.ndim != 1:
                raise ValueError(f"expected one score per row, got {found.shape}")
            return found

    def _read_score_bytes(self, outcome: Outcome, which: str) -> bytes:
        path = self._name_scores(outcome, which)
        data = read_bytes(path)
        with refuse_invalid(path, AGAIN):
            if strict_json.sha256(data) != self._read_hashes(outcome)[which]:
                raise ValueError("was changed since it was written (its sha256 differs)")
        return data

    def _name_scores(self, outcome: Outcome, which: str) -> Path:
        return self.path / "results" / f"{name_unit(outcome)}{SCORES[which]}"

    def _read_hashes(self, outcome: Outcome) -> dict[str, str]:
        return self._read_unit(self.path / "results" / f"{name_unit(outcome)}.json")[1]

    def _read_unit(self, path: Path) -> tuple[Outcome, dict[str, str]]:
        """Return a unit and the hashes of its scores."""
        data = read_bytes(path)
        with refuse_invalid(path, AGAIN):
            found = strict_json.unsealed(data, dict[str, Any], path.name)
            hashes = {which: found.pop(which) for which in SCORES if which in found}
            strict_json.check(hashes, _Hashes, path.name)
            outcome = Outcome.from_json(found)
            if name_unit(outcome) != path.stem or outcome.contender not in CONTENDERS:
                raise ValueError(f"expected the unit of its file name, got {name_unit(outcome)}")
        return outcome, hashes

    def add_table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table as Parquet."""
        packed = io.BytesIO()
        frame.to_parquet(packed, index=False)
        write(self.path / name, packed.getvalue())

    @cached_property
    def scratch(self) -> Scratch:
        """What is kept until the report is made."""
        return Scratch(self.path)

    def add_model(self, model: Model) -> None:
        """Write the shipped model, whole or not at all."""
        with writing(self.path / "model"):
            _remove(self.path, under="model/")  # written by a run that was stopped afterwards
            folders.write(self.path / "model", *model.to_files())

    def finish(self) -> None:
        """Mark the run as finished in the manifest, and add the hashes of all files.

        The model is read first: with versions of libraries that do not fit together it could be written, but not read.
        """
        self.check_model()
        files = [p for p in sorted(self.path.iterdir()) if p.is_file() and p.name in OURS - {"run.json", "lock"}]
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
