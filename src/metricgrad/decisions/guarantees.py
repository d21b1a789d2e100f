"""Guarantees: the thresholds at which a metric keeps its bound on new rows, with a probability over the tuning rows.

``alpha`` is the chance, over the draw of the rows, that any of the thresholds found breaks its promise. Rows are
independent, and new rows come from where they came from. Thresholds are those of a curve, from the highest down.

*A rate of one class* (recall, specificity) or of all rows (predicted positive rate). Its errors, such as positives that
are missed, are more and more as the threshold moves one way, so the last threshold with at most k errors is an order
statistic of that class's scores. The true rate of errors there exceeds ε with the probability that at most k of n
binomial trials are errors: exact, for any scores, and without a price for the number of thresholds [tong2018].

*Precision* (and negative predictive value, with both sides exchanged). Let T be the score at rank m + 1: given T, the
rows above it are independent draws from all rows above T, so their positives are binomial, with the true precision of
the rule "above T" as share. It holds for ranks that are fixed beforehand, and for ties, if the rank moves up to the end
of the tie: what is above T is not looked at. Two things make many ranks cheap:

- *Reading from the bottom.* What the labels below a rank say does not change what is known about the rows above it.
  So labels are read from the lowest score up, and the ranks that are tested begin where positives are not too rare.
- *A walk.* Let c be the threshold at which the true precision is the bound. The rows above c are right with the bound
  as probability. If rows below c are right with at most that, the number of right ones at the ranks below c is at most
  a walk of binomial steps, and the chance that this walk ever looks as good as the best rank did is computed exactly
  (``binomial.find_walk_tail``). Ranks are taken from the top: as long as that chance, among the ranks left, is at most
  alpha, the best of them and all above it are guaranteed. Every test is one of "c is above the first rank left", and
  the first false rejection is of one true hypothesis, that of the first rank below c: alpha need not be divided.

The walk takes for granted that below the threshold at which the precision falls through the bound no score has a share
of positives above the bound, as when higher scores are more likely positive. Nothing else is assumed about scores.

*Other metrics* that reward right decisions (F-beta, MCC, accuracy, …) are functions of recall, specificity and the
share of positives. Limits of all three that hold together, at all thresholds, give the least value of the metric.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.counts import Counts, cells
from metricgrad.core.metrics import functions, get, name_of
from metricgrad.core.metrics.properties import properties_of
from metricgrad.core.metrics.registry import count_values
from metricgrad.core.metrics.signatures import of_counts
from metricgrad.core.sparse import SparseBatch
from metricgrad.decisions.binomial import find_most_errors, find_tail, find_upper_limit, find_walk_tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.constraints import Constraint
    from metricgrad.core.sparse import AnyBatch

ConfidenceOver = Literal["all", "each"]
"""What a confidence is about: all classes together, or each class alone."""

_RANK_RATIO = 1.05
"""The ratio of a rank that is tested to the one before; ranks are at least one apart."""
_RARE = 0.5
"""Positives are too rare near a rank if their share is below this factor times the bound."""
_WINDOW = 0.1
_FEWEST_IN_WINDOW = 10
"""The rows below a rank say how rare positives are there: ``_WINDOW`` times the rank, and at least this many.
"""
_LIMIT_RATIO = 1.3
"""The ratio of a number of errors at which rates are limited to the one before; numbers are at least one apart."""
_PREVALENCES = 33
"""The number of shares of positives, between their limits, at which a metric is evaluated."""
_FEWEST_TO_ESTIMATE = 10
"""A precision of fewer rows than this is not used to estimate how many rows would be needed."""
_WALK_PRICE = 5
"""About how many times smaller than alpha a single rank's tail must be, to tell how many rows would be needed."""


@dataclass(frozen=True)
class Guarantee:
    """A bound that holds on new rows with a probability, and what to expect of it.

    Parameters
    ----------
    constraint : str
        The bound, such as "precision >= 0.9".
    confidence : float
        The probability, over the rows that the rule was tuned on, that the true value meets the bound.
    expected : float
        The value on these rows.
    recall : float
        The share of the positives that the rule finds on these rows.
    label : int or None, default None
        The class whose bound it is; None for a binary problem.

    Examples
    --------
    >>> print(Guarantee("precision >= 0.9", 0.95, 0.93, 0.41))
    precision >= 0.9 with 95 % confidence; expected 0.93; finds 41 % of the positives
    """

    constraint: str
    confidence: float
    expected: float
    recall: float
    label: int | None = None

    def __str__(self) -> str:
        return self.describe(())

    def describe(self, names: Sequence[str]) -> str:
        """Return the bound in words.

        Parameters
        ----------
        names : sequence of str
            Those of all classes; without them a class is a number.

        Returns
        -------
        str
            One line.

        """
        which = "" if self.label is None else f"class {names[self.label] if names else self.label}: "
        return (
            f"{which}{self.constraint} with {100 * self.confidence:g} % confidence; expected {self.expected:.2f}; "
            f"finds {100 * self.recall:.0f} % of the positives"
        )


# Which bounds can be guaranteed


class _Rate(NamedTuple):
    """A rate of errors: which cells are the errors, and which the trials."""

    errors: tuple[str, ...]
    trials: tuple[str, ...]
    errors_rise: bool  # whether errors are more as the threshold falls


_MISSED = _Rate(("fn",), ("tp", "fn"), errors_rise=False)
_FOUND = _Rate(("tp",), ("tp", "fn"), errors_rise=True)
_ALARMS = _Rate(("fp",), ("fp", "tn"), errors_rise=True)
_PASSED = _Rate(("tn",), ("fp", "tn"), errors_rise=False)
_PREDICTED = _Rate(("tp", "fp"), ("tp", "fp", "fn", "tn"), errors_rise=True)
_NOT_PREDICTED = _Rate(("fn", "tn"), ("tp", "fp", "fn", "tn"), errors_rise=False)
_RATES: dict[tuple[Metric, str], _Rate] = {
    (functions.recall, ">="): _MISSED,
    (functions.recall, "<="): _FOUND,
    (functions.specificity, ">="): _ALARMS,
    (functions.specificity, "<="): _PASSED,
    (functions.predicted_positive_rate, "<="): _PREDICTED,
    (functions.predicted_positive_rate, ">="): _NOT_PREDICTED,
}


def check_can_be_guaranteed(constraint: Constraint) -> None:
    """Refuse a constraint for which there is no guarantee, and a bound that no value or every value meets."""
    metric = get(constraint.metric)
    known = (metric, constraint.sense) in _RATES or _has_walk(constraint)
    if not known and not _has_limits(metric, constraint.sense):
        raise ValueError(
            f"subject_to: with confidence= expected a bound on recall, specificity or predicted_positive_rate, or a "
            f"least value of precision, npv or another metric that rewards right decisions (f1, mcc, accuracy, ...), "
            f"got {str(constraint)!r}"
        )
    properties = properties_of(metric)
    lowest, highest = properties.low, properties.high
    too_high = constraint.bound >= highest if constraint.sense == ">=" else constraint.bound > highest
    too_low = constraint.bound <= lowest if constraint.sense == "<=" else constraint.bound < lowest
    if too_high or too_low:
        raise ValueError(
            f"subject_to: with confidence= expected a bound between {lowest:g} and {highest:g}, which rows can prove, "
            f"got {str(constraint)!r}"
        )


def _has_walk(constraint: Constraint) -> bool:
    return constraint.sense == ">=" and get(constraint.metric) in (functions.precision, functions.npv)


def _has_limits(metric: Metric, sense: str) -> bool:
    """Tell whether limits of recall, specificity and the share of positives give the least value of a metric."""
    if sense != ">=" or not of_counts(metric) or count_values(metric):
        return False
    few = cells(*(torch.tensor([x], dtype=torch.float64) for x in (3.0, 2.0, 5.0, 7.0)))
    many = few.map(lambda cell: 100 * cell)
    is_of_shares = bool(torch.allclose(metric(few), metric(many), rtol=1e-9, atol=1e-12))
    return is_of_shares and properties_of(metric).rewards_right_decisions


# Rows that can be counted


def draw_rows_by_weight(batch: AnyBatch, seed: int = 0) -> AnyBatch:
    """Return the rows with weights of 0 and 1: each is kept with the probability weight / largest weight.

    What is kept are independent rows of the weighted distribution, which can be counted; weights cannot. The largest
    weight is taken for the largest that there is.
    """
    if batch.weight is None:
        return batch
    weight = batch.row_weight.unsqueeze(1) if isinstance(batch, SparseBatch) else batch.weight
    largest = weight.max().clamp(min=1e-300)
    random = torch.Generator().manual_seed(seed)
    places = torch.rand(weight.shape, generator=random, dtype=torch.float64).to(weight.device)
    kept = places * largest.double() < weight.double()
    return batch.reweighted(kept.to(weight.dtype))


def check_targets_can_be_counted(targets: Tensor) -> None:
    """Refuse soft labels: a row that is half positive is no draw of a positive row."""
    if targets.is_floating_point() and bool(((targets != 0) & (targets != 1)).any()):
        raise ValueError("targets: with confidence= expected 0 and 1, got soft labels, which cannot be counted")


# The thresholds that are guaranteed


def find_guaranteed(constraint: Constraint, counts: Counts, alpha: float) -> Tensor:
    """Return which thresholds keep a constraint on new rows; with probability 1 − alpha each of them does.

    ``counts``: whole numbers ``(M,)``, at every distinct threshold from the highest down. Bool ``(M,)``.
    """
    metric = get(constraint.metric)
    rate = _RATES.get((metric, constraint.sense))
    if rate is not None:
        errors, trials = _count_errors(rate, counts)
        most = find_most_errors(trials, _find_most_share(constraint), alpha)
        return errors <= most
    if metric is functions.precision:
        return _find_precise(counts.tp, counts.predicted, constraint.bound, alpha)
    if metric is functions.npv:
        # From the lowest threshold up: negatives are what is looked for.
        precise = _find_precise(counts.tn.flip(0), (counts.tn + counts.fn).flip(0), constraint.bound, alpha)
        return precise.flip(0)
    least = _find_least_values(metric, counts, alpha)
    return least >= constraint.bound


def _count_errors(rate: _Rate, counts: Counts) -> tuple[Tensor, int]:
    """Return the errors at each threshold, and the trials."""
    errors = torch.stack([getattr(counts, name) for name in rate.errors]).sum(0)
    trials = sum(float(getattr(counts, name)[0]) for name in rate.trials)
    return errors, round(trials)


def _find_most_share(constraint: Constraint) -> float:
    """Return the largest share of errors that a constraint of a rate allows."""
    least_is_bound = constraint.sense == ">="
    return 1 - constraint.bound if least_is_bound else constraint.bound


def _find_precise(right: Tensor, predicted: Tensor, bound: float, alpha: float) -> Tensor:
    """Return at which thresholds, all from the first to the last that is guaranteed, the precision keeps a bound.

    ``predicted``: how many rows are predicted at each threshold; ``right``: how many of them rightly. Neither ever
    falls from one threshold to the next.
    """
    allowed = torch.zeros(len(predicted), dtype=torch.bool, device=predicted.device)
    if bound <= 0:
        return predicted > 0
    places = _choose_places(right, predicted, bound, alpha)
    sizes = [round(float(predicted[place])) for place in places]
    hits = [round(float(right[place])) for place in places]
    tails = [find_tail(hit, size, bound) for hit, size in zip(hits, sizes, strict=True)]
    last_guaranteed: int | None = None
    first = 0
    while first < len(places):
        rest = range(first, len(places))
        best = min(rest, key=lambda i: (tails[i], -i))
        # The tail of one rank is computed first, since it is cheap: the chance of the walk is never smaller.
        if tails[best] > alpha or find_walk_tail(sizes[first:], bound, tails[best], alpha) > alpha:
            break
        last_guaranteed = places[best]
        first = best + 1
    if last_guaranteed is not None:
        allowed[: last_guaranteed + 1] = predicted[: last_guaranteed + 1] > 0
    return allowed


def _choose_places(right: Tensor, predicted: Tensor, bound: float, alpha: float) -> list[int]:
    """Return the thresholds to test, from the highest down: by ranks, and by what the labels below them say."""
    rows = round(float(predicted[-1]))
    fewest = math.ceil(math.log(alpha) / math.log(bound) - 1e-9) if bound < 1 else rows + 1
    ranks = _list_ranks(max(1, fewest), rows)
    # The last threshold with at most that many rows: the end of a tie above the rank.
    place_of_rank = [_find_place(predicted, rank) for rank in ranks]
    chosen = 1
    for i in range(len(ranks) - 2, -1, -1):
        place = place_of_rank[i]
        end = _find_place(predicted, ranks[i] + max(_FEWEST_IN_WINDOW, int(ranks[i] * _WINDOW)))
        rows_below = float(predicted[end] - predicted[place])
        right_below = float(right[end] - right[place])
        if rows_below > 0 and right_below >= _RARE * bound * rows_below:
            chosen = i + 1
            break
    places = sorted(set(place_of_rank[:chosen]))
    return [place for place in places if predicted[place] >= fewest]


def _list_ranks(first: int, rows: int) -> list[int]:
    """Return ranks, each a little more than the one before, up to all rows."""
    ranks = []
    rank = first
    while rank < rows:
        ranks.append(rank)
        rank = max(rank + 1, round(rank * _RANK_RATIO))
    return [*ranks, rows]


def _find_place(predicted: Tensor, rank: int) -> int:
    """Return the last threshold at which at most so many rows are predicted; 0 if there is none."""
    place = int(torch.searchsorted(predicted, torch.tensor(float(rank), dtype=predicted.dtype), right=True)) - 1
    return max(place, 0)


def _find_least_values(metric: Metric, counts: Counts, alpha: float) -> Tensor:
    """Return the least value of a metric at each threshold, by limits that hold together."""
    positives = round(float(counts.positives[0]))
    negatives = round(float(counts.negatives[0]))
    if not positives or not negatives:
        return torch.full_like(counts.tp, -torch.inf)
    rows = positives + negatives
    missed = _limit_errors(counts.fn, positives, alpha / 3)
    alarms = _limit_errors(counts.fp, negatives, alpha / 3)
    most_positives = find_upper_limit(positives, rows, alpha / 6)
    least_positives = 1 - find_upper_limit(negatives, rows, alpha / 6)
    shares = torch.linspace(least_positives, most_positives, _PREVALENCES, dtype=torch.float64).unsqueeze(1)
    expected_positives = (rows * shares).expand(-1, len(missed))
    expected_negatives = (rows * (1 - shares)).expand(-1, len(missed))
    tp = expected_positives * (1 - missed)
    fp = expected_negatives * alarms
    values = metric(cells(tp, fp, expected_positives, expected_negatives))
    return values.nan_to_num(-torch.inf).amin(0)


def _limit_errors(errors: Tensor, trials: int, alpha: float) -> Tensor:
    """Return upper limits of a rate of errors at each threshold, that hold at all thresholds together.

    Each of some numbers k of errors is an order statistic with an exact limit; fewer errors have that of the next k.
    """
    numbers, limits = _list_limits(trials, alpha)
    next_number = torch.searchsorted(torch.tensor(numbers, dtype=torch.float64), errors.double().cpu().contiguous())
    return torch.tensor([*limits, 1.0], dtype=torch.float64)[next_number]


@lru_cache(maxsize=256)
def _list_limits(trials: int, alpha: float) -> tuple[list[int], list[float]]:
    """Return some numbers of errors, and the upper limits of the rate at each, that hold together."""
    numbers = _list_error_numbers(trials)
    return numbers, [find_upper_limit(k, trials, alpha / len(numbers)) for k in numbers]


def _list_error_numbers(trials: int) -> list[int]:
    """Return numbers of errors, close to each other where they are few and where they are nearly all."""
    numbers = {0}
    number = 1
    while number <= trials // 2:
        numbers |= {number, trials - number}
        number = max(number + 1, round(number * _LIMIT_RATIO))
    return sorted(numbers)


# What is missing


def explain_shortage(constraint: Constraint, counts: Counts, alpha: float) -> str:
    """Return how many more rows would be needed for a guarantee, if more rows would help; in a few words."""
    metric = get(constraint.metric)
    rate = _RATES.get((metric, constraint.sense))
    if rate is not None:
        _, trials = _count_errors(rate, counts)
        needed = math.ceil(math.log(alpha) / math.log1p(-_find_most_share(constraint)))
        kinds: dict[tuple[str, ...], str] = {("tp", "fn"): "positives", ("fp", "tn"): "negatives"}
        kind = kinds.get(rate.trials, "rows")
        return f"it takes {needed} {kind}, got {trials}"
    rows = round(float(counts.total[0]))
    if not counts.positives[0] or not counts.negatives[0]:
        return f"the rows have no {'negatives' if counts.positives[0] else 'positives'}; add some"
    if _has_walk(constraint):
        of_positives = metric is functions.precision
        right = counts.tp if of_positives else counts.tn.flip(0)
        chosen = counts.predicted if of_positives else (counts.tn + counts.fn).flip(0)
        estimate, factor = _find_factor_of_walk(right, chosen, constraint.bound, alpha)
    else:
        estimate, factor = _find_factor_of_limits(constraint, metric, counts, alpha)
    name = name_of(metric)
    if factor is None:
        best = f"the best {name} on these rows is {estimate:.4g}"
        return f"{best}: more rows will not help, a better model or a lower bound may"
    more = max(1, math.ceil((factor - 1) * rows))
    digits = len(str(more)) - 2
    more = math.ceil(more / 10**digits) * 10**digits if digits > 0 else more
    return f"{name} is {estimate:.4g} on these rows, which are too few to prove it: about {more} more rows are needed"


def _find_factor_of_walk(right: Tensor, chosen: Tensor, bound: float, alpha: float) -> tuple[float, float | None]:
    """Return the estimate at the most promising threshold, and how many times as many rows would prove it."""
    many = chosen >= min(_FEWEST_TO_ESTIMATE, float(chosen[-1]))
    share = torch.where(many, right / chosen.clamp(min=1), -torch.inf)
    surplus = torch.where(many, (right - bound * chosen) / chosen.clamp(min=1).sqrt(), -torch.inf)
    place = int(surplus.argmax())
    if not surplus[place] > 0:
        return float(share.max()), None
    hits, size = float(right[place]), float(chosen[place])

    def is_enough(factor: float) -> bool:
        return find_tail(math.floor(factor * hits), math.ceil(factor * size), bound) <= alpha / _WALK_PRICE

    return hits / size, _find_least_factor(is_enough)


def _find_factor_of_limits(
    constraint: Constraint, metric: Metric, counts: Counts, alpha: float
) -> tuple[float, float | None]:
    """Return the best estimate, and how many times as many rows would prove it."""
    values = metric(counts).nan_to_num(-torch.inf)
    place = int(values.argmax())
    if not values[place] > constraint.bound:
        return float(values[place]), None

    def is_enough(factor: float) -> bool:
        more = counts.map(lambda cell: (factor * cell[place : place + 1]).round())
        return bool(_find_least_values(metric, more, alpha)[0] >= constraint.bound)

    return float(values[place]), _find_least_factor(is_enough)


def _find_least_factor(is_enough: Callable[[float], bool]) -> float | None:
    """Return about the least factor, up to a million, that is enough; None if there is none."""
    low, high = 1.0, 2.0
    while not is_enough(high):
        low, high = high, 2 * high
        if high > 1e6:
            return None
    for _ in range(8):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
