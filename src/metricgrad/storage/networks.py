"""A saved ``MetricClassifier``: the weights of its networks as safetensors, its scaler by skops."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

from metricgrad.estimators.metric_classifier import MetricClassifier
from metricgrad.storage import folders
from metricgrad.storage.codec import Written
from metricgrad.storage.manifests import HISTORY, Networks, read_history
from metricgrad.storage.skops_files import dump, load
from metricgrad.storage.values import decode, encode
from metricgrad.strict_json import first_line
from metricgrad.training.networks import build_network
from metricgrad.training.training_loop import compute_logits

if TYPE_CHECKING:
    from metricgrad.storage.codec import Saved
    from metricgrad.storage.folders import Files
    from metricgrad.storage.manifests import Attributes, Manifest

_WEIGHTS, _SCALER = "weights.safetensors", "scaler.skops"


class NetworkCodec:
    """The codec of ``MetricClassifier``."""

    kind: Any = MetricClassifier
    in_files: tuple[str, ...] = ()

    def write(self, estimator: MetricClassifier) -> Written:
        about = _describe_networks(estimator)
        past = {"history": estimator._histories, "steps": getattr(estimator, "_steps", 0)}
        files = {_WEIGHTS: _dump_weights(estimator.networks_), HISTORY: folders.as_json(encode(past))}
        if estimator.scaler_ is not None:
            files[_SCALER] = dump(estimator.scaler_)
        return Written({"networks": about}, files)

    def read(self, manifest: Manifest, files: Files) -> Attributes:
        past = read_history(files, manifest["networks"]["count"], steps=True)
        return {"_histories": past["history"], "_steps": past["steps"]}

    def restore(self, saved: Saved) -> MetricClassifier:
        scaler = load(saved.files, _SCALER) if _SCALER in saved.files else None
        if not isinstance(scaler, StandardScaler | None):
            raise ValueError(f"folder: expected a StandardScaler in {_SCALER}, got {type(scaler).__name__}")
        estimator = MetricClassifier(**saved.parameters)
        estimator.__dict__.update(saved.fitted, scaler_=scaler)
        estimator.networks_ = _load_networks(estimator, saved.files, saved.manifest["networks"])
        return estimator


def _describe_networks(estimator: MetricClassifier) -> Networks:
    networks, own = estimator.networks_, callable(estimator.model)
    if not own and any(_list_shapes(network) != _list_shapes(_make_empty_network(estimator)) for network in networks):
        raise ValueError(f"model: expected what the networks were fitted with, got {estimator.model!r}, set since")
    return {
        "count": len(networks),
        "architecture": str(networks[0]).splitlines(),
        "logits_for_ones": encode(_logits_for_ones(networks, estimator.n_features_in_)) if own else None,
    }


def _dump_weights(networks: list[nn.Module]) -> bytes:
    states = {f"{i}.{key}": value for i, net in enumerate(networks) for key, value in net.state_dict().items()}
    for key, value in states.items():
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"networks_: expected a state of tensors, got {type(value).__name__} in {key!r}")
    # Copies: safetensors takes no two that share memory, as tied weights do.
    return safetensors.torch.save(
        {key: value.clone(memory_format=torch.contiguous_format) for key, value in states.items()}
    )


def _load_networks(estimator: MetricClassifier, files: Files, about: Networks) -> list[nn.Module]:
    try:
        tensors = safetensors.torch.load(files[_WEIGHTS])
    except (KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"folder: {_WEIGHTS} cannot be read: {first_line(error)}") from error
    own = callable(estimator.model)
    networks = []
    for i in range(about["count"]):
        state = {key.removeprefix(f"{i}."): value for key, value in tensors.items() if key.startswith(f"{i}.")}
        network = _make_empty_network(estimator)
        wanted, got = {key: tuple(value.shape) for key, value in state.items()}, _list_shapes(network)
        if differ := sorted(key for key in wanted | got if wanted.get(key) != got.get(key)):
            key = differ[0]
            raise ValueError(f"model: expected {key!r} of shape {wanted.get(key)} as saved, got {got.get(key)}")
        if own:
            network.load_state_dict(state)
        else:  # the network has no memory yet: copies of the weights become its own
            kinds = {key: value.dtype for key, value in network.state_dict().items()}
            copies = {key: value.to(kinds[key], copy=True) for key, value in state.items()}
            network.load_state_dict(copies, assign=True)
        networks.append(network.eval())
    logits = _logits_for_ones(networks, estimator.n_features_in_) if own else None
    if own and not _are_close(decode(about["logits_for_ones"]), logits):
        raise ValueError("model: the weights fit but the outputs differ; pass the architecture that was saved")
    return networks


def _make_empty_network(estimator: MetricClassifier) -> nn.Module:
    """Return a network to put weights into: ours without memory, so that sizes in a file are checked before use."""
    labels = estimator.labels_
    arguments: Any = estimator.model, estimator.n_features_in_, labels.outputs, estimator.dropout, labels.task
    with torch.random.fork_rng(devices=[]):
        if callable(estimator.model):
            return copy.deepcopy(build_network(*arguments))
        with torch.device("meta"):
            return build_network(*arguments)


def _list_shapes(network: nn.Module) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in network.state_dict().items()}


def _logits_for_ones(networks: list[nn.Module], features: int) -> list[Any]:
    """Return the logits of a row of ones: the same weights in another architecture (tanh for ReLU) give others."""
    return [compute_logits(network, torch.ones(1, features)).flatten().tolist() for network in networks]


def _are_close(saved: Any, found: Any) -> bool:
    try:
        return np.allclose(saved, found, 1e-3, 1e-4, equal_nan=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"folder: expected logits of {np.shape(found)} in {folders.MANIFEST}") from error
