"""What ``imbalance.py`` found: claims, differences, ranks, tables and pictures of docs/imbalance.md.

    python benchmarks/imbalance_results.py [--write]

It reads the committed results and trains nothing; ``--write`` puts the tables into the page and draws the pictures.
The protocol is in ``imbalance.py``. A *method* is a model, a treatment and a rule; a rank is that among the methods
compared, 1 the best.
"""

from __future__ import annotations

import argparse
import math
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from quality import as_markdown, write_tables

RESULTS = Path(__file__).parent / "results" / "imbalance.csv"
PAGE = Path(__file__).parents[1] / "docs" / "imbalance.md"
PICTURES = Path(__file__).parents[1] / "docs" / "imbalance"

BINARY = (
    *("keel/abalone-17_vs_7-8-9-10", "keel/abalone9-18", "keel/abalone19", "keel/car-good", "keel/car-vgood"),
    *("keel/ecoli1", "keel/ecoli2", "keel/ecoli3", "keel/flare-F", "keel/glass-0-1-2-3_vs_4-5-6", "keel/glass6"),
    *("keel/haberman", "keel/kddcup-guess_passwd_vs_satan", "keel/kddcup-buffer_overflow_vs_back"),
    *("keel/kr-vs-k-one_vs_fifteen", "keel/kr-vs-k-three_vs_eleven", "keel/kr-vs-k-zero_vs_eight"),
    *("keel/led7digit-0-2-4-5-6-7-8-9_vs_1", "keel/new-thyroid1", "keel/page-blocks0", "keel/page-blocks-1-3_vs_4"),
    *("keel/poker-8-9_vs_5", "keel/poker-8-9_vs_6", "keel/segment0", "keel/shuttle-2_vs_5", "keel/shuttle-c0-vs-c4"),
    *("keel/vehicle0", "keel/vehicle1", "keel/vehicle3", "keel/vowel0", "keel/winequality-red-4"),
    *("keel/winequality-white-3-9_vs_5", "keel/yeast1", "keel/yeast3", "keel/yeast4", "keel/breast", "keel/german"),
    *("annthyroid", "campaign", "churn", "jm1", "kc1", "optdigits", "ozone_level_8hr", "pendigits", "phoneme"),
    *("satimage-2", "us_crime", "wine_quality", "yeast_me2", "mammography", "adult", "creditcard-subset"),
)
MULTICLASS = (
    *("letter-tail", "satimage-tail", "segment-tail", "vowel-tail", "contraceptive-tail", "splice-tail"),
    "marketing-tail",
)
SETS = (*BINARY, *MULTICLASS)
ORIGINS = {
    **{name: name for name in ("abalone", "car", "ecoli", "glass", "kddcup", "kr-vs-k", "page-blocks", "poker")},
    **{name: name for name in ("shuttle", "vehicle", "winequality", "yeast")},
    "wine_quality": "winequality",
}
"""The origin of tables whose names begin so; any other table is its own."""
SPLITS = 5

NOTHING, SMOTE = "nothing", "SMOTE"
TREATMENTS = (NOTHING, "class weights", "oversampling", "undersampling", SMOTE, "SMOTE-ENN", "ADASYN")
LOGISTIC, XGBOOST, NETWORK = "logistic regression", "xgboost", "network"
TREATED = (LOGISTIC, XGBOOST, NETWORK)
"""Models that are tried with every treatment; the others with none."""
NETWORKS = {
    "cross-entropy": NETWORK,
    "focal": "network, focal",
    "metric": "network, metric",
    "hybrid": "network, hybrid",
}
"""The network with other losses."""
FOREST = "balanced forest"
DECISION_METRICS: dict[str, str] = {
    "F1": "f1",
    "F2": "f2",
    "MCC": "mcc",
    "balanced accuracy": "balanced_accuracy",
    "savings": "savings(fp=1 fn=10)",
}
SCORE_METRICS = ("recall at precision 0.8", "log-loss", "Brier score")
METRICS = (*DECISION_METRICS, *SCORE_METRICS)
LOWER_IS_BETTER = ("log-loss", "Brier score")
FIXED, TUNED, PLUG_IN = "fixed", "tuned", "plug-in"
RULES = (FIXED, TUNED, PLUG_IN)
OF_SCORES = "any"
"""The rule of a metric that has none."""
KEYS = ["set", "split", "model", "treatment"]
COLUMNS = [
    *(*KEYS, "seconds", "untreated"),
    *SCORE_METRICS,
    *(f"{metric}, {rule}" for metric, rule in product(DECISION_METRICS, RULES)),
]
"""Of the results: a line for each model and treatment on a split of a table, a column for each metric and rule."""

Method = tuple[str, str, str]
"""A model, a treatment and a rule."""


# Statistics over tables


def find_origin(name: str) -> str:
    """Return the origin of a table: several tables are made of one set of rows."""
    plain = name.removeprefix("keel/")
    return next((origin for start, origin in ORIGINS.items() if plain.startswith(start)), plain)


def compare_by_signed_ranks(differences: pd.Series, rope: float = 0.01, draws: int = 20_000) -> tuple[float, ...]:
    """Return the probabilities that the median difference is below, within and above the region of equivalence.

    The Bayesian signed-rank test: a Dirichlet process with one pseudo-observation at zero, whose weights are drawn.
    """
    values = np.concatenate([[0.0], differences.to_numpy(float)])
    sums = values[:, None] + values[None, :]
    # The pseudo-observation has the weight of half an observation, as in the paper.
    prior = [0.5, *[1.0] * len(differences)]
    weights = np.random.default_rng(0).dirichlet(prior, draws)
    is_below = (sums < -2 * rope).astype(float)
    is_above = (sums > 2 * rope).astype(float)
    below = np.einsum("di,ij,dj->d", weights, is_below, weights, optimize=True)
    above = np.einsum("di,ij,dj->d", weights, is_above, weights, optimize=True)
    within = 1 - below - above
    largest = np.argmax([below, within, above], 0)
    return tuple(float((largest == place).mean()) for place in range(3))


def find_critical_difference(methods: int, tables: int, level: float = 0.05) -> float:
    """Return how far apart mean ranks must be, by Nemenyi's test."""
    quantile = stats.studentized_range.ppf(1 - level, methods, math.inf) / math.sqrt(2)
    return float(quantile * math.sqrt(methods * (methods + 1) / (6 * tables)))


class Difference(NamedTuple):
    """A mean difference over origins, its 95 % interval, and both tests."""

    mean: float
    low: float
    high: float
    origins: int
    p: float
    below: float
    within: float
    above: float

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f})".replace("-", "−")


class Results:
    """The results of some tables: the mean over their splits, of tables with all splits.

    Attributes
    ----------
    lines : DataFrame
        Columns set, model, treatment, rule, metric and value.
    """

    def __init__(self, path: Path, sets: tuple[str, ...]) -> None:
        table = pd.read_csv(path)
        splits = table.groupby("set").split.nunique()
        is_whole = table["set"].isin(splits[splits == SPLITS].index)
        table = table[is_whole & table["set"].isin(sets)]
        self.table = table
        keys = ["set", "model", "treatment"]
        means = table.groupby(keys, sort=False)[COLUMNS[6:]].mean()
        long = means.reset_index().melt(keys, var_name="measure").dropna(subset=["value"])
        parts = long.measure.str.split(", ", expand=True).reindex(columns=[0, 1])
        self.lines = long.assign(metric=parts[0], rule=parts[1].fillna(OF_SCORES)).drop(columns="measure")

    def read_metric(self, metric: str) -> pd.DataFrame:
        """Return a row for each origin and a column for each method; tables of one origin are averaged."""
        lines = self.lines[self.lines.metric == metric]
        wide = lines.pivot_table(index="set", columns=["model", "treatment", "rule"], values="value")
        return wide.groupby([find_origin(name) for name in wide.index]).mean()

    def compare(self, metric: str, method: Method, reference: Method) -> Difference:
        """Return how far a method is above another."""
        wide = self.read_metric(metric)
        difference = (wide[method] - wide[reference]).dropna()
        error = difference.std(ddof=1) / math.sqrt(len(difference))
        reach = stats.t.ppf(0.975, len(difference) - 1) * error
        mean = difference.mean()
        p = float(stats.wilcoxon(difference).pvalue) if difference.any() else 1.0
        return Difference(mean, mean - reach, mean + reach, len(difference), p, *compare_by_signed_ranks(difference))

    def rank(self, metric: str, methods: list[Method]) -> pd.Series:
        """Return the mean ranks of some methods."""
        wide = self.read_metric(metric)[methods].dropna()
        return wide.rank(axis=1, ascending=metric in LOWER_IS_BETTER).mean()


# Tables


class Claim(NamedTuple):
    """A claim, and the two methods whose difference judges it."""

    words: str
    metric: str
    method: Method
    reference: Method
    nothing_is_gained: bool = False
    """Whether it says that there is no gain: then the probability of a gain stands for the p-value."""


CLAIMS = (
    Claim("F1: threshold tuned, nothing else − SMOTE at 0.5", "F1", (XGBOOST, NOTHING, TUNED), (XGBOOST, SMOTE, FIXED)),
    Claim("F1, threshold tuned: SMOTE − nothing", "F1", (XGBOOST, SMOTE, TUNED), (XGBOOST, NOTHING, TUNED), True),
    Claim("log-loss: SMOTE − nothing", "log-loss", (XGBOOST, SMOTE, OF_SCORES), (XGBOOST, NOTHING, OF_SCORES)),
)


def judge_claims(results: Results) -> pd.DataFrame:
    """Return the claims, with Holm's correction, and what came of them."""
    found = [results.compare(claim.metric, claim.method, claim.reference) for claim in CLAIMS]
    p_values = [one.above if claim.nothing_is_gained else one.p for claim, one in zip(CLAIMS, found, strict=True)]
    corrected = [0.0] * len(found)
    largest = 0.0
    for place, number in enumerate(sorted(range(len(found)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, p_values[number] * (len(found) - place)))
        corrected[number] = largest
    rows = {}
    for claim, one, p in zip(CLAIMS, found, corrected, strict=True):
        is_shown = p < 0.05 and (claim.nothing_is_gained or one.mean > 0)
        says = "at most 0.01" if claim.nothing_is_gained else "above 0"
        probabilities = f"{one.below:.2f}, {one.within:.2f}, {one.above:.2f}"
        row = [says, str(one), f"{p:.4f}", probabilities, "shown" if is_shown else "not shown"]
        rows[claim.words] = row
    columns = ["claimed", "found", "p, Holm", "below, within, above ±0.01", "claim"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def compare_rules(results: Results, names: dict[str, tuple[str, str]], fixed: str = "0.5") -> pd.DataFrame:
    """Return F1 of named models and treatments under every rule, as differences from the first with a tuned rule.

    ``fixed``: what the fixed rule is.
    """
    reference = (*next(iter(names.values())), TUNED)
    reference_mean = results.read_metric("F1")[reference].mean()
    rows = {}
    for words, model_and_treatment in names.items():
        methods = [(*model_and_treatment, rule) for rule in RULES]
        rows[words] = [
            f"{reference_mean:.3f}" if method == reference else str(results.compare("F1", method, reference))
            for method in methods
        ]
    return pd.DataFrame.from_dict(rows, orient="index", columns=[fixed, TUNED, PLUG_IN])


def compare_probabilities(results: Results) -> pd.DataFrame:
    """Return what treatments do to probabilities: differences of log-loss from no treatment, by model."""
    rows = {}
    for treatment in TREATMENTS[1:]:
        cells = []
        for model in TREATED:
            reference = (model, NOTHING, OF_SCORES)
            cells.append(str(results.compare("log-loss", (model, treatment, OF_SCORES), reference)))
        rows[treatment] = cells
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(TREATED))


def list_best_methods(results: Results) -> pd.DataFrame:
    """Return for every metric the method with the best mean rank, and those of three well-known ones."""
    shown = {
        "XGBoost, tuned": (XGBOOST, NOTHING, TUNED),
        "XGBoost, plug-in": (XGBOOST, NOTHING, PLUG_IN),
        "XGBoost, SMOTE, 0.5": (XGBOOST, SMOTE, FIXED),
        "balanced forest, 0.5": (FOREST, NOTHING, FIXED),
    }
    rows = {}
    for metric in METRICS:
        methods = list(results.read_metric(metric).columns)
        ranks = results.rank(metric, methods)
        best = ranks.idxmin()
        of_rule = [part for part in best if part not in (OF_SCORES, NOTHING)]
        origins = len(results.read_metric(metric))
        cells = [f"{', '.join(of_rule)}: {ranks.min():.1f}"]
        for method in shown.values():
            name = method if metric in DECISION_METRICS else (*method[:2], OF_SCORES)
            cells.append(f"{ranks[name]:.1f}")
        rows[metric] = [*cells, f"{find_critical_difference(len(methods), origins):.1f} of {len(methods)}"]
    columns = ["best mean rank", *shown, "critical difference, methods"]
    return pd.DataFrame.from_dict(rows, orient="index", columns=columns)


def make_tables(path: Path = RESULTS) -> dict[str, pd.DataFrame]:
    """Return the tables of the page by their first heading."""
    binary = Results(path, BINARY)
    several = Results(path, MULTICLASS)
    tables = {"imbalance, claims": judge_claims(binary)}
    for model in TREATED:
        treatments = {treatment: (model, treatment) for treatment in TREATMENTS}
        tables[f"{model}, F1"] = compare_rules(binary, treatments)
    trees = {treatment: (XGBOOST, treatment) for treatment in TREATMENTS}
    losses = {words: (network, NOTHING) for words, network in NETWORKS.items()}
    tables["several classes, xgboost, macro-F1"] = compare_rules(several, trees, fixed="argmax")
    tables["log-loss, difference from no treatment"] = compare_probabilities(binary)
    tables["loss of the network, F1"] = compare_rules(binary, losses)
    tables["metric, mean ranks"] = list_best_methods(binary)
    return tables


# Pictures

STYLE = """
svg { --ink: #24292f; --soft: #57606a; --line: #d0d7de; --card: #ffffff; }
svg { --fixed: #b3401a; --tuned: #1a7f37; --plug: #8250df; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9aa4af; --line: #48515c; --card: #14181e; }
  svg { --fixed: #ff9d76; --tuned: #56d364; --plug: #d2a8ff; }
}
text { font: 15px system-ui, sans-serif; fill: var(--ink); } .note { fill: var(--soft); } .bold { font-weight: 700; }
.middle { text-anchor: middle; } .card { fill: var(--card); } .grid { stroke: var(--line); }
.distance { stroke: var(--ink); stroke-width: 3; }
.fixed { fill: var(--fixed); } .tuned, .any { fill: var(--tuned); }
.plug-in { fill: none; stroke: var(--plug); stroke-width: 2.5; }
"""
WIDTH, LEFT, RIGHT, ROW_HEIGHT, TOP = 640, 150, 20, 24, 92


def draw_ranks(results: Results, metric: str) -> str:
    """Return the picture of a metric: the mean rank of every treatment and rule, for each model by itself."""
    rules = RULES if metric in DECISION_METRICS else (OF_SCORES,)
    methods_of_model = len(TREATMENTS) * len(rules)

    def place(rank: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (rank - 1) / (methods_of_model - 1), 1)

    origins = len(results.read_metric(metric))
    distance = find_critical_difference(methods_of_model, origins)
    parts = [
        f'<text class="note middle" x="{place(rank)}" y="{TOP + 5}">{rank}</text>' for rank in (1, methods_of_model)
    ]
    y = TOP
    for model in TREATED:
        parts.append(f'<text class="bold" x="12" y="{y + 5}">{model}</text>')
        y += ROW_HEIGHT
        methods = [(model, treatment, rule) for treatment, rule in product(TREATMENTS, rules)]
        ranks = results.rank(metric, methods)
        for treatment in TREATMENTS:
            parts.append(f'<text x="24" y="{y + 5}">{treatment}</text>')
            parts.append(f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>')
            for rule in rules:
                x = place(ranks[model, treatment, rule])
                parts.append(f'<circle class="{rule}" cx="{x}" cy="{y}" r="6"/>')
            y += ROW_HEIGHT
        y += 8
    title = f"{metric}: mean rank over {origins} origins (left is better)"
    end = round(place(1) + place(1 + distance) - place(1), 1)
    legend = [
        f'<path class="distance" d="M{place(1)} 64H{end}"/>',
        f'<text class="note" x="{end + 8}" y="69">a difference that counts</text>',
    ]
    if len(rules) > 1:
        words = {FIXED: "0.5", TUNED: "tuned threshold", PLUG_IN: "plug-in"}
        for number, (rule, name) in enumerate(words.items()):
            x = LEFT + 6 + 155 * number
            legend.append(f'<circle class="{rule}" cx="{x}" cy="42" r="6"/><text x="{x + 12}" y="47">{name}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" role="img">',
            f"<title>{title}</title>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" width="{WIDTH}" height="{y}" rx="8"/>',
            f'<text class="bold" x="12" y="22">{title}</text>',
            *legend,
            *parts,
            "</svg>\n",
        ]
    )


def find_picture(metric: str) -> Path:
    """Return the file of a metric's picture."""
    return PICTURES / f"{metric.lower().replace(' ', '-')}.svg"


def main() -> None:
    """Print the tables, or write them and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/imbalance.md and its pictures")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    binary = Results(options.results, BINARY)
    several = Results(options.results, MULTICLASS)
    table = pd.concat([binary.table, several.table])
    untreated = table[table.untreated > 0].groupby("treatment").size()
    print(f"{binary.table['set'].nunique()} tables of two classes, {several.table['set'].nunique()} of several")
    print(f"{table.seconds.sum():.0f} CPU s; splits where a treatment could not be applied: {untreated.to_dict()}")
    tables = make_tables(options.results)
    print("\n".join(as_markdown(heading, found) for heading, found in tables.items()))
    if options.write:
        write_tables(tables, PAGE)
        PICTURES.mkdir(exist_ok=True)
        for metric in METRICS:
            find_picture(metric).write_text(draw_ranks(binary, metric))


if __name__ == "__main__":
    main()
