"""The model of a run: a data frame in, scores and decisions out; written to a folder and read back without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np

from metricgrad import strict_json
from metricgrad.comparison.contenders import scorers
from metricgrad.comparison.contenders.scorers import Goal, Scorer
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.trained_rows import TrainedRows
from metricgrad.comparison.tree_sandbox import Trial
from metricgrad.core.batch import check_task
from metricgrad.core.metrics import get
from metricgrad.core.metrics.constraints import parse
from metricgrad.decisions.rules import Offsets, Rule
from metricgrad.estimators.table_encoder import Encoder
from metricgrad.integrations.boosting.libraries import imported
from metricgrad.storage import folders
from metricgrad.storage.values import decode, encode
from metricgrad.strict_json import Length, Line, Name, Sha256

if TYPE_CHECKING:
    import pandas as pd

    from metricgrad.comparison.report.payload import Shipped
    from metricgrad.comparison.tables.gaps import Gaps

_ESTIMATOR = "estimator/"


class OneRule(TypedDict):
    """A decision rule, the goal it was tuned for, the rows it was tuned on, and its value and plateaus there."""

    rule: Any
    metric: Name
    average: Literal["macro", "micro", "weighted", "samples"]
    subject_to: Line | None
    kind: Literal["fixed", "tuned"]
    tuned_on: Line
    value_there: float
    plateaus: NotRequired[list[tuple[float, float] | None]]


class RuleFile(OneRule):
    """The rule in use, and the previous ones."""

    previous: NotRequired[list[OneRule]]


class ModelFile(TypedDict):
    """The contents of a model's manifest. The rule is part of it, so that it is replaced together with its hash."""

    format: int
    contender: Name
    kind: Literal["Prior", "Linear", "Trees", "Estimator", "Ensemble"]
    rule: RuleFile
    files: Annotated[dict[Name, Sha256], Length(1, 100_000)]


@dataclass(eq=False)
class Model:
    """A fitted contender with its schema, encoder and decision rule.

    ``about``: the metric, average and constraint that the rule was tuned for, the rows it was tuned on, its value
    there, and for each threshold from where to where others are hardly worse.
    """

    schema: Schema
    encoder: Encoder
    scorer: Scorer
    contender: str
    rule: Rule
    about: dict[str, Any]
    trained_rows: TrainedRows | None = None

    def scores(self, frame: pd.DataFrame, gaps: Gaps | None = None) -> np.ndarray:
        """Return the scores of the rows of a frame as it was read: ``(n,)``, ``(n, classes)`` or ``(n, K)``.

        ``gaps`` counts the cells that cannot be used.
        """
        return self.score_features(self.schema.to_features(frame, gaps))

    def score_features(self, features: pd.DataFrame) -> np.ndarray:
        """Return the scores of features that ``schema.to_features`` returned."""
        found: np.ndarray = self.scorer.scores(self.encoder.transform(features))
        return found

    def decide(self, scores: np.ndarray) -> np.ndarray:
        """Return class indices, or 0/1 per label."""
        return np.asarray(self.rule(scores)).astype(int)

    def describe(self) -> Shipped:
        """Return the rule for people and programs."""
        several = 1 if self.schema.task == "binary" else len(self.schema.classes)
        return describe_rule(self.contender, self.rule, self.about, several)

    @property
    def goal(self) -> Goal:
        """What the rule was tuned for; call ``check_code_was_typed`` before its metric or constraint is looked up."""
        about = {key: self.about[key] for key in ("metric", "average", "subject_to")}
        return Goal(check_task(self.schema.task), len(self.schema.classes), **about)

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Return the contents of the manifest and the files of a model folder."""
        contents = {"contender": self.contender, "kind": type(self.scorer).__name__, "rule": self.pack_rule()}
        files = {
            **self.encoder.to_files(),
            "schema.json": folders.as_json(self.schema.to_json()),
            **{f"{_ESTIMATOR}{name}": data for name, data in self.scorer.files().items()},
        }
        if self.trained_rows is not None:
            files["rows.bin"] = self.trained_rows.to_bytes()
        return contents, files

    def pack_rule(self) -> dict[str, Any]:
        """Return the rule and ``about`` as plain data."""
        return {"rule": encode(self.rule), **self.about}

    @classmethod
    def from_files(cls, manifest: dict[str, Any], files: dict[str, bytes]) -> Model:
        """Return the model of a folder with verified hashes, or raise; trees are tried in another process first."""
        strict_json.check(manifest, ModelFile, "manifest.json")
        inner = {name.removeprefix(_ESTIMATOR): data for name, data in files.items() if name.startswith(_ESTIMATOR)}
        libraries = scorers.find_tree_files(inner)
        trials = [Trial(name, library, inner[name]) for name, library in libraries.items()]
        try:
            schema = Schema.from_json(files["schema.json"])
            encoder = Encoder.from_files(files, schema)
            for library in libraries.values():
                imported(library)  # while the trials run
            for trial in trials:
                trial.finish()
        finally:
            for trial in trials:
                trial.stop()
        about = dict(manifest["rule"])
        rule, scorer = decode_rule(about.pop("rule")), scorers.load_scorer(manifest["kind"], inner)
        trained_rows = TrainedRows.from_bytes(files["rows.bin"]) if "rows.bin" in files else None
        found = cls(schema, encoder, scorer, manifest["contender"], rule, about, trained_rows)
        found.check()
        return found

    def check(self) -> None:
        """Raise unless the parts fit together: send one row through all of them."""
        scores = self.scorer.scores(self.encoder.make_blank())
        expected = (1,) if self.schema.task == "binary" else (1, len(self.schema.classes))
        if scores.shape != expected:
            raise ValueError(f"estimator: expected scores of shape {expected}, got {scores.shape}")
        self.decide(scores)
        self.goal.check_values(self.goal.metric)
        for constraint in parse(self.goal.subject_to):
            if not strict_json.names_code(constraint.metric):
                get(constraint.metric)


def decode_rule(plain: Any) -> Rule:
    """Return the rule that a manifest holds, or raise a ``ValueError``."""
    rule = decode(plain)
    if not isinstance(rule, Rule):
        raise ValueError(f"manifest.json: expected a rule, got {rule!r}")
    return rule


def describe_rule(contender: str, rule: Rule, about: dict[str, Any], thresholds: int) -> Shipped:
    """Return a model's rule for people and programs; ``thresholds``: how many there can be."""
    return {
        "contender": contender,
        "rule": rule.describe(),
        "kind": about["kind"],
        "thresholds": [rule.threshold_of(k) for k in range(thresholds)],
        "plateaus": about.get("plateaus") or [None] * thresholds,
        "offsets": list(rule.offsets) if isinstance(rule, Offsets) else None,
        "tuned_on": about["tuned_on"],
    }
