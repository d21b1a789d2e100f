"""Problems: an objective over a family of decision rules, solved on given data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core.batch import Batch
from metricgrad.core.metrics.averages import check_labels
from metricgrad.core.metrics.scalars import is_number
from metricgrad.core.sparse import AnyBatch, SparseBatch
from metricgrad.decisions import hard_counts
from metricgrad.decisions.label_thresholds import InfeasibleError as InfeasibleError
from metricgrad.decisions.label_thresholds import SolvedRule, solve_thresholds
from metricgrad.decisions.offsets import can_search_offsets, tune_offsets
from metricgrad.decisions.rare_labels import (
    FEWEST_TO_TUNE,
    FEWEST_TO_TUNE_ALONE,
    RareLabelPlan,
    ThresholdSource,
    check_rare_labels,
)
from metricgrad.decisions.resampling import draw_units, index_groups
from metricgrad.decisions.rules import Argmax, Offsets, Rule, Threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.metrics.constraints import Constraint
    from metricgrad.core.objective import Objective


@dataclass(frozen=True, eq=False)
class Problem:
    """``objective`` over one threshold per class, one for all classes (``shared``), or offsets ("multiclass").

    ``confidence``: constraints must be met by their lower bound at this level. ``epsilon``: how much worse than the
    best a plateau may be. ``rare_labels``: where the threshold of a label comes from that has too few samples to tune
    on; ``default_threshold``: what that of such a label is if it is "fixed".
    """

    objective: Objective
    shared: bool
    constraints: tuple[Constraint, ...]
    confidence: float | None
    epsilon: float = 0.01
    rare_labels: ThresholdSource = "own"
    default_threshold: float = 0.5

    # Checks

    def __post_init__(self) -> None:
        check_rare_labels(self.rare_labels)
        if not is_number(self.default_threshold) or math.isnan(self.default_threshold):
            raise ValueError(f"default_threshold: expected a number, got {self.default_threshold!r}")
        self._check_family()
        self._check_constraints()
        self._check_confidence()

    def _check_family(self) -> None:
        """Refuse an objective that has no best rule of this family."""
        task, average = self.objective.task, self.objective.average
        if self.shared and task != "multilabel":
            raise ValueError(f"shared: one threshold for all classes is for task='multilabel', got {task!r}")
        if average == "per-class" and (self.shared or task == "multiclass"):
            raise ValueError("average: None has a best threshold for each class alone; expected an average")

    def _check_constraints(self) -> None:
        """Refuse constraints that the rule of this family cannot be searched for."""
        task, average = self.objective.task, self.objective.average
        if self.constraints and self.objective.row_costs is not None:
            raise ValueError("subject_to: expected costs that are the same for every row with a constraint, got arrays")
        threshold_per_label = task == "multilabel" and not self.shared
        if self.constraints and task == "multiclass":
            raise ValueError("subject_to: expected task='binary' or 'multilabel', got 'multiclass'")
        if self.constraints and threshold_per_label and average in ("micro", "samples"):
            raise ValueError(f"subject_to: with average={average!r} pass shared=True, or use average='macro'")
        for constraint in self.constraints:
            on_each_label = constraint.over == "each" and threshold_per_label
            if constraint.over is not None and not on_each_label:
                raise ValueError(f"subject_to: expected a bound without brackets here, got '{constraint}'")

    def _check_confidence(self) -> None:
        """Refuse a confidence without a constraint that is to hold with it."""
        if self.confidence is None:
            return
        if not self.constraints or self.shared:
            wanted = "shared=False" if self.constraints else "a constraint to hold with it, subject_to="
            raise ValueError(f"confidence: expected {wanted}, got confidence={self.confidence!r} without")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence: expected a number in [0.5, 1), got {self.confidence!r}")

    # Solution and value

    def solve(self, batch: AnyBatch, plan: RareLabelPlan | None = None, scale: float | None = None) -> SolvedRule:
        """Return the best rule, whether it is exact, and its plateau.

        ``plan``: where the threshold of each label comes from, by default as these data allow. ``scale``: how many
        observations a unit of weight stands for, by default found from the weights.
        """
        check_labels(self.objective.labels, batch.classes)
        plan = self.plan_rare_labels(batch) if plan is None else plan
        if self.objective.task == "multiclass" and isinstance(batch, Batch):
            return SolvedRule(self._solve_offsets(batch, plan), False, None)
        scale = _count_observations_per_weight(batch) if scale is None else scale
        return solve_thresholds(self, batch, plan, scale)

    def _solve_offsets(self, batch: Batch, plan: RareLabelPlan) -> Rule:
        if not plan.tunes_any:
            return Argmax()
        if batch.weight is not None:  # rows that do not count need not be distributions
            batch = batch.take((batch.weight > 0).squeeze(1))
        # The search is many small steps, each on what the one before it found: not for a GPU.
        scores = batch.logits.cpu().double()
        targets = batch.targets.cpu()
        # Rows that are distributions are added to as log-probabilities, others (logits, say) as they are.
        are_distributions = bool((scores >= 0).all()) and bool(((scores.sum(1) - 1).abs() <= 1e-3).all())
        levels = scores.log() if are_distributions else scores
        labels = (F.one_hot(targets, scores.shape[1]) if targets.dim() == 1 else targets).double()
        weight = scores.new_ones(len(scores)) if batch.weight is None else batch.weight.cpu().double().squeeze(1)
        pooled = plan.sources[0] == "pooled"
        offsets = tune_offsets(levels, labels, weight, self.objective, pooled)
        return Offsets(tuple(offsets.tolist()), are_distributions)

    def value(self, batch: AnyBatch, rule: Rule) -> Tensor:
        """Return the value of a rule: a scalar, or one per class."""
        objective = self.objective
        if objective.task == "multiclass" and isinstance(batch, Batch):
            matrix = hard_counts.count_matrix(batch, rule)
            return objective.value(matrix if objective.of_matrix else matrix.counts())
        if objective.average == "samples":
            mean = hard_counts.average_rows(batch, rule, [objective.metric], objective.labels)[0]
            return objective.value(mean)
        value = objective.value(hard_counts.count_cells(batch, rule))
        return value.squeeze(-1) if objective.task == "binary" else value

    # Resamples

    def tune_on_resamples(
        self, batch: AnyBatch, replicates: int, seed: int, groups: Any
    ) -> Iterator[tuple[Rule, Tensor]]:
        """Yield rules tuned on resamples of the rows, each with how often every row was drawn."""
        group_of_row, units = index_groups(groups, batch.rows)
        plan = self.plan_rare_labels(batch)
        for some_replicates in draw_units(units, replicates, torch.Generator().manual_seed(seed)):
            for times_of_unit in some_replicates:
                times = times_of_unit[group_of_row]
                yield self.tune_on_drawn_rows(batch, times, plan), times

    def tune_on_drawn_rows(self, batch: AnyBatch, times: Tensor, plan: RareLabelPlan | None = None) -> Rule:
        """Return the rule tuned on rows that count ``times`` times; one that predicts nothing if none is allowed.

        Which labels are rare is decided by all rows, since a resample has fewer different ones.
        """
        times_of_row = times.unsqueeze(1)
        weight = times_of_row if batch.weight is None else batch.weight * times_of_row
        plan = self.plan_rare_labels(batch) if plan is None else plan
        try:
            return self.solve(batch.reweighted(weight), plan).rule
        except InfeasibleError:
            single = self.shared or self.objective.task == "binary"
            return Threshold(torch.inf if single else (torch.inf,) * batch.classes)

    # Rare labels

    def plan_rare_labels(self, batch: AnyBatch) -> RareLabelPlan:
        """Return where the threshold of each label comes from on these data."""
        return self.plan_by_sizes(self.count_smaller_sides(batch).tolist(), batch.classes)

    def count_smaller_sides(self, batch: AnyBatch) -> Tensor:
        """Return how many positives each label has, or negatives if those are fewer."""
        if isinstance(batch, SparseBatch):
            counted = batch.reweighted((batch.row_weight > 0).double().unsqueeze(1))
            everything = counted.counts(torch.ones_like(counted.targets))
            return self.take_smaller_sides(everything.positives, everything.total)
        classes = batch.logits.shape[1]
        targets = F.one_hot(batch.targets, classes) if batch.targets.dim() == 1 else batch.targets
        if batch.weight is None:
            positives = targets.sum(0).double()
            total = torch.full((classes,), float(len(targets)), dtype=torch.float64)
        else:
            counts = (batch.weight > 0).expand_as(targets)
            positives = (targets.double() * counts).sum(0)
            total = counts.sum(0).double()
        return self.take_smaller_sides(positives, total)

    def take_smaller_sides(self, positives: Tensor, total: Tensor) -> Tensor:
        """Return the positives or the negatives of each label, whichever are fewer; of a shared threshold their sum."""
        smaller = torch.minimum(positives, total - positives)
        if not self.shared:
            return smaller
        labels = self.objective.labels
        counted = smaller if labels is None else smaller[list(labels)]
        return counted.sum(0, keepdim=True)

    def plan_by_sizes(self, sizes: list[float], classes: int) -> RareLabelPlan:
        """Return where the threshold of each label comes from, given the sizes that ``count_smaller_sides`` returns."""
        multiclass = self.objective.task == "multiclass"
        if multiclass and not can_search_offsets(self.objective, classes):
            why = f"{self.objective.name} has no fast search for {classes} classes: the argmax is kept"
            return RareLabelPlan.same_for_all("fixed", classes, why)
        labels = self.objective.labels
        counted = range(len(sizes)) if labels is None or len(sizes) == 1 else labels
        # A constraint must hold for each label: neither a shared threshold nor a default is made for that.
        source: ThresholdSource = "own" if self.constraints else self.rare_labels
        limit = FEWEST_TO_TUNE_ALONE if source == "pooled" and not multiclass else FEWEST_TO_TUNE
        rare = [label for label in counted if sizes[label] < limit]
        if source == "pooled" and len(rare) < (1 if multiclass else 2):  # nothing to share
            source = "own"
            rare = [label for label in rare if sizes[label] < FEWEST_TO_TUNE]
        if not rare:
            return RareLabelPlan.same_for_all("own", len(sizes))
        where = f" in {len(rare)} of {len(counted)} classes" if len(counted) > 1 else ""
        fewest = f"only {min(sizes[label] for label in rare):g} positives or negatives{where}"
        if source == "own":
            return RareLabelPlan.same_for_all("own", len(sizes), f"{fewest}: the threshold is not to be trusted")
        if multiclass:  # offsets are relative to each other, so all or none are tuned
            done = "the argmax is kept" if source == "fixed" else "one number moves the offsets of all"
            return RareLabelPlan.same_for_all(source, classes, f"{fewest}: {done}")
        if source == "pooled":
            why = f"fewer than {limit} positives or negatives{where}, which share one threshold"
        else:
            why = f"{fewest}: kept at {self.default_threshold:g}"
        is_rare = set(rare)
        return RareLabelPlan(tuple(source if label in is_rare else "own" for label in range(len(sizes))), why)


def _count_observations_per_weight(batch: AnyBatch) -> float:
    """Return the number of equal observations that a unit of weight stands for [kish1965]."""
    if batch.weight is None:
        return 1.0
    weight = batch.weight.double()
    return (weight.sum() / (weight**2).sum().clamp(min=1e-300)).item()
