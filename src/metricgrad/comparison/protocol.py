"""The protocol: fit a contender once, and evaluate its scores on test rows with a fixed and with a tuned rule.

The rule is tuned on rows held out of training, which are the same for every contender.
"""

from __future__ import annotations

import importlib
import math
import time
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import torch

from metricgrad.comparison.contenders.scorers import Rows
from metricgrad.comparison.contenders.table import CONTENDERS, fit_members
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.core.metrics import get
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.default_rule import RARE_LABELS, default_rule
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_threshold
from metricgrad.evaluation.evaluator import Evaluator, evaluate
from metricgrad.evaluation.score_tables import RANKING_METRICS
from metricgrad.storage import records
from metricgrad.storage.records import Name, Range
from metricgrad.storage.values import decode, encode
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from metricgrad.comparison.contenders.scorers import Effort, Goal, Scorer
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.tables.features import Features
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.metrics.constraints import Constraint


@dataclass(frozen=True)
class Decision:
    """A decision rule, and its value on the test rows.

    ``feasible``: whether the rule meets the constraint on the rows it was tuned on. ``met``: whether it does on the
    test rows; files call it "held". ``plateau``: the range of thresholds that are hardly worse.
    """

    rule: Rule
    value: float
    others: dict[str, float | None]
    feasible: bool = True
    met: bool = True
    plateau: tuple[float, float] | list[tuple[float, float]] | None = None


@dataclass(frozen=True)
class ConstraintValue:
    """A constraint, the value of its metric (for several labels the worst one), and whether it is met."""

    constraint: str
    value: float
    met: bool


@dataclass(frozen=True)
class Outcome:
    """The result of one contender in one repeat: a finished unit of work.

    ``members``: of an ensemble, the weight of every contender that it was chosen from.
    """

    contender: Name
    repeat: Annotated[int, Range(0, 10**6)]
    train_rows: Annotated[int, Range(1, 2**53)]
    test_rows: Annotated[int, Range(1, 2**53)]
    seconds: Annotated[float, Range(0, 10**9)]
    fixed: Decision
    tuned: Decision
    history: list[dict[str, float]]
    members: dict[Name, Annotated[float, Range(0, 1)]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data; ``members`` only if there are any."""
        decisions = {
            name: _swap_names(asdict(replace(getattr(self, name), rule=None)) | {"rule": getattr(self, name).rule})
            for name in ("fixed", "tuned")
        }
        plain = asdict(replace(self, fixed=None, tuned=None)) | decisions  # type: ignore[arg-type]
        return encode({key: value for key, value in plain.items() if key != "members" or value})  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Return the outcome that ``to_json`` wrote, or raise a ``ValueError``."""
        try:
            plain = decode(data)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"expected plain data, got {error}") from error
        if isinstance(plain, dict):
            plain.setdefault("members", {})
            plain |= {
                name: _swap_names(plain[name]) for name in ("fixed", "tuned") if isinstance(plain.get(name), dict)
            }
        records.check(plain, cls, "unit")
        if plain["members"] and not math.isclose(sum(plain["members"].values()), 1, abs_tol=1e-6):
            raise ValueError("unit: members: expected weights that sum to 1, got others")
        return cls(**plain | {name: Decision(**plain[name]) for name in ("fixed", "tuned")})


class Fitted(NamedTuple):
    """A fitted contender, its fixed and its tuned rule, and its scores of the held-out rows."""

    scorer: Scorer
    rules: dict[str, Decision]
    held_out: np.ndarray


class SavedScorer(NamedTuple):
    """A fitted contender as ``load_scorer`` takes it: the name of its class, and its files."""

    kind: str
    files: dict[str, bytes]


class Finished(NamedTuple):
    """A finished unit of work: its outcome, its scores of the test rows and of the held-out rows, and its model.

    An ensemble has no model of its own.
    """

    outcome: Outcome
    scores: np.ndarray
    held_out: np.ndarray
    scorer: SavedScorer | None = None


def _swap_names(decision: dict[str, Any]) -> dict[str, Any]:
    """Return a decision with the field "met" called "held", as in files, or the other way round."""
    names = {"met": "held", "held": "met"}
    return {names.get(key, key): value for key, value in decision.items()}


def check_goal(goal: Goal, also: list[str]) -> None:
    """Raise if the metrics or constraints do not fit the task, before anything is trained."""
    if goal.metric in RANKING_METRICS:
        raise UserError(
            f"--metric: {goal.metric} evaluates a ranking, not decisions; put another metric first: f1,{goal.metric}",
            WRONG_CALL,
        )
    try:
        goal.check_values(goal.metric, *also)
        describe_tuning(goal).problem()
        Evaluator([goal.metric, *also], task=goal.task, average=goal.average)
        for constraint in parse(goal.subject_to):
            get(constraint.metric)
    except ValueError as error:
        raise UserError(
            str(error).replace("subject_to:", "--subject-to:").replace("metric:", "--metric:"), WRONG_CALL
        ) from error


def run_contender(
    name: str,
    goal: Goal,
    also: list[str],
    effort: Effort,
    features: Features,
    targets: np.ndarray,
    split: Split,
    seed: int,
    repeat: int,
) -> Finished:
    """Fit a contender on a split's training rows, and evaluate it on the test rows."""
    _import_lazy_modules(CONTENDERS[name].needs)
    started = time.perf_counter()
    scorer, rules, held_out = fit_contender(name, goal, effort, features, targets, split, seed)
    seconds = time.perf_counter() - started
    scores = scorer.scores(features[split.test])
    fixed, tuned = evaluate_rules(goal, also, rules, scores, targets[split.test])
    history = [{key: float(value) for key, value in row.items()} for row in scorer.history]
    outcome = Outcome(name, repeat, len(split.train), len(split.test), seconds, fixed, tuned, history)
    return Finished(outcome, scores, held_out, SavedScorer(type(scorer).__name__, scorer.files()))


@cache
def _import_lazy_modules(packages: tuple[str, ...]) -> None:
    """Import what the first fit in a process would import, so that its seconds are those of training."""
    for package in packages:
        importlib.import_module(package)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # the first optimiser imports most of torch's compiler


def fit_contender(
    name: str,
    goal: Goal,
    effort: Effort,
    features: Features,
    targets: np.ndarray,
    split: Split,
    seed: int,
    weights: dict[str, float] | None = None,
) -> Fitted:
    """Fit a contender, and make its fixed and its tuned rule, not yet evaluated on test rows.

    ``weights``: of the ensemble's members if they are known; otherwise all contenders are fitted to choose them.
    """
    train = split.train
    count = len(split.fit)
    rows = Rows(features[train], targets[train], np.arange(count), np.arange(count, len(train)))
    fit = CONTENDERS[name].fit if weights is None else partial(fit_members, weights)
    with one_thread():
        scorer = fit(goal, effort, rows, seed)
        held_out = scorer.scores(features[split.held_out])
        return Fitted(scorer, make_rules(goal, held_out, targets[split.held_out]), held_out)


def make_rules(goal: Goal, scores: np.ndarray, targets: np.ndarray) -> dict[str, Decision]:
    """Return the fixed rule and the rule tuned on held-out scores, with their values there, which are optimistic."""
    plain = default_rule(goal.task)
    value = compute_metric(goal, plain, scores, targets)
    found = {"fixed": Decision(plain, value, {}, feasible=meets_constraints(goal, plain, scores, targets))}
    try:
        tuning = tune_rule(goal, scores, targets)
    except InfeasibleError:
        found["tuned"] = Decision(make_negative_rule(goal), 0.0, {}, feasible=False)
        return found
    value = compute_metric(goal, tuning.rule, scores, targets)
    found["tuned"] = Decision(tuning.rule, value, {}, plateau=tuning.plateau)
    return found


def tune_rule(goal: Goal, scores: np.ndarray, targets: np.ndarray) -> TuningResult:
    """Return the rule that is best on the given scores."""
    how = describe_tuning(goal)
    options: dict[str, Any] = {
        "task": how.task,
        "average": how.average,
        "shared": how.shared,
        "subject_to": how.subject_to,
        "rare_labels": how.rare_labels,
    }
    return tune_threshold(how.metric, scores, targets, **options)


def describe_tuning(goal: Goal) -> TuningSpec:
    """Return how the rule for a goal is tuned."""
    # With these averages a constraint can only be met by one threshold shared by all labels.
    pooled = goal.task == "multilabel" and goal.average in ("micro", "samples") and goal.subject_to is not None
    return TuningSpec(
        goal.metric, goal.task, goal.average, shared=pooled, subject_to=goal.subject_to, rare_labels=RARE_LABELS
    )


def make_negative_rule(goal: Goal) -> Rule:
    """Return the rule that never predicts a positive, for the case that no rule meets the constraint."""
    return Threshold(math.inf if goal.task == "binary" else (math.inf,) * goal.classes)


def evaluate_rules(
    goal: Goal, also: list[str], rules: dict[str, Decision], scores: np.ndarray, targets: np.ndarray
) -> tuple[Decision, Decision]:
    """Return the fixed and the tuned rule, evaluated on test rows."""
    fixed, tuned = (
        replace(rules[name], **evaluate_rule(goal, also, rules[name].rule, scores, targets))
        for name in ("fixed", "tuned")
    )
    return fixed, tuned


def evaluate_rule(goal: Goal, also: list[str], rule: Rule, scores: np.ndarray, targets: np.ndarray) -> dict[str, Any]:
    """Return the value of a rule on these rows, the other metrics, and whether the constraint is met there."""
    others = {}
    if also:
        empty_classes = choose_empty_classes(goal, targets)
        found = evaluate(
            scores, targets, also, task=goal.task, average=goal.average, rule=rule, empty_classes=empty_classes
        )
        others = {key: value if math.isfinite(value) else None for key, value in found.items()}
    value = compute_metric(goal, rule, scores, targets)
    return {"value": value, "others": others, "met": meets_constraints(goal, rule, scores, targets)}


def meets_constraints(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray) -> bool:
    """Return whether a rule meets the constraints on these rows."""
    return all(constraint.met for constraint in evaluate_constraints(goal, rule, scores, targets))


def evaluate_constraints(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray) -> list[ConstraintValue]:
    """Return the value of each constraint on these rows, and whether it is met, by the criterion used in tuning.

    Each of several labels must meet it, unless one shared threshold was tuned: then the average must.
    """
    average = choose_constraint_average(goal)
    found = []
    for constraint in parse(goal.subject_to):
        values = evaluate(scores, targets, {"": constraint.metric}, task=goal.task, average=average, rule=rule)[""]
        found.append(evaluate_constraint(constraint, values))
    return found


def choose_constraint_average(goal: Goal) -> Average | None:
    """Return the average of a constraint's metric, None if each label must meet it."""
    each = goal.task == "multilabel" and not describe_tuning(goal).shared
    return None if each else goal.average


def evaluate_constraint(constraint: Constraint, values: Any) -> ConstraintValue:
    """Return the worst of the values of a constraint's metric, and whether all of them meet it."""
    each = torch.as_tensor(values, dtype=torch.float64).reshape(-1)
    worst = constraint.violation(each).nan_to_num(nan=-math.inf).argmax()
    return ConstraintValue(str(constraint), each[worst].item(), constraint.met(each))


def choose_empty_classes(goal: Goal, targets: np.ndarray) -> EmptyClasses:
    """Return what averages over classes do with one that has no rows here: they leave it out, since it has no value.

    Where every class has rows, one that is lost in a bootstrap replicate counts. Of two classes there is no average.
    """
    if goal.task == "binary":
        return "count"
    counts = targets.sum(0) if targets.ndim == 2 else np.bincount(targets, minlength=goal.classes)
    return "count" if counts.all() else "skip"


def compute_metric(goal: Goal, rule: Rule, scores: np.ndarray, targets: np.ndarray) -> float:
    """Return the metric of a goal under a rule on these rows, or raise if it is not finite."""
    options: dict[str, Any] = {
        "task": goal.task,
        "average": goal.average,
        "empty_classes": choose_empty_classes(goal, targets),
    }
    value = float(evaluate(scores, targets, {"": goal.metric}, rule=rule, **options)[""])
    if not math.isfinite(value):
        raise UserError(
            f"--metric: expected a finite value of {goal.metric}, got {value}; give its divisions a value for 0/0"
        )
    return value
