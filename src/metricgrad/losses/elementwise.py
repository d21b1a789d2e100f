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
Those of cross-entropy may get large images as they are, with a last axis of positions.
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
        self.terms = terms
        self.sets = sets
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
        self.ignore_index = ignore_index
        self.process_group = process_group
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
            self._check_scale(logits)
        batch = encode(
            self.declared_task,
            logits,
            targets,
            weight,
            mask,
            self.ignore_index,
            check_values=not traced,
            allow_maps=self._takes_maps(),
        )
        group = processes.resolve(self.process_group)
        if group is not None and self.sets == "batch":
            batch = processes.join_batches(batch, group)  # one set of the samples of all processes
            group = None
        z = batch.logits.to(compute_dtype(batch.logits))
        has_indices = batch.targets.dim() < z.dim()
        y = batch.targets if has_indices else batch.targets.to(z.dtype)
        w = torch.ones_like(z[:, :1]) if batch.weight is None else batch.weight
        if self.sets != "element":
            samples = logits.shape[0] if self.sets == "sample" and logits.dim() else 1
            z = _fold_into_sets(z, samples)
            y = _fold_into_sets(y, samples)
            w = _fold_into_sets(w, samples)
        terms, term_weights = self.terms(z, y, w, self.task, **self.numbers, **self._cast_tensors(z))
        if self.reduction == "none":
            return self._restore_shape(terms * term_weights, logits)
        is_unweighted = batch.weight is None and term_weights is w
        if is_unweighted and group is None and terms.numel() and self.reduction == "mean":
            return terms.mean()  # the usual case, faster
        total = (terms * term_weights).sum()
        total_weight = term_weights.expand(terms.shape).sum()
        if group is not None:
            total, total_weight = processes.sum_cells((total, total_weight), group)
        return total if self.reduction == "sum" else ratio(total, total_weight)

    def _takes_maps(self) -> bool:
        """Return whether large images may stay ``(N, K, P)``: if torch computes the terms, none per row or class."""
        has_tensors = any(True for _ in self.buffers(recurse=False))
        return self.terms in (bce, cross_entropy) and self.reduction != "none" and not has_tensors

    def _restore_shape(self, terms: Tensor, logits: Tensor) -> Tensor:
        """Return one number per row (or set) and class in the shape of the logits (or without their positions)."""
        classes = terms.shape[-1]
        if self.sets == "batch":
            terms = terms.squeeze(0)
        elif self.sets == "sample":
            terms = terms.reshape(*logits.shape[:1], classes)
        elif self.task == "binary":
            return terms.reshape(logits.shape)
        else:
            terms = terms.reshape(*logits.shape[:1], *logits.shape[2:], classes)
        if self.task == "multilabel":
            return terms.movedim(-1, min(1, terms.dim() - 1))
        return terms.squeeze(-1)

    def _cast_tensors(self, z: Tensor) -> dict[str, Tensor]:
        """Return the parameters that are tensors, in the type of the logits."""
        classes = z.shape[-1]
        tensors = {name: value.to(z.dtype) for name, value in self.named_buffers(recurse=False)}
        for name, value in tensors.items():
            if value.shape[-1] != classes:
                raise ValueError(f"{name}: expected one number per class, {classes}, got {value.shape[-1]}")
        return tensors

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


def _fold_into_sets(x: Tensor, samples: int) -> Tensor:
    """Turn rows into sets × rows; a sample's positions are consecutive rows."""
    rows_per_sample = len(x) // max(samples, 1)
    return x.reshape(samples, rows_per_sample, *x.shape[1:])


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
    relative_weight: Any = positive_weight / negative_weight  # torch has a weight for the positives only
    if not isinstance(relative_weight, Tensor):
        relative_weight = None if relative_weight == 1 else z.new_tensor(relative_weight)
    terms = F.binary_cross_entropy_with_logits(z, y, pos_weight=relative_weight, reduction="none")
    if isinstance(negative_weight, Tensor) or negative_weight != 1:
        terms = negative_weight * terms
    return terms, w


def cross_entropy(
    z: Tensor, y: Tensor, w: Tensor, task: str, label_smoothing: float = 0.0, class_weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Softmax cross-entropy, each class weighted; the weights count in the mean."""
    terms = F.cross_entropy(z, y, class_weights, reduction="none", label_smoothing=label_smoothing).unsqueeze(1)
    if class_weights is None:
        return terms, w
    row_weight = class_weights[y] if y.dim() == 1 else y @ class_weights
    row_weight = row_weight.unsqueeze(1)
    return ratio(terms, row_weight), w * row_weight


def logit_adjusted_cross_entropy(z: Tensor, y: Tensor, w: Tensor, task: str, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of shifted logits."""
    entropy = cross_entropy if task == "multiclass" else bce
    return entropy(z + shift, y, w, task)


def focal(z: Tensor, y: Tensor, w: Tensor, task: str, gamma: float, alpha: Any = None) -> tuple[Tensor, Tensor]:
    """−α(1 − p)^γ log p of the true label."""

    def term(log_p: Tensor) -> Tensor:
        return -safe_power(-torch.expm1(log_p), gamma) * log_p

    return _sum_over_labels(term, z, y, task, alpha), w


def poly1(z: Tensor, y: Tensor, w: Tensor, task: str, epsilon: float) -> tuple[Tensor, Tensor]:
    """−log p + ε(1 − p) of the true label."""
    return _sum_over_labels(lambda log_p: -log_p - epsilon * torch.expm1(log_p), z, y, task), w


def _sum_over_labels(term: Callable[[Tensor], Tensor], z: Tensor, y: Tensor, task: str, alpha: Any = None) -> Tensor:
    """Return Σ label·α·term(log p) over the classes of each row, or over the two sides of each element."""
    if task != "multiclass":
        positive_factor = 1.0 if alpha is None else alpha
        negative_factor = 1.0 if alpha is None else 1 - alpha
        positive_terms = positive_factor * y * term(F.logsigmoid(z))
        negative_terms = negative_factor * (1 - y) * term(F.logsigmoid(-z))
        return positive_terms + negative_terms
    log_p = F.log_softmax(z, 1)
    if y.dim() == 1:
        index = y.unsqueeze(1)
        terms = term(log_p.gather(1, index))
        return terms if alpha is None else terms * alpha[index]
    label_weight = y if alpha is None else y * alpha
    return (term(log_p) * label_weight).sum(1, keepdim=True)


def asymmetric(
    z: Tensor, y: Tensor, w: Tensor, task: str, gamma_neg: float, gamma_pos: float, clip: float
) -> tuple[Tensor, Tensor]:
    """Focal terms with a γ for each side, the negatives' probability shifted."""
    p = torch.sigmoid(z)
    shifted = F.relu(p - clip)
    # With a margin, 1 − p_m is at least the margin, so its logarithm is safe. Without, it is the log-sigmoid.
    log_miss = torch.log1p(-shifted) if clip else F.logsigmoid(-z)
    positive = safe_power(torch.sigmoid(-z), gamma_pos) * F.logsigmoid(z)
    negative_factor = (1 - y) * safe_power(shifted, gamma_neg)
    return -y * positive - negative_factor * log_miss, w


def dice(z: Tensor, y: Tensor, w: Tensor, task: str, smooth: float) -> tuple[Tensor, Tensor]:
    """1 − Dice of each set and class, with squares in the denominator."""
    p = torch.sigmoid(z)
    set_weight = _weigh_sets(w)
    relative_weight = ratio(w, set_weight.unsqueeze(1))  # so that the smoothing does not depend on the set's weight
    overlap = (relative_weight * p * y).sum(1)
    size = (relative_weight * (p * p + y * y)).sum(1)
    return 1 - ratio(2 * overlap + smooth, size + smooth), set_weight


def lovasz_hinge(z: Tensor, y: Tensor, w: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """Lovász extension of 1 − Jaccard, of each set and class, at the hinge errors."""
    _check_hard_labels(y, "lovasz_hinge")
    errors = 1 - z * (2 * y - 1)
    return _lovasz_extension(errors, y, w), _weigh_sets(w)


def lovasz_softmax(z: Tensor, y: Tensor, w: Tensor, task: str, classes: str) -> tuple[Tensor, Tensor]:
    """Lovász extension of 1 − Jaccard at the errors of the probabilities, the mean over the classes of each set."""
    if y.dim() < z.dim():
        y = (y.unsqueeze(-1) == torch.arange(z.shape[-1], device=y.device)).to(z.dtype)
    _check_hard_labels(y, "lovasz_softmax")
    errors = (y - z.softmax(-1)).abs()
    terms = _lovasz_extension(errors, y, w)
    is_counted = torch.ones_like(terms) if classes == "all" else ((w * y).sum(1) > 0).to(z.dtype)
    mean = ratio((terms * is_counted).sum(1, keepdim=True), is_counted.sum(1, keepdim=True))
    return mean, _weigh_sets(w)


def _check_hard_labels(y: Tensor, name: str) -> None:
    if not is_traced(y) and not ((y == 0) | (y == 1)).all():
        raise ValueError(f"targets: expected 0 or 1 for {name}, got values in between")


def _lovasz_extension(errors: Tensor, y: Tensor, w: Tensor) -> Tensor:
    """Return Σ error·(its rise of 1 − Jaccard), in order of errors, ``(sets, K)``; negative errors count as 0."""
    errors, order = errors.sort(1, descending=True)
    with torch.no_grad():
        # In float64, since the steps are differences of nearly equal numbers.
        positive_weight = wide((w * y).gather(1, order))
        negative_weight = wide((w * (1 - y)).gather(1, order))
        positives = positive_weight.sum(1, keepdim=True)
        # The Jaccard index if the k largest errors are wrong; of two empty sets it is 1.
        intersection = positives - positive_weight.cumsum(1)
        union = positives + negative_weight.cumsum(1)
        jaccard = ratio(intersection, union, empty=1.0)
        increases = -jaccard.diff(dim=1, prepend=torch.ones_like(positives))
    return (F.relu(errors) * increases.to(errors.dtype)).sum(1)


def _weigh_sets(w: Tensor) -> Tensor:
    """Return the weight of each set: the mean weight of its elements that count."""
    number = (w > 0).to(w.dtype).sum(1)
    return ratio(w.sum(1), number)


def safe_power(x: Tensor, exponent: float) -> Tensor:
    """x^exponent for x ≥ 0; at 0 (below ``FLOORS``) the gradient is zero, not infinite."""
    if exponent == 0:
        return torch.ones_like(x)
    zero = x < FLOORS[x.dtype]
    return x.masked_fill(zero, 1.0).pow(exponent).masked_fill(zero, 0.0)
