"""Box plots of a metric over trials, with the paper's own figure in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from page_tables import SIDES
from papers import TABLES
from verdicts import Results

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "metricgrad",
    "font.size": 8,
    "figure.dpi": 72,
    "font.family": "sans-serif",
}


def draw_boxes(results: Results, name: str, metric: str, file: Path) -> bool:
    """Draw box plots of a metric, a panel for each data set; return whether there was anything to draw."""
    keys = [key for key in results.values if key[0] == name and key[4] == metric and key[1] in SIDES]
    sets = list(dict.fromkeys(key[3] for key in keys))
    if not sets:
        return False
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 1.2 + 1.6 * ((len(sets) + 1) // 2)), layout="constrained")
        panels = figure.subplots((len(sets) + 1) // 2, 2, squeeze=False).ravel()
        for axes, data in zip(panels, sets, strict=False):
            rows = list(dict.fromkeys(key[2] for key in keys if key[3] == data))
            for offset, side, colour in ((-0.2, "published", "#b0b0b0"), (0.2, "corrected", "#4a7ebb")):
                found = [(i, results.trials(name, side, row, data, metric)) for i, row in enumerate(rows)]
                found = [(i, values) for i, values in found if values]
                if found:
                    axes.boxplot(
                        [values for _, values in found],
                        positions=[i + offset for i, _ in found],
                        widths=0.3,
                        patch_artist=True,
                        boxprops={"facecolor": colour},
                        medianprops={"color": "black"},
                        flierprops={"markersize": 2},
                    )
            printed = [TABLES[name].printed.get((row, data, metric), (None, None))[0] for row in rows]
            places = [i for i, value in enumerate(printed) if value is not None]
            axes.plot(places, [printed[i] for i in places], "D", color="#c2491d", markersize=4)
            axes.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
            axes.set_title(f"{data}: {metric}")
        for axes in panels[len(sets) :]:
            axes.set_axis_off()
        figure.savefig(file, metadata={"Date": None})
    return True
