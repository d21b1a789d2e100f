"""``MetricLoss``: any confusion-matrix metric as a loss, composed of a task, a surrogate, a metric and an average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial, wraps
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

from metricgrad.engine import distributed
from metricgrad.engine.batch import Task, check_task, encode
from metricgrad.engine.kernel import Call, Plan
from metricgrad.engine.objective import Objective
from metricgrad.engine.statistics import Columns, Indices, Matrix, Rows
from metricgrad.metrics import Metric, name_of
from metricgrad.metrics.averages import row_weights
from metricgrad.surrogates import Linear, Surrogate, TopTwo, current

Method = TypeVar("Method", bound=Callable[..., Any])


def without_autocast(method: Method) -> Method:
    """Switch autocast off inside a method whose first argument is the logits: counts need float32."""

    @wraps(method)
    def wrapped(self: Any, logits: Tensor, *args: Any, **kwargs: Any) -> Any:
        kind = "cpu" if not isinstance(logits, Tensor) or logits.is_cpu else logits.device.type
        if kind == "meta" or not torch.is_autocast_enabled(kind):  # which torch cannot be asked of the meta device
            return method(self, logits, *args, **kwargs)
        with torch.autocast(kind, enabled=False):
            return method(self, logits, *args, **kwargs)

    return wrapped  # type: ignore[return-value]


class MetricLoss(nn.Module):
    """1 − a metric of soft counts: train on the metric you will be judged on.

    ``metric``: a name ("f1", "f0.5", "mcc", "package.module:function") or a function of ``Counts`` (or
    ``Confusion``). ``task``: "binary" takes logits of any shape with targets of that shape; "multilabel" ``(N, K)``
    or ``(N, K, ...)`` with targets of that shape; "multiclass" the same with class indices ``(N,)``, ``(N, ...)`` or
    soft labels. For "multiclass" the names accuracy, balanced_accuracy, g_mean, mcc, kappa and quadratic_kappa mean
    the quantities of the d×d matrix, as in scikit-learn, and take no average. ``surrogate``: a soft step; by default
    ``Linear()``, for "multiclass" ``TopTwo()``. ``average``: "micro", "macro", "weighted", "samples" (multi-label) or
    None, which returns one loss per class. ``threshold``: where a step on probabilities stands; several give the mean
    of their losses. ``labels``: the classes that count, to leave a negative class out. ``absent``: what a class
    without positives does to the macro average; "count" (scikit-learn's convention, the same in training and in
    judging) or "skip". ``ignore_index``: targets of this value do not count. ``process_group``: a
    ``torch.distributed`` group or "world", to make value and gradient those of all processes' data together; every
    process must call the loss and ``backward``.

    Call it with logits, never probabilities. ``weight`` is per sample or per element, ``mask`` True for what counts.

    >>> loss = MetricLoss("f1")
    >>> loss(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1]))
    tensor(0.1892)
    """

    def __init__(
        self,
        metric: str | Metric,
        *,
        task: str = "binary",
        surrogate: Callable[..., Tensor] | None = None,
        average: str | None = "macro",
        threshold: float | Sequence[float] | Tensor = 0.5,
        labels: Iterable[int] | None = None,
        absent: str = "count",
        ignore_index: int | None = None,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.task: Task = check_task(task)
        self.surrogate: Any = surrogate if surrogate is not None else TopTwo() if task == "multiclass" else Linear()
        self.ignore_index = ignore_index
        self.process_group = process_group
        self.thresholds = _thresholds(threshold)
        self.objective = Objective(self.task, metric, average, labels, absent, self._leading)
        self._check()
        self._plans: dict[bool, Plan] = {}
        for name, tensor in _tensors(self.metric).items():
            self.register_buffer(f"metric_{name}", tensor, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors inside the metric, such as one β per class, with the module."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        metric = self.metric
        if moved := {name: getattr(self, f"metric_{name}") for name in _tensors(metric)}:
            self.objective.metric = partial(metric.func, *metric.args, **{**metric.keywords, **moved})  # type: ignore[attr-defined]
        return self

    @property
    def metric(self) -> Metric:
        """The metric, a function of ``Counts`` or ``Confusion``."""
        return self.objective.metric

    @property
    def average(self) -> str:
        """The average; "per-class" for None."""
        return self.objective.average

    def _check(self) -> None:
        """Refuse what does not fit together, before any data is seen."""
        if not callable(self.surrogate):
            raise ValueError(f"surrogate: expected a callable of logits, got {self.surrogate!r}")
        now = current(self.surrogate)
        moved = self.thresholds != (0.5,) or self._leading
        if moved and (self.task == "multiclass" or not getattr(now, "takes_threshold", False)):
            reason = (
                "task='multiclass' decides by argmax"
                if self.task == "multiclass"
                else f"{now!r} is not on probabilities"
            )
            raise ValueError(f"threshold: {reason} and takes no threshold, got {self.thresholds}")
        if isinstance(now, TopTwo) and self.task != "multiclass":
            raise ValueError(f"surrogate: TopTwo is for task='multiclass', got task={self.task!r}; use Linear")
        if self.task == "multiclass" and isinstance(now, Surrogate):
            now.rows(torch.zeros(1, 2))  # raises for a surrogate that is not for rows

    @property
    def _leading(self) -> bool:
        """Whether several thresholds were given, so that statistics have a leading axis."""
        return not isinstance(self.thresholds, _One)

    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss: a scalar, or one per class for ``average=None``."""
        return self._call(logits, targets, weight, mask).loss()

    @without_autocast
    def counts(self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None) -> Any:
        """Return the additive statistic of this batch, on this process.

        ``Counts`` of shape ``(K,)`` (with a leading axis for several thresholds); ``Confusion`` for a metric of the d×d
        matrix; ``Mean`` for the samples average. Statistics of batches add with ``+``.
        """
        return self._call(logits, targets, weight, mask).statistic()

    def value(self, statistic: Any) -> Tensor:
        """Return the metric of a statistic, averaged: a scalar, or one per class; several thresholds are averaged."""
        return self.objective.value(statistic)

    def _call(self, logits: Tensor, targets: Tensor, weight: Tensor | None, mask: Tensor | None) -> Call:
        """Take one call apart."""
        call, surrogate = Call(), current(self.surrogate)
        call.objective, call.group = self.objective, distributed.resolve(self.process_group)
        traced = tracing(logits)
        moving = getattr(targets, "requires_grad", False) or getattr(weight, "requires_grad", False)
        call.serves = call.check = not traced and not moving and isinstance(surrogate, Surrogate)
        plain = weight is None and mask is None and self.ignore_index is None
        call.row_weight = None
        if call.serves and plain and self._is_usual(logits, targets):
            call.z, call.w, call.mask = logits, None, None
            call.y = targets if targets.dim() == 2 and self.task == "multilabel" else targets.reshape(-1, 1)
        else:
            # Targets are checked by the kernel if it serves.
            batch = encode(self.task, logits, targets, weight, mask, self.ignore_index, not traced, not call.check)
            call.z, call.y, call.w, call.mask = batch.logits, batch.targets, batch.weight, batch.mask
            if self.average == "samples":
                call.row_weight, call.w = row_weights(call.z, call.w, call.mask, self.objective.labels)
        call.plan = self._plan(surrogate, indices=call.y.dim() == 1)
        call.learned = tuple(surrogate.tensors().values()) if call.plan.names else ()
        return call

    def _is_usual(self, z: Any, y: Any) -> bool:
        """Tell whether a batch, without weights or a mask, can be taken as it is: labels of the logits' shape."""
        return (
            isinstance(z, Tensor)
            and isinstance(y, Tensor)
            and z.shape == y.shape
            and z.dtype in (torch.float32, torch.float64)
            and not y.is_complex()
            and self.average != "samples"
            and (self.task == "binary" or (self.task == "multilabel" and z.dim() == 2))
            and z.numel() > 0
        )

    def _plan(self, surrogate: Any, indices: bool) -> Plan:
        plan = self._plans.get(indices)
        if plan is None or plan.surrogate is not surrogate:
            layout: Columns | Matrix
            if self.objective.of_matrix:
                layout = Matrix()
            elif self.average == "samples":
                layout = Rows()
            else:
                layout = Indices() if indices else Columns()
            plan = Plan(surrogate, layout, self.thresholds, self._leading, rowwise=self.task == "multiclass")
            self._plans[indices] = plan
        return plan

    def extra_repr(self) -> str:
        """Return what is not shown by the submodules."""
        parts = [f"{name_of(self.metric)}, task={self.task!r}"]
        if not isinstance(self.surrogate, nn.Module):
            parts.append(f"surrogate={self.surrogate!r}")
        if not self.objective.of_matrix:
            parts.append(f"average={None if self.average == 'per-class' else self.average!r}")
        if self._leading or self.thresholds != (0.5,):
            parts.append(f"threshold={list(self.thresholds) if self._leading else self.thresholds[0]}")
        for name, default in (("labels", None), ("absent", "count"), ("ignore_index", None)):
            held = self if name == "ignore_index" else self.objective
            if getattr(held, name) != default:
                parts.append(f"{name}={getattr(held, name)!r}")
        return ", ".join(parts)


def _tensors(metric: Metric) -> dict[str, Tensor]:
    """Return the arguments of a metric that are fixed and tensors."""
    fixed = metric.keywords if isinstance(metric, partial) else {}
    return {name: value for name, value in fixed.items() if isinstance(value, Tensor)}


class _One(tuple[float, ...]):
    """A single threshold: statistics get no leading axis."""

    __slots__ = ()


def _thresholds(threshold: Any) -> tuple[float, ...]:
    """Return one threshold as ``_One``, several as a tuple; numbers, sequences and tensors of them are taken."""
    try:
        given = torch.as_tensor(threshold, dtype=torch.float64)
        fine = given.dim() < 2 and given.numel() > 0 and bool(((given > 0) & (given < 1)).all())
    except (TypeError, ValueError, RuntimeError):
        fine = False
    if not fine:
        raise ValueError(f"threshold: expected numbers in (0, 1), got {threshold!r}")
    return _One([given.item()]) if given.dim() == 0 else tuple(given.tolist())


def tracing(logits: Any = None) -> bool:
    """Tell whether torch.compile, torch.func or the meta device wants plain operations and no look at values."""
    if getattr(logits, "is_meta", False):
        return True
    # The switch autograd.Function itself asks; there is no public one, and the documented way, setup_context, makes
    # every call of a Function 40 µs slower.
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
