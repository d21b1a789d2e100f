"""A run in MLflow: saved, logged, loaded, and predicting as the study does. Runs where MLflow is installed.

MLflow pins versions that clash with ours. In an environment of its own: pip install -e '.[mlflow]' pytest
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from tables import binary, multiclass, multilabel

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # MLflow warns of its own type hints
    mlflow = pytest.importorskip("mlflow")
    from metricgrad.integrations import mlflow as flavour

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")

FAST: dict[str, Any] = {"contenders": "logistic regression", "repeats": 2, "jobs": 1}
STUDIES: dict[str, Any] = {
    "binary": lambda: (binary(), "ripe", {}),
    "multiclass": lambda: (multiclass(), "kind", {}),
    "multilabel": lambda: (multilabel(), ["label 0", "label 1", "label 2"], {}),
    "costs": lambda: (binary().assign(amount=np.arange(400.0) % 50 + 1), "ripe", {"cost": "fp=5, fn=amount"}),
}


@pytest.fixture(autouse=True)
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A place for runs that is removed again."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logging.getLogger("mlflow").setLevel(logging.ERROR)
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    yield
    mlflow.set_tracking_uri(None)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> mg.Study:
    return mg.compare(binary(), "ripe", out=tmp_path_factory.mktemp("runs") / "run", **FAST)


@pytest.mark.parametrize("name", STUDIES)
def test_a_saved_model_predicts_as_the_study_does(name: str, tmp_path: Path) -> None:
    frame, target, more = STUDIES[name]()
    study = mg.compare(frame, target, **FAST, **more)
    flavour.save_model(study, tmp_path / "model")
    features = frame.drop(columns=target)
    generic = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    again = flavour.load_model(str(tmp_path / "model"))
    for method in ("predict", "predict_scores", "predict_proba"):
        expected = getattr(study.model, method)(features)
        assert np.array_equal(generic.predict(features, params={"method": method}), expected)
        assert np.array_equal(getattr(again, method)(features), expected)
    assert np.array_equal(generic.predict(features), study.model.predict(features))
    assert len(generic.predict(generic.input_example)) == 1


def test_the_signature_has_the_columns_of_the_run(study: mg.Study, tmp_path: Path) -> None:
    flavour.save_model(study.path, tmp_path / "model")
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    names = model.metadata.get_input_schema().input_names()
    assert names == list(study.model.feature_names_in_)
    rows = binary().head(3)
    whole = rows.assign(size=[1, 2, 3])  # MLflow would refuse whole numbers in a column of "double"
    assert list(model.predict(whole)) == list(study.model.predict(whole))
    with pytest.raises(mlflow.exceptions.MlflowException, match="Model is missing inputs"):
        model.predict(rows.drop(columns="size"))
    with pytest.raises(
        ValueError, match=r"^method: expected one of predict, predict_scores, predict_proba, got 'fly'$"
    ):
        model.predict(rows, params={"method": "fly"})


def test_a_logged_model_is_read_from_its_run(study: mg.Study) -> None:
    rows = binary().drop(columns="ripe").head(20)
    with mlflow.start_run():
        info = flavour.log_model(study, "ripeness", input_example=rows.head(2), metadata={"by": "tests"})
    assert np.array_equal(flavour.load_model(info.model_uri).predict(rows), study.model.predict(rows))
    generic = mlflow.pyfunc.load_model(info.model_uri)
    assert np.array_equal(generic.predict(rows), study.model.predict(rows))
    assert generic.metadata.metadata == {"by": "tests"}
    pd.testing.assert_frame_equal(generic.input_example, rows.head(2))


def test_no_training_rows_are_logged(tmp_path: Path) -> None:
    flavour.save_model(mg.compare(binary(), "ripe", **FAST), tmp_path / "model")
    found = {path.name for path in (tmp_path / "model" / "data" / "run").iterdir()}
    assert {"run.json", "model", "summary.json"} <= found
    assert not found & {"frame.parquet", "candidates", "results", "lock"}


def test_damage_and_other_models_are_refused(study: mg.Study, tmp_path: Path) -> None:
    flavour.save_model(study, tmp_path / "model")
    schema = tmp_path / "model" / "data" / "run" / "model" / "schema.json"
    schema.write_bytes(schema.read_bytes() + b" ")
    with pytest.raises(ValueError, match="changed"):
        flavour.load_model(str(tmp_path / "model"))
    with pytest.raises(ValueError, match="changed"):
        mlflow.pyfunc.load_model(str(tmp_path / "model"))
    (tmp_path / "other").mkdir()
    mlflow.models.Model().save(str(tmp_path / "other" / "MLmodel"))
    with pytest.raises(
        ValueError, match=r"^model_uri: expected a model of metricgrad\.integrations\.mlflow, got one of"
    ):
        flavour.load_model(str(tmp_path / "other"))
