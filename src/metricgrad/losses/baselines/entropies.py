"""Cross-entropies: with weights, with smoothed labels, with logits adjusted for the class frequencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: F401  # for the examples

from metricgrad.losses import elementwise as terms
from metricgrad.losses.baselines.arguments import (
    TASKS,
    check_number,
    check_numbers,
    check_share,
    check_two_rows,
    check_weight,
)
from metricgrad.losses.elementwise import WeightedMean

if TYPE_CHECKING:
    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.losses.baselines.arguments import Numbers
    from metricgrad.losses.elementwise import Reduction

__all__ = ["balanced_weights", "bce", "cross_entropy", "label_smoothed_cross_entropy", "logit_adjusted_cross_entropy"]


def balanced_weights(class_counts: Numbers) -> Tensor:
    r"""Weights that make all classes count equally, $W_c = n / (C\,n_c)$ [tsoi2022, supplement 7.2].

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
    counts = check_numbers("class_counts", class_counts)
    return counts.sum(0) / (len(counts) * counts)


def bce(
    positive_weight: float | Numbers | None = None,
    negative_weight: float | Numbers | None = None,
    class_counts: Numbers | None = None,
    label_smoothing: float = 0.0,
    *,
    task: Task | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
    task : {'binary', 'multilabel'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. None is "binary" if the shapes leave no other reading, else an error.
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
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> bce(class_counts=[90, 10])(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.4043)
    """
    if class_counts is not None:
        if positive_weight is not None or negative_weight is not None:
            raise ValueError(
                "class_counts: expected no positive_weight or negative_weight with it, got both; give one of them"
            )
        negative_weight, positive_weight = balanced_weights(check_two_rows(class_counts))
    parameters: dict[str, float | Tensor] = {"label_smoothing": check_share("label_smoothing", label_smoothing)}
    for name, weight in (("positive_weight", positive_weight), ("negative_weight", negative_weight)):
        if weight is not None:
            parameters[name] = check_weight(name, weight)
    return WeightedMean(
        terms.bce, parameters, task=task, reduction=reduction, ignore_index=ignore_index, process_group=process_group
    )


def cross_entropy(
    class_weights: Numbers | None = None,
    class_counts: Numbers | None = None,
    label_smoothing: float = 0.0,
    *,
    task: Task = "multiclass",
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> WeightedMean:
    """Softmax cross-entropy, classes weighted; the sum of the weights is the denominator, as in torch.

    With soft labels a sample weighs Σ label·weight, so that one-hot labels equal indices; torch divides by the number
    of samples in that case.

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
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> cross_entropy([1.0, 4.0])(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor(1.0760)
    """
    if class_counts is not None:
        if class_weights is not None:
            raise ValueError("class_counts: expected no class_weights with it, got both; give one of them")
        class_weights = balanced_weights(class_counts)
    parameters: dict[str, float | Tensor] = {"label_smoothing": check_share("label_smoothing", label_smoothing)}
    if class_weights is not None:
        parameters["class_weights"] = check_numbers("class_weights", class_weights)
    return WeightedMean(
        terms.cross_entropy,
        parameters,
        task=task,
        tasks=("multiclass",),
        reduction=reduction,
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
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
            class_weights,
            class_counts,
            smoothing,
            task=task,
            reduction=reduction,
            ignore_index=ignore_index,
            process_group=process_group,
        )
    if class_weights is not None:
        raise ValueError(f"class_weights: expected None for task={task!r}; use positive_weight and negative_weight")
    return bce(
        positive_weight,
        negative_weight,
        class_counts,
        smoothing,
        task=task,
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def logit_adjusted_cross_entropy(
    class_counts: Numbers,
    tau: float = 1.0,
    *,
    task: Task = "multiclass",
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
        A loss called as ``loss(logits, targets, weight=None, mask=None)``.

    Examples
    --------
    >>> logit_adjusted_cross_entropy([90, 10])(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor(0.0149)
    """
    if task == "multiclass":
        logs = check_numbers("class_counts", class_counts).log()
    else:
        negative, positive = check_two_rows(class_counts)
        logs = (positive / negative).log().reshape(-1)
    parameters = {"shift": check_number("tau", tau) * logs}
    return WeightedMean(
        terms.logit_adjusted_cross_entropy,
        parameters,
        task=task,
        tasks=TASKS,
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )
