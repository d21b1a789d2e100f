"""Losses of the Jaccard index by its Lovász extension, of the hinge errors or of those of the softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch  # noqa: F401  # for the examples

from metricgrad.losses import elementwise as terms
from metricgrad.losses.elementwise import WeightedMean

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.losses.elementwise import Reduction

__all__ = ["lovasz_hinge", "lovasz_softmax"]

Classes = Literal["present", "all"]


def lovasz_hinge(
    per_image: bool = False,
    *,
    task: Task | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> WeightedMean:
    """Lovász hinge: the Lovász extension of 1 − Jaccard, of the hinge errors 1 ∓ z [berman2018].

    Where every margin ±z is 1 (right) or 0 (wrong) it is 1 − Jaccard. Weights weigh the elements of the Jaccard index.
    Labels are 0 or 1.

    Parameters
    ----------
    per_image : bool, default False
        Each sample is a set of its own, otherwise the batch is one; for "multilabel" each class too.
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
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def lovasz_softmax(
    per_image: bool = False,
    classes: Classes = "present",
    *,
    task: Task = "multiclass",
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> WeightedMean:
    """Lovász-softmax: the Lovász extension of 1 − Jaccard, of the errors |label − probability| [berman2018].

    The mean over the classes. Where every probability is 0 or 1 it is 1 − the mean Jaccard index. Weights weigh the
    samples in the Jaccard index. Labels are class indices, or 0 and 1.

    Parameters
    ----------
    per_image : bool, default False
        Each sample is a set of its own, and the loss the mean over them; otherwise the batch is one set.
    classes : {'present', 'all'}, default 'present'
        The classes that count: those with a label in the set, as in the paper's experiments, or all.
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

    See Also
    --------
    lovasz_hinge : For binary and multi-label problems.

    Notes
    -----
    An image in which nothing counts is left out of the mean. With ``process_group`` and the batch as the set, the
    processes gather their elements, not sums.

    Examples
    --------
    >>> z, y = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1])
    >>> lovasz_softmax()(z, y)
    tensor(0.4750)
    """
    if classes not in get_args(Classes):
        raise ValueError(f"classes: expected 'present' or 'all', got {classes!r}")
    return WeightedMean(
        terms.lovasz_softmax,
        {"classes": classes},
        task=task,
        tasks=("multiclass",),
        sets="sample" if per_image else "batch",
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )
