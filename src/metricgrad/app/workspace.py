"""The run folder: written piece by piece, each piece whole or not at all, so that a run can be killed and resumed.

    run.json           the manifest: format, state ("running" or "finished"), hashes
    config.json        the call and the hash of the data: everything that decides the results
    environment.json   versions and machine
    splits.npz         the rows of every repeat
    results/           a unit of work each: NAME-REPEAT.json, and .npy with the scores of the test rows
    results.parquet    the same in one table
    model/             the shipped model: estimator/, encoder.skops, schema.json, rule.json, manifest.json
    summary.json       the leaderboard and the verdict
    report.html        the same to look at

Nothing in it is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import skops.io

from metricgrad import folders
from metricgrad.app.errors import RUN, UserError, writing
from metricgrad.app.protocol import Outcome
from metricgrad.app.runs import FORMAT, environment, locked, manifest, now, read_json, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

    from metricgrad.app.runs import Model
    from metricgrad.app.splits import Split

OURS = {
    "run.json",
    "config.json",
    "environment.json",
    "splits.npz",
    "results",
    "results.parquet",
    "summary.json",
    "model",
    "report.html",
    "lock",
}


class Workspace:
    """A run folder while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextmanager
    def create(cls, path: Path, kind: str, config: dict[str, Any], force: bool = False) -> Iterator[Workspace]:
        """Make a new run folder and lock it; ``force`` replaces an older one."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not force:
                raise UserError(f"{path}: exists already; choose another --out, go on with --resume, or --force", RUN)
            _check_replaceable(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            for old in path.iterdir():
                if old.name != "lock":
                    with writing(old):
                        shutil.rmtree(old) if old.is_dir() else old.unlink()
            try:
                with writing(path):
                    (path / "results").mkdir()
                space = cls(path)
                space.json("config.json", config)
                space.json("environment.json", environment())
                space.json("run.json", {"format": FORMAT, "kind": kind, "state": "running", "created": now()})
                yield space
            except BaseException:
                # A comparison can be resumed; anything else is worth nothing unless it is whole.
                if kind != "compare" or not (path / "run.json").is_file():
                    shutil.rmtree(path, ignore_errors=True)
                raise

    @classmethod
    @contextmanager
    def resume(cls, path: Path) -> Iterator[Workspace]:
        """Lock a run folder that was not finished."""
        manifest(path)
        with locked(path):
            for left in [*path.glob(".*"), *path.glob("results/.*")]:  # half-written when the process was killed
                shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
            yield cls(path)

    @property
    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        return read_json(self.path / "config.json")

    def json(self, name: str, data: Any) -> None:
        """Write plain data."""
        write(self.path / name, folders.as_json(data))

    def splits(self, splits: Sequence[Split]) -> None:
        """Write the rows of every repeat."""
        arrays = {f"{part}-{i}": getattr(s, part) for i, s in enumerate(splits) for part in ("fit", "held", "test")}
        packed = io.BytesIO()
        np.savez_compressed(packed, allow_pickle=False, **arrays)
        write(self.path / "splits.npz", packed.getvalue())

    def add(self, outcome: Outcome, scores: Any) -> None:
        """Write a finished unit: its scores first, so that the JSON file says that all is there."""
        place = self._unit(outcome.contender, outcome.repeat)
        packed = io.BytesIO()
        np.save(packed, scores, allow_pickle=False)
        write(place.with_suffix(".npy"), packed.getvalue())
        write(place.with_suffix(".json"), folders.as_json(outcome.to_json()))

    def finished(self) -> list[Outcome]:
        """Return the units that are there."""
        try:
            return [Outcome.from_json(read_json(path)) for path in sorted((self.path / "results").glob("*.json"))]
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.path}: its results are damaged ({error}); start again with --force", RUN) from error

    def table(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table as Parquet."""
        packed = io.BytesIO()
        frame.to_parquet(packed, index=False)
        write(self.path / name, packed.getvalue())

    def scratch(self, name: str, array: Any) -> Path:
        """Write what processes share and nobody keeps."""
        path = self.path / ".scratch" / name
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            np.save(path, array, allow_pickle=False)
        return path

    def clear_scratch(self) -> None:
        """Remove what processes shared."""
        shutil.rmtree(self.path / ".scratch", ignore_errors=True)

    def scores(self, contender: str, repeat: int) -> Any:
        """Return a unit's scores of the test rows."""
        return np.load(self._unit(contender, repeat).with_suffix(".npy"), allow_pickle=False)

    def _unit(self, contender: str, repeat: int) -> Path:
        return self.path / "results" / f"{contender.replace(' ', '-')}-{repeat:03d}.x"

    def model(self, model: Model) -> None:
        """Write the model to ship, as a whole."""
        place, fresh = self.path / "model", self.path / f".model.{secrets.token_hex(4)}"
        with writing(place):
            try:
                files = {
                    "encoder.skops": skops.io.dumps(model.encoder),
                    "schema.json": folders.as_json(model.schema.to_json()),
                }
                folders.write(fresh, {"contender": model.contender, "kind": type(model.scorer).__name__}, files)
                model.scorer.save(fresh / "estimator")
                model.write_rule(fresh)
                if place.exists():
                    shutil.rmtree(place)
                fresh.rename(place)
            finally:
                shutil.rmtree(fresh, ignore_errors=True)

    def finish(self) -> None:
        """Write into the manifest that all is there, with hashes."""
        files = [p for p in self.path.iterdir() if p.is_file() and p.name not in ("run.json", "lock")]
        hashes = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(files)}
        found = manifest(self.path)
        self.json("run.json", found | {"state": "finished", "finished": now(), "files": hashes})


def _check_replaceable(path: Path) -> None:
    """Refuse to replace what is no run folder, or holds what a run did not write."""
    if not path.is_dir() or not (path / "run.json").is_file():
        raise UserError(f"{path}: --force replaces run folders alone, and this is none; choose another --out", RUN)
    others = sorted(p.name for p in path.iterdir() if p.name not in OURS and not p.name.startswith("."))
    if others:
        raise UserError(f"{path}: --force would delete {others[0]!r}, which no run wrote; move it away", RUN)
