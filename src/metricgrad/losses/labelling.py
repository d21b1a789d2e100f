"""``StructuredHingeLoss``: SVMperf's loss, the margin-rescaled hinge over all labellings of a batch.

With TP = a and FP = b given, the best labelling takes the a positives and the b negatives of highest score. So the
maximum over 2ⁿ labellings is one over (P + 1)·(N + 1) pairs of counts, of 1 − metric(a, b) plus two sums of sorted
scores. A small table is searched completely, a large one by branch and bound over boxes of pairs: ``metrics.bounds``
gives limits of the metric and of its slopes over a box, the part of the scores is concave, and a box that cannot beat
the best pair is dropped. A metric that ``metrics.bounds`` cannot bound is searched completely, whatever its size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from metricgrad.counts import Counts, compute_dtype
from metricgrad.engine import distributed
from metricgrad.engine.batch import Batch, Task, check_task, encode
from metricgrad.losses.metric import without_autocast
from metricgrad.metrics import Metric, bounds, get, name_of, of_counts

WHOLE = 1 << 16
"""Up to this many pairs of counts, evaluating all of them is faster than branch and bound."""
CHUNK = 1 << 18
"""Pairs or boxes evaluated at a time, which limits the memory."""
MOST_COPIES = 1 << 25
"""The largest sum of the weights of a class: more repeated samples would take over a gigabyte."""
CUTS = 6
"""Into how many parts a box is cut in each direction: a round over a thousand boxes costs hardly more than over ten."""


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
            hopeful = ~(torch.fmin(bound, reach) <= best + 1e-12 * max(abs(best), 1.0))
            hopeful &= (box[0] < box[1]) | (box[2] < box[3])
            if hopeful.any():
                waiting.append(_parts(box[:, hopeful]))
        return pair


def _parts(box: Tensor) -> Tensor:
    """Cut boxes ``(4, M)`` into ``CUTS`` parts in each direction."""
    a, c, b, d = box
    cuts = torch.arange(CUTS + 1, device=box.device).unsqueeze(1)
    tp, fp = a + (c - a + 1) * cuts // CUTS, b + (d - b + 1) * cuts // CUTS
    shape = CUTS, CUTS, len(a)
    ends = tp[:-1].unsqueeze(1), tp[1:].unsqueeze(1) - 1, fp[:-1], fp[1:] - 1
    parts = torch.stack([end.expand(shape).flatten() for end in ends])
    return parts[:, (parts[0] <= parts[1]) & (parts[2] <= parts[3])]


class LabellingLoss(nn.Module):
    """Base class of the losses over whole labellings: the mean over the classes of the values of ``worst``.

    Labellings are not sums, so with ``process_group`` the processes gather their rows: with N rows of K classes on all
    of them together each receives N·K logits, as many targets, and weights if given, 5 to 16 bytes an element, and each
    does the work for all; the backward pass adds N·K numbers.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        task: Task = "binary",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.task = check_task(task)
        if task == "multiclass":
            raise ValueError("task: expected 'binary' or 'multilabel' (a labelling is of one class), got 'multiclass'")
        self.metric = of_labellings(metric)
        self.ignore_index, self.process_group = ignore_index, process_group

    def worst(self, scores: Tensor, labels: Tensor, column: int) -> Worst:
        """Return the labelling, or the mean of several, that gives the loss of one class.

        Parameters
        ----------
        scores : Tensor
            The logits of the class, ``(n,)``.
        labels : Tensor
            Its labels, bool, ``(n,)``.
        column : int
            The class, for a metric with parameters per class.

        Returns
        -------
        Worst
            The loss without its part in the scores, and the derivative with respect to the scores.
        """
        raise NotImplementedError

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # a search that depends on values cannot be compiled
    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss, the mean over the classes.

        Parameters
        ----------
        logits : Tensor
            Raw scores, never probabilities; the shape is that of the task.
        targets : Tensor
            0 and 1; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Returns
        -------
        Tensor
            A scalar.

        Raises
        ------
        ValueError
            If targets are soft labels or weights are no whole numbers: a sample of weight 2 occurs twice.
        """
        batch = encode(self.task, logits, targets, weight, mask, self.ignore_index)
        if batch.logits.is_meta:
            raise ValueError("logits: expected numbers to search among, got the meta device, which has none; use 'cpu'")
        group = distributed.resolve(self.process_group)
        if group is not None:
            batch = distributed.joined(batch, group)
        z = batch.logits.to(compute_dtype(batch.logits))
        scores, labels, copies = z.detach(), _labels(batch), _copies(batch)
        slope = torch.zeros_like(scores)
        loss = scores.new_zeros(())
        for k in range(z.shape[1]):
            if copies is None:
                found = self.worst(scores[:, k], labels[:, k], k)
                slope[:, k] = found.slope
            else:
                rows = torch.arange(len(z), device=z.device).repeat_interleave(copies[:, min(k, copies.shape[1] - 1)])
                found = self.worst(scores[rows, k], labels[rows, k], k)
                slope[:, k] = slope[:, k].index_add(0, rows, found.slope.to(z.dtype))
            loss = loss + found.loss.to(z.dtype)
        # Linear in the logits for the labelling found: this is the value, and its slope a subgradient.
        return (loss + (slope * z).sum()) / z.shape[1]

    def extra_repr(self) -> str:
        """Return the metric and the options, for ``repr``.

        Returns
        -------
        str
            Comma-separated.
        """
        ignored = "" if self.ignore_index is None else f", ignore_index={self.ignore_index}"
        return f"{name_of(self.metric)}, task={self.task!r}{ignored}"


class StructuredHingeLoss(LabellingLoss):
    r"""The margin-rescaled hinge of a metric over all labellings of the batch [joachims2005, problem 2].

    $L = \max_{\hat y\in\{0,1\}^n} 1 - \text{metric}(\hat y) + \sum_i (\hat y_i - y_i) z_i / n$ with labels 0/1: convex
    in the logits, an upper bound of 1 − metric of the decision z > 0, and exact in value and subgradient, which is
    $(\hat y_i - y_i)/n$. For "multilabel" each class has a loss of its own and the mean is returned. Targets are 0 or
    1, n is the number of samples that count. Weights must be whole numbers, and a sample of weight 2 occurs twice:
    other weights would make the maximum a knapsack problem.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the metric is one of the d×d matrix, or for ``task="multiclass"``.

    See Also
    --------
    AdversarialLoss : The same with a predictor that may randomise.
    LinearSVMPerf : A linear classifier trained on this loss.

    Notes
    -----
    Labellings are not sums: with ``process_group`` the processes gather their rows, and each does the work for all.

    Examples
    --------
    >>> loss = StructuredHingeLoss("f1")
    >>> loss(torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1, 0, 1, 0]))
    tensor(0.3750)
    """

    def worst(self, scores: Tensor, labels: Tensor, column: int) -> Worst:
        """Return the labelling of largest 1 − metric plus score.

        Parameters
        ----------
        scores : Tensor
            The logits of the class, ``(n,)``.
        labels : Tensor
            Its labels, bool, ``(n,)``.
        column : int
            The class, for a metric with parameters per class.

        Returns
        -------
        Worst
            The loss without its part in the scores, and the derivative with respect to the scores.
        """
        return worst_labelling(self.metric, scores, labels, column)


def of_labellings(metric: str | Metric) -> Metric:
    """Return a metric of ``Counts`` by name, or raise."""
    found = get(metric)
    if not of_counts(found):
        raise ValueError(f"metric: {name_of(found)} is of the d×d matrix; expected a function of Counts")
    return found


def _labels(batch: Batch) -> Tensor:
    y = batch.targets.detach()
    if not ((y == 0) | (y == 1)).all():
        raise ValueError("targets: expected 0 or 1, a labelling has no soft labels; round them or use MetricLoss")
    return y == 1


def _copies(batch: Batch) -> Tensor | None:
    """Return how often each sample counts, or None for once."""
    if batch.weight is None:
        return None
    w = batch.weight.detach()
    if not (w == w.round()).all():
        raise ValueError("weight: expected whole numbers, which repeat samples (others make a knapsack), got fractions")
    total = w.double().sum(0)
    if total.numel() and not total.max() <= MOST_COPIES:
        raise ValueError(
            f"weight: expected whole numbers of at most {MOST_COPIES} in all, since they repeat samples, got "
            f"{total.max().item():g}; divide them by a common number, or use MetricLoss, which takes any weights"
        )
    return w.long()
