"""Estimators on disk without pickle: weights as safetensors, trees as their library writes them, the rest as JSON.

scikit-learn's own parts are written by skops.

Loading runs no code from the folder: names in it are looked up in fixed tables. Needs the extra "persistence".
"""

from __future__ import annotations

import copy
import platform
from dataclasses import dataclass, field
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict

import numpy as np
import safetensors.torch
import skops.io
import torch
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted
from skops.io.exceptions import UntrustedTypesFoundException
from torch import nn

from metricgrad.boosting.libraries import LIBRARIES, imported
from metricgrad.boosting.objectives import check_backend
from metricgrad.decisions.rules import Rule
from metricgrad.engine.batch import Task  # noqa: TC001 (read at run time)
from metricgrad.estimators.labels import Labels
from metricgrad.estimators.network import MetricClassifier
from metricgrad.estimators.thresholded import ThresholdedClassifier
from metricgrad.estimators.trees import MetricBoostingClassifier
from metricgrad.storage import folders, records
from metricgrad.storage.records import Length, Line, Name, Range
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.training.loop import scores
from metricgrad.training.networks import build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.boosting.objectives import Backend

_KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (MetricClassifier, MetricBoostingClassifier, ThresholdedClassifier)
}
_LIBRARIES = ("metricgrad", "torch", "numpy", "scikit-learn", "skops", "safetensors")
_WEIGHTS, _SCALER, _HISTORY, _WRAPPED = "weights.safetensors", "scaler.skops", "history.json", "estimator.skops"


# What the JSON files may hold. Any: plain data, which ``decode`` checks.

_Count = Annotated[int, Range(1, 10**9)]


class _Features(TypedDict):
    count: _Count | None
    names: Annotated[list[str], Length(1, 10**7)] | None


class _Tuning(TypedDict):
    rule: Any
    value: Any
    exact: bool
    plateau: Any
    fewest: list[float]
    caution: Annotated[str, Length(0, 10**6)] | None
    text: Annotated[str, Length(0, 10**6)]


class _Networks(TypedDict):
    count: Annotated[int, Range(1, 10_000)]
    architecture: list[str]
    logits_for_ones: list[Any] | None


class _Boosters(TypedDict):
    backend: Literal["xgboost", "lightgbm"]
    rounds: Annotated[list[Annotated[int, Range(0, 10**7)]], Length(1, 10_000)]
    base_score: Any
    categories: Any


class _Manifest(TypedDict):
    format: int
    estimator: Literal["MetricClassifier", "MetricBoostingClassifier", "ThresholdedClassifier"]
    task: Task
    classes: Any
    features: _Features
    rule: Any
    tuning: _Tuning | None
    parameters: Annotated[dict[Name, Any], Length(1, 100)]
    versions: dict[Name, Line]
    networks: NotRequired[_Networks]
    boosters: NotRequired[_Boosters]
    files: dict[str, str]


_History = list[list[dict[str, float]]]
_Categories = dict[Annotated[int, Range(0, 10**9)], list[str | float | bool | None]]
# Of the parameters those that loading itself uses.
_PARAMETERS: dict[str, Any] = {
    "model": str | Annotated[list[_Count], Length(0, 100)],
    "dropout": Annotated[float, Range(0, 1)],
    "n_jobs": int | None,
}


def save(estimator: Any, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write a fitted estimator of this library into a new folder.

    All of it or nothing: the folder is written under another name and then renamed. Parameters that plain data cannot
    hold (a function, a module, a splitter) are named in the manifest and must be given to ``load``.

    Parameters
    ----------
    estimator : MetricClassifier, MetricBoostingClassifier or ThresholdedClassifier
        A fitted one.
    folder : str or Path
        Where to write.
    overwrite : bool, default False
        Replace a folder that holds nothing but what an earlier ``save`` wrote.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ValueError
        If the estimator is of another kind or cannot be written, or the folder exists.

    Examples
    --------
    >>> import tempfile
    >>> model = MetricClassifier(epochs=1, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     again = load(save(model, f"{place}/model"))
    >>> again.classes_
    array(['no', 'yes'], dtype='<U3')

    """
    place = Path(folder).resolve()
    folders.write(place, *_written_out(estimator), overwrite)
    return place


def packed(estimator: Any) -> dict[str, bytes]:
    """Return the files that ``save`` would write."""
    return folders.packed(*_written_out(estimator))


def _written_out(estimator: Any) -> tuple[dict[str, Any], dict[str, bytes]]:
    kind = type(estimator)
    if kind not in _KINDS.values():
        raise ValueError(f"estimator: expected a {' or '.join(_KINDS)}, got {kind.__name__}")
    check_is_fitted(estimator, "rule_")
    contents, files = _common(estimator), {}
    if kind is ThresholdedClassifier:
        files[_WRAPPED] = _packed({"estimator": estimator.estimator, "estimator_": estimator.estimator_})
    elif kind is MetricBoostingClassifier:
        contents["boosters"] = _about_boosters(estimator)
        contents["versions"][estimator.backend_] = imported(estimator.backend_).__version__
        files |= _dumped(estimator.backend_, estimator.boosters_)
        files[_HISTORY] = folders.as_json(encode({"history": estimator._histories}))
    else:
        contents["networks"] = _about_networks(estimator)
        files[_WEIGHTS] = _weights(estimator.networks_)
        files[_HISTORY] = folders.as_json(
            encode({"history": estimator._histories, "steps": getattr(estimator, "_steps", 0)})
        )
        if estimator.scaler_ is not None:
            files[_SCALER] = _packed(estimator.scaler_)
    return contents, files


def load(
    folder: str | Path, model: Any = None, *, trusted: Sequence[str] = (), **parameters: Any
) -> MetricClassifier | MetricBoostingClassifier | ThresholdedClassifier:
    """Return the estimator that ``save`` wrote; it predicts the same, bit for bit on the same machine.

    The hashes find damage, not forgery: a stranger's folder may predict anything, and forged trees may crash the parser
    of XGBoost or LightGBM, but it runs no code unless you trust its types. See SECURITY.md. Folders of an older format
    are rewritten by ``metricgrad convert``.

    Parameters
    ----------
    folder : str or Path
        What ``save`` wrote.
    model : nn.Module or callable, optional
        The module, or function of (inputs, outputs), if the networks were of your own making; the weights come from the
        folder.
    trusted : sequence of str, default ()
        Names of types in a wrapped classifier to trust, besides those that skops trusts.
    **parameters : Any
        The other parameters that the folder does not hold (``metric=``, ``loss=``, ...); None will do for one that only
        fitting needs.

    Returns
    -------
    MetricClassifier, MetricBoostingClassifier or ThresholdedClassifier
        The fitted estimator.

    Raises
    ------
    ValueError
        If files are missing or changed, the format is another one, or a parameter or a trusted type is missing.

    """
    return restored(*folders.read(Path(folder)), model, trusted=trusted, **parameters)


def restored(
    manifest: dict[str, Any],
    files: dict[str, bytes],
    model: Any = None,
    *,
    trusted: Sequence[str] = (),
    **parameters: Any,
) -> MetricClassifier | MetricBoostingClassifier | ThresholdedClassifier:
    """Do as ``load`` for a manifest and files that were read and verified already."""
    kind, written, fitted = checked(manifest, files)
    held = _completed(written, parameters if model is None else parameters | {"model": model})
    estimator: Any
    if kind is ThresholdedClassifier:
        parts = _unpacked(files, _WRAPPED, trusted)
        if not isinstance(parts, dict) or parts.keys() != {"estimator", "estimator_"}:
            raise ValueError(f"folder: expected two estimators in {_WRAPPED}, got {type(parts).__name__}")
        estimator, fitted["estimator_"] = kind(parts["estimator"], **held), parts["estimator_"]
    elif kind is MetricBoostingClassifier:
        backend, count = fitted["backend_"], len(fitted["n_estimators_"])
        estimator, fitted["boosters_"] = kind(**held), _boosters(backend, count, held.get("n_jobs"), files)
    else:
        estimator, fitted["scaler_"] = kind(**held), _unpacked(files, _SCALER) if _SCALER in files else None
        if not isinstance(fitted["scaler_"], StandardScaler | None):
            raise ValueError(f"folder: expected a StandardScaler in {_SCALER}, got {type(fitted['scaler_']).__name__}")
    vars(estimator).update(fitted)
    if kind is MetricClassifier:
        estimator.networks_ = _networks(estimator, files, manifest["networks"])
    return estimator  # type: ignore[no-any-return]


def checked(manifest: dict[str, Any], files: dict[str, bytes]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return the estimator's class, its parameters and fitted attributes, as far as the JSON files hold them."""
    try:
        records.check(manifest, _Manifest, folders.MANIFEST)
        kind, fitted = _KINDS[manifest["estimator"]], _fitted(manifest)
        written = {key: _parameter(key, data) for key, data in manifest["parameters"].items()}
        if unknown := written.keys() - (signature(kind).parameters.keys() - {"estimator"}):
            raise ValueError(f"{folders.MANIFEST}: expected the parameters of {kind.__name__}, got {min(unknown)!r}")
        if kind is MetricBoostingClassifier:
            fitted |= _around_boosters(manifest["boosters"], files)
        if kind is MetricClassifier:
            past = _past(files, steps=True)
            fitted |= {"_histories": past["history"], "_steps": past["steps"]}
            _check_count(past["history"], manifest["networks"]["count"])
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RuntimeError) as error:
        raise ValueError(f"folder: expected contents as mg.save writes them, got {_line(error)}") from error
    return kind, written, fitted


def _past(files: dict[str, bytes], steps: bool) -> Any:
    """Return the history of training, and after how many steps partial_fit goes on."""
    found = decode(records.read(files[_HISTORY], dict[str, Any], _HISTORY))
    records.check(found.get("history"), _History, f"{_HISTORY}: history")
    if steps:
        records.check(found.get("steps"), Annotated[int, Range(0, 2**63)], f"{_HISTORY}: steps")
    return found


def _check_count(history: list[Any], count: int) -> None:
    if len(history) != count:
        raise ValueError(f"{_HISTORY}: expected the history of {count} models, got {len(history)}")


@dataclass(frozen=True)
class TuningSummary:
    """What a folder keeps of a ``Tuning``: not the rows it was tuned on, so no ``interval`` and no ``out_of_bag``."""

    rule: Rule
    value: Any
    exact: bool
    plateau: Any
    fewest: list[float]
    caution: str | None
    text: str = field(repr=False)

    @property
    def threshold(self) -> Any:
        """The threshold: a number, or one per class; for a multi-class problem the offsets."""
        return self.rule.numbers

    def __str__(self) -> str:
        return self.text


# What all estimators have


def _common(estimator: Any) -> dict[str, Any]:
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
            "tuning": tuning and {key: encode(getattr(tuning, key)) for key in keys} | {"text": str(tuning)},
            "parameters": {key: _written(key, value) for key, value in parameters.items() if key != "estimator"},
            "versions": {"python": platform.python_version()} | {library: version(library) for library in _LIBRARIES},
        }
    except NotPlainError as error:
        raise ValueError(f"estimator: its classes and rule must be plain data: {error}") from error


def _fitted(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes that ``_common`` wrote."""
    classes, features, tuning = decode(manifest["classes"]), manifest["features"], manifest["tuning"]
    if not isinstance(classes, np.ndarray) or len(classes) < (1 if manifest["task"] == "multilabel" else 2):
        raise ValueError(f"{folders.MANIFEST}: classes: expected an array of at least two, got {classes!r}")
    labels = Labels.of(manifest["task"], classes)
    fitted = {
        "labels_": labels,
        "classes_": classes,
        "rule_": _rule(manifest["rule"], labels),
        "tuning_": tuning and TuningSummary(**decode(tuning) | {"rule": _rule(tuning["rule"], labels)}),
    }
    if features["count"] is not None:
        fitted["n_features_in_"] = features["count"]
    elif manifest["estimator"] != "ThresholdedClassifier":
        raise ValueError(f"{folders.MANIFEST}: features: expected their count, got none")
    if features["names"] is not None:
        if features["count"] not in (None, len(features["names"])):
            raise ValueError(f"{folders.MANIFEST}: features: expected {features['count']} names")
        fitted["feature_names_in_"] = np.array(features["names"], dtype=object)
    return fitted


def _rule(data: Any, labels: Labels) -> Rule:
    """Return a rule, tried on one row: it must fit the number of classes."""
    rule = decode(data)
    if not isinstance(rule, Rule):
        raise ValueError(f"{folders.MANIFEST}: rule: expected one of this library, got {rule!r}")
    rule(torch.full((1,) if labels.task == "binary" else (1, labels.outputs), 0.5, dtype=torch.float64))
    return rule


# Parameters


@dataclass(frozen=True)
class _Absent:
    """The place of a parameter that could not be written."""

    was: str


def _written(key: str, value: Any) -> Any:
    try:
        data = encode(value)
        if key not in _METRICS or not records.names_code(data):
            return data
    except NotPlainError:
        pass
    return {"type": "not written", "was": " ".join(repr(value).split())[:200]}


def _parameter(key: str, data: Any) -> Any:
    if isinstance(data, dict) and data.get("type") == "not written":
        return _Absent(str(data["was"]))
    if key in _METRICS and records.names_code(data):
        raise ValueError(f"{folders.MANIFEST}: {key}: expected no code to import, got {str(data)[:200]}")
    value = decode(data)
    records.check(value, _PARAMETERS.get(key, Any), f"{folders.MANIFEST}: {key}")
    return value


_METRICS = ("metric", "subject_to")
"""The parameters in which fitting would import a "package.module:function"."""


def _completed(written: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with the given ones in the place of those that could not be written."""
    absent = {key: value.was for key, value in written.items() if isinstance(value, _Absent)}
    for key in given.keys() - absent.keys():
        raise ValueError(f"{key}: expected only what the folder does not hold ({sorted(absent)}), got {given[key]!r}")
    if missing := [key for key in absent if key not in given]:
        them, what = (", ".join(parts) for parts in (missing, (absent[key] for key in missing)))
        hint = "" if missing == ["model"] else "; None will do where only fitting needs it"
        raise ValueError(f"{them}: the folder cannot hold {what}; pass {them} to mg.load{hint}")
    return written | given


# Networks


def _about_networks(estimator: MetricClassifier) -> dict[str, Any]:
    networks, own = estimator.networks_, callable(estimator.model)
    if not own and any(_shapes(network) != _shapes(_blank(estimator)) for network in networks):
        raise ValueError(f"model: expected what the networks were fitted with, got {estimator.model!r}, set since")
    return {
        "count": len(networks),
        "architecture": str(networks[0]).splitlines(),
        "logits_for_ones": encode(_logits_for_ones(networks, estimator.n_features_in_)) if own else None,
    }


def _weights(networks: list[nn.Module]) -> bytes:
    states = {f"{i}.{key}": value for i, net in enumerate(networks) for key, value in net.state_dict().items()}
    for key, value in states.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"networks_: expected a state of tensors, got {type(value).__name__} in {key!r}")
    # Copies: safetensors takes no two that share memory, as tied weights do.
    return safetensors.torch.save(
        {key: value.clone(memory_format=torch.contiguous_format) for key, value in states.items()}
    )


def _networks(estimator: MetricClassifier, files: dict[str, bytes], about: dict[str, Any]) -> list[nn.Module]:
    try:
        tensors = safetensors.torch.load(files[_WEIGHTS])
    except (KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"folder: {_WEIGHTS} cannot be read: {_line(error)}") from error
    own = callable(estimator.model)
    networks = []
    for i in range(about["count"]):
        state = {key.removeprefix(f"{i}."): value for key, value in tensors.items() if key.startswith(f"{i}.")}
        network = _blank(estimator)
        wanted, got = {key: tuple(value.shape) for key, value in state.items()}, _shapes(network)
        if differ := sorted(key for key in wanted | got if wanted.get(key) != got.get(key)):
            key = differ[0]
            raise ValueError(f"model: expected {key!r} of shape {wanted.get(key)} as saved, got {got.get(key)}")
        network = network if own else network.to_empty(device="cpu")
        network.load_state_dict(state)
        networks.append(network.eval())
    logits = _logits_for_ones(networks, estimator.n_features_in_) if own else None
    if own and not _close(decode(about["logits_for_ones"]), logits):
        raise ValueError("model: the weights fit but the outputs differ; pass the architecture that was saved")
    return networks


def _blank(estimator: MetricClassifier) -> nn.Module:
    """Return a network to put weights into: ours without memory, so that sizes in a file are checked before use."""
    model, inputs, outputs = estimator.model, estimator.n_features_in_, estimator.labels_.outputs
    if not callable(model):
        with torch.device("meta"):
            return build(model, inputs, outputs, estimator.dropout)
    with torch.random.fork_rng(devices=[]):
        return copy.deepcopy(build(model, inputs, outputs, estimator.dropout))


def _shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in network.state_dict().items()}


def _logits_for_ones(networks: list[nn.Module], features: int) -> list[Any]:
    """Return the logits of a row of ones: the same weights in another architecture (tanh for ReLU) give others."""
    return [scores(network, torch.ones(1, features)).flatten().tolist() for network in networks]


def _close(saved: Any, found: Any) -> bool:
    try:
        return np.allclose(saved, found, 1e-3, 1e-4, equal_nan=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"folder: expected logits of {np.shape(found)} in {folders.MANIFEST}") from error


# Boosted trees


def _about_boosters(estimator: MetricBoostingClassifier) -> dict[str, Any]:
    try:
        return {
            "backend": estimator.backend_,
            "rounds": encode(estimator.n_estimators_),
            "base_score": encode(estimator.base_score_),
            "categories": encode(estimator.categories_),
        }
    except NotPlainError as error:
        raise ValueError(f"estimator: its categories must be plain data: {error}") from error


def _around_boosters(about: dict[str, Any], files: dict[str, bytes]) -> dict[str, Any]:
    """Return the attributes of fitted trees, but for the trees."""
    history, score, categories = (
        _past(files, steps=False)["history"],
        *map(decode, (about["base_score"], about["categories"])),
    )
    _check_count(history, len(about["rounds"]))
    records.check(categories, _Categories, f"{folders.MANIFEST}: categories")
    if not np.isfinite(np.asarray(score, dtype=float)).all():
        raise ValueError(f"{folders.MANIFEST}: base_score: expected numbers, got {score!r}")
    return {
        "backend_": check_backend(about["backend"]),
        "n_estimators_": about["rounds"],
        "base_score_": score,
        "categories_": categories,
        "_histories": history,
    }


def _dumped(backend: Backend, boosters: list[Any]) -> dict[str, bytes]:
    return {_booster_file(backend, i): LIBRARIES[backend].dump(booster) for i, booster in enumerate(boosters)}


def _boosters(backend: Backend, count: int, n_jobs: int | None, files: dict[str, bytes]) -> list[Any]:
    boosters = []
    for name in (_booster_file(backend, i) for i in range(count)):
        try:
            boosters.append(LIBRARIES[backend].load(files[name], n_jobs))
        except ImportError:
            raise
        except Exception as error:  # each library has its own
            raise ValueError(f"folder: {name} cannot be read: {_line(error)}") from error
    return boosters


def _booster_file(backend: Backend, i: int) -> str:
    return f"booster-{i}.{LIBRARIES[backend].suffix}"


# scikit-learn's parts


def _packed(part: Any) -> bytes:
    try:
        data: bytes = skops.io.dumps(part)
        skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))  # some of what it writes it cannot read
        return data
    except Exception as error:  # skops has its own, and so has whatever lies in the part
        raise ValueError(f"estimator: skops cannot write it: {_line(error)}") from error


def _unpacked(files: dict[str, bytes], name: str, trusted: Sequence[str] = ()) -> Any:
    try:
        return skops.io.loads(files[name], trusted=list(trusted))
    except UntrustedTypesFoundException as error:
        types = skops.io.get_untrusted_types(data=files[name])
        raise ValueError(
            f"trusted: expected {types}, if you trust whoever wrote {name}; got {list(trusted)}"
        ) from error
    except Exception as error:
        raise ValueError(f"folder: {name} cannot be read: {_line(error)}") from error


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
