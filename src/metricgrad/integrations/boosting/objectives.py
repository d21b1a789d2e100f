r"""Gradient boosting on any loss of this library: objectives of XGBoost and LightGBM, and where to start.

Boosting takes its gradient on the whole data set at once, so it sees the true metric: there are no batches. Both
libraries want, for every score z, a gradient and a positive curvature.

Gradient: $g = n\,\partial L/\partial z$, by autograd in float32, which is what both libraries keep. Losses are
means, whose gradients shrink as the data grow; both libraries regularise on the scale of sums (``lambda``,
``min_child_weight``) and would forbid every split. n is the number of decisions: the total weight, times the labels of
a multi-label problem; the gradient of the mean cross-entropy is then the built-in one, w(p − y).

Curvature: $h = |g|/2$, and at least ``LEAST_CURVATURE``. The Hessian of such a loss is not diagonal and need not be
positive; h is cheap, positive, and scales with the loss. For cross-entropy its expectation under the model is p(1 − p),
the built-in curvature. For F1 of sigmoid memberships the Hessian is at most 4·diag(h), so that a round with a learning
rate of up to ½ lowers the loss to second order (docs/methods.md). A leaf moves by at most twice the learning rate.

Only torch is imported: the callables work on what the two libraries hand over.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from metricgrad.core import processes
from metricgrad.core.batch import check_evidently_binary, check_task
from metricgrad.core.inputs import as_tensor
from metricgrad.integrations.boosting.hooks import Hook
from metricgrad.integrations.boosting.workers import find_workers
from metricgrad.losses.hybrid_loss import HybridLoss
from metricgrad.losses.logit_scale import trust_logits

if TYPE_CHECKING:
    from collections.abc import Callable

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.processes import ProcessGroup

LEAST_CURVATURE = 1e-16
"""The least curvature, as in XGBoost: rows whose gradient vanished must not divide by zero."""


class Gradient(Hook):
    """Gradient and curvature of a loss."""

    def __init__(self, loss: Callable[..., Tensor], targets: ArrayLike | None = None) -> None:
        super().__init__(targets)
        if not callable(loss):
            raise ValueError(f"loss: expected a loss, called with (logits, targets, weight), got {loss!r}")
        trust_logits(loss)
        self.loss = loss
        modules = _modules(loss)
        self._with_group = [module for module in modules if hasattr(module, "process_group")]
        self._with_step = [module for module in modules if hasattr(module, "step")]
        self._with_epochs = [module for module in modules if hasattr(module, "step_each_epoch")]
        self._targets_are_checked = False

    @property
    def has_group(self) -> bool:
        return self._group is not None

    @property
    def _group(self) -> ProcessGroup | None:
        return next((module.process_group for module in self._with_group if module.process_group is not None), None)

    def answer(self, scores: Tensor, targets: Tensor, weight: Tensor | None, native: bool) -> Any:
        if self._targets_are_checked and self._is_cross_entropy(targets, weight):
            gradient = _differentiate_cross_entropy(scores, targets)
        else:
            gradient = self._differentiate(scores, targets, weight)
            self._targets_are_checked = self.keeps_rows
        gradient = gradient * self._count_decisions(targets, weight)
        for module in self._with_step:
            module.step()
        return gradient.numpy(), gradient.abs().mul_(0.5).clamp_min_(LEAST_CURVATURE).numpy()

    def _differentiate(self, scores: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
        """Return the gradient of the loss by autograd."""
        z = scores.detach().requires_grad_()
        for module in self._with_epochs:
            module.reset()  # every round sees all rows, so counts of earlier rounds must not be added
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(compute_loss(self.loss, z, targets, weight), z)
        return gradient

    def _is_cross_entropy(self, targets: Tensor, weight: Tensor | None) -> bool:
        """Return whether the loss is the mean of binary cross-entropies of this process's rows, and nothing else."""
        loss = self.loss
        if type(loss) is not HybridLoss or loss.metric_weight != 0 or loss.metric_loss.task == "multiclass":
            return False
        is_plain = loss.metric_loss.ignore_index is None and weight is None and targets.is_floating_point()
        return is_plain and self._group is None and processes.find_surrounding() is None

    def _count_decisions(self, targets: Tensor, weight: Tensor | None) -> float:
        """Return n, of all workers; of the processes of a group the mean, since their gradients come out summed."""
        rows = len(targets) if weight is None else weight.double().sum().item()
        others = processes.find_surrounding() if self._group is None else processes.resolve(self._group)
        if others is not None:
            rows = others.sum(torch.tensor(float(rows), dtype=torch.float64)).item()
            rows = rows if self._group is None else rows / others.size
        return rows * (targets.shape[1] if targets.dim() > 1 else 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.loss!r})"


def _differentiate_cross_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the gradient of the mean cross-entropy, step by step as autograd computes it: to the last bit the same."""
    share = torch.ones(()) / scores.numel()
    return (scores.sigmoid() - targets) * share


def xgboost_objective(loss: Callable[..., Tensor], *, targets: ArrayLike | None = None) -> Callable[..., Any]:
    r"""Return a loss as XGBoost's ``obj=`` (``xgboost.train``) or ``objective=`` (``XGBClassifier``).

    The gradient is $g = n\,\partial L/\partial z$ with n the number of decisions, the curvature $h = |g|/2$
    (docs/methods.md). Scores are ``(n,)``, or ``(n, K)`` with class indices (multi-class, ``num_class=K``) or a label
    matrix ``(n, K)`` (multi-label). Weights and base margins of the data count. The warm-up of a ``HybridLoss``, an
    ``Annealed`` step and the multipliers of a ``ConstrainedLoss`` move on by one every round.

    Set ``base_score`` in the parameters of ``xgboost.train``: with a custom objective it is a logit, 0.5 by default;
    ``XGBClassifier`` takes it as a probability.

    On several workers (``xgboost.dask``, or any other ``xgboost.collective``) each gets the gradient of the loss of all
    workers' rows for its own: losses of this library add up what they count, those that sort gather the rows, and a
    function of your own is called with the rows of all workers. See docs/scale.md.

    Parameters
    ----------
    loss : callable
        A loss of this library, or a function of (logits, targets, weight), whose mean over the data is one number.
    targets : array-like, optional
        The labels, instead of those of the data.

    Returns
    -------
    callable
        It returns gradient and curvature as float32 arrays of the shape of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from metricgrad import MetricLoss
    >>> gradient, curvature = xgboost_objective(MetricLoss("f1"))(np.array([1, 0, 1]), np.array([2.0, -1.0, 0.0]))
    >>> gradient.round(4), curvature.round(4)
    (array([-0.0418,  0.2136, -0.3983], dtype=float32), array([0.0209, 0.1068, 0.1992], dtype=float32))

    """
    return Gradient(loss, targets)


def lightgbm_objective(loss: Callable[..., Tensor], *, targets: ArrayLike | None = None) -> Callable[..., Any]:
    r"""Return a loss as LightGBM's ``objective`` parameter (``lightgbm.train``) or ``objective=`` (``LGBMClassifier``).

    The gradient is $g = n\,\partial L/\partial z$ with n the number of decisions, the curvature $h = |g|/2$
    (docs/methods.md). Scores are ``(n,)``, or ``(n, K)`` with class indices (multi-class, ``num_class=K``) or a label
    matrix ``(n, K)`` (multi-label). A LightGBM data set has one label a row, so a label matrix comes as ``targets``,
    with ``num_class=K``. Weights of the data count. Scores start at 0 unless the data set has an ``init_score``; see
    ``base_score``. The warm-up of a ``HybridLoss``, an ``Annealed`` step and the multipliers of a ``ConstrainedLoss``
    move on by one every round.

    Distributed training is refused, since every worker would optimise its own rows, unless the loss has a
    ``process_group``, which gives each the gradient of the data of all workers. XGBoost needs neither.

    Parameters
    ----------
    loss : callable
        A loss of this library, or a function of (logits, targets, weight), whose mean over the data is one number.
    targets : array-like, optional
        The labels, instead of those of the data set; for several labels a row, ``(n, K)``.

    Returns
    -------
    callable
        It returns gradient and curvature as float32 arrays of the shape of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from metricgrad import HybridLoss
    >>> gradient, _ = lightgbm_objective(HybridLoss("f1", metric_weight=0.0))(np.array([1, 0]), np.array([0.0, 0.0]))
    >>> gradient                                                            # cross-entropy: p − y
    array([-0.5,  0.5], dtype=float32)

    """
    return Gradient(loss, targets)


def compute_loss(loss: Callable[..., Tensor], z: Tensor, y: Tensor, weight: Tensor | None) -> Tensor:
    """Return the loss, which must be one number; without weights it need not take any.

    Of the rows of all workers: a loss of this library joins them itself, any other is given all rows.
    """
    workers = processes.find_surrounding()
    if workers is not None and type(loss).__module__.partition(".")[0] != "metricgrad":
        z, y, weight = processes.gather_rows((z, y, weight), workers)
        workers = None
    with processes.across(workers):
        value = loss(z, y) if weight is None else loss(z, y, weight)
    if not isinstance(value, Tensor) or value.dim():
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"loss: expected one number (average='macro', not None), got {got}")
    return value


def finish_schedules(loss: Any, rounds: int) -> Any:
    """Return a copy of the loss as it is after ``rounds`` rounds, to evaluate with: a warm-up or annealing is over.

    Multipliers of a ``ConstrainedLoss`` follow the data and stay where they are.
    """
    loss = copy.deepcopy(loss)
    for module in _modules(loss):
        module.eval()
        for _ in range(rounds if hasattr(module, "step") and not hasattr(module, "step_each_epoch") else 0):
            module.step()
    return loss


def _modules(loss: Any) -> list[Any]:
    return list(loss.modules()) if isinstance(loss, nn.Module) else []


def base_score(
    targets: ArrayLike, *, task: Task | None = None, classes: int | None = None, weight: ArrayLike | None = None
) -> Any:
    """Return where boosting should start, in logits: the log-odds of the positives, or logarithms of class shares.

    Half a sample is added to each side, so that it is finite. The best constant of a metric loss is no start: for F1 it
    is "everything is positive", at infinity. On several workers of XGBoost the targets are those of all together.

    Parameters
    ----------
    targets : Tensor or array-like
        Labels 0 and 1 ``(n,)``, class indices ``(n,)``, or labels ``(n, K)``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        What the targets are. None is "binary" if the shapes leave no other reading, else an error.
    classes : int, optional
        The number of classes of a multi-class problem, if the highest index may be missing.
    weight : array-like, optional
        Per sample.

    Returns
    -------
    float or ndarray
        A number for "binary", an array ``(K,)`` otherwise.

    Examples
    --------
    >>> round(base_score([1, 0, 0, 0, 0, 0, 0, 0]), 3)
    -1.609

    """
    if task is None:
        shape = as_tensor("targets", targets).shape
        check_evidently_binary(shape, shape)
    known = check_task(task)
    workers = find_workers()
    if workers is None:
        return start_from(sum_classes(targets, known, classes, weight), known)
    with workers.together():
        sums = sum_classes(targets, known, classes, weight)
        if known == "multiclass":  # a worker may lack the last classes
            sums = F.pad(sums, (0, int(workers.stack(torch.tensor(len(sums))).max()) - len(sums)))
        return start_from(workers.sum(sums), known)


def sum_classes(targets: ArrayLike, task: Task, classes: int | None, weight: ArrayLike | None) -> Tensor:
    """Return what ``start_from`` needs of targets, which adds up: the weight of each class, or of positives and all."""
    y = as_tensor("targets", targets)
    w = torch.ones(len(y), dtype=torch.float64) if weight is None else as_tensor("weight", weight).double()
    if task == "multiclass":
        return torch.bincount(y.long(), w, classes or 0).double()
    columns = y.double().unsqueeze(1) if y.dim() == 1 else y.double()
    return torch.cat(((columns * w.unsqueeze(1)).sum(0), w.sum().reshape(1)))


def start_from(sums: Tensor, task: Task) -> Any:
    """Return the logits of the sums of ``sum_classes``: a number for "binary", otherwise an array."""
    if task == "multiclass":
        return ((sums + 0.5) / (sums.sum() + 0.5 * len(sums))).log().numpy()
    positives = sums[:-1]
    start = ((positives + 0.5) / (sums[-1] - positives + 0.5)).log()
    return start.item() if task == "binary" else start.numpy()
