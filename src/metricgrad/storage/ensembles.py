"""A saved ``MetricEnsembleClassifier``: members of ours as folders within the folder, the others in files.

Logistic regressions and forests have files of their own, all others are written by skops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import pandas as pd

from metricgrad import strict_json
from metricgrad.estimators.array_encoder import ArrayEncoder
from metricgrad.estimators.candidates import METRIC_ESTIMATORS
from metricgrad.estimators.cross_fitting import Member
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
from metricgrad.storage import folders, skops_files
from metricgrad.storage.codec import Written
from metricgrad.storage.manifests import list_unwritten
from metricgrad.storage.table_encoders import read_encoder, write_encoder
from metricgrad.storage.values import decode, encode
from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from metricgrad.estimators.labels import Labels
    from metricgrad.storage.codec import Saved
    from metricgrad.storage.folders import Files
    from metricgrad.storage.manifests import Attributes, Manifest, SavedEnsemble, SavedMember

_SCALER, _ENCODER = "scaler.skops", "encoder/"


class SavedCandidate(TypedDict):
    """A row of ``candidates_``."""

    name: str
    weight: float
    value: float
    seconds: float


class EnsembleCodec:
    """The codec of ``MetricEnsembleClassifier``.

    ``pack`` and ``unpack``: how an estimator of ours becomes files, and how it is made of a manifest and files.
    """

    kind: Any = MetricEnsembleClassifier
    in_files: tuple[str, ...] = ()

    def __init__(self, pack: Callable[[Any], Files], unpack: Callable[..., Any]) -> None:
        self.pack, self.unpack = pack, unpack

    def write(self, estimator: MetricEnsembleClassifier) -> Written:
        files = _write_encoder(estimator.encoder_)
        for i, member in enumerate(estimator.members_):
            try:
                files |= self._write_member(f"member-{i}", member.models)
            except ValueError as error:
                raise ValueError(f"estimators: {member.name!r} cannot be saved: {error}") from error
        return Written({"ensemble": _about(estimator)}, files)

    def _write_member(self, name: str, models: list[Any]) -> Files:
        ours = models[0]
        if not isinstance(ours, METRIC_ESTIMATORS):
            from metricgrad.storage import forests, linear_models

            plain = linear_models.write_models(models, name) or forests.write_forests(models, name)
            return plain or {f"{name}.skops": skops_files.dump(models)}
        if callable(getattr(ours, "model", None)):
            raise ValueError("its network is of your own making")
        return {f"{name}/{file}": data for file, data in self.pack(ours).items()}

    def read(self, manifest: Manifest, files: Files) -> Attributes:
        about = manifest["ensemble"]
        table = decode(about["candidates"])
        strict_json.check(table, list[SavedCandidate], f"{folders.MANIFEST}: candidates")
        weights = {member["name"]: float(member["weight"]) for member in about["members"]}
        if len(weights) < len(about["members"]) or not np.isclose(sum(weights.values()), 1, atol=1e-6):
            raise ValueError(f"{folders.MANIFEST}: members: expected names of their own and weights that sum to 1")
        return {
            "weights_": weights,
            "select_by_": about["select_by"],
            "_candidates_table": table,
        }

    def restore(self, saved: Saved) -> MetricEnsembleClassifier:
        files, labels = saved.files, saved.fitted["labels_"]
        members = []
        for i, about in enumerate(saved.manifest["ensemble"]["members"]):
            if about["kind"] == "scikit-learn":
                models = _read_models(files, f"member-{i}", saved.trusted)
            else:
                models = [self._restore_ours(files, f"member-{i}", about, labels)]
            members.append(Member(about["name"], float(about["weight"]), about["view"], models))
        estimator = MetricEnsembleClassifier(**saved.parameters)
        estimator.__dict__.update(saved.fitted, members_=members, encoder_=_read_encoder(files))
        _try_members(estimator)
        return estimator

    def _restore_ours(self, files: Files, folder: str, about: SavedMember, labels: Labels) -> Any:
        """Return one of our estimators, of the same labels as the ensemble."""
        own = {name.removeprefix(f"{folder}/"): data for name, data in files.items() if name.startswith(f"{folder}/")}
        manifest, inner = folders.unpack_files(own, folder)
        if manifest.get("estimator") != about["kind"]:
            got = str(manifest.get("estimator"))[:80]
            raise ValueError(f"folder: expected a {about['kind']} in {folder}, got {got!r}")
        # A function or a module cannot be written; only fitting needs it.
        model = self.unpack(manifest, inner, None, **dict.fromkeys(list_unwritten(manifest)))
        if model.labels_.task != labels.task or not np.array_equal(model.labels_.classes, labels.classes):
            raise ValueError(f"folder: expected the classes of the ensemble in {folder}, got {model.labels_.classes!r}")
        return model


def _read_models(files: Files, name: str, trusted: Sequence[str]) -> list[Any]:
    """Return the models of a member of scikit-learn, of which only the part is imported that they need."""
    if f"{name}.json" in files:
        from metricgrad.storage import linear_models

        return linear_models.read_models(files, name)
    if f"{name}.forests.json" in files:
        from metricgrad.storage import forests

        return forests.read_forests(files, name)
    models = skops_files.load(files, f"{name}.skops", trusted)
    if not isinstance(models, list) or not models:
        raise ValueError(f"folder: expected a list of models in {name}.skops, got {type(models).__name__}")
    return models


def _write_encoder(encoder: Any) -> Files:
    """Return the files of what encodes the features, none for estimators that take them as they are given."""
    if encoder is None:
        return {}
    if isinstance(encoder, ArrayEncoder):
        return {_SCALER: skops_files.dump(encoder.scaler)}
    return {f"{_ENCODER}{name}": data for name, data in write_encoder(encoder).items()}


def _read_encoder(files: Files) -> Any:
    if _SCALER in files:
        return ArrayEncoder(skops_files.load(files, _SCALER, ("numpy.dtype",)))
    own = {name.removeprefix(_ENCODER): data for name, data in files.items() if name.startswith(_ENCODER)}
    if not own:
        return None
    try:
        return read_encoder(own)
    except ValueError as error:  # which starts with the name of a file
        raise ValueError(f"folder: {_ENCODER}{error}") from error


def _about(estimator: MetricEnsembleClassifier) -> SavedEnsemble:
    members: list[Any] = [
        {
            "name": member.name,
            "weight": member.weight,
            "view": member.view,
            "kind": type(member.models[0]).__name__
            if isinstance(member.models[0], METRIC_ESTIMATORS)
            else "scikit-learn",
        }
        for member in estimator.members_
    ]
    return {
        "members": members,
        "candidates": encode(estimator._candidates_table),
        "select_by": estimator.select_by_,
    }


def _make_row(estimator: MetricEnsembleClassifier) -> Any:
    """Return a row of zeros, or of a table a row of missing cells, as the encoder takes it."""
    if isinstance(estimator.encoder_, ArrayEncoder):
        return np.zeros((1, estimator.n_features_in_))
    names = [] if estimator.encoder_ is None else [column.name for column in estimator.encoder_.columns_]
    return estimator.encoder_.read(pd.DataFrame({name: [None] for name in names})) if names else None


def _try_members(estimator: MetricEnsembleClassifier) -> None:
    """Let the default members score one row: what was forged must not wait for the first prediction to fail."""
    labels = estimator.labels_
    wanted = labels.scores_shape(1)
    try:
        row = _make_row(estimator)
        encoder = estimator.encoder_
        encoded = [member for member in estimator.members_ if member.view != "given"]
        scores = [member.scores(encoder.encode(row, member.view), labels) for member in encoded]
    except Exception as error:  # the parts may raise anything
        raise ValueError(f"folder: its members cannot score a row: {first_line(error)}") from error
    if any(tuple(one.shape) != tuple(wanted) or not one.isfinite().all() for one in scores):
        raise ValueError(f"folder: expected scores of shape {tuple(wanted)} from every member")
