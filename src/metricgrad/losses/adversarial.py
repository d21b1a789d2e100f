"""``AdversarialLoss``: AP-Perf, the metric's value in a game against an adversary who labels the batch.

``games`` solves the game; here it is set up from the metric's own values, and turned into a loss.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from metricgrad.counts import cells
from metricgrad.losses.labelling import LabellingLoss, Worst
from metricgrad.losses.zero_sum import Game, solve
from metricgrad.metrics import Metric, name_of

KEPT = 8
"""So many tables are kept, one per number of samples seen."""


class AdversarialLoss(LabellingLoss):
    r"""AP-Perf: the worst labelling that the scores allow, where the predictor may answer by chance [fathony2020].

    $L = \max_Q \min_P E[1 - \text{metric}(\hat y, \check y)] + \sum_i (E\check y_i - y_i) z_i / n$ with the predictor's
    labels $\hat y \sim P$ and the adversary's $\check y \sim Q$: convex in the logits, consistent for the metric, with
    the subgradient $(E\check y_i - y_i)/n$. The 1/n is that of ``StructuredHingeLoss``; the paper and its package have
    none, so their loss of the scores z is this one of n·z, minus 1.

    ``metric``: any that is α + γ·TP for given numbers of predicted and of actual positives, such as F-beta, accuracy,
    precision, recall, MCC, kappa or informedness; that is read off its values, and others (Jaccard, G-mean) are
    refused. As in the paper, predicting nothing (everything) where nothing (everything) is positive scores 1. ``tol``:
    how far the value may be below the true one, which is proven for each batch; ``loss.gap`` is the largest gap of the
    last call. ``task``, ``weight``, masks and ``process_group`` are as in ``StructuredHingeLoss``.

    >>> loss = AdversarialLoss("f1", tol=1e-6)
    >>> loss(torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1, 0, 1, 0]))
    tensor(0.2273)
    """

    def __init__(self, metric: str | Metric, *, tol: float = 0.01, **options: Any) -> None:
        super().__init__(metric, **options)
        if not tol > 0:
            raise ValueError(f"tol: expected a number above 0, got {tol!r}")
        self.tol, self.gap = tol, 0.0
        self._tables: dict[int, tuple[Tensor, Tensor, float]] = {}
        payoffs(self.metric, 16)  # refuses, before any data is seen

    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss, a scalar."""
        self.gap = 0.0
        loss: Tensor = super().forward(logits, targets, weight, mask)
        if self.gap > self.tol:
            warnings.warn(f"AdversarialLoss: gap {self.gap:.2g} above tol={self.tol:g}; raise tol", stacklevel=2)
        return loss

    def worst(self, scores: Tensor, labels: Tensor, column: int) -> Worst:
        """Return the adversary's mean labelling."""
        n = len(scores)
        y = labels.to(torch.float64)
        if not n or scores.isnan().any():
            return Worst(y.new_tensor(torch.nan if n else 0.0), torch.zeros_like(y))
        alpha, gamma, spread = self._payoffs(n)
        alpha, gamma = (table[..., min(column, table.shape[-1] - 1)].to(scores.device) for table in (alpha, gamma))
        z = scores.to(torch.float64) / n
        # A score beyond all that the metric can change decides a label; how far beyond does not matter to the game.
        limit = 1.05 * spread
        bounded = z.clamp(-limit, limit)
        solution = solve(Game(bounded, alpha, gamma), self.tol)
        q = solution.marginals.clamp(0, 1).masked_fill(z > limit, 1.0).masked_fill(z < -limit, 0.0)
        self.gap = max(self.gap, solution.gap)
        return Worst(1 + solution.value - q @ bounded, (q - y) / n)

    def _payoffs(self, n: int) -> tuple[Tensor, Tensor, float]:
        if n not in self._tables:
            if len(self._tables) >= KEPT:
                self._tables.clear()
            self._tables[n] = payoffs(self.metric, n)
        return self._tables[n]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tables": {}}

    def extra_repr(self) -> str:
        """Return the metric and the options."""
        return f"{super().extra_repr()}, tol={self.tol:g}"


def payoffs(metric: Metric, n: int) -> tuple[Tensor, Tensor, float]:
    """Return α and γ, ``(n + 1, n + 1, 1)``, by predicted (first) and actual positives, and the range of the metric.

    The third axis is longer for a metric with parameters per class. α + γ·TP is taken from the smallest and the largest
    possible TP and checked in between, at up to 16 places (so everywhere for n ≤ 34).
    """
    sizes = torch.arange(n + 1, dtype=torch.float64)
    predicted, actual = sizes.reshape(-1, 1, 1), sizes.reshape(-1, 1)
    least, most = (predicted + actual - n).clamp(min=0), torch.minimum(predicted, actual)

    def value(tp: Tensor) -> Tensor:
        return metric(cells(tp, predicted - tp, actual, n - actual)) + torch.zeros_like(tp)

    low, high = value(least), value(most)
    width = most - least
    gamma = (high - low) / width.clamp(min=1)
    alpha = low - gamma * least
    if not alpha.isfinite().all():
        raise ValueError(f"metric: {name_of(metric)} is not finite for all counts; divide with mg.metrics.ratio")
    for place in range(1, 17):
        tp = least + (width * place / 17).round()
        wrong = (value(tp) - alpha - gamma * tp).abs() > 1e-9
        if wrong.any():
            row, column, _ = wrong.nonzero()[0].tolist()
            raise ValueError(
                f"metric: {name_of(metric)} is not α + γ·TP, as the game needs (seen at {row} predicted and {column} "
                f"actual positives of {n}); use StructuredHingeLoss or MetricLoss"
            )
    alpha[0, 0] = alpha[n, n] = 1.0
    gamma[0, 0] = gamma[n, n] = 0.0
    everything = torch.cat((alpha + gamma * least, alpha + gamma * most))
    return alpha, gamma, float(everything.max() - everything.min())
