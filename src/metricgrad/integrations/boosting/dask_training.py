"""Training on the partitions of a Dask cluster, through ``xgboost.dask``: the trees of ``XGBoost.train``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
import numpy as np
import xgboost
from xgboost import dask as xgboost_dask

from metricgrad.integrations.boosting.libraries import BoostingPlan, BoostingRows, ProgressHook, Trained, XGBoost
from metricgrad.integrations.boosting.objectives import xgboost_objective

if TYPE_CHECKING:
    from collections.abc import Sequence

_HISTORY = "metricgrad_history"


class _KeepHistory(xgboost.callback.TrainingCallback):
    """Leaves the history in the model: XGBoost's own is rounded to six digits."""

    def __init__(self, progress: ProgressHook) -> None:
        self.progress = progress

    def after_training(self, model: Any) -> Any:
        model.set_attr(**{_HISTORY: json.dumps(self.progress.history)})
        return model


class PlacedRows:
    """Rows on the workers of a cluster: futures of ``BoostingRows``, and an example of them without rows."""

    def __init__(self, client: Any, parts: Sequence[Any], example: BoostingRows) -> None:
        self.client = client
        self.parts = parts
        self.example = example

    def matrix(self, categorical: list[int]) -> Any:
        """Return the rows as XGBoost's matrix; they stay where they are."""
        kinds = XGBoost.feature_types(categorical, self.example.x.shape[1])
        names = {"label": "y", "weight": "weight", "base_margin": "start"}
        columns = {
            name: self._column(field) for name, field in names.items() if getattr(self.example, field) is not None
        }
        return xgboost_dask.DaskDMatrix(
            self.client, self._column("x"), feature_types=kinds, enable_categorical=bool(categorical), **columns
        )

    def _column(self, name: str) -> Any:
        like = getattr(self.example, name)
        shape = (np.nan, *like.shape[1:])
        read = dask.delayed(getattr, pure=True)
        blocks = [da.from_delayed(read(part, name), shape, like.dtype) for part in self.parts]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)


def train(plan: BoostingPlan, rounds: int, rows: PlacedRows, held_out: PlacedRows | None = None) -> Trained:
    """Train on rows and stop early on held-out rows, if there are any."""
    progress = ProgressHook(plan)
    more = {}
    if held_out is not None:
        evals = [(held_out.matrix(plan.categorical), "held_out")]
        more = {
            "evals": evals,
            "custom_metric": progress,
            "callbacks": [*XGBoost.callbacks(plan), _KeepHistory(progress)],
        }
    example = rows.example
    found = xgboost_dask.train(
        rows.client,
        XGBoost.parameters(plan, example.start.shape[1] if example.y.ndim == 1 and example.start.ndim == 2 else None),
        rows.matrix(plan.categorical),
        rounds,
        obj=xgboost_objective(plan.loss),
        verbose_eval=False,
        **more,
    )
    model = found["booster"]
    history = json.loads(model.attr(_HISTORY) or "[]")
    model.set_attr(**{_HISTORY: None})
    return Trained(model, model.num_boosted_rounds(), history)
