"""A saved estimator predicts as before, bit for bit; what was changed is refused, and nothing from a folder is run."""

from __future__ import annotations

import hashlib
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import scipy.sparse as sp
import skops.io
import torch
from sklearn.datasets import make_classification, make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from torch import nn

import metricgrad as mg
from damage import change, cuts, flips, reseal
from metricgrad.core.metrics.constraints import Constraint
from metricgrad.decisions import Argmax, ExpectedFBeta, Offsets, Rule, Threshold, TopK, WeightedTopK
from metricgrad.public_names import homes
from metricgrad.storage import folders
from metricgrad.storage.values import NotPlainError, decode, encode

QUICK: dict[str, Any] = {"epochs": 2, "random_state": 0, "batch_size": 64, "cv": None}


def data(task: str = "binary") -> Any:
    if task == "multilabel":
        return make_multilabel_classification(240, 6, n_classes=3, random_state=0)
    classes = 3 if task == "multiclass" else 2
    return make_classification(240, 6, n_informative=4, n_classes=classes, flip_y=0.1, random_state=0)


def equal(a: Any, b: Any, X: Any) -> None:
    for method in ("predict_scores", "predict_proba", "predict"):
        if hasattr(a, method):
            one, two = getattr(a, method)(X), getattr(b, method)(X)
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two)
    assert a.rule_ == b.rule_
    assert a.classes_.dtype == b.classes_.dtype
    np.testing.assert_array_equal(a.classes_, b.classes_)


@pytest.fixture
def fitted() -> Any:
    return mg.MetricClassifier(**QUICK).fit(*data())


@pytest.fixture
def folder(fitted: Any, tmp_path: Path) -> Path:
    return mg.save(fitted, tmp_path / "model")


def forge(folder: Path, **changes: Any) -> None:
    """Change a manifest, and its hash with it, as somebody with bad intent would."""
    change(folder / "manifest.json", lambda manifest: manifest | changes)
    reseal(folder)


# What survives


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("binary", {"metric": "f0.5", "dropout": 0.3, "class_weight": {0: 1.0, 1: 2.0}}),
        ("binary", {"cv": 2, "model": (5, 4), "rule": Threshold(0.3), "surrogate": mg.surrogates.Sigmoid(k=5.0)}),
        ("binary", {"metric": mg.metrics.mcc, "model": "linear", "scale": False, "loss": "metric"}),
        ("multiclass", {"metric": "kappa", "cv": 2, "dropout": 0.1}),
        ("multiclass", {"rule": "fixed", "average": "micro"}),
        ("multilabel", {"cv": 2, "surrogate": mg.surrogates.StraightThrough(mg.surrogates.Linear(width=0.5))}),
        ("multilabel", {"rule": ExpectedFBeta(2.0), "weight_average": 0.9}),
    ],
)
def test_predictions_and_parameters_survive(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    X, y = data(task)
    model = mg.MetricClassifier(**QUICK | options).fit(X, y)
    state = torch.random.get_rng_state()
    again = mg.load(mg.save(model, tmp_path / "model"))
    assert torch.equal(torch.random.get_rng_state(), state)
    equal(model, again, X)
    assert again.get_params() == model.get_params()
    pd.testing.assert_frame_equal(again.history_, model.history_)
    twice = mg.load(mg.save(again, tmp_path / "again"))
    equal(model, twice, X)
    assert twice.tuning_ == again.tuning_
    equal(model.set_params(warm_start=True).fit(X, y), again.set_params(warm_start=True).fit(X, y), X)


@pytest.mark.parametrize(
    "names",
    [
        np.array([-3, 7]),
        np.array([False, True]),
        np.array(["ill", "wohlauf, gänzlich"]),
        np.array(["ill", "well"], dtype=object),
        np.array([1.0, 2.0], dtype=np.float32),
        np.array([1, 2], dtype=np.uint8),
    ],
)
def test_classes_keep_their_type(names: Any, tmp_path: Path) -> None:
    X, y = data()
    model = mg.MetricClassifier(**QUICK).fit(X, names[y])
    equal(model, mg.load(mg.save(model, tmp_path / "model")), X)
    wrapped = mg.ThresholdedClassifier(LogisticRegression(), cv=2).fit(X, names[y])
    equal(wrapped, mg.load(mg.save(wrapped, tmp_path / "wrapped")), X)


def test_feature_names_survive(tmp_path: Path) -> None:
    X, y = data()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = mg.MetricClassifier(**QUICK).fit(frame, y)
    again = mg.load(mg.save(model, tmp_path / "model"))
    assert again.feature_names_in_.dtype == object
    assert list(again.feature_names_in_) == list("abcdef")
    equal(model, again, frame)
    with pytest.raises(ValueError, match="feature names should match"):
        again.predict(frame[list("fedcba")])


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_tuning_survives_as_plain_data(task: str, tmp_path: Path) -> None:
    model = mg.MetricClassifier(**QUICK, validation_fraction=0.4).fit(*data(task))
    again = mg.load(mg.save(model, tmp_path / "model")).tuning_
    for name in ("rule", "value", "exact", "plateau", "fewest", "caution", "threshold"):
        assert getattr(again, name) == getattr(model.tuning_, name)
    assert str(again) == str(model.tuning_)
    assert not hasattr(again, "_batch"), "no rows in the folder"


def test_partial_fit_goes_on_as_if_never_saved(tmp_path: Path) -> None:
    X, y = data()
    model = mg.MetricClassifier(**QUICK).partial_fit(X[:100], y[:100], classes=[0, 1])
    again = mg.load(mg.save(model, tmp_path / "model"))
    assert again.tuning_ is None
    equal(model.partial_fit(X[100:], y[100:]), again.partial_fit(X[100:], y[100:]), X)


def test_sparse_features(tmp_path: Path) -> None:
    X, y = data()
    X = sp.csr_matrix(np.where(np.abs(X) < 1, 0, X))
    model = mg.MetricClassifier(**QUICK).fit(X, y)
    again = mg.load(mg.save(model, tmp_path / "model"))
    equal(model, again, X)
    with pytest.raises(ValueError, match="expecting 6 features"):
        again.predict(X[:, :5])


@pytest.mark.parametrize(
    ("task", "estimator", "options", "trusted"),
    [
        ("binary", LogisticRegression(), {"subject_to": "recall>=0.6", "confidence": 0.9}, []),
        ("binary", make_pipeline(StandardScaler(), RidgeClassifier()), {"subject_to": [Constraint("recall", 0.5)]}, []),
        ("multiclass", LogisticRegression(), {"metric": "f2"}, []),
        ("multilabel", RandomForestClassifier(3, random_state=0), {"shared": True}, ["sklearn.tree._tree.Tree"]),
    ],
)
def test_thresholded(task: str, estimator: Any, options: dict[str, Any], trusted: list[str], tmp_path: Path) -> None:
    X, y = data(task)
    model = mg.ThresholdedClassifier(estimator, cv=2, **options).fit(X, y)
    again: Any = mg.load(mg.save(model, tmp_path / "model"), trusted=trusted)
    equal(model, again, X)
    assert again.n_features_in_ == 6
    assert repr(again) == repr(model)
    assert again.tuning_.value == model.tuning_.value
    assert not hasattr(again.estimator, "classes_"), "the parameter stays unfitted"


def test_thresholded_prefit_stays_one_object(tmp_path: Path) -> None:
    X, y = data()
    model = mg.ThresholdedClassifier(LogisticRegression().fit(X, y), cv="prefit").fit(X, y)
    again = mg.load(mg.save(model, tmp_path / "model"))
    assert again.estimator is again.estimator_
    equal(model, again, X)


# What the user must give


def wide(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, outputs))


def narrow(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, outputs))


def smooth(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, outputs))


class Tied(nn.Module):
    """Two names for one weight, which safetensors refuses unless it is copied."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(6, 6)
        self.two = nn.Linear(6, 6)
        self.two.weight = self.one.weight
        self.last = nn.Linear(6, 1)

    def forward(self, x: Any) -> Any:
        return self.last(self.two(self.one(x).relu()).relu())


def test_networks_of_the_users_take_their_weights_from_the_folder(tmp_path: Path) -> None:
    X, y = data()
    model = mg.MetricClassifier(model=wide, **QUICK | {"cv": 2}).fit(X, y)
    folder = mg.save(model, tmp_path / "model")
    for given in (wide, wide(6, 1)):
        state = torch.random.get_rng_state()
        again: Any = mg.load(folder, given)
        assert torch.equal(torch.random.get_rng_state(), state)
        equal(model, again, X)
        assert again.model is given
    with pytest.raises(ValueError, match=r"^model: the folder cannot hold <function wide.*pass model to mg.load$"):
        mg.load(folder)
    with pytest.raises(ValueError, match=r"^model: expected '0.bias' of shape \(5,\) as saved, got \(4,\)$"):
        mg.load(folder, narrow)
    with pytest.raises(ValueError, match=r"^model: the weights fit but the outputs differ"):
        mg.load(folder, smooth)
    tied = mg.MetricClassifier(model=Tied(), **QUICK).fit(X, y)
    again = mg.load(mg.save(tied, tmp_path / "tied"), Tied())
    equal(tied, again, X)
    assert again.networks_[0].one.weight is again.networks_[0].two.weight


def test_what_the_folder_cannot_hold_is_asked_for(tmp_path: Path) -> None:
    X, y = data()

    def mine(c: Any) -> Any:
        return mg.metrics.f1(c)

    loss, cv = mg.baselines.focal(), StratifiedKFold(2)
    model = mg.MetricClassifier(mine, loss=loss, **QUICK | {"cv": cv}).fit(X, y)
    folder = mg.save(model, tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"^cv, loss, metric: the folder cannot hold StratifiedKFold\(.*, .*, <function"
    ):
        mg.load(folder)
    wanted = r"^loss: the folder cannot hold .*; pass loss to mg.load; None is enough where only fitting needs it$"
    with pytest.raises(ValueError, match=wanted):
        mg.load(folder, metric=mine, cv=cv)
    again = mg.load(folder, metric=mine, loss=loss, cv=cv)
    equal(model, again, X)
    assert again.get_params() == model.get_params()
    equal(model, mg.load(folder, metric=None, loss=None, cv=None), X)
    with pytest.raises(ValueError, match=r"^epochs: expected only what the folder does not hold \(\['cv', 'loss', 'me"):
        mg.load(folder, metric=mine, loss=loss, cv=cv, epochs=7)


def test_a_metric_to_import_is_never_imported_by_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil_metric.py").write_text("from metricgrad.metrics import f1")
    monkeypatch.syspath_prepend(tmp_path)
    model = mg.MetricClassifier("evil_metric:f1", **QUICK).fit(*data())
    wrapped = mg.ThresholdedClassifier(LogisticRegression(), subject_to="evil_metric:f1>=0.1", cv=2).fit(*data())
    folder, other = mg.save(model, tmp_path / "model"), mg.save(wrapped, tmp_path / "wrapped")
    del sys.modules["evil_metric"]
    with pytest.raises(ValueError, match=r"^metric: the folder cannot hold 'evil_metric:f1'; pass metric to"):
        mg.load(folder)
    with pytest.raises(ValueError, match=r"^subject_to: the folder cannot hold 'evil_metric:f1>=0.1'; pass"):
        mg.load(other)
    assert mg.load(folder, metric="evil_metric:f1").metric == "evil_metric:f1"
    forgeries: list[tuple[Path, dict[str, Any]]] = [
        (folder, {"metric": "evil_metric:f1"}),
        (folder, {"metric": ["evil_metric:f1"]}),
        (other, {"subject_to": ["evil_metric:f1 >= 0"]}),
        (other, {"subject_to": [["f1>=0", {"evil_metric:f1": 0}]]}),
        (other, {"subject_to": {"type": "Constraint", "metric": "evil_metric:f1", "bound": 0}}),
    ]
    for place, changes in forgeries:
        forge(place, parameters=json.loads((place / "manifest.json").read_text())["parameters"] | changes)
        with pytest.raises(ValueError, match=r"expected no code to import, got .*evil_metric"):
            mg.load(place)
    assert "evil_metric" not in sys.modules


# What is refused


def test_damage_is_refused(folder: Path) -> None:
    for name in ("weights.safetensors", "scaler.skops", "history.json"):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        with pytest.raises(ValueError, match=rf"^folder: {name} in '.*' was changed since it was written \(its sha256"):
            mg.load(folder)
        path.unlink()
        with pytest.raises(ValueError, match=rf"^folder: expected a file '{name}' in '.*model', got none$"):
            mg.load(folder)
        path.write_bytes(before)
    path = folder / "manifest.json"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"macro"', b'"micro"'))
    with pytest.raises(ValueError, match=r"^folder: manifest.json in '.*' was changed since it was written"):
        mg.load(folder)
    for text in (b"", b"[]", b"{}", b"\xff", before[:100]):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=r"^folder: expected one with a manifest.json by mg.save, got '.*model'$"):
            mg.load(folder)
    path.unlink()
    for place in (folder, folder / "nowhere"):
        with pytest.raises(ValueError, match=r"^folder: expected one with a manifest.json by mg.save, got"):
            mg.load(place)


@pytest.mark.parametrize("damage", [flips, cuts])
def test_every_damaged_byte_is_refused(damage: Any, folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("xgboost")
    boosted = mg.MetricBoostingClassifier(n_estimators=2, random_state=0, cv=None, n_jobs=1).fit(*data())
    for place in (folder, mg.save(boosted, tmp_path / "boosted")):
        for _ in damage(place, 100):
            with pytest.raises(ValueError, match=r"^folder: (?s:[^\n]*)$"):
                mg.load(place)
        mg.load(place)


def test_forged_numbers_and_depths_are_refused(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    parameters, networks = manifest["parameters"], manifest["networks"]
    deep: Any = 0
    for _ in range(100):
        deep = [deep]
    for changes in (
        {"classes": {"type": "array", "dtype": "int64", "items": [0, 2**63]}},
        {"classes": {"type": "array", "dtype": "uint8", "items": [0, 300]}},
        {"classes": {"type": "array", "dtype": "int64", "items": ["0", "1"]}},
        {"classes": {"type": "array", "dtype": "int64", "items": [0]}},
        {"classes": [0, 1]},
        {"features": {"count": -3, "names": None}},
        {"features": {"count": None, "names": None}},
        {"features": {"count": 6, "names": ["a"]}},
        {"networks": networks | {"count": 0}},
        {"networks": networks | {"count": 2**62}},
        {"parameters": parameters | {"model": [2**62]}},
        {"parameters": parameters | {"model": [True]}},
        {"rule": {"type": "Threshold", "threshold": [0.5, 0.5]}},
        {"rule": {"type": "TopK", "k": 2**62}},
        {"rule": {"type": "float", "text": "1e9"}},
        {"tuning": {"rule": None}},
        {"versions": 3},
        {"more": 1},
    ):
        forge(folder, **manifest | changes)
        with pytest.raises(ValueError, match=r"^folder: expected contents as mg.save writes them, got ") as caught:
            mg.load(folder)
        assert "\n" not in str(caught.value)
        (folder / "manifest.json").write_bytes(folders.as_json(manifest))
    forge(folder, **manifest | {"parameters": parameters | {"class_weight": deep}})
    with pytest.raises(ValueError, match=r"^folder: manifest.json in '.*': expected values nested at most 48 deep"):
        mg.load(folder)


def test_newer_formats_are_refused(folder: Path) -> None:
    forge(folder, format=folders.FORMAT + 1)
    with pytest.raises(
        ValueError, match=r"^folder: expected format 1, got the newer 2; upgrade metricgrad to load it$"
    ):
        mg.load(folder)


def test_unknown_names_are_refused_and_not_looked_up_elsewhere(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    parameters = manifest["parameters"]
    for changes in (
        {"estimator": "subprocess.Popen"},
        {"estimator": "Labels"},
        {"rule": {"type": "subprocess.Popen", "args": "true"}},
        {"rule": {"type": "Threshold", "cut": 1}},
        {"rule": {"type": "metric", "name": "os:system"}},
        {"rule": {"type": "Linear"}},
        {"task": "regression"},
        {"classes": {"type": "array", "dtype": "f8,i4", "items": []}},
        {"parameters": parameters | {"surrogate": {"type": "SizeHead", "features": 1, "labels": 1}}},
        {"parameters": parameters | {"added_later": 1}},
        {"networks": None},
    ):
        forge(folder, **manifest | changes)
        with pytest.raises(ValueError, match=r"^folder: expected contents as mg.save writes them, got "):
            mg.load(folder)
    forge(folder, **manifest | {"parameters": parameters | {"model": [10**9, 10**9]}})
    with pytest.raises(ValueError, match=r"^model: expected '0.bias' of shape \(256,\) as saved, got \(1000000000,\)"):
        mg.load(folder)
    forge(folder, **manifest)
    mg.load(folder)


def test_names_that_could_not_be_read_are_not_written(tmp_path: Path) -> None:
    for name in ("../other", "/etc/passwd", "a/b/c/d/e", "a//b", ".hidden", "a b", "manifest.json", ""):
        with pytest.raises(ValueError, match=r"^files: expected names of letters"):
            folders.write(tmp_path / "new", {}, {name: b""})
    folders.write(tmp_path / "new", {}, {"a.bin": b"1", "inner/b-0.bin": b"2"})
    assert folders.read(tmp_path / "new")[1] == {"a.bin": b"1", "inner/b-0.bin": b"2"}
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_files_outside_the_folder_are_not_read(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder.parent / "other").write_bytes(b"")
    forge(folder, **manifest | {"files": {**manifest["files"], "../other": "0" * 64}})
    with pytest.raises(ValueError, match=r"^folder: expected a file '../other' in"):
        mg.load(folder)


def test_forged_parts_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "weights.safetensors").write_bytes(b"\x80\x04.")  # a pickle
    forge(folder)
    with pytest.raises(ValueError, match=r"^folder: weights.safetensors cannot be read: SafetensorError"):
        mg.load(folder)
    (folder / "scaler.skops").write_bytes(skops.io.dumps(FunctionTransformer(np.log1p)))
    forge(folder)
    with pytest.raises(
        ValueError, match=r"^folder: expected a StandardScaler in scaler.skops, got FunctionTransformer"
    ):
        mg.load(folder)
    (folder / "scaler.skops").write_bytes(b"\x80\x04.")
    forge(folder)
    with pytest.raises(ValueError, match=r"^folder: scaler.skops cannot be read: BadZipFile"):
        mg.load(folder)


def test_types_are_trusted_one_by_one(tmp_path: Path) -> None:
    X, y = data()
    model = mg.ThresholdedClassifier(RandomForestClassifier(2, random_state=0), cv=2).fit(X, y)
    folder = mg.save(model, tmp_path / "model")
    with pytest.raises(ValueError, match=r"^trusted: expected \['sklearn.tree._tree.Tree'\], if you trust whoever .*$"):
        mg.load(folder)
    with pytest.raises(ValueError, match=r"^trusted: "):
        mg.load(folder, trusted=["sklearn.tree._tree.Forest"])


def test_nothing_is_unpickled(fitted: Any, folder: Path, tmp_path: Path) -> None:
    wrapped = mg.save(mg.ThresholdedClassifier(LogisticRegression(), cv=2).fit(*data()), tmp_path / "wrapped")
    seen: set[str] = set()
    watching = True

    def watch(event: str, _: Any) -> None:  # it cannot be removed, only told to stop
        if watching:
            seen.add(event)

    sys.addaudithook(watch)
    loads = [mg.load(folder), mg.load(wrapped)]
    assert "open" in seen
    assert not seen & {"pickle.find_class", "os.system", "subprocess.Popen", "socket.connect"}
    pickle.loads(pickle.dumps(fitted))  # noqa: S301
    watching = False
    assert "pickle.find_class" in seen, "it would have been noticed"
    equal(fitted, loads[0], data()[0])


# How it is written


def test_the_manifest_reads_well(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(path.name for path in folder.iterdir()) == sorted([*manifest["files"], "manifest.json"])
    assert manifest["format"] == folders.FORMAT
    assert manifest["estimator"] == "MetricClassifier"
    assert manifest["task"] == "binary"
    assert manifest["classes"] == {"type": "array", "dtype": "int64", "items": [0, 1]}
    assert manifest["features"] == {"count": 6, "names": None}
    assert manifest["rule"]["type"] == "Threshold"
    assert manifest["parameters"]["metric"] == "f1"
    assert manifest["parameters"]["average"] == "macro"
    assert manifest["versions"]["torch"] == torch.__version__
    for name, sha256 in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256


def test_nothing_is_overwritten_unasked(fitted: Any, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^folder: '.*model' exists; choose another, or pass overwrite=True$"):
        mg.save(fitted, folder)
    other = mg.MetricClassifier("recall", scale=False, **QUICK).fit(*data())
    mg.save(other, folder, overwrite=True)
    assert mg.load(folder).metric == "recall"
    assert not (folder / "scaler.skops").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(
        ValueError, match=r"^folder: overwrite=True would delete 'notes.txt', which mg.save did not wri"
    ):
        mg.save(fitted, folder, overwrite=True)
    with pytest.raises(ValueError, match=r"^folder: overwrite=True replaces only what mg.save wrote, got '"):
        mg.save(fitted, folder.parent, overwrite=True)
    with pytest.raises(ValueError, match=r"^folder: overwrite=True replaces only what mg.save wrote, got '"):
        mg.save(fitted, folder / "notes.txt", overwrite=True)
    with pytest.raises(ValueError, match=r"^folder: expected a place in a folder that exists, got '"):
        mg.save(fitted, folder.parent / "nowhere" / "model")
    assert mg.load(folder).metric == "recall"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("method", ["write_bytes", "rename"])
def test_failing_half_way_leaves_nothing_behind(
    overwrite: bool, method: str, fitted: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second write, and the rename of the new folder into its place.
    fails_at = 2 if method == "write_bytes" else 1 + overwrite
    calls: list[Any] = []
    real = getattr(Path, method)

    def failing(self: Path, *args: Any) -> Any:
        calls.append(self)
        if len(calls) == fails_at:
            raise OSError("disk full")
        return real(self, *args)

    monkeypatch.setattr(Path, method, failing)
    with pytest.raises(OSError, match="disk full"):
        mg.save(fitted, folder if overwrite else folder.with_name("new"), overwrite=overwrite)
    monkeypatch.undo()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]
    equal(fitted, mg.load(folder), data()[0])


def test_a_folder_made_meanwhile_is_left_alone(fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.write_bytes

    def and_somebody_else(self: Path, data: bytes) -> int:
        (tmp_path / "model").mkdir(exist_ok=True)
        real(tmp_path / "model" / "theirs", b"")
        return real(self, data)

    monkeypatch.setattr(Path, "write_bytes", and_somebody_else)
    with pytest.raises(OSError, match="not empty"):
        mg.save(fitted, tmp_path / "model")
    assert [path.name for path in tmp_path.rglob("*")] == ["model", "theirs"]


class OwnRule(Rule):
    def decide(self, scores: Any) -> Any:
        return scores > 0.4


class OwnClassifier(mg.MetricClassifier):
    pass


def test_what_cannot_be_saved_is_refused(fitted: Any, tmp_path: Path) -> None:
    X, y = data()
    place = tmp_path / "model"
    for estimator, message in (
        (
            LogisticRegression(),
            r"^estimator: expected a MetricClassifier or .* or MetricEnsembleClassifier, got LogisticRegression",
        ),
        (
            OwnClassifier(),
            r"^estimator: expected a MetricClassifier or .* or MetricEnsembleClassifier, got OwnClassifier",
        ),
        (mg.MetricClassifier(rule=OwnRule(), **QUICK).fit(X, y), "^estimator: its classes and rule must be plain data"),
        (
            fitted.set_params(model="linear"),
            "^model: expected what the networks were fitted with, got 'linear', set since",
        ),
        (mg.ThresholdedClassifier(mg.MetricClassifier(**QUICK), cv=2).fit(X, y), "^estimator: skops cannot write it: "),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            mg.save(estimator, place)
        assert "\n" not in str(caught.value)
    with pytest.raises(NotFittedError):
        mg.save(mg.MetricClassifier(), place)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "value",
    [
        *[None, True, -3, 0.1, float("inf"), "ä", [1, (2, [])], {"a": (1,)}, {"type": 1}, {1: "a", (2,): None}],
        *[
            mg.metrics.f1,
            mg.surrogates.TopTwo(),
            Offsets((0.0, float("-inf")), log=True),
            Argmax(),
            TopK(2),
            WeightedTopK(1, (1.0, 2.0), (0.0, -0.5)),
        ],
    ],
)
def test_plain_data_comes_back(value: Any) -> None:
    again = decode(json.loads(folders.as_json(encode(value))))
    assert again == value
    assert type(again) is type(value)


def test_plain_data_is_nothing_else() -> None:
    for value in (object(), print, torch.ones(1), mg.surrogates.LogitSigmoid(torch.ones(2)), {1}, np.ones((2, 2)), 1j):
        with pytest.raises(NotPlainError):
            encode(value)
    assert encode(np.float32(0.5)) == 0.5
    assert np.isnan(decode(encode(float("nan"))))


@pytest.mark.parametrize(
    ("name", "module", "package", "extra"),
    [("save", "storage.skops_files", "skops", "persistence"), ("to_onnx", "storage.onnx", "onnx", "onnx")],
)
def test_a_missing_package_is_named(
    name: str, module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for one in (f"metricgrad.{module}", homes()[name].module, "metricgrad.storage.networks"):
        monkeypatch.delitem(sys.modules, one, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"^{name} needs {package}: pip install 'metricgrad\[{extra}\]'$"):
        getattr(mg, name)


# ONNX


def run(path: Path, X: Any) -> dict[str, Any]:
    onnx.checker.check_model(str(path), full_check=True)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    assert [one.name for one in session.get_inputs()] == ["features"]
    assert names == ["scores", "labels"]
    return dict(zip(names, session.run(names, {"features": X}), strict=True))


def agree(model: Any, path: Path, X: Any) -> Any:
    """Scores to 1e-5, and labels wherever no score is within 1e-6 of where the rule turns."""
    for rows in (X, X[:1], X[:0]):
        found = run(path, rows)
        assert found["labels"].shape == (*found["scores"].shape[:1],) + (
            found["scores"].shape[1:] if model.labels_.task == "multilabel" else ()
        )
        if not len(rows):
            continue
        scores, labels = model.predict_scores(rows), model.predict(rows)
        assert scores.shape == found["scores"].shape
        np.testing.assert_allclose(found["scores"], scores, rtol=0, atol=1e-5)
        clear = np.ones(labels.shape, dtype=bool)
        if isinstance(model.rule_, Threshold):
            clear = np.abs(scores - np.asarray(model.rule_.threshold)) > 1e-6
        assert clear.mean() > 0.9
        np.testing.assert_array_equal(found["labels"][clear], labels[clear])
    return found["labels"].dtype


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("binary", {"dropout": 0.3}),
        ("binary", {"cv": 3, "rule": Threshold(0.37), "model": "mlp-large"}),
        ("binary", {"model": "linear", "scale": False}),
        ("multiclass", {"cv": 2, "validation_fraction": 0.4}),
        ("multiclass", {"rule": Offsets((0.0, 0.4, -0.3), log=True)}),
        ("multiclass", {"rule": Offsets((0.0, 0.1, -0.1), log=False)}),
        ("multiclass", {"rule": "fixed"}),
        ("multilabel", {"rule": Threshold((0.3, 0.5, float("inf"))), "cv": 2}),
        ("multilabel", {"rule": "fixed"}),
        ("multilabel", {"rule": TopK(2)}),
        ("multilabel", {"rule": WeightedTopK(2, (1.0, 3.0, 0.5), (0.0, -0.25, 0.125))}),
    ],
)
def test_onnx_agrees(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    X, y = data(task)
    X = X.astype(np.float32)
    model = mg.MetricClassifier(**QUICK | options).fit(X, y)
    assert agree(model, mg.to_onnx(model, tmp_path / "model.onnx"), X) == np.int64


def test_onnx_of_layers_and_of_a_loaded_estimator(tmp_path: Path) -> None:
    X, y = data()
    X = X.astype(np.float32)
    inner = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8, affine=False), nn.Tanh(), nn.Dropout(0.2))
    twice = nn.Sigmoid()
    module = nn.Sequential(
        nn.BatchNorm1d(6, eps=0.1), twice, nn.Linear(6, 8), twice, inner, nn.Identity(), nn.Linear(8, 1)
    )
    model = mg.MetricClassifier(model=module, **QUICK).fit(X, y)
    agree(model, mg.to_onnx(model, tmp_path / "model.onnx"), X)
    again = mg.load(mg.save(model, tmp_path / "model"), module)
    one, two = (mg.to_onnx(m, tmp_path / name).read_bytes() for m, name in ((model, "1.onnx"), (again, "2.onnx")))
    assert one == two


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (np.array(["ill", "gänzlich"]), object),
        (np.array(["ill", "well"], dtype=object), object),
        (np.array([False, True]), bool),
        (np.array([-3, 7], dtype=np.int16), np.int64),
        (np.array([1.0, 2.0]), np.float64),
    ],
)
def test_onnx_classes(names: Any, dtype: Any, tmp_path: Path) -> None:
    X, y = data()
    X = X.astype(np.float32)
    model = mg.MetricClassifier(**QUICK).fit(pd.DataFrame(X, columns=list("abcdef")), names[y])
    path = mg.to_onnx(model, tmp_path / "model.onnx")
    assert run(path, X)["labels"].dtype == dtype
    frame = pd.DataFrame(X, columns=list("abcdef"))
    np.testing.assert_array_equal(run(path, X)["labels"], model.predict(frame))
    notes = {note.key: note.value for note in onnx.load(path).metadata_props}
    assert json.loads(notes["features"]) == list("abcdef")
    assert json.loads(notes["classes"]) == model.classes_.tolist()


def test_onnx_in_float64_for_features_far_from_zero(tmp_path: Path) -> None:
    X, y = data()
    X = X + 1e9
    model = mg.MetricClassifier(**QUICK).fit(X, y)
    assert agree(model, mg.to_onnx(model, tmp_path / "model.onnx", dtype="float64"), X) == np.int64
    coarse = run(mg.to_onnx(model, tmp_path / "coarse.onnx"), X.astype(np.float32))
    assert np.abs(coarse["scores"] - model.predict_scores(X)).max() > 1e-2, "which is why float64 can be asked for"


def test_onnx_refuses(fitted: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    deep = nn.Sequential(nn.Linear(6, 4), nn.Sequential(nn.GELU(), nn.Linear(4, 1)))

    def fit(task: str = "binary", **options: Any) -> Any:
        return mg.MetricClassifier(**QUICK | options).fit(*data(task))

    for estimator, message in (
        (
            LogisticRegression(),
            "^estimator: expected a MetricClassifier, .*, got LogisticRegression; for others see skl",
        ),
        (
            fit(model=deep),
            "^model: expected layers of Sequential, Linear.*, got GELU at '1.0'; for others see torch.onnx",
        ),
        (fit(model=Tied()), "^model: expected layers of .*, got Tied; "),
        (
            fit("multilabel", rule=ExpectedFBeta()),
            "^rule_: expected a Threshold, TopK, .* that fits multilabel, got Exp",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            mg.to_onnx(estimator, path)
    hooked = fit()
    hooked.networks_[0][0].register_forward_hook(lambda module, args, output: output + 1)
    with pytest.raises(
        ValueError,
        match=r"^estimator: expected scores that follow from what was fitted, got some .* apart; remove hooks",
    ):
        mg.to_onnx(hooked, path)
    with pytest.raises(ValueError, match=r"^dtype: expected 'float32' or 'float64', got 'float16'$"):
        mg.to_onnx(fitted, path, dtype="float16")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^file: expected a place in a folder that exists, got '"):
        mg.to_onnx(fitted, tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(NotFittedError):
        mg.to_onnx(mg.MetricClassifier(), path)
    assert not list(tmp_path.iterdir())
    mg.to_onnx(fitted, path)
    with pytest.raises(ValueError, match=r"^file: '.*model.onnx' exists; choose another, or pass overwrite=True$"):
        mg.to_onnx(fitted, path)
    mg.to_onnx(fitted, path, overwrite=True)
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]


def test_a_loaded_rule_is_tuned_again_for_another_base_rate(tmp_path: Path) -> None:
    X, y = make_classification(400, weights=[0.8], random_state=0)
    model = mg.ThresholdedClassifier(LogisticRegression(), "f2", cv=2).fit(X, y)
    mg.save(model, tmp_path / "model")
    loaded: Any = mg.load(tmp_path / "model")
    assert model.tuning_ is not None
    wanted = model.tuning_.at_prevalence(0.02)
    found = loaded.tuning_.at_prevalence(0.02)
    assert found.threshold == pytest.approx(wanted.threshold)
    assert found.value == pytest.approx(wanted.value)
    mg.save(loaded, tmp_path / "again")
    again: Any = mg.load(tmp_path / "again")
    assert again.tuning_.at_prevalence(0.02).threshold == pytest.approx(wanted.threshold)
    with pytest.raises(ValueError, match="prevalence: expected a share above 0 and below 1, got 2"):
        loaded.tuning_.at_prevalence(2)


def _half(counts: mg.Counts) -> torch.Tensor:
    return 0.5 * counts.tp / (counts.tp + counts.fp + counts.fn + 1)


def test_a_loaded_rule_of_a_metric_that_is_code_says_that_it_cannot_be(tmp_path: Path) -> None:
    X, y = make_classification(200, random_state=0)
    model = mg.ThresholdedClassifier(LogisticRegression(), _half, cv=2).fit(X, y)
    mg.save(model, tmp_path / "model")
    loaded: Any = mg.load(tmp_path / "model", metric=None)
    with pytest.raises(ValueError, match="at_prevalence: expected class-wise scores in the folder, got none"):
        loaded.tuning_.at_prevalence(0.02)
