"""Dask arrays and frames as partitions of rows, and predictions for these."""

from __future__ import annotations

import copy
import math
from typing import Any

import dask
import dask.array as da
import numpy as np

from metricgrad.estimators.labels import is_dask


def know_categories(X: Any) -> Any:
    """Return a frame whose categories are known, which may take a look at its columns."""
    if not hasattr(X, "columns"):
        return X
    unknown = [
        name for name, kind in zip(X.columns, X.dtypes, strict=True) if kind == "category" and not X[name].cat.known
    ]
    return X.categorize(columns=unknown, index=False) if unknown else X


def make_example(X: Any) -> Any:
    """Return a frame or array without rows that has the columns of X."""
    return X._meta if hasattr(X, "columns") else np.empty((0, X.shape[1]))


def find_blocks(name: str, x: Any, like: Any = None) -> list[Any]:
    """Return the partitions of rows, of an array cut as those of another one."""
    if not is_dask(x):
        raise ValueError(f"{name}: expected a Dask array or frame like X, got {type(x).__name__}")
    if not hasattr(x, "rechunk"):
        return list(x.to_delayed())
    if like is not None and hasattr(like, "chunks") and x.shape[0] == like.shape[0]:
        x = x.rechunk({0: like.chunks[0]})
    return list((x.rechunk({1: -1}) if x.ndim > 1 else x).to_delayed().reshape(-1))


def one_thread(estimator: Any) -> Any:
    """Return an estimator that predicts with one thread, if not told otherwise: Dask runs many partitions at once."""
    found = copy.copy(estimator)
    found.n_jobs = found.n_jobs or 1
    return found


def predict_partitions(estimator: Any, method: str, X: Any, tail: tuple[int, ...], dtype: Any) -> Any:
    """Return a method's results for the partitions of X, computed when they are asked for, as a Dask array."""
    model = dask.delayed(one_thread(estimator), traverse=False)
    predict = dask.delayed(_predict)
    lengths = [math.nan] * X.npartitions if hasattr(X, "columns") else list(X.chunks[0])
    blocks = [
        da.from_delayed(predict(model, method, part, tail, dtype), (length, *tail), dtype)
        for part, length in zip(find_blocks("X", X), lengths, strict=True)
    ]
    return da.concatenate(blocks, allow_unknown_chunksizes=True)


def _predict(estimator: Any, method: str, part: Any, tail: tuple[int, ...], dtype: Any) -> Any:
    return getattr(estimator, method)(part) if len(part) else np.empty((0, *tail), dtype)
