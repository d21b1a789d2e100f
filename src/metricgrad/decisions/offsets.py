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

MOST_SWEEPS = 20
"""The most passes over all offsets."""
MOST_SORTED_MARGINS = 1 << 25
"""The most margins to sort from one start: large data get fewer passes, but at least ``FEWEST_SWEEPS``."""
FEWEST_SWEEPS = 2
MOST_CLASSES_BY_MATRIX = 128
"""Up to this number of classes, a metric that cannot be counted incrementally is evaluated on whole matrices."""
POOLED_STRENGTHS = sorted((i / 20 for i in range(-20, 41)), key=abs)
"""The strengths that pooled offsets are tried at, the weakest first; 1 undoes the classes' shares completely."""
_MATRIX_CELLS_AT_ONCE = 1 << 18


def tune_offsets(levels: Tensor, labels: Tensor, weight: Tensor, objective: Objective, pooled: bool = False) -> Tensor:
    """Return the offsets ``(d,)`` of the best value found.

    ``levels``: ``(N, d)`` log-probabilities or logits; ``labels``: ``(N, d)`` one-hot or soft; ``weight``: ``(N,)``.
    Starts from no offsets and from those that undo the classes' shares, and keeps the better end. ``pooled``: all
    offsets are one multiple of those that undo the shares.
    """
    weighted_labels = labels * weight.unsqueeze(1)
    search = _OffsetSearch(levels, weighted_labels, objective)
    class_weight = weighted_labels.sum(0)
    undo_shares = torch.where(class_weight > 0, -(class_weight / class_weight.sum()).log(), 0.0)
    no_offsets = torch.zeros_like(undo_shares)
    if pooled:
        undo_shares = undo_shares - undo_shares[0]
        candidates = (strength * undo_shares for strength in POOLED_STRENGTHS)
        return max(candidates, key=search.evaluate_offsets)  # the weakest of equals
    ends = [no_offsets]
    for start in (no_offsets, undo_shares - undo_shares.mean()):
        end = search.climb_from(start)
        ends.append(end - end[0])  # the same rule up to rounding, so that it is evaluated again below
    return max(ends, key=search.evaluate_offsets)


def can_search_offsets(objective: Objective, classes: int) -> bool:
    """Return whether the offsets of this number of classes can be searched in reasonable time."""
    if classes <= MOST_CLASSES_BY_MATRIX:
        return True
    return make_incremental(objective, torch.eye(classes, dtype=torch.float64)) is not None


def limit_sweeps(size: int) -> int:
    """Return the number of passes over all offsets, at most, for N × d levels."""
    affordable = MOST_SORTED_MARGINS // max(size, 1)
    return min(MOST_SWEEPS, max(FEWEST_SWEEPS, affordable))


class _OffsetSearch:
    """Coordinate ascent on given rows."""

    def __init__(self, levels: Tensor, weighted_labels: Tensor, objective: Objective) -> None:
        self.levels = levels
        self.weighted_labels = weighted_labels
        self.objective = objective
        self.weight = weighted_labels.sum(1)
        self.incremental = self._make_incremental()

    def _make_incremental(self) -> IncrementalObjective | None:
        """Return the incremental form if it agrees with the objective itself, which a metric of users' own may not."""
        incremental = make_incremental(self.objective, self.weighted_labels)
        if incremental is None:
            return None
        decided = self.levels.argmax(1)
        fast = incremental.value_of_decisions(decided, self.weight)
        plain = self._evaluate_decisions(decided)
        return incremental if torch.allclose(fast, plain, rtol=1e-9, atol=1e-9) else None

    def evaluate_offsets(self, offsets: Tensor) -> float:
        """Return the objective under these offsets."""
        return self._evaluate_decisions((self.levels + offsets).argmax(1)).item()

    def _evaluate_decisions(self, decided: Tensor) -> Tensor:
        return self._evaluate_matrix(_count_matrix(self.weighted_labels, decided)).nan_to_num(-torch.inf)

    def _evaluate_matrix(self, matrix: Confusion) -> Tensor:
        return self.objective.value(matrix if self.objective.of_matrix else matrix.counts())

    def climb_from(self, start: Tensor) -> Tensor:
        """Return the offsets at which no single one can be improved, or the sweeps are over."""
        best = self.evaluate_offsets(start)
        leaders = _Leaders(self.levels, start)
        for _ in range(limit_sweeps(self.levels.numel())):
            before = best
            for k in range(len(start)):
                value, offset = self._find_best_offset(leaders, k)
                if value > best + 1e-12:
                    best = value
                    leaders.move_offset(k, offset)
            if best == before:
                break
        return leaders.offsets

    def _find_best_offset(self, leaders: _Leaders, k: int) -> tuple[float, float]:
        """Return the best value along one offset, and that offset."""
        line = leaders.make_line(k)
        margins = line.margins
        if not len(margins):
            return -torch.inf, 0.0
        if self.incremental is None:
            best, turned = _search_by_matrices(line, self.weighted_labels, self._evaluate_matrix)
        else:
            best, turned = _search_incrementally(line, self.incremental, self.weight)
        if turned == 0:
            return best, margins[0].item() - 1
        if turned == len(margins):
            return best, margins[-1].item() + 1
        return best, (margins[turned - 1] / 2 + margins[turned] / 2).item()


class _Line(NamedTuple):
    """What the offset of class k changes: ``rows``, by the ``margins`` at which they turn from class ``now`` to k.

    ``fixed_rows`` are decided for ``fixed_classes``, whatever the offset: a certain class has an infinite margin.
    """

    k: int
    margins: Tensor
    rows: Tensor
    now: Tensor
    fixed_rows: Tensor
    fixed_classes: Tensor

    def may_stop(self) -> Tensor:
        """Tell where an offset may stand, when 0, 1, … rows have turned: not between equal margins.

        Margins that rounding alone tells apart are equal.
        """
        end = self.margins.new_ones(1, dtype=torch.bool)
        apart = self.margins.diff() > 1e-12 * (1 + self.margins[1:].abs())
        return torch.cat((end, apart, end))


class _Highest(NamedTuple):
    """The highest level of each row, and its class; or the second highest."""

    values: Tensor
    classes: Tensor


class _Leaders:
    """The two highest levels of each row under the present offsets, kept up to date as offsets move."""

    def __init__(self, levels: Tensor, offsets: Tensor) -> None:
        self.levels = levels
        self.offsets = offsets.clone()
        self.levels_of_class = levels.t().contiguous()
        self.first, self.second = _find_two_highest(levels + offsets)

    def make_line(self, k: int) -> _Line:
        """Return what the offset of class k changes."""
        k_leads = self.first.classes == k
        rival_level = torch.where(k_leads, self.second.values, self.first.values)
        rival = torch.where(k_leads, self.second.classes, self.first.classes)
        margins, rows = (rival_level - self.levels_of_class[k]).sort(stable=True)
        now = _pick(rival, rows)
        finite = margins.isfinite()
        if finite.all():
            return _Line(k, margins, rows, now, rows[:0], now[:0])
        fixed_classes = torch.where(margins < 0, k, now)[~finite]
        return _Line(k, margins[finite], rows[finite], now[finite], rows[~finite], fixed_classes)

    def move_offset(self, k: int, offset: float) -> None:
        """Set the offset of class k."""
        self.offsets[k] = offset
        first_value, first_class = self.first
        second_value, second_class = self.second
        had_k = ((first_class == k) | (second_class == k)).nonzero().squeeze(1)
        level = self.levels_of_class[k] + offset
        # Of equal levels the class of the lower index wins.
        becomes_first = (level > first_value) | ((level == first_value) & (k < first_class))
        beats_second = (level > second_value) | ((level == second_value) & (k < second_class))
        becomes_second = ~becomes_first & beats_second
        new_second_value = torch.where(becomes_first, first_value, torch.where(becomes_second, level, second_value))
        new_second_class = torch.where(becomes_first, first_class, second_class.masked_fill(becomes_second, k))
        self.first = _Highest(torch.where(becomes_first, level, first_value), first_class.masked_fill(becomes_first, k))
        self.second = _Highest(new_second_value, new_second_class)
        # Where class k was one of the two highest, a third class may be among them now: search these rows anew.
        again_first, again_second = _find_two_highest(self.levels[had_k] + self.offsets)
        self.first.values[had_k] = again_first.values
        self.first.classes[had_k] = again_first.classes
        self.second.values[had_k] = again_second.values
        self.second.classes[had_k] = again_second.classes


def _find_two_highest(levels: Tensor) -> tuple[_Highest, _Highest]:
    """Return the highest of each row and the next, the first of equals; ``levels`` is written to."""
    first = _Highest(*levels.max(1))
    others = levels.scatter_(1, first.classes.unsqueeze(1), -torch.inf)
    return first, _Highest(*others.max(1))


# Values along a line: by incremental counts


def _search_incrementally(line: _Line, objective: IncrementalObjective, weight: Tensor) -> tuple[float, int]:
    """Return the best value along a line, and how many rows have turned there."""
    k = line.k
    classes = len(objective.gain)
    turning = len(line.rows)
    decided = line.now
    rows = line.rows
    if turning < len(weight):
        decided = torch.cat((line.now, line.fixed_classes))
        rows = torch.cat((line.rows, line.fixed_rows))
    # The counts of every class before any row turns to class k.
    gain_of_rows = _pick(objective.gain.view(-1), decided * len(weight) + rows)
    weight_of_rows = _pick(weight, rows)
    gained = torch.bincount(decided, gain_of_rows, classes)
    predicted = torch.bincount(decided, weight_of_rows, classes)
    terms_at_start = objective.terms(gained, predicted, torch.arange(classes))
    # The counts of class k grow by the rows that turn to it, in the order of margins.
    leaving_gain = gain_of_rows[:turning]
    leaving_weight = weight_of_rows[:turning]
    gained_by_k = gained[k] + _cumulate(_pick(objective.gain[k], line.rows))
    predicted_k = predicted[k] + _cumulate(leaving_weight)
    terms_of_k = objective.terms(gained_by_k, predicted_k, decided.new_tensor([k]).expand(turning + 1))
    # The counts of each other class fall by the rows that leave it: class by class, then in the order of margins.
    left_class, by_class = line.now.sort(stable=True)
    opens = torch.cat((left_class.new_ones(1, dtype=torch.bool), left_class[1:] != left_class[:-1]))
    group = opens.cumsum(0) - 1
    remaining_gain = _subtract_parts(_pick(gained, left_class), _pick(leaving_gain, by_class), opens, group)
    remaining_weight = _subtract_parts(_pick(predicted, left_class), _pick(leaving_weight, by_class), opens, group)
    terms_of_others = objective.terms(remaining_gain, remaining_weight, left_class)
    sums = []
    for of_others, at_start, of_k in zip(terms_of_others, terms_at_start, terms_of_k, strict=True):
        previous = torch.where(opens, _pick(at_start, left_class), of_others.roll(1))
        changes = torch.empty_like(of_others).scatter_(0, by_class, of_others - previous)
        sums.append(at_start.sum() - at_start[k] + _cumulate(changes) + of_k)
    values = torch.where(line.may_stop(), objective.values(tuple(sums)), -torch.inf)
    best = values.max()
    # The first of the values that only rounding tells apart.
    turned = int((values >= best - 1e-13).to(torch.uint8).argmax())
    return best.item(), turned


def _pick(x: Tensor, index: Tensor) -> Tensor:
    return x.index_select(0, index)  # several times as fast as x[index]


def _cumulate(x: Tensor) -> Tensor:
    """Return running sums, starting with 0."""
    return torch.cat((x.new_zeros(1), x.cumsum(0)))


def _subtract_parts(total: Tensor, parts: Tensor, opens: Tensor, group: Tensor) -> Tensor:
    """Return what is left of each group's total after each of its parts has left; ``opens`` marks a group's first."""
    sums = parts.cumsum(0)
    before_group = _pick((sums - parts)[opens], group)
    left = total - (sums - before_group)
    # A rest that is only rounding is set to 0. ``counts.subtract`` cannot do this, since gains may be negative.
    return left.masked_fill(left.abs() <= 1e-12 * total.abs(), 0.0)


# Values along a line: by whole matrices


def _search_by_matrices(
    line: _Line, weighted_labels: Tensor, evaluate: Callable[[Confusion], Tensor]
) -> tuple[float, int]:
    """Return the best value along a line, and how many rows have turned there, from the matrices at many places.

    When there are more places than fit, some are looked at, and then again those around the best.
    """
    matrices_at_once = max(16, _MATRIX_CELLS_AT_ONCE // weighted_labels.shape[1] ** 2)
    fixed = _count_matrix(weighted_labels[line.fixed_rows], line.fixed_classes).matrix
    turning = weighted_labels[line.rows]
    may_stop = line.may_stop()
    # of the rows that have turned
    fewest = 0
    most = len(line.rows)
    best = -torch.inf
    best_turned = 0
    while True:
        places = most - fewest + 1
        marks = torch.linspace(fewest, most, min(matrices_at_once, places), dtype=torch.float64).round().long()
        values = evaluate(Confusion(fixed + _count_matrices(turning, line.now, marks, line.k)))
        values = torch.where(may_stop[marks] & ~values.isnan(), values, -torch.inf)
        highest = int(values.argmax())
        if values[highest] > best:
            best = values[highest].item()
            best_turned = int(marks[highest])
        if len(marks) == places or most - fewest < 2:
            return best, best_turned
        around = int(torch.searchsorted(marks, best_turned))
        fewest = int(marks[max(around - 1, 0)])
        most = int(marks[min(around + 1, len(marks) - 1)])


def _count_matrices(weighted_labels: Tensor, now: Tensor, marks: Tensor, k: int) -> Tensor:
    """Return the matrices ``(marks, d, d)`` when the first marks[i] samples have turned to class k."""
    classes = weighted_labels.shape[1]
    first_mark = torch.searchsorted(marks, torch.arange(len(now)), right=True)  # from which on a sample has turned
    leaving = weighted_labels.new_zeros((len(marks) + 1) * classes, classes)
    leaving.index_add_(0, first_mark * classes + now, weighted_labels)
    gone = leaving.view(-1, classes, classes).cumsum(0)[:-1].transpose(1, 2)  # rows true, columns the class left
    matrices = _count_matrix(weighted_labels, now).matrix - gone
    matrices[:, :, k] += gone.sum(2)
    return matrices


def _count_matrix(weighted_labels: Tensor, decided: Tensor) -> Confusion:
    classes = weighted_labels.shape[1]
    return Confusion(weighted_labels.new_zeros(classes, classes).index_add_(0, decided, weighted_labels).t())
