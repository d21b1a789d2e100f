"""XGBoost and LightGBM behind one interface: train with a loss, watch held-out rows, return logits, write bytes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict

import numpy as np
import torch
from scipy.sparse import csr_matrix, issparse

from metricgrad.integrations.boosting.hooks import Backend, Hook
from metricgrad.integrations.boosting.objectives import Gradient, compute_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from torch import Tensor

    from metricgrad.core.inputs import ArrayLike
    from metricgrad.integrations.boosting.evaluation import Evaluation


class RoundRow(TypedDict):
    """A row of the history of boosting: loss and metric of held-out rows after a round."""

    loss: float
    metric: float


class Trained(NamedTuple):
    """A model of the rounds up to its best one, their number, and its history."""

    model: Any
    rounds: int
    history: list[RoundRow]


@dataclass(frozen=True, eq=False)
class BoostingRows:
    """Some rows of the data: features, class indices ``(n,)`` or labels ``(n, K)``, weights, the logits to start at."""

    x: Any
    y: NDArray[Any]
    weight: NDArray[Any] | None
    start: NDArray[np.float64]

    def take(self, which: NDArray[np.int64]) -> BoostingRows:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[which]
        return BoostingRows(self.x[which], self.y[which], weight, self.start[which])


class RoundListener(Protocol):
    """Receives the beginning and the end of every round of boosting."""

    def begin(self, place: int) -> None:
        """Begin the round at a place."""

    def end(self) -> bool:
        """End the round, and return whether to stop after it."""


@dataclass(frozen=True, eq=False)
class BoostingPlan:
    """How to train.

    ``last_loss``: the final form of a loss that changes during training (a warm-up, an annealed step), so that its
    values on held-out rows can be compared from round to round. ``metric``: what is watched beside it. ``patience``:
    stop after this many rounds in which ``monitor``, "loss" or "metric", did not improve on held-out rows; None never
    stops. ``categorical``: the features that are categories. ``parameters``: the library's own, which take precedence.
    ``rounds`` is told when a round begins and when it ends, and then says whether to stop.
    """

    loss: Callable[..., Tensor]
    last_loss: Callable[..., Tensor]
    metric: Evaluation
    monitor: str
    patience: int | None
    categorical: list[int]
    learning_rate: float
    max_depth: int | None
    device: str | None
    n_jobs: int | None
    seed: int
    parameters: dict[str, Any]
    rounds: RoundListener | None = None

    @property
    def common(self) -> dict[str, Any]:
        """The parameters that both libraries know by the same name."""
        found = {"learning_rate": self.learning_rate, "seed": self.seed}
        return found if self.device is None else found | {"device": self.device}


class ProgressHook(Hook):
    """Loss and metric of held-out rows after each round, first the one to stop on."""

    def __init__(self, plan: BoostingPlan, targets: ArrayLike | None = None) -> None:
        super().__init__(targets)
        self.plan = plan
        self.history: list[RoundRow] = []

    def answer(self, scores: Tensor, targets: Tensor, weight: Tensor | None, native: bool) -> Any:
        plan = self.plan
        with torch.no_grad():
            loss = compute_loss(plan.last_loss, scores, targets, weight).item()
        metric = plan.metric.value(scores, targets, weight)
        self.history.append({"loss": loss, "metric": metric})
        found = [("loss", loss, False), ("metric", metric, True)]
        found = found[::-1] if plan.monitor == "metric" else found
        return found if plan.metric.backend == "lightgbm" else [(name, value) for name, value, _ in found]


class Library(Protocol):
    """The interface of a library."""

    suffix: str
    """How the name of a file with a model ends."""

    def train(
        self, plan: BoostingPlan, rounds: int, rows: BoostingRows, held_out: BoostingRows | None = None
    ) -> Trained:
        """Train on rows and stop early on held-out rows, if there are any."""

    def make_rows(self, x: Any, categorical: list[int], n_jobs: int | None) -> Any:
        """Return features as the library takes them to predict, once for all models."""

    def logits(self, model: Any, rows: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return what the model adds to the logits it started at: ``(n,)`` or ``(n, K)``."""

    def dump(self, model: Any) -> bytes:
        """Return the model in the library's own format."""

    def load(self, data: bytes, n_jobs: int | None) -> Any:
        """Return the model that ``dump`` was given."""


class XGBoost:
    """``xgboost.train``."""

    suffix = "ubj"

    def train(
        self, plan: BoostingPlan, rounds: int, rows: BoostingRows, held_out: BoostingRows | None = None
    ) -> Trained:
        library = import_library("xgboost")
        progress = ProgressHook(plan)
        objective = Gradient(plan.loss)
        objective.keep_rows(rows.y, rows.weight)
        more: dict[str, Any] = {"callbacks": self._round_callbacks(plan)}
        if held_out is not None:
            progress.keep_rows(held_out.y, held_out.weight)
            watched = self._make_matrix(held_out.x, plan.categorical, plan.n_jobs, held_out)
            more = {"evals": [(watched, "held_out")], "custom_metric": progress}
            more["callbacks"] = self.callbacks(plan) + self._round_callbacks(plan)
        model = library.train(
            self.parameters(plan, rows.start.shape[1] if rows.y.ndim == 1 and rows.start.ndim == 2 else None),
            self._make_matrix(rows.x, plan.categorical, plan.n_jobs, rows),
            rounds,
            obj=objective,
            verbose_eval=False,
            **more,
        )
        return Trained(model, model.num_boosted_rounds(), progress.history)

    @staticmethod
    def parameters(plan: BoostingPlan, classes: int | None) -> dict[str, Any]:
        """Return the parameters of a plan; ``classes``: of a multi-class problem."""
        own = {
            "max_depth": plan.max_depth or 0,
            "nthread": _count_threads(plan.n_jobs),
            "base_score": 0.0,
            "disable_default_eval_metric": True,
        }
        return plan.common | own | ({} if classes is None else {"num_class": classes}) | plan.parameters

    @staticmethod
    def callbacks(plan: BoostingPlan) -> list[Any]:
        """Return the early stopping of a plan, if it has any."""
        if plan.patience is None:
            return []
        which = {"metric_name": plan.monitor, "maximize": plan.monitor == "metric"}
        return [import_library("xgboost").callback.EarlyStopping(rounds=plan.patience, save_best=True, **which)]

    @staticmethod
    def _round_callbacks(plan: BoostingPlan) -> list[Any]:
        """Return what tells of the rounds, if anybody asks."""
        if plan.rounds is None:
            return []
        listener: RoundListener = plan.rounds

        class TellsRounds(import_library("xgboost").callback.TrainingCallback):  # type: ignore[misc]
            def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                listener.begin(epoch)
                return False

            def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
                return listener.end()

        return [TellsRounds()]

    @staticmethod
    def feature_types(categorical: list[int], features: int) -> list[str] | None:
        """Return which features are categories, if any."""
        return ["c" if j in categorical else "q" for j in range(features)] if categorical else None

    def make_rows(self, x: Any, categorical: list[int], n_jobs: int | None) -> Any:
        return self._make_matrix(x, categorical, n_jobs)

    def logits(self, model: Any, rows: Any, n_jobs: int | None) -> Any:
        return model.predict(rows, output_margin=True)

    def dump(self, model: Any) -> bytes:
        return bytes(model.save_raw("ubj"))

    def load(self, data: bytes, n_jobs: int | None) -> Any:
        model = import_library("xgboost").Booster({"nthread": _count_threads(n_jobs)})
        model.load_model(bytearray(data))
        return model

    @classmethod
    def _make_matrix(cls, x: Any, categorical: list[int], n_jobs: int | None, rows: BoostingRows | None = None) -> Any:
        kinds = cls.feature_types(categorical, x.shape[1])
        more = {} if rows is None else {"label": rows.y, "weight": rows.weight, "base_margin": rows.start}
        return import_library("xgboost").DMatrix(
            x, feature_types=kinds, enable_categorical=bool(categorical), nthread=_count_threads(n_jobs), **more
        )


class LightGBM:
    """``lightgbm.train``."""

    suffix = "txt"

    def train(
        self, plan: BoostingPlan, rounds: int, rows: BoostingRows, held_out: BoostingRows | None = None
    ) -> Trained:
        library = import_library("lightgbm")
        plan.metric.check_alone(plan.parameters)
        several = rows.y.ndim == 2  # LightGBM keeps one label a row: the objective gets the matrix instead
        objective = Gradient(plan.loss)
        objective.keep_rows(rows.y, rows.weight)
        parameters = plan.common | {
            "objective": objective,
            "metric": "None",
            "num_class": rows.start.shape[1] if rows.start.ndim == 2 else 1,
            "max_depth": plan.max_depth or -1,
            "deterministic": True,
            "feature_pre_filter": False,  # with few rows it would leave no feature, which is an error
            "num_threads": _count_threads(plan.n_jobs),
            "verbosity": -1,
        }

        def data(part: BoostingRows, reference: Any = None) -> Any:
            labels = np.zeros(len(part.y)) if several else part.y
            more = {"reference": reference, "categorical_feature": plan.categorical}
            return library.Dataset(_to_csr(part.x), labels, weight=part.weight, init_score=part.start, **more)

        own = data(rows)
        progress = ProgressHook(plan)
        more: dict[str, Any] = {"callbacks": self._round_callbacks(plan)}
        if held_out is not None:
            progress.keep_rows(held_out.y, held_out.weight)
            more |= {"valid_sets": [data(held_out, own)], "valid_names": ["held_out"], "feval": progress}
            if plan.patience is not None:
                more["callbacks"].append(library.early_stopping(plan.patience, first_metric_only=True, verbose=False))
        try:
            model = library.train(parameters | plan.parameters, own, rounds, **more)
        except library.basic.LightGBMError as error:
            if "num_features" not in str(error):
                raise
            raise ValueError(
                "X: expected at least one feature that varies, got constant columns alone, on which LightGBM grows no "
                "trees; look at how X was made, or use backend='xgboost'"
            ) from error
        return Trained(model, model.best_iteration or model.current_iteration(), progress.history)

    @staticmethod
    def _round_callbacks(plan: BoostingPlan) -> list[Any]:
        """Return what tells of the rounds, if anybody asks."""
        listener = plan.rounds
        if listener is None:
            return []

        def begin(env: Any) -> None:
            listener.begin(env.iteration)

        def end(env: Any) -> None:
            if listener.end():
                raise import_library("lightgbm").callback.EarlyStopException(
                    env.iteration, env.evaluation_result_list or []
                )

        begin.before_iteration = True  # type: ignore[attr-defined]
        return [begin, end]

    def make_rows(self, x: Any, categorical: list[int], n_jobs: int | None) -> Any:
        return _to_csr(x)

    def logits(self, model: Any, rows: Any, n_jobs: int | None) -> Any:
        return model.predict(rows, raw_score=True, num_threads=_count_threads(n_jobs))

    def dump(self, model: Any) -> bytes:
        return model.model_to_string().encode()  # type: ignore[no-any-return]

    def load(self, data: bytes, n_jobs: int | None) -> Any:
        return import_library("lightgbm").Booster(model_str=data.decode())


LIBRARIES: dict[Backend, Library] = {"xgboost": XGBoost(), "lightgbm": LightGBM()}


def import_library(name: Backend) -> Any:
    """Return the library, or say how to get it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"backend={name!r} needs {name}: pip install 'metricgrad[boosting]'") from error


def _count_threads(n_jobs: int | None) -> int:
    """Return the number of threads as both libraries count them: 0 for all cores."""
    return max(n_jobs or 0, 0)


def _to_csr(x: Any) -> Any:
    """Return sparse data as the kind of matrix that LightGBM takes without a warning."""
    return csr_matrix(x) if issparse(x) else x
