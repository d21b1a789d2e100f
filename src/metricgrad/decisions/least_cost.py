"""The cheapest decision as a rule: scores to probabilities to expected costs, tuned on out-of-fold scores.

Scores are calibrated first, if left-out rows are predicted better then. The rule is 0.5 on the probabilities that
``Cost.adjust`` has moved; another threshold there is kept only if it lowers the cost of left-out rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from metricgrad.core.costs import CELLS, Cost
from metricgrad.core.inputs import as_tensor
from metricgrad.decisions.calibration import (
    KINDS_TO_TRY,
    SCALINGS_TO_TRY,
    Calibration,
    Scaling,
    calibrate_out_of_fold,
    compute_log_loss,
    compute_log_loss_of_classes,
    fit_calibration,
    fit_scaling,
    scale_out_of_fold,
    split_rows,
)
from metricgrad.decisions.rare_labels import FEWEST_TO_TUNE
from metricgrad.decisions.rules import Rule, Threshold
from metricgrad.decisions.threshold_tuning import TuningResult, tune_threshold

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

FOLDS = 5
"""The number of folds of the tuning rows, on which a calibration is chosen and another threshold than 0.5 is tried."""

PER_ROW = ""
"""Stands for a price that comes with the rows."""


@dataclass(frozen=True)
class LeastCost(Rule):
    """Predict positive where that is expected to cost less, with costs that differ by row.

    The costs come with the rows: ``rule.decide_rows(scores, costs)``.

    Parameters
    ----------
    prices : tuple
        What a false positive, a false negative, a true positive and a true negative cost: a number, the name of the
        column that has it, or "" where it comes with the rows.
    calibration : Calibration, optional
        From scores to probabilities; by default they are probabilities.
    threshold : float, default 0.5
        On the probabilities that ``Cost.adjust`` has moved; 0.5 is where both decisions are expected to cost the same.

    Examples
    --------
    >>> LeastCost((5.0, "", 0.0, 0.0)).decide_rows(torch.tensor([0.1, 0.1]), Cost(fp=5.0, fn=[100.0, 20.0]))
    tensor([ True, False])

    """

    prices: tuple[float | str, ...]
    calibration: Calibration = Calibration()  # noqa: RUF009 (frozen)
    threshold: float = 0.5
    tasks: ClassVar[tuple[Task, ...]] = ("binary",)

    def __post_init__(self) -> None:
        if len(self.prices) != len(CELLS) or not all(isinstance(price, float | int | str) for price in self.prices):
            raise ValueError(f"prices: expected four, of fp, fn, tp and tn, got {self.prices!r}")

    def decide(self, scores: Tensor) -> Tensor:
        raise ValueError(
            "costs: expected those of the rows, since they differ by row, got none; pass costs=Cost(fp=..., fn=...)"
        )

    def decide_rows(self, scores: Tensor, costs: Cost) -> Tensor:
        """Return the decisions about rows with their costs.

        Parameters
        ----------
        scores : Tensor
            ``(N,)``.
        costs : Cost
            Of these rows.

        Returns
        -------
        Tensor
            Bools ``(N,)``.

        """
        return self.adjust(scores, costs) >= self.threshold

    def adjust(self, scores: Tensor, costs: Cost) -> Tensor:
        """Return calibrated probabilities, moved by the costs, on which ``threshold`` decides.

        Parameters
        ----------
        scores : Tensor
            ``(N,)``.
        costs : Cost
            Of these rows.

        Returns
        -------
        Tensor
            ``(N,)`` in float64.

        """
        return costs.adjust(self.calibration(scores))  # type: ignore[no-any-return]

    @property
    def columns(self) -> list[str]:
        """The names of the columns that have costs."""
        return list(dict.fromkeys(price for price in self.prices if isinstance(price, str) and price != PER_ROW))

    @property
    def needs_costs(self) -> bool:
        """Whether a cost comes with the rows, in no column."""
        return PER_ROW in self.prices

    def costs_of(self, table: Any) -> Cost:
        """Return the costs of the rows of a table that has the columns.

        Parameters
        ----------
        table : DataFrame or mapping
            Has the columns, as numbers.

        Returns
        -------
        Cost
            Of these rows.

        """
        named: dict[str, Any] = dict(zip(CELLS, self.prices, strict=True))
        return Cost(**named).of_table(table)

    @property
    def numbers(self) -> float:
        return self.threshold

    def describe(self) -> str:
        named = zip(CELLS, self.prices, strict=True)
        shown = [f"{name} {price if price != PER_ROW else 'by row'}" for name, price in named if price != 0]
        moved = "" if self.threshold == 0.5 else f", at {self.threshold:.4g} instead of 0.5"
        calibrated = "" if self.calibration.kind == "none" else f", {self.calibration.kind} calibration"
        return f"least expected cost ({', '.join(shown)}{calibrated}{moved})"


@dataclass(frozen=True)
class LeastCostOfClasses(Rule):
    """Predict the class of the least expected cost.

    Takes scores ``(N, d)`` and returns class indices ``(N,)``; of equals the first.

    Parameters
    ----------
    matrix : tuple of tuple of float
        The costs, rows true and columns predicted.
    calibration : Scaling, optional
        From scores to probabilities; by default they are probabilities.

    Examples
    --------
    >>> LeastCostOfClasses(((0.0, 1.0), (9.0, 0.0)))(torch.tensor([[0.8, 0.2], [0.95, 0.05]]))
    tensor([1, 0])

    """

    matrix: tuple[tuple[float, ...], ...]
    calibration: Scaling = Scaling()  # noqa: RUF009 (frozen)
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)

    def __post_init__(self) -> None:
        rows = as_tensor("matrix", self.matrix).double()
        if rows.dim() != 2 or rows.shape[0] != rows.shape[1] or not rows.isfinite().all():
            raise ValueError(f"matrix: expected d rows of d numbers, got shape {tuple(rows.shape)}")
        object.__setattr__(self, "matrix", tuple(tuple(row) for row in rows.tolist()))

    def decide(self, scores: Tensor) -> Tensor:
        if scores.dim() != 2 or scores.shape[1] != len(self.matrix):
            raise ValueError(f"scores: expected (N, {len(self.matrix)}), got {tuple(scores.shape)}")
        p = scores if self.calibration == Scaling() else self.calibration(scores)
        return (p @ torch.tensor(self.matrix, dtype=p.dtype, device=p.device)).argmin(1)

    def describe(self) -> str:
        kind = self.calibration.kind
        return "least expected cost" if kind == "none" else f"least expected cost ({kind} scaling)"

    def to_onnx(self, graph: Any, scores: str, classes: int) -> str:
        expected = graph.add("MatMul", self.calibration.to_onnx(graph, scores), graph.constant(self.matrix))
        return str(graph.add("ArgMin", expected, axis=1, keepdims=0))


class CostTuning(NamedTuple):
    """The cheapest rule, and how its threshold was found, on the scores that ``rule`` decides on."""

    rule: Rule
    tuning: TuningResult


def tune_cost_rule(
    cost: Cost, scores: Any, targets: Any, *, weight: Any = None, of_logits: bool = False, seed: int = 0
) -> CostTuning:
    """Return the rule of least expected cost for scores that were made out of fold.

    ``cost``: of these rows; with columns put in. A rule of costs that are the same for every row is a ``Threshold`` on
    the scores. ``of_logits``: whether the scores are logits or a decision function.
    """
    s = as_tensor("scores", scores).double()
    y = as_tensor("targets", targets)
    if cost.matrix is not None:
        return _tune_classes(cost, cost.matrix, s, y, weight, of_logits, seed)
    labels = y.double()
    w = torch.ones_like(labels) if weight is None else as_tensor("weight", weight).double()
    calibration, p, folds = _choose_calibration(s, labels, w, of_logits, seed)
    adjusted = cost.adjust(p)
    tuning = tune_threshold(cost, adjusted, y, weight=weight)
    threshold = 0.5
    if folds and _costs_less(cost, adjusted, y, w, folds):
        threshold = tuning.threshold
    else:
        value = _measure_value(cost, y, w, adjusted >= 0.5)
        tuning = replace(tuning, rule=Threshold(0.5), exact=False, plateau=None, value=value)
    prices = tuple(price if isinstance(price, float) else PER_ROW for price in cost.prices.values())
    rule = LeastCost(prices, calibration, threshold)
    if cost.rows is not None:
        return CostTuning(rule, tuning)
    plain = Threshold(_find_threshold(rule, cost, s))
    on_scores = tune_threshold(cost, s, y, weight=weight, default_threshold=0.0 if of_logits else 0.5)
    value = _measure_value(cost, y, w, plain.decide(s))
    return CostTuning(plain, replace(on_scores, rule=plain, exact=False, plateau=None, value=value))


def _choose_calibration(
    scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool, seed: int
) -> tuple[Calibration, Tensor, list[Tensor]]:
    """Return the calibration that is best on left-out rows, their probabilities by it, and the folds, none if few."""
    positives = int((targets > 0.5).sum())
    if min(positives, len(targets) - positives) < FEWEST_TO_TUNE:
        plain = Calibration(of_logits=of_logits)
        return plain, plain(scores), []
    folds = split_rows((targets > 0.5).long(), FOLDS, seed)
    tried = {kind: calibrate_out_of_fold(kind, scores, targets, weight, of_logits, folds) for kind in KINDS_TO_TRY}
    losses = {kind: compute_log_loss(p, targets, weight) for kind, p in tried.items()}
    best = min(KINDS_TO_TRY, key=lambda kind: losses[kind])
    return fit_calibration(best, scores, targets, weight, of_logits), tried[best], folds


def _costs_less(cost: Cost, adjusted: Tensor, targets: Tensor, weight: Tensor, folds: list[Tensor]) -> bool:
    """Tell whether thresholds tuned without a fold cost less on it than 0.5 does, by more than chance."""
    at_half = adjusted >= 0.5
    corrected = torch.empty_like(at_half)
    for held in folds:
        rest = ~held
        tuned = tune_threshold(cost.take(rest), adjusted[rest], targets[rest], weight=weight[rest])
        corrected[held] = adjusted[held] >= tuned.threshold
    return _lowers_cost(cost, targets, weight, at_half, corrected)


def _lowers_cost(cost: Cost, targets: Tensor, weight: Tensor, plain: Tensor, corrected: Tensor) -> bool:
    """Tell whether corrected decisions cost less than plain ones, by more than chance."""
    lowered = weight * (cost.of_rows(targets.long(), plain) - cost.of_rows(targets.long(), corrected))
    # A few rows of large amounts make the difference of two rules: it must exceed its standard error.
    standard_error = len(lowered) ** 0.5 * lowered.std()
    return bool(lowered.sum() > standard_error)


def _pay(cost: Cost, targets: Tensor, weight: Tensor, decided: Tensor) -> float:
    return (cost.of_rows(targets.long(), decided) * weight).sum().item()  # type: ignore[no-any-return]


def _measure_value(cost: Cost, targets: Tensor, weight: Tensor, decided: Tensor) -> float:
    """Return the savings of decisions about rows with weights."""
    y = targets.long()
    paid = _pay(cost, y, weight, decided)
    alike = min(_pay(cost, y, weight, torch.full_like(y, k)) for k in (0, 1))
    perfect = _pay(cost, y, weight, y)
    return (alike - paid) / (alike - perfect) if alike > perfect else 0.0


def _find_threshold(rule: LeastCost, cost: Cost, scores: Tensor) -> float:
    """Return the score from which on a rule with the same costs for every row predicts positive, by halving."""
    low, high = (scores.min().item(), scores.max().item()) if rule.calibration.of_logits else (0.0, 1.0)
    ends = rule.decide_rows(torch.tensor([low, high], dtype=torch.float64), cost).tolist()
    if ends == [True, True]:
        return low
    if ends == [False, False]:
        return torch.inf
    for _ in range(200):
        middle = (low + high) / 2
        if bool(rule.decide_rows(torch.tensor([middle], dtype=torch.float64), cost)):
            high = middle
        else:
            low = middle
    return high


# Several classes


def _tune_classes(
    cost: Cost, matrix: Tensor, scores: Tensor, targets: Tensor, weight: Any, of_logits: bool, seed: int
) -> CostTuning:
    """Return the rule of least expected cost, or offsets where these cost less on left-out rows."""
    if scores.dim() != 2:
        raise ValueError("matrix: expected several classes with it, got two; write Cost(fp=..., fn=...)")
    if scores.shape[1] != len(matrix):
        raise ValueError(f"matrix: expected costs of {scores.shape[1]} classes, got {len(matrix)}")
    w = torch.ones(len(scores), dtype=torch.float64) if weight is None else as_tensor("weight", weight).double()
    scaling, p, folds = _choose_scaling(scores, targets, w, of_logits, seed)
    rule = LeastCostOfClasses(tuple(tuple(row) for row in matrix.tolist()), scaling)
    plain = LeastCostOfClasses(rule.matrix).decide(p)
    tuning = tune_threshold(cost, scores, targets, task="multiclass", weight=weight)
    if folds:
        moved = torch.empty_like(plain)
        for held in folds:
            rest = ~held
            found = tune_threshold(cost, scores[rest], targets[rest], task="multiclass", weight=w[rest])
            moved[held] = found.rule.decide(scores[held])
        if _lowers_cost(cost, targets, w, plain, moved):
            return CostTuning(tuning.rule, tuning)
    value = cost.savings(targets, rule.decide(scores))
    return CostTuning(rule, replace(tuning, rule=rule, exact=False, value=value))


def _choose_scaling(
    scores: Tensor, targets: Tensor, weight: Tensor, of_logits: bool, seed: int
) -> tuple[Scaling, Tensor, list[Tensor]]:
    """Return the scaling that is best on left-out rows, their probabilities by it, and the folds, none if few."""
    rows_of_classes = torch.bincount(targets, minlength=scores.shape[1])
    if rows_of_classes.min() < FEWEST_TO_TUNE:
        plain = Scaling(of_logits=of_logits)
        return plain, plain(scores), []
    folds = split_rows(targets, FOLDS, seed)
    tried = {kind: scale_out_of_fold(kind, scores, targets, weight, of_logits, folds) for kind in SCALINGS_TO_TRY}
    losses = {kind: compute_log_loss_of_classes(p, targets, weight) for kind, p in tried.items()}
    best = min(SCALINGS_TO_TRY, key=lambda kind: losses[kind])
    return fit_scaling(best, scores, targets, weight, of_logits), tried[best], folds
