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
class Settings:
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
        # index_select copies whole rows, faster than indexing does.
        whole = isinstance(self.features, Tensor)
        features = self.features.index_select(0, rows) if whole else self.features[rows.numpy()]
        return TrainingData(features, self.targets[rows], None if self.weight is None else self.weight[rows])

    def slices(self, size: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Yield batches of consecutive rows; a last one of a single row joins the one before, for batch-norm's sake."""
        count = len(self)
        ends = list(range(size, count, size))
        if ends and count - ends[-1] == 1:
            ends.pop()
        start = 0
        for end in [*ends, count]:
            part = slice(start, end)
            yield dense(self.features[part]), self.targets[part], None if self.weight is None else self.weight[part]
            start = end


def dense(features: Any) -> Tensor:
    """Return features as a tensor."""
    return features if isinstance(features, Tensor) else torch.from_numpy(features.toarray())


def scores(model: nn.Module, features: Any, size: int = 1 << 16) -> Tensor:
    """Return the logits of all rows, without gradients and dropout."""
    model.eval()
    rows = features.shape[0]
    with torch.no_grad():
        parts = [model(dense(features[start : start + size])) for start in range(0, max(rows, 1), size)]
    return torch.cat(parts)


def train(
    model: nn.Module,
    loss: nn.Module,
    data: TrainingData,
    settings: Settings,
    evaluate: Callable[[nn.Module], tuple[float, ...]] | None = None,
    seed: int = 0,
    after_epoch: Callable[[EpochRow], None] | None = None,
) -> list[EpochRow]:
    """Train in place and return the history, a row per epoch.

    ``evaluate``: how good the model is after an epoch, higher is better, ties being broken by the next number; the
    weights of the best epoch are restored at the end. A loss with a schedule (``step()``) is moved on after every
    batch, multipliers of constraints after every epoch. The random state outside is left alone.
    """
    parameters = [*model.parameters(), *loss.parameters()]
    optimiser = _optimiser(parameters, settings)
    moving = [module for module in loss.modules() if callable(getattr(module, "step", None))]
    averaged = copy.deepcopy(model).eval() if settings.average else None
    kept_model = model if averaged is None else averaged
    generator = torch.Generator().manual_seed(seed)
    history: list[EpochRow] = []
    best: tuple[float, ...] = ()
    kept, since = None, 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for epoch in range(settings.epochs):
            model.train()
            total = torch.zeros(())
            order = _order(data.targets, settings.batches, generator)
            for x, y, w in data.take(order).slices(settings.batch_size):
                optimiser.zero_grad(set_to_none=True)
                value = apply_loss(loss, _shaped(model(x), y), y, w)
                value.backward()
                optimiser.step()
                _advance(moving)
                total += value.detach() * len(y)
                if averaged is not None:
                    # A short memory at the start, so that the first weights are soon forgotten.
                    _average(averaged, model, min(settings.average, (1 + len(history)) / (10 + len(history))))
            _advance(moving, epoch=True)
            row: EpochRow = {"epoch": float(epoch), "loss": total.item() / max(1, len(data))}
            if evaluate is not None:
                now = evaluate(kept_model)
                row["value"] = now[0]
                if now > best:
                    best, kept, since = now, copy.deepcopy(kept_model.state_dict()), 0
                else:
                    since += 1
            history.append(row)
            if after_epoch is not None:
                after_epoch(row)
            if since >= settings.patience:
                break
    if kept is not None or averaged is not None:
        model.load_state_dict(kept if kept is not None else kept_model.state_dict())
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


def _optimiser(parameters: list[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    rate, decay = settings.learning_rate, settings.weight_decay
    if settings.optimiser == "sgd":
        return torch.optim.SGD(parameters, lr=rate, momentum=0.9, weight_decay=decay)
    kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
    return kind(parameters, lr=rate, weight_decay=decay, fused=True)


def _order(targets: Tensor, batches: str, generator: torch.Generator) -> Tensor:
    """Return a random order of the rows; stratified, every class is spread evenly over it."""
    rows = len(targets)
    shuffled = torch.randperm(rows, generator=generator)
    if batches == "shuffled" or not rows:
        return shuffled
    kind = (targets if targets.dim() == 1 else targets.amax(1))[shuffled].long()
    by_kind = kind.argsort(stable=True)
    sizes = torch.bincount(kind)
    first = sizes.cumsum(0) - sizes
    # The j-th of the m samples of a kind gets a random place in the j-th of m equal stretches.
    place = torch.arange(rows) - first[kind[by_kind]] + torch.rand(rows, generator=generator)
    where = (place / sizes[kind[by_kind]]).float()
    # Floats of one sign are in the order of their bits, and integers are sorted by radix: a third of the time.
    return shuffled[by_kind[where.view(torch.int32).argsort()]]


def apply_loss(loss: nn.Module, logits: Tensor, targets: Tensor, weight: Tensor | None) -> Tensor:
    """Return the loss of a batch; a module of the user's own need not take weights where there are none."""
    weights = () if weight is None and not _takes_weight(type(loss).forward) else (weight,)
    value: Tensor = loss(logits, targets, *weights)
    return value


@cache
def _takes_weight(forward: Any) -> bool:
    try:
        inspect.signature(forward).bind(None, None, None, None)
    except TypeError:
        return False
    return True


def _shaped(logits: Tensor, targets: Tensor) -> Tensor:
    """Return ``(N, 1)`` logits of a binary problem as ``(N,)``."""
    return logits.squeeze(1) if logits.dim() == 2 and logits.shape[1] == 1 and targets.dim() == 1 else logits


def _advance(moving: list[Any], epoch: bool = False) -> None:
    """Move schedules on: those of every batch, or those (multipliers) of every epoch."""
    for module in moving:
        if getattr(module, "step_each_epoch", False) == epoch:
            module.step()


@torch.no_grad()
def _average(averaged: nn.Module, model: nn.Module, decay: float) -> None:
    means, now = averaged.state_dict(), model.state_dict()
    floating = [name for name in means if means[name].is_floating_point()]
    torch._foreach_lerp_([means[name] for name in floating], [now[name] for name in floating], 1 - decay)
    for name in means.keys() - set(floating):
        means[name].copy_(now[name])
