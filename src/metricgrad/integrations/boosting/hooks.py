"""What XGBoost and LightGBM call: one form for the calls of both libraries and of their scikit-learn classes.

Only torch is imported: the callables work on what the two libraries hand over.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, get_args

from metricgrad.core.inputs import ArrayLike, as_tensor
from metricgrad.integrations.boosting.workers import find_workers, make_alike

if TYPE_CHECKING:
    from torch import Tensor

Backend = Literal["xgboost", "lightgbm"]

# LightGBM's parameters of distributed training, the first two numbers of machines.
_MACHINES = (
    "num_machines",
    "num_machine",
    "machines",
    "workers",
    "nodes",
    "machine_list_filename",
    "machine_list_file",
    "machine_list",
    "mlist",
)


class Hook:
    """What both libraries call: natively with (scores, data), from their scikit-learn classes with (labels, scores).

    LightGBM counts the parameters, and XGBoost looks for the name ``sample_weight``: hence the signature.
    """

    def __init__(self, targets: ArrayLike | None = None) -> None:
        self.targets = targets
        self._rows: tuple[Any, Any] | None = None
        self._tensors_of_rows: tuple[Tensor, Tensor | None] | None = None

    @property
    def keeps_rows(self) -> bool:
        """Whether all calls are about the same rows."""
        return self._rows is not None

    def keep_rows(self, labels: Any, weight: Any) -> None:
        """Keep labels and weights: asking the library for them in every round takes longer than the loss."""
        self._rows = labels, weight

    def __call__(self, first: Any, second: Any, sample_weight: Any = None) -> Any:
        """Return what the library asks for; of several workers of XGBoost, that of all their rows."""
        native = hasattr(second, "get_label")
        # The scikit-learn wrapper of LightGBM keeps the data set to itself: the parameters are with the caller.
        data = second if native else sys._getframe(1).f_locals.get("dataset")
        self.check_alone(getattr(data, "params", None))
        workers = None if self.has_group else find_workers()
        if workers is None:
            return self.answer(*self._read(native, first, second, sample_weight), native=native)
        if native:
            _check_rows(second)
        with workers.together():
            given = self._read(native, first, second, sample_weight)
            return self.answer(*make_alike(workers, *given), native=native)

    def _read(self, native: bool, first: Any, second: Any, sample_weight: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return scores, targets and weights of a call."""
        if self._rows is None:
            given = (first, second.get_label(), second.get_weight()) if native else (second, first, sample_weight)
            return self._tensors(*given)
        if self._tensors_of_rows is None:
            scores, targets, weight = self._tensors(first if native else second, *self._rows)
            self._tensors_of_rows = targets, weight
            return scores, targets, weight
        return as_tensor("scores", first if native else second).float(), *self._tensors_of_rows

    @property
    def has_group(self) -> bool:
        """Whether a ``process_group`` of the loss joins the data of all processes."""
        return False

    def check_alone(self, parameters: Any) -> None:
        """Refuse to work on one shard of LightGBM's data, given its parameters: objectives cannot use its network."""
        machines = "" if self.has_group else _describe_machines(parameters)
        if machines:
            raise ValueError(
                f"distributed boosting: expected one process, got LightGBM's {machines}, each of which would optimise "
                "or evaluate its own rows alone; use XGBoost, which is exact on several workers, or one process"
            )

    def answer(self, scores: Tensor, targets: Tensor, weight: Tensor | None, native: bool) -> Any:
        """Return what the library asks for, given float32 scores, targets as losses take them, and weights."""
        raise NotImplementedError

    def _tensors(self, scores: Any, labels: Any, weight: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        z = as_tensor("scores", scores).float()
        y = as_tensor("targets", labels if self.targets is None else self.targets)
        if y.numel() == z.numel():
            y = y.reshape(z.shape).float()  # some versions of XGBoost return a matrix of labels flat
        elif y.numel() == len(z):
            y = y.reshape(-1).long()
        else:
            raise ValueError(
                f"targets: expected {len(z)} classes or labels of shape {tuple(z.shape)}, got {tuple(y.shape)}; for "
                "several labels a row pass targets= with a row for each row of the data"
            )
        return z, y, None if weight is None or len(weight) == 0 else as_tensor("weight", weight).float()


def _check_rows(data: Any) -> None:
    """Refuse XGBoost's data if workers share out its columns: a sum over them would count every row several times."""
    mode = data.data_split_mode()
    if mode.name != "ROW":
        raise ValueError(
            f"distributed boosting: expected rows shared out to the workers, got a DMatrix of data_split_mode "
            f"{mode.name}, whose rows are on all of them; split it by rows"
        )


def _describe_machines(parameters: Any) -> str:
    """Return LightGBM's parameters if they are of distributed training, or an empty text."""
    given: dict[str, Any] = {key: (parameters or {}).get(key) for key in _MACHINES}
    count = next((int(given[key]) for key in ("num_machines", "num_machine") if given[key]), 1)
    if count > 1 or any(given[key] for key in _MACHINES[2:]):
        return ", ".join(f"{key}={value!r}" for key, value in given.items() if value)
    return ""


def check_backend(backend: str) -> Backend:
    """Return the library's name, or raise."""
    if backend not in get_args(Backend):
        raise ValueError(f"backend: expected 'xgboost' or 'lightgbm', got {backend!r}")
    return backend  # type: ignore[return-value]
