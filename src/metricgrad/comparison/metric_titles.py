"""Metrics as people write them: "F1 of the class 'yes'", "macro-averaged F2"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.core import metrics
from metricgrad.strict_json import names_code

if TYPE_CHECKING:
    from metricgrad.comparison.summaries import MetricSummary

_TITLES = {"mcc": "MCC", "npv": "NPV", "g_mean": "G-mean", "kappa": "Cohen’s kappa"}


def read_metric_title(metric: MetricSummary) -> str:
    """Return the metric of a study for people: "macro-averaged F2"."""
    return metric.get("title") or describe_metric(metric["name"], metric["average"], "multilabel")


def describe_metric(name: str, average: str | None, task: str, positive: str = "") -> str:
    """Return a metric for people; ``positive`` is the class that a binary metric is of.

    >>> describe_metric("f1", "macro", "binary", "yes"), describe_metric("f2", "micro", "multilabel")
    ("F1 of the class 'yes'", 'micro-averaged F2')
    >>> describe_metric("mcc", "macro", "binary", "yes"), describe_metric("mcc", "macro", "multiclass")
    ('MCC', 'MCC')
    """
    title = format_metric(name)
    if task == "binary":
        return title if not positive or _is_same_for_both_classes(name) else f"{title} of the class {positive!r}"
    if average is None or (task == "multiclass" and _is_of_all_classes(name)):
        return title
    return f"{average}-averaged {title}"


def _is_same_for_both_classes(name: str) -> bool:
    metric = _find_library_metric(name)
    return metric is not None and metrics.properties_of(metric).same_for_both_classes


def _is_of_all_classes(name: str) -> bool:
    """Return whether a metric is of all classes together, so that nothing is averaged."""
    metric = _find_library_metric(name)
    return metric is not None and metrics.of_matrix(metric)


def _find_library_metric(name: str) -> metrics.Metric | None:
    """Return a metric by its name; None if it is the user's own code, or one of scores, such as "auroc"."""
    if names_code(name):
        return None
    try:
        return metrics.get(name)
    except ValueError:
        return None


def format_metric(name: str) -> str:
    """Return a metric's name as people write it: "F2", "MCC", "balanced accuracy".

    >>> format_metric("balanced_accuracy"), format_metric("f_beta(beta=1/0.25)")
    ('balanced accuracy', 'f_beta(beta=1/0.25)')
    """
    if "(" in name:  # its parameters are as they are typed
        return name
    if name in _TITLES:
        return _TITLES[name]
    beta = name.removeprefix("f").removeprefix("_")
    is_f_beta = name[:1] == "f" and beta.replace(".", "").isdigit()
    return f"F{beta}" if is_f_beta else name.replace("_", " ")
