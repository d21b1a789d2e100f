"""What predict, evaluate and tune find out about the rows that they get, and say about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.tables import files
from metricgrad.comparison.tables.gaps import Gaps

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from metricgrad.comparison.run_folder import Run
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.trained_rows import Seen


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled rows with their scores and encoded targets, and the gaps in their columns.

    ``seen``: those that the model was trained on. ``unlabelled``: the number of those with an empty list of labels.
    """

    frame: pd.DataFrame
    scores: np.ndarray
    targets: np.ndarray
    gaps: Gaps
    seen: Seen
    unlabelled: int

    @classmethod
    def of(cls, model: ShippedModel, frame: pd.DataFrame) -> Labelled:
        """Score the rows of a frame that all have a target."""
        gaps = Gaps()
        parts = model.schema.to_features(frame, gaps)
        targets = model.schema.encode_targets(frame)
        seen = model.trained_rows.count(parts, targets)
        scores = model.score_parts(parts, frame)
        return cls(frame, scores, targets, gaps, seen, model.schema.target.count_unlabelled(frame))

    @classmethod
    def read(cls, model: ShippedModel, data: str | Path, rows: int | None, allow_missing: bool) -> Labelled:
        """Read the labelled rows of a file, or a sample of them, and score them.

        ``allow_missing``: also if a column is mostly unknown.
        """
        source, schema = files.Source(data), model.schema
        schema.check(source.names)
        names = [
            name for name in (*schema.target.columns, *schema.inputs, *model.goal.cost_columns) if name in source.names
        ]
        # The features of a CSV file stay texts, so that they are read in the format of the training data.
        frame = files.read(source, rows, columns=names, texts=schema.inputs)
        found = cls.of(model, schema.keep_labelled(frame))
        found.gaps.check(schema, data, allow_missing)
        return found


def describe_unlabelled(unlabelled: int, rows: int) -> list[str]:
    """Return a warning if rows have an empty list of labels."""
    if not unlabelled:
        return []
    return [f"{unlabelled:,} of {rows:,} rows have an empty list of labels and count as having none, as in training"]


def describe_seen(run: Run, seen: Seen, rows: int, data: str | Path) -> tuple[dict[str, Any], list[str]]:
    """Return how many rows the model was trained on, and a warning if there are any."""
    trained_rows, good = run.model.trained_rows, "the value is too good: use rows that it was not trained on"
    same = Path(data).is_file() and runs.hash_file(Path(data)) == run.config.get("data_sha256")
    about = {"rows": round(seen.share * rows), "share": seen.share}
    if not same and not trained_rows.is_suspicious(seen):
        return about, []
    if seen.share == 1:
        return about, [f"these are the rows that the model was trained on; {good}"]
    return about, [f"the model was trained on {about['rows']} of these {rows} rows ({seen.share:.1%}); {good}"]
