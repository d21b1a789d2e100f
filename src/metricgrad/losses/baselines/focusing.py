"""Losses that weight an element by how well it is classified already: focal, asymmetric, poly-1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch  # noqa: F401  # for the examples

from metricgrad.losses import elementwise as terms
from metricgrad.losses.baselines.arguments import TASKS, check_number, check_numbers, check_share
from metricgrad.losses.elementwise import WeightedMean

if TYPE_CHECKING:
    from torch import Tensor

    from metricgrad.core.batch import Task
    from metricgrad.core.processes import ProcessGroup
    from metricgrad.losses.baselines.arguments import Numbers
    from metricgrad.losses.elementwise import Reduction

__all__ = ["asymmetric", "focal", "poly1"]


def focal(
    gamma: float = 2.0,
    alpha: float | Numbers | None = None,
    *,
    task: Task | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> WeightedMean:
    r"""Focal loss, $-\alpha_t (1-p_t)^\gamma \log p_t$ [lin2017, eq. 4, 5].

    Parameters
    ----------
    gamma : float, default 2.0
        The focusing exponent γ, at least 0.
    alpha : float or sequence of float, optional
        The positives' share in [0, 1] (0.25 in the paper), the negatives have 1 − α; for "multiclass" a number per
        class.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
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
    >>> focal()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.0122)
    """
    parameters: dict[str, float | Tensor] = {"gamma": check_number("gamma", gamma, least=0.0)}
    if alpha is not None:
        parameters["alpha"] = check_numbers("alpha", alpha) if task == "multiclass" else check_share("alpha", alpha)
    return WeightedMean(
        terms.focal,
        parameters,
        task=task,
        tasks=TASKS,
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def asymmetric(
    gamma_neg: float = 4.0,
    gamma_pos: float = 0.0,
    clip: float = 0.05,
    *,
    task: Task = "multilabel",
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
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
    γ₊ = 0 is the paper's and that of the authors' training script; their class has 1 as default. The gradient flows
    through the focusing factors, as in the paper's analysis of it; the authors' script stops it.

    Examples
    --------
    >>> asymmetric()(torch.tensor([[2.0, -1.0]]), torch.tensor([[1, 0]]))
    tensor(0.0637)
    """
    parameters = {
        "gamma_neg": check_number("gamma_neg", gamma_neg, least=0.0),
        "gamma_pos": check_number("gamma_pos", gamma_pos, least=0.0),
        "clip": check_share("clip", clip),
    }
    return WeightedMean(
        terms.asymmetric,
        parameters,
        task=task,
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )


def poly1(
    epsilon: float = 1.0,
    *,
    task: Task | None = None,
    reduction: Reduction = "mean",
    ignore_index: int | None = None,
    process_group: ProcessGroup | None = None,
) -> WeightedMean:
    r"""Poly-1 cross-entropy, $-\log p_t + \epsilon (1 - p_t)$ [leng2022].

    Parameters
    ----------
    epsilon : float, default 1.0
        ε, at least −1.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
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
    >>> poly1()(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
    tensor(0.4142)
    """
    return WeightedMean(
        terms.poly1,
        {"epsilon": check_number("epsilon", epsilon, least=-1.0)},
        task=task,
        tasks=TASKS,
        reduction=reduction,
        ignore_index=ignore_index,
        process_group=process_group,
    )
