"""``MetricLoss``: any confusion-matrix metric as a loss, composed of a task, a surrogate, a metric and an average."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from metricgrad.core import processes
from metricgrad.core.batch import Task, check_task, encode, has_large_images
from metricgrad.core.call import Call, KernelPlan
from metricgrad.core.costs import Cost
from metricgrad.core.counts import compute_dtype
from metricgrad.core.metrics import Metric, name_of
from metricgrad.core.metrics.averages import Average, EmptyClasses, image_weights, row_weights
from metricgrad.core.objective import Objective
from metricgrad.core.objects import check_background, index_objects
from metricgrad.core.option_hints import explain_unknown
from metricgrad.core.statistics import ColumnLayout, IndexLayout, Layout, MatrixLayout, RowLayout
from metricgrad.core.surrogates import Linear, Surrogate, TopTwo, current_surrogate
from metricgrad.losses.logit_scale import TakesLogits
from metricgrad.losses.thresholds import OneThreshold, read_thresholds
from metricgrad.losses.torch_modes import is_traced, without_autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from metricgrad.core.counts import Statistic
    from metricgrad.core.objects import Background
    from metricgrad.core.processes import ProcessGroup


class MetricLoss(TakesLogits):
    """1 − a metric of soft counts: train on the metric you will be evaluated on.

    The logits become memberships by a soft step, the memberships are summed into counts, and the metric of the counts,
    averaged over the classes, is subtracted from 1 [tsoi2022, eq. 6, 8; tsoi2024, eq. 3–6].

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        The soft step that turns logits into memberships; one of ``mg.surrogates`` or a function of your own. By default
        ``Linear()``, for "multiclass" ``TopTwo()``.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    threshold : float or sequence of float, default 0.5
        The threshold of a step on probabilities; with several, the loss is the mean over them.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    per_image : bool, default False
        Average the values of the samples, each with the counts of its own positions, instead of the value of all
        positions together: for dense predictions, logits ``(N, K, ...)``.
    per_object : {'full', 'shared'} or None, default None
        Average the values of the objects that ``instances`` numbers, each with the counts of its own positions, so that
        a small object weighs as much as a large one. An object's false positives are those of the background of its
        image: all of them ("full", as in blob loss), or a share in proportion to the object's size ("shared").
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If an argument is unknown or two of them do not fit together, before any data is seen.

    See Also
    --------
    HybridLoss : Cross-entropy plus a share of this loss.
    ConstrainedLoss : Maximise one metric subject to bounds on others.
    exact_backward : The exact gradient of a batch that does not fit into memory.
    metricgrad.presets : Published methods as a ``MetricLoss``.

    Notes
    -----
    For "multiclass" the names accuracy, balanced_accuracy, g_mean, mcc, kappa and quadratic_kappa mean the quantities
    of the d×d matrix, as in scikit-learn, and take no average.

    On the CPU the loss warns, once, of a batch whose positives all have logits so low that they get no gradient: such a
    run does not recover. ``HybridLoss`` does not have this problem.

    With ``per_image`` and ``empty_classes="skip"`` a class counts in the images that contain it, an image without any
    of the classes does not. An image weighs the mean weight of its positions. Images of fewer than 32768 logits take
    the memory of plain torch operations.

    Of a ``Cost`` the loss is 1 − savings: what soft decisions cost above right ones, divided by what the cheaper of
    predicting all and none costs above them. It is linear in the memberships and free of the unit of money. Costs that
    differ by row are weights; batches pass theirs, ``loss(logits, targets, costs=cost.take(rows))``. A batch with
    positives or negatives alone has nothing to save and no gradient, as with F1.

    With ``per_object`` an image without objects adds nothing, its false positives neither: combine it with a loss that
    sees them, as ``HybridLoss`` does. An object that a crop cuts counts with the positions that are left of it, and
    weighs the mean weight of these. For "multiclass" ``labels`` are the classes that have objects. "micro" and
    "weighted" are the mean over all objects, "macro" that over the classes.

    Examples
    --------
    >>> loss = MetricLoss("f1")
    >>> loss(torch.tensor([2.0, -1.0, 0.0]), torch.tensor([1, 0, 1]))
    tensor(0.1892)

    Dice and Jaccard of each image, without the background:

    >>> from metricgrad.surrogates import Identity
    >>> options = {"task": "multiclass", "surrogate": Identity(), "labels": [1, 2], "per_image": True}
    >>> [MetricLoss(m, **options)(torch.zeros(2, 3, 4), torch.eye(4).long()[:2]).item() for m in ("f1", "jaccard")]
    [0.857..., 0.916...]
    """

    @explain_unknown
    def __init__(
        self,
        metric: str | Metric,
        *,
        task: Task | None = None,
        surrogate: Callable[..., Tensor] | None = None,
        average: Average | None = "macro",
        threshold: float | Sequence[float] | Tensor = 0.5,
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        per_image: bool = False,
        per_object: Background | None = None,
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.task: Task = check_task(task)
        self.declared_task = task
        self.per_image = per_image
        self.per_object = check_background(per_object)
        if surrogate is None:
            surrogate = TopTwo() if task == "multiclass" else Linear()
        self.surrogate: Any = surrogate
        self.ignore_index = ignore_index
        self.process_group = process_group
        self.thresholds = read_thresholds(threshold)
        self.objective = Objective(
            self.task,
            metric,
            average,
            labels,
            empty_classes,
            self._has_threshold_axis,
            averages_objects=per_object is not None,
        )
        self._check_arguments()
        self.objective.warns_of_vanished_gradient = True
        self._plans: dict[tuple[bool, bool], KernelPlan] = {}
        for name, tensor in _fixed_tensors(self.metric).items():
            self.register_buffer(f"metric_{name}", tensor, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the tensors inside the metric, such as one β per class, with the module."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        metric = self.metric
        moved = {name: getattr(self, f"metric_{name}") for name in _fixed_tensors(metric)}
        if isinstance(metric, partial) and moved:
            self.objective.metric = partial(metric.func, *metric.args, **{**metric.keywords, **moved})
        return self

    @property
    def metric(self) -> Metric:
        """The metric, a function of ``Counts`` or ``Confusion``."""
        return self.objective.metric

    @property
    def average(self) -> Average:
        """The average; "per-class" for None."""
        return self.objective.average

    def _check_arguments(self) -> None:
        """Raise if arguments do not fit together, before any data is seen."""
        if not callable(self.surrogate) or isinstance(self.surrogate, type):
            hint = f"; pass {self.surrogate.__name__}()" if isinstance(self.surrogate, type) else ""
            raise ValueError(f"surrogate: expected a callable of logits, got {self.surrogate!r}{hint}")
        surrogate = current_surrogate(self.surrogate)
        if self.thresholds != (0.5,) or self._has_threshold_axis:
            reason = None
            if self.task == "multiclass":
                reason = "task='multiclass' decides by argmax"
            elif not getattr(surrogate, "takes_threshold", False):
                reason = f"{surrogate!r} is not on probabilities"
            if reason is not None:
                raise ValueError(f"threshold: {reason} and takes no threshold, got {self.thresholds}")
        if self.objective.of_matrix or self.average == "samples":
            what = "average='samples'" if self.average == "samples" else f"{name_of(self.metric)}, of the d×d matrix"
            if self.per_image:
                raise ValueError(f"per_image: expected False with {what}, got True; leave it out")
            if self.per_object:
                raise ValueError(f"per_object: expected None with {what}, got {self.per_object!r}; leave it out")
        if self.per_object and self.per_image:
            raise ValueError("per_image: expected False with per_object, got True; leave one of them out")
        if self.per_object and self.task == "multiclass" and self.objective.labels is None:
            raise ValueError("labels: expected the classes that have objects, for per_object, got None")
        if isinstance(surrogate, TopTwo) and self.task != "multiclass":
            raise ValueError(f"surrogate: TopTwo is for task='multiclass', got task={self.task!r}; use Linear")
        if self.task == "multiclass" and isinstance(surrogate, Surrogate):
            surrogate.rows(torch.zeros(1, 2))  # raises if the surrogate is not for multi-class problems

    @property
    def _has_threshold_axis(self) -> bool:
        """Whether several thresholds were given, so that statistics have a leading axis."""
        return not isinstance(self.thresholds, OneThreshold)

    @without_autocast
    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        weight: Tensor | None = None,
        mask: Tensor | None = None,
        instances: Tensor | None = None,
        *,
        costs: Cost | None = None,
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
        instances : Tensor of int, optional
            For ``per_object``, which object each positive position belongs to: 0 is none, and a number means another
            object in another image. For "multilabel" a map for each label, of the shape of the logits.
        costs : Cost, optional
            The costs of these rows, for a loss of costs that differ by row: ``cost.take(rows)``. By default those that
            the loss was made of, which must belong to the same rows.

        Returns
        -------
        Tensor
            A scalar, or one loss per class, ``(K,)``, for ``average=None``.

        Raises
        ------
        ValueError
            If shapes, types or values do not fit the task.
        """
        return self._prepare_call(logits, targets, weight, mask, instances, costs=costs, for_loss=True).loss()

    @without_autocast
    def counts(
        self,
        logits: Tensor,
        targets: Tensor,
        weight: Tensor | None = None,
        mask: Tensor | None = None,
        instances: Tensor | None = None,
        *,
        costs: Cost | None = None,
    ) -> Any:
        """Return the additive statistic of this batch, on this process.

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
        instances : Tensor of int, optional
            For ``per_object``, which object each positive position belongs to: 0 is none, and a number means another
            object in another image. For "multilabel" a map for each label, of the shape of the logits.
        costs : Cost, optional
            The costs of these rows, for a loss of costs that differ by row: ``cost.take(rows)``. By default those that
            the loss was made of, which must belong to the same rows.

        Returns
        -------
        Counts, Confusion or Mean
            ``Counts`` of shape ``(K,)`` (with a leading axis for several thresholds); ``Confusion`` for a metric of the
            d×d matrix; ``Mean`` for the samples average and per image. Statistics of batches add with ``+``.

        Examples
        --------
        >>> loss = MetricLoss("f1")
        >>> loss.counts(torch.tensor([2.0, -1.0]), torch.tensor([1, 0])).positives
        tensor([1.])
        """
        return self._prepare_call(logits, targets, weight, mask, instances, costs=costs).statistic()

    def value(self, statistic: Statistic) -> Tensor:
        """Return the averaged metric of a statistic.

        Parameters
        ----------
        statistic : Counts, Confusion or Mean
            What ``counts`` returned, or a sum of these.

        Returns
        -------
        Tensor
            A scalar, or one value per class, ``(K,)``, for ``average=None``; the mean over several thresholds.

        Examples
        --------
        >>> loss = MetricLoss("recall")
        >>> counts = loss.counts(torch.tensor([9.0, -9.0]), torch.tensor([1, 0]))
        >>> loss.value(counts + counts)
        tensor(1.0000)
        """
        return self.objective.value(statistic)

    def _prepare_call(
        self,
        logits: Tensor,
        targets: Tensor,
        weight: Tensor | None,
        mask: Tensor | None,
        instances: Tensor | None = None,
        *,
        costs: Cost | None = None,
        for_loss: bool = False,
    ) -> Call:
        """Check and flatten the arguments, and choose how the loss, or the statistic, is computed from them."""
        surrogate = current_surrogate(self.surrogate)
        has_own_surrogate = not isinstance(surrogate, Surrogate)
        traced = is_traced(logits)
        if not (traced or self._scale_is_known or has_own_surrogate):  # a surrogate of your own may take anything
            self._check_scale(logits)
        needs_label_gradient = getattr(targets, "requires_grad", False) or getattr(weight, "requires_grad", False)
        call = Call()
        call.objective = self.objective
        call.group = processes.resolve(self.process_group)
        by_parts = self.per_object is not None or (self.per_image and not has_large_images(logits))
        call.uses_kernel = not (traced or needs_label_gradient or by_parts or has_own_surrogate)
        call.must_check_targets = call.uses_kernel
        call.row_weight = None
        call.image_weight = None
        call.object_index = None
        if instances is not None and self.per_object is None:
            raise ValueError(
                "instances: expected None without per_object, got a map; pass per_object='full' or 'shared'"
            )
        costs = self._choose_costs(costs)
        is_plain = weight is None and mask is None and self.ignore_index is None and costs is None
        if call.uses_kernel and is_plain and self._needs_no_encoding(logits, targets):
            call.logits = logits
            call.targets = targets
            call.weight = None
            call.mask = None
        else:
            batch = encode(
                self.declared_task,
                logits,
                targets,
                weight,
                mask,
                self.ignore_index,
                check_values=not traced,
                check_labels=not call.must_check_targets,
                allow_maps=call.uses_kernel and self.average != "samples" and costs is None,
            )
            if costs is not None:
                batch = costs.weigh(batch)
                batch.weight = None if batch.weight is None else batch.weight.to(compute_dtype(batch.logits))
            call.logits = batch.logits
            call.targets = batch.targets
            call.must_check_targets &= batch.targets.dim() == batch.logits.dim()  # class indices are checked
            call.weight = batch.weight
            call.mask = batch.mask
            if self.average == "samples":
                call.row_weight, call.weight = row_weights(
                    batch.logits, batch.weight, batch.mask, self.objective.labels
                )
            elif self.per_image:
                images = logits.shape[0] if logits.dim() else 1
                call.image_weight, call.weight = image_weights(images, batch.logits, batch.weight)
            elif self.per_object is not None:
                call.object_index = index_objects(
                    self.task, instances, batch, logits.shape, self.objective.labels, self.per_object
                )
        has_indices = self.task == "multiclass" and call.targets.dim() < call.logits.dim()
        # With class indices, and memberships that sum to one, the matrix's diagonal and sums are sums of counts: the
        # loss does not need the matrix itself.
        as_matrix = self.objective.needs_matrix or not (for_loss and has_indices and not has_own_surrogate)
        call.plan = self._plan_for(surrogate, has_indices, as_matrix and self.objective.of_matrix)
        call.surrogate_tensors = tuple(surrogate.tensors().values()) if call.plan.tensor_names else ()
        return call

    def _choose_costs(self, given: Cost | None) -> Cost | None:
        """Return the costs that are weights of these rows, None if the costs of the metric are the same for all."""
        own = self.objective.row_costs
        if given is None:
            return own
        if not isinstance(given, Cost) or given.matrix is not None:
            raise ValueError(f"costs: expected a Cost of these rows, cost.take(rows), got {given!r}")
        if own is None:
            raise ValueError(
                f"costs: expected a loss of costs that differ by row, MetricLoss(Cost(fp=..., fn=[...])), got one of "
                f"{name_of(self.metric)}"
            )
        return given

    def _needs_no_encoding(self, logits: object, targets: object) -> bool:
        """Return whether a batch without weights and mask can be used as it is: rows, or labels of the same shape."""
        if not (isinstance(logits, Tensor) and isinstance(targets, Tensor)):
            return False
        if self.task == "multiclass":
            return (
                logits.dim() == 2
                and logits.dtype in (torch.float32, torch.float64)
                and targets.dtype is torch.int64
                and targets.shape == logits.shape[:1]
                and logits.layout is targets.layout is torch.strided
                and logits.numel() > 0
            )
        return (
            logits.shape == targets.shape
            and logits.dtype in (torch.float32, torch.float64)
            and not targets.is_complex()
            and targets.layout is torch.strided
            and self.average != "samples"
            and (
                self.declared_task == "binary"
                or (self.task == "multilabel" and logits.dim() == 2)
                or (self.declared_task is None and (logits.dim() < 2 or logits.shape[1] == 1))
            )
            and logits.numel() > 0
        )

    def _plan_for(self, surrogate: Any, has_indices: bool, as_matrix: bool) -> KernelPlan:
        """Return what the kernel sums, remembered until the surrogate changes."""
        plan = self._plans.get((has_indices, as_matrix))
        if plan is None or plan.surrogate is not surrogate:
            plan = KernelPlan(
                surrogate,
                self._choose_layout(has_indices, as_matrix),
                self.thresholds,
                self._has_threshold_axis,
                rowwise=self.task == "multiclass",
            )
            self._plans[has_indices, as_matrix] = plan
        return plan

    def _choose_layout(self, has_indices: bool, as_matrix: bool) -> Layout:
        if as_matrix:
            return MatrixLayout()
        if self.average == "samples":
            return RowLayout()
        return IndexLayout() if has_indices else ColumnLayout()

    def extra_repr(self) -> str:
        """Return the options that the submodules do not show, for ``repr``.

        Returns
        -------
        str
            Comma-separated.
        """
        parts = [name_of(self.metric)]
        if self.declared_task is not None:
            parts.append(f"task={self.task!r}")
        if not isinstance(self.surrogate, nn.Module):
            parts.append(f"surrogate={self.surrogate!r}")
        if not self.objective.of_matrix:
            parts.append(f"average={None if self.average == 'per-class' else self.average!r}")
        if self._has_threshold_axis or self.thresholds != (0.5,):
            threshold = list(self.thresholds) if self._has_threshold_axis else self.thresholds[0]
            parts.append(f"threshold={threshold}")
        for name, default in (
            ("labels", None),
            ("empty_classes", "count"),
            ("per_image", False),
            ("per_object", None),
            ("ignore_index", None),
        ):
            owner = self.objective if name in ("labels", "empty_classes") else self
            if getattr(owner, name) != default:
                parts.append(f"{name}={getattr(owner, name)!r}")
        return ", ".join(parts)


def _fixed_tensors(metric: Metric) -> dict[str, Tensor]:
    """Return the arguments of a metric that are fixed and tensors."""
    fixed = metric.keywords if isinstance(metric, partial) else {}
    return {name: value for name, value in fixed.items() if isinstance(value, Tensor)}


def list_changed_options(options: dict[str, Any]) -> list[str]:
    """Return the names of the options that differ from the defaults of ``MetricLoss``."""
    parameters = inspect.signature(MetricLoss).parameters
    changed = []
    for name, value in options.items():
        is_plain = isinstance(value, str | float | bool | None)  # == of tensors and the like is no single bool
        if not (is_plain and value == parameters[name].default):
            changed.append(name)
    return changed
