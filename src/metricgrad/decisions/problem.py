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
from metricgrad.decisions.label_thresholds import Solution, solve_thresholds
from metricgrad.decisions.offsets import searchable, tune_offsets
from metricgrad.decisions.rare_labels import FEW, POOLED, Allocation, Origin, check_origin
from metricgrad.decisions.resampling import group_index, of_units
from metricgrad.decisions.rules import Argmax, Offsets, Rule, Threshold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.core.metrics.constraints import Constraint
    from metricgrad.core.objective import Objective


@dataclass(frozen=True, eq=False)
class Problem:
    """``objective`` over one threshold per class, one for all classes (``shared``), or offsets ("multiclass").

    ``confidence``: constraints must be met by their lower bound at this level. ``epsilon``: how much worse than the
    best a plateau may be. ``rare_labels``: where the number of a decision comes from that has too few samples to tune
    on; ``default_threshold``: where such a decision stays if it is "fixed".
    """

    objective: Objective
    shared: bool
    constraints: tuple[Constraint, ...]
    confidence: float | None
    epsilon: float = 0.01
    rare_labels: Origin = "own"
    default_threshold: float = 0.5

    def __post_init__(self) -> None:
        task, average = self.objective.task, self.objective.average
        check_origin(self.rare_labels)
        if not is_number(self.default_threshold) or math.isnan(self.default_threshold):
            raise ValueError(f"default_threshold: expected a number, got {self.default_threshold!r}")
        if self.shared and task != "multilabel":
            raise ValueError(f"shared: one threshold for all classes is for task='multilabel', got {task!r}")
        if average == "per-class" and (self.shared or task == "multiclass"):
            raise ValueError("average: None has a best threshold for each class alone; expected an average")
        if self.constraints and task == "multiclass":
            raise ValueError("subject_to: expected task='binary' or 'multilabel', got 'multiclass'")
        if self.constraints and task == "multilabel" and not self.shared and average in ("micro", "samples"):
            raise ValueError(f"subject_to: with average={average!r} pass shared=True, or use average='macro'")
        for constraint in self.constraints:
            each = constraint.over == "each" and task == "multilabel" and not self.shared
            if constraint.over is not None and not each:
                raise ValueError(f"subject_to: expected a bound without brackets here, got '{constraint}'")
        if self.confidence is None:
            return
        if not self.constraints or self.shared:
            wanted = "shared=False" if self.constraints else "a constraint to hold with it, subject_to="
            raise ValueError(f"confidence: expected {wanted}, got confidence={self.confidence!r} without")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"confidence: expected a number in [0.5, 1), got {self.confidence!r}")

    def solve(self, batch: AnyBatch, allocation: Allocation | None = None, scale: float | None = None) -> Solution:
        """Return the best rule, whether it is exact, and its plateau.

        ``allocation``: where each decision's number comes from, by default as these data allow. ``scale``: how many
        observations a unit of weight stands for, by default found from the weights.
        """
        check_labels(self.objective.labels, batch.classes)
        allocation = self.allocation(batch) if allocation is None else allocation
        if self.objective.task == "multiclass" and isinstance(batch, Batch):
            return Solution(self._offsets(batch, allocation), False, None)
        return solve_thresholds(self, batch, allocation, _observations(batch) if scale is None else scale)

    def value(self, batch: AnyBatch, rule: Rule) -> Tensor:
        """Return the value of a rule: a scalar, or one per class."""
        objective = self.objective
        if objective.task == "multiclass" and isinstance(batch, Batch):
            matrix = hard_counts.matrix(batch, rule)
            return objective.value(matrix if objective.of_matrix else matrix.counts())
        if objective.average == "samples":
            return objective.value(hard_counts.means(batch, rule, [objective.metric], objective.labels)[0])
        value = objective.value(hard_counts.counts(batch, rule))
        return value.squeeze(-1) if objective.task == "binary" else value

    def resampled(self, batch: AnyBatch, replicates: int, seed: int, groups: Any) -> Iterator[tuple[Rule, Tensor]]:
        """Yield rules tuned on resamples of the rows, each with how often every row was drawn."""
        index, units = group_index(groups, batch.rows)
        allocation = self.allocation(batch)
        for drawn in of_units(units, replicates, torch.Generator().manual_seed(seed)):
            for row in drawn:
                times = row[index]
                yield self.tuned_on(batch, times, allocation), times

    def tuned_on(self, batch: AnyBatch, times: Tensor, allocation: Allocation | None = None) -> Rule:
        """Return the rule tuned on rows that count ``times`` times; one that predicts nothing if none is allowed.

        What is scarce is so in all rows: a resample has fewer different ones.
        """
        w = times.unsqueeze(1) if batch.weight is None else batch.weight * times.unsqueeze(1)
        allocation = self.allocation(batch) if allocation is None else allocation
        try:
            return self.solve(batch.reweighted(w), allocation).rule
        except InfeasibleError:
            single = self.shared or self.objective.task == "binary"
            return Threshold(torch.inf if single else (torch.inf,) * batch.classes)

    def fewest(self, batch: AnyBatch) -> Tensor:
        """Return how many samples there are on the smaller side of each decision."""
        if isinstance(batch, SparseBatch):
            counted = batch.reweighted((batch.row_weight > 0).double().unsqueeze(1))
            everything = counted.counts(torch.ones_like(counted.targets))
            return self.smaller_side(everything.positives, everything.total)
        y, classes = batch.targets, batch.logits.shape[1]
        y = F.one_hot(y, classes) if y.dim() == 1 else y
        if batch.weight is None:
            positives, total = y.sum(0).double(), torch.full((classes,), float(len(y)), dtype=torch.float64)
        else:
            there = (batch.weight > 0).expand_as(y)
            positives, total = (y.double() * there).sum(0), there.sum(0).double()
        return self.smaller_side(positives, total)

    def allocation(self, batch: AnyBatch) -> Allocation:
        """Return where the number of each decision comes from."""
        return self.allocate(self.fewest(batch).tolist(), batch.classes)

    def allocate(self, fewest: list[float], classes: int) -> Allocation:
        """Return the same, given what ``fewest`` returns."""
        labels, multiclass = self.objective.labels, self.objective.task == "multiclass"
        if multiclass and not searchable(self.objective, classes):
            why = f"{self.objective.name} has no fast search for {classes} classes: the argmax is kept"
            return Allocation.alike("fixed", classes, why)
        counting = range(len(fewest)) if labels is None or len(fewest) == 1 else labels
        # A constraint must hold for each label: neither a shared threshold nor a default is made for that.
        rare_labels: Origin = "own" if self.constraints else self.rare_labels
        limit = POOLED if rare_labels == "pooled" and not multiclass else FEW
        few = [k for k in counting if fewest[k] < limit]
        if rare_labels == "pooled" and len(few) < (1 if multiclass else 2):  # nothing to share
            rare_labels, few = "own", [k for k in few if fewest[k] < FEW]
        if not few:
            return Allocation.alike("own", len(fewest))
        where = f" in {len(few)} of {len(counting)} classes" if len(counting) > 1 else ""
        why = f"only {min(fewest[k] for k in few):g} positives or negatives{where}: "
        if rare_labels == "own":
            return Allocation.alike("own", len(fewest), f"{why}the threshold is not to be trusted")
        if multiclass:  # offsets are relative to each other, so all or none are tuned
            done = "the argmax is kept" if rare_labels == "fixed" else "one number moves the offsets of all"
            return Allocation.alike(rare_labels, classes, why + done)
        why = f"{why}kept at {self.default_threshold:g}"
        if rare_labels == "pooled":
            why = f"fewer than {limit} positives or negatives{where}, which share one threshold"
        shares = set(few)
        return Allocation(tuple(rare_labels if k in shares else "own" for k in range(len(fewest))), why)

    def smaller_side(self, positives: Tensor, total: Tensor) -> Tensor:
        """Return the same of the positives and the total of each class."""
        few = torch.minimum(positives, total - positives)
        if self.shared:
            few = (few if self.objective.labels is None else few[list(self.objective.labels)]).sum(0, keepdim=True)
        return few

    def _offsets(self, batch: Batch, allocation: Allocation) -> Rule:
        if not allocation.tuned:
            return Argmax()
        if batch.weight is not None:  # what is masked is no distribution
            batch = batch.take((batch.weight > 0).squeeze(1))
        # The search is many small steps, each on what the one before it found: not for a GPU.
        s, y = batch.logits.cpu().double(), batch.targets.cpu()
        # Rows that are distributions are added to as log-probabilities, others (logits, say) as they are.
        log = bool((s >= 0).all()) and bool(((s.sum(1) - 1).abs() <= 1e-3).all())
        y = (F.one_hot(y, s.shape[1]) if y.dim() == 1 else y).double()
        w = s.new_ones(len(s)) if batch.weight is None else batch.weight.cpu().double().squeeze(1)
        offsets = tune_offsets(s.log() if log else s, y, w, self.objective, allocation.origins[0] == "pooled")
        return Offsets(tuple(offsets.tolist()), log)


def _observations(batch: AnyBatch) -> float:
    """Return the number of equal observations that a unit of weight stands for [kish1965]."""
    if batch.weight is None:
        return 1.0
    w = batch.weight.double()
    return (w.sum() / (w**2).sum().clamp(min=1e-300)).item()
