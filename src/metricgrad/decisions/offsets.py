"""Offsets of the classes of a multi-class problem, one at a time: a local optimum of any multi-class metric.

Along one offset, a row turns to its class where the offset reaches the row's margin. One sort of the margins gives
every place where a decision changes, and incremental counts (``incremental``) the exact value at each: O(N log N)
per offset, whatever the number of classes. A metric of the d×d matrix that has no such form is evaluated on the
matrices of many places at once, which is for small d only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion
from metricgrad.decisions.incremental import IncrementalObjective, make_incremental

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.objective import Objective

SWEEPS = 20
"""Passes over all offsets, at most."""
WORK = 1 << 25
"""Margins sorted from one start, at most: fewer passes for large data, but at least ``LEAST``."""
LEAST = 2
MOST_CLASSES = 128
"""Up to this number of classes a metric is evaluated by whole matrices, where nothing cheaper will do."""
STRENGTHS = sorted((i / 20 for i in range(-20, 41)), key=abs)
"""How much of the classes' shares pooled offsets may undo, the weakest first: from −1 to 2, all of it being 1."""
_CELLS = 1 << 18  # numbers in the matrices looked at together


def tune_offsets(levels: Tensor, y: Tensor, w: Tensor, objective: Objective, pooled: bool = False) -> Tensor:
    """Return the offsets ``(d,)`` of the best value found.

    ``levels``: ``(N, d)`` log-probabilities or logits; ``y``: ``(N, d)`` one-hot or soft labels; ``w``: ``(N,)``.
    Starts from no offsets and from those that undo the classes' shares, and keeps the better end. ``pooled``: all
    offsets are one multiple of those that undo the shares.
    """
    wy = y * w.unsqueeze(1)
    climb = _Climb(levels, wy, objective)
    share = wy.sum(0)
    undone = torch.where(share > 0, -(share / share.sum()).log(), 0.0)
    none = torch.zeros_like(undone)
    if pooled:
        undone = undone - undone[0]
        return max((strength * undone for strength in STRENGTHS), key=climb.value_at)  # the weakest of equals
    ends = [none]
    for start in (none, undone - undone.mean()):
        end = climb.run(start)
        ends.append(end - end[0])  # adding one number to all changes nothing, but for rounding: evaluate the ends again
    return max(ends, key=climb.value_at)


def searchable(objective: Objective, classes: int) -> bool:
    """Return whether the offsets of this number of classes can be searched in reasonable time."""
    return classes <= MOST_CLASSES or make_incremental(objective, torch.eye(classes, dtype=torch.float64)) is not None


def sweeps(size: int) -> int:
    """Return the number of passes over all offsets, at most, for N × d levels."""
    return min(SWEEPS, max(LEAST, WORK // max(size, 1)))


class _Climb:
    """Coordinate ascent on given rows."""

    def __init__(self, levels: Tensor, wy: Tensor, objective: Objective) -> None:
        self.levels, self.wy, self.objective = levels, wy, objective
        self.weight = wy.sum(1)
        self.sums = self._verified(make_incremental(objective, wy))

    def _verified(self, sums: IncrementalObjective | None) -> IncrementalObjective | None:
        """Return the incremental form if it agrees with the objective itself, which a metric of users' own may not."""
        if sums is None:
            return None
        decided = self.levels.argmax(1)
        fast, plain = sums.value_of_decisions(decided, self.weight), self._value(decided)
        return sums if torch.allclose(fast, plain, rtol=1e-9, atol=1e-9) else None

    def value_at(self, offsets: Tensor) -> float:
        """Return the objective under these offsets."""
        return self._value((self.levels + offsets).argmax(1)).item()

    def _value(self, decided: Tensor) -> Tensor:
        return self._of_matrix(_matrix(self.wy, decided)).nan_to_num(-torch.inf)

    def _of_matrix(self, matrix: Confusion) -> Tensor:
        return self.objective.value(matrix if self.objective.of_matrix else matrix.counts())

    def run(self, start: Tensor) -> Tensor:
        """Return the offsets at which no single one can be improved, or the sweeps are over."""
        best, leaders = self.value_at(start), _Leaders(self.levels, start)
        for _ in range(sweeps(self.levels.numel())):
            before = best
            for k in range(len(start)):
                found, moved = self._best_offset(leaders, k)
                if found > best + 1e-12:
                    best = found
                    leaders.move(k, moved)
            if best == before:
                break
        return leaders.offsets

    def _best_offset(self, leaders: _Leaders, k: int) -> tuple[float, float]:
        """Return the best value along one offset, and that offset."""
        line = leaders.line(k)
        margin, n = line.margin, len(line.margin)
        if not n:
            return -torch.inf, 0.0
        if self.sums is None:
            best, place = _look_at_matrices(line, self.wy, self._of_matrix)
        else:
            best, place = _count(line, self.sums, self.weight)
        if place in (0, n):
            return best, margin[0].item() - 1 if place == 0 else margin[-1].item() + 1
        return best, (margin[place - 1] / 2 + margin[place] / 2).item()


class _Line(NamedTuple):
    """What one offset changes: ``rows``, by the ``margin`` at which they turn from class ``now`` to class k.

    ``fixed`` rows are decided for ``others``, whatever the offset: a certain class has an infinite margin.
    """

    k: int
    margin: Tensor
    rows: Tensor
    now: Tensor
    fixed: Tensor
    others: Tensor

    def may_stop(self) -> Tensor:
        """Tell where an offset may stand, when 0, 1, … rows have turned: not between equal margins.

        Margins that rounding alone tells apart are equal.
        """
        ends = self.margin.new_ones(1, dtype=torch.bool)
        apart = self.margin.diff() > 1e-12 * (1 + self.margin[1:].abs())
        return torch.cat((ends, apart, ends))


class _Leaders:
    """The two highest levels of each row under the present offsets, kept up to date as offsets move."""

    def __init__(self, levels: Tensor, offsets: Tensor) -> None:
        self.levels, self.offsets = levels, offsets.clone()
        self.by_class = levels.t().contiguous()
        self.first, self.second = _two_highest(levels + offsets)

    def line(self, k: int) -> _Line:
        """Return what the offset of class k changes."""
        leads = self.first.indices == k
        rival = torch.where(leads, self.second.values, self.first.values)
        now = torch.where(leads, self.second.indices, self.first.indices)
        margin, rows = (rival - self.by_class[k]).sort(stable=True)
        now, finite = _pick(now, rows), margin.isfinite()
        if finite.all():
            return _Line(k, margin, rows, now, rows[:0], now[:0])
        others = torch.where(margin < 0, k, now)[~finite]
        return _Line(k, margin[finite], rows[finite], now[finite], rows[~finite], others)

    def move(self, k: int, offset: float) -> None:
        """Set the offset of class k."""
        self.offsets[k] = offset
        (v1, i1), (v2, i2) = self.first, self.second
        anew = ((i1 == k) | (i2 == k)).nonzero().squeeze(1)
        level = self.by_class[k] + offset
        ahead = (level > v1) | ((level == v1) & (k < i1))  # the first of equals leads
        closer = ~ahead & ((level > v2) | ((level == v2) & (k < i2)))
        v2, i2 = (
            torch.where(ahead, v1, torch.where(closer, level, v2)),
            torch.where(ahead, i1, i2.masked_fill(closer, k)),
        )
        v1, i1 = torch.where(ahead, level, v1), i1.masked_fill(ahead, k)
        # Where class k was among the two already, a third may come up.
        for (value, index), found in zip(
            ((v1, i1), (v2, i2)), _two_highest(self.levels[anew] + self.offsets), strict=True
        ):
            value[anew], index[anew] = found.values, found.indices
        self.first, self.second = _Highest(v1, i1), _Highest(v2, i2)


class _Highest(NamedTuple):
    values: Tensor
    indices: Tensor


def _two_highest(levels: Tensor) -> tuple[_Highest, _Highest]:
    """Return the highest of each row and the next, the first of equals; ``levels`` is written to."""
    first = _Highest(*levels.max(1))
    return first, _Highest(*levels.scatter_(1, first.indices.unsqueeze(1), -torch.inf).max(1))


# Values along a line: by incremental counts


def _count(line: _Line, sums: IncrementalObjective, weight: Tensor) -> tuple[float, int]:
    """Return the best value along a line, and how many rows have turned there."""
    k, d, n = line.k, len(sums.gain), len(line.rows)
    decided, rows = (
        (line.now, line.rows)
        if n == len(weight)
        else (torch.cat((line.now, line.others)), torch.cat((line.rows, line.fixed)))
    )
    leaving, w = _pick(sums.gain.view(-1), decided * len(weight) + rows), _pick(weight, rows)
    gained, predicted = torch.bincount(decided, leaving, d), torch.bincount(decided, w, d)
    leaving, w = leaving[:n], w[:n]
    # Class k gains what turns to it; the counts of each other class fall by what leaves it, in the order of margins.
    own = decided.new_tensor([k]).expand(n + 1)
    gains = gained[k] + _cumulated(_pick(sums.gain[k], line.rows)), predicted[k] + _cumulated(w)
    here, start = sums.terms(*gains, own), sums.terms(gained, predicted, torch.arange(d))
    group, by = line.now.sort(stable=True)
    opens = torch.cat((group.new_ones(1, dtype=torch.bool), group[1:] != group[:-1]))
    which = opens.cumsum(0) - 1
    gains_left = _remaining(_pick(gained, group), _pick(leaving, by), opens, which)
    weight_left = _remaining(_pick(predicted, group), _pick(w, by), opens, which)
    curve = []
    for term, before, at_k in zip(sums.terms(gains_left, weight_left, group), start, here, strict=True):
        previous = torch.where(opens, _pick(before, group), term.roll(1))
        change = torch.empty_like(term).scatter_(0, by, term - previous)
        curve.append(before.sum() - before[k] + _cumulated(change) + at_k)
    values = torch.where(line.may_stop(), sums.values(tuple(curve)), -torch.inf)
    best = values.max()
    # The first of those that rounding alone tells apart.
    return best.item(), int((values >= best - 1e-13).to(torch.uint8).argmax())


def _pick(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index)  # several times as fast as x[index]


def _cumulated(x: Tensor) -> Tensor:
    return torch.cat((x.new_zeros(1), x.cumsum(0)))


def _remaining(total: Tensor, parts: Tensor, opens: Tensor, which: Tensor) -> Tensor:
    """Return what is left of each group's total after each of its parts has left; ``opens`` marks a group's first."""
    gone = parts.cumsum(0)
    left = total - (gone - _pick((gone - parts)[opens], which))
    # What is nothing but rounding is nothing. Gains may be negative, and have no least, as counts have.
    return left.masked_fill(left.abs() <= 1e-12 * total.abs(), 0.0)


# Values along a line: by whole matrices


def _look_at_matrices(line: _Line, wy: Tensor, value: Callable[[Confusion], Tensor]) -> tuple[float, int]:
    """Return the same by the matrices at many places; when more than fit, the best stretch is looked into again."""
    d, n = wy.shape[1], len(line.rows)
    fixed, steps = _matrix(wy[line.fixed], line.others).matrix, max(16, _CELLS // d**2)
    turning, stop = wy[line.rows], line.may_stop()
    low, high = 0, n  # how many have turned, at least and at most
    best, place = -torch.inf, 0
    while True:
        marks = torch.linspace(low, high, min(steps, high - low + 1), dtype=torch.float64).round().long()
        values = value(Confusion(fixed + _turned(turning, line.now, marks, line.k)))
        values = torch.where(stop[marks] & ~values.isnan(), values, -torch.inf)
        i = int(values.argmax())
        if values[i] > best:
            best, place = values[i].item(), int(marks[i])
        if len(marks) == high - low + 1 or high - low < 2:
            return best, place
        i = int(torch.searchsorted(marks, place))
        low, high = int(marks[max(i - 1, 0)]), int(marks[min(i + 1, len(marks) - 1)])


def _turned(wy: Tensor, now: Tensor, marks: Tensor, k: int) -> Tensor:
    """Return the matrices ``(marks, d, d)`` when the first marks[i] samples have turned to class k."""
    d = wy.shape[1]
    part = torch.searchsorted(marks, torch.arange(len(now)), right=True)  # sample j has turned at marks[part:]
    leaves = wy.new_zeros((len(marks) + 1) * d, d)
    leaves.index_add_(0, part * d + now, wy)
    gone = leaves.view(-1, d, d).cumsum(0)[:-1].transpose(1, 2)  # rows true, columns the class left
    matrices = _matrix(wy, now).matrix - gone
    matrices[:, :, k] += gone.sum(2)
    return matrices


def _matrix(wy: Tensor, decided: Tensor) -> Confusion:
    d = wy.shape[1]
    return Confusion(wy.new_zeros(d, d).index_add_(0, decided, wy).t())
