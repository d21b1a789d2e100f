"""``LinearSVMPerf``: the linear SVM of a multivariate metric, trained by cutting planes.

The objective ½‖w‖² + C·L(Xw) has a loss L that is a maximum of linear functions, one per labelling. The 1-slack
cutting-plane algorithm [joachims2006, algorithm 1] keeps those found so far, the most violated one at each w, and
solves the small quadratic program over them; its dual value bounds the optimum from below, so the gap is known.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from metricgrad.core.inputs import ArrayLike, as_tensor, as_type_of
from metricgrad.estimators.cutting_planes import Planes
from metricgrad.estimators.fitted_html import render_facts
from metricgrad.losses.structured_hinge_loss import get_count_metric
from metricgrad.losses.worst_labelling import Ranking, WorstLabelling, find_worst_labelling

if TYPE_CHECKING:
    from metricgrad.core.metrics import Metric

Oracle = Callable[[Tensor, Tensor], WorstLabelling]
"""Scores and bool labels to the worst labelling: the loss is ``worst.loss + worst.slope @ scores``."""


class LinearSVMPerf:
    r"""SVMperf: $\min_w \tfrac12\|w\|^2 + C\,L(Xw)$ with L the structured hinge of a metric [joachims2005].

    Arrays may be torch, numpy or pandas; scores and labels come back as torch for torch and as numpy otherwise. Bring
    the features to a common scale first. A sample is predicted positive if its score is above 0, which means little for
    "auroc" and "precision@<k>".

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name or a function of ``Counts`` ("accuracy" is the error rate, and the ordinary SVM), or "auroc" (the mean
        hinge over pairs), "precision@<k>" or "prbep", over labellings of k (as many as there are) positives
        [joachims2005, §4].
    C : float, default 1.0
        The weight of the loss. C = 100·c for the option ``-c c`` of the SVMperf program, whose loss is in percent; C =
        4n²·C' for the C' of [joachims2005], whose labels are ±1 and whose sums have no 1/n (w = 2n·w'); for "auroc" n
        is the number of pairs.
    bias : float, default 1.0
        The value of a feature that is appended to every sample and regularised like the others, as the program does; 0
        for none.
    tol : float, default 0.0001
        Training ends when objective / C is proven to be within ``tol`` of the optimum.
    max_iter : int, default 2000
        The largest number of cutting planes; reaching it gives a warning.

    Attributes
    ----------
    coef_ : Tensor
        The weights ``(features,)``.
    intercept_ : float
        The intercept.
    objective_ : float
        The value of the objective.
    gap_ : float
        An upper bound of how far objective / C is from the optimum.
    n_iter_ : int
        The number of cutting planes.

    Raises
    ------
    ValueError
        If ``C``, ``tol`` or ``max_iter`` is not above 0, or the metric is unknown.

    Examples
    --------
    >>> X = torch.tensor([[2.0], [1.5], [-0.5], [-2.0], [0.5]])
    >>> model = LinearSVMPerf("f1", C=100.0).fit(X, torch.tensor([1, 1, 0, 0, 0]))
    >>> model.predict(X)
    tensor([1, 1, 0, 0, 0])

    """

    coef_: Tensor
    intercept_: float
    objective_: float
    gap_: float
    n_iter_: int

    def __init__(
        self,
        metric: str | Metric = "f1",
        C: float = 1.0,
        *,
        bias: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 2000,
    ) -> None:
        self.metric = metric
        self.C = C
        self.bias = bias
        self.tol = tol
        self.max_iter = max_iter
        self._oracle()

    def _oracle(self) -> Oracle:
        """Check the parameters and return what finds the most violated constraint."""
        for name in ("C", "tol", "max_iter"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name)!r}")
        if self.metric == "auroc":
            return find_worst_pairs
        if self.metric == "prbep":
            return find_worst_of_size
        if isinstance(self.metric, str) and (match := re.fullmatch(r"precision@(\d+)", self.metric)):
            return partial(find_worst_of_size, size=int(match[1]))
        return partial(find_worst_labelling, get_count_metric(self.metric))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, as scikit-learn asks for them.

        Parameters
        ----------
        deep : bool, default True
            Has no effect; there are no nested estimators.

        Returns
        -------
        dict
            {name: value}.

        """
        return {name: getattr(self, name) for name in ("metric", "C", "bias", "tol", "max_iter")}

    def set_params(self, **params: Any) -> Self:
        """Set parameters.

        Parameters
        ----------
        **params : Any
            Parameters of the constructor, by name.

        Returns
        -------
        LinearSVMPerf
            Itself.

        Raises
        ------
        ValueError
            If a name is unknown or a value does not fit.

        """
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{name}: expected one of {', '.join(self.get_params())}")
            setattr(self, name, value)
        self._oracle()
        return self

    def __repr__(self) -> str:
        return f"LinearSVMPerf({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    def _repr_html_(self) -> str:
        fitted = {name: getattr(self, name) for name in ("n_iter_", "objective_", "gap_") if hasattr(self, name)}
        return f"<b>LinearSVMPerf</b>{render_facts({**self.get_params(), **fitted})}"

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train the model.

        Parameters
        ----------
        X : Tensor or array-like
            Finite numbers ``(n, features)``, as torch, numpy or pandas.
        y : Tensor or array-like
            Labels 0 or 1, ``(n,)``, both of which must occur.

        Returns
        -------
        LinearSVMPerf
            Itself.

        Raises
        ------
        ValueError
            If shapes do not fit, or a class is missing.

        """
        oracle = self._oracle()
        x = _features(X)
        labels = as_tensor("y", y).double().cpu()
        if self.bias:
            x = torch.cat((x, x.new_full((len(x), 1), self.bias)), 1)
        if labels.shape != x.shape[:1] or not ((labels == 0) | (labels == 1)).all():
            raise ValueError(f"y: expected {len(x)} labels 0 or 1, got shape {tuple(labels.shape)}")
        positive = labels == 1
        if positive.all() or not positive.any():
            raise ValueError(f"y: expected both classes, got {int(positive.sum())} positives of {len(x)}")
        planes = Planes(x.shape[1], self.C)
        best = torch.inf
        lead = x.new_zeros(x.shape[1])
        w = lead
        for step in range(self.max_iter):
            self.n_iter_ = step + 1
            scores = x @ w
            worst = oracle(scores, positive)
            loss = float(worst.loss + worst.slope @ scores)
            objective = 0.5 * float(w @ w) + self.C * max(loss, 0.0)
            if objective < best:
                best = objective
                lead = w
            gap = (best - planes.value) / self.C
            if gap <= self.tol:
                break
            w = planes.add(float(worst.loss), worst.slope @ x)
        else:
            warnings.warn(
                f"LinearSVMPerf: gap {gap:.2g} after max_iter={self.max_iter} planes, above tol={self.tol:g}; "
                "raise max_iter, or lower C",
                stacklevel=2,
            )
        self.gap_ = max(gap, 0.0)
        self.objective_ = best
        self.coef_ = lead[:-1] if self.bias else lead
        self.intercept_ = float(lead[-1]) * self.bias if self.bias else 0.0
        return self

    def decision_function(self, X: ArrayLike) -> Any:
        """Return the scores.

        Parameters
        ----------
        X : Tensor or array-like
            Finite numbers ``(n, features)``, as torch, numpy or pandas.

        Returns
        -------
        Tensor or ndarray
            ``(n,)``.

        Raises
        ------
        ValueError
            If the model is not fitted, or the number of features differs.

        """
        if not hasattr(self, "coef_"):
            raise ValueError("LinearSVMPerf: expected a fitted model; call fit first")
        x = _features(X)
        if x.shape[1] != len(self.coef_):
            raise ValueError(f"X: expected {len(self.coef_)} features, got {x.shape[1]}")
        scores = x @ self.coef_ + self.intercept_
        return as_type_of(X, scores.to(X.device) if isinstance(X, Tensor) else scores)

    def predict(self, X: ArrayLike) -> Any:
        """Return the labels: 1 where the score is above 0.

        Parameters
        ----------
        X : Tensor or array-like
            Finite numbers ``(n, features)``, as torch, numpy or pandas.

        Returns
        -------
        Tensor or ndarray
            Labels 0 or 1, ``(n,)``.

        """
        labels = (torch.as_tensor(self.decision_function(X)) > 0).long()
        return as_type_of(X, labels)


def _features(X: ArrayLike) -> Tensor:
    x = as_tensor("X", X).double().cpu()
    if x.dim() != 2 or not x.isfinite().all():
        raise ValueError(f"X: expected finite numbers (n, features), got shape {tuple(x.shape)}")
    return x


def find_worst_of_size(scores: Tensor, labels: Tensor, size: int | None = None) -> WorstLabelling:
    """Return the worst labelling of ``size`` positives, as many as there are if None [joachims2005, §4.2]."""
    positives = int(labels.sum())
    size = positives if size is None else size
    if not 0 < size <= len(labels):
        raise ValueError(f"metric: precision@{size} needs as many samples, got {len(labels)}")
    ranking = Ranking(scores, labels)
    hits = torch.arange(max(0, size - len(labels) + positives), min(positives, size) + 1)
    losses = 1 - hits.to(torch.float64) / size
    best = int((losses + ranking.gains[0][hits] + ranking.gains[1][size - hits]).argmax())
    return WorstLabelling(losses[best], ranking.slope(int(hits[best]), size - int(hits[best])))


def find_worst_pairs(scores: Tensor, labels: Tensor) -> WorstLabelling:
    """Return the worst order of all pairs: the mean over (positive, negative) of max(0, 1 − z₊ + z₋), by sorting."""
    hits = scores[labels]
    alarms = scores[~labels]
    # A pair is swapped if that costs less than the 1 it wins.
    above = len(alarms) - torch.searchsorted(alarms.sort().values, hits - 1, right=True)
    below = torch.searchsorted(hits.sort().values, alarms + 1)
    slope = torch.empty_like(scores)
    pairs = len(hits) * len(alarms)
    slope[labels] = -above.to(scores.dtype) / pairs
    slope[~labels] = below.to(scores.dtype) / pairs
    return WorstLabelling(above.sum().to(scores.dtype) / pairs, slope)
