"""``AdversarialLoss``: AP-Perf, the metric's value in a game against an adversary who labels the batch.

``zero_sum_game`` solves the game; this module builds it from the values of the metric and turns it into a loss.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.counts import cells
from metricgrad.core.metrics import Metric, name_of
from metricgrad.losses.structured_hinge_loss import LabellingLoss
from metricgrad.losses.worst_labelling import WorstLabelling
from metricgrad.losses.zero_sum_game import Game, solve_game

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.processes import ProcessGroup

MAX_CACHED_TABLES = 8
"""The largest number of payoff tables kept, one per batch size."""


class AdversarialLoss(LabellingLoss):
    r"""AP-Perf: the worst labelling that the scores allow, against a randomised predictor [fathony2020].

    $L = \max_Q \min_P E[1 - \text{metric}(\hat y, \check y)] + \sum_i (E\check y_i - y_i) z_i / n$ with the predictor's
    labels $\hat y \sim P$ and the adversary's $\check y \sim Q$: convex in the logits, consistent for the metric, with
    the subgradient $(E\check y_i - y_i)/n$. The 1/n is that of ``StructuredHingeLoss``; the paper and its package have
    none, so their loss of the scores z is this one of n·z, minus 1. As in the paper, predicting nothing (everything)
    where nothing (everything) is positive scores 1.

    For "multilabel" each class has a loss of its own and the mean is returned. Targets are 0 or 1. Weights must be
    whole numbers, and a sample of weight 2 occurs twice.

    Parameters
    ----------
    metric : str or callable
        A name or a function of ``Counts`` that is α + γ·TP for given numbers of predicted and of actual positives:
        F-beta, accuracy, precision, recall, MCC, kappa, informedness. That is checked at its values; others (Jaccard,
        G-mean) are refused.
    tol : float, default 0.01
        How far the value may be below the true one, which is proven for each batch; ``loss.gap`` is the largest gap of
        the last call.
    task : {'binary', 'multilabel'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. None is "binary" if the shapes leave no other reading, else an error.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If the metric is not of that form, or for ``task="multiclass"``.

    See Also
    --------
    StructuredHingeLoss : For any metric of ``Counts``, with a deterministic predictor.

    Notes
    -----
    Labellings are not sums: with ``process_group`` the processes gather their rows, and each does the work for all.

    Examples
    --------
    >>> loss = AdversarialLoss("f1", tol=1e-6)
    >>> loss(torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1, 0, 1, 0]))
    tensor(0.2273)
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        tol: float = 0.01,
        task: Task | None = None,
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__(metric, task=task, ignore_index=ignore_index, process_group=process_group)
        if not tol > 0:
            raise ValueError(f"tol: expected a number above 0, got {tol!r}")
        self.tol = tol
        self.gap = 0.0
        self._tables: dict[int, tuple[Tensor, Tensor, float]] = {}
        compute_payoffs(self.metric, 16)  # checks the metric before any data is seen

    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss, the mean over the classes; ``gap`` is set to how far it may be below the true value.

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

        Warns
        -----
        UserWarning
            If the gap is above ``tol``.
        """
        self.gap = 0.0
        loss: Tensor = super().forward(logits, targets, weight, mask)
        if self.gap > self.tol:
            warnings.warn(f"AdversarialLoss: gap {self.gap:.2g} above tol={self.tol:g}; raise tol", stacklevel=2)
        return loss

    def find_worst(self, scores: Tensor, labels: Tensor, column: int) -> WorstLabelling:
        """Return the adversary's mean labelling.

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
        WorstLabelling
            The loss without its part in the scores, and the derivative with respect to the scores.
        """
        n = len(scores)
        y = labels.to(torch.float64)
        if not n or scores.isnan().any():
            return WorstLabelling(y.new_tensor(torch.nan if n else 0.0), torch.zeros_like(y))
        alphas, gammas, metric_range = self._get_payoffs(n)
        alpha = alphas[..., min(column, alphas.shape[-1] - 1)].to(scores.device)
        gamma = gammas[..., min(column, gammas.shape[-1] - 1)].to(scores.device)
        z = scores.to(torch.float64) / n
        # A score beyond the range of the metric decides the label, and the game does not depend on how far beyond.
        limit = 1.05 * metric_range
        bounded = z.clamp(-limit, limit)
        solution = solve_game(Game(bounded, alpha, gamma), self.tol)
        marginals = solution.marginals.clamp(0, 1).masked_fill(z > limit, 1.0).masked_fill(z < -limit, 0.0)
        self.gap = max(self.gap, solution.gap)
        loss = 1 + solution.value - marginals @ bounded
        return WorstLabelling(loss, (marginals - y) / n)

    def _get_payoffs(self, n: int) -> tuple[Tensor, Tensor, float]:
        if n not in self._tables:
            if len(self._tables) >= MAX_CACHED_TABLES:
                self._tables.clear()
            self._tables[n] = compute_payoffs(self.metric, n)
        return self._tables[n]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_tables": {}}

    def extra_repr(self) -> str:
        """Return the metric and the options, for ``repr``.

        Returns
        -------
        str
            Comma-separated.
        """
        return f"{super().extra_repr()}, tol={self.tol:g}"


def compute_payoffs(metric: Metric, n: int) -> tuple[Tensor, Tensor, float]:
    """Return α and γ by the numbers of predicted and actual positives, ``(n + 1, n + 1, 1)``, and the metric's range.

    The third axis is longer for a metric with parameters per class. α + γ·TP is taken from the smallest and the largest
    possible TP and checked in between, at up to 16 places (so everywhere for n ≤ 34).
    """
    sizes = torch.arange(n + 1, dtype=torch.float64)
    predicted = sizes.reshape(-1, 1, 1)
    actual = sizes.reshape(-1, 1)
    least_tp = (predicted + actual - n).clamp(min=0)
    most_tp = torch.minimum(predicted, actual)

    def compute_metric(tp: Tensor) -> Tensor:
        return metric(cells(tp, predicted - tp, actual, n - actual)) + torch.zeros_like(tp)

    low = compute_metric(least_tp)
    high = compute_metric(most_tp)
    width = most_tp - least_tp
    gamma = (high - low) / width.clamp(min=1)
    alpha = low - gamma * least_tp
    if not alpha.isfinite().all():
        raise ValueError(f"metric: {name_of(metric)} is not finite for all counts; divide with mg.metrics.ratio")
    for place in range(1, 17):
        tp = least_tp + (width * place / 17).round()
        is_wrong = (compute_metric(tp) - alpha - gamma * tp).abs() > 1e-9
        if is_wrong.any():
            row, column, _ = is_wrong.nonzero()[0].tolist()
            raise ValueError(
                f"metric: {name_of(metric)} is not α + γ·TP, as the game needs (seen at {row} predicted and {column} "
                f"actual positives of {n}); use StructuredHingeLoss or MetricLoss"
            )
    # Where both players label nothing, or everything, they agree, and the metric is 1.
    alpha[0, 0] = alpha[n, n] = 1.0
    gamma[0, 0] = gamma[n, n] = 0.0
    values = torch.cat((alpha + gamma * least_tp, alpha + gamma * most_tp))
    return alpha, gamma, float(values.max() - values.min())
