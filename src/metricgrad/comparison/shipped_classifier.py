"""The shipped model of a run as a scikit-learn classifier of data frames."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from metricgrad.comparison.python_errors import python_errors
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.frames import to_table
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.records import arrange_records
from metricgrad.core.batch import check_task
from metricgrad.estimators.labels import DecidesMixin, Labels
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.core.costs import Cost


class ShippedClassifier(DecidesMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The model that a comparison ships, fitted, with its decision rule.

    It takes frames of pandas, polars and pyarrow with the feature columns of the training data, in any order, and
    records: a dict, a list of dicts, or a row of a pandas frame. Other columns are ignored. What counts as missing is
    that of ``metricgrad predict``, and so are the predictions. It cannot be fitted again: ``fit`` and
    ``sklearn.base.clone`` return it as it is.

    A column that is mostly unknown, such as numbers with a decimal comma where training had a point, is a
    ``ValueError``; ``model.set_params(allow_missing=True)`` counts its cells as missing instead.

    Parameters
    ----------
    model : ShippedModel
        The model of a run folder.
    allow_missing : bool, default False
        Whether to predict also if a column is mostly unknown.

    Attributes
    ----------
    classes_ : ndarray
        The classes, sorted: whole numbers, booleans if they are true and false, otherwise texts. The names of the
        labels of a multi-label problem.
    rule_ : Rule
        The decision rule that ``predict`` applies.
    feature_names_in_ : ndarray
        The feature columns.
    n_features_in_ : int
        Their number.

    """

    def __init__(self, model: ShippedModel, allow_missing: bool = False) -> None:
        self.model = model
        self.allow_missing = allow_missing
        schema = model.schema
        classes = schema.target.labels
        if {str(one).lower() for one in classes} == {"true", "false"}:  # as pandas reads them
            classes = np.array([str(one).lower() == "true" for one in classes])
        self.labels_ = Labels.of(check_task(schema.task), classes)
        # scikit-learn takes it for granted that classes are sorted; here the positive one of two is the second.
        self._order = np.arange(len(classes)) if schema.task == "multilabel" else np.argsort(classes)
        self.classes_ = classes[self._order]
        self.rule_ = model.rule
        self.feature_names_in_ = np.array(schema.inputs, dtype=object)
        self.n_features_in_ = len(schema.inputs)

    @property
    def abstain_label(self) -> int | str | None:
        """What is predicted for a row that is left undecided."""
        return self.model.goal.abstain_label

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_clone__(self) -> Self:
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_label = self.labels_.task == "multilabel"
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Return itself: it is fitted already, and stays as it is.

        Parameters
        ----------
        X : Any
            Not used.
        y : Any, optional
            Not used.

        Returns
        -------
        ShippedClassifier
            Itself.

        """
        return self

    def predict(self, X: Any, costs: Cost | None = None) -> NDArray[Any]:
        """Return the labels that the rule decides on.

        Parameters
        ----------
        X : DataFrame, dict or list of dict
            With the feature columns, and the columns of costs if the run has any.
        costs : None
            Costs are read from the columns that the run names.

        Returns
        -------
        ndarray
            Labels ``(n,)``, or an indicator matrix ``(n, K)``.

        """
        return super().predict(X, costs)

    def predict_scores(self, X: Any) -> NDArray[np.float64]:
        """Return the scores that the rule decides on, as ``metricgrad predict`` writes them.

        Parameters
        ----------
        X : DataFrame, dict or list of dict
            With the feature columns.

        Returns
        -------
        ndarray
            Of the positive class ``(n,)``, of each class ``(n, d)``, or of each label ``(n, K)``.

        """
        return super().predict_scores(X)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the scores moved so that 0.5, or the argmax, is where the rule decides.

        ``predict_scores`` returns the scores themselves, as ``metricgrad predict`` writes them.

        Parameters
        ----------
        X : DataFrame, dict or list of dict
            With the feature columns.

        Returns
        -------
        ndarray
            ``(n, classes)`` in the order of ``classes_``, or ``(n, labels)`` for multi-label problems.

        """
        found: NDArray[np.float64] = self._recentre_probabilities(X)[:, self._order]
        return found

    @property
    def _scored_by(self) -> Any:
        if columns := self.model.goal.cost_columns:
            raise ValueError(
                f"estimator: expected costs that are the same for every row, got those of column {columns[0]!r}, which "
                "move the scores of each row; predict with metricgrad"
            )
        return self.model.estimator

    def _scores(self, X: Any) -> Tensor:
        return self.score_rows(X)[0]

    def score_rows(self, X: Any) -> tuple[Tensor, Gaps]:
        """Return the scores of a frame or of records, and their cells that cannot be used."""
        schema = self.model.schema

        def choose(names: list[str]) -> list[str]:
            schema.check(names)
            of_costs = [name for name in self.model.goal.cost_columns if name in names]
            return list(dict.fromkeys([*schema.inputs, *of_costs]))

        gaps = Gaps()
        with python_errors():
            table = to_table(arrange_records(X, choose), choose)
            pieces = (
                table.slice(start, files.ROWS_PER_PIECE) for start in range(0, table.num_rows, files.ROWS_PER_PIECE)
            )
            parts = [self.model.scores(files.as_frame(piece), gaps) for piece in pieces]
            gaps.check(schema, "data", self.allow_missing)
        found = np.concatenate(parts) if parts else np.empty(self.labels_.scores_shape(0))
        return torch.as_tensor(found, dtype=torch.float64), gaps

    def describe(self) -> str:
        """Return contender, metric and rule in one line."""
        about = self.model.about
        return f"{self.model.contender}, {about['kind']} rule ({self.rule_.describe()}), for {about['metric']}"

    def __repr__(self, **_: Any) -> str:
        return f"<ShippedClassifier: {one_line(self.describe())}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        target, columns = (
            escape(one_line(", ".join(names), 300))
            for names in (self.model.schema.target.columns, self.model.schema.inputs)
        )
        return f"<div><b>{escape(self.describe())}</b><br>predicts {target} from {columns}</div>"
