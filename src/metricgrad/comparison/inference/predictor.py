"""A model's predictions for a piece of a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.messages import one_line, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from metricgrad.comparison.shipped_model import ShippedModel


OUTPUTS = ("both", "labels", "scores")

_MOST_CELLS = 1 << 22  # the most encoded cells in a piece: 16 MB per copy


def count_predicted(decided: np.ndarray, classes: int) -> np.ndarray:
    """Return how often each class, or label, was predicted; an undecided row counts for none."""
    return decided.sum(0) if decided.ndim == 2 else np.bincount(decided[decided >= 0], minlength=classes)


@dataclass(eq=False)
class Predictor:
    """Turns pieces of the data into pieces of the output, and counts predictions and gaps."""

    model: ShippedModel
    what: str
    keep: tuple[str, ...]
    predicted: Counter[str] = field(default_factory=Counter)
    gaps: Gaps = field(default_factory=Gaps)

    def __post_init__(self) -> None:
        schema = self.model.schema
        binary, multilabel = schema.task == "binary", schema.task == "multilabel"
        self.scores = ["score"] if binary else [f"score {name}" for name in schema.classes]
        self.labels = [f"prediction {name}" for name in schema.classes] if multilabel else ["prediction"]
        self.names = [*(self.labels if self.what != "scores" else ()), *(self.scores if self.what != "labels" else ())]
        if clash := set(self.keep) & set(self.names):
            raise UserError(
                f"id: {min(clash)!r} is the name of a column of predictions; rename it in the data", WRONG_CALL
            )
        self.rows = min(files.ROWS_PER_PIECE, max(1024, _MOST_CELLS // max(1, self.model.width)))
        # Encoding has a cost per piece, scoring is faster within the cache: four parts per piece are fastest.
        self.part = -(-self.rows // 4)

    @property
    def columns(self) -> list[str]:
        """The columns of the data to read."""
        return list(dict.fromkeys((*self.keep, *self.model.schema.inputs, *self.model.goal.cost_columns)))

    def check(self, present: list[str]) -> None:
        """Raise if a feature, or a column to keep, is missing among ``present``."""
        self.model.schema.check(present)
        for name in self.model.goal.cost_columns:
            if name not in present:
                raise UserError(f"cost: expected a column {one_line(name)!r} in the data; {suggest(name, present)}")
        for name in self.keep:
            if name not in present:
                raise UserError(
                    f"id: expected a column of the data, got {one_line(name)!r}; {suggest(name, present)}", WRONG_CALL
                )

    def __call__(self, piece: pa.Table) -> tuple[pa.Table, np.ndarray, Gaps]:
        """Return the predictions of a piece, how often each class was predicted, and the gaps in its columns."""
        model, gaps = self.model, Gaps()
        if piece.num_rows:
            frame = files.as_frame(piece)
            parts = model.schema.to_features(frame, gaps)
            starts = range(0, len(frame), self.part)
            rows = [slice(start, start + self.part) for start in starts]
            scores = np.concatenate([model.score_parts(parts.iloc[some], frame.iloc[some]) for some in rows])
        else:
            scores = np.empty(model.estimator.labels_.scores_shape(0))
        decided = model.decide(scores)
        columns: list[pa.Array | pa.ChunkedArray] = [piece.column(name) for name in self.keep]
        if self.what != "scores":
            columns += (
                [pa.array(column) for column in decided.T] if decided.ndim == 2 else [self._name_classes(decided)]
            )
        if self.what != "labels":
            columns += [pa.array(column) for column in np.atleast_2d(scores.T)]
        counts = count_predicted(decided, len(model.schema.classes))
        return pa.table(columns, names=[*self.keep, *self.names]), counts, gaps

    def _name_classes(self, decided: np.ndarray) -> pa.Array:
        labels = pa.array(self.model.schema.target.labels)
        named = labels.take(pa.array(decided, mask=decided < 0))
        undecided = self.model.goal.abstain_label
        return named if undecided is None else named.fill_null(undecided)

    def add(self, counts: Iterable[int], gaps: Gaps) -> None:
        """Count the predictions and gaps of a piece."""
        self.predicted.update(dict(zip(self.model.schema.classes, map(int, counts), strict=True)))
        self.gaps += gaps

    def summarise(self) -> dict[str, Any]:
        """Return what was counted, and warnings about it."""
        abstains = self.model.rule.abstains
        return {
            "rows": self.gaps.rows,
            "predicted": {name: int(self.predicted[name]) for name in self.model.schema.classes},
            **({"undecided": self.gaps.rows - self.predicted.total()} if abstains else {}),
            "unknown": dict(self.gaps.unknown),
            "warnings": self.gaps.describe(self.model.schema),
        }
