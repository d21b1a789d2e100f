"""Losses that are a weighted mean of terms, one per element or per set of elements: the base of the baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from metricgrad.core import processes
from metricgrad.core.batch import Task, check_task, encode
from metricgrad.core.counts import compute_dtype, wide
from metricgrad.core.metrics.derivatives import FLOORS, ratio
from metricgrad.losses.logit_scale import TakesLogits
from metricgrad.losses.torch_modes import is_traced, without_autocast

if TYPE_CHECKING:
    from metricgrad.core.processes import ProcessGroup

Terms = Callable[..., tuple[Tensor, Tensor]]
"""(logits, targets, weight, task, **parameters) -> (terms, their weights), which broadcast against each other.

Logits are ``(rows, K)`` in float32 at least, targets ``(rows, K)`` of that type or ``(rows,)`` class indices, the
weight ``(rows, 1)`` or ``(rows, K)``, zero for what does not count. A loss of sets gets a leading axis, the sets.
"""

Sets = Literal["element", "sample", "batch"]
"""What a term is of: each element, all positions of one sample (and class), or all of the batch (and class)."""

Reduction = Literal["mean", "sum", "none"]
"""What becomes of the terms: Σ weight·term / Σ weight, Σ weight·term, or each weight·term, as in torch."""


class WeightedMean(TakesLogits):
    """Σ weight·term / Σ weight over what counts, 0 if nothing does; or the terms, or their sum.

    Parameters
    ----------
    terms : callable
        One of the functions of this module, of (logits, targets, weight, task) and ``parameters``, that returns the
        terms and their weights.
    parameters : mapping
        Its further arguments; tensors become buffers and have one number per class in their last axis.
    task : {'binary', 'multilabel', 'multiclass'} or None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    tasks : iterable of str, default ('binary', 'multilabel')
        The tasks that the terms are for.
    sets : {'element', 'sample', 'batch'}, default 'element'
        What a term is of: each element, all positions of one sample, or the whole batch.
    reduction : {'mean', 'sum', 'none'}, default 'mean'
        "mean": Σ weight·term / Σ weight. "sum": Σ weight·term. "none": weight·term of each, 0 for what does not count.
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.
    """

    def __init__(
        self,
        terms: Terms,
        parameters: Mapping[str, float | str | Tensor],
        *,
        task: Task | None,
        tasks: Iterable[Task] = ("binary", "multilabel"),
        sets: Sets = "element",
        reduction: Reduction = "mean",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.terms, self.sets = terms, sets
        self.task: Task = check_task(task)
        self.declared_task = task
        if self.task not in tasks:
            raise ValueError(f"task: {self._get_name()} is for {' or '.join(map(repr, tasks))}, got {task!r}")
        if reduction not in get_args(Reduction):
            raise ValueError(f"reduction: expected 'mean', 'sum' or 'none', got {reduction!r}")
        if reduction == "none" and process_group is not None:
            raise ValueError(
                "reduction: expected 'mean' or 'sum' with process_group, got 'none'; leave one of them out"
            )
        self.reduction: Reduction = reduction
        self.ignore_index, self.process_group = ignore_index, process_group
        self.numbers = {name: value for name, value in parameters.items() if not isinstance(value, Tensor)}
        for name, value in parameters.items():
            if isinstance(value, Tensor):
                self.register_buffer(name, value)

    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss.

        Parameters
        ----------
        logits : Tensor
            Raw scores, never probabilities; the shape is that of the task.
        targets : Tensor
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Returns
        -------
        Tensor
            A scalar; with ``reduction="none"`` the shape of the logits, without the axis of the classes for
            "multiclass", or one number per set.
        """
        traced = is_traced(logits)
        if not traced:
            self._look_at_scale(logits)
        batch = encode(self.declared_task, logits, targets, weight, mask, self.ignore_index, not traced)
        group = processes.resolve(self.process_group)
        if group is not None and self.sets == "batch":
            batch, group = processes.join_batches(batch, group), None  # one set of the samples of all processes
        z, y, w = batch.logits.to(compute_dtype(batch.logits)), batch.targets, batch.weight
        y = y if y.dim() == 1 else y.to(z.dtype)
        w = torch.ones_like(z[:, :1]) if w is None else w
        if self.sets != "element":
            samples = logits.shape[0] if self.sets == "sample" and logits.dim() else 1
            z, y, w = (_fold(x, samples) for x in (z, y, w))
        each, weights = self.terms(z, y, w, self.task, **self.numbers, **self._tensors(z))
        if self.reduction == "none":
            return self._shaped(each * weights, logits)
        if batch.weight is None and weights is w and group is None and each.numel() and self.reduction == "mean":
            return each.mean()  # the usual case, faster
        w = weights
        total, count = (each * w).sum(), w.expand(each.shape).sum()
        if group is not None:
            total, count = processes.sum_cells((total, count), group)
        return total if self.reduction == "sum" else ratio(total, count)

    def _shaped(self, each: Tensor, logits: Tensor) -> Tensor:
        """Return one number per row (or set) and class in the shape of the logits (or without their positions)."""
        if self.sets == "batch":
            each = each.squeeze(0)
        elif self.sets == "sample":
            each = each.reshape(*logits.shape[:1], each.shape[1])
        elif self.task == "binary":
            return each.reshape(logits.shape)
        else:
            each = each.reshape(*logits.shape[:1], *logits.shape[2:], each.shape[1])
        return each.movedim(-1, min(1, each.dim() - 1)) if self.task == "multilabel" else each.squeeze(-1)

    def _tensors(self, z: Tensor) -> dict[str, Tensor]:
        """Return the parameters that are tensors, in the type of the logits."""
        found = {name: value.to(z.dtype) for name, value in self.named_buffers(recurse=False)}
        for name, value in found.items():
            if value.shape[-1] != z.shape[-1]:
                raise ValueError(f"{name}: expected one number per class, {z.shape[-1]}, got {value.shape[-1]}")
        return found

    def _get_name(self) -> str:
        return self.terms.__name__

    def extra_repr(self) -> str:
        """Return the parameters, for ``repr``.

        Returns
        -------
        str
            Comma-separated ``name=value``.
        """
        tensors = {name: value.tolist() for name, value in self.named_buffers(recurse=False)}
        shown: dict[str, object] = {**self.numbers, **tensors, "task": self.task}
        if self.sets != "element":
            shown["sets"] = self.sets
        if self.reduction != "mean":
            shown["reduction"] = self.reduction
        if self.ignore_index is not None:
            shown["ignore_index"] = self.ignore_index
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _fold(x: Tensor, samples: int) -> Tensor:
    """Turn rows into sets × rows; a sample's positions are consecutive rows."""
    return x.reshape(samples, len(x) // max(samples, 1), *x.shape[1:])


def bce(
    z: Tensor,
    y: Tensor,
    w: Tensor,
    task: str,
    label_smoothing: float = 0.0,
    positive_weight: float | Tensor = 1.0,
    negative_weight: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Binary cross-entropy, each side weighted."""
    if label_smoothing:
        y = y * (1 - label_smoothing) + label_smoothing / 2
    odds = positive_weight / negative_weight  # torch has a weight for the positives only
    weight = odds if isinstance(odds, Tensor) else None if odds == 1 else z.new_tensor(odds)
    each = F.binary_cross_entropy_with_logits(z, y, pos_weight=weight, reduction="none")
    return each if isinstance(negative_weight, float) and negative_weight == 1 else negative_weight * each, w


def cross_entropy(
    z: Tensor, y: Tensor, w: Tensor, task: str, label_smoothing: float = 0.0, class_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Softmax cross-entropy, each class weighted; the weights count in the mean."""
    each = F.cross_entropy(z, y, class_weights, reduction="none", label_smoothing=label_smoothing).unsqueeze(1)
    if class_weights is None:
        return each, w
    own = (class_weights[y] if y.dim() == 1 else y @ class_weights).unsqueeze(1)
    return ratio(each, own), w * own


def logit_adjusted_cross_entropy(z: Tensor, y: Tensor, w: Tensor, task: str, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of shifted logits."""
    return (cross_entropy if task == "multiclass" else bce)(z + shift, y, w, task)


def focal(z: Tensor, y: Tensor, w: Tensor, task: str, gamma: float, alpha: Any = None) -> tuple[Tensor, Tensor]:
    """−α(1 − p)^γ log p of the true label."""

    def term(log_p: Tensor) -> Tensor:
        return -power(-torch.expm1(log_p), gamma) * log_p

    return _over_labels(term, z, y, task, alpha), w


def poly1(z: Tensor, y: Tensor, w: Tensor, task: str, epsilon: float) -> tuple[Tensor, Tensor]:
    """−log p + ε(1 − p) of the true label."""
    return _over_labels(lambda log_p: -log_p - epsilon * torch.expm1(log_p), z, y, task), w


def _over_labels(term: Callable[[Tensor], Tensor], z: Tensor, y: Tensor, task: str, alpha: Any = None) -> Tensor:
    """Return Σ label·α·term(log p) over the classes of each row, or over the two sides of each element."""
    if task != "multiclass":
        yes, no = (1.0, 1.0) if alpha is None else (alpha, 1 - alpha)
        return yes * y * term(F.logsigmoid(z)) + no * (1 - y) * term(F.logsigmoid(-z))
    log_p = F.log_softmax(z, 1)
    if y.dim() == 1:
        index = y.unsqueeze(1)
        each = term(log_p.gather(1, index))
        return each if alpha is None else each * alpha[index]
    return (term(log_p) * (y if alpha is None else y * alpha)).sum(1, keepdim=True)


def asymmetric(
    z: Tensor, y: Tensor, w: Tensor, task: str, gamma_neg: float, gamma_pos: float, clip: float
) -> tuple[Tensor, Tensor]:
    """Focal terms with a γ for each side, the negatives' probability shifted."""
    p = torch.sigmoid(z)
    shifted = F.relu(p - clip)
    # With a margin 1 − p_m is at least the margin, and its logarithm safe; without it is the logarithm of a sigmoid.
    log_miss = torch.log1p(-shifted) if clip else F.logsigmoid(-z)
    positive = power(torch.sigmoid(-z), gamma_pos) * F.logsigmoid(z)
    return -y * positive - (1 - y) * power(shifted, gamma_neg) * log_miss, w


def dice(z: Tensor, y: Tensor, w: Tensor, task: str, smooth: float) -> tuple[Tensor, Tensor]:
    """1 − Dice of each set and class, with squares in the denominator."""
    p = torch.sigmoid(z)
    own = _weight_of_sets(w)
    inner = ratio(w, own.unsqueeze(1))  # normalised, so that the smoothing does not depend on the weight of the set
    overlap, size = (inner * p * y).sum(1), (inner * (p * p + y * y)).sum(1)
    return 1 - ratio(2 * overlap + smooth, size + smooth), own


def lovasz_hinge(z: Tensor, y: Tensor, w: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Lovász extension of 1 − Jaccard, of each set and class, at the hinge errors."""
    _check_hard(y, "lovasz_hinge")
    return _lovasz_extension(1 - z * (2 * y - 1), y, w), _weight_of_sets(w)


def lovasz_softmax(z: Tensor, y: Tensor, w: Tensor, task: str, classes: str) -> tuple[Tensor, Tensor]:
    """Lovász extension of 1 − Jaccard at the errors of the probabilities, the mean over the classes of each set."""
    if y.dim() < z.dim():
        y = (y.unsqueeze(-1) == torch.arange(z.shape[-1], device=y.device)).to(z.dtype)
    _check_hard(y, "lovasz_softmax")
    each = _lovasz_extension((y - z.softmax(-1)).abs(), y, w)
    there = torch.ones_like(each) if classes == "all" else ((w * y).sum(1) > 0).to(z.dtype)
    return ratio((each * there).sum(1, keepdim=True), there.sum(1, keepdim=True)), _weight_of_sets(w)


def _check_hard(y: Tensor, name: str) -> None:
    if not is_traced(y) and not ((y == 0) | (y == 1)).all():
        raise ValueError(f"targets: expected 0 or 1 for {name}, got values in between")


def _lovasz_extension(errors: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Return Σ error·(what it adds to 1 − Jaccard of the larger ones), ``(sets, K)``; negative errors are none."""
    errors, order = errors.sort(1, descending=True)
    with torch.no_grad():
        # In float64, since the steps are differences of nearly equal numbers.
        hits, misses = (wide((w * side).gather(1, order)) for side in (y, 1 - y))
        positives = hits.sum(1, keepdim=True)
        # The Jaccard index if the k largest errors are wrong; of two empty sets it is 1.
        jaccard = ratio(positives - hits.cumsum(1), positives + misses.cumsum(1), empty=1.0)
        steps = -jaccard.diff(dim=1, prepend=torch.ones_like(positives))
    return (F.relu(errors) * steps.to(errors.dtype)).sum(1)


def _weight_of_sets(w: Tensor) -> Tensor:
    """Return the weight of each set: the mean weight of its elements that count."""
    return ratio(w.sum(1), (w > 0).to(w.dtype).sum(1))


def power(x: Tensor, exponent: float) -> Tensor:
    """x^exponent for x ≥ 0; at 0 (below ``FLOORS``) the gradient is zero, not infinite."""
    if exponent == 0:
        return torch.ones_like(x)
    zero = x < FLOORS[x.dtype]
    return x.masked_fill(zero, 1.0).pow(exponent).masked_fill(zero, 0.0)
