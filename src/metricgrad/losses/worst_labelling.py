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

WHOLE = 1 << 16
"""Up to this many pairs of counts, evaluating all of them is faster than branch and bound."""
CHUNK = 1 << 18
"""Pairs or boxes evaluated at a time, which limits the memory."""
SPLITS = 6
"""Into how many parts a box is split in each direction: a thousand boxes take hardly longer than ten."""


class Worst(NamedTuple):
    """The maximising labelling ŷ of a hinge loss, which is ``loss + slope @ scores`` with ``slope`` = (ŷ − y)/n."""

    loss: Tensor
    slope: Tensor


class Ranking:
    """The positives and the negatives, each from the highest score on."""

    def __init__(self, scores: Tensor, labels: Tensor) -> None:
        self.count = max(len(scores), 1)
        self.order, self.rises, self.gains = [], [], []
        for side in (labels, ~labels):
            rows = side.nonzero().squeeze(1)
            ordered, order = scores[rows].sort(descending=True)
            self.order.append(rows[order])
            # The next score / n, and the sum of those before: gains[side][a] is that of the a highest.
            self.rises.append(pad(ordered.to(torch.float64).div_(self.count), (0, 1)))
            self.gains.append(pad(self.rises[-1][:-1].cumsum(0), (1, 0)))

    def slope(self, hits: int, alarms: int) -> Tensor:
        """Return (ŷ − y)/n for the ŷ of the ``hits`` highest positives and ``alarms`` highest negatives."""
        slope = self.gains[0].new_zeros(sum(map(len, self.order)))
        slope[self.order[0][hits:]] = -1 / self.count
        slope[self.order[1][:alarms]] = 1 / self.count
        return slope


def worst_labelling(metric: Metric, scores: Tensor, labels: Tensor, column: int = 0) -> Worst:
    """Return the labelling ŷ of largest 1 − metric + Σ(ŷᵢ − yᵢ)zᵢ / n for ``(n,)`` scores and bool ``labels``.

    ``column`` is the class, for a metric with parameters per class.
    """
    ranking = Ranking(scores, labels)
    search = _Search(metric, ranking, column)
    a, b = search.best()
    return Worst(search.loss(*labels.new_tensor([[a], [b]], dtype=torch.long))[0], ranking.slope(a, b))


class _Search:
    """The maximum over counts (a, b) of 1 − metric + the gains, sums of the a (b) highest scores / n."""

    def __init__(self, metric: Metric, ranking: Ranking, column: int) -> None:
        self.metric, self.column, self.rises = metric, column, ranking.rises
        self.hits, self.alarms = ranking.gains
        self.positives, self.negatives = len(self.hits) - 1, len(self.alarms) - 1

    def best(self) -> tuple[int, int]:
        """Return the pair."""
        if (self.positives + 1) * (self.negatives + 1) <= WHOLE:
            return self._whole()
        try:
            return self._bounded()
        except (TypeError, AttributeError):  # not arithmetic alone, so it cannot be bounded
            return self._whole()

    def loss(self, tp: Tensor, fp: Tensor) -> Tensor:
        """Return 1 − metric for integer counts that broadcast."""
        tp, fp = (count.to(self.hits.dtype).unsqueeze(-1) for count in (tp, fp))  # the last axis is that of the classes
        return 1 - self._of_class(self.metric(Counts(tp, fp, self.positives - tp, self.negatives - fp)))

    def _of_class(self, values: Tensor) -> Tensor:
        return values[..., min(self.column, values.shape[-1] - 1)] if values.dim() else values

    def _whole(self) -> tuple[int, int]:
        """Evaluate every pair, some rows at a time."""
        best, pair = -torch.inf, (0, 0)
        wide = self.negatives + 1
        alarms = torch.arange(wide, device=self.hits.device)
        for hits in torch.arange(self.positives + 1, device=self.hits.device).split(max(CHUNK // wide, 1)):
            values = self.loss(hits.unsqueeze(1), alarms) + self.hits[hits].unsqueeze(1) + self.alarms
            most, at = values.flatten().max(0)
            if not most.item() <= best:  # NaN included
                best, pair = most.item(), (int(hits[int(at) // wide]), int(at) % wide)
        return pair

    def _bounded(self) -> tuple[int, int]:
        """Branch and bound: split the boxes that may hold a better pair."""
        best, pair = -torch.inf, (0, 0)
        # The gains are largest where exactly the samples of positive score are taken.
        peak = [(rise > 0).sum() for rise in self.rises]
        waiting = [self.hits.new_tensor([[0], [self.positives], [0], [self.negatives]], dtype=torch.long)]
        while waiting:
            box = waiting.pop()
            if box.shape[1] > CHUNK:
                waiting += box.split(CHUNK, 1)
                continue
            middle = (box[0] + box[1]) // 2, (box[2] + box[3]) // 2
            top = tuple(peak[side].clamp(box[2 * side], box[2 * side + 1]) for side in (0, 1))
            values = self.loss(*middle) + self.hits[middle[0]] + self.alarms[middle[1]]
            most, where = values.max(0)
            if most.item() > best:
                best, pair = most.item(), (int(middle[0][where]), int(middle[1][where]))
            span = tuple(box.to(self.hits.dtype).unsqueeze(-1).unbind(0))
            found = bounds.limits(self.metric, span, self.positives, self.negatives)  # type: ignore[arg-type]
            bound = 1 - self._of_class(found.least) + self.hits[top[0]] + self.alarms[top[1]]
            # A second bound by the slopes: the value in the middle plus the largest gain from there to a corner.
            reach = values
            for side, (least, largest) in enumerate((found.along_tp, found.along_fp)):
                rise, at = self.rises[side], middle[side]
                up = rise[at] - self._of_class(least)
                down = self._of_class(largest) - rise[(at - 1).clamp(min=0)]
                ways = (box[2 * side + 1] - at) * up.clamp(min=0), (at - box[2 * side]) * down.clamp(min=0)
                reach = reach + torch.maximum(*ways)
            # fmin ignores an unknown bound (NaN); "not ≤" keeps a box where both are unknown. Rounding costs 1e-12.
            open_boxes = ~(torch.fmin(bound, reach) <= best + 1e-12 * max(abs(best), 1.0))
            open_boxes &= (box[0] < box[1]) | (box[2] < box[3])
            if open_boxes.any():
                waiting.append(_parts(box[:, open_boxes]))
        return pair


def _parts(box: Tensor) -> Tensor:
    """Split boxes ``(4, M)`` into ``SPLITS`` parts in each direction."""
    a, c, b, d = box
    edges = torch.arange(SPLITS + 1, device=box.device).unsqueeze(1)
    tp, fp = a + (c - a + 1) * edges // SPLITS, b + (d - b + 1) * edges // SPLITS
    shape = SPLITS, SPLITS, len(a)
    ends = tp[:-1].unsqueeze(1), tp[1:].unsqueeze(1) - 1, fp[:-1], fp[1:] - 1
    parts = torch.stack([end.expand(shape).flatten() for end in ends])
    return parts[:, (parts[0] <= parts[1]) & (parts[2] <= parts[3])]
