"""Losses of the overlap of two sets, predicted and true: Dice, Tversky."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch  # noqa: F401  # for the examples

from metricgrad.core.metrics import f1
from metricgrad.core.metrics import tversky as tversky_index
from metricgrad.core.metrics.derivatives import ratio
from metricgrad.core.surrogates import Identity
from metricgrad.losses import elementwise as terms
from metricgrad.losses.baselines.arguments import check_number
from metricgrad.losses.elementwise import WeightedMean
from metricgrad.losses.metric_loss import MetricLoss, list_changed_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.core.counts import Counts
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.losses.elementwise import Reduction

__all__ = ["dice", "focal_tversky", "tversky"]


def dice(
    per_image: bool = False,
    smooth: float = 0.0,
    *,
    task: Task | None = None,
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss | WeightedMean:
    r"""Soft Dice loss, $1 - (2\sum py + s) / (\sum p + \sum y + s)$ of the batch, per class.

    With ``per_image=True`` it is $1 - (2\sum py + s) / (\sum p^2 + \sum y^2 + s)$ [milletari2016] over the positions
    of each sample (and label), then the mean: the sets are images. With ``(N,)`` logits every sample is a set of its
    own; that is the baseline of the binary soft-set paper [tsoi2022, table 7, 12], whose code lacks the 2. Negatives
    get no gradient then unless ``smooth`` > 0, which is the form for text, ``smooth=1`` [li2020].

    Parameters
    ----------
    per_image : bool, default False
        Dice of each sample instead of the batch; then ``surrogate``, ``average``, ``threshold``, ``labels`` and
        ``empty_classes`` must be left out, and the task is "binary" or "multilabel". ``MetricLoss(per_image=True)`` is
        without the squares, and for every task.
    smooth : float, default 0.0
        The smoothing s, at least 0.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    reduction : {'mean', 'sum', 'none'}, default 'mean'
        "mean": Σ weight·term / Σ weight. "sum": Σ weight·term. "none": weight·term of each, 0 for what does not count.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    nn.Module
        A loss called as ``loss(logits, targets, weight=None, mask=None)``; a ``MetricLoss`` unless ``per_image``.

    Examples
    --------
    >>> dice()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1806)
    """
    smooth = check_number("smooth", smooth, least=0.0)
    if per_image:
        options: dict[str, Any] = {"surrogate": surrogate, "average": average, "threshold": threshold}
        if given := list_changed_options({**options, "labels": labels, "empty_classes": empty_classes}):
            raise ValueError(f"per_image: expected no options of the batch, got {', '.join(given)}; leave them out")
        return WeightedMean(
            terms.dice,
            {"smooth": smooth},
            task=task,
            sets="sample",
            reduction=reduction,
            ignore_index=ignore_index,
            process_group=process_group,
        )
    if reduction != "mean":
        raise ValueError(f"reduction: expected 'mean' unless per_image, got {reduction!r}; use average=None per class")
    return MetricLoss(
        partial(smoothed_dice, smooth=smooth) if smooth else f1,
        task=task,
        surrogate=Identity() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def tversky(
    alpha: float = 0.3,
    beta: float = 0.7,
    *,
    task: Task | None = None,
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Tversky loss, 1 − TP / (TP + α·FP + β·FN) of soft counts [salehi2017].

    Parameters
    ----------
    alpha : float, default 0.3
        The price α of a false positive, at least 0.
    beta : float, default 0.7
        The price β of a false negative, at least 0; β > α prefers recall.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
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
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def focal_tversky(
    alpha: float = 0.3,
    beta: float = 0.7,
    gamma: float = 4 / 3,
    *,
    task: Task | None = None,
    surrogate: Callable[..., Tensor] | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        Another soft step than ``Identity()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
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
    MetricLoss(tversky(alpha=0.3, beta=0.7), surrogate=Identity(), average='macro')
    """
    alpha = check_number("alpha", alpha, least=0.0)
    beta = check_number("beta", beta, least=0.0)
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
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def smoothed_dice(c: Counts, smooth: float) -> Tensor:
    """(2TP + s) / (2TP + FP + FN + s)."""
    return ratio(2 * c.tp + smooth, c.predicted + c.positives + smooth)


def focal_tversky_index(c: Counts, alpha: float, beta: float, gamma: float) -> Tensor:
    """1 − (1 − TI)^(1/γ)."""
    return 1 - terms.safe_power(1 - tversky_index(c, alpha, beta), 1 / gamma)
