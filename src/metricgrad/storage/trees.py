"""A saved ``MetricBoostingClassifier``: its trees as their library writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad import strict_json
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier
from metricgrad.integrations.boosting.hooks import check_backend
from metricgrad.integrations.boosting.libraries import LIBRARIES, import_library
from metricgrad.storage import folders
from metricgrad.storage.codec import Written
from metricgrad.storage.manifests import HISTORY, Boosters, Categories, read_history
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from metricgrad.integrations.boosting.hooks import Backend
    from metricgrad.storage.codec import Saved
    from metricgrad.storage.folders import Files
    from metricgrad.storage.manifests import Attributes, Manifest


class TreesCodec:
    """The codec of ``MetricBoostingClassifier``."""

    kind: Any = MetricBoostingClassifier
    in_files: tuple[str, ...] = ()

    def write(self, estimator: MetricBoostingClassifier) -> Written:
        backend = estimator.backend_
        about = _describe_boosters(estimator)
        files = {
            _name_file(backend, i): LIBRARIES[backend].dump(booster) for i, booster in enumerate(estimator.boosters_)
        }
        files[HISTORY] = folders.as_json(encode({"history": estimator._histories}))
        return Written({"boosters": about}, files, {backend: import_library(backend).__version__})

    def read(self, manifest: Manifest, files: Files) -> Attributes:
        about = manifest["boosters"]
        history = read_history(files, len(about["rounds"]))["history"]
        score = decode(about["base_score"])
        categories = decode(about["categories"])
        strict_json.check(categories, Categories, f"{folders.MANIFEST}: categories")
        if not np.isfinite(np.asarray(score, dtype=float)).all():
            raise ValueError(f"{folders.MANIFEST}: base_score: expected numbers, got {score!r}")
        return {
            "backend_": check_backend(about["backend"]),
            "n_estimators_": about["rounds"],
            "base_score_": score,
            "categories_": categories,
            "_histories": history,
        }

    def restore(self, saved: Saved) -> MetricBoostingClassifier:
        backend = saved.fitted["backend_"]
        count = len(saved.fitted["n_estimators_"])
        estimator = MetricBoostingClassifier(**saved.parameters)
        estimator.__dict__.update(
            saved.fitted, boosters_=_load_boosters(backend, count, saved.parameters.get("n_jobs"), saved.files)
        )
        return estimator


def _describe_boosters(estimator: MetricBoostingClassifier) -> Boosters:
    try:
        return {
            "backend": estimator.backend_,
            "rounds": encode(estimator.n_estimators_),
            "base_score": encode(estimator.base_score_),
            "categories": encode(estimator.categories_),
        }
    except NotPlainError as error:
        raise ValueError(f"estimator: its categories must be plain data: {error}") from error


def _load_boosters(backend: Backend, count: int, n_jobs: int | None, files: Files) -> list[Any]:
    boosters = []
    for name in (_name_file(backend, i) for i in range(count)):
        try:
            boosters.append(LIBRARIES[backend].load(files[name], n_jobs))
        except ImportError:
            raise
        except Exception as error:  # each library has its own
            raise ValueError(f"folder: {name} cannot be read: {first_line(error)}") from error
    return boosters


def _name_file(backend: Backend, i: int) -> str:
    return f"booster-{i}.{LIBRARIES[backend].suffix}"
