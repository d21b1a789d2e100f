"""Arrays of numbers as candidates see them: as they are for trees, standardised for linear models and networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import View


class ArrayEncoder:
    """What ``TableEncoder`` is for tables: an array, dense or sparse, in the views of candidates.

    For linear models and networks numbers get zero mean and unit variance, missing ones the median. ``scaler``: what
    does that; None before it was fitted.
    """

    def __init__(self, scaler: Any = None) -> None:
        self.scaler = scaler

    def fit_array(self, X: Any) -> None:
        """Learn medians and scales from an array."""
        if hasattr(X, "toarray"):
            scaler: Any = StandardScaler(with_mean=False)
        else:
            from sklearn.impute import (
                SimpleImputer,
            )  # with scikit-learn's nearest neighbours, which predicting needs not

            scaler = make_pipeline(SimpleImputer(strategy="median", keep_empty_features=True), StandardScaler())
        self.scaler = scaler.fit(X)

    def encode(self, X: Any, view: View) -> Any:
        """Return an array as candidates of a view see it."""
        return self.scaler.transform(X) if view in ("linear", "dense") else X


def check_no_sparse_nan(X: Any) -> None:
    """Raise if a sparse matrix holds NaN: most of its cells are zero, and a median would fill it up."""
    if hasattr(X, "toarray") and np.isnan(X.data).any():
        raise ValueError("X: expected a sparse matrix without NaN, got some; pass a dense array or impute first")
