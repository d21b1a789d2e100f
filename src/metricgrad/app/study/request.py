"""The options of a run, and the data, read and checked for training."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd

from metricgrad.app.contenders.scorers import Effort, Goal
from metricgrad.app.contenders.table import CONTENDERS, select_contenders
from metricgrad.app.errors import DATA, WRONG_CALL, UserError, one_line, suggest
from metricgrad.app.report.evidence import Table
from metricgrad.app.report.markup import describe_metric
from metricgrad.app.runs import folder as runs
from metricgrad.app.runs.model import encode_features
from metricgrad.app.study import protocol, splits
from metricgrad.app.tables import files, profile
from metricgrad.app.tables.schema import Schema
from metricgrad.engine.batch import check_task
from metricgrad.storage import records
from metricgrad.storage.records import Range, Sha256

if TYPE_CHECKING:
    from sklearn.compose import ColumnTransformer

    from metricgrad.app.study.splits import Split

LEAST_REPEATS = 2
"""The fewest repeats: without a spread over repeats no gain can be tested."""


@dataclass(frozen=True)
class Options:
    """The options of a run: everything that determines its results."""

    data: str
    target: str
    metric: str = "f1"
    average: str = "macro"
    subject_to: str | None = None
    task: str | None = None
    positive: str | None = None
    drop: str | None = None
    group: str | None = None
    time: str | None = None
    rows: Annotated[int, Range(1, 2**53)] | None = None
    repeats: Annotated[int, Range(0, 10_000)] = 5
    seed: Annotated[int, Range(0, 2**63)] = 0
    only: str | None = None
    quick: bool = False
    demo: bool = False

    def split_names(self, name: str) -> list[str]:
        """Return the parts of a comma-separated option."""
        return split_names(getattr(self, name))

    def command(self, ship: str | None = None, budget: float | None = None) -> str:
        """Return the command line; that of the demo does not name the data file, which lies where pip put it."""
        words = ["metricgrad", "demo"] if self.demo else ["metricgrad", "compare", self.data]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            default = 2 if field.name == "repeats" and self.quick and not self.demo else field.default
            if value != default and field.name in (("repeats", "quick") if self.demo else vars(self)):
                flag = "--" + field.name.replace("_", "-")
                words += [flag] if value is True else [flag, str(value)]
        words += [] if budget is None else ["--budget", f"{budget:g}"]
        words += [] if ship is None or self.demo else ["--ship", ship]
        return shlex.join(words)


def split_names(text: str | None) -> list[str]:
    """Return the parts of a comma-separated text.

    >>> split_names("a, b,"), split_names(None)
    (['a', 'b'], [])
    """
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@dataclass(frozen=True, eq=False)
class Dataset:
    """The data, checked and ready for training, and the goal."""

    schema: Schema
    goal: Goal
    also: list[str]
    table: Table
    features: pd.DataFrame
    group: np.ndarray | None
    time: np.ndarray | None
    profile: list[tuple[str, str]]
    warnings: list[str]

    @property
    def targets(self) -> np.ndarray:
        """Class indices, or 0/1 per label."""
        return np.asarray(self.table.targets)

    @property
    def metric_title(self) -> str:
        """The metric for people."""
        positive = one_line(self.schema.positive or "", 60)
        return describe_metric(self.goal.metric, self.goal.average, self.goal.task, positive)

    def split(self, repeats: int, seed: int) -> list[Split]:
        """Return the split of every repeat."""
        return splits.make_splits(self.targets, self.goal.task, repeats, seed, self.group, self.time)

    def split_all_rows(self, seed: int) -> Split:
        """Return all rows to train and to tune on, none to test: for the model that is shipped."""
        return splits.split_all_rows(self.targets, self.goal.task, seed, self.group, self.time)

    def encode(self, train: np.ndarray) -> tuple[ColumnTransformer, np.ndarray]:
        """Return an encoder fitted on the training rows, and all rows encoded with it."""
        encoder = self.schema.make_encoder().fit(self.features.iloc[train])
        return encoder, encode_features(encoder, self.features)


def prepare_dataset(options: Options) -> Dataset:
    """Read the data, and check that they can be used for training."""
    if options.repeats < LEAST_REPEATS:
        raise UserError(f"--repeats: expected at least {LEAST_REPEATS}, got {options.repeats}", WRONG_CALL)
    whole = files.read(options.data, options.rows, seed=options.seed)
    special = [name for name in (options.group, options.time) if name is not None]
    for name in special:
        if name not in whole.columns:
            raise UserError(
                f"--group and --time: expected a column, got {name!r}; {suggest(name, whole.columns)}", WRONG_CALL
            )
    drop = [*dict.fromkeys([*options.split_names("drop"), *special])]
    schema = Schema.of(whole, options.target, task=options.task, positive=options.positive, drop=drop)
    frame = schema.keep_labelled(whole)
    if len(schema.classes) < 2:
        raise UserError(
            f"target: expected at least two labels, got only {schema.classes[0]!r}; make it a column of 0 and 1",
            DATA,
        )
    metric, *also = options.split_names("metric") or [""]
    average: Any = options.average  # checked below
    goal = Goal(check_task(schema.task), len(schema.classes), metric, average, options.subject_to)
    protocol.check_goal(goal, also)
    return Dataset(
        schema,
        goal,
        also,
        Table(frame, schema.encode_targets(frame), schema.classes),
        schema.to_features(frame),
        None if options.group is None else _read_groups(frame[options.group]),
        None if options.time is None else _read_times(frame[options.time]),
        profile.describe_data(whole, schema),
        profile.find_warnings(whole, schema),
    )


def _read_groups(cells: pd.Series) -> np.ndarray:
    if cells.isna().any():
        raise UserError(f"--group {cells.name}: {int(cells.isna().sum())} rows have no value; fill them in", DATA)
    codes, distinct = pd.factorize(cells)
    if len(distinct) < 3:
        raise UserError(f"--group {cells.name}: expected at least three groups, got {len(distinct)}", DATA)
    return np.asarray(codes)


def _read_times(cells: pd.Series) -> np.ndarray:
    times = (
        cells if pd.api.types.is_numeric_dtype(cells.dtype) else pd.to_datetime(cells, errors="coerce", format="mixed")
    )
    if times.isna().any():
        raise UserError(
            f"--time {cells.name}: expected dates or numbers, got {int(times.isna().sum())} other cells", DATA
        )
    return np.asarray(times.to_numpy()).astype(np.float64)


def choose_contenders(options: Options, goal: Goal) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the contenders to compare, and those left out with the reason."""
    only = options.split_names("only") or ([c.name for c in CONTENDERS.values() if c.quick] if options.quick else None)
    for name in only or ():
        if name not in CONTENDERS:
            raise UserError(f"--only: unknown contender {name!r}; {suggest(name, list(CONTENDERS))}", WRONG_CALL)
    return select_contenders(goal, only)


def make_config(options: Options) -> dict[str, Any]:
    """Return the contents of ``config.json``: the options, and the hash of the data."""
    path = Path(options.data).resolve()
    return {**asdict(options), "data": str(path), "data_sha256": runs.hash_file(path)}


def read_options(config: dict[str, Any]) -> tuple[Options, str]:
    """Return the options and the hash of the data that ``make_config`` wrote, or raise a ``ValueError``."""
    records.check(config.get("data_sha256"), Sha256, "config.json: data_sha256")
    plain = {key: value for key, value in config.items() if key != "data_sha256"}
    records.check(plain, Options, "config.json")
    return Options(**plain), config["data_sha256"]


def choose_effort(options: Options, dataset: Dataset) -> Effort:
    """Return the training budget of each contender."""
    return Effort.of(len(dataset.targets), options.quick)
