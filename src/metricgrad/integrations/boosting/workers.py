"""The workers of XGBoost as one: losses and metrics on all their rows, through ``xgboost.collective``.

Each worker has the gradient of its own rows, and every worker computes the same loss, so the backward pass needs no
exchange. Sums travel in float64.

A worker that fails must not leave the others waiting. Every exchange therefore begins with a frame of fixed length,
whatever is exchanged, in which a worker says that it failed; the others are then told what happened, and all raise the
same error. The frame also says how many numbers follow, so that sums of different shapes are refused, and holds the
numbers themselves if they are few, as the counts of up to 15 classes are.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core import processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEAD_NUMBERS = 3
"""The numbers of a frame that describe it: failures, sum and sum of squares of lengths."""
_FRAME_NUMBERS = 64
"""All numbers of a frame."""
_MOST_MESSAGE_BYTES = 500
"""The bytes of the description of a failure."""


class WorkersError(ValueError):
    """An error that all workers raise at once, so that none is left waiting."""


class TrainingWorkers:
    """The workers of the communicator that is open in this thread."""

    def __init__(self, collective: Any) -> None:
        self._collective = collective
        self.size: int = collective.get_world_size()
        self.rank: int = collective.get_rank()

    def check_alike(self, cells: Sequence[Tensor]) -> None:
        """Do nothing: every exchange checks lengths."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over the workers."""
        return self._exchange(tensor.detach().double().reshape(-1)).to(tensor.dtype).view(tensor.shape)

    def sum_gradient(self, gradient: Tensor, mean: bool = False) -> Tensor:
        """Return the gradient as it is: each worker has the whole loss, and wants the gradient of its rows."""
        return gradient

    def stack(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all workers along a new first axis: a sum, with zeros in the places of the others."""
        places = tensor.new_zeros(self.size, *tensor.shape)
        places[self.rank] = tensor.detach()
        return self._exchange(places.reshape(-1)).view(places.shape)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Make losses those of all workers' rows; an error on one of them is an error on all."""
        try:
            with processes.across(self):
                yield
            self._exchange(torch.empty(0))  # a worker that failed without an exchange since is noticed here
        except Exception as error:
            # If all workers raise this error, or the network itself failed, no worker has to be told.
            if isinstance(error, WorkersError | sys.modules["xgboost"].core.XGBoostError):
                raise
            self._add(_make_frame(1, 0))
            raise self._describe_failure(error) from error

    def _exchange(self, values: Tensor) -> Tensor:
        """Return the sum of flat tensors over the workers, which must be equally long."""
        length = len(values)
        fits = len(values) <= _FRAME_NUMBERS - _HEAD_NUMBERS
        frame = _make_frame(0, length)
        if fits:
            frame[_HEAD_NUMBERS : _HEAD_NUMBERS + length] = values
        frame = self._add(frame)
        failures, codes, squares = frame[:_HEAD_NUMBERS].tolist()
        if failures:
            raise self._describe_failure()
        if self.size * squares != codes**2:  # true only if all lengths are equal
            raise WorkersError(
                f"distributed boosting: expected the same classes on all workers, got {length} numbers on worker "
                f"{self.rank} and another number elsewhere; give every worker scores and labels of all classes"
            )
        return frame[_HEAD_NUMBERS : _HEAD_NUMBERS + length].to(values.dtype) if fits else self._add(values)

    def _describe_failure(self, error: Exception | None = None) -> WorkersError:
        """Return the error that all workers raise, given that of this worker, if it has one."""
        texts = torch.zeros(self.size, _MOST_MESSAGE_BYTES, dtype=torch.uint8)
        if error is not None:
            told = (str(error).partition("\n")[0] or type(error).__name__).encode()[:_MOST_MESSAGE_BYTES]
            texts[self.rank, : len(told)] = torch.tensor(list(told), dtype=torch.uint8)
        texts = self._add(texts.reshape(-1)).view(texts.shape)
        failed = int(texts.any(1).byte().argmax())
        told = bytes(texts[failed].tolist()).rstrip(b"\0")
        return WorkersError(f"worker {failed} of {self.size}: {told.decode(errors='ignore')}")

    def _add(self, values: Tensor) -> Tensor:
        return torch.from_numpy(self._collective.allreduce(values.numpy(), self._collective.Op.SUM))


def _make_frame(failures: int, length: int) -> Tensor:
    frame = torch.zeros(_FRAME_NUMBERS, dtype=torch.float64)
    code = length % 999_983  # float64 holds its square exactly
    frame[:_HEAD_NUMBERS] = torch.tensor([failures, code, code**2])
    return frame


def find_workers() -> TrainingWorkers | None:
    """Return the workers of XGBoost if there are several."""
    collective = sys.modules.get("xgboost.collective")  # whoever uses it has imported it
    return None if collective is None or collective.get_world_size() == 1 else TrainingWorkers(collective)


def make_alike(
    workers: TrainingWorkers, scores: Tensor, targets: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a batch of the same shape as other workers' batches: without rows a worker does not know the classes."""
    own = [1, scores.shape[1] if scores.dim() > 1 else 0, targets.dim(), weight is not None]
    # Workers with rows have equal shapes (otherwise later sums are refused), so their mean is the shape.
    given = torch.tensor(own if len(scores) else [0] * len(own), dtype=torch.float64)
    number, classes, axes, weighted = map(int, workers.sum(given).tolist())
    if number and not len(scores):
        classes = classes // number
        axes = axes // number
        scores = scores.new_empty((0, classes) if classes else 0)
        targets = scores.new_empty(0, dtype=torch.long) if classes and axes == 1 else torch.empty_like(scores)
    if weight is None and weighted:
        weight = scores.new_ones(len(scores))
    return scores, targets, weight
