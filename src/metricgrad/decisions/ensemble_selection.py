"""Ensemble selection: which of many candidates to average, and how much of each, for a metric under its tuned rule.

Greedy, with replacement [caruana2004]: every round adds the candidate with which the mean of all chosen scores is best.
What "best" means is a ``Criterion``: by default the metric itself, each mean being given the rule that is best for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.batch import check_task
from metricgrad.core.costs import Cost
from metricgrad.core.inputs import as_scored_batch, as_tensor, whole_number
from metricgrad.decisions.default_rule import RARE_LABELS, resolve_rule
from metricgrad.decisions.least_cost import LeastCost, tune_cost_rule
from metricgrad.decisions.selection_criteria import MetricAtOffsets, SelectBy, make_criterion, replace_scores
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_threshold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from metricgrad.core.batch import Batch, Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.decisions.problem import Problem
    from metricgrad.decisions.rules import Rule
    from metricgrad.decisions.selection_criteria import Criterion

FEWEST_POSITIVES_FOR_METRIC = 100
"""With fewer positives (or negatives) than this, "auto" does not select by the metric itself."""

LEAST_WEIGHT = 0.02
"""Smaller weights are dropped: they hardly change the mean, and their candidates take as long to predict as others."""

EQUAL_VALUES = 1e-12
"""Values that differ by less count as equal; of equal candidates the one that is best alone is taken."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What ``select_ensemble`` found: how much of each candidate to average, and the rule for the average.

    Attributes
    ----------
    weights : dict of str to float
        The weight of each candidate that was chosen, from the largest down; they sum to 1.
    scores : Tensor
        The weighted mean of the chosen candidates' scores, which the rule was tuned on.
    tuning : TuningResult or None
        How the rule was tuned; None if it was given.
    rule : Rule
        The decision rule.
    value : float or list of float
        The metric of the ensemble under that rule, one per class for ``average=None``.
    alone : dict of str to float
        The metric of every candidate alone, under its own rule.
    select_by : {'metric', 'average-precision', 'log-loss'}
        What the selection maximised (minus the log-loss).

    """

    weights: dict[str, float]
    scores: Tensor
    tuning: TuningResult | None
    rule: Rule
    value: Any
    alone: dict[str, float]
    select_by: SelectBy


class SelectionSpec:
    """What a selection is to reach; refuses options that are unknown or do not fit together.

    ``rule``: the one that is given, or None for a tuned one. ``options``: those of the final tuning.
    """

    def __init__(
        self,
        metric: str | Metric,
        task: Task | None,
        average: Average | None,
        subject_to: Any,
        rule: Any,
        select_by: SelectBy,
        rounds: int,
        bags: int,
        abstain: bool = False,
    ) -> None:
        self.rounds = whole_number("rounds", rounds, 1)
        self.bags = whole_number("bags", bags, 0)
        if select_by not in get_args(SelectBy):
            wanted = ", ".join(map(repr, get_args(SelectBy)))
            raise ValueError(f"select_by: expected one of {wanted}, got {select_by!r}")
        self.metric = metric
        self.select_by = select_by
        self.rule = resolve_rule(rule, check_task(task))
        if self.rule is not None and subject_to is not None:
            raise ValueError(f"subject_to: expected rule='tuned', which can meet it, got rule={rule!r}")
        self.labels_depend = task == "multilabel" and average in ("micro", "samples")
        self.options: dict[str, Any] = {
            "task": task,
            "average": average,
            "subject_to": subject_to,
            "abstain": abstain,
        }
        # Where labels depend on each other a constraint needs one threshold for all.
        self.options["shared"] = self.labels_depend and subject_to is not None
        self.make_final_problem()

    def make_final_problem(self) -> Problem:
        """Return the problem that the final rule solves."""
        return TuningSpec(self.metric, **self.options).problem()

    def make_search_problem(self) -> Problem:
        """Return the problem that is solved for every candidate in every round."""
        return TuningSpec(self.metric, **self.options | {"shared": self.labels_depend}).problem()


def select_ensemble(
    metric: str | Metric,
    scores: Mapping[str, Any],
    targets: Any,
    *,
    task: Task | None = None,
    average: Average | None = "macro",
    subject_to: Any = None,
    abstain: bool = False,
    weight: Any = None,
    rule: Literal["tuned", "fixed"] | Rule = "tuned",
    select_by: SelectBy = "auto",
    rounds: int = 25,
    bags: int = 10,
    seed: int = 0,
) -> Selection:
    """Choose weights for candidates so that their mean is best for a metric under its tuned rule.

    Greedy selection with replacement: each round adds the candidate with which the mean of all scores chosen so far is
    best, of equals the one that is best alone, and the best round counts. "binary" and "multilabel" (averages "macro",
    "weighted" and None): every mean is evaluated at its exactly tuned threshold, or one per label. "micro" and
    "samples": at the exact threshold that all labels share. "multiclass": at the offsets tuned for the scores chosen so
    far, tuned anew after rounds 1, 2, 4, 8, … The rule of the result is tuned in full by
    ``tune_threshold(rare_labels="pooled")``.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    scores : mapping of str to array-like
        The probabilities of each candidate on rows that it was not fitted on, shape as for ``task``.
    targets : array-like
        The true labels.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores ``(N,)``. "multilabel": scores ``(N, K)`` with targets of that shape. "multiclass": scores
        ``(N, d)`` with class indices ``(N,)``. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class, of which the mean is maximised.
    subject_to : str, dict, Constraint or list of these, optional
        Constraints that the rule must meet in every round, as in ``tune_threshold``; with "micro" or "samples" by one
        threshold for all labels.
    abstain : bool, default False
        Whether rows of several classes may be left undecided, as in ``tune_threshold``.
    weight : array-like, optional
        Per sample, ``(N,)``.
    rule : {'tuned', 'fixed'} or Rule, default 'tuned'
        The rule under which the metric is evaluated: tuned, 0.5 or the argmax, or the one given.
    select_by : {'auto', 'metric', 'average-precision', 'log-loss'}, default 'auto'
        What is maximised. "auto" is the metric; where there are fewer than 100 positives (or negatives) and no
        constraint it is minus the log-loss, since with so few the tuned metric is mostly noise, which a selection would
        fit. Of K classes with n₁, n₂, … positives (or negatives) K² / Σ 1/nₖ counts, as for the noise of their mean.
    rounds : int, default 25
        The number of rounds.
    bags : int, default 10
        The number of selections, each on a random half of the rows, their weights averaged, against overfitting; those
        below 0.02 are dropped. 0 selects once on all rows, which for one label is never worse there than the best
        candidate alone. For several classes a candidate that is better alone on all rows is taken instead.
    seed : int, default 0
        Random seed of the bags.

    Returns
    -------
    Selection
        Weights, rule and value.

    Raises
    ------
    ValueError
        If there is no candidate, shapes differ, an option is unknown, or no candidate meets the constraints.

    Examples
    --------
    >>> scores = {"a": [0.9, 0.2, 0.8, 0.3], "b": [0.6, 0.7, 0.9, 0.2], "c": [0.1, 0.9, 0.2, 0.8]}
    >>> found = select_ensemble("f1", scores, [1, 0, 1, 0], select_by="metric", bags=0)
    >>> found.weights, found.value
    ({'a': 1.0}, 1.0)

    """
    spec = SelectionSpec(metric, task, average, subject_to, rule, select_by, rounds, bags, abstain)
    is_binary = check_task(task) == "binary"
    final_problem = spec.make_final_problem()
    search_problem = spec.make_search_problem()
    candidates, batch = _stack_candidates(scores, targets, task, weight)
    resolved = _resolve_select_by(spec.select_by, final_problem, batch)

    by_metric = make_criterion("metric", search_problem, batch, spec.rule)
    alone = [by_metric.value(candidate) for candidate in candidates]
    best_alone = max(alone)
    if best_alone == -torch.inf:
        search_problem.solve(replace_scores(batch, candidates[0]))  # raises InfeasibleError with the missed bound

    shares = candidates.new_zeros(len(candidates))
    for rows in _draw_halves(batch.targets, spec.bags, seed):
        some_rows = replace(search_problem, objective=search_problem.objective.take(rows))
        criterion = make_criterion(resolved, some_rows, batch.take(rows), spec.rule)
        criterion.follow(candidates[alone.index(best_alone)][rows], 1)
        shares = shares + _select_greedily(criterion, candidates[:, rows], spec.rounds)
    if shares.any():
        shares = _drop_small_weights(shares / shares.sum())
    # Each bag meets the constraints on its rows; their mean need not.
    missed = bool(final_problem.constraints) and by_metric.value(_average(candidates, shares)) == -torch.inf
    if missed or not shares.any():
        criterion = make_criterion(resolved, search_problem, batch, spec.rule)
        shares = _drop_small_weights(_select_greedily(criterion, candidates, spec.rounds))

    mean = _average(candidates, shares)
    mean_scores = mean.squeeze(1) if is_binary else mean
    tuning: TuningResult | None = None
    final_rule = spec.rule
    decides_by_cost = isinstance(metric, Cost) and (is_binary or metric.matrix is not None)
    if final_rule is None and isinstance(metric, Cost) and decides_by_cost and not subject_to:
        final_rule, tuning = tune_cost_rule(metric, mean_scores, targets, weight=weight)
    elif final_rule is None:
        options = spec.options | {"weight": weight, "rare_labels": RARE_LABELS}
        tuning = tune_threshold(metric, mean_scores, targets, **options)
        # The search tunes offsets only now and then, so its mean may be worse than the best candidate alone.
        if resolved == "metric" and isinstance(by_metric, MetricAtOffsets) and best_alone > tuning.value + EQUAL_VALUES:
            place = alone.index(best_alone)
            of_best_alone = tune_threshold(metric, candidates[place], targets, **options)
            if of_best_alone.value > tuning.value + EQUAL_VALUES:
                tuning = of_best_alone
                mean = mean_scores = candidates[place]
                shares = torch.zeros_like(shares).index_fill(0, torch.tensor(place), 1.0)
        final_rule = tuning.rule
    final_batch = final_problem.objective.weigh(replace_scores(batch, mean))
    if tuning is not None and isinstance(final_rule, LeastCost):
        value = tuning.value
    else:
        value = final_problem.value(final_batch, final_rule).tolist()
    names = list(scores)
    by_weight = shares.argsort(descending=True, stable=True).tolist()
    return Selection(
        weights={names[i]: shares[i].item() for i in by_weight if shares[i] > 0},
        scores=mean_scores,
        tuning=tuning,
        rule=final_rule,
        value=value,
        alone=dict(zip(names, alone, strict=True)),
        select_by=resolved,
    )


def _stack_candidates(scores: Mapping[str, Any], targets: Any, task: Task | None, weight: Any) -> tuple[Tensor, Batch]:
    """Return the candidates' scores ``(C, N, K)``, and the checked rows with those of the first."""
    if not scores:
        raise ValueError("scores: expected at least one candidate, got none")
    batches = [
        as_scored_batch(task, as_tensor("scores", s).double(), targets, weight).on_host() for s in scores.values()
    ]
    shapes = {tuple(batch.logits.shape) for batch in batches}
    if len(shapes) > 1:
        raise ValueError(f"scores: expected one shape for all candidates, got {sorted(shapes)}")
    if not len(batches[0].logits):
        raise ValueError("scores: expected at least one sample, got none")
    return torch.stack([batch.logits for batch in batches]), batches[0]


def _resolve_select_by(select_by: SelectBy, problem: Problem, batch: Batch) -> SelectBy:
    """Return what "auto" means on these rows."""
    if select_by != "auto":
        return select_by
    # The mean over classes is as noisy as one class with this many positives.
    sizes = problem.count_smaller_sides(batch)
    present = sizes[sizes > 0]
    effective = len(present) ** 2 / float((1 / present).sum()) if len(present) else 0.0
    return "log-loss" if effective < FEWEST_POSITIVES_FOR_METRIC and not problem.constraints else "metric"


def _draw_halves(targets: Tensor, bags: int, seed: int) -> Iterator[Tensor]:
    """Yield random halves of the rows, each with half of every class, or of the rows with each rarest label."""
    if targets.dim() == 2:
        label_counts = targets.sum(0)
        rarest_label = torch.where(targets > 0, label_counts, torch.inf).min(1).indices
        stratum = torch.where(targets.sum(1) > 0, rarest_label, targets.shape[1])
    else:
        stratum = targets
    generator = torch.Generator().manual_seed(seed)
    order = torch.arange(0)
    for bag in range(bags):
        if bag % 2 == 0:  # every second bag takes the other half of the same order
            within_stratum = torch.rand(len(stratum), generator=generator, dtype=torch.float64)
            order = (stratum + within_stratum).argsort()
        rows = order[bag % 2 :: 2]
        if len(rows):
            yield rows.sort().values


def _average(candidates: Tensor, shares: Tensor) -> Tensor:
    return (candidates * shares.view(-1, 1, 1)).sum(0)


def _drop_small_weights(shares: Tensor) -> Tensor:
    kept = shares * (shares >= min(LEAST_WEIGHT, float(shares.max())))
    return kept / kept.sum()


# The greedy search


def _select_greedily(criterion: Criterion, candidates: Tensor, rounds: int) -> Tensor:
    """Return the shares of the candidates; all zero if none is allowed."""
    times_chosen = candidates.new_zeros(len(candidates))
    total = torch.zeros_like(candidates[0])
    best = -torch.inf
    best_shares = times_chosen
    order = list(range(len(candidates)))
    for size in range(1, rounds + 1):
        values = [-torch.inf] * len(candidates)
        for i in order:
            # The first round ranks all candidates by their exact values; later rounds need only the best one.
            least_of_interest = max(values) - EQUAL_VALUES if size > 1 else -torch.inf
            values[i] = criterion.value((total + candidates[i]) / size, least_of_interest)
        value = max(values)
        if value == -torch.inf:
            break
        if size == 1:
            order.sort(key=lambda i: -values[i])
        chosen = next(i for i in order if values[i] >= value - EQUAL_VALUES)
        times_chosen = times_chosen + F.one_hot(torch.tensor(chosen), len(times_chosen))
        total = total + candidates[chosen]
        if value > best + EQUAL_VALUES:
            best = value
            best_shares = times_chosen / size
        criterion.follow(total / size, size)
    return best_shares
