"""Write the pages of results from the files in ``results/`` and nothing else.

    python reproduction/page.py

``README.md`` is the page that people read: what was done, what was found, a verdict on every claim, what to use. A
page per paper in ``pages/`` has every further table, and ``pages/appendix.md`` the commands, the CPU seconds and what
was not run yet. Pictures are SVG files in ``pictures/``.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from advice import advice_section
from box_plots import draw_boxes
from cells import RESULTS, finished, read, results_file
from claims import load_claims
from findings import findings
from forest import detailed_lines, draw_forest, summary_lines
from page_tables import agreement_section, epochs_section, markdown, quirk_section, table_section
from papers import PAPERS, TABLES, Paper
from verdicts import Results, Side, Verdict, listed

PAGE = Path(__file__).parent / "README.md"
INTRODUCTION = """# The papers, reproduced

Five papers on training with the metric itself were run again, as published and with their mistakes corrected. This
page has what we found, a verdict on every claim, and what to use. It is written by `reproduction/page.py` from the
files in `reproduction/results/` and nothing else.

## What we did

* **printed**: what the paper prints.
* **published**: the text of the paper and, where the authors' released code does something else, the code. Which of
  the two made the printed figures is not always known. Each difference is a switch, so that its effect can be shown
  alone.
* **corrected**: decisions on probabilities, AUROC and mAP from scores, losses as defined, stratified splits, rows that
  belong together kept together, copies of a row used once, equal budgets, and thresholds tuned on validation rows,
  never on test rows.

Each trial has initial weights and a split of its own; under `published` the multi-class paper and sigmoidF1 have one
split. Budgets are smaller than the papers'; by how much is said at every table. Nothing was tuned until it agrees with
a paper.
"""
RULES = """A verdict follows from the results by a rule, never by hand. The relation follows from the paper's words, by
a rule that is written down with every quotation in [claims.csv](claims.csv), and not from the results. A difference is
the mean over trials of (row − other row), with equal splits and seeds, and its 95 % t-interval. On one data set

* *strict* ("outperforms", "higher", "best") is **shown** if the whole interval is above 0, **refuted** if it is below;
* *at least* ("similarly or better") is shown if the whole interval is above −margin, refuted if it is below;
* *alike* ("comparable") is shown if the whole interval is within ± margin, refuted if it is outside;
* *in general* is strict in the mean over the data sets;
* *exact* is a theorem or a formula, which holds or not in each case.

Everything else is **open**; one trial has no interval, so it shows nothing. The margin is 0.02 unless a claim says
otherwise. The counts are of data sets, or of cases of a theorem. Many claims are tested at 95 %, so some of what is
shown or refuted on one set alone is chance. The quotations were read against the papers' texts. Most results were known
when the relations were derived from the words, and two were changed after the first verdicts: the cost of compute, from
"alike" to "at least", and the consistency of the soft metric, which is now limited to what the theorem assumes.
"""
CAPTION = (
    "What to see: a claim is shown where the blue line lies right of 0. Where the orange diamond (`published`) is "
    "right of it and the blue line is not, the correction took the effect away; where the ring (printed) is far from "
    "the diamond, their protocol did not give their figure here."
)
Numbered = Sequence[tuple[int, Verdict]]


# ------------------------------------------------------------------------------------------------------- the main page


def main_page(numbered: dict[str, Numbered], results: Results, pictures: Path) -> Iterator[str]:
    """Give the parts of the main page."""
    yield INTRODUCTION
    yield "## What we found\n"
    yield from findings(results)
    yield "## Verdicts\n"
    yield RULES
    yield from count_verdicts(numbered)
    caption = CAPTION
    for paper in PAPERS:
        yield f"### {paper.name}\n"
        yield f"{paper.citation}. Every table: [pages/{paper.page}.md](pages/{paper.page}.md).\n"
        file = pictures / f"verdicts-{paper.page}.svg"
        if draw_forest(summary_lines(numbered[paper.page]), f"{paper.name}: differences behind the verdicts", file):
            yield f"![Forest plot of {paper.name}](pictures/{file.name})\n"
            yield f"{caption}\n"
            caption = "The same marks; one row for each claim below that compares figures."
        yield markdown(
            ["", "claim", "relation", "verdict", "published"], [verdict_row(*v) for v in numbered[paper.page]]
        )
    yield from advice_section(results)
    yield PAGES


PAGES = (
    "## All pages\n\n"
    + "\n".join(f"* [{paper.name}](pages/{paper.page}.md): every table and picture" for paper in PAPERS)
    + "\n* [Appendix](pages/appendix.md): commands, CPU seconds, and what was not run yet\n"
)


def count_verdicts(numbered: dict[str, Numbered]) -> Iterator[str]:
    """Give how many claims have which verdict."""
    everything = [verdict for verdicts in numbered.values() for _, verdict in verdicts]
    for words, ours in (("claims of the papers", False), ("questions of our own", True)):
        outcomes = Counter(verdict.outcome for verdict in everything if verdict.claim.is_ours == ours)
        counts = ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common())
        yield f"Of {outcomes.total()} {words}: {counts}.\n"


def verdict_row(number: int, verdict: Verdict) -> list[str]:
    """Return a line of the table of verdicts."""
    claim, side = verdict.claim, verdict.corrected
    words = "our question" if claim.is_ours else f"“{short_quote(claim.quote)}” ({claim.where})"
    result = f"**{side.outcome}**" + (f": {short_counts(side)}" if side.states else "")
    if verdict.notes and "cut off" in " ".join(verdict.notes):
        result += "; cut off"
    relation = claim.relation + (f", {claim.margin:g}" if claim.margin not in (0, 0.02) else "")
    theirs: str = "–" if verdict.published is None else verdict.published.outcome
    if verdict.published is not None and verdict.published.outcome not in ("open", "not run yet"):
        theirs += f": {short_counts(verdict.published)}"
    if verdict.printed and verdict.refuted_by_their_own.count("printed"):
        theirs += "; printed figures disagree"
    return [str(number), f"{words}: {claim.tested}", relation, result, theirs]


def short_counts(side: Side) -> str:
    """Return the counts of data sets, without the word that the verdict has already."""
    total = len(side.states)
    is_said = len(set(side.states.values())) == 1 and not side.hidden and not side.absent
    counts = f"{total} of {total}" if is_said else side.counts
    has_one_trial = bool(side.differences) and all(d.n < 2 for d in side.differences.values())
    return counts + "; one trial" * has_one_trial


def short_quote(quote: str, most: int = 110) -> str:
    """Return a quotation without marks of formulas, cut at a word if it is long."""
    plain = quote.replace("\\mathcal{H}", "H").replace("\\mathcal{L}_{F1}^{\\sim}", "sigmoidF1")
    for mark, sign in (("\\leq", "≤"), ("\\delta", "δ"), ("\\beta", "β"), ("\\eta", "η"), (" -Score", "-Score")):
        plain = plain.replace(mark, sign)
    plain = plain.replace("{", "").replace("}", "")
    return plain if len(plain) <= most else plain[:most].rpartition(" ")[0] + " …"


# ------------------------------------------------------------------------------------------------------ a page a paper


def paper_page(paper: Paper, numbered: Numbered, results: Results, pictures: Path) -> Iterator[str]:
    """Give the parts of a paper's page: the figures behind its verdicts, its tables, its pictures."""
    yield f"# {paper.name}: every table\n"
    yield f"{paper.citation}. What it comes to: [the papers, reproduced](../README.md).\n"
    yield "## Figures behind the verdicts\n"
    file = pictures / f"details-{paper.page}.svg"
    if draw_forest(detailed_lines(numbered), f"{paper.name}: differences by data set", file):
        yield f"![Forest plot of {paper.name} by data set](../pictures/{file.name})\n"
        yield "What to see: the claims of the main page, a line for each data set, and what it says in brackets.\n"
    yield markdown(["", "tested", "verdict", "figures"], [figure_row(*v) for v in numbered])
    for name, table in paper.tables.items():
        yield from table_section(name, table, results)
    if paper.page == "binary":
        yield from agreement_section(results)
        yield from quirk_section(results)
        yield from epochs_section(results)
    yield from picture_section(paper, results, pictures)


def figure_row(number: int, verdict: Verdict) -> list[str]:
    """Return the figures behind a verdict in one line."""
    parts = [verdict.figures, f"corrected: {listed(verdict.corrected.differences)}"]
    if verdict.published is not None:
        parts.append(f"published: {listed(verdict.published.differences)}")
        if verdict.published.hidden:
            parts.append(
                f"published shows nothing on {', '.join(verdict.published.hidden)}: every label is predicted there"
            )
    if verdict.corrected.overall is not None:
        parts.append(f"corrected, in the mean over sets: {verdict.corrected.overall}")
    if verdict.printed:
        parts.append("printed: " + ", ".join(f"{name} {value:+.3f}" for name, value in verdict.printed.items()))
    parts += [verdict.refuted_by_their_own, *verdict.notes]
    figures = "; ".join(part for part in parts if part and not part.endswith(": "))
    return [str(number), verdict.claim.tested, f"**{verdict.outcome}**", figures]


def picture_section(paper: Paper, results: Results, folder: Path) -> Iterator[str]:
    """Give the pictures of a paper: distributions over trials, and what its scripts draw."""
    captions = paper.merged("CAPTIONS")
    parts = []
    for name, metric in paper.merged("BOX_PLOTS").items():
        if draw_boxes(results, name, metric, folder / f"{name}.svg"):
            parts.append(f"![{metric} in {name}](../pictures/{name}.svg)\n")
            parts.append(
                f"{metric} over trials, `{name}`: published (grey), corrected (blue), and the paper's own figure "
                f"(orange). {captions.get(name, '')}\n"
            )
    for name, draw in paper.merged("PICTURES").items():
        if draw(results, folder / f"{name}.svg"):
            parts.append(f"![{name}](../pictures/{name}.svg)\n")
            parts.append(f"{captions[name]}\n")
    if parts:
        yield "## Pictures\n"
        yield from parts


# --------------------------------------------------------------------------------------------------------- the appendix

RUN = """# Commands, CPU seconds, and what was not run yet

    python reproduction/run.py --table btg-1 --protocol corrected --data FOLDER
    python reproduction/run.py --all --jobs 2
    python reproduction/page.py

The extra `reproduction` has what the scripts need. Without `--data` the data sets are fetched from their official
sources, as far as they can be. Every cell is computed once and kept, so a run may be stopped at any time and goes on
with the same command.
"""


def appendix_page(results: Results, folder: Path) -> Iterator[str]:
    """Give the commands and CPU seconds, and the cells that are still to be run."""
    yield RUN
    yield "## Not run yet\n"
    missing = [line for name in TABLES if (line := missing_line(name, folder)) is not None]
    yield markdown(["table", "cells", "of", "command that goes on"], missing) if missing else "Everything was run.\n"
    yield "## CPU seconds and commands\n"
    lines = [
        [name, f"{results.seconds[name]:,.0f}", commands(name, folder)] for name in TABLES if name in results.seconds
    ]
    lines.append(["all", f"{sum(results.seconds.values()):,.0f}", ""])
    yield markdown(["table", "CPU seconds", "command and versions"], lines)


def missing_line(name: str, folder: Path) -> list[str] | None:
    """Return how many cells of a table are still to be run, and the command; None if there are none."""
    table = TABLES[name]
    done = finished(results_file(name, folder))
    cells = {protocol: set(table.cells(protocol, table.trials)) for protocol in table.protocols}
    missing = {protocol: found - done for protocol, found in cells.items() if found - done}
    if not missing:
        return None
    command = f"`python reproduction/run.py --table {name} --protocol {' '.join(missing)} --data FOLDER`"
    return [name, str(sum(map(len, missing.values()))), str(sum(map(len, cells.values()))), command]


def commands(name: str, folder: Path) -> str:
    """Return the comments of a results file."""
    file = results_file(name, folder)
    return (
        "; ".join(line[2:] for line in file.read_text().splitlines() if line.startswith("# ")) if file.exists() else ""
    )


# -------------------------------------------------------------------------------------------------------------- writing


def number_verdicts(results: Results) -> dict[str, Numbered]:
    """Return the verdicts of every paper, numbered as ``claims.csv`` has them."""
    numbers = {key: number for number, key in enumerate(load_claims(), 1)}
    return {paper.page: [(numbers[v.claim.key], v) for v in paper.verdicts(results)] for paper in PAPERS}


def write_pages(folder: Path = RESULTS, page: Path = PAGE) -> None:
    """Write all pages and their pictures."""
    results = Results.load(folder, [name for name in TABLES if read(results_file(name, folder))])
    pages, pictures = page.parent / "pages", page.parent / "pictures"
    for place in (pages, pictures):
        place.mkdir(parents=True, exist_ok=True)
    numbered = number_verdicts(results)
    write(page, main_page(numbered, results, pictures))
    for paper in PAPERS:
        write(pages / f"{paper.page}.md", paper_page(paper, numbered[paper.page], results, pictures))
    write(pages / "appendix.md", appendix_page(results, folder))


def write(page: Path, parts: Iterator[str]) -> None:
    """Write the parts of a page."""
    page.write_text("\n".join(parts))


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the results")
    parser.add_argument("--page", type=Path, default=PAGE, help="the main page; the others are beside it")
    options = parser.parse_args(arguments)
    write_pages(options.results, options.page)


if __name__ == "__main__":
    main()
