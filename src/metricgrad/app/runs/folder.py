"""Run folders to read: their manifest, the shipped model and its rule; ``workspace`` writes them.

Every byte is compared with its hash before a parser sees it, and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

import numpy as np
import skops.io
from filelock import FileLock, Timeout

from metricgrad import __version__
from metricgrad.app.contenders import scorers
from metricgrad.app.contenders.scorers import Goal, Scorer
from metricgrad.app.errors import RUN, WRONG_CALL, UserError, one_line, writing
from metricgrad.app.runs.trial import Trial
from metricgrad.app.tables.schema import Schema
from metricgrad.atomic import write_file
from metricgrad.boosting.libraries import imported
from metricgrad.decisions.rules import Rule
from metricgrad.engine.batch import check_task
from metricgrad.metrics import get
from metricgrad.metrics.constraints import parse
from metricgrad.storage import folders, records
from metricgrad.storage.records import Length, Line, Name, Sha256
from metricgrad.storage.values import decode, encode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

FORMAT = 3
"""Grows when versions of this library cannot read what the other wrote."""

_LIBRARIES = ("metricgrad", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "scipy", "xgboost", "xgboost-cpu")
_UNTRUSTED = ["numpy.dtype"]
_ESTIMATOR = "estimator/"


# What the JSON files may hold


class RunFile(TypedDict):
    """``run.json``, which is sealed; "files": the hashes of the others, as far as they are written."""

    format: int
    kind: Literal["compare", "train"]
    state: Literal["running", "finished"]
    created: Line
    finished: NotRequired[Line]
    files: dict[Name, Sha256]


class OneRule(TypedDict):
    """A rule, and what it was tuned for."""

    rule: Any
    metric: Name
    average: Literal["macro", "micro", "weighted", "samples"]
    subject_to: Line | None
    kind: Literal["fixed", "tuned"]
    tuned_on: Line
    value_there: float


class RuleFile(OneRule):
    """The rule in use, and those before it."""

    previous: NotRequired[list[OneRule]]


class ModelFile(TypedDict):
    """The contents of a model's manifest. The rule is part of it, so that replacing it is one step."""

    format: int
    contender: Name
    kind: Literal["Prior", "Trees", "Estimator"]
    rule: RuleFile
    files: Annotated[dict[Name, Sha256], Length(1, 100_000)]


# Writing


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, or raise a ``UserError``."""
    with writing(path):
        write_file(path, data)


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
        """What the rule was tuned for; see ``allowed`` before anything is made of its metric and constraint."""
        about = {key: self.about[key] for key in ("metric", "average", "subject_to")}
        return Goal(check_task(self.schema.task), len(self.schema.classes), **about)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the contents of the manifest and the files of a model folder."""
        contents = {"contender": self.contender, "kind": type(self.scorer).__name__, "rule": self.written_rule()}
        files = {
            "encoder.skops": skops.io.dumps(self.encoder),
            "schema.json": folders.as_json(self.schema.to_json()),
            **{f"{_ESTIMATOR}{name}": data for name, data in self.scorer.files().items()},
        }
        return contents, files

    def written_rule(self) -> dict[str, Any]:
        """Return the rule and what is known about it as plain data."""
        return {"rule": encode(self.rule), **self.about}

    @classmethod
    def from_files(cls, manifest: dict[str, Any], files: dict[str, bytes]) -> Model:
        """Return the model whose folder was read and verified, or raise: trees are tried in another process first."""
        records.check(manifest, ModelFile, "manifest.json")
        inner = {name.removeprefix(_ESTIMATOR): data for name, data in files.items() if name.startswith(_ESTIMATOR)}
        libraries = scorers.tree_files(inner)
        trials = [Trial(name, library, inner[name]) for name, library in libraries.items()]
        try:
            schema = Schema.from_json(files["schema.json"])
            encoder = _encoder(files["encoder.skops"], schema)
            for library in libraries.values():
                imported(library)  # meanwhile
            for trial in trials:
                trial.end()
        finally:
            for trial in trials:
                trial.stop()
        about = dict(manifest["rule"])
        rule, scorer = decode(about.pop("rule")), scorers.loaded(manifest["kind"], inner)
        if not isinstance(rule, Rule):
            raise ValueError(f"manifest.json: expected a rule, got {rule!r}")
        found = cls(schema, encoder, scorer, manifest["contender"], rule, about)
        found.check()
        return found

    def check(self) -> None:
        """Raise unless the parts fit each other: a row goes all the way."""
        scores = self.scorer.scores(np.zeros((1, len(self.encoder.get_feature_names_out())), dtype=np.float32))
        wanted = (1,) if self.schema.task == "binary" else (1, len(self.schema.classes))
        if scores.shape != wanted:
            raise ValueError(f"estimator: expected scores of shape {wanted}, got {scores.shape}")
        self.decide(scores)
        for constraint in parse(self.goal.subject_to):
            if not records.names_code(constraint.metric):
                get(constraint.metric)


def _encoder(data: bytes, schema: Schema) -> Any:
    """Return the encoder: that of ``Schema.encoder``, fitted, and nothing else."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    untrusted = skops.io.get_untrusted_types(data=data)
    if set(untrusted) - set(_UNTRUSTED):
        raise ValueError(f"encoder.skops holds types that are not trusted: {untrusted}")
    encoder = skops.io.loads(data, trusted=_UNTRUSTED)
    parts = [part for column in schema.columns for part in column.parts]
    if type(encoder) is not ColumnTransformer or list(encoder.feature_names_in_) != parts:
        raise ValueError("encoder.skops: expected an encoder of the columns of schema.json, got another")
    if any(type(one) not in (SimpleImputer, OneHotEncoder) for _, one, names in encoder.transformers_ if len(names)):
        raise ValueError("encoder.skops: expected an imputer and a one-hot encoder, got others")
    return encoder


def encoded(encoder: Any, features: Any) -> Any:
    """Return features as a dense float32 array."""
    found = encoder.transform(features)
    return np.ascontiguousarray(found.toarray() if hasattr(found, "toarray") else found, dtype=np.float32)


@dataclass(eq=False)
class Run:
    """A run folder, finished or not."""

    path: Path
    manifest: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """What the run was asked for."""
        return self.json("config.json", dict[Name, str | float | bool | None])  # type: ignore[no-any-return]

    def json(self, name: str, wanted: Any) -> Any:
        """Return what a JSON file of the run holds, compared with the hash in ``run.json`` and with a declared type."""
        data = read_bytes(self.path / name)
        if records.sha256(data) != self.manifest["files"].get(name):
            raise UserError(f"{self.path / name} was changed since it was written (its sha256 differs); run again", RUN)
        with refusing(self.path):
            return records.read(data, wanted, name)

    @cached_property
    def model(self) -> Model:
        """The shipped model."""
        try:
            return Model.from_files(*folders.read(self.path / "model"))
        except Exception as error:  # whatever scikit-learn, skops and XGBoost say of forged files
            raise UserError(f"{self.path}: its model cannot be used: {one_line(error, 300)}", RUN) from error

    @property
    def schema(self) -> Schema:
        """The columns that the model knows."""
        return self.model.schema

    def replace_rule(self, rule: Rule, about: dict[str, Any]) -> None:
        """Give the model another rule; ``about`` has at least metric, average and subject_to."""
        self.model.rule, self.model.about = rule, about
        with locked(self.path), writing(self.path / "model"):
            folders.rewrite(self.path / "model", {"rule": self.model.written_rule()})


def load(run: str | Path) -> Run:
    """Return a finished run, or raise a ``UserError`` that says what is wrong with the folder."""
    found = opened(Path(run))
    if found.manifest["state"] != "finished":
        path, kind = found.path, found.manifest["kind"]
        how = f"metricgrad compare --resume {path}" if kind == "compare" else "train again with --force"
        raise UserError(f"{path}: the run is not finished; finish it: {how}", RUN)
    return found


def opened(path: Path) -> Run:
    """Return a run, finished or not, or raise."""
    check_folder(path)
    data = read_bytes(path / "run.json")
    with refusing(path):
        # The older format has no seal.
        if re.match(rb'\{\n  "format": 2,', data):
            raise UserError(
                f"{path}: expected a run of format {FORMAT}, got the older 2; write it anew: metricgrad convert {path}",
                RUN,
            )
        found = records.unsealed(data, dict[str, Any], "run.json")
        records.check(found.get("format"), int, "run.json: format")
        if found["format"] != FORMAT:
            how = "upgrade metricgrad" if found["format"] > FORMAT else "run again"
            raise UserError(f"{path}: expected a run of format {FORMAT}, got {found['format']}; {how}", RUN)
        records.check(found, RunFile, "run.json")
    return Run(path, found)


def check_folder(path: Path) -> None:
    """Raise unless there is a run folder."""
    if not path.is_dir():
        raise UserError(f"{path}: expected a run folder, got {'a file' if path.exists() else 'nothing there'}", RUN)
    if not (path / "run.json").is_file():
        raise UserError(f"{path}: expected a run folder with a run.json, got a folder without", RUN)


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of a run folder, or raise."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); run again", RUN) from error


@contextmanager
def refusing(path: Path | str, how: str = "run again") -> Iterator[None]:
    """Turn what is wrong with a file of a run folder into a ``UserError``."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path}: {one_line(error, 300)}; {how}", RUN) from error


Named = TypeVar("Named", str, str | None)


def allowed(text: Named, typed: Collection[str], how: str = "--metric") -> Named:
    """Return a metric or constraint that a run folder names; code only if the user typed its name in this call.

    >>> allowed("f1", []), allowed("mine:half>=0.5", ["mine:half"])
    ('f1', 'mine:half>=0.5')
    """
    for name in re.findall(r"[^\s,<>=\[\]]*:[^\s,<>=\[\]]*", text or ""):
        if name not in typed:
            shown = one_line(name, 80)
            raise UserError(
                f"metric: the run was made with {shown}, which is code, and no folder may name code to import; "
                f"if you trust it, type {how} {shown}",
                WRONG_CALL,
            )
    return text


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
