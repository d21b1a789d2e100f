"""Baselines: what people train with today, one short function per method, to compare a metric loss with.

Each returns an ``nn.Module`` called as ``loss(logits, targets, weight=None, mask=None)``, always with logits, and takes
the keywords ``task``, ``ignore_index`` and ``process_group``; those that are a ``MetricLoss`` take all of its. The
value is the weighted mean over what counts, where a paper or its authors' code sums. Soft labels count as the mixture
that they are: the loss is linear in the label.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.losses import elementwise as terms
from metricgrad.losses.elementwise import WeightedMean
from metricgrad.losses.metric import MetricLoss
from metricgrad.metrics import f1
from metricgrad.metrics import tversky as tversky_index
from metricgrad.metrics.derivatives import ratio
from metricgrad.metrics.scalars import is_number
from metricgrad.surrogates import Identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.counts import Counts
    from metricgrad.metrics import Metric

    Numbers = Sequence[float] | Sequence[Sequence[float]] | Tensor
    """One number per class; or two rows, (negative, positive), for the labels of a multi-label problem."""

__all__ = [
    "asymmetric",
    "balanced_weights",
    "bce",
    "cross_entropy",
    "dice",
    "focal",
    "focal_tversky",
    "label_smoothed_cross_entropy",
    "logit_adjusted_cross_entropy",
    "lovasz_hinge",
    "poly1",
    "tversky",
]

ALL = ("binary", "multilabel", "multiclass")


def balanced_weights(class_counts: Numbers) -> Tensor:
    r"""Weights that make all classes count alike, $W_c = n / (C\,n_c)$ [tsoi2022, supplement 7.2].

    ``class_counts``: samples per class ``(C,)``, or (negative, positive) per label ``(2, K)``. The mean weight of a
    sample is 1.

    >>> balanced_weights([10923, 260])          # Mammography; the paper's table 8, of a part of it: 0.51, 21.55
    tensor([ 0.5119, 21.5058])
    """
    counts = _several("class_counts", class_counts)
    return counts.sum(0) / (len(counts) * counts)


def bce(
    positive_weight: float | Numbers | None = None,
    negative_weight: float | Numbers | None = None,
    class_counts: Numbers | None = None,
    label_smoothing: float = 0.0,
    **options: Any,
) -> WeightedMean:
    """Binary cross-entropy, the positives' and the negatives' terms weighted: numbers, or one per label.

    ``class_counts``: take ``balanced_weights`` of (negative, positive) instead. As with torch's ``pos_weight``, the
    weights do not enter the denominator. ``label_smoothing`` moves targets towards ½.

    >>> bce(class_counts=[90, 10])(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.4043)
    """
    if class_counts is not None:
        if positive_weight is not None or negative_weight is not None:
            raise ValueError("class_counts: stands for positive_weight and negative_weight, got both; give one of them")
        negative_weight, positive_weight = balanced_weights(_two_rows(class_counts))
    parameters: dict[str, Any] = {"label_smoothing": _share("label_smoothing", label_smoothing)}
    for name, weight in (("positive_weight", positive_weight), ("negative_weight", negative_weight)):
        if weight is not None:
            parameters[name] = _positive(name, weight)
    return _mean(terms.bce, parameters, **options)


def cross_entropy(
    class_weights: Numbers | None = None,
    class_counts: Numbers | None = None,
    label_smoothing: float = 0.0,
    **options: Any,
) -> WeightedMean:
    """Softmax cross-entropy, classes weighted; the sum of the weights is the denominator, as in torch.

    ``class_counts``: take their ``balanced_weights`` instead. With soft labels a sample weighs Σ label·weight, so that
    one-hot labels equal indices; torch divides by the number of samples there.

    >>> cross_entropy([1.0, 4.0])(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor(1.0760)
    """
    if class_counts is not None:
        if class_weights is not None:
            raise ValueError("class_counts: stands for class_weights, got both; give one of them")
        class_weights = balanced_weights(class_counts)
    parameters: dict[str, Any] = {"label_smoothing": _share("label_smoothing", label_smoothing)}
    if class_weights is not None:
        parameters["class_weights"] = _several("class_weights", class_weights)
    return _mean(terms.cross_entropy, parameters, **{"task": "multiclass", "tasks": ("multiclass",), **options})


def label_smoothed_cross_entropy(smoothing: float = 0.1, **options: Any) -> WeightedMean:
    """Cross-entropy with labels moved by ``smoothing`` towards the uniform distribution [szegedy2016, section 7].

    >>> label_smoothed_cross_entropy()(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.2269)
    """
    loss = cross_entropy if options.get("task", "multiclass") == "multiclass" else bce
    return loss(label_smoothing=smoothing, **options)


def logit_adjusted_cross_entropy(class_counts: Numbers, tau: float = 1.0, **options: Any) -> WeightedMean:
    r"""Cross-entropy of $z_c + \tau \log \pi_c$ [menon2021, eq. 10]; decide by the logits as they are.

    ``class_counts``: counts or priors, only their ratios matter: ``(C,)`` for "multiclass", (negative, positive) for
    "binary", ``(2, K)`` for "multilabel", where the sigmoid is the softmax of two classes.

    >>> logit_adjusted_cross_entropy([90, 10])(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.0149)
    """
    if options.setdefault("task", "multiclass") == "multiclass":
        logs = _several("class_counts", class_counts).log()
    else:
        negative, positive = _two_rows(class_counts)
        logs = (positive / negative).log().reshape(-1)
    parameters = {"shift": _number("tau", tau) * logs}
    return _mean(terms.logit_adjusted_cross_entropy, parameters, **{"tasks": ALL, **options})


def focal(gamma: float = 2.0, alpha: float | Numbers | None = None, **options: Any) -> WeightedMean:
    r"""Focal loss, $-\alpha_t (1-p_t)^\gamma \log p_t$ [lin2017, eq. 4, 5].

    ``alpha``: the positives' share in [0, 1] (0.25 in the paper), the negatives have 1 − α; for "multiclass" a number
    per class.

    >>> focal()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.0122)
    """
    parameters: dict[str, Any] = {"gamma": _number("gamma", gamma, least=0.0)}
    if alpha is not None:
        multiclass = options.get("task") == "multiclass"
        parameters["alpha"] = _several("alpha", alpha) if multiclass else _share("alpha", alpha)
    return _mean(terms.focal, parameters, **{"tasks": ALL, **options})


def asymmetric(gamma_neg: float = 4.0, gamma_pos: float = 0.0, clip: float = 0.05, **options: Any) -> WeightedMean:
    r"""Asymmetric loss, ASL [ridnik2021]: focal loss with a γ for each side and shifted negatives.

    Positives cost $-(1-p)^{\gamma_+}\log p$, negatives $-p_m^{\gamma_-}\log(1-p_m)$ with $p_m = \max(p - clip, 0)$.
    γ₊ = 0 is the paper's and the authors' training script's; their class has 1 as default. The gradient flows through
    the focusing factors, as in the paper's analysis of it; the authors' script cuts it off.

    >>> asymmetric()(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
    tensor(0.0637)
    """
    parameters = {
        "gamma_neg": _number("gamma_neg", gamma_neg, least=0.0),
        "gamma_pos": _number("gamma_pos", gamma_pos, least=0.0),
        "clip": _share("clip", clip),
    }
    return _mean(terms.asymmetric, parameters, **{"task": "multilabel", **options})


def poly1(epsilon: float = 1.0, **options: Any) -> WeightedMean:
    r"""Poly-1 cross-entropy, $-\log p_t + \epsilon (1 - p_t)$ [leng2022]; ε ≥ −1.

    >>> poly1()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.4142)
    """
    return _mean(terms.poly1, {"epsilon": _number("epsilon", epsilon, least=-1.0)}, **{"tasks": ALL, **options})


def dice(per_sample: bool = False, smooth: float = 0.0, **options: Any) -> MetricLoss | WeightedMean:
    r"""Soft Dice loss, $1 - (2\sum py + s) / (\sum p + \sum y + s)$ of the batch, per class.

    ``per_sample=True``: $1 - (2\sum py + s) / (\sum p^2 + \sum y^2 + s)$ [milletari2016] over the positions of each
    sample (and label), then the mean: the sets are images. With ``(N,)`` logits every sample is a set of its own; that
    is the baseline of the binary soft-set paper [tsoi2022, table 7, 12], whose code lacks the 2. Negatives get no
    gradient there unless ``smooth`` > 0, which is the form for text, ``smooth=1`` [li2020].

    >>> dice()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1806)
    """
    smooth = _number("smooth", smooth, least=0.0)
    if per_sample:
        return _mean(terms.dice, {"smooth": smooth}, **{"sets": "sample", **options})
    metric = partial(smoothed_dice, smooth=smooth) if smooth else f1
    return MetricLoss(metric, **{"surrogate": Identity(), **options})


def tversky(alpha: float = 0.3, beta: float = 0.7, **options: Any) -> MetricLoss:
    """Tversky loss, 1 − TP / (TP + α·FP + β·FN) of soft counts [salehi2017]; β > α prefers recall.

    >>> tversky()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1571)
    """
    return focal_tversky(alpha, beta, 1.0, **options)


def focal_tversky(alpha: float = 0.3, beta: float = 0.7, gamma: float = 4 / 3, **options: Any) -> MetricLoss:
    r"""Focal Tversky loss, $(1 - TI)^{1/\gamma}$ of each class [abraham2019].

    The exponent is 1/γ, as in the paper; code that raises to γ means its 1/γ (0.75). The paper's α weighs FN, here as
    everywhere α is of FP.

    >>> focal_tversky(gamma=1.0)
    MetricLoss(tversky(alpha=0.3, beta=0.7), task='binary', surrogate=Identity(), average='macro')
    """
    alpha, beta = _number("alpha", alpha, least=0.0), _number("beta", beta, least=0.0)
    if not gamma > 0:
        raise ValueError(f"gamma: expected a positive number, got {gamma!r}")
    metric: Metric = partial(tversky_index, alpha=alpha, beta=beta)
    if gamma != 1:
        metric = partial(focal_tversky_index, alpha=alpha, beta=beta, gamma=gamma)
    return MetricLoss(metric, **{"surrogate": Identity(), **options})


def lovasz_hinge(per_image: bool = False, **options: Any) -> WeightedMean:
    """Lovász hinge: the Lovász extension of 1 − Jaccard, of the hinge errors 1 ∓ z [berman2018].

    Where every margin ±z is 1 (right) or 0 (wrong) it is 1 − Jaccard. ``per_image``: each sample is a set of its own,
    else the batch is; for "multilabel" each class too. Weights weigh the elements of the Jaccard index. Labels are 0
    or 1. With ``process_group`` and the batch as the set, the processes gather their elements, not sums.

    >>> lovasz_hinge()(torch.tensor([2.0, -0.5, -3.0]), torch.tensor([1, 1, 0]))
    tensor(0.7500)
    """
    return _mean(terms.lovasz_hinge, {}, **{"sets": "sample" if per_image else "batch", **options})


def smoothed_dice(c: Counts, smooth: float) -> Tensor:
    """(2TP + s) / (2TP + FP + FN + s)."""
    return ratio(2 * c.tp + smooth, c.predicted + c.positives + smooth)


def focal_tversky_index(c: Counts, alpha: float, beta: float, gamma: float) -> Tensor:
    """1 − (1 − TI)^(1/γ)."""
    return 1 - terms.power(1 - tversky_index(c, alpha, beta), 1 / gamma)


def _mean(function: terms.Terms, parameters: dict[str, Any], **options: Any) -> WeightedMean:
    return WeightedMean(function, parameters, **{"task": "binary", **options})


def _number(name: str, value: Any, least: float = -math.inf) -> float:
    """Return a finite number, or raise."""
    if is_number(value) and math.isfinite(value) and value >= least:
        return float(value)
    bound = "" if least == -math.inf else f" of at least {least:g}"
    raise ValueError(f"{name}: expected a number{bound}, got {value!r}")


def _share(name: str, value: Any) -> float:
    """Return a number in [0, 1], or raise."""
    if is_number(value) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{name}: expected a number in [0, 1], got {value!r}")


def _several(name: str, value: Any) -> Tensor:
    """Return positive numbers as a tensor, or raise."""
    try:
        given = torch.as_tensor(value, dtype=torch.get_default_dtype())
        fine = given.dim() in (1, 2) and given.numel() > 0 and bool(((given > 0) & given.isfinite()).all())
    except (TypeError, ValueError, RuntimeError):
        fine = False
    if not fine:
        raise ValueError(f"{name}: expected positive numbers, one per class, got {value!r}")
    return given


def _positive(name: str, value: Any) -> float | Tensor:
    """Return one positive number as a float, several as a tensor, or raise."""
    one = is_number(value) or (isinstance(value, Tensor) and value.dim() == 0)
    return float(value) if one and 0 < value < math.inf else _several(name, value)


def _two_rows(class_counts: Numbers) -> Tensor:
    """Return the counts of (negative, positive), or raise."""
    counts = _several("class_counts", class_counts)
    if len(counts) != 2:
        raise ValueError(f"class_counts: expected (negative, positive), got {class_counts!r}")
    return counts
