"""The objective: a metric with its average, as the value of a statistic and as a loss with its gradient."""

from __future__ import annotations

import copy
import math
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from metricgrad.core import processes
from metricgrad.core.array_functions import functions_of
from metricgrad.core.batch import Batch
from metricgrad.core.costs import find_row_costs
from metricgrad.core.counts import Confusion, ConfusionMargins, Counts, Mean, cells, wide
from metricgrad.core.metrics import Metric, get, name_of, of_counts, of_matrix, savings, subset_accuracy
from metricgrad.core.metrics.averages import (
    Average,
    EmptyClasses,
    check_average,
    check_empty_classes,
    check_labels,
    check_of_classes,
    class_weights,
    mark_labels,
    mean_of,
    mean_over_classes,
    pool,
)
from metricgrad.core.metrics.derivatives import (
    ARRAY_FLOORS,
    FLOOR,
    ArraysWithDerivatives,
    CountsWithDerivatives,
    as_constant,
    limit_gradient,
    ratio,
)
from metricgrad.core.metrics.margin_derivatives import differentiate_margins
from metricgrad.core.metrics.registry import count_values, is_safe, of_classes
from metricgrad.core.numpy_arrays import ARRAY_TYPES, TENSOR_DTYPES, has_array, np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metricgrad.core.batch import Task
    from metricgrad.core.objects import ObjectIndex
    from metricgrad.core.processes import Processes
    from metricgrad.core.statistics import Sums, SumsGradient


AnyRows = TypeVar("AnyRows")
"""A ``Batch``, or one of sparse scores."""

VANISHED = 1e-4
"""Below this mean membership of the positives, logits below about -8, and this gradient a run hardly recovers."""

CALLS_BETWEEN_CHECKS = 32
"""Where the sums are tensors, reading them takes time: every so many calls they are checked for a vanished gradient."""


class Objective:
    """What is maximised: ``metric`` averaged over classes or rows, and over thresholds if they are a leading axis.

    Attributes
    ----------
    of_matrix : bool
        Whether it is of the d×d matrix, and takes no average.
    needs_matrix : bool
        Whether it needs the whole matrix; otherwise the counts of the classes will do.
    is_vector : bool
        Whether it is one number per class.
    pools_rows : bool
        Whether it is one number of sums over all rows.
    averages_objects : bool
        Whether it is the mean of the values of objects, class by class.
    row_costs : Cost or None
        Costs that differ by row, which are weights of the rows: ``weigh`` puts them in.
    warns_of_vanished_gradient : bool
        Whether to warn, once, of a batch whose positives all have a membership of nearly 0.
    """

    def __init__(
        self,
        task: Task,
        metric: str | Metric,
        average: str | None = "macro",
        labels: Iterable[int] | None = None,
        empty_classes: str = "count",
        has_threshold_axis: bool = False,
        averages_objects: bool = False,
    ) -> None:
        self.task = task
        self.row_costs = find_row_costs(metric)
        self.metric: Metric = get(metric) if self.row_costs is None else savings
        self.has_threshold_axis = has_threshold_axis
        self.average: Average = check_average(average)
        self.empty_classes: EmptyClasses = check_empty_classes(empty_classes)
        self.labels = None if labels is None else tuple(int(label) for label in labels)
        self.of_matrix = task == "multiclass" and of_matrix(self.metric)
        self.needs_matrix = self.of_matrix and not _is_of_margins(self.metric)
        self.is_vector = self.average == "per-class" and not self.of_matrix
        self.pools_rows = self.average != "samples" and not self.is_vector
        self.averages_objects = averages_objects
        self._is_arithmetic = True  # whether the metric is nothing but arithmetic; found out at the first call
        self._takes_arrays = True  # whether numpy can compute it; found out at the first call, too
        self._may_be_undefined = not is_safe(self.metric)
        self.warns_of_vanished_gradient = False
        self._calls_until_check = CALLS_BETWEEN_CHECKS
        self._check_arguments()

    @property
    def name(self) -> str:
        """The metric with its average, for messages."""
        if self.task == "binary" or self.of_matrix or self.average == "per-class":
            return name_of(self.metric)
        return f"{self.average} {name_of(self.metric)}"

    def _check_arguments(self) -> None:
        """Refuse what does not fit together, before any data is seen."""
        if self.task != "multiclass" and not of_counts(self.metric):
            raise ValueError(
                f"metric: {name_of(self.metric)} is of the d×d matrix, for task='multiclass'; got {self.task!r}"
            )
        if self.average == "samples" and self.task != "multilabel":
            raise ValueError(f"average: 'samples' is for task='multilabel', got task={self.task!r}")
        if self.metric is subset_accuracy and self.average != "samples":
            raise ValueError(f"metric: subset_accuracy is of rows; expected average='samples', got {self.average!r}")
        if self.average in ("micro", "samples") and (several := [*count_values(self.metric)]):
            raise ValueError(
                f"average: expected 'macro', 'weighted' or None, since there is one {several[0]} per class, got "
                f"{self.average!r}"
            )
        if self.row_costs is not None and self.task != "binary":
            raise ValueError(f"cost: expected the same costs for every row with task={self.task!r}, got some per row")
        check_of_classes(self.task, self.average, self.labels)
        if self.labels is not None and (not self.labels or min(self.labels) < 0):
            raise ValueError(f"labels: expected class indices, got {self.labels!r}")
        if self.of_matrix and self.labels is not None:
            raise ValueError(f"labels: {name_of(self.metric)} is of the whole d×d matrix and takes none")

    def take(self, rows: Any) -> Objective:
        """Return the objective of some rows, which have costs of their own if costs differ by row."""
        if self.row_costs is None:
            return self
        taken = copy.copy(self)
        taken.row_costs = self.row_costs.take(rows)
        return taken

    def weigh(self, batch: AnyRows) -> AnyRows:
        """Return rows with what is at stake in them as their weights, if costs differ by row; others as they are."""
        if self.row_costs is None or not isinstance(batch, Batch):  # a sparse batch is multi-label
            return batch
        return self.row_costs.weigh(batch)  # type: ignore[return-value]

    def value(self, statistic: Any) -> Tensor:
        """Return the metric of a statistic: a scalar, or one per class."""
        if self.averages_objects:
            value = self._average_over_object_classes(statistic)
        elif isinstance(statistic, Mean):
            value = mean_of(statistic)
        elif isinstance(statistic, Confusion):
            value = self.metric(statistic)
        elif self.of_matrix:
            value = self.metric(_find_margins(statistic))
        else:
            value = self._average_over_classes(statistic)
        return functions_of(value).mean(value, 0) if self.has_threshold_axis else value

    def _average_over_classes(self, counts: Counts) -> Tensor:
        """Return the metric averaged over the classes, ``(...)``, or of each class that counts, ``(..., K)``."""
        if self.average == "micro":
            return self.values(counts.map(lambda cell: pool(cell, self.labels)))
        values = self.values(counts)
        if self.average != "per-class":
            return mean_over_classes(values, self._class_weights(counts.positives))
        return self._select_labels(values)

    def _select_labels(self, per_class: Tensor) -> Tensor:
        """Return the numbers of the classes that count."""
        if self.labels is None:
            return per_class
        check_labels(self.labels, per_class.shape[-1])
        chosen = [per_class[..., label] for label in self.labels]
        return functions_of(per_class).stack(chosen, -1)  # type: ignore[no-any-return]

    def values_of_class(self, k: int, counts: Counts) -> Tensor:
        """Apply the metric of class ``k``, elementwise."""
        return self.values(counts, of_classes(self.metric, [k]))

    def values(self, counts: Counts, metric: Metric | None = None) -> Tensor:
        """Apply the metric, or another one in its place, and check that it is elementwise."""
        metric = self.metric if metric is None else metric
        values = metric(counts)
        if getattr(values, "shape", None) != counts.tp.shape:
            got = tuple(values.shape) if hasattr(values, "shape") else type(values).__name__
            raise ValueError(
                f"metric: {name_of(self.metric)} must be elementwise, {tuple(counts.tp.shape)} cells in and out "
                f"(average={self.average!r}), got {got}"
            )
        return values

    def mean_of_rows(self, statistic: Any, row_weight: Tensor | None) -> Any:
        """Turn cells per row into the running mean of the samples average; leave anything else as it is."""
        if row_weight is None:
            return statistic
        values = self.values(statistic)
        functions = functions_of(values)
        total = functions.sum(values * row_weight, -1)
        weight = functions.sum(row_weight, -1) * functions.ones_like(total)
        return Mean(total, weight)

    def mean_of_images(self, counts: Counts, image_weight: Tensor) -> Mean:
        """Turn cells per image, ``(..., images, K)``, into the running mean of their values.

        With ``empty_classes="skip"`` an image in which no class is present does not count; for one value per class,
        each class is averaged over the images that it is present in.
        """
        values = self._average_over_classes(counts)
        is_per_class = self.average == "per-class"
        weight = image_weight.unsqueeze(-1) if is_per_class else image_weight
        if self.empty_classes == "skip" and self.average != "micro":
            shares = class_weights("macro", counts.positives, self.labels, "skip")
            is_present = (self._select_labels(shares) if is_per_class else shares.sum(-1)) > 0
            weight = weight * is_present.to(weight.dtype)
        images_axis = -2 if is_per_class else -1
        total = (values * weight).sum(images_axis)
        return Mean(total, weight.expand_as(values).sum(images_axis))

    def mean_of_objects(self, counts: Counts, index: ObjectIndex, object_weight: Tensor, classes: int) -> Mean:
        """Turn cells per object, ``(..., O)``, into the running means of the values of each class, ``(..., K)``."""
        metric = self.metric
        if count_values(metric):
            metric = of_classes(metric, index.class_of_object.tolist())
        values = self.values(counts, metric)
        no_total = values.new_zeros(*values.shape[:-1], classes)
        no_weight = values.new_zeros(classes)
        total = no_total.index_add(-1, index.class_of_object, values * object_weight)
        weight = no_weight.index_add(0, index.class_of_object, object_weight)
        return Mean(total, weight.expand_as(total))

    def _average_over_object_classes(self, means: Mean) -> Tensor:
        """Return the mean over the classes of their objects' means; "micro" and "weighted": over all objects."""
        if self.average in ("micro", "weighted"):
            functions = functions_of(means.total)
            return ratio(functions.sum(means.total, -1), functions.sum(means.weight, -1))
        values = mean_of(means)
        if self.average == "per-class":
            return self._select_labels(values)
        return mean_over_classes(values, self._class_weights(means.weight))

    def warn_if_undefined(self, *results: Any, of: tuple[Any, ...]) -> None:
        """Name a metric of the user's own whose value or derivatives are not finite, once; ``of``: its statistic."""
        if not self._may_be_undefined or are_finite(results) or not are_finite(of):
            return
        self._may_be_undefined = False  # known from here on
        warnings.warn(
            f"metric: {name_of(self.metric)} or its gradient is not finite for a batch of finite counts, as where it "
            "divides by 0; mg.metrics.ratio, root and log are safe there",
            stacklevel=3,
        )

    def differentiate(
        self,
        sums: Sums,
        row_weight: Tensor | None = None,
        group: Processes | None = None,
        image_weight: Tensor | None = None,
    ) -> tuple[Tensor, SumsGradient]:
        """Return the loss of the sums over all processes, and its gradient with respect to them: a and b, or a matrix.

        ``row_weight``: what each row counts, if the sums are those of rows; ``image_weight``: each image, if those of
        images.
        """
        if image_weight is None:
            loss, gradient = self._differentiate(sums, row_weight, group)
        else:
            loss, gradient = self._differentiate_images(sums, image_weight, group)
        self.warn_if_undefined(loss, *gradient, of=sums)
        if self.warns_of_vanished_gradient and len(sums) == 4 and row_weight is None:
            self._warn_if_vanished(sums[0], sums[2], gradient[0])
        return loss, gradient

    def differentiate_arrays(self, sums: Sums) -> tuple[Tensor, SumsGradient]:
        """Do as ``differentiate`` for the sums of classes in arrays of numpy; the gradient is in arrays as well."""
        found = self._differentiate_arrays(sums)
        if found is None:
            loss, gradient = self.differentiate(tuple(torch.from_numpy(cell) for cell in sums))
            return loss, tuple(derivative.numpy() for derivative in gradient)
        loss, a, b = found
        if self._may_be_undefined:
            derivatives = torch.from_numpy(a), torch.from_numpy(b)
            self.warn_if_undefined(loss, *derivatives, of=tuple(torch.from_numpy(cell) for cell in sums))
        if self.warns_of_vanished_gradient:
            self._warn_if_vanished(sums[0], sums[2], a)
        return loss, (a, b)

    def _differentiate_arrays(self, sums: Sums) -> tuple[Tensor, Any, Any] | None:
        """Return the loss and its gradient, a and b in arrays; None if torch has to compute them."""
        tp, fp, positives, _negatives = sums
        if self.of_matrix:
            return self._differentiate_margins_in_arrays(tp, fp, positives)
        is_plain_mean = self.average == "macro" and self.labels is None and self.empty_classes == "count"
        if not (is_plain_mean and self._is_arithmetic and self._takes_arrays):
            return None
        weights = _make_class_weights(len(tp), tp.dtype)
        try:
            jet: Any = self.metric(ArraysWithDerivatives(*sums))
            value = jet.value
            a = jet.a * weights  # an array, also if the metric moves alike for all classes, or does not move
            b = jet.b * weights
            self._takes_arrays = value.shape == tp.shape and value.dtype == a.dtype == b.dtype == tp.dtype
        except Exception:  # any error: torch can compute more, and its errors are the ones to show
            self._takes_arrays = False
        if not self._takes_arrays:
            return None
        return _make_loss(-value.dot(weights), tp), a, b

    def _differentiate_margins_in_arrays(self, tp: Any, fp: Any, positives: Any) -> tuple[Tensor, Any, Any] | None:
        """Do as ``_differentiate_margins`` in arrays, None if the metric has no formula for them."""
        wide_cells = (cell.astype(np.float64) for cell in (tp, fp, positives))
        found = differentiate_margins(self.metric, *wide_cells)
        if found is None:
            return None
        value, derivatives = found
        bound = 1 / ARRAY_FLOORS[tp.dtype]
        limited = np.minimum(np.maximum(derivatives, -bound), bound)
        a, b = np.negative(limited, out=limited).astype(tp.dtype)
        return _make_loss(value, tp), a, b

    def _differentiate(
        self, sums: Sums, row_weight: Tensor | None, group: Processes | None
    ) -> tuple[Tensor, SumsGradient]:
        if isinstance(sums[0], float):
            return self._differentiate_numbers(sums)
        if row_weight is not None:
            return self._differentiate_rows(sums, row_weight, group)
        if group is not None:
            sums = processes.sum_cells(sums, group)
        if len(sums) == 1:
            return self._differentiate_matrix(sums[0])
        if self.of_matrix:
            return self._differentiate_margins(sums)
        tp, _fp, positives, _negatives = sums
        is_one_number = tp.numel() == 1 and tp.is_cpu and tp.dtype is torch.float32
        if is_one_number and self.labels is None and not self.has_threshold_axis:
            # Plain numbers are faster, also where they spread the gradient.
            return self._differentiate_numbers(tuple(cell.item() for cell in sums))
        threshold_share = 1.0 / (len(tp) if self.has_threshold_axis else 1)
        if self.average == "micro":
            return self._differentiate_micro(sums, threshold_share)
        if self.average == "macro" and self.labels is None and self.empty_classes == "count":
            values, a, b = self._differentiate_values(sums, -1.0 / tp.numel())
            return _one_minus(values.mean()), (a, b)
        weights = self._class_weights(positives)
        values, a, b = self._differentiate_values(sums, (-threshold_share * weights).expand(tp.shape))
        return _one_minus(mean_over_classes(values, weights).mean()), (a, b)

    def _class_weights(self, positives: Tensor) -> Tensor:
        return class_weights(self.average, positives, self.labels, self.empty_classes)

    def _warn_if_vanished(self, tp: Any, positives: Any, a: Any) -> None:
        """Warn, once, if the positives of a batch have lost their gradient; of several classes, those of all.

        Far below its threshold the slope of a membership is about the membership itself, so a·TP is about the gradient
        of all positives together. It may be large where memberships are tiny, as for a precision of tiny counts.
        """
        if not isinstance(tp, float):
            self._calls_until_check -= 1
            if self._calls_until_check > 0:
                return
            # The sums of one class may be tensors, and the derivative beside them a plain number.
            tp, positives, a = (torch.from_numpy(x) if isinstance(x, ARRAY_TYPES) else x for x in (tp, positives, a))
            if not tp.is_cpu:  # reading a value would make another device wait
                return
            self._calls_until_check = CALLS_BETWEEN_CHECKS
            is_alive = (tp >= VANISHED * positives) | ((a * tp).abs() >= VANISHED)
            has_vanished = bool((positives > 0).any()) and not bool((is_alive & (positives > 0)).any())
        else:
            has_vanished = 0 <= tp < VANISHED * positives and abs(a * tp) < VANISHED
        if has_vanished:
            self.warns_of_vanished_gradient = False
            warnings.warn(
                f"logits: those of all positives in a batch are so low that {self.name} has no gradient left to raise "
                "them; use HybridLoss, or a lower learning rate",
                stacklevel=3,
            )

    def _differentiate_numbers(self, sums: Sums) -> tuple[Tensor, SumsGradient]:
        """Differentiate by the sums of one class in plain numbers: tensors of one number cost more than the arithmetic.

        For sums in float32, since plain numbers are divided by down to the ``FLOOR`` of that type.
        """
        positives = sums[2]
        skips_empty_class = self.average == "weighted" or (self.average == "macro" and self.empty_classes == "skip")
        if skips_empty_class and positives < FLOOR:
            loss, a, b = 1.0, 0.0, 0.0
        else:
            value, a, b = self._differentiate_values(sums, -1.0)
            loss = 1.0 - float(value)
        return torch.scalar_tensor(loss, dtype=torch.float32), (float(a), float(b))

    def _differentiate_matrix(self, matrix: Tensor) -> tuple[Tensor, SumsGradient]:
        # In float64 while d² is small: beside a class of nearly all rows MCC divides a difference of near equals.
        is_small = matrix.numel() <= 1 << 16
        with torch.enable_grad():
            leaf = (wide(matrix.detach()) if is_small else matrix.detach()).requires_grad_()
            loss = 1 - self.metric(Confusion(leaf))
        (gradient,) = torch.autograd.grad(loss, leaf)
        return loss.detach().to(matrix.dtype), (limit_gradient(gradient, matrix.dtype),)

    def _differentiate_margins(self, sums: Sums) -> tuple[Tensor, SumsGradient]:
        """Differentiate a metric of the matrix that needs no more of it than the counts of the classes."""
        if all(has_array(cell) for cell in sums):
            with np.errstate(all="ignore"):
                found = self._differentiate_margins_in_arrays(*(cell.detach().numpy() for cell in sums[:3]))
            if found is not None:
                loss, a, b = found
                return loss, (torch.from_numpy(a), torch.from_numpy(b))
        dtype = sums[0].dtype
        tp, fp, positives, _negatives = (wide(cell.detach()) for cell in sums)
        with torch.enable_grad():
            tp = tp.requires_grad_()
            fp = fp.requires_grad_()
            loss = 1 - self.metric(ConfusionMargins(tp, positives, tp + fp))
        a, b = torch.autograd.grad(loss, (tp, fp), materialize_grads=True)
        return loss.detach().to(dtype), (limit_gradient(a, dtype), limit_gradient(b, dtype))

    def _differentiate_micro(self, sums: Sums, threshold_share: float) -> tuple[Tensor, SumsGradient]:
        tp = sums[0]
        pooled = tuple(pool(cell, self.labels) for cell in sums)
        values, a, b = self._differentiate_values(pooled, -threshold_share)
        a = a.unsqueeze(-1)
        b = b.unsqueeze(-1)
        counts_in_pool = mark_labels(self.labels, tp)
        if counts_in_pool is not None:
            a = a * counts_in_pool
            b = b * counts_in_pool
        return _one_minus(values.mean()), (a.expand(tp.shape), b.expand(tp.shape))

    def _differentiate_rows(
        self, sums: Sums, row_weight: Tensor, group: Processes | None
    ) -> tuple[Tensor, SumsGradient]:
        total = row_weight.sum()
        if group is not None:
            total = group.sum(total)
        weights = ratio(row_weight, total) / (len(sums[0]) if self.has_threshold_axis else 1)
        values, a, b = self._differentiate_values(sums, -weights)
        value = (values * weights).sum()
        if group is not None:
            value = group.sum(value)
        return 1 - value, (a, b)

    def _differentiate_images(
        self, sums: Sums, image_weight: Tensor, group: Processes | None
    ) -> tuple[Tensor, SumsGradient]:
        """Differentiate by the sums of images, ``(..., images, K)``, few numbers, with autograd."""
        tp, fp, positives, negatives = sums
        with torch.enable_grad():
            tp = tp.detach().requires_grad_()
            fp = fp.detach().requires_grad_()
            mean = self.mean_of_images(cells(tp, fp, positives, negatives), image_weight)
            # The gradient of the loss by the total of all processes is that by the total of this one.
            total = processes.sum_statistic(mean.map(torch.Tensor.detach), group)
            leaf = total.total.requires_grad_()
            loss = 1 - self.value(Mean(leaf, total.weight))
        (by_total,) = torch.autograd.grad(loss, leaf)
        a, b = torch.autograd.grad(mean.total, (tp, fp), by_total, materialize_grads=True)
        return loss.detach(), (a, b)

    def _differentiate_values(self, sums: Sums, weights: Any) -> tuple[Any, Any, Any]:
        """Return the metric's values, and the derivatives of their weighted sum by TP and by FP, P and N fixed."""
        if self._is_arithmetic:
            try:
                return self._differentiate_arithmetic(sums, weights)
            except ZeroDivisionError:
                pass  # Python's numbers cannot be divided by 0, tensors can
            except (TypeError, AttributeError):
                self._is_arithmetic = False  # it uses more than arithmetic: from here on autograd differentiates it
        if isinstance(sums[0], float):
            sums = tuple(torch.full((1,), cell, dtype=torch.float32) for cell in sums)
        with torch.enable_grad():
            counts = cells(*sums).map(lambda cell: cell.detach().requires_grad_())
            values = self.values(counts)
            # The zero keeps a constant metric differentiable.
            weighted = (values * weights).sum() + 0 * counts.tp.sum()
            gradients = torch.autograd.grad(weighted, counts.cells(), allow_unused=True)
        by_tp, by_fp, by_fn, by_tn = (torch.zeros_like(counts.tp) if g is None else g for g in gradients)
        return values.detach(), by_tp - by_fn, by_fp - by_tn

    def _differentiate_arithmetic(self, sums: Sums, weights: Any) -> tuple[Any, Any, Any]:
        """Do as ``_differentiate_values``, by the metric's own arithmetic; raise if it is more than arithmetic."""
        jet: Any = self.metric(CountsWithDerivatives(*sums))
        a = jet.a
        b = jet.b
        tp = sums[0]
        if isinstance(tp, Tensor):
            if jet.value.shape != tp.shape:
                raise TypeError
            a = _as_tensor_like(a, tp)
            b = _as_tensor_like(b, tp)
            weights = as_constant(weights, a)
        return jet.value, a * weights, b * weights


def _is_of_margins(metric: Metric) -> bool:
    """Return whether a metric of the matrix needs no more of it than its diagonal and its sums."""
    example = torch.ones(2)
    try:
        metric(ConfusionMargins(example, example + 1, example + 1))
    except Exception:  # any error: the metric then gets the whole matrix
        return False
    return True


def _find_margins(counts: Counts) -> ConfusionMargins:
    """Return the diagonal and the sums of a matrix, given the one-vs-rest counts of all its classes."""
    return ConfusionMargins(counts.tp, counts.positives, counts.predicted)


def are_finite(numbers: tuple[Any, ...]) -> bool:
    """Return whether all of several tensors or plain numbers are finite."""
    return all(bool(x.isfinite().all()) if isinstance(x, Tensor) else math.isfinite(x) for x in numbers)


def _as_tensor_like(derivative: Any, like: Tensor) -> Tensor:
    """Return a derivative for every class: in some directions a metric does not move, or alike for all classes."""
    if not isinstance(derivative, Tensor):
        return torch.full_like(like, derivative)
    return derivative if derivative.shape == like.shape else derivative.expand(like.shape)


@lru_cache(maxsize=64)
def _make_class_weights(classes: int, dtype: Any) -> Any:
    """Return the weight of each class in 1 − a mean, as an array of numpy."""
    return np.full(classes, -1.0 / classes, dtype)


def _make_loss(value: float, like: Any) -> Tensor:
    """Return 1 − value as a tensor of the type of an array."""
    return torch.scalar_tensor(1.0 - float(value), dtype=TENSOR_DTYPES[like.dtype], device="cpu")


def _one_minus(x: Tensor) -> Tensor:
    return as_constant(1.0, x) - x  # type: ignore[no-any-return]
