"""Presets for Keras: one short function per published method, each a ``metricgrad.keras.MetricLoss``.

They are those of ``metricgrad.presets``, on whose pages the differences between papers and released code are named. The
file is written from ``losses/presets.py`` by ``tests/support/generated_sources.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from metricgrad.core.metrics import f1, f_beta
from metricgrad.core.surrogates import Identity, Linear, LogitSigmoid, TopTwo, Unbounded, UnitsVsZeros
from metricgrad.integrations.keras.losses import MetricLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses

    Step = Callable[..., Any]


def soft_set(
    metric: str | Metric = "f1",
    *,
    task: Task | None = None,
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "soft_set",
) -> MetricLoss:
    """Binary soft sets with the linear step at τ = ½, δ = 0.1 [tsoi2022, eq. 5, 6, 8].

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        Another soft step than ``Linear()``; ``Sigmoid(k=10)`` is the paper's other one.
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
    name : str, default 'soft_set'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.soft_set : The same in torch.

    Examples
    --------
    >>> round(float(soft_set("f2")([1, 0, 1], [2.0, -1.0, 0.0])), 4)
    0.2422
    """
    return MetricLoss(
        metric,
        task=task,
        surrogate=Linear() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )


def sigmoid_f1(
    beta: float = 1.0,
    eta: float = 0.0,
    average: Average | None = "macro",
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "sigmoid_f1",
) -> MetricLoss:
    r"""sigmoidF1 for multi-label problems [benedict2022, eq. 5, 6, 8].

    The memberships are $1/(1+e^{-\beta(z+\eta)})$ of the logits z.

    Parameters
    ----------
    beta : float, default 1.0
        The slope, positive: the authors' code writes it with the other sign.
    eta : float, default 0.0
        The shift η.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``LogitSigmoid(beta, eta)``.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    name : str, default 'sigmoid_f1'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.sigmoid_f1 : The same in torch.

    Examples
    --------
    >>> round(float(sigmoid_f1()([[1, 0], [0, 1]], [[1.0, -1.0], [-2.0, 2.0]])), 4)
    0.1952
    """
    return MetricLoss(
        f1,
        task=task,
        surrogate=LogitSigmoid(beta, eta) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )


def unbounded_f1(
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "unbounded_f1",
) -> MetricLoss:
    """unboundedF1: F1 of raw logits [benedict2022, eq. 4, 7].

    Warning: it is not bounded and diverges, as its authors report; it is here for comparison. The nearest loss of their
    released code applies a sigmoid first, which is ``soft_dice`` here.

    Parameters
    ----------
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``Unbounded()``.
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
    name : str, default 'unbounded_f1'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.unbounded_f1 : The same in torch.

    Examples
    --------
    >>> round(float(unbounded_f1()([[1, 0], [0, 1]], [[1.0, 0.0], [0.0, 1.0]])), 4)
    0.0
    """
    return MetricLoss(
        f1,
        task=task,
        surrogate=Unbounded() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )


def mfom_f1(
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "micro",
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "mfom_f1",
) -> MetricLoss:
    """Maximal figure of merit, micro-F1 [kukanov2020, eq. 26–33, 39–43].

    It uses the labels inside the surrogate, so it is for training only. The authors train with cross-entropy first.
    Rows whose labels are all on or all off, 0/0 in the paper and NaN in the authors' code, use ψ = ½ − g.

    Parameters
    ----------
    alpha : float, default 1.0
        The slope α.
    beta : float, default 0.0
        The shift β.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``UnitsVsZeros(alpha, beta)``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'micro'
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
    name : str, default 'mfom_f1'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.mfom_f1 : The same in torch.

    Examples
    --------
    >>> round(float(mfom_f1()([[1, 0], [0, 1]], [[1.0, -1.0], [-2.0, 2.0]])), 4)
    0.3524
    """
    return MetricLoss(
        f1,
        task=task,
        surrogate=UnitsVsZeros(alpha, beta) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )


def multiclass_f_beta(
    beta: float | Sequence[float] = 1.0,
    *,
    task: Task = "multiclass",
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "multiclass_f_beta",
) -> MetricLoss:
    """Macro F-beta of the d×d soft-set matrix, δ = 0.2 [tsoi2024, eq. 3–6].

    Parameters
    ----------
    beta : float or sequence of float, default 1.0
        A number, or one per class. β > 1 prefers recall, by the paper's own eq. 6; its text says the opposite in one
        place.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multiclass'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``TopTwo()``.
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
    name : str, default 'multiclass_f_beta'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.multiclass_f_beta : The same in torch.

    Examples
    --------
    >>> logits = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    >>> round(float(multiclass_f_beta([0.5, 1.0, 2.0])([0, 1, 2], logits)), 4)
    0.3643
    """
    per_class = beta if isinstance(beta, int | float) else torch.as_tensor(beta)
    return MetricLoss(
        partial(f_beta, beta=per_class),
        task=task,
        surrogate=TopTwo() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )


def soft_dice(
    *,
    task: Task | None = None,
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    name: str = "soft_dice",
) -> MetricLoss:
    """Soft Dice of the whole batch: F1 with the probability itself as membership [milletari2016].

    Parameters
    ----------
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, ..., K)``
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
    name : str, default 'soft_dice'
        The name that Keras shows.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.presets.soft_dice : The same in torch.

    Examples
    --------
    >>> round(float(soft_dice()([1, 0], [2.0, -1.0])), 4)
    0.1806
    """
    return MetricLoss(
        f1,
        task=task,
        surrogate=Identity() if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        name=name,
    )
