"""What is asked: options, and the data read, checked and made ready to be learned from."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd

from metricgrad.app.contenders.scorers import Effort, Goal
from metricgrad.app.contenders.table import CONTENDERS, chosen
from metricgrad.app.errors import DATA, WRONG_CALL, UserError, near
from metricgrad.app.report.evidence import Table
from metricgrad.app.runs import folder as runs
from metricgrad.app.study import protocol, splits
from metricgrad.app.tables import files, profile
from metricgrad.app.tables.schema import Schema
from metricgrad.engine.batch import check_task
from metricgrad.storage import records
from metricgrad.storage.records import Range, Sha256

if TYPE_CHECKING:
    from metricgrad.app.study.splits import Split

LEAST_REPEATS = 2
"""Without a spread over repeats nothing can be said about a gain."""


@dataclass(frozen=True)
class Options:
    """What a run is asked for: everything that decides its results."""

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

    def several(self, name: str) -> list[str]:
        """Return the parts of an option that takes names with commas between them."""
        return [part.strip() for part in (getattr(self, name) or "").split(",") if part.strip()]

    def command(self) -> str:
        """Return the call in words; that of the demo does not name the file, which lies where pip put it."""
        words = ["metricgrad", "demo"] if self.demo else ["metricgrad", "compare", self.data]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default and field.name in (("repeats", "quick") if self.demo else vars(self)):
                flag = "--" + field.name.replace("_", "-")
                words += [flag] if value is True else [flag, str(value)]
        return shlex.join(words)


@dataclass(frozen=True, eq=False)
class Task:
    """The data, ready to be learned from, and what is asked of them."""

    schema: Schema
    goal: Goal
    also: list[str]
    table: Table
    features: pd.DataFrame
    group: Any
    time: Any
    profile: list[tuple[str, str]]
    warnings: list[str]

    @property
    def targets(self) -> Any:
        """Class indices, or 0/1 per label."""
        return self.table.targets

    def split(self, repeats: int, seed: int) -> list[Split]:
        """Return the rows of every repeat."""
        return splits.splits(self.targets, self.goal.task, repeats, seed, self.group, self.time)

    def everything(self, seed: int) -> Split:
        """Return all rows to train and to tune on, none to test: for the model that is shipped."""
        return splits.everything(self.targets, self.goal.task, seed, self.group, self.time)

    def encoded(self, train: Any) -> tuple[Any, Any]:
        """Return an encoder fitted on the training rows, and all rows encoded by it."""
        encoder = self.schema.encoder().fit(self.features.iloc[train])
        return encoder, runs.encoded(encoder, self.features)


def prepared(options: Options) -> Task:
    """Read the data, and check that they can be learned from."""
    if options.repeats < LEAST_REPEATS:
        raise UserError(f"--repeats: expected at least {LEAST_REPEATS}, got {options.repeats}", WRONG_CALL)
    whole = files.read(options.data, options.rows, seed=options.seed)
    aside = [name for name in (options.group, options.time) if name is not None]
    for name in aside:
        if name not in whole.columns:
            raise UserError(
                f"--group and --time: expected a column, got {name!r}; {near(name, whole.columns)}", WRONG_CALL
            )
    drop = [*dict.fromkeys([*options.several("drop"), *aside])]
    schema = Schema.of(whole, options.target, task=options.task, positive=options.positive, drop=drop)
    frame = schema.labelled(whole)
    if len(schema.classes) < 2:
        raise UserError(f"target: expected at least two labels, got {schema.classes[0]!r} alone; make it 0 and 1", DATA)
    metric, *also = options.several("metric") or [""]
    average: Any = options.average  # checked below
    goal = Goal(check_task(schema.task), len(schema.classes), metric, average, options.subject_to)
    protocol.check(goal, also)
    return Task(
        schema,
        goal,
        also,
        Table(frame, schema.targets(frame), schema.classes),
        schema.features(frame),
        None if options.group is None else _groups(frame[options.group]),
        None if options.time is None else _times(frame[options.time]),
        profile.profile(whole, schema),
        profile.warnings(whole, schema),
    )


def _groups(cells: pd.Series) -> Any:
    if cells.isna().any():
        raise UserError(f"--group {cells.name}: {int(cells.isna().sum())} rows have none; fill them in", DATA)
    codes, distinct = pd.factorize(cells)
    if len(distinct) < 3:
        raise UserError(f"--group {cells.name}: expected at least three groups, got {len(distinct)}", DATA)
    return codes


def _times(cells: pd.Series) -> Any:
    times = (
        cells if pd.api.types.is_numeric_dtype(cells.dtype) else pd.to_datetime(cells, errors="coerce", format="mixed")
    )
    if times.isna().any():
        raise UserError(
            f"--time {cells.name}: expected dates or numbers, got {int(times.isna().sum())} other cells", DATA
        )
    return times.to_numpy().astype(np.float64)


def contenders(options: Options, goal: Goal) -> tuple[list[str], list[tuple[str, str]]]:
    """Return who takes part, and who does not and why."""
    only = options.several("only") or ([c.name for c in CONTENDERS.values() if c.quick] if options.quick else None)
    for name in only or ():
        if name not in CONTENDERS:
            raise UserError(f"--only: unknown contender {name!r}; {near(name, list(CONTENDERS))}", WRONG_CALL)
    return chosen(goal, only)


def configuration(options: Options) -> dict[str, Any]:
    """Return what decides the results, the data by their hash."""
    path = Path(options.data).resolve()
    return {**asdict(options), "data": str(path), "data_sha256": runs.sha256(path)}


def options_of(config: dict[str, Any]) -> tuple[Options, str]:
    """Return what ``configuration`` was made of: the options, and the hash of the data."""
    records.check(config.get("data_sha256"), Sha256, "config.json: data_sha256")
    plain = {key: value for key, value in config.items() if key != "data_sha256"}
    records.check(plain, Options, "config.json")
    return Options(**plain), config["data_sha256"]


def effort(options: Options, task: Task) -> Effort:
    """Return the budget of each contender."""
    return Effort.of(len(task.targets), options.quick)
