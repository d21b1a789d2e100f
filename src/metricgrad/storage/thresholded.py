"""A saved ``ThresholdedClassifier``: the classifier that it wraps, as it was given and fitted, by skops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad.estimators.thresholded import ThresholdedClassifier
from metricgrad.storage.codec import Written
from metricgrad.storage.skops_files import dump, load

if TYPE_CHECKING:
    from collections.abc import Sequence

_WRAPPED = "estimator.skops"


class ThresholdedCodec:
    """The codec of ``ThresholdedClassifier``."""

    kind: Any = ThresholdedClassifier
    in_files: tuple[str, ...] = ("estimator",)

    def write(self, estimator: ThresholdedClassifier) -> Written:
        both = {"estimator": estimator.estimator, "estimator_": estimator.estimator_}
        return Written(files={_WRAPPED: dump(both)})

    def read(self, manifest: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
        return {}

    def restore(
        self,
        parameters: dict[str, Any],
        fitted: dict[str, Any],
        manifest: dict[str, Any],
        files: dict[str, bytes],
        trusted: Sequence[str],
    ) -> ThresholdedClassifier:
        both = load(files, _WRAPPED, trusted)
        if not isinstance(both, dict) or both.keys() != {"estimator", "estimator_"}:
            raise ValueError(f"folder: expected two estimators in {_WRAPPED}, got {type(both).__name__}")
        estimator = ThresholdedClassifier(both["estimator"], **parameters)
        estimator.__dict__.update(fitted, estimator_=both["estimator_"])
        return estimator
