"""The manifest of a saved estimator: its declared type, and what estimators of all kinds write into it and read.

Names found in a manifest are looked up in fixed tables and never imported.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import torch

from metricgrad import strict_json
from metricgrad.core.batch import Task  # noqa: TC001 (read at run time)
from metricgrad.core.metrics.registry import get, is_safe, name_of
from metricgrad.decisions.class_scores import ClassScores
from metricgrad.decisions.least_cost import LeastCost
from metricgrad.decisions.rules import Rule
from metricgrad.decisions.selection_criteria import SelectBy  # noqa: TC001 (read at run time)
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_at_prevalence
from metricgrad.estimators.candidates import View  # noqa: TC001 (read at run time)
from metricgrad.estimators.labels import Labels
from metricgrad.storage import folders
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.strict_json import Length, Line, Name, Range

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.storage.folders import Contents, Files

Attributes = dict[str, Any]
"""Parameters or fitted attributes of an estimator, by name."""

HISTORY = "history.json"
"""The file with the history of training."""

_LIBRARIES = ("metricgrad", "torch", "numpy", "scikit-learn", "skops", "safetensors")


# What the JSON files may hold. Any: plain data, which ``decode`` checks.

Count = Annotated[int, Range(1, 10**9)]


class Features(TypedDict):
    """The features of a fitted estimator."""

    count: Count | None
    names: Annotated[list[str], Length(1, 10**7)] | None


class Retuning(TypedDict):
    """What a rule is tuned again from: the options of ``TuningSpec``, and the class-wise scores."""

    metric: Name
    task: Task
    average: Literal["macro", "micro", "weighted", "samples"] | None
    shared: bool
    labels: list[int] | None
    empty_classes: Literal["count", "skip"]
    subject_to: Line | None
    confidence: float | None
    confidence_over: Literal["all", "each"]
    abstain: bool
    abstain_label: int
    rare_labels: Literal["pooled", "own", "fixed"]
    default_threshold: float
    class_scores: Any


class SavedTuning(TypedDict):
    """The fields of a ``TuningSummary``."""

    rule: Any
    value: Any
    exact: bool
    plateau: Any
    fewest: list[float]
    caution: Annotated[str, Length(0, 10**6)] | None
    text: Annotated[str, Length(0, 10**6)]
    retuning: Retuning | None


class Networks(TypedDict):
    """What the manifest says of the networks, beside their weights."""

    count: Annotated[int, Range(1, 10_000)]
    architecture: list[str]
    logits_for_ones: list[Any] | None


class Boosters(TypedDict):
    """What the manifest says of boosted trees, beside the trees."""

    backend: Literal["xgboost", "lightgbm"]
    rounds: Annotated[list[Annotated[int, Range(0, 10**7)]], Length(1, 10_000)]
    base_score: Any
    categories: Any


class SavedMember(TypedDict):
    """What the manifest says of a member of an ensemble, beside its models."""

    name: Annotated[str, Length(1, 10**4)]
    weight: Annotated[float, Range(0, 1)]
    view: View
    kind: Literal["MetricClassifier", "MetricBoostingClassifier", "scikit-learn"]


class SavedEnsemble(TypedDict):
    """What the manifest says of an ensemble, beside its members' models."""

    members: Annotated[list[SavedMember], Length(1, 10_000)]
    candidates: Any
    select_by: SelectBy | None


class Manifest(TypedDict):
    """All of a manifest."""

    format: int
    estimator: Literal[
        "MetricClassifier", "MetricBoostingClassifier", "ThresholdedClassifier", "MetricEnsembleClassifier"
    ]
    task: Task
    classes: Any
    features: Features
    rule: Any
    tuning: SavedTuning | None
    parameters: Annotated[dict[Name, Any], Length(1, 100)]
    versions: dict[Name, Line]
    networks: NotRequired[Networks]
    boosters: NotRequired[Boosters]
    ensemble: NotRequired[SavedEnsemble]
    files: dict[str, str]


Categories = dict[Annotated[int, Range(0, 10**9)], list[str | float | bool | None]]
"""The categories of columns, by the index of the column."""

_History = list[list[dict[str, float]]]
# Of the parameters those that loading itself uses.
_PARAMETERS: dict[str, Any] = {
    "model": str | Annotated[list[Count], Length(0, 100)],
    "dropout": Annotated[float, Range(0, 1)],
    "n_jobs": int | None,
}
_METRICS = ("metric", "subject_to")
"""The parameters in which fitting would import a "package.module:function"."""


@dataclass(frozen=True)
class TuningSummary:
    """What a folder keeps of a ``TuningResult``: no rows that it was tuned on, so no ``interval`` or ``out_of_bag``."""

    rule: Rule
    value: Any
    exact: bool
    plateau: Any
    fewest: list[float]
    caution: str | None
    text: str = field(repr=False)
    retuning: dict[str, Any] | None = field(repr=False)

    def at_prevalence(self, prevalence: Any) -> TuningResult:
        """Tune again for another base rate, from a summary of the scores of each class.

        Parameters
        ----------
        prevalence : float or sequence of float
            The share of positives; of several classes the share of each; of several labels the share of positives of
            each.

        Returns
        -------
        TuningResult
            The best rule at this base rate, and its value there.

        Raises
        ------
        ValueError
            If it is no share, or the folder has no such summary.

        """
        if self.retuning is None:
            raise ValueError(
                "at_prevalence: expected class-wise scores in the folder, got none: the metric is code or costs by "
                "row or by class, the scores were sparse, or a class had no rows; tune again on rows"
            )
        options = {key: value for key, value in self.retuning.items() if key != "class_scores"}
        problem = TuningSpec(**options).problem()
        batch = self.retuning["class_scores"].as_batch(problem.objective.task)
        return tune_at_prevalence(problem, batch, prevalence, self.fewest, None)

    @property
    def threshold(self) -> Any:
        """The threshold: a number, or one per class; for a multi-class problem the offsets."""
        return self.rule.numbers

    def __str__(self) -> str:
        return self.text


# What estimators of all kinds have


def describe(estimator: Any, without: tuple[str, ...] = ()) -> Contents:
    """Return what the manifest holds of an estimator of any kind, ``without`` the parameters that files hold."""
    tuning, names = estimator.tuning_, getattr(estimator, "feature_names_in_", None)
    keys = ("rule", "value", "exact", "plateau", "fewest", "caution")
    parameters = estimator.get_params(deep=False)
    try:
        return {
            "estimator": type(estimator).__name__,
            "task": estimator.labels_.task,
            "classes": encode(estimator.classes_),
            "features": {
                "count": getattr(estimator, "n_features_in_", None),
                "names": None if names is None else encode(list(names)),
            },
            "rule": encode(estimator.rule_),
            "tuning": tuning
            and {key: encode(getattr(tuning, key)) for key in keys}
            | {"text": str(tuning), "retuning": encode(_describe_retuning(tuning))},
            "parameters": {key: _encode_value(key, value) for key, value in parameters.items() if key not in without},
            "versions": {"python": platform.python_version()} | {name: version(name) for name in _LIBRARIES},
        }
    except NotPlainError as error:
        raise ValueError(f"estimator: its classes and rule must be plain data: {error}") from error


def _describe_retuning(tuning: TuningResult | TuningSummary) -> dict[str, Any] | None:
    """Return what the rule is tuned again from; None where a folder cannot hold it."""
    if isinstance(tuning, TuningSummary):
        return tuning.retuning
    problem = tuning._problem
    objective = problem.objective
    subject_to = ", ".join(map(str, problem.constraints)) or None
    if not is_safe(objective.metric) or strict_json.names_code(subject_to) or objective.row_costs is not None:
        return None
    metric = name_of(objective.metric)
    try:
        get(metric)
        class_scores = tuning.class_scores
    except ValueError:  # a matrix of costs has no name; sparse scores, or a class without rows, have no summary
        return None
    return {
        "metric": metric,
        "task": objective.task,
        "average": None if objective.average == "per-class" else objective.average,
        "shared": problem.shared,
        "labels": None if objective.labels is None else list(objective.labels),
        "empty_classes": objective.empty_classes,
        "subject_to": subject_to,
        "confidence": problem.confidence,
        "confidence_over": problem.confidence_over,
        "abstain": problem.abstain,
        "abstain_label": problem.abstain_label,
        "rare_labels": problem.rare_labels,
        "default_threshold": problem.default_threshold,
        "class_scores": class_scores,
    }


def _read_tuning(tuning: SavedTuning, labels: Labels) -> TuningSummary:
    """Return what ``describe`` wrote of a tuning; no code may be named in it."""
    retuning = tuning["retuning"]
    if retuning is not None and strict_json.names_code([retuning["metric"], retuning["subject_to"]]):
        raise ValueError(f"{folders.MANIFEST}: tuning: expected no code to import, got {retuning['metric']!r}")
    found = TuningSummary(**decode(tuning) | {"rule": _read_rule(tuning["rule"], labels)})
    if found.retuning is not None and not isinstance(found.retuning["class_scores"], ClassScores):
        raise ValueError(f"{folders.MANIFEST}: tuning: expected class-wise scores, got others")
    return found


def read_attributes(manifest: Manifest) -> Attributes:
    """Return the attributes that ``describe`` wrote."""
    classes, features, tuning = decode(manifest["classes"]), manifest["features"], manifest["tuning"]
    if not isinstance(classes, np.ndarray) or len(classes) < (1 if manifest["task"] == "multilabel" else 2):
        raise ValueError(f"{folders.MANIFEST}: classes: expected an array of at least two, got {classes!r}")
    labels = Labels.of(manifest["task"], classes)
    fitted = {
        "labels_": labels,
        "classes_": classes,
        "rule_": _read_rule(manifest["rule"], labels),
        "tuning_": tuning and _read_tuning(tuning, labels),
    }
    if features["count"] is not None:
        fitted["n_features_in_"] = features["count"]
    elif manifest["estimator"] not in ("ThresholdedClassifier", "MetricEnsembleClassifier"):
        raise ValueError(f"{folders.MANIFEST}: features: expected their count, got none")
    if features["names"] is not None:
        if features["count"] not in (None, len(features["names"])):
            raise ValueError(f"{folders.MANIFEST}: features: expected {features['count']} names")
        fitted["feature_names_in_"] = np.array(features["names"], dtype=object)
    return fitted


def _read_rule(data: Any, labels: Labels) -> Rule:
    """Return a rule, tried on one row: it must fit the number of classes."""
    rule = decode(data)
    if not isinstance(rule, Rule):
        raise ValueError(f"{folders.MANIFEST}: rule: expected one of this library, got {rule!r}")
    if labels.task not in rule.tasks:
        raise ValueError(f"{folders.MANIFEST}: rule: expected one for {labels.task} targets, got {rule!r}")
    if not isinstance(rule, LeastCost):  # it decides about rows with their costs
        rule(torch.full(labels.scores_shape(1), 0.5, dtype=torch.float64))
    return rule


# The history of training


def read_history(files: Files, models: int, steps: bool = False) -> dict[str, Any]:
    """Return the history of each model and, with ``steps``, after how many steps ``partial_fit`` continues."""
    found: dict[str, Any] = decode(strict_json.read(files[HISTORY], dict[str, Any], HISTORY))
    strict_json.check(found.get("history"), _History, f"{HISTORY}: history")
    if steps:
        strict_json.check(found.get("steps"), Annotated[int, Range(0, 2**63)], f"{HISTORY}: steps")
    if len(found["history"]) != models:
        raise ValueError(f"{HISTORY}: expected the history of {models} models, got {len(found['history'])}")
    return found


# Parameters


@dataclass(frozen=True)
class _Absent:
    """Stands for a parameter that could not be written."""

    was: str


def _encode_value(key: str, value: Any) -> Any:
    try:
        data = encode(value)
        if key not in _METRICS or not strict_json.names_code(data):
            return data
    except NotPlainError:
        pass
    return {"type": "not written", "was": " ".join(repr(value).split())[:200]}


def read_parameter(key: str, data: Any) -> Any:
    """Return the value of a parameter, or the mark of one that could not be written, for ``complete_parameters``."""
    if isinstance(data, dict) and data.get("type") == "not written":
        return _Absent(str(data["was"]))
    if key in _METRICS and strict_json.names_code(data):
        raise ValueError(f"{folders.MANIFEST}: {key}: expected no code to import, got {str(data)[:200]}")
    value = decode(data)
    strict_json.check(value, _PARAMETERS.get(key, Any), f"{folders.MANIFEST}: {key}")
    return value


def list_unwritten(manifest: Mapping[str, Any]) -> list[str]:
    """Return the parameters that a manifest does not hold, since they are code."""
    parameters = dict(manifest.get("parameters", {}))
    return [key for key, data in parameters.items() if isinstance(data, dict) and data.get("type") == "not written"]


def complete_parameters(written: Attributes, given: Attributes) -> Attributes:
    """Return the parameters with the given ones in the place of those that could not be written."""
    absent = {key: value.was for key, value in written.items() if isinstance(value, _Absent)}
    for key in given.keys() - absent.keys():
        raise ValueError(f"{key}: expected only what the folder does not hold ({sorted(absent)}), got {given[key]!r}")
    if missing := [key for key in absent if key not in given]:
        them, what = (", ".join(parts) for parts in (missing, (absent[key] for key in missing)))
        hint = "" if missing == ["model"] else "; None is enough where only fitting needs it"
        raise ValueError(f"{them}: the folder cannot hold {what}; pass {them} to mg.load{hint}")
    return written | given
