"""A run's model for MLflow: a ``pyfunc`` model that holds the run folder, with signature and input example.

Needs the extra "mlflow". Nothing is pickled: MLflow's own file names this module, which opens the run folder as
``mg.load_run`` does.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import mlflow
import mlflow.pyfunc
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, ParamSchema, ParamSpec
from mlflow.types import Schema as MlflowSchema
from mlflow.types.schema import AnyType

from metricgrad import __version__
from metricgrad.comparison.run_writer import INPUTS
from metricgrad.comparison.study import load_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from metricgrad.comparison.shipped_classifier import ShippedClassifier
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.study import Study
    from metricgrad.estimators.columns.column import Column

__all__ = ["load_model", "log_model", "save_model"]

_LEFT_OUT = (*INPUTS, "candidates", "results", "lock")
"""Of a run folder: the training data, if they are there, and scores of their rows."""

Method = Literal["predict", "predict_scores", "predict_proba"]


def save_model(study: Study | str | Path, path: str | Path, *, input_example: Any = None, **options: Any) -> None:
    """Write a run as a model folder of MLflow.

    Parameters
    ----------
    study : Study or path
        What ``mg.compare`` or ``mg.load_run`` returned, or a run folder.
    path : str or Path
        A new folder.
    input_example : DataFrame, optional
        Rows to show as an example; by default one typical row, from the run's description of its columns.
    **options : Any
        Of ``mlflow.pyfunc.save_model``, such as ``metadata=``.

    """
    with _described_model(study, input_example) as about:
        mlflow.pyfunc.save_model(str(path), **about | options)


def log_model(study: Study | str | Path, name: str = "model", *, input_example: Any = None, **options: Any) -> Any:
    """Log a run as a model of MLflow's active run.

    Parameters
    ----------
    study : Study or path
        What ``mg.compare`` or ``mg.load_run`` returned, or a run folder.
    name : str, default 'model'
        The model's name.
    input_example : DataFrame, optional
        Rows to show as an example; by default one typical row, from the run's description of its columns.
    **options : Any
        Of ``mlflow.pyfunc.log_model``, such as ``registered_model_name=``.

    Returns
    -------
    ModelInfo
        As ``mlflow.pyfunc.log_model`` returns it; ``model_uri`` is what ``load_model`` takes.

    """
    with _described_model(study, input_example) as about:
        return mlflow.pyfunc.log_model(name=name, **about | options)


def load_model(model_uri: str, *, trusted: Sequence[str] = ()) -> ShippedClassifier:
    """Return the model that ``save_model`` or ``log_model`` wrote, as ``study.model`` was.

    ``mlflow.pyfunc.load_model`` returns it as MLflow's generic model.

    Parameters
    ----------
    model_uri : str
        A folder, or where MLflow has it: ``"models:/…"``, ``"runs:/…"``.
    trusted : sequence of str, default ()
        Names of types to trust in a model of your own, as in ``mg.load_run``.

    Returns
    -------
    ShippedClassifier
        A fitted scikit-learn classifier of frames and records.

    Raises
    ------
    ValueError
        If it is no such model, or its files were changed.

    """
    folder = Path(mlflow.artifacts.download_artifacts(artifact_uri=str(model_uri)))
    flavour = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
    if flavour.get("loader_module") != __name__:
        raise ValueError(f"model_uri: expected a model of {__name__}, got one of {flavour.get('loader_module')!r}")
    return load_run(folder / flavour["data"], trusted=trusted).model


@contextmanager
def _described_model(given: Study | str | Path, input_example: Any) -> Iterator[dict[str, Any]]:
    """Give what MLflow is told of a run's model, with a copy of what the model needs of the run folder."""
    study = load_run(given) if isinstance(given, str | Path) else given
    model = study.model.model
    example = _make_example(model) if input_example is None else input_example
    # The label of an undecided row has no type.
    outputs = None if study.model.rule_.abstains else infer_signature(None, study.model.predict(example)).outputs
    types = {column.name: _find_type(column) for column in model.schema.columns}
    columns = [ColSpec(types.get(name, AnyType()), name) for name in _list_inputs(model)]
    method = ParamSpec("method", "string", default="predict")
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(study.path, run, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        yield {
            "loader_module": __name__,
            "data_path": str(run),
            "signature": ModelSignature(MlflowSchema(columns), outputs, ParamSchema([method])),
            "input_example": example,
            "pip_requirements": [f"metricgrad[app,mlflow]=={__version__}"],
        }


def _list_inputs(model: ShippedModel) -> list[str]:
    """Return the feature columns and those of costs, which may be among them: MLflow drops what is not named."""
    return list(dict.fromkeys([*model.schema.inputs, *model.goal.cost_columns]))


def _find_type(column: Column) -> Any:
    """Return the type of a column; any for numbers, since MLflow would refuse whole numbers in a column of doubles."""
    return "string" if column.kind == "text" else AnyType()


def _make_example(model: ShippedModel) -> pd.DataFrame:
    """Return a typical row; cells that cannot be told from the description are missing."""
    cells = {column.name: _make_cell(column) for column in model.schema.columns}
    return pd.DataFrame([{name: cells.get(name, 1.0) for name in _list_inputs(model)}])


def _make_cell(column: Column) -> Any:
    if column.kind == "number":
        return column.mean
    if column.kind == "category":
        return column.categories[0]
    if column.kind == "boolean":
        return True
    return "" if column.kind == "text" else None


class _RunModel:
    """What ``mlflow.pyfunc.load_model`` wraps."""

    def __init__(self, model: ShippedClassifier) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> Any:
        """Return labels, or scores if ``params={"method": "predict_scores"}`` says so."""
        method = (params or {}).get("method", "predict")
        if method not in get_args(Method):
            raise ValueError(f"method: expected one of {', '.join(get_args(Method))}, got {method!r}")
        return getattr(self.model, method)(model_input)


def _load_pyfunc(path: str) -> _RunModel:
    """Return the model of a run folder; MLflow calls it."""
    return _RunModel(load_run(path).model)
