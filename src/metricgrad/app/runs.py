"""Run folders to read: their manifest, the shipped model and its rule; ``workspace`` writes them.

Nothing in them is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import skops.io
from filelock import FileLock, Timeout

from metricgrad import __version__, folders
from metricgrad.app import scorers
from metricgrad.app.errors import RUN, UserError, one_line, writing
from metricgrad.app.schema import Schema
from metricgrad.app.scorers import Goal, Scorer
from metricgrad.plain import decode, encode
from metricgrad.rules import Rule
from metricgrad.tasks import check_task

if TYPE_CHECKING:
    from collections.abc import Iterator


FORMAT = 2
"""Grows when versions of this library cannot read what the other wrote."""

_LIBRARIES = ("metricgrad", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "scipy", "xgboost", "xgboost-cpu")
_UNTRUSTED = ["numpy.dtype"]


# Writing


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, or raise a ``UserError``."""
    with writing(path):
        folders.write_file(path, data)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a run folder against other writers."""
    # The system lets go of it when the process ends, however it ends.
    with writing(path):
        lock = FileLock(path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(f"{path}: another process writes to it; wait, or choose another --out", RUN) from error
    try:
        yield
    finally:
        lock.release()


# Reading


@dataclass(eq=False)
class Model:
    """A fitted contender with what stands before and behind it: frame in, scores and decisions out.

    ``about``: with which metric, average and constraint the rule was tuned, on what, and its value there.
    """

    schema: Schema
    encoder: Any
    scorer: Scorer
    contender: str
    rule: Rule
    about: dict[str, Any]

    def scores(self, frame: Any) -> Any:
        """Return the scores of the rows of a frame as it was read: ``(n,)``, ``(n, classes)`` or ``(n, K)``."""
        return self.of_features(self.schema.features(frame))

    def of_features(self, features: Any) -> Any:
        """Return the scores of what ``schema.features`` returned."""
        return self.scorer.scores(encoded(self.encoder, features))

    def decide(self, scores: Any) -> Any:
        """Return class indices, or 0/1 per label."""
        return np.asarray(self.rule(scores)).astype(int)

    @property
    def goal(self) -> Goal:
        """What the rule was tuned for."""
        about = {key: self.about[key] for key in ("metric", "average", "subject_to")}
        return Goal(check_task(self.schema.task), len(self.schema.classes), **about)

    def write_rule(self, folder: Path) -> None:
        """Write the rule into a model folder: on its own, since it may be tuned again without training."""
        write(folder / "rule.json", folders.as_json({"rule": encode(self.rule), **self.about}))


def encoded(encoder: Any, features: Any) -> Any:
    """Return features as a dense float32 array."""
    found = encoder.transform(features)
    return np.ascontiguousarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float32)


@dataclass(eq=False)
class Run:
    """A finished run folder."""

    path: Path
    manifest: dict[str, Any]

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        return read_json(self.path / "config.json")

    @cached_property
    def model(self) -> Model:
        """The shipped model."""
        place = self.path / "model"
        try:
            about, files = folders.read(place)
            untrusted = skops.io.get_untrusted_types(data=files["encoder.skops"])
            if set(untrusted) - set(_UNTRUSTED):
                raise ValueError(f"its encoder holds types that are not trusted: {untrusted}")
            encoder = skops.io.loads(files["encoder.skops"], trusted=_UNTRUSTED)
            schema = Schema.from_json(json.loads(files["schema.json"]))
            scorer = scorers.loaded(about["kind"], place / "estimator")
            rule = read_json(place / "rule.json")
            found = Model(schema, encoder, scorer, about["contender"], decode(rule.pop("rule")), rule)
        except (ImportError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise UserError(f"{self.path}: its model cannot be used: {one_line(error, 300)}", RUN) from error
        if not isinstance(found.rule, Rule):
            raise UserError(f"{self.path}: expected a rule in model/rule.json, got {found.rule!r}", RUN)
        return found

    @property
    def schema(self) -> Schema:
        """The columns that the model knows."""
        return self.model.schema

    def replace_rule(self, rule: Rule, about: dict[str, Any]) -> None:
        """Give the model another rule; ``about`` has at least metric, average and subject_to."""
        self.model.rule, self.model.about = rule, about
        with locked(self.path):
            self.model.write_rule(self.path / "model")


def load(run: str | Path) -> Run:
    """Return a finished run, or raise a ``UserError`` that says what is wrong with the folder."""
    path = Path(run)
    found = manifest(path)
    if found["state"] != "finished":
        how = f"metricgrad compare --resume {path}" if found.get("kind") == "compare" else "train again with --force"
        raise UserError(f"{path}: the run is not finished; finish it: {how}", RUN)
    return Run(path, found)


def manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of a run folder, or raise."""
    if not path.is_dir():
        raise UserError(f"{path}: expected a run folder, got {'a file' if path.exists() else 'nothing there'}", RUN)
    if not (path / "run.json").is_file():
        raise UserError(f"{path}: expected a run folder with a run.json, got a folder without", RUN)
    found = read_json(path / "run.json")
    if not isinstance(found.get("format"), int) or "state" not in found:
        raise UserError(f"{path}: its run.json is damaged; run again with --force", RUN)
    if found["format"] != FORMAT:
        how = "upgrade metricgrad" if found["format"] > FORMAT else "run again"
        raise UserError(f"{path}: expected a run of format {FORMAT}, got {found['format']}; {how}", RUN)
    return found


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object of a run folder, or raise."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); run again", RUN) from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected a JSON object, got {type(found).__name__}; run again", RUN)
    return found


# What a run was made with


def environment() -> dict[str, Any]:
    """Return versions and machine."""
    versions = {"python": platform.python_version(), "metricgrad": __version__}
    for library in _LIBRARIES:
        try:
            versions.setdefault(library, version(library))
        except PackageNotFoundError:
            continue
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"versions": versions, "machine": machine}


def sha256(path: Path) -> str:
    """Return the hash of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def now() -> str:
    """Return the time, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
