"""Write the page of results, ``README.md``, from the files in ``results/`` and nothing else.

    python reproduction/page.py

Pictures are SVG files in ``pictures/``. Besides ``TABLES`` and ``verdicts(results)`` a paper's script may have

* ``SHOWN``: by table, the metrics that are shown, of a table that has more;
* ``BOX_PLOTS``: by table, the metric whose distribution over trials is drawn;
* ``PICTURES``: by name, what draws a file from the results, ``draw(results, file) -> bool``;
* ``draw(folder)`` and ``draw_results(results, folder)``, which return the files that they drew.
"""

from __future__ import annotations

import argparse
import inspect
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import matplotlib as mpl

import binary_soft_sets as binary
import multiclass_f_beta as fbeta
import multilabel
from cells import RESULTS, Table, read, results_file
from papers import PAPERS, TABLES
from training import DEFAULT
from verdicts import NOT_RUN, Results, Verdict

PAGE = Path(__file__).parent / "README.md"
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "metricgrad",
    "font.size": 8,
    "figure.dpi": 72,
    "font.family": "sans-serif",
}
HIDDEN = ("epochs", "met the cap")
SIDES = ("paper", "published", "corrected")

INTRODUCTION = """# The papers, reproduced

This page shows, side by side, what five papers print, what their protocol gives in our hands, and what a fair protocol
gives. It is written by `reproduction/page.py` from the files in `reproduction/results/` and nothing else.

* **published**: the text of the paper and, where the authors' released code does something else, the code.
  Which of the two made the printed figures is not always known. Each difference is a switch in the script, so
  that its effect can be shown alone.
* **corrected**: decisions on probabilities, AUROC and mAP from scores, losses as defined, stratified splits, rows that
  belong together kept together (the pairs of a frame of cocktailparty), copies of a row used once (3,329 of the 11,183
  rows of mammography are the same; 7,848 are distinct, 253 of them positive), equal budgets, and thresholds tuned on
  validation rows, never on test rows.

Figures are means ± standard deviations over trials. Each trial has initial weights and a split of its own; under
`published` the multi-class paper and sigmoidF1 have one split. Nothing was tuned until it agrees with a paper. An empty
cell (–) was not run; the line below its table says why, or that it is still to be run.

    python reproduction/run.py --table btg-1 --protocol corrected --data FOLDER
    python reproduction/run.py --all --jobs 2
    python reproduction/page.py

Without `--data` the data sets are fetched from their official sources, as far as they can be. Every cell is computed
once and kept, so a run may be stopped at any time.
"""

RULES = """A verdict follows from the results by a rule, never by hand. A difference is the mean over trials of
(row − other row), with equal splits and seeds, and its 95 % t-interval. "At least as good" holds unless the whole
interval is below 0, "better" if the whole interval is above 0, "alike" if the difference is at most a stated margin;
with one trial a difference up to the margin (0.02) counts as none, and the verdict is provisional. This rule for one
trial was written after the first trials were seen: their signs alone had decided before. A claim holds if it does so on
every data set under `corrected`; it holds only under their protocol if it does so under `published` alone. Where it
does not hold, the reason names the sets whose whole interval speaks against it ("fails on") apart from those where the
trials leave it open ("not shown, nor refuted"); with none of the first kind the verdict adds "not refuted". Few trials
make wide intervals, with which "at least as good" holds easily; so where it holds, the verdict says where the row is
clearly better and where worse by more than the margin is not ruled out. The list of claims was compared with the
papers' texts again when most results were known: claims were added and split then, and no relation was changed.
"""
ADVICE = """Means over trials on test rows under `corrected`, and their mean over the sets; "tuned" rules come from
validation rows. "Clearly" better or worse than tuned cross-entropy: the whole 95 % interval of the paired difference
is on one side of 0. Our estimators average five models, each trained without a fifth of the training and validation
rows: five times the training of the other rows, which are one network (of several labels the best of six).
"""


# -------------------------------------------------------------------------------------------------------------- numbers


def shown(mean: float | None, sd: float | None) -> str:
    """Return a figure as text: "0.750 ± 0.010", or a dash."""
    if mean is None:
        return "–"
    digits = 3 if abs(mean) < 10 else 1 if abs(mean) < 1000 else 0
    return f"{mean:.{digits}f}" + (f" ± {sd:.{digits}f}" if sd is not None else "")


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines) + "\n"


# --------------------------------------------------------------------------------------------------------------- tables


def table_section(name: str, table: Table, results: Results) -> Iterator[str]:
    """Give a table's part of the page: for each data set the paper's figures, published and corrected side by side."""
    yield f"### {table.title} (`{name}`)\n"
    if table.reduced:
        yield f"Reduced: {table.reduced.rstrip('.')}.\n"
    sets = dict.fromkeys(data for _, data, _ in [*table.printed, *cells_of(name, results)])
    if not any(key[0] == name for key in results.values):
        yield "Not run yet.\n"
        return
    yield trials_run(name, table, results)
    for data in sets:
        yield f"**{data}**\n"
        yield side_by_side(name, table, data, results)
    yield f"CPU seconds: {results.seconds.get(name, 0.0):,.0f}.\n"


def trials_run(name: str, table: Table, results: Results) -> str:
    """Return how many trials there are, beside what the paper ran."""
    counts = [len(found) for key, found in results.values.items() if key[0] == name]
    ran = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}, by cell"
    return f"Trials: {ran}" + (f" (the paper: {table.paper_trials})" if table.paper_trials else "") + ".\n"


def cells_of(name: str, results: Results) -> list[tuple[str, str, str]]:
    """Return row, data set and metric of every result under the two protocols themselves."""
    chosen = {table: metrics for paper in PAPERS for table, metrics in getattr(paper, "SHOWN", {}).items()}
    hidden = tuple(f"({variant})" for variant in binary.JUDGED)
    return [
        (row, data, metric)
        for table, protocol, row, data, metric in results.values
        if table == name and protocol in SIDES and metric in chosen.get(name, (metric,))
        if metric not in HIDDEN and not metric.endswith(hidden)
    ]


def side_by_side(name: str, table: Table, data: str, results: Results) -> str:
    """Return the table of a data set; columns without any figure are left out."""
    keys = [key for key in [*table.printed, *cells_of(name, results)] if key[1] == data]
    rows, metrics = dict.fromkeys(row for row, _, _ in keys), dict.fromkeys(metric for _, _, metric in keys)

    def figure(side: str, row: str, metric: str) -> str:
        if side == "paper":
            return shown(*table.printed.get((row, data, metric), (None, None)))
        key = (name, side, row, data, metric)
        return shown(results.mean(*key), results.sd(*key))

    columns = [(metric, side) for metric in metrics for side in SIDES]
    columns = [(m, side) for m, side in columns if any(figure(side, row, m) != "–" for row in rows)]
    lines = [[row, *(figure(side, row, metric) for metric, side in columns)] for row in rows]
    return markdown(["", *(f"{metric}, {side}" for metric, side in columns)], lines)


# ------------------------------------------------------------------------------------------------------------- verdicts


def verdict_section(results: Results) -> Iterator[str]:
    """Give the verdicts of all papers."""
    yield "## Verdicts\n"
    yield RULES
    found = {title_of(paper): paper.verdicts(results) for paper in PAPERS}
    everything = [verdict for verdicts in found.values() for verdict in verdicts]
    ours = [verdict for verdict in everything if verdict.claim.startswith("our question")]
    theirs = [verdict for verdict in everything if verdict not in ours]
    for title, verdicts in (("claims of the papers", theirs), ("questions of our own", ours)):
        counts = Counter(verdict.outcome for verdict in verdicts)
        listed = ", ".join(f"{outcome} {count}" for outcome, count in counts.most_common())
        undecided = sum(verdict.undecided for verdict in verdicts)
        yield f"Of {len(verdicts)} {title}: {listed}; {undecided} that do not hold are not refuted either.\n"
    for title, verdicts in found.items():
        yield f"**{title}**\n"
        lines = [[v.claim, f"**{v.outcome}**" + " (not refuted)" * v.undecided, explained(v)] for v in verdicts]
        yield markdown(["claim", "verdict", "figures"], lines)


def explained(verdict: Verdict) -> str:
    """Return the figures of a verdict and its reason."""
    word = "It is" if verdict.outcome == "holds" else "Reason:"
    return verdict.figures + (f". {word} {verdict.reason}" if verdict.reason not in ("", NOT_RUN) else "")


def title_of(paper: ModuleType) -> str:
    """Return the first line of a script's description: the paper."""
    return (inspect.getdoc(paper) or paper.__name__).splitlines()[0].rstrip(".")


# ---------------------------------------------------------------------------------------------------------- what to use


@dataclass(frozen=True)
class Question:
    """What to use for a kind of problem: its contenders, each a row and a metric of a table; the second is the peer."""

    title: str
    table: str
    sets: Sequence[str]
    contenders: dict[str, tuple[str, str]]


QUESTIONS = (
    Question(
        "One label: F1",
        "btg-1",
        binary.SETS,
        {
            "cross-entropy at 0.5": ("BCE", "f1"),
            "cross-entropy, tuned": ("BCE", "f1 tuned"),
            "soft F1 at 0.5": ("F1", "f1"),
            "soft F1, tuned": ("F1", "f1 tuned"),
            "MetricClassifier()": (DEFAULT, "f1 tuned"),
            "MetricBoostingClassifier()": ("MetricBoostingClassifier", "f1 tuned"),
        },
    ),
    Question(
        "Several labels: weighted F1, the best of six settings of every loss (of cross-entropy: weights of positives)",
        "sigmoidf1-3",
        multilabel.DATA,
        {
            "cross-entropy at 0.5": ("BCE", "weighted f1 @0.5"),
            "cross-entropy, tuned": ("BCE", "weighted f1 @tuned"),
            "focal, tuned": ("focal", "weighted f1 @tuned"),
            "ASL, tuned": ("ASL", "weighted f1 @tuned"),
            "sigmoidF1 at 0.5": ("sigmoidF1", "weighted f1 @0.5"),
            "sigmoidF1, tuned": ("sigmoidF1", "weighted f1 @tuned"),
            "MFoM at 0.5": ("MFoM", "weighted f1 @0.5"),
            "MFoM, tuned": ("MFoM", "weighted f1 @tuned"),
            "MetricClassifier()": (DEFAULT, "weighted f1 @tuned"),
        },
    ),
    Question(
        "Several classes: macro F1",
        "fbeta-beyond",
        fbeta.BEYOND_DATA,
        {
            "cross-entropy, argmax": ("CE", "f1"),
            "cross-entropy, tuned": ("CE, tuned", "f1"),
            "soft F1, argmax": ("F_1", "f1"),
            "MetricClassifier()": (DEFAULT, "f1"),
        },
    ),
)


def advice_section(results: Results) -> Iterator[str]:
    """Give what, on this evidence, to use for each kind of problem."""
    yield "## What should I use?\n"
    yield ADVICE
    for question in QUESTIONS:
        yield f"**{question.title}**\n"
        yield from answer(question, results)


def answer(question: Question, results: Results) -> Iterator[str]:
    """Give the table of a question, best first, and the sentences that follow from it."""
    keys = {name: (question.table, "corrected", *found) for name, found in question.contenders.items()}
    means = {
        name: [results.mean(table, protocol, row, data, metric) for data in question.sets]
        for name, (table, protocol, row, metric) in keys.items()
    }
    known = {name: [value for value in values if value is not None] for name, values in means.items()}
    full = {name: fmean(values) for name, values in known.items() if len(values) == len(question.sets)}
    default, peer = list(question.contenders)[:2]
    if not {default, peer} <= full.keys():
        yield "Not run yet.\n"
        return
    order = sorted(full, key=lambda name: -full[name])
    lines = []
    for name in order:
        (table, protocol, row, metric), (*_, other, other_metric) = keys[name], keys[peer]
        pairs = {d: results.difference(table, protocol, row, other, d, metric, other_metric) for d in question.sets}
        clearly = {
            "better on": [data for data, d in pairs.items() if d is not None and d.low > 0],
            "worse on": [data for data, d in pairs.items() if d is not None and d.high < 0],
        }
        words = "; ".join(f"{word} {', '.join(sets)}" for word, sets in clearly.items() if sets)
        difference = "" if name == peer else f"{full[name] - full[peer]:+.3f}"
        lines.append([name, *(shown(value, None) for value in means[name]), f"{full[name]:.3f}", difference, words])
    yield markdown(["", *question.sets, "mean", f"− {peer}", "clearly"], lines)
    yield (
        f"Tuning the rule of cross-entropy on validation rows changes its mean by {full[peer] - full[default]:+.3f}; "
        f"best on average here: {order[0]}.\n"
    )


# ------------------------------------------------------------------------------------------------------------ agreement

AGREEMENT = ("btg-1", "btg-3", "btg-4", "btg-6")


def agreement_section(results: Results) -> Iterator[str]:
    """Give the share of cells within the paper's ±, and by how much the others differ, with the likeliest reason."""
    yield "## How many cells agree with the binary paper?\n"
    inside, outside, empty = dict.fromkeys(AGREEMENT, 0), [], 0
    for name in AGREEMENT:
        for (row, data, metric), (mean, sd) in TABLES[name].printed.items():
            if data not in binary.COMPARABLE or sd is None:
                continue
            ours = results.mean(name, "published", row, data, metric)
            if ours is None:
                empty += 1
                continue
            if within(ours, mean, sd):
                inside[name] += 1
            else:
                reason = likeliest_reason(results, name, row, data, metric, mean, ours)
                outside.append([name, data, row, metric, shown(mean, sd), f"{ours:.3f}", f"{ours - mean:+.3f}", reason])
    agreeing = sum(inside.values())
    count = agreeing + len(outside)
    if not count:
        yield "Not run yet.\n"
        return
    yield (
        f"Under `published`, {agreeing} of {count} cells ({agreeing / count:.0%}) of Tables 1, 3, 4 and 6 on "
        "mammography, adult and cocktailparty lie within the paper's ± (a half of the last printed digit is added); "
        f"{empty} were not run. Rows that Table 4 repeats from Table 1 count once.\n"
    )
    totals = {name: inside[name] + sum(line[0] == name for line in outside) for name in AGREEMENT}
    yield "By table: " + ", ".join(f"`{name}` {inside[name]} of {totals[name]}" for name in AGREEMENT) + ".\n"
    yield unscaled_sentence(results)
    for data, why in binary.OTHER_DATA.items():
        yield f"The data of {data} are of another release than the paper's: {why}.\n"
    yield "The cells that differ, with the switch that brings the figure nearest to the paper's, if one does:\n"
    yield markdown(["table", "data", "row", "metric", "paper", "published", "difference", "likeliest reason"], outside)


def within(value: float, mean: float, sd: float) -> bool:
    """Return whether a value is within a printed mean ± sd; half of the last of its two digits more is still within."""
    return abs(value - mean) <= sd + 0.005


def unscaled_sentence(results: Results) -> str:
    """Return how many cells agree with unscaled features, of those that were run so, by data set."""
    protocols = ("published", f"published, {binary.UNSCALED}")
    found: dict[str, list[list[bool]]] = {}
    for name in AGREEMENT:
        for (row, data, metric), (mean, sd) in TABLES[name].printed.items():
            pair = [results.mean(name, protocol, row, data, metric) for protocol in protocols]
            if data in binary.COMPARABLE and sd is not None and None not in pair:
                found.setdefault(data, []).append([v is not None and within(v, mean, sd) for v in pair])
    listed = [
        f"{data} {sum(b for _, b in pairs)} of {len(pairs)} ({sum(a for a, _ in pairs)})"
        for data, pairs in found.items()
    ]
    if not listed:
        return ""
    return (
        "The text says that features were scaled. Of the rows that were also run with features as they come, so many "
        f"cells agree then (and under `published`): {', '.join(listed)}. This was tried after the figures of adult had "
        "been compared with the paper's, on one trial, and so was scaling to [0, 1], which leaves BCE far from them.\n"
    )


def likeliest_reason(results: Results, name: str, row: str, data: str, metric: str, paper: float, ours: float) -> str:
    """Return the switch that brings a figure nearest to the paper's, if one brings it at least halfway."""
    options = {
        f"{variant} (evaluation)": results.mean(name, "published", row, data, f"{metric} ({variant})")
        for variant in binary.JUDGED
    }
    for variant in binary.VARIANTS:
        options[variant] = results.mean(name, f"published, {variant}", row, data, metric)
    found = {variant: abs(value - paper) for variant, value in options.items() if value is not None}
    best = min(found, key=lambda variant: found[variant], default=None)
    if best is not None and found[best] <= abs(ours - paper) / 2:
        return f"with “{best}” the figure is {options[best]:.3f}"
    if row == "AP-Perf":
        return "fewer epochs and trials than in the paper"
    if (results.mean(name, "published", row, data, "met the cap") or 0.0) > 0.5:
        return "most runs met the cap of epochs"
    if data in binary.OTHER_DATA:
        return "no switch explains it; another release of the data"
    direction = "higher" if ours > paper else "lower"
    return f"none of the switches explains it; ours is {direction} (other initial weights, splits or library versions)"


# --------------------------------------------------------------------------------------------------------------- quirks


def quirk_section(results: Results) -> Iterator[str]:
    """Give the effect of each quirk of the binary paper alone."""
    yield "## The binary paper's quirks, one at a time\n"
    yield (
        "Table 1 under `published`, and with one switch turned: a quirk off, or the features unscaled, which the text "
        "rules out but the figures of adult suggest; – where the switch does not touch the row.\n"
    )
    for data in binary.COMPARABLE:
        rows = []
        for row in binary.TABLE_1:
            for metric in binary.METRICS:
                plain = results.mean("btg-1", "published", row, data, metric)
                if plain is None:
                    continue
                as_scored_batch = [
                    results.mean("btg-1", "published", row, data, f"{metric} ({variant})") for variant in binary.JUDGED
                ]
                trained = [
                    results.mean("btg-1", f"published, {variant}", row, data, metric) for variant in binary.VARIANTS
                ]
                fair = results.mean("btg-1", "corrected", row, data, metric)
                rows.append([row, metric, *(shown(v, None) for v in (plain, *as_scored_batch, *trained, fair))])
        if rows:
            yield f"**{data}**\n"
            yield markdown(["row", "metric", "published", *binary.JUDGED, *binary.VARIANTS, "corrected"], rows)


def epochs_section(results: Results) -> Iterator[str]:
    """Give the share of runs that met the cap of epochs."""
    keys = [key for key in results.values if key[4] == "met the cap"]
    if not keys:
        return
    yield "## Runs that met the cap of epochs\n"
    lines = []
    for table in dict.fromkeys(key[0] for key in keys):
        sets = dict.fromkeys(key[3] for key in keys if key[0] == table)
        for data in sets:
            values = [v for key in keys if key[0] == table and key[3] == data for v in results.values[key].values()]
            lines.append([table, data, f"{fmean(values):.0%}", str(len(values))])
    yield markdown(["table", "data", "share", "runs"], lines)


# ------------------------------------------------------------------------------------------------------------- pictures


def picture_section(results: Results, folder: Path) -> Iterator[str]:
    """Give the pictures: distributions over trials, and what the scripts draw."""
    folder.mkdir(parents=True, exist_ok=True)
    yield "## Pictures\n"
    for paper in PAPERS:
        for name, metric in getattr(paper, "BOX_PLOTS", {}).items():
            if draw_boxes(results, name, metric, folder / f"{name}.svg"):
                yield f"Distribution of {metric} over trials, `{name}`, published (grey) and corrected (blue):\n"
                yield f"![{metric} in {name}]({folder.name}/{name}.svg)\n"
        files = [
            folder / f"{name}.svg"
            for name, draw in getattr(paper, "PICTURES", {}).items()
            if draw(results, folder / f"{name}.svg")
        ]
        if hasattr(paper, "draw"):
            files += paper.draw(folder)
        if hasattr(paper, "draw_results"):
            files += paper.draw_results(results, folder)
        for file in files:
            yield f"![{file.stem}]({folder.name}/{file.name})\n"


def draw_boxes(results: Results, name: str, metric: str, file: Path) -> bool:
    """Draw box plots of a metric, a panel for each data set; return whether there was anything to draw."""
    from matplotlib.figure import Figure

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
            axes.set_xticks(range(len(rows)), rows, rotation=30, ha="right")
            axes.set_title(f"{data}: {metric}")
        for axes in panels[len(sets) :]:
            axes.set_axis_off()
        figure.savefig(file, metadata={"Date": None})
    return True


# ------------------------------------------------------------------------------------------------------------- the page


def cost_section(results: Results, folder: Path) -> Iterator[str]:
    """Give the CPU seconds and the commands."""
    yield "## CPU seconds and commands\n"
    lines = [
        [name, f"{results.seconds[name]:,.0f}", commands(name, folder)] for name in TABLES if name in results.seconds
    ]
    lines.append(["all", f"{sum(results.seconds.values()):,.0f}", ""])
    yield markdown(["table", "CPU seconds", "command and versions"], lines)


def commands(name: str, folder: Path) -> str:
    """Return the comments of a results file."""
    file = results_file(name, folder)
    return (
        "; ".join(line[2:] for line in file.read_text().splitlines() if line.startswith("# ")) if file.exists() else ""
    )


def write_page(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Write the page and its pictures."""
    results = Results.load(folder, [name for name in TABLES if read(results_file(name, folder))])
    parts = [INTRODUCTION, *verdict_section(results), *advice_section(results), *agreement_section(results)]
    for paper in PAPERS:
        parts.append(f"## {title_of(paper)}\n")
        for name, table in paper.TABLES.items():
            parts += table_section(name, table, results)
    parts += [*quirk_section(results), *epochs_section(results)]
    parts += [*picture_section(results, page.parent / "pictures"), *cost_section(results, folder)]
    page.write_text("\n".join([parts[0], *contents(parts), *parts[1:]]))


def contents(parts: Sequence[str]) -> Iterator[str]:
    """Give the table of contents: a link to every part of the page."""
    titles = [part[3:].strip() for part in parts if part.startswith("## ")]
    anchors = ["".join(c for c in title.lower().replace(" ", "-") if c.isalnum() or c in "-_") for title in titles]
    yield "".join(f"* [{title}](#{anchor})\n" for title, anchor in zip(titles, anchors, strict=True))


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="the file to write")
    options = parser.parse_args(arguments)
    write_page(options.results, options.page)


if __name__ == "__main__":
    main()
