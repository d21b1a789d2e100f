"""Write docs/reference/: a page for each kind of public name, made from ``__init__.pyi`` and the docstrings.

What the tables say about ranges and empty classes is computed with the functions themselves.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import links
import torch

import metricgrad as mg
from metricgrad import public_names
from metricgrad.core.metrics.signatures import of_counts, of_matrix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

# Page: its title, and what it holds: public modules, and rooms of which public names come.
PAGES = {
    "losses": ("Losses", ["losses"]),
    "decisions": ("Decision rules", ["decisions"]),
    "evaluation": ("Evaluation, curves and plots", ["evaluation", "curves", "plots"]),
    "estimators": ("Estimators and their files", ["estimators", "storage"]),
    "application": ("Comparison: the application, from Python", ["comparison"]),
    "metrics": ("Metrics, counts and costs", ["metrics", "core"]),
    "surrogates": ("Surrogates", ["surrogates"]),
    "presets": ("Presets: the published methods", ["presets"]),
    "baselines": ("Baselines", ["baselines"]),
    "boosting": ("Boosting", ["boosting"]),
    "data": ("Data, samplers and checkpoints", ["samplers", "training"]),
    "keras": ("Keras", ["keras"]),
}
# The losses by what they are for. A new loss needs its place here.
LOSSES = {
    "Start here": ("MetricLoss", "HybridLoss"),
    "Ranking, and thresholds set by the batch": (
        *(
            "AUROCLoss",
            "WMWLoss",
            "RecallAtPrecisionLoss",
            "RecallAtFPRLoss",
            "PrecisionAtKLoss",
            "PRBEPLoss",
            "EERLoss",
        ),
    ),
    "One metric subject to others": ("ConstrainedLoss",),
    "Over whole labellings": ("StructuredHingeLoss", "AdversarialLoss"),
    "Batches larger than memory, counts over several steps": ("exact_backward", "RunningLoss"),
}
# The names that most people need, by task.
TASKS = {
    "train on a metric": ("MetricLoss", "HybridLoss"),
    "train a ranking": ("AUROCLoss", "RecallAtPrecisionLoss"),
    "train under a constraint": ("ConstrainedLoss",),
    "decide": ("tune_threshold", "Cost", "estimate_prevalence"),
    "evaluate": ("evaluate", "Evaluator", "bootstrap", "compare_paired"),
    "fit and predict": (
        *("MetricClassifier", "MetricEnsembleClassifier", "MetricBoostingClassifier", "ThresholdedClassifier"),
    ),
    "compare on a table": ("compare", "load_run"),
}
Row = tuple[str, ...]


def contents() -> dict[str, dict[str, list[str]]]:
    """Return for each page its rooms, each with dotted names as a user writes them after ``metricgrad.``.

    A name of a room that no page has is a ``KeyError``: give it a place in ``PAGES``.
    """
    found: dict[str, dict[str, list[str]]] = {page: {} for page in PAGES}
    page_of = {room: page for page, (_, rooms) in PAGES.items() for room in rooms}
    for name, home in public_names.homes().items():
        value = getattr(mg, name)
        if isinstance(value, ModuleType):
            names = [f"{name}.{inner}" for inner in sorted(value.__all__, key=str.lower) if inner != "Metric"]
            found[page_of[name]].setdefault(name, []).extend(names)
        else:
            room = home.module.split(".")[1]
            found[page_of[room]].setdefault(room, []).append(name)
    found["losses"] = _group_losses(found["losses"]["losses"])
    # What has two addresses is described at the shorter one.
    for rooms in found.values():
        for room, names in rooms.items():
            short = [_of(name) for names in rooms.values() for name in names if "." not in name]
            rooms[room] = [name for name in names if "." not in name or not any(_of(name) is one for one in short)]
    return {page: rooms for page, rooms in found.items() if rooms}


def _group_losses(names: list[str]) -> dict[str, list[str]]:
    """Return the losses by what they are for."""
    known = [name for group in LOSSES.values() for name in group]
    if missing := sorted(set(names) ^ set(known)):
        raise KeyError(f"LOSSES: expected every loss once, differs in {missing}")
    return {title: list(group) for title, group in LOSSES.items()}


def write(docs: Path) -> None:
    """Write the pages."""
    for name, home in public_names.homes().items():
        if isinstance(getattr(mg, name), ModuleType) and home.module != "metricgrad":
            sys.modules[f"metricgrad.{name}"] = getattr(
                mg, name
            )  # autodoc imports ``metricgrad.baselines`` by its path
    folder = docs / "reference"
    folder.mkdir(exist_ok=True)
    tables: dict[str, Callable[[], Iterable[str]]] = {
        "metrics": metric_tables,
        "surrogates": surrogate_table,
        "decisions": rule_table,
    }
    for page, rooms in contents().items():
        lines = _title(PAGES[page][0], "=")
        for room, names in rooms.items():
            if len(rooms) > 1:
                lines += _title(_room_title(room), "-")
            if room in public_names.homes():
                lines += [f".. automodule:: metricgrad.{room}", "   :no-members:", ""]
            if room in tables:
                lines += tables[room]()
            lines += [
                ".. currentmodule:: metricgrad",
                "",
                ".. autosummary::",
                "   :toctree: api",
                "   :nosignatures:",
                "",
            ]
            lines += [*(f"   {name}" for name in names), ""]
        _write(folder / f"{page}.rst", lines)
    _write(folder / "index.rst", _index())


def _index() -> list[str]:
    lines = _title("Reference", "=")
    lines += ["Every public name, after ``import metricgrad as mg``. The pages are made from the docstrings.", ""]
    tasks = [(task, ", ".join(map(_link, names))) for task, names in TASKS.items()]
    lines += _table(("to", "names"), tasks, widths=(25, 75))
    lines += [".. toctree::", "   :maxdepth: 1", "", *(f"   {page}" for page in contents()), ""]
    rows = [(f"``mg.{name}``", f"``pip install 'metricgrad[{home.extra}]'``") for name, home in _with_extras()]
    lines += _title("What needs more than torch", "-")
    return [*lines, *_table(("name", "brought by"), rows)]


def _with_extras() -> Iterator[tuple[str, public_names.Home]]:
    return ((name, home) for name, home in public_names.homes().items() if home.extra)


# The tables ------------------------------------------------------------------


def metric_tables() -> list[str]:
    """Return the table of all metrics, and that of the averages."""
    rows = []
    for name in mg.metrics.names():
        metric = mg.metrics.get(name)
        mark = " †" if of_matrix(metric) else ""
        rows.append((_link(f"metrics.{name}") + mark, _summary(metric), *_behaviour(metric)))
    head = ("name", "what it is", "range", "none true, some predicted", "none true, none predicted")
    averages = [
        (
            '``"macro"``',
            r":math:`\frac1K\sum_k m(c_k)`",
            'its formula\'s value; with ``empty_classes="skip"`` left out',
        ),
        ('``"weighted"``', r":math:`\sum_k P_k\,m(c_k) / \sum_k P_k`, with :math:`P = TP + FN`", "weight 0: left out"),
        ('``"micro"``', r":math:`m(\sum_k c_k)`", "its false positives count"),
        (
            '``"samples"``',
            r":math:`\frac1N\sum_n m(c_n)`, the counts of each row over its labels",
            "counts in its rows",
        ),
        ("``None``", r":math:`m(c_1), \dots, m(c_K)`", "its formula's value"),
    ]
    return [
        "Higher is better for all of them. Ranges and values are computed, on a grid of counts; 0/0 is",
        "``empty``, here at its default. Any F-beta has a name too: ``f2``, ``f0.5``. †: for multi-class problems,",
        "of the d×d matrix.",
        "",
        *_table(head, rows, widths=(20, 44, 12, 12, 12)),
        "How the values of the classes become one (``average=``):",
        "",
        *_table(("average", "value", "a class without positives"), averages, widths=(15, 50, 35)),
    ]


def _behaviour(metric: mg.metrics.Metric) -> Row:
    """Return the range of a metric, and its values without positives."""
    known = mg.metrics.properties_of(metric)
    limits = _interval(known.low, known.high)
    if not of_counts(metric):
        return limits, "–", "–"
    some, none = _value(metric, 0, 2, 0, 4), _value(metric, 0, 0, 0, 6)
    return limits, _number(some), _number(none)


def _value(metric: mg.metrics.Metric, *cells: float) -> float:
    return float(metric(mg.Counts(*(torch.tensor(float(cell), dtype=torch.float64) for cell in cells))))


def _interval(low: float, high: float) -> str:
    return f"[{_number(low)},\N{NO-BREAK SPACE}{_number(high)}]"


def _number(value: float) -> str:
    return f"{round(value, 4):.4g}".replace("-", "−")


def surrogate_table() -> list[str]:
    """Return the table of the surrogates: formula, range and slope."""
    rows = []
    for name in mg.surrogates.__all__:
        kind = getattr(mg.surrogates, name)
        if name != "Surrogate":
            rows.append((_link(f"surrogates.{name}"), _summary(kind), *_reach(kind)))
    return [
        "The memberships of a binary problem at the default parameters, computed for logits from −50 to 50, and the",
        "slope at the threshold of 0.5, with respect to the logit. A surrogate that wraps another has none of its own.",
        "",
        *_table(("name", "what it is", "range", "slope"), rows, widths=(16, 54, 15, 15)),
    ]


def _reach(kind: type[mg.surrogates.Surrogate]) -> Row:
    try:
        step = kind()
        logits = torch.linspace(-50, 50, 2001, dtype=torch.float64)
        values = step(logits.unsqueeze(1)).flatten().tolist()
        at = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
        value = step(at)
    except (TypeError, ValueError):  # a wrapper needs what it wraps, others need labels or several classes
        return "–", "–"
    slope = torch.autograd.grad(value.sum(), at)[0].item() if value.requires_grad else 0.0
    if min(values) == max(values):  # of whole rows: one class alone has nothing to decide
        return "–", "–"
    return "unbounded" if max(values) > 1 + 1e-9 else _interval(min(values), max(values)), _number(slope)


def rule_table() -> list[str]:
    """Return the table of the decision rules."""
    rows = []
    for name in mg.decisions.__all__:
        rule = getattr(mg.decisions, name)
        if inspect.isclass(rule) and issubclass(rule, mg.decisions.Rule) and rule is not mg.decisions.Rule:
            tasks = ", ".join(sorted(getattr(rule, "tasks", ())))
            rows.append((_link(f"decisions.{name}"), _summary(rule), tasks))
    return _table(("rule", "predicted is", "tasks"), rows, widths=(20, 50, 30))


# reStructuredText ------------------------------------------------------------


def _room_title(room: str) -> str:
    return f"``mg.{room}``" if room in public_names.homes() else room.capitalize()


def _title(text: str, mark: str) -> list[str]:
    return [text, mark * len(text), ""]


def _link(name: str) -> str:
    role = "class" if inspect.isclass(_of(name)) else "func"
    return f":py:{role}:`{name.split('.')[-1]} <metricgrad.{name}>`"


def _of(name: str) -> object:
    value: object = mg
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _summary(value: object) -> str:
    lines = [(inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")]
    links.link_docstrings(None, "", "", None, None, lines)
    return lines[0]


def _table(head: Row, rows: Iterable[Row], widths: tuple[int, ...] = ()) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1"]
    if widths:
        lines.append(f"   :widths: {' '.join(map(str, widths))}")
    for row in (head, *rows):
        lines += ["", *(f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(row))]
    return [*lines, ""]


def _write(path: Path, lines: list[str]) -> None:
    """Write, if the text is another: Sphinx reads again what is newer."""
    text = "\n".join(lines).rstrip() + "\n"
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
