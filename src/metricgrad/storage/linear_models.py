"""Logistic regressions in files: coefficients as safetensors, the rest as JSON.

skops could write them too, but to read them it imports all of scikit-learn, which takes longer than everything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import safetensors.numpy
from sklearn.linear_model import LogisticRegression

from metricgrad import strict_json
from metricgrad.estimators.cross_fitting import flatten_models
from metricgrad.storage import folders
from metricgrad.storage.values import NotPlainError, decode, encode
from metricgrad.strict_json import first_line

if TYPE_CHECKING:
    from metricgrad.storage.folders import Files


class SavedModel(TypedDict):
    """A logistic regression, without its coefficients."""

    parameters: dict[str, Any]
    classes: Any
    iterations: list[int]


class SavedModels(TypedDict):
    """Models, one per fold; of several labels a list of models, or of the only value that a label had."""

    models: list[SavedModel | list[SavedModel | float]]


def write_models(models: list[Any], name: str) -> Files | None:
    """Return the files of a member; None unless its models are logistic regressions."""
    flattened = list(flatten_models(models))
    regressions = [one for one in flattened if not isinstance(one, float)]
    if not regressions or not all(type(one) is LogisticRegression for one in regressions):
        return None
    try:
        saved = [[_about(one) for one in model] if isinstance(model, list) else _about(model) for model in models]
    except NotPlainError:
        return None
    tensors = {}
    for place, one in enumerate(flattened):
        if not isinstance(one, float):
            tensors[f"{place}.coef"] = np.ascontiguousarray(one.coef_)
            tensors[f"{place}.intercept"] = np.ascontiguousarray(one.intercept_)
    return {f"{name}.json": folders.as_json({"models": saved}), f"{name}.safetensors": safetensors.numpy.save(tensors)}


def _about(model: Any) -> Any:
    if isinstance(model, float):
        return model
    return {
        "parameters": encode(model.get_params()),
        "classes": encode(model.classes_),
        "iterations": [int(one) for one in model.n_iter_],
    }


def read_models(files: Files, name: str) -> list[Any]:
    """Return the models that ``write_models`` wrote, or raise a ``ValueError``."""
    saved = strict_json.read(files[f"{name}.json"], SavedModels, f"{name}.json")
    try:
        tensors = safetensors.numpy.load(files[f"{name}.safetensors"])
    except (KeyError, safetensors.SafetensorError) as error:
        raise ValueError(f"folder: {name}.safetensors cannot be read: {first_line(error)}") from error
    place = 0
    models: list[Any] = []
    for about in saved["models"]:
        several = about if isinstance(about, list) else [about]
        found = [_restore(one, tensors, place + k, name) for k, one in enumerate(several)]
        models.append(found if isinstance(about, list) else found[0])
        place += len(several)
    if not models:
        raise ValueError(f"folder: expected models in {name}.json, got none")
    return models


def _restore(about: Any, tensors: dict[str, Any], place: int, name: str) -> Any:
    if isinstance(about, float | int):
        return float(about)
    classes = decode(about["classes"])
    coefficients = tensors.get(f"{place}.coef")
    intercept = tensors.get(f"{place}.intercept")
    rows = 1 if np.size(classes) == 2 else np.size(classes)
    if coefficients is None or intercept is None or coefficients.ndim != 2 or np.ndim(classes) != 1 or rows < 1:
        raise ValueError(f"folder: expected coefficients and classes of model {place} in {name}, got others")
    if coefficients.dtype.kind != "f" or intercept.dtype.kind != "f":
        raise ValueError(f"folder: expected floating-point coefficients of model {place} in {name}, got others")
    if coefficients.shape[0] != rows or intercept.shape != (rows,):
        raise ValueError(f"folder: expected {rows} rows of coefficients of model {place} in {name}, got others")
    try:
        model = LogisticRegression(**decode(about["parameters"]))
    except TypeError as error:
        raise ValueError(f"folder: {name}.json: parameters of model {place}: {first_line(error)}") from error
    model.classes_ = classes
    model.coef_ = coefficients
    model.intercept_ = intercept
    model.n_iter_ = np.array(about["iterations"], dtype=np.int32)
    model.n_features_in_ = coefficients.shape[1]
    return model
