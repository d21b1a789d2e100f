"""What predict, evaluate and tune find out about the rows that they get, and say about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.app.errors import one_line
from metricgrad.app.runs import folder as runs
from metricgrad.app.runs.trained_rows import Seen
from metricgrad.app.tables import files

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pandas as pd

    from metricgrad.app.runs.folder import Run
    from metricgrad.app.runs.model import Model
    from metricgrad.app.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class Labelled:
    """Labelled rows with their scores and encoded targets; ``unknown``: cells that the model cannot use, by column."""

    frame: pd.DataFrame
    scores: np.ndarray
    targets: np.ndarray
    unknown: dict[str, int]
    seen: Seen

    @classmethod
    def of(cls, model: Model, frame: pd.DataFrame) -> Labelled:
        """Score the rows of a frame that all have a target."""
        unknown: dict[str, int] = {}
        features, targets = model.schema.to_features(frame, unknown), model.schema.encode_targets(frame)
        seen = Seen() if model.trained_rows is None else model.trained_rows.count(features, targets)
        return cls(frame, model.score_features(features), targets, unknown, seen)

    @classmethod
    def read(cls, model: Model, data: str | Path, rows: int | None) -> Labelled:
        """Read the labelled rows of a file, or a sample of them, and score them."""
        source, schema = files.Source(data), model.schema
        schema.check(source.names)
        names = [name for name in (*schema.target.columns, *schema.inputs) if name in source.names]
        # The features of a CSV file stay texts, so that they are read in the format of the training data.
        frame = files.read(source, rows, columns=names, texts=schema.inputs)
        return cls.of(model, schema.keep_labelled(frame))


def describe_unknown(schema: Schema, unknown: Mapping[str, int], rows: int) -> list[str]:
    """Return a warning for every column with cells that the model cannot use."""
    columns = {column.name: column for column in schema.columns}
    found = []
    for name, count in unknown.items():
        column = columns[name]
        why = "new categories" if column.kind == "category" else f"not {column.kind}s, or not written as in training"
        if how := column.number_format or column.date_format:
            why += f": {how}"
        found.append(
            f"column {one_line(name, 60)!r}: {count} cells ({count / rows:.1%}) are unknown to the model ({why}) and "
            "count as missing"
        )
    return found


def describe_seen(run: Run, seen: Seen, rows: int, data: str | Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Return how many rows the model was trained on, None if that is not known, and a warning if there are any.

    Runs of older versions do not know their rows, but the hash of their data file.
    """
    trained_rows, good = run.model.trained_rows, "the value is too good: use rows that it was not trained on"
    same = Path(data).is_file() and runs.hash_file(Path(data)) == run.config.get("data_sha256")
    if trained_rows is None:
        return None, [f"this is the file that the model was trained on; {good}"] if same else []
    about = {"rows": round(seen.share * rows), "share": seen.share}
    if not same and not trained_rows.is_suspicious(seen):
        return about, []
    if seen.share == 1:
        return about, [f"these are the rows that the model was trained on; {good}"]
    return about, [f"the model was trained on {about['rows']} of these {rows} rows ({seen.share:.1%}); {good}"]
