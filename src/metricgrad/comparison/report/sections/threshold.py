"""The threshold: the metric, precision and recall at every threshold of a class, and the counts behind them.

What it measures is also what the curves and the histograms of the scores are drawn from.
"""

from __future__ import annotations

from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.comparison.plateaus import Ends, list_plateaus
from metricgrad.comparison.report.histograms import BinnedScores, bin_scores
from metricgrad.comparison.report.markup import make_folded_table
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions


class ClassCurve(BinnedScores):
    """The counts of one class: of the positive one (binary), or of each."""

    name: str
    # The one of the shipped model; of other contenders the tuned one, the median over the splits. None where none
    # decides (largest score).
    threshold: float | None
    ships: bool  # whether it is that of the shipped model
    plateau: Ends | None  # the thresholds around it that are hardly worse, on the rows that it was tuned on
    tabulated: dict[str, list[float]]  # the values, at the thresholds, of metrics that the page cannot compute


_BODY = f"""<p class="note" id="threshold-note"></p>
<div class="explorer">
  <figure>
    <figcaption id="threshold-caption"></figcaption>
    <div class="chart" id="threshold-chart"></div>
    <div class="slider">
      <label for="threshold-slider">Threshold: score at least
        <output id="threshold-value" for="threshold-slider"></output></label>
      <input type="range" id="threshold-slider" step="any">
      <div class="tools" role="group" aria-label="Move the threshold">
        <button type="button" id="go-tuned">Tuned</button>
        <button type="button" id="go-half">0.5</button>
        <button type="button" id="go-best">Best on these rows</button>
      </div>
    </div>
  </figure>
  <div class="readout">
    <div id="matrix"></div>
    <dl id="values" class="values"></dl>
    <p class="note">“Best on these rows” is chosen on the same rows on which it is measured, so its value is
    optimistic.</p>
  </div>
</div>
{make_folded_table()}"""


TOTAL_COST = "total cost"
"""The name of the cost of all test rows at each threshold, among a curve's values, where costs differ by row."""


class ThresholdSection(Section):
    """A chart with a threshold that the reader moves."""

    name = "threshold"
    title = "Choosing the threshold"
    drawn = True
    tasks = ("binary", "multilabel")  # one of several classes is not decided by thresholds
    # Counts are those at exactly these thresholds, and the model is described as elsewhere: none of them is rounded.
    exact = frozenset(
        {"grid", "threshold", "thresholds", "plateau", "plateaus", "offsets", "value_there", "steps", "steps_of_class"}
    )
    sizes = ((1, 101), (2, 51), (4, 25))
    size_note = "Curves are drawn from {} thresholds each."

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return a ``ClassCurve`` per class."""
        every_class = range(len(predictions.table.names))
        classes = [1] if predictions.goal.task == "binary" else every_class
        return {"classes": [_measure_class(predictions, k) for k in classes]}

    def keep_classes(self, details: Details, kept: Sequence[int], total: int) -> None:
        if len(details["classes"]) == total:
            details["classes"] = [details["classes"][k] for k in kept]

    def shrink(self, details: Details, size: int) -> None:
        details["classes"] = [_thin_out(curve, size) for curve in details["classes"]]

    def body(self, payload: Payload) -> str:
        wish = payload["metric"]["subject_to"]
        among = f", among thresholds that meet {escape(wish)} there" if wish else ""
        return _BODY.replace("is measured, so", f"is measured{among}, so")


def _measure_class(predictions: Predictions, k: int) -> ClassCurve:
    """Return the counts of class k."""
    place = 0 if predictions.goal.task == "binary" else k  # a binary problem has one threshold, that of class 1
    if predictions.shipped is not None:
        threshold = predictions.shipped.threshold_of(place)
        plateau = predictions.shipped_plateaus[place]
    else:
        threshold, plateau = _take_medians(predictions, place)
    scores = predictions.scores
    truth = predictions.targets
    if scores.ndim == 2:
        scores = scores[:, k]
        truth = truth == k if truth.ndim == 1 else truth[:, k]
    found = bin_scores(scores, truth.astype(np.int64), include=[threshold])
    return {
        **found,
        "name": predictions.table.names[k],
        "threshold": threshold,
        "ships": predictions.shipped is not None and threshold is not None,
        "plateau": plateau,
        "tabulated": _tabulate_costs(predictions, found["grid"]),
    }


def _tabulate_costs(predictions: Predictions, grid: Sequence[float]) -> dict[str, list[float]]:
    """Return the savings and the total cost at each threshold, where costs differ by row."""
    costs = predictions.costs
    if costs is None:
        return {}
    y = np.asarray(predictions.targets)
    order = np.argsort(predictions.scores, kind="stable")
    below = np.searchsorted(np.asarray(predictions.scores)[order], grid, side="left")  # rows that are not predicted
    if_none, if_all = (np.asarray(costs.of_rows(y, np.full_like(y, k)))[order] for k in (0, 1))
    not_predicted = np.concatenate(([0.0], np.cumsum(if_none)))[below]
    predicted = if_all.sum() - np.concatenate(([0.0], np.cumsum(if_all)))[below]
    total = not_predicted + predicted
    perfect = costs.total(y, y)
    avoidable = min(costs.alike(y)) - perfect
    savings = 1 - (total - perfect) / avoidable if avoidable > 0 else np.zeros_like(total)
    return {predictions.goal.metric: savings.tolist(), TOTAL_COST: total.tolist()}


def _take_medians(predictions: Predictions, place: int) -> tuple[float | None, Ends | None]:
    """Return the median over the splits of a threshold, and of the ends of its plateau if every split has one."""
    of_rules = [rule.threshold_of(place) for rule in predictions.rules]
    thresholds = [threshold for threshold in of_rules if threshold is not None]
    plateaus = [list_plateaus(plateau, place + 1)[place] for plateau in predictions.plateaus]
    known = [plateau for plateau in plateaus if plateau is not None]
    if not thresholds:
        return None, None
    if len(known) < len(thresholds):  # the band of some splits need not be around the threshold of all
        return median(thresholds), None
    return median(thresholds), (median(low for low, _ in known), median(high for _, high in known))


def _thin_out(curve: ClassCurve, number: int) -> ClassCurve:
    """Keep thresholds at even steps, the first and the last, and those that a reader asks for."""
    grid = curve["grid"]
    last = len(grid) - 1
    places = set(range(last + 1))
    if last >= number:
        places = {round(i * last / (number - 1)) for i in range(number)}
    places |= {i for i, threshold in enumerate(grid) if threshold in (0.5, curve["threshold"])}
    kept = sorted(places)
    return {
        **curve,
        "grid": [grid[i] for i in kept],
        "tp": [curve["tp"][i] for i in kept],
        "fp": [curve["fp"][i] for i in kept],
        "tabulated": {name: [values[i] for i in kept] for name, values in curve["tabulated"].items()},
    }
