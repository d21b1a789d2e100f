"""Baselines: what people train with today, one short function per method, to compare a metric loss with.

Each returns an ``nn.Module`` called as ``loss(logits, targets, weight=None, mask=None)``, always with logits, and takes
the keywords ``task``, ``ignore_index`` and ``process_group``; those that are a ``MetricLoss`` take all of its. The
value is the weighted mean over what counts, where a paper or its authors' code sums. The loss of a soft label is the
mean of the losses of its hard labels: it is linear in the label.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.losses import elementwise as terms
from metricgrad.losses.elementwise import WeightedMean
from metricgrad.losses.metric import MetricLoss, changed
from metricgrad.metrics import f1
from metricgrad.metrics import tversky as tversky_index
from metricgrad.metrics.derivatives import ratio
from metricgrad.metrics.scalars import is_number
from metricgrad.surrogates import Identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.counts import Counts
    from metricgrad.engine.batch import Task
    from metricgrad.metrics import Metric
    from metricgrad.metrics.averages import Absent, Average

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

ALL: tuple[Task, ...] = ("binary", "multilabel", "multiclass")


def balanced_weights(class_counts: Numbers) -> Tensor:
    r"""Weights that make all classes count alike, $W_c = n / (C\,n_c)$ [tsoi2022, supplement 7.2].

    Parameters
    ----------
    class_counts : sequence of float or Tensor
        Samples per class ``(C,)``, or (negative, positive) per label ``(2, K)``.

    Returns
    -------
    Tensor
        The weights, of the same shape; the mean weight of a sample is 1.

    Examples
    --------
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
    *,
    task: Task = "binary",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    """Binary cross-entropy, the positives' and the negatives' terms weighted.

    As with torch's ``pos_weight``, the weights do not enter the denominator.

    Parameters
    ----------
    positive_weight : float or sequence of float, optional
        The weight of the positives' terms: a number, or one per label.
    negative_weight : float or sequence of float, optional
        The weight of the negatives' terms: a number, or one per label.
    class_counts : sequence of float or Tensor, optional
        (negative, positive), or ``(2, K)`` of several labels: use their ``balanced_weights`` instead.
    label_smoothing : float, default 0.0
        The share, in [0, 1], by which targets are moved towards ½.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
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
    return WeightedMean(terms.bce, parameters, task=task, ignore_index=ignore_index, process_group=process_group)


def cross_entropy(
    class_weights: Numbers | None = None,
    class_counts: Numbers | None = None,
    label_smoothing: float = 0.0,
    *,
    task: Task = "multiclass",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    """Softmax cross-entropy, classes weighted; the sum of the weights is the denominator, as in torch.

    With soft labels a sample weighs Σ label·weight, so that one-hot labels equal indices; torch divides by the number
    of samples there.

    Parameters
    ----------
    class_weights : sequence of float or Tensor, optional
        One weight per class.
    class_counts : sequence of float or Tensor, optional
        Samples per class: use their ``balanced_weights`` instead.
    label_smoothing : float, default 0.0
        The share, in [0, 1], by which targets are moved towards the uniform distribution.
    task : {'multiclass'}, default 'multiclass'
        "multiclass": logits ``(N, K)`` or ``(N, K, ...)`` with class indices ``(N,)`` or ``(N, ...)``, or soft labels
        of the shape of the logits.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
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
    return WeightedMean(
        terms.cross_entropy,
        parameters,
        task=task,
        tasks=("multiclass",),
        ignore_index=ignore_index,
        process_group=process_group,
    )


def label_smoothed_cross_entropy(
    smoothing: float = 0.1,
    *,
    class_weights: Numbers | None = None,
    positive_weight: float | Numbers | None = None,
    negative_weight: float | Numbers | None = None,
    class_counts: Numbers | None = None,
    task: Task = "multiclass",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    """Cross-entropy with labels moved by ``smoothing`` towards the uniform distribution [szegedy2016, section 7].

    Parameters
    ----------
    smoothing : float, default 0.1
        The share, in [0, 1], by which targets are moved.
    class_weights : sequence of float or Tensor, optional
        One weight per class, for "multiclass".
    positive_weight : float or sequence of float, optional
        The weight of the positives' terms, for "binary" and "multilabel": a number, or one per label.
    negative_weight : float or sequence of float, optional
        The weight of the negatives' terms, for "binary" and "multilabel": a number, or one per label.
    class_counts : sequence of float or Tensor, optional
        Samples per class, or (negative, positive) per label: use their ``balanced_weights`` instead.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multiclass'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> label_smoothed_cross_entropy()(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.2269)
    """
    if task == "multiclass":
        if positive_weight is not None or negative_weight is not None:
            raise ValueError("positive_weight, negative_weight: expected None for task='multiclass'; use class_weights")
        return cross_entropy(
            class_weights, class_counts, smoothing, task=task, ignore_index=ignore_index, process_group=process_group
        )
    if class_weights is not None:
        raise ValueError(f"class_weights: expected None for task={task!r}; use positive_weight and negative_weight")
    return bce(
        positive_weight,
        negative_weight,
        class_counts,
        smoothing,
        task=task,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def logit_adjusted_cross_entropy(
    class_counts: Numbers,
    tau: float = 1.0,
    *,
    task: Task = "multiclass",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    r"""Cross-entropy of $z_c + \tau \log \pi_c$ [menon2021, eq. 10]; decide by the logits as they are.

    Parameters
    ----------
    class_counts : sequence of float or Tensor
        Counts or priors π, only their ratios matter: ``(C,)`` for "multiclass", (negative, positive) for "binary",
        ``(2, K)`` for "multilabel", where the sigmoid is the softmax of two classes.
    tau : float, default 1.0
        The strength τ of the adjustment.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multiclass'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> logit_adjusted_cross_entropy([90, 10])(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.0149)
    """
    if task == "multiclass":
        logs = _several("class_counts", class_counts).log()
    else:
        negative, positive = _two_rows(class_counts)
        logs = (positive / negative).log().reshape(-1)
    parameters = {"shift": _number("tau", tau) * logs}
    return WeightedMean(
        terms.logit_adjusted_cross_entropy,
        parameters,
        task=task,
        tasks=ALL,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def focal(
    gamma: float = 2.0,
    alpha: float | Numbers | None = None,
    *,
    task: Task = "binary",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    r"""Focal loss, $-\alpha_t (1-p_t)^\gamma \log p_t$ [lin2017, eq. 4, 5].

    Parameters
    ----------
    gamma : float, default 2.0
        The focusing exponent γ, at least 0.
    alpha : float or sequence of float, optional
        The positives' share in [0, 1] (0.25 in the paper), the negatives have 1 − α; for "multiclass" a number per
        class.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> focal()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.0122)
    """
    parameters: dict[str, Any] = {"gamma": _number("gamma", gamma, least=0.0)}
    if alpha is not None:
        parameters["alpha"] = _several("alpha", alpha) if task == "multiclass" else _share("alpha", alpha)
    return WeightedMean(
        terms.focal,
        parameters,
        task=task,
        tasks=ALL,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def asymmetric(
    gamma_neg: float = 4.0,
    gamma_pos: float = 0.0,
    clip: float = 0.05,
    *,
    task: Task = "multilabel",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    r"""Asymmetric loss, ASL [ridnik2021]: focal loss with a γ for each side and shifted negatives.

    Positives cost $-(1-p)^{\gamma_+}\log p$, negatives $-p_m^{\gamma_-}\log(1-p_m)$ with $p_m = \max(p - clip, 0)$.

    Parameters
    ----------
    gamma_neg : float, default 4.0
        γ₋, the exponent of the negatives, at least 0.
    gamma_pos : float, default 0.0
        γ₊, the exponent of the positives, at least 0.
    clip : float, default 0.05
        The shift of the negatives' probability, in [0, 1].
    task : {'binary', 'multilabel'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Notes
    -----
    γ₊ = 0 is the paper's and that of the authors' training script; their class has 1 as default. The gradient flows
    through the focusing factors, as in the paper's analysis of it; the authors' script cuts it off.

    Examples
    --------
    >>> asymmetric()(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
    tensor(0.0637)
    """
    parameters = {
        "gamma_neg": _number("gamma_neg", gamma_neg, least=0.0),
        "gamma_pos": _number("gamma_pos", gamma_pos, least=0.0),
        "clip": _share("clip", clip),
    }
    return WeightedMean(terms.asymmetric, parameters, task=task, ignore_index=ignore_index, process_group=process_group)


def poly1(
    epsilon: float = 1.0,
    *,
    task: Task = "binary",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    r"""Poly-1 cross-entropy, $-\log p_t + \epsilon (1 - p_t)$ [leng2022].

    Parameters
    ----------
    epsilon : float, default 1.0
        ε, at least −1.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> poly1()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.4142)
    """
    return WeightedMean(
        terms.poly1,
        {"epsilon": _number("epsilon", epsilon, least=-1.0)},
        task=task,
        tasks=ALL,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def dice(
    per_sample: bool = False,
    smooth: float = 0.0,
    *,
    task: Task = "binary",
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> MetricLoss | WeightedMean:
    r"""Soft Dice loss, $1 - (2\sum py + s) / (\sum p + \sum y + s)$ of the batch, per class.

    With ``per_sample=True`` it is $1 - (2\sum py + s) / (\sum p^2 + \sum y^2 + s)$ [milletari2016] over the positions
    of each sample (and label), then the mean: the sets are images. With ``(N,)`` logits every sample is a set of its
    own; that is the baseline of the binary soft-set paper [tsoi2022, table 7, 12], whose code lacks the 2. Negatives
    get no gradient there unless ``smooth`` > 0, which is the form for text, ``smooth=1`` [li2020].

    Parameters
    ----------
    per_sample : bool, default False
        Dice of each sample instead of the batch; then ``surrogate``, ``average``, ``threshold``, ``labels`` and
        ``absent`` must be left out, and the task is "binary" or "multilabel".
    smooth : float, default 0.0
        The smoothing s, at least 0.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        Where a step on probabilities stands; of several, the mean of their losses.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    absent : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``; a ``MetricLoss`` unless ``per_sample``.

    Examples
    --------
    >>> dice()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1806)
    """
    smooth = _number("smooth", smooth, least=0.0)
    if per_sample:
        options: dict[str, Any] = {"surrogate": surrogate, "average": average, "threshold": threshold}
        if given := changed({**options, "labels": labels, "absent": absent}):
            raise ValueError(f"per_sample: expected no options of the batch, got {', '.join(given)}; leave them out")
        return WeightedMean(
            terms.dice,
            {"smooth": smooth},
            task=task,
            sets="sample",
            ignore_index=ignore_index,
            process_group=process_group,
        )
    return MetricLoss(
        partial(smoothed_dice, smooth=smooth) if smooth else f1,
        task=task,
        surrogate=Identity() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def tversky(
    alpha: float = 0.3,
    beta: float = 0.7,
    *,
    task: Task = "binary",
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> MetricLoss:
    """Tversky loss, 1 − TP / (TP + α·FP + β·FN) of soft counts [salehi2017].

    Parameters
    ----------
    alpha : float, default 0.3
        The price α of a false positive, at least 0.
    beta : float, default 0.7
        The price β of a false negative, at least 0; β > α prefers recall.
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        Where a step on probabilities stands; of several, the mean of their losses.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    absent : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    See Also
    --------
    metricgrad.metrics.tversky : The metric.

    Examples
    --------
    >>> tversky()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1571)
    """
    return focal_tversky(
        alpha,
        beta,
        1.0,
        task=task,
        surrogate=surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def focal_tversky(
    alpha: float = 0.3,
    beta: float = 0.7,
    gamma: float = 4 / 3,
    *,
    task: Task = "binary",
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    absent: Absent = "count",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> MetricLoss:
    r"""Focal Tversky loss, $(1 - TI)^{1/\gamma}$ of each class [abraham2019].

    TI is TP / (TP + α·FP + β·FN) of soft counts.

    Parameters
    ----------
    alpha : float, default 0.3
        The price α of a false positive, at least 0; the paper's α weighs FN.
    beta : float, default 0.7
        The price β of a false negative, at least 0; β > α prefers recall.
    gamma : float, default 4/3
        γ, positive. The exponent is 1/γ, as in the paper; code that raises to γ means its 1/γ (0.75).
    task : {'binary', 'multilabel', 'multiclass'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        Where a step on probabilities stands; of several, the mean of their losses.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    absent : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> focal_tversky(gamma=1.0)
    MetricLoss(tversky(alpha=0.3, beta=0.7), task='binary', surrogate=Identity(), average='macro')
    """
    alpha, beta = _number("alpha", alpha, least=0.0), _number("beta", beta, least=0.0)
    if not gamma > 0:
        raise ValueError(f"gamma: expected a positive number, got {gamma!r}")
    metric: Metric = partial(tversky_index, alpha=alpha, beta=beta)
    if gamma != 1:
        metric = partial(focal_tversky_index, alpha=alpha, beta=beta, gamma=gamma)
    return MetricLoss(
        metric,
        task=task,
        surrogate=Identity() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        absent=absent,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def lovasz_hinge(
    per_image: bool = False,
    *,
    task: Task = "binary",
    ignore_index: int | None = None,
    process_group: Any = None,
) -> WeightedMean:
    """Lovász hinge: the Lovász extension of 1 − Jaccard, of the hinge errors 1 ∓ z [berman2018].

    Where every margin ±z is 1 (right) or 0 (wrong) it is 1 − Jaccard. Weights weigh the elements of the Jaccard index.
    Labels are 0 or 1.

    Parameters
    ----------
    per_image : bool, default False
        Each sample is a set of its own, otherwise the batch is one; for "multilabel" each class too.
    task : {'binary', 'multilabel'}, default 'binary'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Notes
    -----
    With ``process_group`` and the batch as the set, the processes gather their elements, not sums.

    Examples
    --------
    >>> lovasz_hinge()(torch.tensor([2.0, -0.5, -3.0]), torch.tensor([1, 1, 0]))
    tensor(0.7500)
    """
    return WeightedMean(
        terms.lovasz_hinge,
        {},
        task=task,
        sets="sample" if per_image else "batch",
        ignore_index=ignore_index,
        process_group=process_group,
    )


def smoothed_dice(c: Counts, smooth: float) -> Tensor:
    """(2TP + s) / (2TP + FP + FN + s)."""
    return ratio(2 * c.tp + smooth, c.predicted + c.positives + smooth)


def focal_tversky_index(c: Counts, alpha: float, beta: float, gamma: float) -> Tensor:
    """1 − (1 − TI)^(1/γ)."""
    return 1 - terms.power(1 - tversky_index(c, alpha, beta), 1 / gamma)


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
