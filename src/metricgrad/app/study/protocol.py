"""One protocol for all: fit a contender once, and judge its scores on test rows with a fixed and with a tuned rule.

The rule is tuned on the rows held out of training, the same for every contender.
"""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch

from metricgrad.app.contenders.scorers import Rows
from metricgrad.app.contenders.table import CONTENDERS
from metricgrad.app.errors import WRONG_CALL, UserError
from metricgrad.decisions.default import default_rule
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.decisions.solver import InfeasibleError
from metricgrad.decisions.tuning import Tuned, Tuning, tune_threshold
from metricgrad.estimators.labels import trusted
from metricgrad.evaluation.evaluator import Evaluator, evaluate
from metricgrad.evaluation.score_tables import RANKING
from metricgrad.metrics import get
from metricgrad.metrics.constraints import parse
from metricgrad.storage import records
from metricgrad.storage.records import Name, Range
from metricgrad.storage.values import decode, encode
from metricgrad.training.loop import one_thread

if TYPE_CHECKING:
    from metricgrad.app.contenders.scorers import Effort, Goal, Scorer
    from metricgrad.app.study.splits import Split


@dataclass(frozen=True)
class Decision:
    """Scores with a rule on test rows.

    ``feasible``: whether the rule meets the constraint on the rows it was tuned on; ``held``: whether it does on the
    test rows. ``plateau``: cuts that are hardly worse.
    """

    rule: Rule
    value: float
    others: dict[str, float | None]
    feasible: bool = True
    held: bool = True
    plateau: tuple[float, float] | list[tuple[float, float]] | None = None


@dataclass(frozen=True)
class Bound:
    """A constraint, the value that counts (of several labels the worst), and whether that meets it."""

    constraint: str
    value: float
    met: bool


@dataclass(frozen=True)
class Outcome:
    """What became of one contender in one repeat: a unit of work, written when done."""

    contender: Name
    repeat: Annotated[int, Range(0, 10**6)]
    train_rows: Annotated[int, Range(1, 2**53)]
    test_rows: Annotated[int, Range(1, 2**53)]
    seconds: Annotated[float, Range(0, 10**9)]
    fixed: Decision
    tuned: Decision
    history: list[dict[str, float]]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        decisions = {
            name: asdict(replace(getattr(self, name), rule=None)) | {"rule": getattr(self, name).rule}
            for name in ("fixed", "tuned")
        }
        return encode(asdict(replace(self, fixed=None, tuned=None)) | decisions)  # type: ignore[no-any-return, arg-type]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Return what ``to_json`` wrote, or raise a ``ValueError``."""
        try:
            plain = decode(data)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"expected plain data, got {error}") from error
        records.check(plain, cls, "unit")
        return cls(**plain | {name: Decision(**plain[name]) for name in ("fixed", "tuned")})


def check(goal: Goal, also: list[str]) -> None:
    """Refuse, before anything is trained, metrics that do not fit the task."""
    if goal.metric in RANKING:
        raise UserError(
            f"--metric: {goal.metric} judges an order, no decision; put one that decides before it: f1,{goal.metric}",
            WRONG_CALL,
        )
    try:
        tuned(goal).problem()
        Evaluator([goal.metric, *also], task=goal.task, average=goal.average)
        for constraint in parse(goal.subject_to):
            get(constraint.metric)
    except ValueError as error:
        raise UserError(
            str(error).replace("subject_to:", "--subject-to:").replace("metric:", "--metric:"), WRONG_CALL
        ) from error


def run(
    name: str,
    goal: Goal,
    also: list[str],
    effort: Effort,
    features: Any,
    targets: Any,
    split: Split,
    seed: int,
    repeat: int,
) -> tuple[Outcome, Any]:
    """Fit one contender on a split's training rows; return what became of it, and its scores of the test rows."""
    started = time.perf_counter()
    scorer, rules = fitted(name, goal, effort, features, targets, split, seed)
    seconds = time.perf_counter() - started
    scores, truth = scorer.scores(features[split.test]), targets[split.test]
    found = {key: replace(rule, **judged(goal, also, rule.rule, scores, truth)) for key, rule in rules.items()}
    history = [{key: float(value) for key, value in row.items()} for row in scorer.history]
    outcome = Outcome(name, repeat, len(split.train), len(split.test), seconds, found["fixed"], found["tuned"], history)
    return outcome, scores


def fitted(
    name: str, goal: Goal, effort: Effort, features: Any, targets: Any, split: Split, seed: int
) -> tuple[Scorer, dict[str, Decision]]:
    """Fit a contender, and return it with its fixed and its tuned rule, not judged yet."""
    train = split.train
    fit = len(split.fit)
    rows = Rows(features[train], targets[train], np.arange(fit), np.arange(fit, len(train)))
    with one_thread():
        scorer = CONTENDERS[name].fit(goal, effort, rows, seed)
        held = scorer.scores(features[split.held])
        return scorer, rules(goal, held, targets[split.held])


def rules(goal: Goal, scores: Any, targets: Any) -> dict[str, Decision]:
    """Return the fixed rule and the one tuned on held-out scores; their values are those there, which flatters."""
    plain = default_rule(goal.task)
    value = _metric(goal, plain, scores, targets)
    found = {"fixed": Decision(plain, value, {}, feasible=meets(goal, plain, scores, targets))}
    try:
        tuning = tune(goal, scores, targets)
    except InfeasibleError:
        found["tuned"] = Decision(nothing(goal), 0.0, {}, feasible=False)
        return found
    # A constraint that was asked for is kept, whatever the numbers behind it.
    rule = trusted(tuning, plain) if goal.subject_to is None else tuning.rule
    found["tuned"] = Decision(rule, _metric(goal, rule, scores, targets), {}, plateau=tuning.plateau)
    return found


def tune(goal: Goal, scores: Any, targets: Any) -> Tuning:
    """Return the rule that is best on given scores."""
    how = tuned(goal)
    options: dict[str, Any] = {
        "task": how.task,
        "average": how.average,
        "shared": how.shared,
        "subject_to": how.subject_to,
    }
    return tune_threshold(how.metric, scores, targets, scarce="keep", **options)


def tuned(goal: Goal) -> Tuned:
    """Return how the rule of a goal is tuned."""
    # With these averages a constraint can be kept by one threshold for all labels alone.
    pooled = goal.task == "multilabel" and goal.average in ("micro", "samples") and goal.subject_to is not None
    return Tuned(goal.metric, goal.task, goal.average, shared=pooled, subject_to=goal.subject_to)


def nothing(goal: Goal) -> Rule:
    """Return the rule that decides for nothing: what is left where no rule is allowed."""
    return Threshold(math.inf if goal.task == "binary" else (math.inf,) * goal.classes)


def judged(goal: Goal, also: list[str], rule: Rule, scores: Any, targets: Any) -> dict[str, Any]:
    """Return the value of a rule on rows, the other metrics, and whether the constraint holds there."""
    others = {}
    if also:
        found = evaluate(scores, targets, also, task=goal.task, average=goal.average, rule=rule)
        others = {key: value if math.isfinite(value) else None for key, value in found.items()}
    value = _metric(goal, rule, scores, targets)
    return {"value": value, "others": others, "held": meets(goal, rule, scores, targets)}


def meets(goal: Goal, rule: Rule, scores: Any, targets: Any) -> bool:
    """Tell whether a rule meets the constraints on these rows."""
    return all(bound.met for bound in bounds(goal, rule, scores, targets))


def bounds(goal: Goal, rule: Rule, scores: Any, targets: Any) -> list[Bound]:
    """Return the value of each constraint on these rows, and whether it is met, by the same rule as in tuning.

    Of several labels each must meet it, unless one threshold for all was tuned, whose average must.
    """
    each = goal.task == "multilabel" and not tuned(goal).shared
    found = []
    for constraint in parse(goal.subject_to):
        values = torch.as_tensor(
            evaluate(
                scores,
                targets,
                {"": constraint.metric},
                task=goal.task,
                average=None if each else goal.average,
                rule=rule,
            )[""],
            dtype=torch.float64,
        ).reshape(-1)
        worst = constraint.violation(values).nan_to_num(nan=-math.inf).argmax()
        found.append(Bound(str(constraint), values[worst].item(), constraint.met(values)))
    return found


def _metric(goal: Goal, rule: Rule, scores: Any, targets: Any) -> float:
    value = float(evaluate(scores, targets, {"": goal.metric}, task=goal.task, average=goal.average, rule=rule)[""])
    if not math.isfinite(value):
        raise UserError(
            f"--metric: expected a number of {goal.metric}, got {value}; give its divisions a value for 0/0"
        )
    return value
