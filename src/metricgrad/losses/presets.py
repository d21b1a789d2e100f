"""Presets: one short function per published method, each a ``MetricLoss`` with other parts plugged in.

Every preset takes the keywords of ``MetricLoss`` (``task``, ``average``, ``threshold``, ``process_group``, …) with the
method's own defaults. Where the authors' released code differs from their paper, the paper's equation is followed and
the difference is named.

The file is long by its docstrings and signatures alone: a flat list of functions, each a single call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.metrics import Metric, detection_cost, f1, f_beta, worst_recall
from metricgrad.core.surrogates import Identity, Learned, Linear, LogitSigmoid, Sigmoid, TopTwo, Unbounded, UnitsVsZeros
from metricgrad.losses.metric_loss import MetricLoss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.processes import ProcessGroup

    Step = Callable[..., Tensor]

__all__ = [
    "any_loss",
    "mfom_detection_cost",
    "mfom_eer",
    "mfom_f1",
    "multiclass_f_beta",
    "sigmoid_f1",
    "soft_dice",
    "soft_set",
    "unbounded_f1",
]


def any_loss(
    metric: str | Metric = "f1",
    L: float = 73.0,
    *,
    task: Task | None = None,
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    r"""AnyLoss: probabilities amplified to $1/(1+e^{-L(p-\frac12)})$, nearly 0 or 1, and counted [han2024].

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    L : float, default 73.0
        The scale L of the amplification, positive.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        Another soft step than ``Sigmoid(k=L)``.
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
        The loss.

    Notes
    -----
    It is ``soft_set`` with the sigmoid step, steeper: beyond |p − ½| = 0.1 the gradient is below a hundredth of that at
    ½, so start from a model that is trained with cross-entropy, or with a smaller L.

    Examples
    --------
    >>> any_loss("balanced_accuracy")
    MetricLoss(balanced_accuracy, surrogate=Sigmoid(k=73.0), average='macro')
    """
    return MetricLoss(
        metric,
        task=task,
        surrogate=Sigmoid(L) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def soft_set(
    metric: str | Metric = "f1",
    *,
    task: Task | None = None,
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Binary soft sets with the linear step at τ = ½, δ = 0.1 [tsoi2022, eq. 5, 6, 8].

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    Notes
    -----
    The authors' code averages the loss over τ = 0.1, …, 0.9 (``threshold=[t / 10 for t in range(1, 10)]`` here) and
    exchanges τ and 1 − τ by the side on which p falls, so that its TP + FN is not P.

    Examples
    --------
    >>> soft_set("f2")
    MetricLoss(f_beta(beta=2.0), surrogate=Linear(delta=0.1, width=1.0), average='macro')
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
        process_group=process_group,
    )


def sigmoid_f1(
    beta: float = 1.0,
    eta: float = 0.0,
    average: Average | None = "macro",
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    Notes
    -----
    The authors' pseudo-code and code average F1 over the classes, which is "macro"; ``average="micro"`` is the reading
    of their text (their eq. 9, which they call macro). Their code applies a sigmoid twice; here it is applied once, to
    logits.

    Examples
    --------
    >>> sigmoid_f1()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.1952)
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
        process_group=process_group,
    )


def unbounded_f1(
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """unboundedF1: F1 of raw logits [benedict2022, eq. 4, 7].

    Warning: it is not bounded and diverges, as its authors report; it is here for comparison. The nearest loss of their
    released code applies a sigmoid first, which is ``soft_dice`` here.

    Parameters
    ----------
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    Examples
    --------
    >>> unbounded_f1()(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.)
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
        process_group=process_group,
    )


def mfom_f1(
    classes: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "micro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Maximal figure of merit, micro-F1 [kukanov2020, eq. 26–33, 39–43].

    It uses the labels inside the surrogate, so it is for training only. The authors train with cross-entropy first.
    Rows whose labels are all on or all off, 0/0 in the paper and NaN in the authors' code, use ψ = ½ − g.

    Parameters
    ----------
    classes : int, optional
        With the number of classes given, α and β are learned, one of each per class: give ``loss.parameters()`` to the
        optimizer.
    alpha : float, default 1.0
        The slope α, or where learning starts.
    beta : float, default 0.0
        The shift β, or where learning starts.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.surrogates.UnitsVsZeros : The smooth error count.

    Examples
    --------
    >>> mfom_f1()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.3524)
    """
    return MetricLoss(
        f1,
        task=task,
        surrogate=_smooth_errors(classes, alpha, beta) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def mfom_eer(
    classes: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Maximal figure of merit, equal error rate: the larger of FNR and FPR, of smooth errors [kukanov2020, eq. 27, 28].

    It uses the labels inside the surrogate, so it is for training only. The authors train with cross-entropy first.
    Rows whose labels are all on or all off, 0/0 in the paper and NaN in the authors' code, use ψ = ½ − g.

    Parameters
    ----------
    classes : int, optional
        With the number of classes given, α and β are learned, one of each per class: give ``loss.parameters()`` to the
        optimizer.
    alpha : float, default 1.0
        The slope α, or where learning starts.
    beta : float, default 0.0
        The shift β, or where learning starts.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits.
    surrogate : callable, optional
        Another soft step than ``UnitsVsZeros(alpha, beta)``.
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
        The loss.

    See Also
    --------
    metricgrad.EERLoss : The equal error rate at the threshold where FNR = FPR.
    metricgrad.surrogates.UnitsVsZeros : The smooth error count.

    Notes
    -----
    The paper names this objective without a formula. The authors' code has FPR + ½|FNR − FPR|, with 1 added to every
    count: while FNR is the smaller one this rewards misses. The larger of the two agrees with it, and with EER, where
    they are equal.

    Examples
    --------
    >>> mfom_eer()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.3865)
    """
    return MetricLoss(
        worst_recall,
        task=task,
        surrogate=_smooth_errors(classes, alpha, beta) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def mfom_detection_cost(
    classes: int | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    miss: float = 1.0,
    false_alarm: float = 1.0,
    prior: float = 0.5,
    task: Task = "multilabel",
    surrogate: Step | None = None,
    average: Average | None = "micro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Maximal figure of merit, detection cost: miss·prior·FNR + false_alarm·(1 − prior)·FPR, as a share of its worst.

    Smooth errors as in [kukanov2020, eq. 27, 28], all classes pooled as in the authors' code. It uses the labels inside
    the surrogate, so it is for training only. The authors train with cross-entropy first. Rows whose labels are all on
    or all off, 0/0 in the paper and NaN in the authors' code, use ψ = ½ − g.

    Parameters
    ----------
    classes : int, optional
        With the number of classes given, α and β are learned, one of each per class: give ``loss.parameters()`` to the
        optimizer.
    alpha : float, default 1.0
        The slope α, or where learning starts.
    beta : float, default 0.0
        The shift β, or where learning starts.
    miss : float, default 1.0
        The cost of a miss.
    false_alarm : float, default 1.0
        The cost of a false alarm.
    prior : float, default 0.5
        The share of targets where the model is used; ½ is that of language recognition, 0.01 that of the authors' code.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multilabel'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    See Also
    --------
    metricgrad.metrics.detection_cost : The metric.
    metricgrad.surrogates.UnitsVsZeros : The smooth error count.

    Examples
    --------
    >>> mfom_detection_cost()(torch.tensor([[1.0, -1.0], [-2.0, 2.0]]), torch.tensor([[1, 0], [0, 1]]))
    tensor(0.3524)
    """
    return MetricLoss(
        partial(detection_cost, miss=miss, false_alarm=false_alarm, prior=prior),
        task=task,
        surrogate=_smooth_errors(classes, alpha, beta) if surrogate is None else surrogate,
        average=average,
        threshold=threshold,
        labels=labels,
        empty_classes=empty_classes,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def _smooth_errors(classes: int | None, alpha: float, beta: float) -> Step:
    """Return the surrogate of MFoM, with learned parameters if the number of classes is given."""
    start = UnitsVsZeros(alpha, beta)
    return start if classes is None else Learned(start, classes)


def multiclass_f_beta(
    beta: float | Sequence[float] | Tensor = 1.0,
    *,
    task: Task = "multiclass",
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Macro F-beta of the d×d soft-set matrix, δ = 0.2 [tsoi2024, eq. 3–6].

    Parameters
    ----------
    beta : float or sequence of float, default 1.0
        A number, or one per class. β > 1 prefers recall, by the paper's own eq. 6; its text says the opposite in one
        place.
    task : {'binary', 'multilabel', 'multiclass'}, default 'multiclass'
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
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
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Returns
    -------
    MetricLoss
        The loss.

    Examples
    --------
    >>> multiclass_f_beta([0.5, 1.0, 2.0])(torch.eye(3), torch.tensor([0, 1, 2]))
    tensor(0.3643)
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
        process_group=process_group,
    )


def soft_dice(
    *,
    task: Task | None = None,
    surrogate: Step | None = None,
    average: Average | None = "macro",
    threshold: float | Sequence[float] | Tensor = 0.5,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> MetricLoss:
    """Soft Dice of the whole batch: F1 with the probability itself as membership [milletari2016].

    Parameters
    ----------
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
        The loss.

    See Also
    --------
    metricgrad.baselines.dice : Dice of each sample, or with smoothing.

    Examples
    --------
    >>> soft_dice()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.1806)
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
        process_group=process_group,
    )
