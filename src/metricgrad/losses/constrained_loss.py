"""``ConstrainedLoss``: maximise one metric subject to bounds on others, as recall at a precision of 90 %.

Two players [cotter2019]: the model minimises a mix of soft objective and soft constraints, and the multipliers of that
mix follow the *hard* constraints.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.core import processes
from metricgrad.core.counts import wide
from metricgrad.core.inputs import whole_number
from metricgrad.core.metrics import name_of
from metricgrad.core.metrics.constraints import Report, parse
from metricgrad.core.surrogates import Hard
from metricgrad.losses.bounded_metric import STIFFNESS, BoundedMetric, evaluate_part
from metricgrad.losses.logit_scale import trust_logits
from metricgrad.losses.metric_loss import MetricLoss
from metricgrad.losses.running_counts import RunningCounts
from metricgrad.losses.torch_modes import can_keep_state, without_autocast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from metricgrad.core.batch import Task
    from metricgrad.core.counts import Statistic
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, EmptyClasses
    from metricgrad.core.metrics.constraints import ConstraintOutcome, Constraints
    from metricgrad.core.processes import ProcessGroup


class ConstrainedLoss(nn.Module):
    r"""Maximise a metric subject to bounds on others, by the proxy-Lagrangian [cotter2019].

    The loss is $(1 - m + \sum_j w_j v_j) / (1 + \sum_j w_j)$ of the soft metric m and the soft violations v, all from
    one statistic of the batch. Call ``step()`` once an epoch, or every few batches: it multiplies each λ by a factor
    between $e^{-rate}$ and $e^{rate}$, up while its *hard* constraint (p ≥ threshold, or argmax) is violated in what
    the loss saw in training mode since the last step, down while there is slack, within [1/cap, cap]. Nothing else
    changes a multiplier. The weights w are λ times a factor between $e^{-2}$ and $e^2$ that depends on the current hard
    violation, which damps oscillations.

    The average is that of the objective and of constraints without brackets. ``report()`` and ``met`` return whether
    the bounds hold on the remembered batches; ``reset()`` forgets them. A bound that cannot be met ends with λ at
    ``cap``, and the loss stays finite. A metric that is 0/0 (no such class, nothing predicted) meets its bound.

    Parameters
    ----------
    maximise : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    subject_to : str, Constraint, mapping or iterable of these
        Bounds as text, "precision >= 0.9", "recall[each] >= 0.8" (every class), "recall[2] >= 0.8" (class 2),
        comma-separated if several; ``{name: least value}``; a ``Constraint``; or a list of these.
    margin : float, default 0.01
        Training aims this far beyond the bounds, since it ends near what it aims at.
    rate : float, default 0.2
        The largest change of log λ in one ``step()``.
    cap : float, default 100.0
        The largest multiplier; the smallest is 1/cap.
    memory : int, default 4096
        In training mode both metrics are those of the current batch and of the ones before, about this many rows in all
        (their counts add up, older ones fading), since a small batch holds too few samples of a rare class to estimate
        a bound. Batches of this many rows or more are used alone; 0 turns the memory off.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": logits of any shape with targets of that shape. "multilabel": logits ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same logits with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the logits. None is "binary" if the shapes leave no other reading, else an error.
    surrogate : callable, optional
        The soft step that turns logits into memberships; one of ``mg.surrogates`` or a function of your own. By default
        ``Linear()``, for "multiclass" ``TopTwo()``.
    average : {'macro', 'micro', 'weighted'}, default 'macro'
        How the values of the classes become one.
    threshold : float, default 0.5
        The threshold of a step on probabilities, and of the hard constraints.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    ignore_index : int, optional
        Targets of this value do not count.
    process_group : ProcessGroup or 'world', optional
        Make value and gradient those of all processes' data together; every process must call the loss and
        ``backward``.

    Raises
    ------
    ValueError
        If there is no constraint or one cannot be read, or ``average`` is None or "samples".

    See Also
    --------
    RecallAtPrecisionLoss : Recall at a precision, with a threshold set by the batch.
    tune_threshold : Tune a threshold subject to the same constraints.

    Examples
    --------
    >>> loss = ConstrainedLoss("recall", "precision>=0.9")
    >>> logits, targets = torch.tensor([2.0, 1.0, -1.0, 0.5]), torch.tensor([1, 0, 0, 1])
    >>> value = loss(logits, targets)
    >>> loss.step()
    >>> loss.multipliers
    tensor([1.2214])
    >>> print(loss.report(logits, targets))
    recall            1.0000
    precision >= 0.9  0.6667  not met
    """

    multipliers: Tensor
    step_each_epoch = True

    def __init__(
        self,
        maximise: str | Metric,
        subject_to: Constraints,
        *,
        margin: float = 0.01,
        rate: float = 0.2,
        cap: float = 100.0,
        memory: int = 4096,
        task: Task | None = None,
        surrogate: Callable[..., Tensor] | None = None,
        average: Average | None = "macro",
        threshold: float | Tensor = 0.5,
        labels: Iterable[int] | None = None,
        empty_classes: EmptyClasses = "count",
        ignore_index: int | None = None,
        process_group: ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        if not 0 <= margin < math.inf:
            raise ValueError(f"margin: expected a number of at least 0, got {margin!r}")
        if not 0 < rate < math.inf:
            raise ValueError(f"rate: expected a positive number, got {rate!r}")
        if not 1 < cap < math.inf:
            raise ValueError(f"cap: expected a number above 1, got {cap!r}")
        if average in (None, "samples"):
            raise ValueError(
                f"average: expected 'macro', 'micro' or 'weighted', got {average!r}; for the value of each "
                "class write subject_to='metric[each]>=number'"
            )
        self.constraints = parse(subject_to)
        if not self.constraints:
            raise ValueError("subject_to: expected at least one constraint, got none; use MetricLoss without any")
        self.margin = margin
        self.rate = rate
        self.cap = cap
        self.memory = whole_number("memory", memory, 0)
        self.process_group = process_group
        options: dict[str, Any] = {
            "task": task,
            "average": average,
            "labels": None if labels is None else tuple(labels),  # read several times
            "empty_classes": empty_classes,
            "ignore_index": ignore_index,
            "process_group": process_group,
        }
        # The objective and the bounds evaluate one statistic, which ``soft`` and ``hard`` count: the matrix if any of
        # them is of the matrix, whose counts the others take.
        self._objective = MetricLoss(maximise, **options)
        self._bounds = [BoundedMetric(constraint, options) for constraint in self.constraints]
        metric_losses = (self._objective, *(bound.soft for bound in self._bounds))
        counted = next((loss for loss in metric_losses if loss.objective.of_matrix), self._objective)
        self.soft = MetricLoss(counted.metric, surrogate=surrogate, threshold=threshold, **options)
        self.hard = MetricLoss(counted.metric, surrogate=Hard(), threshold=threshold, **options)
        trust_logits(self.hard)  # ``soft`` sees the same, and warns of probabilities
        if self.soft._has_threshold_axis:
            raise ValueError(f"threshold: expected one number, got {list(self.soft.thresholds)}")
        self._running_counts = RunningCounts()
        self.register_buffer("multipliers", torch.ones(len(self.constraints)))

    @without_autocast
    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the loss; in training mode the batch is remembered.

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
            A scalar.
        """
        soft = self._sum_over_processes(self.soft.counts(logits, targets, weight, mask))
        hard = self._count_hard(logits, targets, weight, mask)
        self._running_counts.check_classes(hard)
        if self.training and can_keep_state(logits):
            soft, hard = self._running_counts.add(soft, hard, self._count_rows(logits), self.memory)
        violations = torch.cat([bound.compute_violation(soft, self.margin) for bound in self._bounds])
        factors = torch.exp(STIFFNESS * self._compute_urgency(hard)).to(violations)
        multipliers = self._get_multipliers(len(factors)).to(violations)
        weights = (multipliers * factors).clamp(max=self.cap)
        objective_loss = 1 - evaluate_part(self._objective, soft)
        return (objective_loss + (weights * violations).sum()) / (1 + weights.sum())

    def reset(self) -> None:
        """Forget the batches seen so far; the multipliers stay as they are."""
        self._running_counts.forget()

    def _count_rows(self, logits: Tensor) -> Tensor:
        """Return the number of rows of all processes."""
        classes = logits.shape[1] if self.soft.task != "binary" and logits.dim() > 1 else 1
        rows = torch.full((), logits.numel() // max(classes, 1), dtype=torch.float32, device=logits.device)
        group = processes.resolve(self.process_group)
        return rows if group is None else group.sum(rows)

    def step(
        self,
        logits: Tensor | None = None,
        targets: Tensor | None = None,
        weight: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> None:
        """Update the multipliers from the hard violations since the last step, or from those of the given data.

        Parameters
        ----------
        logits : Tensor, optional
            Raw scores, never probabilities; the shape is that of the task. By default, what the loss saw in training
            mode.
        targets : Tensor, optional
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Raises
        ------
        ValueError
            If no data is given and none was seen since the last step.
        """
        recent = self._running_counts.take_recent()
        seen = recent if logits is None else self._count_hard(logits, targets, weight, mask)
        if seen is None:
            raise ValueError("step: nothing was seen since the last one; call the loss in training mode, or give data")
        factors = torch.exp(self.rate * self._compute_urgency(seen))
        moved = self._get_multipliers(len(factors)) * factors.to(self.multipliers)
        self.multipliers.copy_(moved.clamp(1 / self.cap, self.cap))

    def report(
        self,
        logits: Tensor | None = None,
        targets: Tensor | None = None,
        weight: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Report:
        """Return the hard value of the objective and whether each constraint holds.

        Parameters
        ----------
        logits : Tensor, optional
            Raw scores, never probabilities; the shape is that of the task. By default, the remembered training batches.
        targets : Tensor, optional
            0 and 1, soft labels in between, or class indices; the shape is that of the task.
        weight : Tensor, optional
            Per sample or per element.
        mask : Tensor, optional
            True for what counts.

        Returns
        -------
        Report
            The values; prints as a table.

        Raises
        ------
        ValueError
            If no data is given and no batch is remembered.
        """
        hard = self._running_counts.hard if logits is None else self._count_hard(logits, targets, weight, mask)
        if hard is None:
            raise ValueError("report: expected logits and targets, or a loss that was called in training mode before")
        outcomes: list[ConstraintOutcome] = []
        for bound in self._bounds:
            outcomes += bound.list_outcomes(hard)
        value = evaluate_part(self._objective, hard).item()
        return Report(name_of(self._objective.metric), value, tuple(outcomes))

    @torch.no_grad()
    def _count_hard(
        self, logits: Tensor, targets: Tensor | None, weight: Tensor | None, mask: Tensor | None
    ) -> Statistic:
        """Return the hard statistic of all processes, in float64 if the device has it: it is summed over an epoch."""
        hard = self.hard.counts(logits, targets, weight, mask)  # type: ignore[arg-type]
        return self._sum_over_processes(hard).map(wide)

    def _sum_over_processes(self, statistic: Statistic) -> Statistic:
        """Return the sum of a statistic over all processes, differentiable."""
        total: Statistic = processes.sum_statistic(statistic, processes.resolve(self.process_group))
        return total

    def _compute_urgency(self, hard: Statistic) -> Tensor:
        """Return the hard violations that the multipliers follow, scaled to [−1, 1]."""
        return torch.cat([bound.compute_urgency(hard, self.margin) for bound in self._bounds])

    def _get_multipliers(self, number: int) -> Tensor:
        """Return the multipliers, one per violation; the number of classes is known from the first batch on."""
        current = len(self.multipliers)
        if current != number:
            if current != len(self.constraints):
                raise ValueError(f"logits: expected the classes of before, for {current} multipliers, got {number}")
            self.multipliers = self.multipliers.new_ones(number)
        return self.multipliers

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(f"{prefix}multipliers")
        if saved is not None:
            self.multipliers = self.multipliers.new_ones(len(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)

    @property
    def met(self) -> bool:
        """Whether all constraints hold on the batches remembered from training."""
        return self.report().met

    def get_extra_state(self) -> dict[str, Any]:
        """Return the statistics seen since the last step and the remembered ones, for ``state_dict``.

        Returns
        -------
        dict
            Lists of cells under "seen", "soft" and "hard", and the number of remembered "rows".
        """
        return self._running_counts.state()

    def set_extra_state(self, state: dict[str, Any] | list[Tensor]) -> None:
        """Restore what ``get_extra_state`` returned.

        Parameters
        ----------
        state : dict or list of Tensor
            The state; a list is what versions without a memory saved.
        """
        by_name = {"seen": state} if isinstance(state, list) else state
        self._running_counts.restore(by_name, self.multipliers.device)

    def extra_repr(self) -> str:
        """Return the objective, the constraints and the options, for ``repr``.

        Returns
        -------
        str
            Comma-separated.
        """
        options = ", ".join(f"{name}={getattr(self, name)}" for name in ("margin", "rate", "cap", "memory"))
        constraints = ", ".join(map(str, self.constraints))
        return f"{name_of(self._objective.metric)}, subject_to={constraints!r}, {options}"
