"""What the model looks at: the importance of columns, and how the score depends on the most important ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.number_texts import format_interval, format_value
from metricgrad.comparison.report.column_summaries import GROUPED_KINDS, choose_examples
from metricgrad.comparison.report.markup import make_folded_table, make_table
from metricgrad.comparison.report.page_size import find_frequent
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    import pandas as pd

    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import ShippedModelInputs
    from metricgrad.estimators.columns.column import Column

MOST_COLUMNS = 6
"""The most columns whose dependence is drawn."""
MOST_POINTS = 12
"""The most values of each column at which it is drawn."""
MOST_ROWS = 300
"""The most rows over which it is averaged."""


class Dependence(TypedDict):
    """The mean over rows of the model's scores and predictions if a column had the same value in all of them."""

    column: str
    names: list[str]  # of the values
    numbers: list[float]  # the same; none of categories and dates
    scores: list[list[float]]  # the mean score at each value, of each class drawn
    shares: list[list[float]]  # the share of rows that are predicted as the class


_BODY = f"""<figure>
  <figcaption id="importance-caption"></figcaption>
  <div class="chart" id="importance-chart"></div>
</figure>
{make_folded_table()}
<details class="folded" id="dependence"><summary><h3>What the model makes of them</h3></summary>
<p class="note" id="dependence-note"></p>
<div class="multiples" id="dependence-charts"></div>
</details>"""


class ImportanceSection(Section):
    """Bars of ``payload["importance"]``, and small charts of the dependence."""

    name = "importance"
    title = "What the model looks at"
    drawn = True

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        """Return a ``Dependence`` for each of the most important columns, on rows that were not trained on."""
        columns = {column.name: column for column in model.columns if column.kind in GROUPED_KINDS}
        important = [columns[name] for name in model.important if name in columns][:MOST_COLUMNS]
        rows = np.sort(np.random.default_rng(0).permutation(model.held)[:MOST_ROWS])
        frame = model.table.frame.iloc[rows]
        return {"dependence": [_measure(model, column, frame) for column in important]}

    def body(self, payload: Payload) -> str:
        return _BODY

    def table(self, payload: Payload, details: Details) -> str:
        rows = [
            (one["column"], format_value(one["drop"], "+"), format_interval(one["low"], one["high"], "+"))
            for one in payload.get("importance", ())
        ]
        lost = f"Lost {read_metric_title(payload['metric'])} if shuffled"
        return make_table(self.title, ["Column", lost, "95 % interval"], rows) if rows else ""


def _measure(model: ShippedModelInputs, column: Column, frame: pd.DataFrame) -> Dependence:
    """Return the partial dependence [friedman2001] of scores and predictions on a column."""
    cells = model.table.frame[column.name]
    positions, names, numbers = choose_examples(column, cells, MOST_POINTS)
    counts = model.table.targets.sum(0) if model.goal.task == "multilabel" else np.bincount(model.table.targets)
    classes = [1] if model.goal.task == "binary" else find_frequent(counts.tolist())
    rows = len(frame)
    scores = []
    shares = []
    if len(positions):
        # All values in one call: each call has a cost of its own, whatever the number of rows.
        same = frame.iloc[np.tile(np.arange(rows), len(positions))].reset_index(drop=True)
        same[column.name] = cells.iloc[np.repeat(positions, rows)].set_axis(same.index)
        found = np.asarray(model.score(same))
        decided = np.asarray(model.rule(found)).astype(int)
    for place in range(len(positions)):
        some = found[place * rows : (place + 1) * rows]
        labels = decided[place * rows : (place + 1) * rows]
        scores.append([float((some if some.ndim == 1 else some[:, k]).mean()) for k in classes])
        shares.append([float((labels[:, k] == 1 if labels.ndim == 2 else labels == k).mean()) for k in classes])
    return {
        "column": column.name,
        "names": names,
        "numbers": numbers,
        "scores": np.transpose(scores).tolist(),
        "shares": np.transpose(shares).tolist(),
    }
