"""Metrics of one task under one decision rule: from a batch to additive statistics, and from these to values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from metricgrad.core import curves
from metricgrad.core.batch import Batch, Task, check_task
from metricgrad.core.costs import find_row_costs
from metricgrad.core.counts import Confusion
from metricgrad.core.inputs import ArrayLike, check_scale, name_metrics
from metricgrad.core.metrics import Metric, name_of, subset_accuracy
from metricgrad.core.metrics.registry import find
from metricgrad.core.metrics.scalars import is_number, is_whole
from metricgrad.core.objective import Objective
from metricgrad.core.sparse import AnyBatch, SparseBatch, as_scored_batch_or_sparse
from metricgrad.decisions import hard_counts
from metricgrad.decisions.default_rule import default_rule
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.evaluation.score_metrics import SCORE_METRICS, ScoreMetric, find_score_metric
from metricgrad.evaluation.score_tables import (
    ONE_AGAINST_ONE,
    RANKING_METRICS,
    PairTables,
    ScoreTables,
    find_error_bound,
    find_ranking_metric,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metricgrad.core.curves import Curve

Metrics = str | Metric | Sequence[str | Metric] | Mapping[str, str | Metric]
Statistics = dict[str, Any]
"""What adds up over batches, by name: of each metric that is averaged over rows a ``Mean``, of each ``ScoreMetric`` its
sums and of each with costs per row its ``Counts``, under their own names; for all others together "cells" (``Counts``,
or the ``Confusion`` of a multi-class problem), "scores" (``ScoreTables``) and "pairs" (``PairTables``)."""
Ranking = Callable[["Curve"], Tensor]
"""A metric of the order of the scores."""
Values = dict[str, Tensor]
"""The values of metrics by name, after the leading axes (replicates) of their statistics: a scalar, or ``(K,)``."""


_NAMES_OF_SCORES = (*RANKING_METRICS, ONE_AGAINST_ONE, *SCORE_METRICS)
NAMES_OF_SCORE_METRICS = {name.replace("_", ""): name for name in _NAMES_OF_SCORES} | {
    "ap": "average_precision",
    "auc": "auroc",
    "auprc": "average_precision",
    "brier": "brier_score",
    "brierloss": "brier_score",
    "brierscoreloss": "brier_score",
    "calibrationerror": "expected_calibration_error",
    "crossentropy": "log_loss",
    "ece": "expected_calibration_error",
    "eer": "equal_error_rate",
    "labelrankingloss": "ranking_loss",
    "map": "average_precision",
    "meanaverageprecision": "average_precision",
    "nll": "log_loss",
    "prauc": "average_precision",
    "rocauc": "auroc",
    "topk": "top_k_accuracy",
}
"""Metrics of the scores themselves by what they are called elsewhere, in lower case and without separators."""


class MetricSet:
    """Metrics under a decision rule. It keeps nothing of the batches: see ``Evaluator`` for the parameters.

    ``over_classes``: how the values of the classes are averaged; its metric is not used.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        task: Task | None,
        threshold: float | Sequence[float],
        rule: Rule | None,
        average: str | None,
        labels: Iterable[int] | None,
        empty_classes: str,
        ignore_index: int | None,
        keep_scores: bool = False,
        score_bits: int | None = None,
    ) -> None:
        self.task: Task = check_task(task)
        self.declared_task = task
        self.ignore_index = ignore_index
        self.score_bits = _check_bits(score_bits)
        labels = None if labels is None else tuple(labels)
        self.rule = _choose_rule(self.task, threshold, rule)
        self.has_default_threshold = rule is None and self.rule == Threshold(0.5)
        self.objectives: dict[str, Objective] = {}
        self.ranking: dict[str, Ranking] = {}
        self.pair_ranking: dict[str, Ranking] = {}
        self.score_metrics: dict[str, ScoreMetric] = {}
        for name, metric in name_metrics(metrics).items():
            self._add_metric(name, metric, average, labels, empty_classes)
        self.over_classes = Objective(self.task, "f1", average, labels, empty_classes)
        self._check_samples_average()
        self._check_undecided()
        self.keeps_scores = keep_scores or bool(self.ranking)

    def _add_metric(
        self,
        name: str,
        metric: str | Metric,
        average: str | None,
        labels: tuple[int, ...] | None,
        empty_classes: str,
    ) -> None:
        """Put a metric among those of its kind: pairs of classes, order of scores, other metrics of scores, counts."""
        if metric == ONE_AGAINST_ONE:
            _check_for_task(metric, ("multiclass",), self.task)
            self.pair_ranking[name] = RANKING_METRICS["auroc"]
            return
        ranking = _find_ranking(metric)
        if ranking is not None:
            self.ranking[name] = ranking
            return
        of_scores = find_score_metric(metric) if isinstance(metric, str) else None
        if of_scores is not None:
            _check_for_task(name, of_scores.tasks, self.task)
            self.score_metrics[name] = of_scores
            return
        has_row_costs = find_row_costs(metric) is not None
        by_rows = not has_row_costs and find(metric, NAMES_OF_SCORE_METRICS) is subset_accuracy
        by_rows = by_rows and self.task == "multilabel"
        own_average = "samples" if by_rows else average
        self.objectives[name] = Objective(self.task, metric, own_average, labels, empty_classes)

    def _check_samples_average(self) -> None:
        """Refuse the samples average of metrics whose values are of classes."""
        of_classes = [*self.ranking, *(name for name, metric in self.score_metrics.items() if not metric.by_row)]
        if of_classes and self.over_classes.average == "samples":
            raise ValueError(f"average: 'samples' is not for {', '.join(of_classes)}; use 'macro' or 'micro'")

    def _check_undecided(self) -> None:
        """Refuse metrics of the d×d matrix, in which an undecided row has no place."""
        of_matrix = [name_of(objective.metric) for objective in self.objectives.values() if objective.of_matrix]
        if self.rule.abstains and of_matrix:
            raise ValueError(
                f"rule: expected one that decides every row for {', '.join(of_matrix)}, got {self.rule.describe()}; "
                "choose metrics of each class, such as f1"
            )

    @property
    def row_objectives(self) -> dict[str, Objective]:
        """The metrics that are averaged over rows."""
        return {name: objective for name, objective in self.objectives.items() if objective.average == "samples"}

    @property
    def cost_objectives(self) -> dict[str, Objective]:
        """The metrics whose cells are money, since their costs differ by row."""
        return {name: objective for name, objective in self.objectives.items() if objective.row_costs is not None}

    @property
    def has_cells(self) -> bool:
        """Whether any metric needs the cells of all rows together."""
        return len(self.row_objectives) + len(self.cost_objectives) < len(self.objectives)

    @property
    def has_matrix(self) -> bool:
        """Whether the cells are those of the d×d matrix, since the rule decides for one class a row."""
        return self.task == "multiclass"

    @property
    def identity(self) -> tuple[Any, ...]:
        """What must be equal for statistics to be added up."""
        over = self.over_classes
        metrics = [(name, name_of(objective.metric)) for name, objective in self.objectives.items()]
        of_scores = [*self.ranking, *self.pair_ranking, *map(repr, self.score_metrics.items()), self.keeps_scores]
        return (self.task, repr(self.rule), over.average, over.labels, over.empty_classes, metrics, of_scores)

    def under(self, rule: Rule) -> Self:
        """Return the same metrics under another rule."""
        other = copy.copy(self)
        other.rule = rule
        other.has_default_threshold = False
        other._check_undecided()
        return other

    def weigh_rows(self, batch: Batch) -> tuple[Self, Batch]:
        """Return the metrics of costs per row as metrics of rows that weigh what is at stake in them."""
        objectives = self.cost_objectives.values()
        if not objectives:
            return self, batch
        (objective,) = objectives  # ``split_by_weights`` has put each into a set of its own
        weighed = copy.copy(self)
        plain = copy.copy(objective)
        plain.row_costs = None
        weighed.objectives = dict.fromkeys(self.objectives, plain)
        return weighed, objective.weigh(batch)

    def prepare(
        self, scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None, mask: ArrayLike | None
    ) -> AnyBatch:
        """Return a checked batch; with the default threshold, scores outside [0, 1] are refused."""
        batch = as_scored_batch_or_sparse(self.declared_task, scores, targets, weight, mask, self.ignore_index)
        decides = bool(self.objectives) or any(metric.decides for metric in self.score_metrics.values())
        if self.has_default_threshold and decides:
            check_scale(batch.logits)
        return batch

    def prepare_rows(
        self, scores: ArrayLike, targets: ArrayLike, weight: ArrayLike | None, mask: ArrayLike | None
    ) -> Batch:
        """Return a checked batch of dense scores; sparse ones are refused."""
        batch = self.prepare(scores, targets, weight, mask)
        if isinstance(batch, SparseBatch):
            raise ValueError("scores: expected dense ones to resample, got a sparse matrix; pass scores.toarray()")
        return batch

    def statistics(self, batch: AnyBatch) -> Statistics:
        """Return the statistics of a batch that the metrics need."""
        found: Statistics = {}
        rows = self.row_objectives
        if rows:
            metrics = [objective.metric for objective in rows.values()]
            means = hard_counts.average_rows(batch, self.rule, metrics, self.over_classes.labels)
            found |= dict(zip(rows, means, strict=True))
        if self.has_cells:
            if self.has_matrix and isinstance(batch, Batch):  # a sparse batch is multi-label
                found["cells"] = hard_counts.count_matrix(batch, self.rule)
            else:
                found["cells"] = hard_counts.count_cells(batch, self.rule)
        for name, objective in self.cost_objectives.items():
            found[name] = hard_counts.count_cells(objective.weigh(batch), self.rule)
        found |= self.curve_statistics(batch)
        for name, metric in self.score_metrics.items():
            if isinstance(batch, SparseBatch):
                found[name] = metric.sums_of_stored(batch, name)
            else:
                chunks = hard_counts.split_into_chunks(batch)
                sums = [metric.columns(chunk, self.task, self.rule).sum(0) for chunk in chunks]
                found[name] = torch.stack(sums).sum(0)
        return found

    def values(self, statistics: Statistics) -> Values:
        """Return the values of statistics, which may have leading axes (replicates)."""
        found = {}
        for name, objective in self.objectives.items():
            if objective.average == "samples" or objective.row_costs is not None:
                value = objective.value(statistics[name])
            else:
                cells = statistics["cells"]
                if isinstance(cells, Confusion) and not objective.of_matrix:
                    cells = hard_counts.count_classes(cells, self.rule)
                value = objective.value(cells)
            found[name] = value.squeeze(-1) if self.task == "binary" and objective.average == "per-class" else value
        for name, metric in self.score_metrics.items():
            found[name] = metric.average(statistics[name], self.over_classes)
        return found | self.ranking_values(statistics)

    @property
    def has_curves(self) -> bool:
        """Whether any metric needs a curve."""
        return bool(self.ranking or self.pair_ranking)

    def curve_statistics(self, batch: AnyBatch) -> Statistics:
        """Return the statistics of a batch that curves are made of."""
        found: Statistics = {"scores": ScoreTables.of(batch, self.score_bits)} if self.keeps_scores else {}
        if self.pair_ranking and isinstance(batch, Batch):  # a sparse batch is multi-label, and pairs are of classes
            found["pairs"] = PairTables.of(batch, self.score_bits)
        return found

    def ranking_values(self, statistics: Statistics) -> Values:
        """Return the values of the metrics that need a curve, if its statistics are there."""
        return self._evaluate_curves(statistics, lambda ranking: ranking)

    def ranking_errors(self, statistics: Statistics) -> Values:
        """Return by how much the metrics that need a curve may be off because scores are rounded."""
        return self._evaluate_curves(statistics, find_error_bound)

    def _evaluate_curves(self, statistics: Statistics, choose: Callable[[Ranking], Ranking]) -> Values:
        """Return what ``choose`` makes of each metric of a curve, evaluated on the tables that are there."""
        found: Values = {}
        for key, rankings in (("scores", self.ranking), ("pairs", self.pair_ranking)):
            if key not in statistics:
                continue
            for name, ranking in rankings.items():
                found[name] = statistics[key].value(choose(ranking), self.over_classes)
        return found

    def evaluate(self, batch: AnyBatch) -> Values:
        """Return the values of a batch."""
        return self.values(self.statistics(batch))


def split_by_weights(metrics: Metrics) -> list[dict[str, str | Metric]]:
    """Return sets of metrics by name: each with costs per row alone, since these weigh the rows, others together."""
    by_name = name_metrics(metrics)
    alone = [{name: metric} for name, metric in by_name.items() if find_row_costs(metric) is not None]
    together = {name: metric for name, metric in by_name.items() if find_row_costs(metric) is None}
    return [together, *alone] if together else alone


def _find_ranking(metric: str | Metric) -> Ranking | None:
    if isinstance(metric, str):
        return find_ranking_metric(metric)
    return metric if metric in RANKING_METRICS.values() else None


def needs_scores(metric: str | Metric) -> bool:
    """Tell whether a metric is one of the scores themselves, for which decisions are not enough."""
    of_scores = find_score_metric(metric) if isinstance(metric, str) else None
    if of_scores is not None:
        return not of_scores.decides
    return metric == ONE_AGAINST_ONE or _find_ranking(metric) is not None


def is_lower_better(metric: str | Metric) -> bool:
    """Tell whether a metric is an error or a loss; those of counts never are."""
    of_scores = find_score_metric(metric) if isinstance(metric, str) else None
    if of_scores is not None:
        return of_scores.lower_is_better
    return _find_ranking(metric) is curves.equal_error_rate


def _check_for_task(name: str, tasks: tuple[Task, ...], task: Task) -> None:
    if task not in tasks:
        wanted = " or ".join(f"task={one!r}" for one in tasks)
        raise ValueError(f"metrics: {name!r} is for {wanted}, got task={task!r}")


def _choose_rule(task: Task, threshold: Any, rule: Rule | None) -> Rule:
    if rule is not None:
        if not _is_half(threshold):
            raise ValueError("threshold: expected none beside rule=, which decides")
        if not isinstance(rule, Rule):
            raise ValueError(f"rule: expected a decision rule of mg.decisions, got {rule!r}")
        return rule
    if task == "multiclass" and not _is_half(threshold):
        raise ValueError("threshold: task='multiclass' decides by argmax; use rule=mg.decisions.Offsets(...)")
    return default_rule(task, threshold)


def _is_half(threshold: Any) -> bool:
    return is_number(threshold) and bool(threshold == 0.5)


def _check_bits(bits: int | None) -> int | None:
    if bits is not None and not (is_whole(bits) and 2 <= bits <= 52):
        raise ValueError(f"score_bits: expected 2 to 52 or None, got {bits!r}")
    return None if bits is None else int(bits)
