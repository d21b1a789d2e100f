"""Tuning: the decision rule that is best for a metric on given scores, and how sure it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.counts import Counts
from metricgrad.decisions import hard_counts
from metricgrad.decisions.resampling import check_replicates
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.decisions.solver import FEW, Problem
from metricgrad.engine.batch import Batch, check_task
from metricgrad.engine.inputs import judged
from metricgrad.engine.objective import Objective
from metricgrad.metrics import Metric, f1, get
from metricgrad.metrics.constraints import parse

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Tuned:
    """A rule yet to be tuned: what is maximised, over which rules, under which constraints.

    Options as for ``tune_threshold``. ``bootstrap`` and ``compare_paired`` take it as a rule and tune it anew in every
    replicate, since a rule that is judged on the data it was tuned on looks better than it is.
    """

    metric: str | Metric
    task: str = "binary"
    average: str | None = "macro"
    shared: bool = False
    labels: Iterable[int] | None = None
    absent: str = "count"
    subject_to: Any = None
    confidence: float | None = None
    scarce: str = "tune"

    def problem(self, epsilon: float = 0.01) -> Problem:
        """Return what is to be solved, or raise if it does not fit together."""
        objective = Objective(check_task(self.task), self.metric, self.average, self.labels, self.absent)
        return Problem(objective, self.shared, parse(self.subject_to), self.confidence, epsilon, self.scarce)


@dataclass(frozen=True)
class Resampling:
    """How to resample rows: how often, from which seed, whole groups of them at a time."""

    replicates: int
    seed: int
    groups: Any = None


@dataclass(frozen=True, eq=False)
class Tuning:
    """A tuned rule, its value on the data it was tuned on, and how sure it is.

    ``exact``: no rule of its kind does better on these data; otherwise a local optimum. ``plateau``: the stretch of
    thresholds around the best that come within ``epsilon`` of its value (one per class for a threshold per class).
    ``fewest``: how many samples each decision had on its smaller side. ``error``: by how much a rule on the scores as
    they were might be better, where only rounded ones were kept (``Evaluator.tune``); None if that is not known.
    ``kept``: why offsets were not tuned and the rule is the argmax; None if they were.
    ``interval`` and ``out_of_bag`` resample the rows and tune again, when first asked.
    """

    rule: Rule
    value: Any
    exact: bool
    plateau: Any
    fewest: list[float]
    _problem: Problem = field(repr=False)
    _batch: Batch = field(repr=False)
    _resampling: Resampling | None = field(repr=False)
    error: Any = 0.0
    kept: str | None = None

    @property
    def threshold(self) -> Any:
        """The threshold: a number, or one per class; for a multi-class problem the offsets."""
        return self.rule.numbers

    @property
    def scarce(self) -> list[bool]:
        """Whether each decision was tuned on too few positives or negatives to be trusted."""
        return [few < FEW for few in self.fewest]

    @property
    def caution(self) -> str | None:
        """Why not to trust it, or None."""
        if self.kept is not None:
            return self.kept
        few = self._problem.caution(self.fewest)
        return few and f"{few}: the threshold is not to be trusted"

    @property
    def interval(self) -> Any:
        """The 95 % bootstrap interval of the threshold, (low, high), or one per class."""
        thresholds = self._resampled[0].sort(0).values
        # Order statistics, since thresholds may be infinite and between ∞ and ∞ there is no interpolation.
        low, high = (thresholds[round(q * (len(thresholds) - 1))].tolist() for q in (0.025, 0.975))
        return (low, high) if thresholds.dim() == 1 else list(zip(low, high, strict=True))

    @property
    def out_of_bag(self) -> Any:
        """The mean value of rules tuned on resamples, on the rows left out: what to expect on new data."""
        return _plain(self._resampled[1].nanmean(0))

    @cached_property
    def _resampled(self) -> tuple[Tensor, Tensor]:
        how, thresholds, values = self._resampling, [], []
        if how is None:
            raise ValueError("interval and out_of_bag: expected the rows to resample, got counts; use tune_threshold")
        for rule, times in self._problem.resampled(self._batch, how.replicates, how.seed, how.groups):
            thresholds.append(torch.tensor(rule.numbers, dtype=torch.float64))
            rest = hard_counts.take(self._batch, times == 0)
            value = self._problem.value(rest, rule)
            values.append(value if hard_counts.has_weight(rest) else torch.full_like(value, torch.nan))
        return torch.stack(thresholds), torch.stack(values)

    def __str__(self) -> str:
        how = "with the argmax" if self.kept else f"where tuned ({'exact' if self.exact else 'local'} optimum)"
        lines = [f"{self.rule!r}", f"{self._problem.objective.name} {_show(self.value)} {how}"]
        if isinstance(self.plateau, tuple):
            lines.append(f"within {self._problem.epsilon:g} of it from {self.plateau[0]:.6g} to {self.plateau[1]:.6g}")
        if self.error != 0.0:
            bound = "an unknown amount" if self.error is None else _show(self.error)
            lines.append(f"scores were rounded: a finer threshold is better by {bound} at most")
        return "\n".join(lines if self.caution is None else [*lines, f"caution: {self.caution}"])


def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: str = "binary",
    average: str | None = "macro",
    shared: bool = False,
    labels: Iterable[int] | None = None,
    absent: str = "count",
    subject_to: Any = None,
    confidence: float | None = None,
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    scarce: str = "tune",
    epsilon: float = 0.01,
    replicates: int = 200,
    seed: int = 0,
    groups: Any = None,
) -> Tuning:
    """Find the decision rule that maximises any metric on given scores, on the scores' own scale.

    "binary": the exact threshold. "multilabel": a threshold per class, or one for all (``shared=True``, exact for every
    average). Per class it is exact for "macro", "weighted" and None; for "micro" if the metric is a ratio of linear
    functions of the cells (F-beta, Jaccard, accuracy, kappa, …), MCC or Fowlkes–Mallows; otherwise a local optimum.
    "multiclass": offsets added to log-probabilities (to the scores as they are, if rows are no distributions) before
    the argmax, a local optimum. ``exact`` of the result tells which it is.

    ``subject_to``: constraints such as "precision >= 0.9" or {"precision": 0.9}; for a threshold per class every class
    must meet them. With ``confidence`` (say 0.95) the one-sided lower confidence bound at the cut must, instead of the
    estimate. ``scarce="keep"``: leave the argmax of a multi-class problem as it is where a class that counts has fewer
    than 20 samples, since offsets tuned on so few are mostly noise; ``caution`` says so. ``epsilon`` defines the
    plateau; ``replicates``, ``seed`` and ``groups`` (rows of a group are drawn together) the bootstrap behind
    ``interval`` and ``out_of_bag``.

    Tune on data that the model was not trained on, and judge on other data again.

    >>> tuning = tune_threshold("f1", [0.9, 0.8, 0.4, 0.3, 0.1], [1, 0, 1, 1, 0])
    >>> tuning.threshold, round(tuning.value, 4)
    (0.2, 0.8571)
    """
    check_replicates(replicates)
    if not epsilon >= 0:
        raise ValueError(f"epsilon: expected a number of at least 0, got {epsilon!r}")
    problem = Tuned(metric, task, average, shared, labels, absent, subject_to, confidence, scarce).problem(epsilon)
    batch = judged(problem.objective.task, scores, targets, weight, mask, ignore_index)
    if not len(batch.logits):
        raise ValueError("scores: expected at least one sample to tune on, got none")
    rule, exact, plateau = problem.solve(batch)
    value = _plain(problem.value(batch, rule))
    return Tuning(
        rule,
        value,
        exact,
        plateau,
        problem.fewest(batch).tolist(),
        problem,
        batch,
        Resampling(replicates, seed, groups),
        kept=problem.kept(batch),
    )


def threshold_averaging(scores: Any, targets: Any, metric: str | Metric = f1) -> Threshold:
    """Return the mean of the thresholds that are best for each row alone [decubber2018; benedict2022, §7].

    Each score of a row is tried as its threshold; the highest of the best is the row's. Rows without positive labels
    have none that is better than another and take no part. A heuristic to compare with: ``tune_threshold`` with
    ``shared=True, average="samples"`` is exact for what it aims at.

    >>> threshold_averaging([[0.75, 0.25], [1.0, 0.5]], [[1, 0], [1, 1]])
    Threshold(threshold=0.625)
    """
    batch = judged("multilabel", scores, targets)
    s, order = batch.logits.sort(dim=1, descending=True)
    y = batch.targets.double().gather(1, order)
    tp, fp = y.cumsum(1), (1 - y).cumsum(1)
    values = get(metric)(Counts(tp, fp, tp[:, -1:] - tp, fp[:, -1:] - fp))
    last = torch.ones_like(values, dtype=torch.bool)
    last[:, :-1] = s[:, 1:] != s[:, :-1]  # a threshold takes all of equal scores or none
    best = torch.where(last, values, -torch.inf).argmax(1, keepdim=True)
    there = y.sum(1) > 0
    if not there.any():
        raise ValueError("targets: expected at least one row with a positive label, got none")
    return Threshold(s.gather(1, best).squeeze(1)[there].double().mean().item())


def _plain(value: Tensor) -> Any:
    return value.item() if value.dim() == 0 else value.tolist()


def _show(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "[" + ", ".join(f"{v:.4f}" for v in value) + "]"
