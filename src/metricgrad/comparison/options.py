"""The options of a run, and the data, read and checked for training."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd

from metricgrad import strict_json
from metricgrad.comparison import protocol, splits
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.candidate_runs import ALL_ROWS, make_seed
from metricgrad.comparison.contenders import CONTENDERS, Contender, make_own_contender, select_contenders
from metricgrad.comparison.errors import DATA, WRONG_CALL, UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.metric_titles import describe_metric
from metricgrad.comparison.option_texts import as_text
from metricgrad.comparison.tables import files, profile
from metricgrad.comparison.tables.labelled_table import LabelledTable
from metricgrad.comparison.tables.rows import SAMPLE, name_rows
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.times import check_times, read_times
from metricgrad.core.batch import check_task
from metricgrad.core.costs import Cost
from metricgrad.core.metrics.parameters import with_parameters
from metricgrad.estimators.columns.dates import check_date_format
from metricgrad.estimators.columns.numbers import UNREADABLE
from metricgrad.estimators.cross_fitting import FitSeeds
from metricgrad.estimators.guarantee_rows import hold_out_rows
from metricgrad.messages import one_line, suggest
from metricgrad.strict_json import Length, Range, Sha256

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from metricgrad.comparison.splits import Split

FOLDS = 5
"""The number of folds that candidates are cross-fitted on, as in ``MetricEnsembleClassifier``."""

QUICK_FOLDS = 2
"""That of ``--quick``."""

GUARANTEE_SHARE = 0.25
"""The share of the rows that ``--confidence`` holds out for the rule of the shipped model."""

LEAST_REPEATS = 2
"""The fewest repeats: without a spread over repeats no gain can be tested."""


@dataclass(frozen=True)
class Options:
    """The options of a run: everything that determines its results."""

    data: str
    target: Annotated[tuple[str, ...], Length(1, 10**6)]
    metric: Annotated[tuple[str, ...], Length(1, 1000)] = ("f1",)
    average: str = "macro"
    cost: str | None = None
    subject_to: str | None = None
    task: str | None = None
    positive: str | None = None
    drop: tuple[str, ...] = ()
    group: str | None = None
    time: str | None = None
    rows: Annotated[int, Range(1, 2**53)] | None = None
    repeats: Annotated[int, Range(0, 10_000)] = 5
    seed: Annotated[int, Range(0, 2**63)] = 0
    contenders: tuple[str, ...] = ()
    quick: bool = False
    demo: bool = False
    beta: float | dict[str, float] | None = None
    alpha: float | dict[str, float] | None = None
    date_format: str | None = None
    extra_contenders: tuple[str, ...] = ()
    own_contenders: tuple[str, ...] = ()
    drop_unlabelled: bool = False
    confidence: Annotated[float, Range(0.5, 0.9999)] | None = None
    abstain: bool = False
    abstain_label: str | None = None

    @property
    def folds(self) -> int:
        """The number of models that each candidate is averaged of."""
        return QUICK_FOLDS if self.quick else FOLDS

    def command(self, ship: str | None = None, budget: float | None = None) -> str:
        """Return the command line; that of the demo does not name the data file, which lies where pip put it."""
        words = ["metricgrad", "demo"] if self.demo else ["metricgrad", "compare", self.data]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            default = 2 if field.name == "repeats" and self.quick and not self.demo else field.default
            if value != default and field.name in (("repeats", "quick") if self.demo else vars(self)):
                flag = "--" + field.name.replace("_", "-")
                words += [flag] if value is True else [flag, as_text(value)]
        words += [] if budget is None else ["--budget", f"{budget:g}"]
        words += [] if ship is None or self.demo else ["--ship", ship]
        return shlex.join(words)


@dataclass(frozen=True, eq=False)
class GuaranteeRows:
    """Rows that no model is trained, compared or evaluated on: the rule of the shipped one is tuned on them."""

    frame: pd.DataFrame
    targets: np.ndarray
    confidence: float


@dataclass(frozen=True, eq=False)
class Dataset:
    """The data, checked and ready for training, and the goal."""

    schema: Schema
    goal: Goal
    also: list[str]
    table: LabelledTable
    features: pd.DataFrame
    group: np.ndarray | None
    time: np.ndarray | None
    profile: list[tuple[str, str]]
    warnings: list[str]
    guarantee: GuaranteeRows | None = None
    costs: Cost | None = None

    def take_costs(self, rows: np.ndarray) -> Cost | None:
        """Return the costs of some rows; None if costs do not differ by row."""
        return None if self.costs is None else self.costs.take(rows)

    def move_scores(self, scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the scores of some rows moved by their costs, so that 0.5 is where decisions cost the same."""
        costs = self.take_costs(rows)
        return scores if costs is None else np.asarray(costs.adjust(scores))

    @property
    def targets(self) -> np.ndarray:
        """Class indices, or 0/1 per label."""
        return np.asarray(self.table.targets)

    def describe_left_out(self, parts: Sequence[Split]) -> list[str]:
        """Return a warning if splits leave rows out because later rows of their group are in another part."""
        if self.group is None or self.time is None:
            return []
        count = max(splits.count_left_out(part, self.time) for part in parts)
        where = "of a repeat" if len(parts) > 1 else "of training"
        why = "because later rows of their group are held out or evaluated on"
        return [f"--group and --time: up to {count} earlier rows are left out {where}, {why}"] if count else []

    @property
    def metric_title(self) -> str:
        """The metric for people."""
        if self.goal.cost is not None and self.goal.task == "binary":
            return "savings"
        positive = one_line(self.schema.positive or "", 60)
        return describe_metric(self.goal.metric, self.goal.average, self.goal.task, positive)

    @property
    def _rows(self) -> splits.RowsToSplit:
        return splits.RowsToSplit(self.targets, self.goal.task, self.group, self.time)

    def split(self, options: Options) -> list[Split]:
        """Return the split of every repeat."""
        states = [make_seed(options.seed, repeat) for repeat in range(options.repeats)]
        fold_seeds = [FitSeeds.draw(state).folds for state in states]
        return splits.split_repeatedly(self._rows, options.repeats, options.folds, options.seed, fold_seeds)

    def split_all_rows(self, options: Options) -> Split:
        """Return all rows to train and to tune on, none to test: for the model that is shipped."""
        fold_seed = FitSeeds.draw(make_seed(options.seed, ALL_ROWS)).folds
        return splits.split_all_rows(self._rows, options.folds, fold_seed)


def prepare_dataset(options: Options) -> Dataset:
    """Read the data, and check that they can be used for training."""
    if options.repeats < LEAST_REPEATS:
        raise UserError(f"--repeats: expected at least {LEAST_REPEATS}, got {options.repeats}", WRONG_CALL)
    whole = files.read(options.data, options.rows, seed=options.seed)
    whole.index.name = None if options.rows is None else SAMPLE
    special = [name for name in (options.group, options.time) if name is not None]
    for name in special:
        if name not in whole.columns:
            raise UserError(
                f"--group and --time: expected a column, got {name!r}; {suggest(name, whole.columns)}", WRONG_CALL
            )
    if options.date_format is not None:
        try:
            check_date_format(options.date_format)
        except ValueError as error:
            raise UserError(f"--date-format: {error}", WRONG_CALL) from error
    drop = [*dict.fromkeys([*options.drop, *special])]
    schema = Schema.of(
        whole,
        options.target,
        task=options.task,
        positive=options.positive,
        drop=drop,
        date_format=options.date_format,
        drop_unlabelled=options.drop_unlabelled,
    )
    frame = schema.keep_labelled(whole)
    if len(schema.classes) < 2:
        raise UserError(
            f"target: expected at least two labels, got only {schema.classes[0]!r}; make it a column of 0 and 1",
            DATA,
        )
    metric, *also = options.metric
    costs = None
    if options.cost is None:
        metric = name_metric(metric, {"alpha": options.alpha, "beta": options.beta}, schema)
    else:
        also = [] if options.metric == ("f1",) else [*options.metric]
        metric, costs = read_costs(options.cost, frame, schema, options.subject_to)
    average: Any = options.average  # checked below
    abstain_label = read_abstain_label(options.abstain_label, options.abstain, schema)
    task, classes = check_task(schema.task), len(schema.classes)
    goal = Goal(task, classes, metric, average, options.subject_to, options.cost, options.abstain, abstain_label)
    protocol.check_goal(goal, also)
    guarantee = None
    if options.confidence is not None:
        _check_confidence(options, goal)
        frame, guarantee = _hold_out_guarantee_rows(frame, schema, options.confidence, options.seed)
    time, about = (None, []) if options.time is None else read_times(frame[options.time], options.date_format)
    if time is not None:
        check_times(str(options.time), time)
    return Dataset(
        schema,
        goal,
        also,
        LabelledTable(frame, schema.encode_targets(frame), schema.classes),
        schema.to_features(frame),
        None if options.group is None else _read_groups(frame[options.group]),
        time,
        [*profile.describe_data(whole, schema), *about],
        [*profile.find_warnings(whole, schema), *_find_large_group(frame, options.group)],
        guarantee,
        costs,
    )


def _check_confidence(options: Options, goal: Goal) -> None:
    """Raise if there is nothing to guarantee, or rows are not independent draws."""
    if options.group is not None or options.time is not None:
        raise UserError("--confidence: expected neither --group nor --time, with which rows are not alike", WRONG_CALL)
    try:
        replace(protocol.describe_tuning(goal), confidence=options.confidence).problem()
    except ValueError as error:
        text = str(error).replace("subject_to", "--subject-to").replace("confidence:", "--confidence:")
        raise UserError(text, WRONG_CALL) from error


def _hold_out_guarantee_rows(
    frame: pd.DataFrame, schema: Schema, confidence: float, seed: int
) -> tuple[pd.DataFrame, GuaranteeRows]:
    """Return the rows to compare on, and those held out for the guarantee."""
    fitted, held_out = hold_out_rows(len(frame), GUARANTEE_SHARE, seed % 2**32)
    own = frame.iloc[held_out]
    return frame.iloc[fitted], GuaranteeRows(own, schema.encode_targets(own), confidence)


def read_costs(text: str, frame: pd.DataFrame, schema: Schema, subject_to: str | None) -> tuple[str, Cost | None]:
    """Return the savings with mean costs as a metric, by name, and the costs of all rows; None if these are equal."""
    try:
        goal = Goal(check_task(schema.task), len(schema.classes), "savings", cost=text)
        if goal.cost_columns and schema.task != "binary":
            raise ValueError(f"cost: expected the same costs for every row with task={schema.task!r}, got columns")
        if goal.cost_columns and subject_to is not None:
            raise ValueError("cost: expected the same costs for every row with --subject-to, got columns")
        for name in goal.cost_columns:
            if name not in frame.columns:
                known = suggest(name, list(frame.columns))
                raise ValueError(f"cost: expected a column of the data, got {name!r}; {known}")
        costs = goal.find_costs(frame)
        mean = Cost.from_text(text) if costs is None else costs.mean()
    except ValueError as error:
        raise UserError(f"--cost: {str(error).removeprefix('cost: ')}", WRONG_CALL) from error
    missed, alarmed = mean.stakes(0)
    return f"savings(fp={alarmed.item():.6g} fn={missed.item():.6g})", costs


def read_abstain_label(text: str | None, abstain: bool, schema: Schema) -> int | str | None:
    """Return what is predicted for an undecided row: a whole number if the classes are; None is an empty cell."""
    if text is None:
        return None
    if not abstain:
        raise UserError(f"--abstain-label: expected --abstain with it, got {text!r} alone; leave it out", WRONG_CALL)
    numeric = schema.target.numeric
    try:
        label = int(text) if numeric else text
    except ValueError:
        raise UserError(
            f"--abstain-label: expected a whole number, like the classes, got {text!r}; or leave it out", WRONG_CALL
        ) from None
    if str(label) in schema.classes:
        raise UserError(f"--abstain-label: expected a value that is no class, got {text!r}; choose another", WRONG_CALL)
    return label


def name_metric(metric: str, values: Mapping[str, float | dict[str, float] | None], schema: Schema) -> str:
    """Return the name of a metric with the parameters that are options: {"beta": {"dog": 0.25, "rest": 1}}."""
    try:
        params = {name: value for name, value in values.items() if value is not None}
        # Of two classes only the positive one is evaluated.
        return str(with_parameters(metric, params, schema.classes[1:] if schema.task == "binary" else schema.classes))
    except ValueError as error:
        raise UserError(f"--{error}", WRONG_CALL) from error


def _read_groups(cells: pd.Series) -> np.ndarray:
    if cells.isna().any():
        where = name_rows(cells.index[cells.isna()])
        raise UserError(
            f"--group {cells.name}: expected a value in every row, got none in {where}; fill them in, or leave these "
            "rows out",
            DATA,
        )
    try:
        codes, distinct = pd.factorize(cells)
    except UNREADABLE as error:
        raise UserError(
            f"--group {cells.name}: expected texts or numbers, got {cells.dtype} ({one_line(error, 80)})", DATA
        ) from error
    if len(distinct) < 3:
        raise UserError(f"--group {cells.name}: expected at least three groups, got {len(distinct)}", DATA)
    return np.asarray(codes)


def _find_large_group(frame: pd.DataFrame, column: str | None) -> list[str]:
    """Return a warning if a group has more rows than the test part of a split should have."""
    shares = pd.Series(dtype=float) if column is None else frame[column].value_counts(normalize=True)
    return [
        f"--group {column}: {one_line(str(group), 60)!r} has {share:.0%} of the rows, so the parts of a split "
        "are uneven, and one may hold little else"
        for group, share in shares[shares > splits.TEST_SHARE].items()
    ]


def choose_contenders(
    options: Options, goal: Goal, own: Mapping[str, Any] | None = None
) -> tuple[dict[str, Contender], list[tuple[str, str]]]:
    """Return the contenders to compare, and those left out with the reason; ``own``: estimators of the user's."""
    mine = {name: make_own_contender(name, estimator) for name, estimator in (own or {}).items()}
    known = [*CONTENDERS, *mine]
    for flag, names in (("contenders", options.contenders), ("extra-contenders", options.extra_contenders)):
        for name in names:
            if name not in known:
                raise UserError(f"--{flag}: unknown contender {name!r}; {suggest(name, known)}", WRONG_CALL)
    named: list[str] | None = list(options.contenders) or None
    if named is None and options.quick:
        named = [one.name for one in CONTENDERS.values() if one.quick]
    extra = [name for name in options.extra_contenders if name not in mine]
    return select_contenders(goal, named, extra, mine)


def choose_repeats(repeats: int | None, quick: bool) -> int:
    """Return the number of repeats: that asked for, or the default."""
    return repeats if repeats is not None else 2 if quick else 5


def make_config(options: Options, keep: bool = False) -> dict[str, Any]:
    """Return the contents of ``config.json``: the options, and the hash of the data.

    ``keep``: whether the data are copied into the run folder; then their path is relative to it, otherwise absolute.
    """
    path = Path(options.data).resolve()
    return {**asdict(options), "data": path.name if keep else str(path), "data_sha256": runs.hash_file(path)}


def read_options(config: dict[str, Any]) -> tuple[Options, str]:
    """Return the options and the hash of the data that ``make_config`` wrote, or raise a ``ValueError``."""
    strict_json.check(config.get("data_sha256"), Sha256, "config.json: data_sha256")
    plain = {key: value for key, value in config.items() if key != "data_sha256"}
    strict_json.check(plain, Options, "config.json")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()}
    return Options(**given), config["data_sha256"]
