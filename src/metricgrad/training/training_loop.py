"""The loop: mini-batches of tensors in memory, early stopping with the best weights restored, averaged weights.

Rows are put in order once an epoch and sliced, so that a batch costs no indexing and no Python per sample.
"""

from __future__ import annotations

import copy
import inspect
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, get_args

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from metricgrad.core.metrics.scalars import is_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class EpochRow(TypedDict):
    """A row of the history of training: the mean loss of an epoch and, if rows are held out, the value on these."""

    epoch: float
    loss: float
    value: NotRequired[float]


Optimiser = Literal["adamw", "adam", "sgd"]
Batches = Literal["stratified", "shuffled"]


@dataclass(frozen=True)
class TrainingSettings:
    """How to train.

    ``batches``: "stratified" spreads every class (of multi-label data: rows with any label) evenly over the batches,
    since a batch without positives gives a metric no gradient; "shuffled" does not. ``average``: the decay of an
    exponential moving average of the weights, which then is what is evaluated and kept; 0 for none. ``patience``: stop
    after this many epochs without improvement.
    """

    epochs: int = 100
    batch_size: int = 256
    optimiser: Optimiser = "adamw"
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4
    batches: Batches = "stratified"
    average: float = 0.0
    patience: int = 15

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise ValueError(f"{name}: expected a number of at least 1, got {value!r}")
        for name, kind in (("optimiser", Optimiser), ("batches", Batches)):
            if getattr(self, name) not in get_args(kind):
                wanted = ", ".join(map(repr, get_args(kind)))
                raise ValueError(f"{name}: expected one of {wanted}, got {getattr(self, name)!r}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate: expected a positive number, got {self.learning_rate!r}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay: expected a number of at least 0, got {self.weight_decay!r}")
        if not 0 <= self.average < 1:
            raise ValueError(f"average: expected a number in [0, 1), got {self.average!r}")


@dataclass(eq=False)
class TrainingData:
    """Rows in memory: features (a tensor, or a scipy CSR matrix made dense batch by batch), targets, weights."""

    features: Any
    targets: Tensor
    weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Tensor) -> TrainingData:
        """Return some rows."""
        if isinstance(self.features, Tensor):
            features = self.features.index_select(0, rows)  # copies whole rows, faster than indexing does
        else:
            features = self.features[rows.numpy()]
        weight = None if self.weight is None else self.weight[rows]
        return TrainingData(features, self.targets[rows], weight)

    def iterate_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield batches of consecutive rows; a last one of a single row joins the one before, for batch-norm's sake."""
        rows = len(self)
        ends = list(range(size, rows, size))
        if ends and rows - ends[-1] == 1:
            ends.pop()
        start = 0
        for end in [*ends, rows]:
            batch = slice(start, end)
            weight = None if self.weight is None else self.weight[batch]
            yield to_dense(self.features[batch]), self.targets[batch], weight
            start = end


def to_dense(features: Any) -> Tensor:
    """Return features as a tensor."""
    return features if isinstance(features, Tensor) else torch.from_numpy(features.toarray())


def compute_logits(model: nn.Module, features: Any, size: int = 1 << 16) -> Tensor:
    """Return the logits of all rows, without gradients and dropout."""
    model.eval()
    rows = features.shape[0]
    with torch.no_grad():
        parts = [model(to_dense(features[start : start + size])) for start in range(0, max(rows, 1), size)]
    return torch.cat(parts)


def train(
    model: nn.Module,
    loss: nn.Module,
    data: TrainingData,
    settings: TrainingSettings,
    evaluate: Callable[[nn.Module], tuple[float, ...]] | None = None,
    seed: int = 0,
    before_epoch: Callable[[int], object] | None = None,
    after_epoch: Callable[[nn.Module], bool] | None = None,
) -> list[EpochRow]:
    """Train in place and return the history, a row per epoch.

    ``evaluate``: how good the model is after an epoch, higher is better, ties being broken by the next number; the
    weights of the best epoch are restored at the end. ``before_epoch`` gets the number of an epoch, ``after_epoch`` the
    model that would be evaluated, and says whether to stop. A loss with a schedule (``step()``) is moved on after every
    batch, multipliers of constraints after every epoch. The random state outside is left alone.
    """
    parameters = [*model.parameters(), *loss.parameters()]
    optimiser = _make_optimiser(parameters, settings)
    schedules = [module for module in loss.modules() if callable(getattr(module, "step", None))]
    averaged = copy.deepcopy(model).eval() if settings.average else None
    average = None if averaged is None else _WeightAverage(averaged, model)
    evaluated_model = model if averaged is None else averaged
    generator = torch.Generator().manual_seed(seed)
    history: list[EpochRow] = []
    best_value: tuple[float, ...] = ()
    best_state = None
    epochs_since_best = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for epoch in range(settings.epochs):
            if before_epoch is not None:
                before_epoch(epoch)
            model.train()
            loss_sum = torch.zeros(())
            # A short memory at the start, so that the first weights are soon forgotten.
            decay = min(settings.average, (1 + epoch) / (10 + epoch))
            order = _order_rows(data.targets, settings.batches, generator)
            for features, targets, weight in data.take(order).iterate_batches(settings.batch_size):
                optimiser.zero_grad()
                logits = _match_shape(model(features), targets)
                batch_loss = apply_loss(loss, logits, targets, weight)
                batch_loss.backward()
                optimiser.step()
                _advance_schedules(schedules)
                loss_sum += batch_loss.detach() * len(targets)
                if average is not None:
                    average.update(decay)
            _advance_schedules(schedules, after_epoch=True)
            row: EpochRow = {"epoch": float(epoch), "loss": loss_sum.item() / max(1, len(data))}
            if evaluate is not None:
                value = evaluate(evaluated_model)
                row["value"] = value[0]
                if value > best_value:
                    best_value = value
                    best_state = copy.deepcopy(evaluated_model.state_dict())
                    epochs_since_best = 0
                else:
                    epochs_since_best += 1
            history.append(row)
            stops = after_epoch is not None and after_epoch(evaluated_model)
            if stops or epochs_since_best >= settings.patience:
                break
    if best_state is not None:
        model.load_state_dict(best_state)
    elif averaged is not None:
        model.load_state_dict(averaged.state_dict())
    model.eval()
    return history


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch on one thread: on small networks a second one only waits, and sums do not depend on the machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _make_optimiser(parameters: list[nn.Parameter], settings: TrainingSettings) -> Any:
    rate = settings.learning_rate
    decay = settings.weight_decay
    if settings.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay)
    return _Adam(parameters, rate, decay, decoupled=settings.optimiser == "adamw")


class _Adam:
    """``torch.optim.AdamW(fused=True)``, or ``Adam``, to the last bit: its functions without its object.

    The object imports torch's compiler, which takes seconds, and its hooks take longer than a step of a small network.
    """

    def __init__(self, parameters: list[nn.Parameter], rate: float, decay: float, decoupled: bool) -> None:
        self.parameters = parameters
        self.move = adamw if decoupled else adam
        self.options: dict[str, Any] = {
            "lr": rate,
            "weight_decay": decay,
            "beta1": 0.9,
            "beta2": 0.999,
            "eps": 1e-8,
            "amsgrad": False,
            "maximize": False,
            "fused": True,
        }
        self.steps = [torch.zeros((), dtype=torch.float32, device=one.device) for one in parameters]
        self.means = [torch.zeros_like(one, memory_format=torch.preserve_format) for one in parameters]
        self.squares = [torch.zeros_like(one, memory_format=torch.preserve_format) for one in parameters]

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move the parameters that have a gradient."""
        moved = [i for i, parameter in enumerate(self.parameters) if parameter.grad is not None]
        self.move(
            [self.parameters[i] for i in moved],
            [self.parameters[i].grad for i in moved],  # type: ignore[misc]
            [self.means[i] for i in moved],
            [self.squares[i] for i in moved],
            [],
            [self.steps[i] for i in moved],
            **self.options,
        )


def _order_rows(targets: Tensor, batches: str, generator: torch.Generator) -> Tensor:
    """Return a random order of the rows; stratified, every class is spread evenly over it."""
    rows = len(targets)
    shuffled = torch.randperm(rows, generator=generator)
    if batches == "shuffled" or not rows:
        return shuffled
    class_of_row = targets if targets.dim() == 1 else targets.amax(1)
    shuffled_class = class_of_row[shuffled].long()
    by_class = shuffled_class.argsort(stable=True)
    sorted_class = shuffled_class[by_class]
    class_sizes = torch.bincount(shuffled_class)
    class_starts = class_sizes.cumsum(0) - class_sizes
    # The j-th of the m samples of a class gets a random place in the j-th of m equal stretches.
    place_in_class = torch.arange(rows) - class_starts[sorted_class] + torch.rand(rows, generator=generator)
    place = (place_in_class / class_sizes[sorted_class]).float()
    # Floats of one sign are in the order of their bits, and integers are sorted by radix: a third of the time.
    order = place.view(torch.int32).argsort()
    return shuffled[by_class[order]]


def apply_loss(loss: nn.Module, logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Return the loss of a batch; a module of the user's own need not take weights where there are none."""
    value: Tensor
    if weight is None and not _takes_weight(type(loss).forward):
        value = loss(logits, targets)
    else:
        value = loss(logits, targets, weight)
    return value


@cache
def _takes_weight(forward: Any) -> bool:
    try:
        inspect.signature(forward).bind(None, None, None, None)
    except TypeError:
        return False
    return True


def _match_shape(logits: Tensor, targets: Tensor) -> Tensor:
    """Return ``(N, 1)`` logits of a binary problem as ``(N,)``."""
    has_one_column = logits.dim() == 2 and logits.shape[1] == 1
    return logits.squeeze(1) if has_one_column and targets.dim() == 1 else logits


def _advance_schedules(schedules: list[Any], after_epoch: bool = False) -> None:
    """Move schedules on: those of every batch, or those (multipliers) of every epoch."""
    for schedule in schedules:
        if getattr(schedule, "step_each_epoch", False) == after_epoch:
            schedule.step()


class _WeightAverage:
    """Moves the weights of an averaged model towards those of another one."""

    def __init__(self, averaged: nn.Module, model: nn.Module) -> None:
        self.averaged = averaged
        self.model = model
        self.averages: list[Tensor] = list(averaged.parameters())
        self.current: list[Tensor] = list(model.parameters())
        # A module may replace its buffers, but its parameters are those that the optimiser was given.
        self.has_buffers = len(model.state_dict()) > len(self.current)

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """Move the averaged weights; numbers of batches and the like are copied."""
        if not self.has_buffers:
            torch._foreach_lerp_(self.averages, self.current, 1 - decay)
            return
        averages = self.averaged.state_dict()
        current = self.model.state_dict()
        floating = [name for name in averages if averages[name].is_floating_point()]
        torch._foreach_lerp_([averages[name] for name in floating], [current[name] for name in floating], 1 - decay)
        for name in averages.keys() - set(floating):
            averages[name].copy_(current[name])
