"""The worst labelling of a batch, by 1 − metric and the scores together: what a structured hinge loss maximises.

With TP = a and FP = b given, the best labelling takes the a positives and the b negatives of highest score. So the
maximum over 2ⁿ labellings is one over (P + 1)·(N + 1) pairs of counts, of 1 − metric(a, b) plus two sums of sorted
scores. A small table is searched completely, a large one by branch and bound over boxes of pairs: ``metrics.bounds``
gives limits of the metric and of its slopes over a box, the part of the scores is concave, and a box that cannot beat
the best pair is dropped. A metric that ``metrics.bounds`` cannot bound is searched completely, whatever its size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from metricgrad.core.counts import Counts
from metricgrad.core.metrics import bounds

if TYPE_CHECKING:
    from metricgrad.core.metrics import Metric

MAX_EXHAUSTIVE_PAIRS = 1 << 16
"""Up to this many pairs of counts, evaluating all of them is faster than branch and bound."""
PAIRS_AT_A_TIME = 1 << 18
"""How many pairs or boxes are evaluated at a time, which limits the memory."""
SPLITS_PER_SIDE = 6
"""Into how many parts a box is split in each direction; evaluating a thousand boxes takes hardly longer than ten."""


class WorstLabelling(NamedTuple):
    """The maximising labelling ŷ of a hinge loss, which is ``loss + slope @ scores`` with ``slope`` = (ŷ − y)/n."""

    loss: Tensor
    slope: Tensor


class Ranking:
    """The positives and the negatives, each from the highest score on."""

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self.count = max(len(scores), 1)
        self.order = []
        self.rises = []
        """rises[side][a]: by how much the gain grows from a to a + 1 samples of this side, the next score / n."""
        self.gains = []
        """gains[side][a]: the gain of the a highest scores of this side, the sum of the rises before."""
        for side in (labels, ~labels):
            rows = side.nonzero().squeeze(1)
            ordered, order = scores[rows].sort(descending=True)
            self.order.append(rows[order])
            shares = ordered.to(torch.float64).div_(self.count)
            self.rises.append(pad(shares, (0, 1)))
            self.gains.append(pad(shares.cumsum(0), (1, 0)))

    def slope(self, hits: int, alarms: int) -> Tensor:
        """Return (ŷ − y)/n for the ŷ of the ``hits`` highest positives and ``alarms`` highest negatives."""
        slope = self.gains[0].new_zeros(sum(map(len, self.order)))
        slope[self.order[0][hits:]] = -1 / self.count
        slope[self.order[1][:alarms]] = 1 / self.count
        return slope


def find_worst_labelling(metric: Metric, scores: Tensor, labels: Tensor, column: int = 0) -> WorstLabelling:
    """Return the labelling ŷ of largest 1 − metric + Σ(ŷᵢ − yᵢ)zᵢ / n for ``(n,)`` scores and bool ``labels``.

    ``column`` is the class, for a metric with parameters per class.
    """
    ranking = Ranking(scores, labels)
    search = _PairSearch(metric, ranking, column)
    hits, alarms = search.find_best()
    hits_and_alarms = labels.new_tensor([[hits], [alarms]], dtype=torch.long)
    loss = search.compute_loss(*hits_and_alarms)[0]
    return WorstLabelling(loss, ranking.slope(hits, alarms))


class _PairSearch:
    """The maximum over counts (hits, alarms) of 1 − metric + the gains, the sums of so many highest scores / n."""

    def __init__(self, metric: Metric, ranking: Ranking, column: int) -> None:
        self.metric = metric
        self.column = column
        self.rises = ranking.rises
        self.hit_gains, self.alarm_gains = ranking.gains
        self.positives = len(self.hit_gains) - 1
        self.negatives = len(self.alarm_gains) - 1
        # The gains are largest where exactly the samples of positive score are taken.
        self.hits_at_peak = (self.rises[0] > 0).sum()
        self.alarms_at_peak = (self.rises[1] > 0).sum()

    def find_best(self) -> tuple[int, int]:
        """Return the pair."""
        if (self.positives + 1) * (self.negatives + 1) <= MAX_EXHAUSTIVE_PAIRS:
            return self._search_all()
        try:
            return self._search_by_bounds()
        except (TypeError, AttributeError):  # a metric that uses more than plain arithmetic cannot be bounded
            return self._search_all()

    def compute_loss(self, hits: Tensor, alarms: Tensor) -> Tensor:
        """Return 1 − metric for integer counts that broadcast."""
        # The last axis is that of the classes.
        tp = hits.to(self.hit_gains.dtype).unsqueeze(-1)
        fp = alarms.to(self.hit_gains.dtype).unsqueeze(-1)
        values = self.metric(Counts(tp, fp, self.positives - tp, self.negatives - fp))
        return 1 - self._take_class(values)

    def _take_class(self, values: Tensor) -> Tensor:
        return values[..., min(self.column, values.shape[-1] - 1)] if values.dim() else values

    def _search_all(self) -> tuple[int, int]:
        """Evaluate every pair, some numbers of hits at a time."""
        best_value = -torch.inf
        best_pair = (0, 0)
        columns = self.negatives + 1
        alarms = torch.arange(columns, device=self.hit_gains.device)
        all_hits = torch.arange(self.positives + 1, device=self.hit_gains.device)
        for hits in all_hits.split(max(PAIRS_AT_A_TIME // columns, 1)):
            gains = self.hit_gains[hits].unsqueeze(1)
            values = self.compute_loss(hits.unsqueeze(1), alarms) + gains + self.alarm_gains
            largest, place = values.flatten().max(0)
            if not largest.item() <= best_value:  # NaN included
                best_value = largest.item()
                best_pair = (int(hits[int(place) // columns]), int(place) % columns)
        return best_pair

    def _search_by_bounds(self) -> tuple[int, int]:
        """Branch and bound: split the boxes that may hold a better pair."""
        best_value = -torch.inf
        best_pair = (0, 0)
        everything = [[0], [self.positives], [0], [self.negatives]]
        waiting = [self.hit_gains.new_tensor(everything, dtype=torch.long)]
        while waiting:
            boxes = waiting.pop()
            if boxes.shape[1] > PAIRS_AT_A_TIME:
                waiting += boxes.split(PAIRS_AT_A_TIME, 1)
                continue
            first_hits, last_hits, first_alarms, last_alarms = boxes
            hits = (first_hits + last_hits) // 2
            alarms = (first_alarms + last_alarms) // 2
            values = self.compute_loss(hits, alarms) + self.hit_gains[hits] + self.alarm_gains[alarms]
            largest, place = values.max(0)
            if largest.item() > best_value:
                best_value = largest.item()
                best_pair = (int(hits[place]), int(alarms[place]))
            bound = self._bound_values(boxes, hits, alarms, values)
            # "Not ≤" keeps a box whose bound is unknown (NaN). Rounding costs 1e-12.
            may_be_better = ~(bound <= best_value + 1e-12 * max(abs(best_value), 1.0))
            has_several_pairs = (first_hits < last_hits) | (first_alarms < last_alarms)
            is_open = may_be_better & has_several_pairs
            if is_open.any():
                waiting.append(_split_boxes(boxes[:, is_open]))
        return best_pair

    def _bound_values(self, boxes: Tensor, hits: Tensor, alarms: Tensor, values: Tensor) -> Tensor:
        """Return an upper bound over each box, given the values at the pairs in the middle; NaN where it is unknown."""
        first_hits, last_hits, first_alarms, last_alarms = boxes
        span = tuple(boxes.to(self.hit_gains.dtype).unsqueeze(-1).unbind(0))
        limits = bounds.limits(self.metric, span, self.positives, self.negatives)  # type: ignore[arg-type]
        hits_at_peak = self.hits_at_peak.clamp(first_hits, last_hits)
        alarms_at_peak = self.alarms_at_peak.clamp(first_alarms, last_alarms)
        largest_loss = 1 - self._take_class(limits.least)
        by_parts = largest_loss + self.hit_gains[hits_at_peak] + self.alarm_gains[alarms_at_peak]
        # A second bound by the slopes: the value in the middle plus the largest gain from there to a corner.
        by_slopes = values + self._bound_gain(self.rises[0], first_hits, hits, last_hits, limits.along_tp)
        by_slopes = by_slopes + self._bound_gain(self.rises[1], first_alarms, alarms, last_alarms, limits.along_fp)
        return torch.fmin(by_parts, by_slopes)  # ``fmin`` ignores a bound that is NaN

    def _bound_gain(
        self, rises: Tensor, first: Tensor, middle: Tensor, last: Tensor, slopes: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Return the largest gain on the way from the middle of a box to its first or last count of one side."""
        least_slope, largest_slope = slopes
        gain_up = rises[middle] - self._take_class(least_slope)
        gain_down = self._take_class(largest_slope) - rises[(middle - 1).clamp(min=0)]
        return torch.maximum((last - middle) * gain_up.clamp(min=0), (middle - first) * gain_down.clamp(min=0))


def _split_boxes(boxes: Tensor) -> Tensor:
    """Split boxes ``(4, M)`` into ``SPLITS_PER_SIDE`` parts in each direction."""
    first_hits, last_hits, first_alarms, last_alarms = boxes
    part = torch.arange(SPLITS_PER_SIDE + 1, device=boxes.device).unsqueeze(1)
    hit_edges = first_hits + (last_hits - first_hits + 1) * part // SPLITS_PER_SIDE
    alarm_edges = first_alarms + (last_alarms - first_alarms + 1) * part // SPLITS_PER_SIDE
    shape = SPLITS_PER_SIDE, SPLITS_PER_SIDE, len(first_hits)
    sides = (hit_edges[:-1].unsqueeze(1), hit_edges[1:].unsqueeze(1) - 1, alarm_edges[:-1], alarm_edges[1:] - 1)
    parts = torch.stack([side.expand(shape).flatten() for side in sides])
    is_empty = (parts[0] > parts[1]) | (parts[2] > parts[3])
    return parts[:, ~is_empty]
