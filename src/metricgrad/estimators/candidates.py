"""Candidates: the estimators that an ensemble is chosen from, and those that ``compare`` ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.estimators.metric_classifier import MetricClassifier

if TYPE_CHECKING:
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

    from metricgrad.integrations.boosting.hooks import Backend

View = Literal["given", "linear", "dense", "trees"]
"""What a candidate sees: the features as given, or as ``TableEncoder(view)`` encodes them."""

TABM_LOSSES = {"tabm": "cross-entropy", "hybrid tabm": "hybrid"}
"""The names of the candidates that are TabM, and the losses that these are trained with."""

METRIC_ESTIMATORS = (MetricClassifier, MetricBoostingClassifier)
"""These take the folds themselves and hold one model for each."""

INVERSE_PENALTIES = (0.003, 0.1, 3.0)
"""The inverse ridge penalties (``C``) of logistic regression."""

EPOCHS, PATIENCE = 100, 15
"""The most epochs of networks, and after how many without improvement they stop."""

ROUNDS = 200
"""The most rounds of boosted trees."""

TREES_PER_FOREST = 100

UNKNOWN_COST = 100.0
"""The guess for a classifier of the user's own beside the default candidates: the cheapest are fitted before it."""

FEW_ROWS = 10_000
"""With fewer rows boosted trees get coarser bins: fine ones hold hardly a row each and take most of the time."""

_ROWS_FOR_FEWER_EPOCHS = 2000
"""With fewer rows an epoch has few steps, and fewer epochs would be too few even for a first look."""

MANY_ROWS = 100_000
"""With more rows networks are trained for fewer epochs, each of which has more steps."""


@dataclass(frozen=True)
class Candidate:
    """An estimator to be cross-fitted, under a name, and what it sees of the features."""

    name: str
    estimator: Any
    view: View = "given"
    cost: float = 1.0
    """How long it takes to fit, in times of a logistic regression: a guess, by which a time limit is kept."""


@dataclass(frozen=True)
class CandidateSpec:
    """What the settings of candidates depend on.

    ``metric``, ``average``: what is optimised. ``rows``: the number of training rows. ``outputs``: of scores per row.
    ``has_texts``: whether words are among the features. ``quick``: fewer epochs, rounds, penalties, for a first look.
    """

    metric: Any
    average: Any
    rows: int
    outputs: int
    has_texts: bool = False
    quick: bool = False


def make_default_candidates(spec: CandidateSpec) -> list[Candidate]:
    """Return the default candidates of an ensemble; boosted trees where their library is installed."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier  # which a model without needs not

    found = make_logistic_regressions(spec)
    found.append(make_network("hybrid", spec))
    if importlib.util.find_spec("xgboost") is not None:
        found.append(make_boosted_trees("xgboost", spec, "xgboost", "cross-entropy"))
    if importlib.util.find_spec("lightgbm") is not None:
        found.append(make_boosted_trees("metric boosting", spec, "lightgbm", "hybrid"))
    found.append(make_forest("random forest", spec, RandomForestClassifier))
    found.append(make_forest("extra trees", spec, ExtraTreesClassifier))
    return found


def make_logistic_regressions(spec: CandidateSpec) -> list[Candidate]:
    """Return logistic regression with several penalties, or with the middle one for a first look."""
    from sklearn.linear_model import LogisticRegression

    penalties = INVERSE_PENALTIES[1:2] if spec.quick else INVERSE_PENALTIES
    return [
        Candidate(f"logistic regression, C={c:g}", LogisticRegression(C=c, max_iter=500), "linear") for c in penalties
    ]


def make_network(name: str, spec: CandidateSpec, view: View = "linear", **options: Any) -> Candidate:
    """Return a ``MetricClassifier``; ``options``: its parameters besides those that the data decide."""
    # The view is standardised already; doing it again would make the ones of a rare category large.
    settings: dict[str, Any] = {"average": spec.average or "macro", "scale": False}
    if spec.has_texts and view == "linear":
        settings["dropout"] = 0.5  # every word has weights of its own, and so many overfit
    share = min(1.0, MANY_ROWS / spec.rows)
    if spec.quick and spec.rows >= _ROWS_FOR_FEWER_EPOCHS:
        share /= 3
    settings |= {"epochs": max(2, round(EPOCHS * share)), "patience": max(2, round(PATIENCE * share))}
    return Candidate(name, MetricClassifier(spec.metric, **settings | options), view, cost=120)


def make_tabm(name: str, spec: CandidateSpec) -> Candidate:
    """Return a ``MetricClassifier`` with TabM for a network, by a name of ``TABM_LOSSES``."""
    network = make_network(name, spec, "dense", model="tabm", loss=TABM_LOSSES[name])
    return replace(network, cost=1500)


def make_boosted_trees(name: str, spec: CandidateSpec, backend: Backend, loss: Any) -> Candidate:
    """Return a ``MetricBoostingClassifier``."""
    # Every label or class has trees of its own, so their number is kept in bounds.
    rounds = min(ROUNDS, max(40, 2000 // spec.outputs))
    model = MetricBoostingClassifier(
        spec.metric,
        average=spec.average or "macro",
        backend=backend,
        loss=loss,
        n_estimators=rounds // 2 if spec.quick else rounds,
        max_depth=4,
        n_jobs=1,
        backend_params={"max_bin": 64} if spec.rows < FEW_ROWS else None,
    )
    return Candidate(name, model, "trees", cost=50 if loss == "cross-entropy" else 60)


def make_forest(name: str, spec: CandidateSpec, kind: type[RandomForestClassifier | ExtraTreesClassifier]) -> Candidate:
    """Return a random forest, or extra trees."""
    leaf = max(2, spec.rows // 4000)  # so that trees of many rows stay small
    return Candidate(name, kind(TREES_PER_FOREST, min_samples_leaf=leaf), "trees", cost=30)


def name_own_candidates(parameter: str, pairs: Any) -> list[Candidate]:
    """Return the user's own classifiers as candidates; ``parameter``: what the user calls them."""
    listed = list(pairs) if isinstance(pairs, Iterable) else []
    if not listed or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in listed):
        raise ValueError(f"{parameter}: expected a list of (name, estimator), got {pairs!r}")
    names = [name for name, _ in listed]
    if len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{parameter}: expected a name of its own for each, got {names}")
    for name, estimator in listed:
        if not hasattr(estimator, "predict_proba") or not hasattr(estimator, "fit"):
            raise ValueError(
                f"{parameter}: expected classifiers with predict_proba, got {estimator!r} as {name!r}; "
                "scikit-learn's CalibratedClassifierCV adds it"
            )
    return [Candidate(name, estimator) for name, estimator in listed]


def name_extra_candidates(extra: Any, spec: CandidateSpec, others: list[Candidate]) -> list[Candidate]:
    """Return what a user adds to other candidates: names of ``TABM_LOSSES``, and classifiers of the user's own."""
    listed = list(extra) if isinstance(extra, Iterable) and not isinstance(extra, str) else []
    names = [one for one in listed if isinstance(one, str)]
    pairs = [one for one in listed if not isinstance(one, str)]
    if not listed or not all(name in TABM_LOSSES for name in names):
        known = " or ".join(map(repr, TABM_LOSSES))
        raise ValueError(f"extra_estimators: expected a list of {known} or (name, estimator), got {extra!r}")
    missing = [name for name in ("tabm", "rtdl_num_embeddings") if importlib.util.find_spec(name) is None]
    if names and missing:
        raise ImportError(f"extra_estimators: {names[0]!r} needs {missing[0]}: pip install 'metricgrad[tabm]'")
    found = [make_tabm(name, spec) for name in names]
    if pairs:
        own = name_own_candidates("extra_estimators", pairs)
        found += [replace(candidate, cost=UNKNOWN_COST) for candidate in own]
    taken = [candidate.name for candidate in [*others, *found]]
    if len(set(taken)) < len(taken):
        raise ValueError(f"extra_estimators: expected names that no other candidate has, got {taken[len(others) :]}")
    return found


def list_missing_libraries() -> list[str]:
    """Return which libraries of the default candidates are not installed."""
    return [name for name in ("xgboost", "lightgbm") if importlib.util.find_spec(name) is None]
