"""Problems: an objective over a family of decision rules, solved on given data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad import strict_json
from metricgrad.core.batch import Batch
from metricgrad.core.metrics import get
from metricgrad.core.metrics.averages import check_labels
from metricgrad.core.metrics.properties import properties_of
from metricgrad.core.metrics.scalars import is_number
from metricgrad.core.sparse import AnyBatch, SparseBatch
from metricgrad.decisions import hard_counts
from metricgrad.decisions.class_scores import find_missing_class, reweight_classes
from metricgrad.decisions.guarantees import (
    ConfidenceOver,
    Guarantee,
    check_can_be_guaranteed,
    check_targets_can_be_counted,
    draw_rows_by_weight,
)
from metricgrad.decisions.label_thresholds import InfeasibleError as InfeasibleError
from metricgrad.decisions.label_thresholds import SolvedRule, solve_abstention, solve_thresholds
from metricgrad.decisions.offsets import can_search_offsets, tune_offsets
from metricgrad.decisions.rare_labels import (
    FEWEST_TO_TUNE,
    FEWEST_TO_TUNE_ALONE,
    RareLabelPlan,
    ThresholdSource,
    check_rare_labels,
)
from metricgrad.decisions.resampling import draw_units, index_groups
from metricgrad.decisions.rules import Argmax, ArgmaxOrAbstain, Offsets, Rule, Threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.metrics.constraints import Constraint
    from metricgrad.core.objective import Objective


def _check_bound(constraint: Constraint) -> None:
    """Refuse a bound outside the range of the metric: every value would meet it, or none."""
    if not isinstance(constraint.metric, str) or strict_json.names_code(constraint.metric):
        return  # the range of a function of one's own is not declared
    limits = properties_of(get(constraint.metric)).limits
    if limits is None or limits[0] <= constraint.bound <= limits[1]:
        return
    low, high = limits
    is_percent = (low, high) == (0, 1) and 2 < constraint.bound <= 100
    hint = f"; write {constraint.bound / 100:g} for {constraint.bound:g} %" if is_percent else ""
    raise ValueError(
        f"subject_to: expected a bound between {low:g} and {high:g}, the range of {constraint.metric}, got "
        f"'{constraint}'{hint}"
    )


@dataclass(frozen=True, eq=False)
class Problem:
    """``objective`` over one threshold per class, one for all classes (``shared``), or offsets ("multiclass").

    ``confidence``: the probability with which constraints must hold on new rows, ``confidence_over`` all classes
    together or each. ``epsilon``: how much worse than the best a plateau may be. ``rare_labels``: where the threshold
    of a label comes from that has too few samples to tune on; ``default_threshold``: what that of such a label is if it
    is "fixed". ``abstain``: rows of several classes may be left undecided, with ``abstain_label`` for a class.
    ``prevalence``: the share of each class, or of the positives of each label, that rows are weighted to; None leaves
    them as they are.
    """

    objective: Objective
    shared: bool
    constraints: tuple[Constraint, ...]
    confidence: float | None
    epsilon: float = 0.01
    rare_labels: ThresholdSource = "own"
    default_threshold: float = 0.5
    prevalence: tuple[float, ...] | None = None
    confidence_over: ConfidenceOver = "all"
    abstain: bool = False
    abstain_label: int = -1

    # Checks

    def __post_init__(self) -> None:
        check_rare_labels(self.rare_labels)
        if not is_number(self.default_threshold) or math.isnan(self.default_threshold):
            raise ValueError(f"default_threshold: expected a number, got {self.default_threshold!r}")
        self._check_family()
        self._check_constraints()
        self._check_confidence()
        self._check_prevalence()

    def _check_family(self) -> None:
        """Refuse an objective that has no best rule of this family."""
        task = self.objective.task
        average = self.objective.average
        if self.shared and task != "multilabel":
            raise ValueError(f"shared: one threshold for all classes is for task='multilabel', got {task!r}")
        if self.abstain not in (True, False):
            raise ValueError(f"abstain: expected True or False, got {self.abstain!r}")
        if self.abstain:
            self._check_abstention()
        elif self.abstain_label != -1:
            raise ValueError(f"abstain_label: expected abstain=True with it, got {self.abstain_label!r} alone")
        elif average == "per-class" and (self.shared or task == "multiclass"):
            raise ValueError("average: None has a best threshold for each class alone; expected an average")

    def _check_abstention(self) -> None:
        """Refuse to abstain where no class has a threshold of its own."""
        objective = self.objective
        if objective.task != "multiclass":
            raise ValueError(f"abstain: expected task='multiclass' with scores (N, K), got {objective.task!r}")
        if not self.constraints:
            raise ValueError("abstain: expected a constraint that decided rows must meet, subject_to=, got none")
        if objective.of_matrix or objective.average == "micro":
            raise ValueError(
                f"abstain: expected a metric of each class, averaged 'macro', 'weighted' or None, got {objective.name}"
            )

    def _check_constraints(self) -> None:
        """Refuse constraints that the rule of this family cannot be searched for."""
        task = self.objective.task
        average = self.objective.average
        threshold_per_label = (task == "multilabel" and not self.shared) or self.abstain
        if self.constraints and self.objective.row_costs is not None:
            raise ValueError("subject_to: expected costs that are the same for every row with a constraint, got arrays")
        if self.constraints and task == "multiclass" and not self.abstain:
            raise ValueError(
                "subject_to: expected task='binary' or 'multilabel', or abstain=True, got 'multiclass' without"
            )
        if self.constraints and threshold_per_label and average in ("micro", "samples"):
            raise ValueError(f"subject_to: with average={average!r} pass shared=True, or use average='macro'")
        for constraint in self.constraints:
            on_each_label = constraint.over == "each" and threshold_per_label
            if constraint.over is not None and not on_each_label:
                raise ValueError(f"subject_to: expected a bound without brackets here, got '{constraint}'")
            _check_bound(constraint)

    def _check_confidence(self) -> None:
        """Refuse a confidence without a constraint, or with one that cannot be guaranteed."""
        if self.confidence_over not in get_args(ConfidenceOver):
            raise ValueError(f"confidence_over: expected 'all' or 'each', got {self.confidence_over!r}")
        if self.confidence is None:
            if self.confidence_over != "all":
                raise ValueError(f"confidence_over: expected confidence= with it, got {self.confidence_over!r} alone")
            return
        if not self.constraints or self.shared:
            wanted = "shared=False" if self.constraints else "a constraint to hold with it, subject_to="
            raise ValueError(f"confidence: expected {wanted}, got confidence={self.confidence!r} without")
        if not is_number(self.confidence) or not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence: expected a number in [0.5, 1), got {self.confidence!r}")
        for constraint in self.constraints:
            check_can_be_guaranteed(constraint)

    def _check_prevalence(self) -> None:
        """Refuse a base rate if weights of classes cannot bring it about."""
        if self.prevalence is None:
            return
        if self.objective.average == "samples":
            raise ValueError("prevalence: expected an average over classes with it, got average='samples'")
        if self.objective.row_costs is not None:
            # The batch is weighted by money, so weights of classes would move money instead of rows.
            raise ValueError(
                "prevalence: expected costs that are the same for every row with it, got some for each row"
            )
        if self.confidence is not None:
            raise ValueError(
                "prevalence: expected no confidence= with it, which is a promise for the base rate of these rows"
            )

    # Solution and value

    def solve(
        self, batch: AnyBatch, plan: RareLabelPlan | None = None, weights_are_repetitions: bool = False
    ) -> SolvedRule:
        """Return the best rule, whether it is exact, and its plateau.

        ``plan``: where the threshold of each label comes from, by default as these data allow.
        ``weights_are_repetitions``: a weight is the number of equal rows, which matters for a guarantee alone.
        """
        check_labels(self.objective.labels, batch.classes)
        plan = self.plan_rare_labels(batch) if plan is None else plan
        batch = self._weigh_classes(batch)
        if self.objective.task == "multiclass" and isinstance(batch, Batch) and not self.abstain:
            return SolvedRule(self._solve_offsets(batch, plan), False, None)
        if self.confidence is not None:
            check_targets_can_be_counted(batch.targets)
            batch = batch if weights_are_repetitions else draw_rows_by_weight(batch)
        if self.abstain and isinstance(batch, Batch):
            return solve_abstention(self, batch)
        return solve_thresholds(self, batch, plan)

    def find_alpha(self, classes: int) -> float | None:
        """Return the chance with which a constraint of a class may fail on new rows; None without a confidence."""
        if self.confidence is None:
            return None
        labels = self.objective.labels
        counted = classes if labels is None else len(labels)
        guarantees_held_together = len(self.constraints) * (counted if self.confidence_over == "all" else 1)
        return (1 - self.confidence) / guarantees_held_together

    def _solve_offsets(self, batch: Batch, plan: RareLabelPlan) -> Rule:
        if not plan.tunes_any:
            return Argmax()
        if batch.weight is not None:  # rows of weight 0 must not decide whether scores are distributions
            batch = batch.take((batch.weight > 0).squeeze(1))
        # The search takes many small steps, each of which needs the result of the one before: a CPU is faster.
        scores = batch.logits.cpu().double()
        targets = batch.targets.cpu()
        # Offsets are added to log-probabilities, or to other scores, such as logits, as they are.
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
        batch = self._weigh_classes(batch)
        if objective.task == "multiclass" and isinstance(batch, Batch):
            matrix = hard_counts.count_matrix(batch, rule)
            return objective.value(matrix if objective.of_matrix else hard_counts.count_classes(matrix, rule))
        if objective.average == "samples":
            mean = hard_counts.average_rows(batch, rule, [objective.metric], objective.labels)[0]
            return objective.value(mean)
        value = objective.value(hard_counts.count_cells(batch, rule))
        return value.squeeze(-1) if objective.task == "binary" else value

    def _weigh_classes(self, batch: AnyBatch) -> AnyBatch:
        """Return the rows weighted to the base rate, if there is one."""
        if self.prevalence is None or isinstance(batch, SparseBatch):
            return batch
        return reweight_classes(batch, self.objective.task, self.prevalence)

    def can_evaluate(self, batch: AnyBatch) -> bool:
        """Return whether rows have weight and, to be weighted to a base rate, all classes."""
        if not hard_counts.has_weight(batch):
            return False
        if self.prevalence is None or isinstance(batch, SparseBatch):
            return True
        return find_missing_class(batch, self.objective.task) is None

    def list_guarantees(self, batch: AnyBatch, rule: Rule) -> tuple[Guarantee, ...]:
        """Return the guarantees of a rule that was solved with a confidence: each constraint, for each class."""
        if self.confidence is None:
            return ()
        if self.abstain and isinstance(batch, Batch):
            counts = hard_counts.count_classes(hard_counts.count_matrix(batch, rule), rule)
        else:
            counts = hard_counts.count_cells(batch, rule)
        predicted = counts.predicted.tolist()
        recalls = get("recall")(counts).tolist()
        binary = self.objective.task == "binary"
        labels = range(batch.classes) if self.objective.labels is None else self.objective.labels
        guarantees = []
        for constraint in self.constraints:
            values = get(constraint.metric)(counts).tolist()
            for label in labels:
                if self.abstain and not predicted[label]:  # a class that is never predicted has nothing to guarantee
                    continue
                which = None if binary else label
                text = constraint.text(None)
                guarantees.append(Guarantee(text, self.confidence, values[label], recalls[label], which))
        return tuple(guarantees)

    def measure_coverage(self, batch: AnyBatch, rule: Rule) -> float:
        """Return the share of the rows that a rule decides."""
        return hard_counts.measure_coverage(batch, rule) if self.abstain and isinstance(batch, Batch) else 1.0

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
        plan = self.plan_rare_labels(batch) if plan is None else plan
        countable = batch if self.confidence is None else draw_rows_by_weight(batch)
        times_of_row = times.unsqueeze(1)
        weight = times_of_row if countable.weight is None else countable.weight * times_of_row
        try:
            return self.solve(countable.reweighted(weight), plan, weights_are_repetitions=True).rule
        except InfeasibleError:
            if self.abstain:
                return ArgmaxOrAbstain((torch.inf,) * batch.classes, self.abstain_label)
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
        multiclass = self.objective.task == "multiclass" and not self.abstain
        if multiclass and not can_search_offsets(self.objective, classes):
            why = f"{self.objective.name} has no fast search for {classes} classes: the argmax is kept"
            return RareLabelPlan.same_for_all("fixed", classes, why)
        labels = self.objective.labels
        counted = range(len(sizes)) if labels is None or len(sizes) == 1 else labels
        # A constraint must hold for each label, which neither a shared threshold nor a default ensures.
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
