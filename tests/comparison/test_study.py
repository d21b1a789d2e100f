"""mg.compare, mg.Study and mg.load_run: the application in Python, against files, the command line and scikit-learn."""

from __future__ import annotations

import gc
import inspect
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone, is_classifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import f1_score, get_scorer, roc_auc_score
from sklearn.utils.validation import check_is_fitted

import metricgrad as mg
from metricgrad.cli import compare as compare_command
from metricgrad.cli.main import main
from metricgrad.comparison import run_writer
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written

ASK: dict[str, Any] = {
    "metric": ["f1", "auroc"],
    "contenders": ["logistic regression", "xgboost"],
    "repeats": 2,
    "jobs": 1,
}


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    make_little(monkeypatch)


def make_little(patch: pytest.MonkeyPatch) -> None:
    shorten_training(patch, 3, 5)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> mg.Study:
    with pytest.MonkeyPatch.context() as patch:
        make_little(patch)
        return mg.compare(binary(), "ripe", out=tmp_path_factory.mktemp("runs") / "run", **ASK)


def found(study: mg.Study) -> tuple[Any, Any]:
    """Return what a study found, without what no two runs share."""
    return study.leaderboard.drop(columns="seconds").to_dict("list"), dict(study.verdict)


def test_frames_of_all_libraries_and_a_file_give_the_same(study: mg.Study, tmp_path: Path) -> None:
    frame = binary()
    expected, later = found(study), binary(50, seed=1)
    scores = study.model.predict_scores(later)
    path = written(frame, tmp_path)
    for data in (pl.from_pandas(frame), pa.Table.from_pandas(frame), Path(path)):
        again = mg.compare(data, "ripe", **ASK)
        np.testing.assert_equal(found(again), expected)
        np.testing.assert_array_equal(again.model.predict_scores(later), scores)
    for same in (
        pl.from_pandas(later),
        pa.Table.from_pandas(later),
        later[later.columns[::-1]].set_index(later.index + 9),
    ):
        np.testing.assert_array_equal(study.model.predict_scores(same), scores)
    out = tmp_path / "run"
    words = [
        "--target",
        "ripe",
        "--metric",
        "f1,auroc",
        "--contenders",
        ",".join(ASK["contenders"]),
        "--repeats",
        "2",
        "--jobs",
        "1",
    ]
    assert main(["compare", path, *words, "--out", str(out)]) == 0
    np.testing.assert_equal(found(mg.load_run(out)), expected)


def test_records_are_predicted_as_a_frame(study: mg.Study) -> None:
    later = binary(40, seed=1)
    expected = study.model.predict_scores(later)
    records = later.to_dict("records")
    as_arrow = pa.Table.from_pandas(later)
    for same in (
        records,
        tuple(records),
        pl.from_pandas(later).to_dicts(),
        as_arrow.to_pylist(),
        as_arrow.to_batches()[0],
    ):
        np.testing.assert_array_equal(study.model.predict_scores(same), expected)
    for place in (0, 7):
        one = later.iloc[place]
        for row in (one, records[place], [records[place]], [one]):
            np.testing.assert_array_equal(study.model.predict_scores(row), expected[place : place + 1])
    assert study.model.predict(records[3]).shape == (1,)
    assert study.model.predict_proba(records[:3]).shape == (3, 2)


def test_records_may_lack_values_and_mix_types(study: mg.Study) -> None:
    records = binary(6, seed=1).to_dict("records")
    shape = records[2].pop("shape")
    records[3]["size"] = str(records[3]["size"])
    records[4]["farm"] = np.int64(records[4]["farm"])
    frame = pd.DataFrame(records)
    assert frame["shape"].isna().sum() == 1
    np.testing.assert_array_equal(study.model.predict_scores(records), study.model.predict_scores(frame))
    records[2]["shape"] = None
    with_none = study.model.predict_scores(records)
    np.testing.assert_array_equal(with_none, study.model.predict_scores(frame))
    records[2]["shape"] = shape
    assert study.model.predict_scores(records[2:3])[0] != with_none[2]


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ([], ValueError, "data: expected at least one record, got an empty list"),
        (
            {"size": [1, 2], "weight": 1, "shape": "flat", "farm": 1, "day": 1},
            ValueError,
            "data: column 'size': expected one value in each record, got a list; pass a frame",
        ),
        ([{"size": 1}, 3], TypeError, r"data: expected a list of records \(dicts\), got a int at 1"),
        ({"size": 1, "weight": 2}, ValueError, "data: expected the feature columns, of which 'shape'"),
        ({1: 2, "1": 3}, ValueError, "data: expected every column name once"),
    ],
)
def test_bad_records_are_refused(study: mg.Study, data: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        study.model.predict(data)


def test_categories_and_numbers_as_names_of_columns() -> None:
    frame = binary().assign(farm=lambda frame: frame["farm"].astype("category"))
    plain = pl.from_pandas(frame.assign(farm=frame["farm"].astype(str))).with_columns(
        pl.col("farm").cast(pl.Categorical)
    )
    ask = {**ASK, "contenders": "logistic regression"}
    one, other = mg.compare(frame, "ripe", **ask), mg.compare(plain, "ripe", **ask)
    assert {column.name: column.kind for column in one.model.model.schema.columns}["farm"] == "category"
    np.testing.assert_equal(found(one), found(other))
    numbered = frame.set_axis(range(6), axis=1)
    assert mg.compare(numbered, "5", **ask).model.predict(numbered.head(3)).shape == (3,)


def test_the_leaderboard_is_that_of_the_summary(study: mg.Study) -> None:
    summary = json.loads((study.path / "summary.json").read_bytes())
    rows, table = summary["leaderboard"], study.leaderboard
    assert study.summary == summary
    for name in ("contender", "rule", "family", "value", "low", "high", "feasible", "held", "seconds"):
        assert [None if pd.isna(one) else one for one in table[name]] == [row[name] for row in rows]
    assert table["auroc"].tolist() == [row["others"]["auroc"] for row in rows]
    gains = [row["against"].get("cross-entropy tuned") for row in rows]
    expected = [np.nan if gain is None else gain["difference"] for gain in gains]
    np.testing.assert_array_equal(table["gain"], expected)
    np.testing.assert_array_equal(table["p"], [np.nan if gain is None else gain["p"] for gain in gains])
    (ships,) = table[table["ships"]].to_dict("records")
    assert (ships["contender"], ships["rule"]) == (study.verdict.ship, study.verdict.rule)


def test_the_verdict_is_printed_as_sentences(study: mg.Study) -> None:
    assert dict(study.verdict) == study.summary["verdict"]
    assert str(study.verdict) == f"{study.verdict['headline']}\n{study.verdict['text']}".strip()
    assert isinstance(study.verdict.proven, bool)
    with pytest.raises(AttributeError, match="a verdict has no 'shop', but headline, "):
        study.verdict.shop  # noqa: B018
    assert study.verdict.headline in repr(study)
    assert "ripe in frame.parquet, 400 rows; f1, 3 contenders, 2 repeats" in repr(study)


TABLES = {
    "binary": (binary, "ripe"),
    "multiclass": (multiclass, "kind"),
    "multilabel": (multilabel, "label 0,label 1,label 2"),
}


@pytest.mark.parametrize("task", TABLES)
def test_the_model_predicts_as_the_command_line_does(task: str, tmp_path: Path) -> None:
    make, target = TABLES[task]
    study = mg.compare(make(), target.split(","), out=tmp_path / "run", **{**ASK, "metric": "f1"})
    later = make(60, seed=1)
    later.iloc[::7, 0] = np.nan
    output = tmp_path / "out.parquet"
    assert main(["predict", str(tmp_path / "run"), written(later, tmp_path), "-o", str(output)]) == 0
    table, model = pd.read_parquet(output), study.model
    labels = table[[name for name in table if name.startswith("prediction")]].to_numpy()
    scores = table[[name for name in table if name.startswith("score")]].to_numpy()
    np.testing.assert_array_equal(model.predict(later).reshape(labels.shape), labels)
    np.testing.assert_allclose(model.predict_scores(later).reshape(scores.shape), scores, rtol=1e-6)
    moved = model.predict_proba(later)
    assert moved.shape == (60, len(model.classes_))
    if task == "multilabel":
        np.testing.assert_array_equal(moved > 0.5, labels == 1)
        assert model.classes_.tolist() == ["label 0", "label 1", "label 2"]
    else:
        np.testing.assert_array_equal(model.classes_[moved.argmax(1)], labels[:, 0])
        np.testing.assert_allclose(moved.sum(1), 1)
        assert model.classes_.tolist() == sorted(model.classes_)
    assert model.predict(later.head(0)).shape == (0, *model.predict(later).shape[1:])


def test_the_model_is_a_classifier_to_scikit_learn(study: mg.Study) -> None:
    model, later = study.model, binary(200, seed=1)
    X, y = later.drop(columns="ripe"), later["ripe"].to_numpy()
    assert is_classifier(model)
    check_is_fitted(model)
    assert clone(model) is model
    assert model.fit(X, y) is model
    assert model.score(X, y) == (model.predict(X) == y).mean()
    auroc = roc_auc_score(y == "yes", model.predict_scores(X))
    assert get_scorer("roc_auc")(model, X, y) == pytest.approx(auroc)
    assert get_scorer("f1_macro")(model, X, y) == pytest.approx(f1_score(y, model.predict(X), average="macro"))
    assert permutation_importance(model, X, y, n_repeats=2, random_state=0).importances_mean.shape == (5,)
    assert model.feature_names_in_.tolist() == ["size", "weight", "shape", "farm"]
    assert model.n_features_in_ == 4
    assert model.rule_.describe() in repr(model)
    assert "predicts ripe from size, weight, shape, farm" in model._repr_mimebundle_()["text/html"]


LOADING = """
import sys
import metricgrad as mg
model = mg.load_run(sys.argv[1]).model
model.predict({"size": 0.3, "weight": 1.0, "shape": "flat", "farm": 3, "day": 100})
slow = {"torch._dynamo", "sympy", "skops.io", "dask", "distributed", "matplotlib", "pytest", "typer", "river"}
print(sorted(slow & sys.modules.keys()))
"""


@pytest.mark.parametrize("ships", ["logistic regression", "hybrid", "xgboost"])
def test_loading_a_model_imports_nothing_slow_that_it_does_not_need(ships: str, tmp_path: Path) -> None:
    study = mg.compare(binary(), "ripe", contenders=ships, ship=ships, repeats=2, jobs=1, out=tmp_path / "run")
    assert study.model.describe().startswith(ships)
    command = [sys.executable, "-c", LOADING, str(study.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_positive_class_may_be_the_first_and_a_boolean() -> None:
    frame = binary()
    ask = {**ASK, "contenders": "logistic regression"}
    study = mg.compare(frame, "ripe", positive="no", **ask)
    assert study.model.classes_.tolist() == ["no", "yes"]
    np.testing.assert_allclose(study.model.predict_proba(frame)[:, 0] > 0.5, study.model.predict(frame) == "no")
    assert get_scorer("roc_auc")(study.model, frame, frame["ripe"]) > 0.7
    truth = frame["ripe"] == "yes"
    flagged = mg.compare(frame.assign(ripe=truth), "ripe", positive=True, **ask).model
    assert flagged.classes_.tolist() == [False, True]
    assert f1_score(truth, flagged.predict(frame)) > 0.3


def test_a_study_is_saved_loaded_and_reported(study: mg.Study, tmp_path: Path) -> None:
    copy = study.save(tmp_path / "copy")
    again = mg.load_run(str(copy))
    assert again.summary == study.summary
    later = binary(20, seed=1)
    np.testing.assert_array_equal(again.model.predict(later), study.model.predict(later))
    assert {path.name for path in copy.iterdir()} == run_writer.RUN_FILES - {"lock", "stdin.csv", "Dockerfile"}
    assert study.report(tmp_path / "page.html").read_bytes() == (study.path / "report.html").read_bytes()
    with pytest.raises(ValueError, match=r"copy: exists already; choose another path$"):
        study.save(copy)
    with pytest.raises(ValueError, match="cannot be written"):
        study.save(tmp_path / "no" / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "page.html"]
    (copy / "report.html").write_text("<p>changed</p>")
    with pytest.raises(ValueError, match=r"report.html was changed since it was written"):
        again.report(tmp_path / "other.html")


def test_a_temporary_run_folder_lives_as_long_as_its_study() -> None:
    study = mg.compare(binary(), "ripe", **{**ASK, "contenders": "majority"})
    path, model = study.path, study.model
    assert (path / "summary.json").is_file()
    del study
    gc.collect()
    assert not path.exists()
    assert len(model.predict(binary(5, seed=1))) == 5


def test_nothing_is_left_of_a_comparison_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="target: expected a column of the data, got 'rip'; did you mean 'ripe'"):
        mg.compare(binary(), "rip", **ASK)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, frame, ask = tmp_path / "run", binary(), {**ASK, "contenders": "majority"}
    with monkeypatch.context() as patch:
        patch.setattr("metricgrad.comparison.run_comparison.rank_contenders", interrupt)
        with pytest.raises(KeyboardInterrupt, match=f"continue with: metricgrad compare --resume {out}$"):
            mg.compare(frame, "ripe", out=out, **ask)
        with pytest.raises(KeyboardInterrupt, match=r"^interrupted; with out= the run could be continued$"):
            mg.compare(frame, "ripe", **ask)
    with pytest.raises(ValueError, match=f"the run is not finished; finish it: metricgrad compare --resume {out}$"):
        mg.load_run(out)
    assert main(["compare", "--resume", str(out), "--jobs", "1"]) == 0
    np.testing.assert_equal(found(mg.load_run(out)), found(mg.compare(frame, "ripe", **ask)))
    assert mg.load_run(out).summary["command"].startswith("metricgrad compare frame.parquet --target ripe")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "target": ({"target": 3}, "target: expected a text or a list of texts, got 3"),
    "comma": ({"target": "a,ripe"}, "target: expected a column of the data, got 'a,ripe'; did you mean 'ripe'?"),
    "commas": (
        {"metric": "f1, mcc"},
        "metric: expected one name, or a list of names, got 'f1, mcc'; write ['f1', 'mcc']",
    ),
    "no target": ({"target": []}, "target: expected a list of length 1 to 1000000, got a list of 0"),
    "beta": ({"metric": "f_beta", "beta": "2"}, "beta: expected a number, or {class: number}, got '2'"),
    "metric": ({"metric": len}, "metric: expected a text or a list of texts, got <built-in function len>"),
    "unknown metric": ({"metric": "f1x"}, "metric: "),
    "repeats": ({"repeats": 1}, "repeats: expected at least 2, got 1"),
    "seed": ({"seed": -1}, "seed: expected "),
    "rows": ({"rows": 0}, "rows: expected "),
    "jobs": ({"jobs": 0}, "jobs: expected a whole number of at least 1, got 0"),
    "budget": ({"budget": -1}, "budget: expected minutes, got -1"),
    "contenders": ({"contenders": "hybird"}, "contenders: unknown contender 'hybird'; did you mean 'hybrid'"),
    "subject_to": ({"subject_to": "precison>=0.9"}, "metric: unknown name 'precison'; did you mean 'precision'?"),
    "group": ({"group": "farms"}, "group and time: expected a column, got 'farms'; did you mean 'farm'"),
    "twice": ({"data": pd.DataFrame([[0, 1]] * 30, columns=["a", "a"])}, "data: expected every column name once"),
    "empty": ({"data": binary().head(0)}, "data: expected rows"),
    "path": ({"data": "no.csv"}, "no.csv: expected a CSV, Parquet or Feather file, which does not exist"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_value_errors_of_one_line(case: str) -> None:
    change, message = BAD[case]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as error:
        mg.compare(**{"data": binary(), "target": "ripe", **ASK, **change})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("data", [[1, 2], None, np.zeros((3, 2)), pl.LazyFrame({"a": [1]}), pd.Series([1])])
def test_other_data_are_a_type_error(data: object) -> None:
    with pytest.raises(TypeError, match="data: expected a frame of pandas, polars or pyarrow, got "):
        mg.compare(data, "ripe")


def test_bad_frames_to_predict_and_bad_folders(study: mg.Study, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data: expected the feature columns, of which 'shape' is missing"):
        study.model.predict(binary(5).drop(columns="shape"))
    with pytest.raises(ValueError, match=r"run: exists already; choose another out, or use force$"):
        mg.compare(binary(), "ripe", out=study.path, **ASK)
    with pytest.raises(TypeError, match="got ndarray"):
        study.model.predict(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="expected a run folder, got a path that does not exist"):
        mg.load_run(tmp_path / "nothing")
    data, out = written(binary(), tmp_path), str(tmp_path / "trained")
    assert main(["train", data, "--target", "ripe", "--contender", "majority", "--out", out]) == 0
    with pytest.raises(ValueError, match="trained: expected a run of compare or demo, got one of train"):
        mg.load_run(out)
    copy = study.save(tmp_path / "copy")
    (copy / "summary.json").write_text("{}")
    with pytest.raises(ValueError, match="was changed since it was written"):
        mg.load_run(copy)


def test_text_of_the_data_is_escaped_in_html(tmp_path: Path) -> None:
    name = "<script>alert(1)</script>"
    frame = binary().rename(columns={"ripe": name, "shape": "<b>"})
    study = mg.compare(frame, name, out=tmp_path / "<i>run", **{**ASK, "contenders": "majority"})
    html = study._repr_html_() + study.model._repr_html_()
    assert "<script" not in html
    assert "<b>" not in study._repr_html_()
    assert "&lt;i&gt;run" in html
    assert study.verdict.headline.split(":")[0] in html


def test_mixed_cells_and_nullable_types_are_read() -> None:
    frame = binary()
    frame["mixed"] = pd.Series(["a", 1, 2.5, None] * 100, dtype=object)
    frame["whole"] = frame["farm"].astype("Int64").mask(frame["farm"] == 3)
    columns = mg.compare(frame, "ripe", **{**ASK, "contenders": "majority"}).model.feature_names_in_
    assert {"mixed", "whole"} <= set(columns)


def test_names_and_defaults_are_those_of_the_command_line() -> None:
    def read(function: Any, *others: str) -> dict[str, Any]:
        parameters = inspect.signature(function).parameters.values()
        return {one.name: one.default for one in parameters if one.name not in others}

    line = read(compare_command.compare, "context", "data", "target", "resume", "config", "as_json")
    assert read(mg.compare, "data", "target") == line


def test_progress_is_shown_only_if_asked(capfd: pytest.CaptureFixture[str]) -> None:
    mg.compare(binary(), "ripe", **{**ASK, "contenders": "majority"})
    assert capfd.readouterr() == ("", "")
    mg.compare(binary(), "ripe", verbose=True, **{**ASK, "contenders": "majority"})
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "rows: 400\n" in printed.err
    assert "1 of 4 units are finished, about " in printed.err


SCRIPT = """
import pandas as pd
import metricgrad as mg

frame = pd.DataFrame({"a": [i % 7 for i in range(90)], "y": [int(i % 7 > 4) for i in range(90)]})
study = mg.compare(frame, "y", contenders="majority", quick=True, jobs=2)
print(study.verdict.ship)
"""


def test_a_script_needs_no_guard_for_several_processes(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def with_commas() -> pd.DataFrame:
    return binary().rename(columns={"weight": "weight, kg", "shape": 'shape "a", b', "ripe": "ripe, or not"})


def test_names_with_commas_are_names(tmp_path: Path) -> None:
    ask = {**ASK, "metric": "f1", "contenders": "majority", "drop": ["weight, kg", "farm"]}
    study = mg.compare(with_commas(), "ripe, or not", out=tmp_path / "run", **ask)
    assert study.model.feature_names_in_.tolist() == ["size", 'shape "a", b']
    assert json.loads((tmp_path / "run" / "config.json").read_bytes())["drop"] == ["weight, kg", "farm"]
    alone = mg.compare(with_commas(), ["ripe, or not"], **{**ask, "drop": 'shape "a", b'})
    assert alone.model.feature_names_in_.tolist() == ["size", "weight, kg", "farm"]


def test_the_command_line_and_its_file_quote_names_with_commas(tmp_path: Path) -> None:
    data = written(with_commas(), tmp_path)
    drop = '"weight, kg","shape ""a"", b"'
    words = ["--target", "ripe, or not", "--contenders", "majority", "--repeats", "2", "--jobs", "1", "--drop", drop]
    assert main(["compare", data, *words, "--out", str(tmp_path / "run")]) == 0
    expected = mg.load_run(tmp_path / "run")
    assert expected.model.feature_names_in_.tolist() == ["size", "farm"]
    again = ["compare", "--config", str(tmp_path / "run" / "config.toml"), "--jobs", "1", "--out"]
    assert main([*again, str(tmp_path / "again")]) == 0
    typed = shlex.split(expected.summary["reproduce"]["command"])[1:]
    assert main([*typed, "--jobs", "1", "--out", str(tmp_path / "typed")]) == 0
    for name in ("again", "typed"):
        np.testing.assert_equal(found(mg.load_run(tmp_path / name)), found(expected))


def test_parameters_of_metrics_are_numbers_and_dicts(tmp_path: Path) -> None:
    frame = multiclass().replace({"kind": {"x": "a, b=c"}})
    first, *others = sorted(frame["kind"].unique())
    beta = {first: 0.25, **dict.fromkeys(others, 2)}
    ask = {**ASK, "metric": "f_beta", "contenders": "majority", "beta": beta}
    study = mg.compare(frame, "kind", out=tmp_path / "run", **ask)
    assert study.summary["metric"]["name"] == "f_beta(beta=0.25/2/2)"
    config = tmp_path / "run" / "config.toml"
    assert tomllib.loads(config.read_text())["beta"] == beta
    assert main(["compare", "--config", str(config), "--jobs", "1", "--out", str(tmp_path / "again")]) == 0
    np.testing.assert_equal(found(mg.load_run(tmp_path / "again")), found(study))
