"""Tables of the pages: what is printed beside what both protocols give, and how far they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

import binary_soft_sets as binary
from cells import Table
from papers import PAPERS, TABLES
from verdicts import Results

HIDDEN = ("epochs", "met the cap")
SIDES = ("paper", "published", "corrected")


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
    yield f"## {table.title} (`{name}`)\n"
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


def trials_run(name: str, table: Table, results: Results) -> str:
    """Return how many trials there are, beside what the paper ran."""
    counts = [len(found) for key, found in results.values.items() if key[0] == name]
    ran = str(max(counts)) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}, by cell"
    return f"Trials: {ran}" + (f" (the paper: {table.paper_trials})" if table.paper_trials else "") + ".\n"


def cells_of(name: str, results: Results) -> list[tuple[str, str, str]]:
    """Return row, data set and metric of every result under the two protocols themselves."""
    chosen = {table: metrics for paper in PAPERS for table, metrics in paper.merged("SHOWN").items()}
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
