"""Problems: an objective over a family of decision rules, solved on given data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.decisions import hard_counts, threshold_search
from metricgrad.decisions.offsets import searchable, tune_offsets
from metricgrad.decisions.resampling import group_index, of_units
from metricgrad.decisions.rules import Offsets, Rule, Threshold
from metricgrad.engine.batch import Batch
from metricgrad.metrics import get
from metricgrad.metrics.averages import check_labels, class_weights, row_weights
from metricgrad.metrics.constraints import Constraint, lower_bound
from metricgrad.metrics.derivatives import ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from metricgrad.counts import Counts
    from metricgrad.curves import Curve
    from metricgrad.engine.objective import Objective
    from metricgrad.metrics import Metric

FEW = 20
"""With fewer positives or negatives than this a tuned threshold is mostly noise."""


ROUNDING = 1e-10
"""What the running sums behind one threshold for all may be off by: a recall of 1 must meet "recall >= 1"."""


class InfeasibleError(ValueError):
    """No rule meets the constraints."""


@dataclass(frozen=True, eq=False)
class Problem:
    """``objective`` over one threshold per class, one for all classes (``shared``), or offsets ("multiclass").

    ``confidence``: constraints must be met by their lower bound at this level. ``epsilon``: how much worse than the
    best a plateau may be. ``scarce``: "keep" the argmax of a multi-class problem where a class has too few samples
    to tune on, or "tune" all the same.
    """

    objective: Objective
    shared: bool
    constraints: tuple[Constraint, ...]
    confidence: float | None
    epsilon: float = 0.01
    scarce: str = "tune"

    def __post_init__(self) -> None:
        task, average = self.objective.task, self.objective.average
        if self.scarce not in ("tune", "keep"):
            raise ValueError(f"scarce: expected 'tune' or 'keep', got {self.scarce!r}")
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

    def solve(self, batch: Batch, scale: float | None = None) -> tuple[Rule, bool, Any]:
        """Return the best rule, whether it is exact, and its plateau.

        ``scale``: how many observations a unit of weight stands for, by default found from the weights.
        """
        check_labels(self.objective.labels, batch.logits.shape[1])
        if self.objective.task == "multiclass":
            return self._offsets(batch), False, None
        if self.shared:
            rule, plateau = self._shared(batch)
            return rule, True, plateau
        return self._per_class(batch, _observations(batch) if scale is None else scale)

    def value(self, batch: Batch, rule: Rule) -> Tensor:
        """Return the value of a rule: a scalar, or one per class."""
        objective = self.objective
        if objective.task == "multiclass":
            matrix = hard_counts.matrix(batch, rule)
            return objective.value(matrix if objective.of_matrix else matrix.counts())
        if objective.average == "samples":
            return objective.value(hard_counts.means(batch, rule, [objective.metric], objective.labels)[0])
        value = objective.value(hard_counts.counts(batch, rule))
        return value.squeeze(-1) if objective.task == "binary" else value

    def resampled(self, batch: Batch, replicates: int, seed: int, groups: Any) -> Iterator[tuple[Rule, Tensor]]:
        """Yield rules tuned on resamples of the rows, each with how often every row was drawn."""
        index, units = group_index(groups, len(batch.logits))
        for drawn in of_units(units, replicates, torch.Generator().manual_seed(seed)):
            for row in drawn:
                times = row[index]
                yield self.tuned_on(batch, times), times

    def tuned_on(self, batch: Batch, times: Tensor) -> Rule:
        """Return the rule tuned on rows that count ``times`` times; one that predicts nothing if none is allowed."""
        w = times.unsqueeze(1) if batch.weight is None else batch.weight * times.unsqueeze(1)
        try:
            return self.solve(Batch(batch.logits, batch.targets, w, batch.mask))[0]
        except InfeasibleError:
            single = self.shared or self.objective.task == "binary"
            return Threshold(torch.inf if single else (torch.inf,) * batch.logits.shape[1])

    def fewest(self, batch: Batch) -> Tensor:
        """Return how many samples there are on the smaller side of each decision."""
        y, classes = batch.targets, batch.logits.shape[1]
        y = F.one_hot(y, classes) if y.dim() == 1 else y
        if batch.weight is None:
            positives, total = y.sum(0).double(), torch.full((classes,), float(len(y)), dtype=torch.float64)
        else:
            there = (batch.weight > 0).expand_as(y)
            positives, total = (y.double() * there).sum(0), there.sum(0).double()
        return self.smaller_side(positives, total)

    def caution(self, fewest: list[float]) -> str | None:
        """Tell which decisions have too few samples to tune on, or None, given what ``fewest`` returns."""
        labels = self.objective.labels
        classes = range(len(fewest)) if labels is None or len(fewest) == 1 else labels
        count = sum(fewest[k] < FEW for k in classes)
        if not count:
            return None
        where = f" in {count} of {len(classes)} classes" if len(classes) > 1 else ""
        return f"only {min(fewest[k] for k in classes):g} positives or negatives{where}"

    def kept(self, batch: Batch) -> str | None:
        """Tell why offsets are not tuned on these data and the argmax is kept, or None."""
        if self.objective.task != "multiclass":
            return None
        few = self.caution(self.fewest(batch).tolist()) if self.scarce == "keep" else None
        classes = batch.logits.shape[1]
        if few is None and not searchable(self.objective, classes):
            few = f"{self.objective.name} has no fast search for {classes} classes"
        return few and f"{few}: the argmax is kept"

    def smaller_side(self, positives: Tensor, total: Tensor) -> Tensor:
        """Return the same of the positives and the total of each class."""
        few = torch.minimum(positives, total - positives)
        if self.shared:
            few = (few if self.objective.labels is None else few[list(self.objective.labels)]).sum(0, keepdim=True)
        return few

    # One threshold per class

    def _per_class(self, batch: Batch, scale: float) -> tuple[Rule, bool, Any]:
        binary, average = self.objective.task == "binary", self.objective.average
        coupled = not binary and average in ("micro", "samples")
        curves: list[Curve] = []
        cuts: list[int] = []
        thresholds: list[float] = []
        plateaus: list[Any] = []
        for k in range(batch.logits.shape[1]):
            curve = threshold_search.class_curve(batch, k)
            values = threshold_search.by_parts(self.objective.values, curve.counts)
            if coupled:
                curves.append(curve)
                cuts.append(threshold_search.better(values, 0))
                continue
            counts = self.objective.labels is None or k in self.objective.labels
            spare = [self._spare(c, curve, scale) for c in self.constraints if counts]
            cut, plateau = self._best(curve.thresholds, values, spare, "" if binary else f" in class {k}")
            thresholds.append(threshold_search.between(curve.thresholds, cut))
            plateaus.append(plateau)
        if not coupled:
            return Threshold(thresholds[0] if binary else tuple(thresholds)), True, plateaus[0] if binary else plateaus
        exact = self._couple(batch, curves, cuts)
        rule = Threshold(
            tuple(threshold_search.between(c.thresholds, cut) for c, cut in zip(curves, cuts, strict=True))
        )
        return rule, exact, None

    def _couple(self, batch: Batch, curves: list[Curve], cuts: list[int]) -> bool:
        """Move the cuts from each class's own best to the best of all together; tell whether that is exact."""
        objective = self.objective
        if objective.average == "samples":
            threshold_search.ascend(cuts, partial(self._choose_in_rows, batch, curves))
            return False
        mine = list(range(len(curves)) if objective.labels is None else objective.labels)
        kept = [curves[k] for k in mine]
        corner = threshold_search.best_corner(kept, objective.values)
        positives, negatives = (float(sum(cell[-1] for cell in side)) for side in threshold_search.sides(kept))
        exact = threshold_search.quasi_convex(objective.metric, positives, negatives)
        if not exact:
            threshold_search.ascend(corner, partial(threshold_search.choose_pooled, kept, objective.values))
        for k, cut in zip(mine, corner, strict=True):
            cuts[k] = cut
        return exact

    def _choose_in_rows(self, batch: Batch, curves: list[Curve], k: int, cuts: list[int]) -> int:
        """Return the best cut of class k for the samples average, given the cuts of the others.

        Lowering it past a score turns one row's label on: the changes of the rows' values, cumulated, are the curve.
        """
        now = torch.stack([c.thresholds[cut] for c, cut in zip(curves, cuts, strict=True)])
        off = batch.logits >= now
        on = off.clone()
        off[:, k], on[:, k] = False, True
        metric, labels = self.objective.metric, self.objective.labels
        without, row_weight = hard_counts.row_counts(batch, off, labels)
        having, _ = hard_counts.row_counts(batch, on, labels)
        change = (metric(having) - metric(without)) * row_weight
        s, order = batch.logits[:, k].sort(descending=True)
        total = torch.cat((change.new_zeros(1), change[order].cumsum(0)))
        reached = torch.searchsorted(-s, -curves[k].thresholds, right=True)
        return threshold_search.better(total[reached] / row_weight.sum(), cuts[k])

    # One threshold for all

    def _shared(self, batch: Batch) -> tuple[Rule, Any]:
        thresholds, values = self._everywhere(self.objective.metric, batch)
        spare = [ROUNDING - c.violation(self._everywhere(get(c.metric), batch)[1]) for c in self.constraints]
        cut, plateau = self._best(thresholds, values, spare, "")
        return Threshold(threshold_search.between(thresholds, cut)), plateau

    def _everywhere(self, metric: Metric, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the averaged metric at every threshold."""
        average, labels, s, y = self.objective.average, self.objective.labels, batch.logits, batch.targets.double()
        if average == "samples":
            weights, w = row_weights(s.double(), batch.weight, batch.mask, labels)
            weights = ratio(weights, weights.sum())
        else:
            s, y, w = s.t(), y.t(), None if batch.weight is None else batch.weight.double().t()
            if average == "micro":
                s, y = (_flat(x, labels) for x in (s, y))
                w = None if w is None else _flat(w.expand(batch.logits.t().shape), labels)
                weights = y.new_ones(1)
        wy, wn = (y, 1 - y) if w is None else (w * y, w * (1 - y))
        if average in ("macro", "weighted"):
            weights = class_weights(average, wy.sum(1), labels, self.objective.absent)
        return threshold_search.events(s.contiguous(), wy.contiguous(), wn.contiguous(), metric, weights)

    # Constraints

    def _spare(self, constraint: Constraint, curve: Curve, scale: float) -> Tensor:
        """Return by how much every cut meets a constraint."""
        metric = get(constraint.metric)
        if self.confidence is None:
            return -constraint.violation(metric(curve.counts))

        def merit(c: Counts) -> Tensor:
            return -constraint.violation(metric(c))

        return lower_bound(merit, curve.counts, self.confidence, scale)

    def _best(self, thresholds: Tensor, values: Tensor, spare: list[Tensor], which: str) -> tuple[int, Any]:
        """Return the best cut that meets all constraints, and the plateau around it."""
        fine = ~values.isnan()
        sure = f" with {self.confidence:g} confidence" if self.confidence is not None else ""
        for constraint, by in zip(self.constraints, spare, strict=False):  # none for a class that does not count
            if not (by >= 0).any():
                best = int(by.nan_to_num(-torch.inf).argmax())
                raise InfeasibleError(
                    f"subject_to: no threshold reaches {constraint}{sure}{which}; the nearest, "
                    f"{thresholds[best].item():.6g}, misses it by {-by[best].item():.4g}"
                )
            fine &= by >= 0
        if not spare and not fine.any():
            raise InfeasibleError(f"metric: expected a defined value at some threshold, got NaN at each{which}")
        if not fine.any():
            wanted = " and ".join(map(str, self.constraints))
            raise InfeasibleError(f"subject_to: no threshold reaches {wanted} together{sure}{which}")
        values = values if fine.all() else torch.where(fine, values, -torch.inf)
        cut = int(values.argmax())
        first, last = threshold_search.run_around(values >= values[cut] - self.epsilon, cut)
        return cut, (threshold_search.between(thresholds, last), thresholds[first].item())

    # Offsets

    def _offsets(self, batch: Batch) -> Rule:
        kept = self.kept(batch)
        if batch.weight is not None:  # what is masked is no distribution
            batch = hard_counts.take(batch, (batch.weight > 0).squeeze(1))
        # The search is many small steps, each on what the one before it found: not for a GPU.
        s, y = batch.logits.cpu().double(), batch.targets.cpu()
        # Rows that are distributions are added to as log-probabilities, others (logits, say) as they are.
        log = bool((s >= 0).all()) and bool(((s.sum(1) - 1).abs() <= 1e-3).all())
        if kept is not None:
            return Offsets((0.0,) * s.shape[1], log)
        y = (F.one_hot(y, s.shape[1]) if y.dim() == 1 else y).double()
        w = s.new_ones(len(s)) if batch.weight is None else batch.weight.cpu().double().squeeze(1)
        offsets = tune_offsets(s.log() if log else s, y, w, self.objective)
        return Offsets(tuple(offsets.tolist()), log)


def _flat(x: Tensor, labels: tuple[int, ...] | None) -> Tensor:
    return (x if labels is None else x[list(labels)]).reshape(1, -1)


def _observations(batch: Batch) -> float:
    """Return the number of equal observations that a unit of weight stands for [kish1965]."""
    if batch.weight is None:
        return 1.0
    w = batch.weight.double()
    return (w.sum() / (w**2).sum().clamp(min=1e-300)).item()
