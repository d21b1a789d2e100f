"""The shipped model: a data frame in, scores and decisions out; written to a folder and read back without pickle.

Whatever the contender, it is a ``MetricEnsembleClassifier``; a single contender is its only member.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import pandas as pd

from metricgrad import strict_json
from metricgrad.comparison.errors import DATA, UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.trained_rows import TrainedRows
from metricgrad.comparison.tree_sandbox import TreeSandbox
from metricgrad.core.batch import check_task
from metricgrad.core.costs import Cost
from metricgrad.core.metrics import get
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.class_scores import ClassScores
from metricgrad.decisions.rules import Offsets, Rule
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
from metricgrad.integrations.boosting.libraries import import_library
from metricgrad.storage import estimators, folders
from metricgrad.storage.manifests import list_unwritten
from metricgrad.storage.values import decode, encode
from metricgrad.strict_json import Length, Line, Name, Range, Sha256

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.tables.gaps import Gaps
    from metricgrad.estimators.table_encoder import Parts
    from metricgrad.integrations.boosting.hooks import Backend

_ESTIMATOR = "estimator/"

_TREE_FILES: dict[str, Backend] = {"ubj": "xgboost", "txt": "lightgbm"}
"""How the names of files of boosted trees end, and the library of each."""


class ShippedRule(TypedDict):
    """The decision rule of the shipped model."""

    contender: str
    rule: str  # in words
    kind: str  # "fixed" or "tuned"
    thresholds: list[float | None]  # one for a binary task, otherwise one per class; None where none decides
    plateaus: NotRequired[list[tuple[float, float] | None]]  # of each threshold, where it was tuned
    offsets: NotRequired[list[float] | None]  # one per class, added to the logarithm of its score; None without
    tuned_on: str
    value_there: NotRequired[float]
    guarantees: NotRequired[list[str]]  # what holds on new rows, with which confidence
    coverage: NotRequired[float | None]  # the share of the rows tuned on that it decides; None if it decides all


class OneRule(TypedDict):
    """A decision rule, the goal it was tuned for, the rows it was tuned on, and its value and plateaus there."""

    rule: Any
    metric: Name
    average: Literal["macro", "micro", "weighted", "samples"]
    subject_to: Line | None
    cost: NotRequired[Line]
    abstain: NotRequired[bool]
    abstain_label: NotRequired[int | Line | None]
    coverage: NotRequired[Annotated[float, Range(0, 1)]]
    kind: Literal["fixed", "tuned"]
    tuned_on: Line
    value_there: float
    plateaus: NotRequired[list[tuple[float, float] | None]]
    guarantees: NotRequired[list[Line]]


class RuleFile(OneRule):
    """The rule in use, and the previous ones."""

    previous: NotRequired[list[OneRule]]


class ModelFile(TypedDict):
    """The contents of a model's manifest. The rule is part of it, so that it is replaced together with its hash."""

    format: int
    contender: Name
    rule: RuleFile
    files: Annotated[dict[Name, Sha256], Length(1, 100_000)]


@dataclass(eq=False)
class ShippedModel:
    """A fitted contender with its schema and decision rule.

    ``about``: the metric, average and constraint that the rule was tuned for, the rows it was tuned on, its value
    there, and for each threshold from where to where others are hardly worse; if rows may be left undecided, the share
    decided there, and what is predicted for the others. ``trained_rows``: hashes of the rows that
    it was trained on. ``class_scores``: a summary of their out-of-fold scores by class, for other base rates.
    """

    schema: Schema
    estimator: MetricEnsembleClassifier
    contender: str
    rule: Rule
    about: dict[str, Any]
    trained_rows: TrainedRows
    class_scores: ClassScores

    def scores(self, frame: pd.DataFrame, gaps: Gaps | None = None) -> np.ndarray:
        """Return the scores of the rows of a frame as it was read: ``(n,)``, ``(n, classes)`` or ``(n, K)``.

        ``gaps`` counts the cells that cannot be used.
        """
        return self.score_parts(self.schema.read_parts(frame, gaps), frame)

    def score_parts(self, parts: Parts, frame: pd.DataFrame) -> np.ndarray:
        """Return the scores of rows that were read: their parts by ``schema.read_parts``, and the frame itself."""
        inputs = self.schema.inputs
        given = frame if list(frame.columns) == inputs else frame[inputs]  # a copy, which takes longer than some models
        found: np.ndarray = self.estimator._score_parts(parts, given).numpy()
        try:
            costs = self.goal.find_costs(frame)
        except ValueError as error:
            raise UserError(str(error), DATA) from error
        return found if costs is None else np.asarray(costs.adjust(found))

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Return class indices, −1 for an undecided row, or 0/1 per label."""
        return np.asarray(self.rule(scores)).astype(int)

    @property
    def members(self) -> dict[str, float]:
        """The weights of the candidates that it averages."""
        return dict(self.estimator.weights_)

    @property
    def width(self) -> int:
        """The largest number of columns that a row is encoded in."""
        encoder = self.estimator.encoder_
        row = self.make_blank_parts()
        views = [view for view in self.estimator._list_views() if view != "given"]
        return max([encoder.encode(row, view).shape[1] for view in views], default=len(self.schema.inputs))

    def make_blank(self) -> pd.DataFrame:
        """Return a table of one row whose cells are missing."""
        blank = pd.DataFrame({name: pd.Series([None], dtype=object) for name in self.schema.inputs})
        # A row must have its costs.
        return blank.assign(**dict.fromkeys(self.goal.cost_columns, 1.0))

    def make_blank_parts(self) -> pd.DataFrame:
        """Return the parts of a row whose cells are missing."""
        return self.schema.to_features(self.make_blank())

    def describe(self) -> ShippedRule:
        """Return the rule for people and programs."""
        several = 1 if self.schema.task == "binary" else len(self.schema.classes)
        return describe_rule(self.contender, self.rule, self.about, several)

    @property
    def goal(self) -> Goal:
        """What the rule was tuned for; call ``check_code_was_typed`` before its metric or constraint is looked up."""
        return Goal.of_rule(check_task(self.schema.task), len(self.schema.classes), self.about)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the contents of the manifest and the files of a model folder."""
        contents = {"contender": self.contender, "rule": self.pack_rule()}
        files = {f"{_ESTIMATOR}{name}": data for name, data in estimators.pack_estimator(self.estimator).items()}
        files["schema.json"] = folders.as_json(self.schema.to_json())
        files["rows.bin"] = self.trained_rows.to_bytes()
        files["class_scores.json"] = folders.as_json(encode(self.class_scores))
        return contents, files

    def pack_rule(self) -> dict[str, Any]:
        """Return the rule and ``about`` as plain data."""
        return {"rule": encode(self.rule), **self.about}

    @classmethod
    def from_files(cls, manifest: dict[str, Any], files: dict[str, bytes], trusted: Sequence[str] = ()) -> ShippedModel:
        """Return the model of a folder with verified hashes, or raise; trees are tried in another process first.

        ``trusted``: names of types in estimators of the user's own that may be made.
        """
        strict_json.check(manifest, ModelFile, "manifest.json")
        inner = {name.removeprefix(_ESTIMATOR): data for name, data in files.items() if name.startswith(_ESTIMATOR)}
        about_estimator, estimator_files = folders.unpack_files(inner, "estimator")
        _try_trees(estimator_files)
        # A function or a module is not saved; only fitting needs it.
        missing = dict.fromkeys(list_unwritten(about_estimator))
        estimator = estimators.restore_estimator(about_estimator, estimator_files, trusted=trusted, **missing)
        if not isinstance(estimator, MetricEnsembleClassifier) or not hasattr(estimator.encoder_, "columns_"):
            raise ValueError(f"estimator: expected an ensemble of tables, got a {type(estimator).__name__}")
        schema = Schema.from_json(files["schema.json"], estimator.encoder_.columns_)
        about = dict(manifest["rule"])
        rule = decode_rule(about.pop("rule"))
        trained_rows = TrainedRows.from_bytes(files["rows.bin"])
        class_scores = decode(strict_json.read(files["class_scores.json"], dict[str, Any], "class_scores.json"))
        found = cls(schema, estimator, manifest["contender"], rule, about, trained_rows, class_scores)
        found.check()
        return found

    def check(self) -> None:
        """Raise unless the parts fit together: send one row through all of them."""
        wanted = (1,) if self.schema.task == "binary" else (1, len(self.schema.classes))
        if self.estimator.labels_.scores_shape(1) != wanted:
            raise ValueError(f"estimator: expected scores of shape {wanted}, got others")
        if "given" not in self.estimator._list_views():  # a contender of the user's own may not take missing cells
            scores = self.scores(self.make_blank())
            if scores.shape != wanted:
                raise ValueError(f"estimator: expected scores of shape {wanted}, got {scores.shape}")
            self.decide(scores)
        labels, columns = (1, len(self.schema.classes)) if self.schema.task == "multiclass" else (wanted[-1], 1)
        fits = isinstance(self.class_scores, ClassScores) and self.class_scores.columns == columns
        if not fits or len(self.class_scores.scores) != labels:
            raise ValueError("class_scores.json: expected the scores of the classes of the model, got others")
        self.goal.check_values(self.goal.metric)
        for constraint in parse(self.goal.subject_to):
            if not strict_json.names_code(constraint.metric):
                get(constraint.metric)


def _try_trees(files: dict[str, bytes]) -> None:
    """Load all boosted trees in other processes, which may die of it, and import their libraries meanwhile."""
    trees: dict[Backend, dict[str, bytes]] = {}
    for name, data in files.items():
        end = name.rpartition(".")[2]
        if end in _TREE_FILES:
            trees.setdefault(_TREE_FILES[end], {})[name] = data
    with ExitStack() as stack:
        sandboxes = [TreeSandbox(library, own) for library, own in trees.items()]
        for sandbox in sandboxes:
            stack.callback(sandbox.stop)
        for library in trees:
            import_library(library)
        for sandbox in sandboxes:
            sandbox.finish()


def decode_rule(plain: Any) -> Rule:
    """Return the rule that a manifest holds, or raise a ``ValueError``."""
    rule = decode(plain)
    if not isinstance(rule, Rule):
        raise ValueError(f"manifest.json: expected a rule, got {rule!r}")
    return rule


def describe_rule(contender: str, rule: Rule, about: dict[str, Any], thresholds: int) -> ShippedRule:
    """Return a model's rule for people and programs; ``thresholds``: how many there can be."""
    has_row_costs = "cost" in about and bool(Cost.from_text(about["cost"]).columns)
    return {
        "contender": contender,
        "rule": rule.describe() + (", on scores moved by the costs of each row" if has_row_costs else ""),
        "kind": about["kind"],
        "thresholds": [rule.threshold_of(k) for k in range(thresholds)],
        "plateaus": about.get("plateaus") or [None] * thresholds,
        "offsets": list(rule.offsets) if isinstance(rule, Offsets) else None,
        "tuned_on": about["tuned_on"],
        "value_there": about["value_there"],
        "guarantees": about.get("guarantees", []),
        "coverage": about.get("coverage"),
    }
