"""Offsets of the classes of a multi-class problem, one at a time: a local optimum of any metric of the d×d matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.counts import Confusion

if TYPE_CHECKING:
    from collections.abc import Callable

_CELLS = 1 << 18  # numbers in the matrices looked at together


def tune_offsets(levels: Tensor, y: Tensor, w: Tensor, value: Callable[[Confusion], Tensor]) -> Tensor:
    """Return the offsets ``(d,)`` of the best value found.

    ``levels``: ``(N, d)`` log-probabilities or logits; ``y``: ``(N, d)`` one-hot or soft labels; ``w``: ``(N,)``.
    Starts from no offsets and from those that undo the classes' shares, and keeps the better end.
    """
    wy = y * w.unsqueeze(1)
    share = wy.sum(0)
    undone = torch.where(share > 0, -(share / share.sum()).log(), 0.0)
    none = torch.zeros_like(undone)
    ends = [none]
    for start in (none, undone - undone.mean()):
        end = _climb(levels, wy, value, start)
        ends.append(end - end[0])  # adding one number to all changes nothing, but for rounding: judge the ends again
    return max(ends, key=lambda end: _value_at(levels, wy, value, end))


def _value_at(levels: Tensor, wy: Tensor, value: Callable[[Confusion], Tensor], offsets: Tensor) -> float:
    found = value(_matrix(wy, (levels + offsets).argmax(1), len(offsets)))
    return found.nan_to_num(-torch.inf).item()


def _climb(
    levels: Tensor, wy: Tensor, value: Callable[[Confusion], Tensor], offsets: Tensor, sweeps: int = 20
) -> Tensor:
    offsets = offsets.clone()
    best = _value_at(levels, wy, value, offsets)
    for _ in range(sweeps):
        before = best
        for k in range(len(offsets)):
            found, moved = _best_offset(levels, wy, value, offsets, k)
            if found > best + 1e-12:
                best, offsets[k] = found, moved
        if best == before:
            break
    return offsets


def _best_offset(
    levels: Tensor, wy: Tensor, value: Callable[[Confusion], Tensor], offsets: Tensor, k: int
) -> tuple[float, float]:
    """Return the best value along one offset, and that offset.

    A sample turns to class k where the offset reaches its margin. The matrices at many margins come from cumulating
    what turns in between; when there are more margins than fit, the best stretch is looked into again.
    """
    d = levels.shape[1]
    others = levels + offsets
    others[:, k] = -torch.inf
    rival, now = others.max(1)
    margin, order = (rival - levels[:, k]).sort()
    # A class that is certain, or ruled out, has an infinite margin: no offset turns it.
    finite = margin.isfinite()
    fixed = _matrix(wy[order[~finite]], torch.where(margin[~finite] < 0, k, now[order[~finite]]), d).matrix
    margin, order = margin[finite], order[finite]
    if not len(margin):
        return value(Confusion(fixed)).item(), offsets[k].item()
    wy, now = wy[order], now[order]
    n, steps = len(margin), max(16, _CELLS // d**2)
    low, high = 0, n  # how many have turned, at least and at most
    best, place = -torch.inf, 0
    while True:
        marks = torch.linspace(low, high, min(steps, high - low + 1), dtype=torch.float64).round().long()
        matrices = fixed + _turned(wy, now, marks, k, d)
        values = value(Confusion(matrices))
        # Equal margins, also those that rounding alone tells apart, turn together: the last is a place to stop.
        before, after = margin[marks.clamp(min=1) - 1], margin[marks.clamp(max=n - 1)]
        stop = (marks == n) | (marks == 0) | (after - before > 1e-12 * (1 + after.abs()))
        values = torch.where(stop & ~values.isnan(), values, -torch.inf)
        i = int(values.argmax())
        if values[i] > best:
            best, place = values[i].item(), int(marks[i])
        if len(marks) == high - low + 1 or high - low < 2:
            break
        i = int(torch.searchsorted(marks, place))
        low, high = int(marks[max(i - 1, 0)]), int(marks[min(i + 1, len(marks) - 1)])
    if place == 0:
        return best, margin[0].item() - 1
    if place == n:
        return best, margin[-1].item() + 1
    return best, (margin[place - 1] / 2 + margin[place] / 2).item()


def _turned(wy: Tensor, now: Tensor, marks: Tensor, k: int, d: int) -> Tensor:
    """Return the matrices ``(marks, d, d)`` when the first marks[i] samples have turned to class k."""
    part = torch.searchsorted(marks, torch.arange(len(now)), right=True)  # sample j has turned at marks[part:]
    leaves = wy.new_zeros((len(marks) + 1) * d, d)
    leaves.index_add_(0, part * d + now, wy)
    gone = leaves.view(-1, d, d).cumsum(0)[:-1].transpose(1, 2)  # rows true, columns the class left
    matrices = _matrix(wy, now, d).matrix - gone
    matrices[:, :, k] += gone.sum(2)
    return matrices


def _matrix(wy: Tensor, decided: Tensor, d: int) -> Confusion:
    return Confusion(wy.new_zeros(d, d).index_add_(0, decided, wy).t())
