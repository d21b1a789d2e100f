"""Fitted contenders: models that return scores; how they are fitted with a seed, saved and loaded without pickle.

All get the same rows: some to fit on, others to stop early on. Rules are tuned elsewhere, by one function for all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, TypedDict

import numpy as np

from metricgrad import strict_json
from metricgrad.comparison.contenders.simple import load_linear, load_prior
from metricgrad.core.metrics.parameters import check_values
from metricgrad.estimators.encoded_rows import TextFeatures, to_dense, to_wide
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.estimators.metric_classifier import MetricClassifier
from metricgrad.storage import estimators, folders
from metricgrad.strict_json import Length, Name, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import xgboost

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics.averages import Average
    from metricgrad.estimators.encoded_rows import Features
    from metricgrad.integrations.boosting.hooks import Backend

STEPS, SMALLEST, LARGEST = 128, 32, 4096
"""Steps that an epoch should have, and the smallest and largest batch."""

FEW_ROWS = 10_000
"""With fewer rows, trees get coarser bins."""

GROWTH: dict[str, Any] = {"learning_rate": 0.1, "max_depth": 6}
"""The settings of boosted trees, whatever their loss."""

TABM = "tabm"
"""The model of ``MetricClassifier`` that is TabM."""

TEXT_OPTIONS: dict[str, Any] = {"scale": False, "dropout": 0.5}
"""The settings of networks on texts: scaling would make rare words the largest, and so many weights overfit."""


@dataclass(frozen=True)
class Goal:
    """What a model is trained and tuned for: the task with its number of classes, metric, average, constraint."""

    task: Task
    classes: int
    metric: str
    average: Average = "macro"
    subject_to: str | None = None

    @property
    def score_columns(self) -> int | None:
        """The number of scores of a row; None for a binary task, whose scores have no columns."""
        return None if self.task == "binary" else self.classes

    def check_values(self, *metrics: str) -> None:
        """Raise a ``ValueError`` if a metric has parameters with one value per class, but not for these classes."""
        for metric in metrics:
            if "(" in metric and not strict_json.names_code(metric):  # what names code must not be looked up here
                check_values(metric, 1 if self.task == "binary" else self.classes)


@dataclass(frozen=True)
class Effort:
    """The training budget, the same for all contenders: the most epochs of networks and rounds of trees.

    Training stops early after a sixth of the epochs (``patience``), or a tenth of the rounds, without improvement.
    """

    epochs: int
    patience: int
    rounds: int

    @property
    def idle_rounds(self) -> int:
        """The number of rounds without improvement after which trees stop."""
        return max(self.rounds // 10, 5)

    @classmethod
    def of(cls, rows: int, quick: bool = False) -> Effort:
        """Return the budget for a number of rows: similar steps for few and many rows, a third if ``quick``."""
        steps = rows / max(rows / STEPS, SMALLEST)
        epochs = min(200, max(60, 3000 / steps)) * min(1, 100_000 / rows)
        epochs = max(8, round(epochs / 3 if quick else epochs))
        return cls(epochs, max(3, epochs // 6), 100 if quick else 300)


@dataclass(frozen=True, eq=False)
class Rows:
    """The data of one fit: features ``(n, …)``, targets (class indices, or 0/1 per label), and indices of rows.

    ``fit``: the rows to train on. ``held_out``: the rows to stop early on.
    """

    features: Features
    targets: np.ndarray
    fit: np.ndarray
    held_out: np.ndarray


class Scorer(Protocol):
    """A fitted contender."""

    history: list[dict[str, float]]
    """For every "epoch" or round, from 0: the "loss", and the metric's "value" on held-out rows if it was monitored."""

    def scores(self, features: Features) -> np.ndarray:
        """Return probabilities in float64: ``(n,)``, ``(n, classes)``, or ``(n, K)`` of each label."""

    def files(self) -> dict[str, bytes]:
        """Return the files that ``load_scorer`` reads, by name."""


# Estimators of this library


class Estimator:
    """A ``MetricClassifier`` or a ``MetricBoostingClassifier``."""

    def __init__(self, model: MetricClassifier | MetricBoostingClassifier) -> None:
        self.model = model
        # With monitor="loss" the history's "value" is minus the held-out loss, not a value of the metric.
        keys = ("loss", "value") if model.monitor == "metric" else ("loss",)
        rows = enumerate(model._histories[0])
        self.history = [{"epoch": float(i)} | {key: row[key] for key in keys if key in row} for i, row in rows]

    def scores(self, features: Features) -> np.ndarray:
        return np.asarray(self.model.predict_scores(_prepare(self.model, features)))

    def files(self) -> dict[str, bytes]:
        return estimators.packed(self.model)


def _prepare(model: MetricClassifier | MetricBoostingClassifier, features: Features) -> Any:
    """Return features as a model takes them: TabM is made for few columns, as trees are."""
    wide = isinstance(model, MetricClassifier) and model.model != TABM
    return to_wide(features) if wide else to_dense(features)


def network(folds: int | None = None, **options: Any) -> Callable[[Goal, Effort, Rows, int], Estimator]:
    """Return a function that fits a ``MetricClassifier``; options that are functions are called with goal and rows.

    ``folds``: the number of networks to fit instead of one, each stopped early on its own fold of the rows to fit.
    """

    def fit(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Estimator:
        # With a constraint the metric alone does not show which epoch is best.
        resolved: dict[str, Any] = {"monitor": "metric" if goal.subject_to is None else "loss"}
        if isinstance(rows.features, TextFeatures) and options.get("model") != TABM:
            resolved |= TEXT_OPTIONS
        resolved |= {key: value(goal, rows) if callable(value) else value for key, value in options.items()}
        model = MetricClassifier(
            goal.metric,
            average=goal.average,
            cv=folds or [(rows.fit, rows.held_out)],
            epochs=effort.epochs,
            patience=effort.patience,
            batch_size=choose_batch_size(rows.targets[rows.fit]),
            random_state=seed,
            **resolved,
        )
        used = rows.fit if folds else slice(None)
        model.fit(_prepare(model, rows.features[used]), rows.targets[used])
        return Estimator(model.set_params(cv=None))  # the row indices of cv are not part of the model

    return fit


def choose_batch_size(targets: np.ndarray) -> int:
    """Return the batch size that gives ``STEPS`` per epoch and about four rows of the rarest class per batch."""
    counts = np.bincount(targets) if targets.ndim == 1 else targets.sum(0)
    rarest = min((int(count) for count in counts if count), default=1)
    ideal = max(len(targets) / STEPS, min(4 * len(targets) / rarest, 1024))
    return int(2 ** round(math.log2(min(max(ideal, SMALLEST), LARGEST))))


def fit_metric_boosting(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Estimator:
    """Fit boosted trees with cross-entropy plus the metric loss."""
    model = MetricBoostingClassifier(
        goal.metric,
        average=goal.average,
        loss="hybrid",
        rule="fixed",
        cv=[(rows.fit, rows.held_out)],
        n_estimators=effort.rounds,
        patience=effort.idle_rounds,
        n_jobs=1,
        random_state=seed,
        backend_params=_choose_bins(rows),
        **GROWTH,
    )
    model.fit(to_dense(rows.features), rows.targets)
    return Estimator(model.set_params(cv=None))


# Trees of XGBoost


class Trees:
    """XGBoost's trees with its own logarithmic loss."""

    def __init__(self, booster: xgboost.Booster, history: Sequence[dict[str, float]] = ()) -> None:
        self.booster = booster
        self.history: list[dict[str, float]] = list(history)

    def scores(self, features: Features) -> np.ndarray:
        import xgboost

        data = xgboost.DMatrix(np.asarray(to_dense(features), dtype=np.float32), nthread=1)
        return self.booster.predict(data).astype(float)

    def files(self) -> dict[str, bytes]:
        return {"trees.ubj": bytes(self.booster.save_raw("ubj"))}


def fit_trees(goal: Goal, effort: Effort, rows: Rows, seed: int) -> Trees:
    """Fit boosted trees with the logarithmic loss."""
    import xgboost

    softmax = {"objective": "multi:softprob", "num_class": goal.classes}
    objective = softmax if goal.task == "multiclass" else {"objective": "binary:logistic"}
    features = to_dense(rows.features)
    train, held_out = (
        xgboost.DMatrix(features[which], rows.targets[which], nthread=1) for which in (rows.fit, rows.held_out)
    )
    results: dict[str, dict[str, list[float]]] = {}
    booster = xgboost.train(
        {**GROWTH, **_choose_bins(rows), **objective, "nthread": 1, "seed": seed},
        train,
        effort.rounds,
        evals=[(held_out, "held_out")],
        evals_result=results,
        early_stopping_rounds=effort.idle_rounds,
        verbose_eval=False,
    )
    losses = next(iter(results["held_out"].values()))
    history = [{"epoch": float(i), "loss": float(loss)} for i, loss in enumerate(losses)]
    return Trees(booster[: booster.best_iteration + 1], history)


def _choose_bins(rows: Rows) -> dict[str, int]:
    """Return the number of bins of trees: with few rows, fine bins hold hardly a row each and take most of the time."""
    return {"max_bin": 64} if len(rows.fit) < FEW_ROWS else {}


# Ensembles


class Member(NamedTuple):
    """A fitted contender in an ensemble."""

    name: str
    weight: float
    scorer: Scorer


class Ensemble:
    """The weighted mean of fitted contenders."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members, self.history = list(members), list[dict[str, float]]()

    def scores(self, features: Features) -> np.ndarray:
        return average_scores((member.weight, member.scorer.scores(features)) for member in self.members)

    def files(self) -> dict[str, bytes]:
        about = [
            {"name": member.name, "weight": member.weight, "kind": type(member.scorer).__name__}
            for member in self.members
        ]
        found = {"ensemble.json": strict_json.as_json(about)}
        for i, member in enumerate(self.members):
            found |= {f"member-{i}-{name}": data for name, data in member.scorer.files().items()}
        return found


def average_scores(parts: Iterable[tuple[float, np.ndarray]]) -> np.ndarray:
    """Return the sum of weight × scores; the weights sum to 1."""
    found = [weight * scores for weight, scores in parts]
    if len(shapes := {one.shape for one in found}) > 1:  # numpy would broadcast them
        raise ValueError(f"members: expected scores of one shape, got {sorted(shapes)}")
    return np.sum(found, axis=0)  # type: ignore[no-any-return]


# Loading


class SavedMember(TypedDict):
    """An item of ``ensemble.json``."""

    name: Name
    weight: Annotated[float, Range(0, 1)]
    kind: Literal["Prior", "Linear", "Trees", "Estimator"]


def load_scorer(kind: str, files: dict[str, bytes]) -> Scorer:
    """Return the scorer that wrote ``files``, whose hashes were verified already; ``kind`` is the name of its class."""
    if kind == "Ensemble":
        return _load_ensemble(files)
    if kind == "Prior":
        return load_prior(files)
    if kind == "Linear":
        return load_linear(files)
    if kind == "Trees":
        import xgboost

        return Trees(xgboost.Booster({"nthread": 1}, model_file=bytearray(files["trees.ubj"])))
    manifest, inner = folders.unpacked(files, "estimator")
    # A function or a module is not saved; only fitting needs it.
    not_saved = {
        key: None
        for key, value in dict(manifest.get("parameters", {})).items()
        if isinstance(value, dict) and value.get("type") == "not written"
    }
    model = estimators.restored(manifest, inner, None, **not_saved)  # type: ignore[arg-type]
    if not isinstance(model, MetricClassifier | MetricBoostingClassifier):
        raise ValueError(f"estimator: expected a network or boosted trees, got a {type(model).__name__}")
    return Estimator(model)


def _load_ensemble(files: dict[str, bytes]) -> Ensemble:
    about: list[SavedMember] = strict_json.read(
        files["ensemble.json"], Annotated[list[SavedMember], Length(1, 100)], "ensemble.json"
    )
    if not math.isclose(sum(member["weight"] for member in about), 1, abs_tol=1e-6):
        raise ValueError("ensemble.json: expected weights that sum to 1, got others")
    members = []
    for i, member in enumerate(about):
        prefix = f"member-{i}-"
        own = {name.removeprefix(prefix): data for name, data in files.items() if name.startswith(prefix)}
        members.append(Member(member["name"], float(member["weight"]), load_scorer(member["kind"], own)))
    return Ensemble(members)


def find_tree_files(files: dict[str, bytes]) -> dict[str, Backend]:
    """Return the files that hold boosted trees, and the library of each."""
    return {name: _SUFFIXES[suffix] for name in files if (suffix := name.rpartition(".")[2]) in _SUFFIXES}


_SUFFIXES: dict[str, Backend] = {"ubj": "xgboost", "txt": "lightgbm"}
