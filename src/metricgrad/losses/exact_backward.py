"""``exact_backward``: large batches in the memory of small ones, the exact gradient in two passes.

A metric is not a mean over samples, so the mean of the micro-batches' gradients is not the gradient of the batch. But
the gradient passes through few numbers: the statistic of the whole batch, or its logits. Once these and ∂L/∂(these)
are known, each micro-batch can be backpropagated on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import get_device_states, set_device_states

from metricgrad.core import processes
from metricgrad.core.counts import compute_dtype, wide
from metricgrad.core.metrics.derivatives import limit_gradient
from metricgrad.losses.metric_loss import MetricLoss
from metricgrad.losses.pass_checksums import PassChecksum, check_passes_alike
from metricgrad.losses.torch_modes import without_autocast

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.amp import GradScaler


__all__ = ["exact_backward"]


Forward = Callable[[nn.Module, Any], Sequence[Any]]
"""A function of a model and a batch that returns logits, targets and, optionally, weight and mask."""


def exact_backward(
    loss: Callable[..., Tensor],
    model: nn.Module,
    batches: Iterable[Any],
    *,
    forward: Forward | None = None,
    scaler: GradScaler | None = None,
) -> Tensor:
    """Backpropagate the loss of all micro-batches as of one batch, in the memory of one micro-batch.

    The first pass runs ``model(inputs)`` without gradients, the second backpropagates each micro-batch [gao2021];
    gradients are added to ``.grad``, as by ``backward()``. Of a ``MetricLoss`` the statistic is kept between the
    passes, a few numbers per class; of all other losses the logits and targets, of which the loss is then computed at
    once.

    Parameters
    ----------
    loss : callable
        Any loss of this library, or any callable of (logits, targets, ...) that returns one number.
    model : nn.Module
        The model; one in ``DistributedDataParallel`` synchronises in its last micro-batch alone.
    batches : iterable
        A list, a ``DataLoader``, one of this library's streams or the like, read twice, of ``(inputs, targets)``,
        ``(inputs, targets, weight)`` or ``(inputs, targets, weight, mask)``; where only some micro-batches have a
        weight or a mask, None is a weight of 1 and a mask of True.
    forward : callable, optional
        For other batches and models, a function of ``(model, batch)`` that returns ``(logits, targets)`` and, if there
        are any, weight and mask: ``lambda model, batch: (model(**batch).logits, batch["labels"])``.
    scaler : GradScaler, optional
        Scales the gradient, for a model that runs in ``torch.autocast``; call this function inside it too.

    Returns
    -------
    Tensor
        The loss, a detached scalar.

    Raises
    ------
    ValueError
        If ``batches`` is an iterator or empty, or if the second pass sees other inputs, targets, weights or masks than
        the first, or the same in another order.

    See Also
    --------
    RunningLoss : Nearly the same gradient in one pass.

    Notes
    -----
    The random state, the model's buffers and the position in the data are restored in between: dropout is the same in
    both passes, running statistics are updated once, and both passes see the same epoch of a stream, of a sampler, or
    of a ``DataLoader`` around one. (Any other source of data is restored if it has a ``bookmark()`` as those have.)

    Batch-norm in training mode normalises each micro-batch by itself, so the gradient is then that of the loss of the
    concatenated outputs. With the loss's ``process_group`` the batch is that of all processes, each of which needs at
    least one micro-batch, which may be empty.

    Examples
    --------
    >>> model, loss = nn.Linear(2, 1), MetricLoss("f1")
    >>> batches = [(torch.randn(8, 2), torch.randint(2, (8,))) for _ in range(4)]
    >>> value = exact_backward(loss, model, batches)
    >>> x, y = map(torch.cat, zip(*batches))
    >>> torch.allclose(value, loss(model(x), y))
    True
    """
    if isinstance(batches, Iterator):
        raise ValueError("batches: expected what can be read twice, a list or a DataLoader, got an iterator; list() it")
    state_before = _ModelState(model)
    bookmarks = list(_find_bookmarks(batches, set()))
    # The first pass has nothing to synchronise.
    inner_model = model.module if isinstance(model, DistributedDataParallel) else model
    between: _KeepsStatistic | _KeepsLogits = _KeepsLogits(loss)
    # A learned surrogate needs the logits too, all at once, since processes average the gradient of its parameters.
    if type(loss) is MetricLoss and next(loss.parameters(), None) is None:
        between = _KeepsStatistic(loss)
    forward = forward or _forward_tuple
    first_pass: list[PassChecksum] = []
    with torch.no_grad():
        for batch in batches:
            first_pass.append(PassChecksum(batch))  # before the model can change it
            logits, *rest = _run_forward(forward, inner_model, batch)
            first_pass[-1].add_outputs(logits, rest)
            between.add_batch(logits, *rest)
    if not first_pass:
        raise ValueError("batches: expected at least one micro-batch (an empty one will do), got none")
    # Otherwise autocast would reuse weights that it cast without gradients, and these would get none.
    torch.clear_autocast_cache()
    value = between.differentiate(logits, scaler)
    state_before.restore()
    for return_to_bookmark in bookmarks:
        return_to_bookmark()
    second_pass: list[PassChecksum] = []
    for batch in batches:
        second_pass.append(PassChecksum(batch))
        is_last = len(second_pass) >= len(first_pass)
        synchronises = is_last or not hasattr(model, "no_sync")
        with nullcontext() if synchronises else model.no_sync():  # type: ignore[operator]
            logits, *rest = _run_forward(forward, model, batch)
            second_pass[-1].add_outputs(logits.detach(), rest)
            between.backward_batch(logits, *rest)
    check_passes_alike(first_pass, second_pass)
    return value


def _forward_tuple(model: nn.Module, batch: Any) -> Sequence[Any]:
    if not isinstance(batch, tuple | list) or len(batch) < 2:
        raise ValueError(
            f"batches: expected (inputs, targets), with weight and mask if any, got {_describe_type(batch)}; pass "
            "forward=lambda model, batch: (logits, targets)"
        )
    inputs, *rest = batch
    logits = model(inputs)
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"model: expected a tensor of logits, got {_describe_type(logits)}; pass forward=lambda model, batch: "
            "(logits, targets), which takes them from it"
        )
    return logits, *rest


def _run_forward(forward: Forward, model: nn.Module, batch: Any) -> Sequence[Any]:
    found = forward(model, batch)
    if not isinstance(found, tuple | list) or len(found) < 2 or not isinstance(found[0], Tensor):
        raise ValueError(
            "forward: expected it to return (logits, targets), with weight and mask if any, got "
            f"{_describe_type(found)}"
        )
    return found


def _describe_type(value: object) -> str:
    """Return the type of a value and, for a tuple or list, the types of its items, for messages."""
    inner = f" of {', '.join(type(item).__name__ for item in value)}" if isinstance(value, tuple | list) else ""
    return type(value).__name__ + inner


def _find_bookmarks(source: object, known: set[int]) -> Iterator[Callable[[], object]]:
    """Yield functions that restore the position of streams and samplers, also those inside a DataLoader."""
    if id(source) in known:
        return
    known.add(id(source))
    if hasattr(source, "bookmark"):
        yield source.bookmark()
    generator = getattr(source, "generator", None)
    if isinstance(generator, torch.Generator):
        yield partial(generator.set_state, generator.get_state())
    for name in ("dataset", "sampler", "batch_sampler", "base_dataloader"):
        inner = getattr(source, name, None)
        if inner is not None:
            yield from _find_bookmarks(inner, known)


class _ModelState:
    """The random state and the model's buffers before the first pass."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        parameters = list(model.parameters())
        self.random_state = torch.get_rng_state()
        self.device_states = get_device_states(*parameters)
        self.device_type = next((p.device.type for p in parameters if p.device.type != "cpu"), None)

    @torch.no_grad()
    def restore(self) -> None:
        for name, buffer in self.model.named_buffers():
            buffer.copy_(self.buffers[name])
        torch.set_rng_state(self.random_state)
        if self.device_type is not None:
            set_device_states(*self.device_states, device_type=self.device_type)


class _KeepsStatistic:
    """Keeps the statistic of a ``MetricLoss`` between the passes."""

    def __init__(self, loss: MetricLoss) -> None:
        self.loss = loss
        self.statistic: Any = None
        self.gradient: tuple[Tensor, ...] = ()

    def add_batch(self, logits: Tensor, targets: Tensor, *rest: Tensor | None) -> None:
        """Add a micro-batch of the first pass."""
        counts = self.loss.counts(logits, targets, *rest).map(wide)
        self.statistic = counts if self.statistic is None else self.statistic + counts

    @without_autocast
    def differentiate(self, like: Tensor, scaler: GradScaler | None) -> Tensor:
        """Return the loss, and store its gradient with respect to the statistic."""
        leaf = self.statistic.map(lambda cell: cell.requires_grad_())
        group = processes.resolve(self.loss.process_group)
        value = 1 - self.loss.value(processes.sum_statistic(leaf, group))
        self.gradient = torch.autograd.grad(_scale(value, scaler), leaf.cells(), materialize_grads=True)
        return value.detach().to(compute_dtype(like))

    @without_autocast
    def backward_batch(self, logits: Tensor, targets: Tensor, *rest: Tensor | None) -> None:
        """Backpropagate a micro-batch of the second pass."""
        cells = []
        gradients = []
        for cell, gradient in zip(self.loss.counts(logits, targets, *rest).cells(), self.gradient, strict=True):
            if cell.requires_grad:
                cells.append(cell)
                gradients.append(limit_gradient(gradient, cell.dtype))
        torch.autograd.backward(cells, gradients)


class _KeepsLogits:
    """Keeps the logits between the passes, for any loss: N·K numbers, far fewer than the activations."""

    def __init__(self, loss: Callable[..., Tensor]) -> None:
        self.loss = loss
        self.batches: list[tuple[Tensor | None, ...]] = []
        self.gradients: Iterator[Tensor] = iter(())

    def add_batch(self, logits: Tensor, *rest: Tensor | None) -> None:
        self.batches.append((logits, *rest))

    @without_autocast
    def differentiate(self, like: Tensor, scaler: GradScaler | None) -> Tensor:
        width = max(map(len, self.batches))
        padded = [(*batch, *[None] * (width - len(batch))) for batch in self.batches]
        logits_parts, *columns = zip(*padded, strict=True)
        lengths = [len(part) for part in logits_parts]
        leaf = _concatenate("logits", logits_parts, lengths).requires_grad_()  # type: ignore[union-attr]
        self.batches.clear()
        names = ["targets", "weight", "mask", *(f"item {place} of each" for place in range(4, width))]
        rest = [_concatenate(name, column, lengths) for name, column in zip(names, columns, strict=False)]
        value = self.loss(leaf, *rest)
        _scale(value, scaler).backward()
        gradient = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
        self.gradients = iter(gradient.split(lengths))
        return value.detach()

    @without_autocast
    def backward_batch(self, logits: Tensor, *rest: Tensor | None) -> None:
        gradient = next(self.gradients, None)
        if gradient is not None and gradient.shape == logits.shape:  # otherwise the check at the end raises
            logits.backward(gradient)


def _concatenate(name: str, column: Sequence[Any], lengths: list[int]) -> Tensor | None:
    """Concatenate a column of all micro-batches; where only some have a weight or a mask, others get 1 or True."""
    given = [x for x in column if x is not None]
    if not given:
        return None
    if len(given) < len(column) and name not in ("weight", "mask"):
        raise ValueError(f"batches: expected {name} in all micro-batches or in none, got some; give it to all")
    shapes = {x.shape[1:] for x in given}
    if len(shapes) > 1:
        described = [str(("N", *shape)).replace("'", "") for shape in shapes]
        found = ", ".join(sorted(described))
        raise ValueError(f"batches: expected {name} of one shape but for the number of rows, got {found}")
    parts = []
    for part, length in zip(column, lengths, strict=True):
        parts.append(given[0].new_ones((length, *given[0].shape[1:])) if part is None else part)
    return torch.cat(parts)


def _scale(value: Tensor, scaler: GradScaler | None) -> Tensor:
    if value.dim():
        raise ValueError(f"loss: expected one number, got shape {tuple(value.shape)}; use another average than None")
    return value if scaler is None else scaler.scale(value)
