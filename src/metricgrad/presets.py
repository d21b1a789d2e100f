"""Presets: one short function per published method, each a ``MetricLoss`` with other parts plugged in.

Every preset takes further keywords of ``MetricLoss`` (``task``, ``average``, ``threshold``, ``process_group``, …).
Where the authors' released code differs from their paper, the paper's equation is followed and the difference is
named.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.losses.metric import MetricLoss
from metricgrad.metrics import Metric, detection_cost, f1, f_beta, worst_recall
from metricgrad.surrogates import Identity, Learned, Linear, LogitSigmoid, TopTwo, Unbounded, UnitsVsZeros

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "mfom_detection_cost",
    "mfom_eer",
    "mfom_f1",
    "multiclass_f_beta",
    "sigmoid_f1",
    "soft_dice",
    "soft_set",
    "unbounded_f1",
]


def soft_set(metric: str | Metric = "f1", **options: Any) -> MetricLoss:
    """Binary soft sets with the linear step at τ = ½, δ = 0.1 [tsoi2022, eq. 5, 6, 8].

    ``surrogate=Sigmoid(k=10)`` is the paper's other step. The authors' code averages the loss over τ = 0.1, …, 0.9
    (``threshold=[t / 10 for t in range(1, 10)]`` here) and exchanges τ and 1 − τ by the side on which p falls, so that
    its TP + FN is not P.

    >>> soft_set("f2")
    MetricLoss(f_beta(beta=2.0), task='binary', surrogate=Linear(delta=0.1, width=1.0), average='macro')
    """
    return MetricLoss(metric, **{"surrogate": Linear(), **options})


def sigmoid_f1(beta: float = 1.0, eta: float = 0.0, average: str = "macro", **options: Any) -> MetricLoss:
    """sigmoidF1 for multi-label problems [benedict2022, eq. 5, 6, 8].

    ``beta`` is the slope, positive: the authors' code writes it with the other sign. Their pseudo-code and code
    average F1 over the classes, which is "macro"; ``average="micro"`` is the reading of their text (their eq. 9,
    which they call macro). Their code applies a sigmoid twice; here it is applied once, to logits.
    """
    return MetricLoss(f1, average=average, **{"task": "multilabel", "surrogate": LogitSigmoid(beta, eta), **options})


def unbounded_f1(**options: Any) -> MetricLoss:
    """unboundedF1: F1 of raw logits [benedict2022, eq. 4, 7].

    Warning: it is not bounded and diverges, as its authors report; it is here to compare with. Their released code's
    nearest loss applies a sigmoid first, which is ``soft_dice`` here.
    """
    return MetricLoss(f1, **{"task": "multilabel", "surrogate": Unbounded(), **options})


def mfom_f1(classes: int | None = None, alpha: float = 1.0, beta: float = 0.0, **options: Any) -> MetricLoss:
    """Maximal figure of merit, micro-F1 [kukanov2020, eq. 26–33, 39–43].

    With ``classes`` given, α and β are learned, one of each per class: give ``loss.parameters()`` to the optimiser.
    It uses the labels inside the surrogate, so it is for training only. The authors train with cross-entropy first.
    Rows whose labels are all on or all off, 0/0 in the paper and NaN in the authors' code, use ψ = ½ − g.
    """
    return _mfom(f1, classes, alpha, beta, {"average": "micro", **options})


def mfom_eer(classes: int | None = None, alpha: float = 1.0, beta: float = 0.0, **options: Any) -> MetricLoss:
    """Maximal figure of merit, equal error rate: the larger of FNR and FPR, of smooth errors [kukanov2020, eq. 27, 28].

    Arguments and warnings as for ``mfom_f1``; the mean over classes. The paper names this objective without a formula.
    The authors' code has FPR + ½|FNR − FPR|, with 1 added to every count: while FNR is the smaller one this rewards
    misses. The larger of the two agrees with it, and with EER, where they are equal.

    >>> mfom_eer()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.3865)
    """
    return _mfom(worst_recall, classes, alpha, beta, options)


def mfom_detection_cost(
    classes: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    miss: float = 1.0,
    false_alarm: float = 1.0,
    prior: float = 0.5,
    **options: Any,
) -> MetricLoss:
    """Maximal figure of merit, detection cost: miss·prior·FNR + false_alarm·(1 − prior)·FPR, as a share of its worst.

    Smooth errors as in [kukanov2020, eq. 27, 28], all classes pooled as in the authors' code, whose ``prior`` is 0.01;
    ½ is that of language recognition. Arguments and warnings as for ``mfom_f1``.

    >>> mfom_detection_cost()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.3524)
    """
    metric = partial(detection_cost, miss=miss, false_alarm=false_alarm, prior=prior)
    return _mfom(metric, classes, alpha, beta, {"average": "micro", **options})


def _mfom(metric: Metric, classes: int | None, alpha: float, beta: float, options: dict[str, Any]) -> MetricLoss:
    start = UnitsVsZeros(alpha, beta)
    surrogate = start if classes is None else Learned(start, classes)
    return MetricLoss(metric, **{"task": "multilabel", "surrogate": surrogate, **options})


def multiclass_f_beta(beta: float | Sequence[float] | Tensor = 1.0, **options: Any) -> MetricLoss:
    """Macro F-beta of the d×d soft-set matrix, δ = 0.2 [tsoi2024, eq. 3–6]; ``beta`` a number or one per class.

    β > 1 prefers recall, by the paper's own eq. 6; its text says the opposite in one place.
    """
    per_class = beta if isinstance(beta, int | float) else torch.as_tensor(beta)
    return MetricLoss(partial(f_beta, beta=per_class), **{"task": "multiclass", "surrogate": TopTwo(), **options})


def soft_dice(**options: Any) -> MetricLoss:
    """Soft Dice of the whole batch: F1 with the probability itself as membership [milletari2016]."""
    return MetricLoss(f1, **{"surrogate": Identity(), **options})
