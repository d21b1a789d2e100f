"""The objective: a metric with its average, as the value of a statistic and as a loss with its gradient."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core import processes
from metricgrad.core.array_functions import functions_of
from metricgrad.core.counts import Confusion, Counts, Mean, cells, wide
from metricgrad.core.metrics import Metric, get, name_of, of_counts, of_matrix, subset_accuracy
from metricgrad.core.metrics.averages import (
    Average,
    EmptyClasses,
    check_average,
    check_empty_classes,
    check_labels,
    check_of_classes,
    class_weights,
    mean_of,
    mean_over_classes,
    pool,
    selected,
)
from metricgrad.core.metrics.derivatives import FLOOR, CountsWithDerivatives, as_constant, bounded, ratio
from metricgrad.core.metrics.registry import count_values, is_safe, of_classes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metricgrad.core.batch import Task
    from metricgrad.core.processes import Processes
    from metricgrad.core.statistics import State


class Objective:
    """What is maximised: ``metric`` averaged over classes or rows, and over thresholds if they are a leading axis.

    ``of_matrix``: whether it is of the d×d matrix, and takes no average. ``is_vector``: whether it is one number per
    class. ``pools_rows``: whether it is one number of sums over all rows.
    """

    def __init__(
        self,
        task: Task,
        metric: str | Metric,
        average: str | None = "macro",
        labels: Iterable[int] | None = None,
        empty_classes: str = "count",
        leading: bool = False,
    ) -> None:
        self.task, self.metric, self.leading = task, get(metric), leading
        self.average: Average = check_average(average)
        self.empty_classes: EmptyClasses = check_empty_classes(empty_classes)
        self.labels = None if labels is None else tuple(int(label) for label in labels)
        self.of_matrix = task == "multiclass" and of_matrix(self.metric)
        self.is_vector = self.average == "per-class" and not self.of_matrix
        self.pools_rows = self.average != "samples" and not self.is_vector
        self._arithmetic = True  # whether the metric is; found out at the first call
        self._may_be_undefined = not is_safe(self.metric)
        self._check()

    @property
    def name(self) -> str:
        """The metric with its average, for messages."""
        plain = self.task == "binary" or self.of_matrix or self.average == "per-class"
        return name_of(self.metric) if plain else f"{self.average} {name_of(self.metric)}"

    def _check(self) -> None:
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
        check_of_classes(self.task, self.average, self.labels)
        if self.labels is not None and (not self.labels or min(self.labels) < 0):
            raise ValueError(f"labels: expected class indices, got {self.labels!r}")
        if self.of_matrix and self.labels is not None:
            raise ValueError(f"labels: {name_of(self.metric)} is of the whole d×d matrix and takes none")

    def value(self, statistic: Any) -> Tensor:
        """Return the metric of a statistic: a scalar, or one per class."""
        if isinstance(statistic, Mean):
            value = mean_of(statistic)
        elif isinstance(statistic, Confusion):
            value = self.metric(statistic)
        else:
            value = self._over_classes(statistic)
        return functions_of(value).mean(value, 0) if self.leading else value

    def _over_classes(self, counts: Counts) -> Tensor:
        """Return the metric averaged over the classes, ``(...)``, or of each class that counts, ``(..., K)``."""
        if self.average == "micro":
            return self.values(counts.map(lambda cell: pool(cell, self.labels)))
        values = self.values(counts)
        if self.average != "per-class":
            return mean_over_classes(values, self._class_weights(counts.positives))
        return self._chosen(values)

    def _chosen(self, of_classes: Tensor) -> Tensor:
        """Return the numbers of the classes that count."""
        if self.labels is None:
            return of_classes
        check_labels(self.labels, of_classes.shape[-1])
        return functions_of(of_classes).stack([of_classes[..., label] for label in self.labels], -1)  # type: ignore[no-any-return]

    def values_of_class(self, k: int, counts: Counts) -> Tensor:
        """Apply the metric of class ``k``, elementwise."""
        return self.values(counts, of_classes(self.metric, [k]))

    def values(self, counts: Counts, metric: Metric | None = None) -> Tensor:
        """Apply the metric, or another one in its place, and check that it is elementwise."""
        values = (self.metric if metric is None else metric)(counts)
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
        f = functions_of(values)
        total = f.sum(values * row_weight, -1)
        return Mean(total, f.sum(row_weight, -1) * f.ones_like(total))

    def mean_of_images(self, counts: Counts, image_weight: Tensor) -> Mean:
        """Turn cells per image, ``(..., images, K)``, into the running mean of their values.

        With ``empty_classes="skip"`` an image in which no class is present does not count; for one value per class,
        each class is averaged over the images that it is present in.
        """
        values, weight = self._over_classes(counts), image_weight
        if self.empty_classes == "skip" and self.average != "micro":
            shares = class_weights("macro", counts.positives, self.labels, "skip")
            vector = self.average == "per-class"
            present = (self._chosen(shares) if vector else shares.sum(-1)) > 0
            weight = (weight.unsqueeze(-1) if vector else weight) * present.to(weight.dtype)
        elif self.average == "per-class":
            weight = weight.unsqueeze(-1)
        axis = -2 if self.average == "per-class" else -1
        total = (values * weight).sum(axis)
        return Mean(total, weight.expand_as(values).sum(axis))

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
        self, state: State, row_weight: Tensor | None = None, group: Processes | None = None
    ) -> tuple[Tensor, State]:
        """Return the loss of the sums over all processes, and its gradient with respect to them: a, b or a matrix."""
        loss, gradient = self._differentiate(state, row_weight, group)
        self.warn_if_undefined(loss, *gradient, of=state)
        return loss, gradient

    def _differentiate(self, state: State, row_weight: Tensor | None, group: Processes | None) -> tuple[Tensor, State]:
        if isinstance(state[0], float):
            value, *gradient = self._differentiate_numbers(state)
            return torch.scalar_tensor(value, dtype=torch.float32), tuple(gradient)
        if row_weight is not None:
            return self._of_rows(state, row_weight, group)
        if group is not None:
            state = processes.summed(state, group)
        tp = state[0]
        if len(state) == 1:
            # In float64 while d² is small: beside a class of nearly all rows MCC divides a difference of near equals.
            with torch.enable_grad():
                leaf = (wide(tp.detach()) if tp.numel() <= 1 << 16 else tp.detach()).requires_grad_()
                loss = 1 - self.metric(Confusion(leaf))
            (by_matrix,) = torch.autograd.grad(loss, leaf)
            return loss.detach().to(tp.dtype), (bounded(by_matrix, tp.dtype),)
        if tp.numel() == 1 and tp.is_cpu and tp.dtype is torch.float32 and self.labels is None and not self.leading:
            # Plain numbers are faster, also where they spread the gradient.
            return self._differentiate(tuple(cell.item() for cell in state), None, None)
        share = 1.0 / (len(tp) if self.leading else 1)
        if self.average == "micro":
            values, a, b = self._partials(tuple(pool(cell, self.labels) for cell in state), -share)
            keep = selected(self.labels, tp)
            a, b = (g.unsqueeze(-1) if keep is None else g.unsqueeze(-1) * keep for g in (a, b))
            return _one_minus(values.mean()), (a.expand(tp.shape), b.expand(tp.shape))
        if self.average == "macro" and self.labels is None and self.empty_classes == "count":
            values, a, b = self._partials(state, -1.0 / tp.numel())
            return _one_minus(values.mean()), (a, b)
        weights = self._class_weights(state[2])
        values, a, b = self._partials(state, (-share * weights).expand(tp.shape))
        return _one_minus(mean_over_classes(values, weights).mean()), (a, b)

    def _class_weights(self, positives: Tensor) -> Tensor:
        return class_weights(self.average, positives, self.labels, self.empty_classes)

    def _differentiate_numbers(self, state: State) -> tuple[float, float, float]:
        """Return loss, a and b of one class in plain numbers: tensors of one number cost more than the arithmetic.

        For sums in float32, since plain numbers are divided by down to the ``FLOOR`` of that type.
        """
        if (self.average == "weighted" or (self.average == "macro" and self.empty_classes == "skip")) and state[
            2
        ] < FLOOR:
            return 1.0, 0.0, 0.0
        value, a, b = self._partials(state, -1.0)
        return 1.0 - float(value), float(a), float(b)

    def _of_rows(self, state: State, row_weight: Tensor, group: Processes | None) -> tuple[Tensor, State]:
        total = row_weight.sum()
        if group is not None:
            total = group.sum(total)
        weights = ratio(row_weight, total) / (len(state[0]) if self.leading else 1)
        values, a, b = self._partials(state, -weights)
        value = (values * weights).sum()
        return 1 - (value if group is None else group.sum(value)), (a, b)

    def _partials(self, state: State, weights: Any) -> tuple[Any, Any, Any]:
        """Return the metric's values, and the derivatives of their weighted sum: a ``Jet``'s a and b."""
        numbers = isinstance(state[0], float)
        if self._arithmetic:
            try:
                jet: Any = self.metric(CountsWithDerivatives(*state))
                a, b = jet.a, jet.b
                if not numbers:
                    if jet.value.shape != state[0].shape:
                        raise TypeError
                    # A direction in which the metric does not move has the plain number 0 for derivative.
                    a, b = (g if isinstance(g, Tensor) else torch.full_like(state[0], g) for g in (a, b))
                weights = as_constant(weights, a) if isinstance(a, Tensor) else weights
                return jet.value, a * weights, b * weights
            except ZeroDivisionError:
                pass  # plain numbers refuse what tensors answer with ∞ or NaN: let tensors answer
            except (TypeError, AttributeError):
                self._arithmetic = False  # it uses more than arithmetic: from here on autograd differentiates it
        if numbers:
            state = tuple(torch.full((1,), cell, dtype=torch.float32) for cell in state)
        with torch.enable_grad():
            leaf = cells(*state).map(lambda cell: cell.detach().requires_grad_())
            values = self.values(leaf)
            # The zero keeps a constant metric differentiable.
            weighted = (values * weights).sum() + 0 * leaf.tp.sum()
            grads = torch.autograd.grad(weighted, leaf.cells(), allow_unused=True)
        tp, fp, fn, tn = (torch.zeros_like(leaf.tp) if g is None else g for g in grads)
        return values.detach(), tp - fn, fp - tn


def are_finite(numbers: tuple[Any, ...]) -> bool:
    """Return whether all of several tensors or plain numbers are finite."""
    return all(bool(x.isfinite().all()) if isinstance(x, Tensor) else math.isfinite(x) for x in numbers)


def _one_minus(x: Tensor) -> Tensor:
    return as_constant(1.0, x) - x  # type: ignore[no-any-return]
