"""Prevalence: the base rate of rows without labels, from their scores, and whether a base rate is all that changed.

If only the base rate changed, the scores of each class are distributed as before, and the new scores are a mixture of
these distributions: the shares of the mixture are what is estimated. If no mixture fits, something else has changed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from metricgrad.core.batch import check_task
from metricgrad.core.curves import last_of_equals
from metricgrad.core.inputs import as_scored_batch, as_tensor, whole_number
from metricgrad.core.option_hints import explain_unknown
from metricgrad.core.sparse import is_sparse
from metricgrad.decisions.class_scores import ClassScores, ScoreCounts, bin_scores, check_can_reweight
from metricgrad.decisions.resampling import check_replicates, weigh_cells

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

Method = Literal["em", "matching", "pacc"]
"""How the shares of a mixture are estimated."""

MOST_NEW_ROWS = 4000
"""The most new rows of a problem of several classes that are used: more would hardly make the estimate more certain."""
LEAST_P_VALUE = 0.01
"""Below this p-value more than the base rate has changed, unless the difference is as small as the next two say."""
LEAST_PROBABILITY = 1e-6
"""Probabilities are limited to [this, 1 − this] before logarithms are taken."""
LEAST_DIFFERENCE = 0.1
"""A smaller difference between new rows and the nearest mixture, in the share of rows below any score, is ignored."""
LEAST_MOVE = 0.01
"""So is a smaller mean difference of probabilities: a model that was fitted again differs a little from those of folds.
"""
CALIBRATION_SPREAD = 0.1
"""By how much the factor that calibrates the logits of probabilities is expected to differ from 1, as a standard
deviation: few rows move it little. This and ``PRIOR_ROWS`` were chosen by the sets of benchmarks/prevalence.py that
choose."""
SCALE_SPREAD = 10.0
"""The same for scores on an unknown scale, in units of their standard deviation."""
PRIOR_ROWS = 5.0
"""This many rows at the previous base rate are added to the new rows by "em", so that a few new rows hardly move it."""
_NUMBERS_AT_ONCE = 1 << 22


class NotBaseRateShiftError(ValueError):
    """No mixture of the classes' scores fits the new scores: more than the base rate has changed."""


@dataclass(frozen=True)
class Prevalence:
    """An estimated base rate and where it may lie.

    Of a binary problem each is a number, the share of positives. Of several classes it is a tuple with the share of
    each class, of several labels with the share of positives of each.

    Attributes
    ----------
    value : float or tuple of float
        The estimate, above 0 and below 1: at least half a row, so that a rule can be tuned for it.
    low : float or tuple of float
        The lower end of its bootstrap interval.
    high : float or tuple of float
        The upper end of its bootstrap interval.
    before : float or tuple of float
        The base rate of the labelled rows.
    p_value : float or tuple of float
        Of the hypothesis that a base rate is all that changed; one per label. 1 where the difference is too small to be
        noticed: the share of rows below each score differs by less than 0.1, or probabilities by 0.01 in the mean.
    method : {'em', 'matching', 'pacc'}
        How it was estimated.

    """

    value: Any
    low: Any
    high: Any
    before: Any
    p_value: Any
    method: Method

    @property
    def has_moved(self) -> bool:
        """Whether the base rate before lies outside the interval: of one class or label at least."""
        befores, lows, highs = (x if isinstance(x, tuple) else (x,) for x in (self.before, self.low, self.high))
        return any(not low <= one <= high for one, low, high in zip(befores, lows, highs, strict=True))

    def __str__(self) -> str:
        if isinstance(self.value, tuple):
            rates = zip(self.value, self.low, self.high, strict=True)
            return ", ".join(f"{value:.2%} ({low:.2%} to {high:.2%})" for value, low, high in rates)
        return f"{self.value:.2%} ({self.low:.2%} to {self.high:.2%})"


@explain_unknown
def estimate_prevalence(
    scores: Any,
    targets: Any,
    new_scores: Any,
    *,
    task: Task | None = None,
    method: Method = "em",
    weight: Any = None,
    confidence: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
    check_shift: bool = True,
) -> Prevalence:
    """Estimate the base rate of rows without labels from their scores.

    It is assumed that the base rate is all that changed: within each class the scores are distributed as before. That
    is tested, and refused where it does not fit. The scores must be of the same model, of rows that it was not trained
    on.

    Parameters
    ----------
    scores : Tensor or array-like
        Scores of labelled rows on any scale, for example out-of-fold; higher means more likely positive. Shape as for
        ``task``.
    targets : Tensor or array-like
        Their true labels. Shape as for ``task``.
    new_scores : Tensor or array-like
        Scores of the rows without labels, with the same columns.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores ``(N,)``. "multilabel": scores and targets ``(N, K)``; the base rate of each label.
        "multiclass": scores ``(N, K)`` with class indices ``(N,)``; the share of each class. None is "binary" if the
        shapes leave no other reading, else an error.
    method : {'em', 'matching', 'pacc'}, default 'em'
        "em": the most likely shares, given probabilities that are calibrated on the labelled rows [saerens2002].
        "matching": the shares for which the distribution functions of the classes, mixed, are nearest to those of the
        new rows [forman2005]. "pacc": the shares for which the mean calibrated probabilities are [bella2010].
    weight : array-like, optional
        Per labelled row.
    confidence : float, default 0.95
        The confidence of the interval.
    replicates : int, default 200
        The number of bootstrap resamples of labelled and new rows, and of simulations of the test.
    seed : int, default 0
        Random seed of the resamples.
    check_shift : bool, default True
        Raise an error if the new scores fit no base rate: p-value below 0.01, and a difference that can be noticed.
        False returns the best fit anyway.

    Returns
    -------
    Prevalence
        ``value`` with ``low`` and ``high``, and ``p_value`` of the hypothesis that only the base rate changed.

    Raises
    ------
    ValueError
        If a class has no rows, columns do not fit, scores are NaN, or more than the base rate has changed.

    Examples
    --------
    >>> generator = torch.Generator().manual_seed(0)
    >>> targets = torch.arange(2000) % 4 == 0
    >>> scores = torch.randn(2000, generator=generator) + 2 * targets
    >>> new_scores = torch.randn(2000, generator=generator) + 2 * (torch.arange(2000) % 20 == 0)
    >>> rate = estimate_prevalence(scores, targets, new_scores)
    >>> rate.low < 0.05 < rate.high
    True

    """
    check_method(method)
    check_replicates(replicates, confidence)
    if is_sparse(scores) or is_sparse(new_scores):
        raise ValueError("scores: expected dense ones to estimate a base rate, got sparse ones")
    batch = as_scored_batch(task, scores, targets, weight).on_host()
    if not batch.rows:
        raise ValueError("scores: expected at least one labelled row, got none")
    known_task = check_task(task)
    check_can_reweight(batch, known_task)
    class_scores = ClassScores.of(batch, known_task, seed)
    new = as_new_scores(new_scores, known_task, batch.classes)
    return estimate_from_class_scores(class_scores, new, known_task, method, confidence, replicates, seed, check_shift)


def check_method(method: str) -> None:
    """Raise if there is no such method."""
    known = get_args(Method)
    if method not in known:
        raise ValueError(f"method: expected one of {', '.join(map(repr, known))}, got {method!r}")


def as_new_scores(new_scores: Any, task: Task, classes: int) -> Tensor:
    """Return scores of rows without labels as ``(N, K)`` in float64, or raise."""
    found = as_tensor("new_scores", new_scores).double()
    if task == "binary" and (found.dim() == 1 or (found.dim() == 2 and found.shape[1] == 1)):
        found = found.reshape(-1, 1)
    if found.dim() != 2 or found.shape[1] != classes:
        expected = "(N,)" if task == "binary" else f"(N, {classes})"
        raise ValueError(f"new_scores: expected shape {expected}, columns as of scores, got {tuple(found.shape)}")
    if not len(found):
        raise ValueError("new_scores: expected at least one row, got none")
    if bad := int(found.isnan().sum()):
        raise ValueError(f"new_scores: expected numbers, got {bad} NaN; leave these rows out")
    return found


def estimate_from_class_scores(
    class_scores: ClassScores,
    new_scores: Tensor,
    task: Task,
    method: Method = "em",
    confidence: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
    check_shift: bool = True,
) -> Prevalence:
    """Return the base rate of new scores ``(N, K)``, given the class-wise scores of labelled rows."""
    whole_number("replicates", replicates, 1)
    generator = torch.Generator().manual_seed(seed)
    fits: list[_Fit] = []
    several_classes = task == "multiclass"
    for k, table in enumerate(class_scores.tables):
        of_label = f" of label {k}" if task == "multilabel" else ""
        if not bool((table.counts.sum(0) > 0).all()):  # a run folder may hold scores without any rows of a class
            raise ValueError(f"targets: expected rows of every class{of_label}, got a class without rows")
        own_scores = new_scores if several_classes else new_scores[:, k : k + 1]
        fits.append(_fit_mixture(table, own_scores, method, confidence, replicates, generator))
        if check_shift and fits[-1].p_value < LEAST_P_VALUE:
            raise NotBaseRateShiftError(
                f"new_scores: no base rate fits those{of_label} (p = {fits[-1].p_value:.2g}), so more than it has "
                "changed; tune on labelled rows, or pass check_shift=False to go on"
            )
    if task == "multiclass":
        only = fits[0]
        value, low, high = (tuple(x.tolist()) for x in (only.shares, only.low, only.high))
        return Prevalence(value, low, high, class_scores.prevalence, only.p_value, method)
    values = tuple(fit.shares[1].item() for fit in fits)
    lows = tuple(fit.low[1].item() for fit in fits)
    highs = tuple(fit.high[1].item() for fit in fits)
    p_values = tuple(fit.p_value for fit in fits)
    if task == "binary":
        return Prevalence(values[0], lows[0], highs[0], class_scores.prevalence[0], p_values[0], method)
    return Prevalence(values, lows, highs, class_scores.prevalence, p_values, method)


class _Fit(NamedTuple):
    """The shares of the classes in new rows with their interval, ``(d,)`` each, and how well their mixture fits."""

    shares: Tensor
    low: Tensor
    high: Tensor
    p_value: float


def _fit_mixture(
    table: ScoreCounts,
    new_scores: Tensor,
    method: Method,
    confidence: float,
    replicates: int,
    generator: torch.Generator,
) -> _Fit:
    """Return the shares of the classes in new rows, of one decision."""
    new_rows = len(new_scores)
    new = _summarise_new(new_scores, generator)
    levels = _find_levels(table.scores, new.scores)
    counts = table.counts[None]
    shares = estimate_shares(levels, counts, new.counts[None, :, 0], method, PRIOR_ROWS)[0]
    # Half a row at least, so that a rule can be tuned for the estimate.
    shares = shares.clamp(min=0.5 / new_rows)
    shares = shares / shares.sum()
    classes = counts.shape[2]
    drawn: list[Tensor] = []
    for some in _split_replicates(replicates, (len(levels.known) + len(levels.new)) * classes):
        drawn_counts = weigh_cells(table.counts.flatten(), some, generator).view(some, -1, classes)
        drawn_new = weigh_cells(new.counts[:, 0], some, generator)
        drawn.append(estimate_shares(levels, drawn_counts, drawn_new, method))
    tail = (1 - confidence) / 2
    low, high = torch.cat(drawn).quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64), dim=0)
    # If no resample finds a class, it may still exist: the upper end is at least the limit for 0 of n rows.
    high = high.clamp(min=min(1.0, -math.log(tail) / new_rows))
    p_value = _test_mixture(levels, counts, new.counts[None, :, 0], replicates, generator)
    return _Fit(shares, torch.minimum(low, shares), torch.maximum(high, shares), p_value)


def _summarise_new(scores: Tensor, generator: torch.Generator) -> ScoreCounts:
    """Return new scores in bins; of several classes some random rows."""
    counts = scores.new_ones(len(scores), 1)
    if scores.shape[1] == 1:
        return bin_scores(ScoreCounts(scores, counts))
    if len(scores) > MOST_NEW_ROWS:
        rows = torch.randperm(len(scores), generator=generator)[:MOST_NEW_ROWS]
        return ScoreCounts(scores[rows], counts[:MOST_NEW_ROWS] * len(scores) / MOST_NEW_ROWS)
    return ScoreCounts(scores, counts)


def _split_replicates(replicates: int, size: int) -> list[int]:
    """Return numbers of replicates that fit into memory together, each of so many numbers."""
    at_once = max(1, _NUMBERS_AT_ONCE // size)
    whole = [at_once] * (replicates // at_once)
    rest = replicates % at_once
    return [*whole, rest] if rest else whole


# Levels: scores as logits up to a linear function, one per class


class _Levels(NamedTuple):
    """Scores as levels ``(n, d)``, of which a calibrated softmax is a probability.

    ``spread``: by how much the factor that calibrates them is expected to differ from 1.
    """

    known: Tensor
    new: Tensor
    spread: float


def _find_levels(scores: Tensor, new_scores: Tensor) -> _Levels:
    """Return scores of known and of new rows as levels."""
    known = len(scores)
    both = torch.cat((scores, new_scores))
    if both.shape[1] > 1:
        are_probabilities = _are_distributions(both, known)
        levels = both.clamp(min=LEAST_PROBABILITY).log() if are_probabilities else _replace_infinite(both)
    else:
        are_probabilities = _are_probabilities(both, known)
        level = both.logit(LEAST_PROBABILITY) if are_probabilities else _replace_infinite(both)
        levels = torch.cat((torch.zeros_like(level), level), 1)
    if are_probabilities:
        return _Levels(levels[:known], levels[known:], CALIBRATION_SPREAD)
    # The scale of the scores is unknown: standardise them.
    columns = levels[:known, -scores.shape[1] :]
    centre = torch.zeros(levels.shape[1], dtype=levels.dtype)
    centre[-scores.shape[1] :] = columns.mean()
    levels = (levels - centre) / columns.std(correction=0).clamp(min=1e-12)
    return _Levels(levels[:known], levels[known:], SCALE_SPREAD)


def _are_probabilities(scores: Tensor, known: int) -> bool:
    """Return whether scores are in [0, 1]; refuse new ones that are not where the known ones are."""
    inside = (scores >= 0) & (scores <= 1)
    if bool(inside[:known].all()) and not bool(inside.all()):
        low, high = scores[known:].min().item(), scores[known:].max().item()
        raise ValueError(f"new_scores: expected numbers in [0, 1], as scores are, got {low:g} to {high:g}")
    return bool(inside.all())


def _are_distributions(scores: Tensor, known: int) -> bool:
    """Return whether rows sum to 1; refuse new ones that do not where the known ones do."""
    sums_to_one = (scores >= 0).all(1) & ((scores.sum(1) - 1).abs() <= 1e-3)
    if bool(sums_to_one[:known].all()) and not bool(sums_to_one.all()):
        raise ValueError("new_scores: expected rows that sum to 1, as those of scores do, got others")
    return bool(sums_to_one.all())


def _replace_infinite(levels: Tensor) -> Tensor:
    """Return levels with the largest finite ones in the place of infinite ones."""
    finite = levels[levels.isfinite()]
    if len(finite) == levels.numel():
        return levels
    if not len(finite):
        return levels.nan_to_num(0.0, 1.0, -1.0)
    return levels.nan_to_num(0.0, finite.max().item(), finite.min().item())


# Calibrated probabilities


def calibrate(levels: Tensor, counts: Tensor, spread: float, steps: int = 30) -> Tensor:
    """Return the factor of the levels and the offset of each class but the first that are most likely, ``(R, d)``.

    ``levels``: ``(B, d)``. ``counts``: ``(R, B, d)``, of each class in each replicate. ``spread``: the standard
    deviation of the factor around 1 before the rows are seen, by which it stays finite where scores tell the classes
    apart. Newton's method.
    """
    classes = levels.shape[1]
    weight = counts.sum(2)
    precision = levels.new_full((classes,), 1e-6)
    precision[0] = 1 / spread**2
    centre = levels.new_zeros(classes)
    centre[0] = 1.0
    found = centre.expand(len(counts), -1)

    def evaluate(calibration: Tensor) -> Tensor:
        log_likelihood = (counts * _calibrate_levels(levels, calibration).log_softmax(2)).sum((1, 2))
        return log_likelihood - (precision * (calibration - centre).square()).sum(1) / 2

    for _ in range(steps):
        p = predict_calibrated(levels, found)
        excess = counts - weight.unsqueeze(2) * p
        gradient = torch.cat(((excess * levels).sum((1, 2)).unsqueeze(1), excess.sum(1)[:, 1:]), 1)
        gradient = gradient - precision * (found - centre)
        mean_level = (p * levels).sum(2)
        variance = (p * levels**2).sum(2) - mean_level**2
        curvature = levels.new_empty(len(counts), classes, classes)
        curvature[:, 0, 0] = (weight * variance).sum(1)
        across = (weight.unsqueeze(2) * p * (levels - mean_level.unsqueeze(2))).sum(1)[:, 1:]
        curvature[:, 0, 1:] = across
        curvature[:, 1:, 0] = across
        weighted = weight.unsqueeze(2) * p[:, :, 1:]
        curvature[:, 1:, 1:] = torch.diag_embed(weighted.sum(1)) - weighted.transpose(1, 2) @ p[:, :, 1:]
        curvature.diagonal(dim1=1, dim2=2).add_(precision)
        step = torch.linalg.solve(curvature, gradient)
        value = evaluate(found)
        for _ in range(20):  # far from the optimum a whole step may be too long
            worse = evaluate(found + step) < value - 1e-9 * value.abs()
            if not worse.any():
                break
            step = torch.where(worse.unsqueeze(1), step / 2, step)
        found = found + step
        if step.abs().max() < 1e-5:
            break
    return found


def predict_calibrated(levels: Tensor, calibration: Tensor) -> Tensor:
    """Return the probabilities ``(R, n, d)`` that calibrations ``(R, d)`` give to levels ``(n, d)``."""
    return _calibrate_levels(levels, calibration).softmax(2)


def _calibrate_levels(levels: Tensor, calibration: Tensor) -> Tensor:
    factor = calibration[:, :1]
    offsets = torch.cat((torch.zeros_like(factor), calibration[:, 1:]), 1)
    return factor.unsqueeze(2) * levels + offsets.unsqueeze(1)


# Estimators


def estimate_shares(
    levels: _Levels, counts: Tensor, new_counts: Tensor, method: Method, prior_rows: float = 0.0
) -> Tensor:
    """Return the shares of the classes in new rows, ``(R, d)``.

    ``counts``: ``(R, B, d)``, how much known rows count for each class; ``new_counts``: ``(R, C)``, of new rows.
    ``prior_rows``: for "em", how many rows at the shares of the known ones are added.
    """
    if method == "matching":
        points = torch.cat((levels.known, levels.new))
        return _match_distributions(points, *_join_rows(counts, new_counts)).shares
    calibration = calibrate(levels.known, counts, levels.spread)
    new_p = predict_calibrated(levels.new, calibration)
    if method == "pacc":
        return _match_means(predict_calibrated(levels.known, calibration), counts, new_p, new_counts)
    in_class = counts.sum(1)
    shares_before = in_class / in_class.sum(1, keepdim=True)
    return find_likeliest_shares(new_p / shares_before.unsqueeze(1), new_counts, prior_rows * shares_before)


def find_likeliest_shares(likelihoods: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
    """Return the shares ``(R, d)`` of a mixture that are most likely: where expectation–maximisation ends.

    ``likelihoods``: ``(R, n, d)``, of each row in each class, up to a factor per row. ``weight``: ``(R, n)``.
    ``prior``: ``(R, d)``, rows of each class that are known beside these.
    """
    likelihoods = likelihoods / likelihoods.amax(2, keepdim=True).clamp(min=1e-300)
    if likelihoods.shape[2] == 2:
        return _bisect_share(likelihoods, weight, prior)
    shares = likelihoods.new_full((len(likelihoods), likelihoods.shape[2]), 1 / likelihoods.shape[2])
    for _ in range(500):
        before = shares
        parts = shares.unsqueeze(1) * likelihoods
        posterior = parts / parts.sum(2, keepdim=True).clamp(min=1e-300)
        in_class = (weight.unsqueeze(2) * posterior).sum(1) + prior
        shares = in_class / in_class.sum(1, keepdim=True)
        if (shares - before).abs().max() < 1e-6:
            break
    return shares


def _bisect_share(likelihoods: Tensor, weight: Tensor, prior: Tensor) -> Tensor:
    """Return the most likely shares of two classes: the log-likelihood is concave, so its slope has one zero."""
    difference = likelihoods[:, :, 1] - likelihoods[:, :, 0]
    low = likelihoods.new_zeros(len(likelihoods), 1)
    high = torch.ones_like(low)
    for _ in range(30):
        middle = (low + high) / 2
        mixture = likelihoods[:, :, 0] + middle * difference
        slope = (weight * difference / mixture.clamp(min=1e-300)).sum(1, keepdim=True)
        slope = slope + prior[:, 1:] / middle - prior[:, :1] / (1 - middle)
        low = torch.where(slope > 0, middle, low)
        high = torch.where(slope > 0, high, middle)
    share = (low + high) / 2
    return torch.cat((1 - share, share), 1)


def _match_means(p: Tensor, counts: Tensor, new_p: Tensor, new_counts: Tensor) -> Tensor:
    """Return the shares for which the mean probabilities of the classes, mixed, are nearest to those of new rows."""
    in_class = counts / counts.sum(1, keepdim=True)
    means = p.transpose(1, 2) @ in_class  # (R, d, d): of each probability, in each class
    wanted = (new_p * (new_counts / new_counts.sum(1, keepdim=True)).unsqueeze(2)).sum(1)
    return _solve_least_squares(means, wanted)


def _solve_least_squares(matrix: Tensor, wanted: Tensor) -> Tensor:
    """Return the shares ``(R, d)`` that minimise |matrix · shares − wanted|², for ``(R, m, d)`` and ``(R, m)``."""
    gram = matrix.transpose(1, 2) @ matrix
    moment = (matrix.transpose(1, 2) @ wanted.unsqueeze(2)).squeeze(2)
    if gram.shape[1] == 2:
        # On the line (1 - x, x) it is a parabola.
        curvature = gram[:, 0, 0] - 2 * gram[:, 0, 1] + gram[:, 1, 1]
        slope = moment[:, 1] - moment[:, 0] + gram[:, 0, 0] - gram[:, 0, 1]
        share = torch.where(curvature > 0, slope / curvature, 0.5).clamp(0, 1)
        return torch.stack((1 - share, share), 1)
    # Accelerated projected gradients [beck2009]: the matrices are small.
    shares = torch.full_like(moment, 1 / moment.shape[1])
    ahead, momentum = shares, 1.0
    largest = torch.linalg.matrix_norm(gram, 2).clamp(min=1e-300).unsqueeze(1)
    for _ in range(500):
        gradient = (gram @ ahead.unsqueeze(2)).squeeze(2) - moment
        found = _project_onto_shares(ahead - gradient / largest)
        next_momentum = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        ahead = found + (momentum - 1) / next_momentum * (found - shares)
        shares, momentum = found, next_momentum
    return shares


def _project_onto_shares(x: Tensor) -> Tensor:
    """Return the nearest vectors ``(R, d)`` that are at least 0 and sum to 1."""
    descending = x.sort(dim=1, descending=True).values
    excess = descending.cumsum(1) - 1
    number = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
    kept = (descending * number > excess).sum(1, keepdim=True)
    return (x - excess.gather(1, kept - 1) / kept).clamp(min=0)


# The nearest mixture, and whether it fits


class _Match(NamedTuple):
    """The shares of the nearest mixture, ``(R, d)``, and how far new rows are from it, ``(R,)``."""

    shares: Tensor
    distance: Tensor


def _join_rows(counts: Tensor, new_counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return counts of known rows and of new ones, both over the known and then the new rows."""
    none_known = counts.new_zeros(len(counts), new_counts.shape[1], counts.shape[2])
    none_new = new_counts.new_zeros(len(counts), counts.shape[1])
    return torch.cat((counts, none_known), 1), torch.cat((none_new, new_counts), 1)


def _match_distributions(levels: Tensor, counts: Tensor, new_counts: Tensor) -> _Match:
    """Return the mixture of the classes whose distribution functions are nearest to those of new rows.

    ``levels``: ``(n, d)``; ``counts``: ``(R, n, d)``; ``new_counts``: ``(R, n)``. The distance is that of Anderson and
    Darling: in each column of the scores, the squared difference over its variance. It is averaged over the rows of all
    classes alike, so that a rare class is looked at too.
    """
    rows_of_class = counts.sum(1, keepdim=True)
    new_rows = new_counts.sum(1, keepdim=True)
    of_class, of_new, mass = _cumulate_columns(levels, counts / rows_of_class, new_counts / new_rows)
    shares = counts.new_full((len(counts), counts.shape[2]), 1 / counts.shape[2])
    for _ in range(3):  # the variance depends on the shares
        mixture = (of_class @ shares.unsqueeze(2)).squeeze(2)
        known_variance = (shares.square() / rows_of_class.squeeze(1)).unsqueeze(1) * of_class * (1 - of_class)
        variance = mixture * (1 - mixture) / new_rows + known_variance.sum(2)
        weight = torch.where(variance > 1e-12, mass / variance.clamp(min=1e-12), 0.0)
        root = weight.sqrt()
        shares = _solve_least_squares(of_class * root.unsqueeze(2), of_new * root)
    difference = of_new - (of_class @ shares.unsqueeze(2)).squeeze(2)
    return _Match(shares, (weight * difference.square()).sum(1))


def _cumulate_columns(levels: Tensor, counts: Tensor, new_counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the distribution functions of classes and of new rows at all levels, and how much each level counts.

    Column after column of the levels; two classes have one column.
    """
    of_class: list[Tensor] = []
    of_new: list[Tensor] = []
    mass: list[Tensor] = []
    columns = [1] if levels.shape[1] == 2 else list(range(levels.shape[1]))
    for k in columns:
        sorted_levels, order = levels[:, k].sort()
        last = last_of_equals(sorted_levels)
        of_class.append(counts[:, order].cumsum(1)[:, last])
        of_new.append(new_counts[:, order].cumsum(1)[:, last])
        mean = of_class[-1].mean(2)
        mass.append(torch.cat((mean[:, :1], mean.diff(dim=1)), 1))
    return torch.cat(of_class, 1), torch.cat(of_new, 1), torch.cat(mass, 1)


def _test_mixture(
    levels: _Levels, counts: Tensor, new_counts: Tensor, replicates: int, generator: torch.Generator
) -> float:
    """Return the p-value of the hypothesis that new rows are a mixture of the classes; 1 if the difference is small.

    The distance of new rows to the nearest mixture is compared with that of rows drawn from this mixture: known rows
    are drawn again within their classes, new ones from the mixture, and the nearest mixture is found again.
    """
    calibration = calibrate(levels.known, counts, levels.spread)
    known_p = predict_calibrated(levels.known, calibration)[0]
    new_p = predict_calibrated(levels.new, calibration)[0]
    points = torch.cat((known_p, new_p))
    found = _match_distributions(points, *_join_rows(counts, new_counts))
    if not _is_noticeable(points, *_join_rows(counts, new_counts), found.shares):
        return 1.0
    rows_of_class = counts.sum(1, keepdim=True)
    expected = (counts / rows_of_class) @ found.shares.unsqueeze(2) * new_counts.sum()
    larger = 0
    columns = 1 if points.shape[1] == 2 else points.shape[1]
    for some in _split_replicates(replicates, counts.numel() * columns):
        drawn = torch.poisson(counts.expand(some, -1, -1), generator)
        drawn = torch.where(drawn.sum(1, keepdim=True) > 0, drawn, counts)
        drawn_new = torch.poisson(expected[:, :, 0].expand(some, -1), generator)
        again = _match_distributions(known_p, drawn, drawn_new)
        larger += int((again.distance >= found.distance).sum())
    return (1 + larger) / (1 + replicates)


def _is_noticeable(p: Tensor, counts: Tensor, new_counts: Tensor, shares: Tensor) -> bool:
    """Return whether new rows differ from a mixture by more than a model that is fitted again does.

    ``p``: ``(n, d)``, probabilities of known and new rows.
    """
    known = counts / counts.sum(1, keepdim=True) @ shares.unsqueeze(2)
    difference = new_counts / new_counts.sum(1, keepdim=True) - known.squeeze(2)
    columns = [1] if p.shape[1] == 2 else list(range(p.shape[1]))
    for k in columns:
        sorted_p, order = p[:, k].sort()
        last = last_of_equals(sorted_p)
        below = difference[0, order].cumsum(0)[last].abs()
        steps = torch.cat((sorted_p[last].diff(), sorted_p.new_zeros(1)))
        mean_move = (below * steps).sum()
        if below.max() >= LEAST_DIFFERENCE and mean_move >= LEAST_MOVE:
            return True
    return False
