"""Predictions of Dask arrays and frames: Dask arrays, computed when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from metricgrad.estimators.labels import DecidesMixin, is_dask

if TYPE_CHECKING:
    from metricgrad.estimators.labels import Features


class DecidesLazilyMixin(DecidesMixin):
    """``DecidesMixin`` for estimators that take Dask input too."""

    def predict(self, X: Features, costs: Any = None) -> Any:
        """Return the labels that the rule decides on.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``; or a Dask array or frame.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.

        Returns
        -------
        ndarray
            Labels ``(n,)``, or an indicator matrix ``(n, K)``; of Dask input a Dask array, computed when asked for.

        """
        if not is_dask(X):
            return super().predict(X, costs)
        check_is_fitted(self)
        if costs is not None:
            raise ValueError("costs: expected none with Dask input, got some; predict partitions with their costs")
        labels = self.labels_
        tail, dtype = ((labels.outputs,), np.int64) if labels.task == "multilabel" else ((), labels.classes.dtype)
        return self._predict_lazily("predict", X, tail, dtype)

    def predict_scores(self, X: Features) -> Any:
        """Return the probabilities that the rule decides on.

        A metric loss does not make them calibrated: see ``mg.reliability``.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``; or a Dask array or frame.

        Returns
        -------
        ndarray
            Of the positive class ``(n,)``, of each class ``(n, d)``, or of each label ``(n, K)``; of Dask input a Dask
            array, computed when asked for.

        """
        if not is_dask(X):
            return super().predict_scores(X)
        check_is_fitted(self)
        return self._predict_lazily("predict_scores", X, self.labels_.scores_shape(0)[1:], np.float64)

    def predict_proba(self, X: Features) -> Any:
        """Return the probabilities moved so that 0.5, or the argmax, is where the rule decides.

        As scikit-learn's tools expect of a classifier. The order of the scores stays as it is.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``, as given to ``fit``; or a Dask array or frame.

        Returns
        -------
        ndarray
            ``(n, 2)`` for binary, ``(n, d)`` for multi-class, ``(n, K)`` for multi-label problems; of Dask input a Dask
            array, computed when asked for.

        """
        if not is_dask(X):
            return super().predict_proba(X)
        check_is_fitted(self)
        return self._predict_lazily("predict_proba", X, (len(self.labels_.classes),), np.float64)

    def _predict_lazily(self, method: str, X: Any, tail: tuple[int, ...], dtype: Any) -> Any:
        from metricgrad.estimators.dask_partitions import make_example, predict_partitions

        validate_data(self, make_example(X), reset=False, skip_check_array=True)
        return predict_partitions(self, method, X, tail, dtype)
