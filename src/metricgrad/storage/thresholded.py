"""A saved ``ThresholdedClassifier``: the classifier that it wraps, fitted and not, is written by skops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad.estimators.thresholded_classifier import ThresholdedClassifier
from metricgrad.storage.codec import Written
from metricgrad.storage.skops_files import dump, load

if TYPE_CHECKING:
    from metricgrad.storage.codec import Saved
    from metricgrad.storage.folders import Files
    from metricgrad.storage.manifests import Attributes, Manifest

_WRAPPED = "estimator.skops"


class ThresholdedCodec:
    """The codec of ``ThresholdedClassifier``."""

    kind: Any = ThresholdedClassifier
    in_files: tuple[str, ...] = ("estimator",)

    def write(self, estimator: ThresholdedClassifier) -> Written:
        both = {"estimator": estimator.estimator, "estimator_": estimator.estimator_}
        return Written(files={_WRAPPED: dump(both)})

    def read(self, manifest: Manifest, files: Files) -> Attributes:
        return {}

    def restore(self, saved: Saved) -> ThresholdedClassifier:
        both = load(saved.files, _WRAPPED, saved.trusted)
        if not isinstance(both, dict) or both.keys() != {"estimator", "estimator_"}:
            raise ValueError(f"folder: expected two estimators in {_WRAPPED}, got {type(both).__name__}")
        estimator = ThresholdedClassifier(both["estimator"], **saved.parameters)
        estimator.__dict__.update(saved.fitted, estimator_=both["estimator_"])
        return estimator
