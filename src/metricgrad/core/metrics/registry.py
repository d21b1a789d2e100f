"""Metrics by name: which there are, what an unknown name may have meant, and what a metric takes."""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import re
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from metricgrad.core.metrics import functions, matrix
from metricgrad.core.metrics.signatures import Metric, annotation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def names() -> list[str]:
    """Return the names that ``get`` knows; besides them any "f<number>" and "package.module:function".

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> names()[:3]
    ['accuracy', 'balanced_accuracy', 'detection_cost']
    """
    return sorted(_BY_NAME)


def get(metric: str | Metric) -> Metric:
    """Return a metric by its name; a function is returned as it is.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), with parameters if it has any ("tversky(alpha=0.3 beta=0.7)", one number per
        class as "f_beta(beta=0.25/1/1)"), "package.module:function", or a function of ``Counts`` (or ``Confusion``).

    Returns
    -------
    callable
        A function of ``Counts`` (or ``Confusion``).

    Raises
    ------
    ValueError
        If the name or a parameter is unknown, with what may have been meant, or a function needs other arguments.

    Examples
    --------
    >>> import torch
    >>> from metricgrad import Counts
    >>> get("f2")(Counts(*map(torch.tensor, (3.0, 1.0, 1.0, 5.0))))
    tensor(0.7500)
    """
    return find(metric, {})


def find(metric: str | Metric, further_names: Mapping[str, str]) -> Metric:
    """Return a metric as ``get`` does. ``further_names``: names that the caller also takes, for error messages.

    Its keys are spellings in lower case without separators, its values the names.
    """
    as_metric: Callable[[], Metric] | None = getattr(metric, "as_metric", None)
    if as_metric is not None:  # what is more than a metric, such as ``Cost``, says which it is
        return as_metric()
    if callable(metric):
        return _check_takes_counts(metric)
    if not isinstance(metric, str):
        raise ValueError(f"metric: expected a name or a function of Counts, got {_describe_value(metric)}")
    if metric in _BY_NAME:
        return _BY_NAME[metric]
    if match := re.fullmatch(r"f_?(\d+(?:\.\d*)?|\.\d+)", metric):
        return partial(functions.f_beta, beta=float(match[1]))
    if ":" in metric:
        return _check_takes_counts(_import_metric(metric))
    if match := re.fullmatch(r"(\w+)\(([^()]*)\)", metric):
        return _fix_parameters(match[1], match[2])
    known = ", ".join(sorted({*names(), *further_names.values()}))
    hint = _suggest_name(metric, further_names)
    raise ValueError(f'metric: unknown name {metric!r}{hint} Known: {known}, "f<number>", "package.module:function"')


def _check_takes_counts(metric: Metric) -> Metric:
    """Return a function that can be called with counts alone; those of scikit-learn take labels and predictions."""
    try:
        inspect.signature(metric).bind(None)
    except TypeError:
        name = getattr(metric, "__name__", repr(metric))
        raise ValueError(
            f"metric: expected a function of one argument, the counts, got {name}{inspect.signature(metric)}; "
            "instead of a metric of scikit-learn give its name here, such as 'f1'"
        ) from None
    except ValueError:  # a builtin without a signature
        pass
    return metric


def _describe_value(x: object) -> str:
    """Return what a value is in a few words: an array without its numbers."""
    shape = getattr(x, "shape", None)
    return repr(x) if shape is None else f"{type(x).__name__} of shape {tuple(shape)}"


# Names used elsewhere, in lower case, without separators.
_OTHER_NAMES = {
    "acc": "accuracy",
    "bacc": "balanced_accuracy",
    "bookmakerinformedness": "informedness",
    "cohenkappa": "kappa",
    "cost": "savings",
    "dicecoefficient": "f1",
    "dice": "f1",
    "dicescore": "f1",
    "dsc": "f1",
    "fmeasure": "f1",
    "fmi": "fowlkes_mallows",
    "fscore": "f1",
    "gmean": "g_mean",
    "hitrate": "recall",
    "intersectionoverunion": "jaccard",
    "iou": "jaccard",
    "matthews": "mcc",
    "matthewscorrcoef": "mcc",
    "miou": "jaccard",
    "phi": "mcc",
    "ppv": "precision",
    "qwk": "quadratic_kappa",
    "sensitivity": "recall",
    "selectivity": "specificity",
    "threatscore": "jaccard",
    "tnr": "specificity",
    "tpr": "recall",
    "youden": "informedness",
    "youdenj": "informedness",
}
# Error rates: 1 − a metric, since here higher is better.
_COMPLEMENTS = {
    "error": "accuracy",
    "errorrate": "accuracy",
    "fdr": "precision",
    "fnr": "recall",
    "for": "npv",
    "fpr": "specificity",
    "hammingloss": "accuracy",
    "missrate": "recall",
}
# Metrics that are no function of the counts at one threshold, and the loss that trains on them.
_LOSSES = {
    "ap": "AUROCLoss(curve='pr')",
    "auc": "AUROCLoss()",
    "auprc": "AUROCLoss(curve='pr')",
    "auroc": "AUROCLoss()",
    "averageprecision": "AUROCLoss(curve='pr')",
    "eer": "EERLoss()",
    "equalerrorrate": "EERLoss()",
    "map": "AUROCLoss(curve='pr')",
    "meanaverageprecision": "AUROCLoss(curve='pr')",
    "prauc": "AUROCLoss(curve='pr')",
    "prbep": "PRBEPLoss()",
    "precisionatk": "PrecisionAtKLoss(k)",
    "recallatfpr": "RecallAtFPRLoss(fpr)",
    "recallatprecision": "RecallAtPrecisionLoss(p)",
    "rocauc": "AUROCLoss()",
    "wmw": "WMWLoss()",
}


def _suggest_name(name: str, further_names: Mapping[str, str]) -> str:
    """Return what an unknown name may have meant, to append to a message; ``further_names``: as in ``find``."""
    letters = re.sub(r"[^a-z0-9.]", "", name.lower().replace("@", "at"))
    names_without_separators = {known.replace("_", ""): known for known in _BY_NAME}
    meant = {**_OTHER_NAMES, **names_without_separators}
    for plain in (letters, letters.removesuffix("score")):
        if plain in further_names:
            return f"; did you mean {further_names[plain]!r}?"
        if plain in meant:
            return f"; did you mean {meant[plain]!r}?"
        of_loss = "precisionatk" if re.fullmatch(r"precisionat\d+", plain) else plain
        if of_loss in _LOSSES:
            return f"; it is not a metric of counts: mg.{_LOSSES[of_loss]} trains on it."
        if plain in _COMPLEMENTS:
            return f"; did you mean {_COMPLEMENTS[plain]!r}, which is 1 - {name}?"
        if re.fullmatch(r"f\d+(\.\d*)?", plain):
            return f"; did you mean {plain!r}?"
    close = difflib.get_close_matches(name.lower(), [*_BY_NAME, *further_names.values()], n=1)
    return f"; did you mean {close[0]!r}?" if close else "."


def _import_metric(path: str) -> Metric:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"metric: cannot import {path!r} ({error}); expected 'package.module:function'") from error
    if not callable(found):
        raise ValueError(f"metric: {path!r} is {type(found).__name__}, expected a function of Counts")
    return found  # type: ignore[no-any-return]


def _fix_parameters(name: str, given: str) -> Metric:
    """Return a metric with fixed parameters: "beta=2", or "beta=0.25/1/1" with one number per class."""
    metric = get(name)
    known = _list_parameters(metric) if name in _BY_NAME else []
    fixed: dict[str, float | Tensor] = {}
    for part in re.findall(r"[^,\s]+", given):
        key, _, value = part.partition("=")
        if key not in known or key in fixed:
            takes = f"{', '.join(known)}, each once" if known else "no parameters"
            raise ValueError(f"metric: {name} takes {takes}, got {part!r}{_name_metrics_with(key)}")
        try:
            numbers = [float(number) for number in value.split("/")]
        except ValueError:
            numbers = []
        if not numbers or not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"metric: {name}: expected {key}=number, or number/number/... per class, got {part!r}")
        fixed[key] = numbers[0] if len(numbers) == 1 else torch.tensor(numbers, dtype=torch.float32)
    return partial(metric, **fixed)


def _list_parameters(metric: Metric) -> list[str]:
    """Return the names of a metric's arguments after the counts."""
    return list(inspect.signature(metric).parameters)[1:]


def _name_metrics_with(parameter: str) -> str:
    """Return which metrics take a parameter, to append to a message, if they are few."""
    takers = [name for name, metric in _BY_NAME.items() if parameter in _list_parameters(metric)]
    return f"; {' and '.join(takers)} take {parameter}" if 0 < len(takers) < 3 else ""


def count_values(metric: Metric) -> dict[str, int]:
    """Return the parameters of a metric that have one value per class, and the number of values."""
    fixed = metric.keywords.items() if isinstance(metric, partial) else ()
    return {key: len(value) for key, value in fixed if isinstance(value, Tensor) and value.dim() == 1}


def of_classes(metric: Metric, classes: Sequence[int], leading: bool = False) -> Metric:
    """Return a metric with its values per class reduced to those of some classes; of one class a number.

    ``leading``: the classes are the first of two axes of the cells, not the last one.
    """
    if not (several := count_values(metric)):
        return metric
    index = list(classes)
    kept = {key: metric.keywords[key][index] for key in several}  # type: ignore[attr-defined]
    if leading:
        kept = {key: value.unsqueeze(1) for key, value in kept.items()}
    elif len(index) == 1:
        kept = {key: value[0] for key, value in kept.items()}
    return partial(metric, **kept)


def name_of(metric: Metric) -> str:
    """Return the name of a metric, with its fixed arguments, for messages."""
    if isinstance(metric, partial):
        arguments = ", ".join(f"{key}={_format_argument(value)}" for key, value in metric.keywords.items())
        return f"{name_of(metric.func)}({arguments})"
    return getattr(metric, "__name__", repr(metric))


def _format_argument(value: object) -> str:
    if isinstance(value, Tensor) and value.dim() == 1:
        return "/".join(map(repr, value.tolist()))
    return repr(value.tolist()) if isinstance(value, Tensor) else repr(value)


def is_safe(metric: Metric) -> bool:
    """Return whether a metric is finite wherever it is meant to be: one of this library, not one of the user's own."""
    inner = metric.func if isinstance(metric, partial) else metric
    return str(getattr(inner, "__module__", "")).startswith("metricgrad.")


# A metric is found by being defined: a public function whose first argument is Counts or Confusion.
_BY_NAME: dict[str, Metric] = {
    name: function
    for module in (functions, matrix)
    for name, function in vars(module).items()
    if inspect.isfunction(function)
    and function.__module__ == module.__name__
    and not name.startswith("_")
    and re.search("Counts|Confusion", annotation_of(function))
}
