"""The ensemble in ``compare``: a ``MetricEnsembleClassifier`` of the same rows, folds, seeds and candidates."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.pipeline import make_pipeline

import metricgrad as mg
from damage import reseal
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs, run_comparison, verdict
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.candidate_runs import ALL_ROWS, make_seed
from metricgrad.comparison.contender_outcomes import average_scores, describe_members, weigh_candidates
from metricgrad.comparison.contenders import ENSEMBLE
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.outcomes import Decision, Outcome
from metricgrad.comparison.report.sections.members import MembersSection
from metricgrad.comparison.run_writer import RunWriter
from metricgrad.decisions.rules import Threshold
from metricgrad.estimators.cross_fitting import FitSeeds, cross_fit
from metricgrad.estimators.table_encoder import TableEncoder
from short_training import IN_ANOTHER_PROCESS, shorten_training
from small_studies import make_plan
from tables import binary, multiclass, multilabel, written

CANDIDATES = [
    *(f"logistic regression, C={c}" for c in ("0.003", "0.1", "3")),
    *("hybrid", "xgboost"),
]
ASK = ["--repeats", "2", "--jobs", "1", "--contenders", "majority,logistic regression,hybrid,xgboost,ensemble"]
TASKS: dict[str, tuple[Any, str]] = {
    "binary": (binary, "ripe"),
    "multiclass": (multiclass, "kind"),
    "multilabel": (multilabel, "label 0,label 1,label 2"),
}


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


def compared(task: str, folder: Path, *more: str, out: str = "run") -> Path:
    make, target = TASKS[task]
    data = written(make(), folder)
    assert main(["compare", data, "--target", target, *ASK, *more, "--out", str(folder / out)]) == 0
    return folder / out


def summary(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_bytes())
    for row in found["leaderboard"]:
        row.pop("seconds")
    return {key: found.get(key) for key in ("leaderboard", "verdict", "protocol", "repeats", "left_out", "members")}


def ship_the_ensemble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verdict be for the ensemble."""
    found = verdict.write_verdict
    monkeypatch.setattr(
        run_comparison, "write_verdict", lambda *given: {**found(*given), "ship": ENSEMBLE, "rule": "tuned"}
    )


def read_candidate(run: Path, name: str, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the out-of-fold scores of a candidate, and those of the test rows."""
    slug = name.replace(", ", "-").replace(" ", "-").replace("=", "-")
    stem = f"{run}/candidates/{slug}-{repeat:03d}"
    return np.load(f"{stem}-out-of-fold.npy", allow_pickle=False), np.load(f"{stem}.npy", allow_pickle=False)


def read_outcome(run: Path, name: str, repeat: int) -> dict[str, Any]:
    path = run / "results" / f"{name.replace(' ', '-')}-{repeat:03d}.json"
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


# The same as the estimator alone


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_it_is_the_estimator_of_the_same_rows_folds_seeds_and_candidates(task: Any, tmp_path: Path) -> None:
    """With the default candidates: the estimator that the study is about is the one that compare ranks."""
    make, target = TASKS[task]
    frame = make(240)
    everything = "logistic regression,hybrid,xgboost,metric boosting,random forest,extra trees,ensemble"
    out = tmp_path / "run"
    data = written(frame, tmp_path)
    ask = ["--repeats", "2", "--jobs", "1", "--contenders", everything, "--out", str(out)]
    assert main(["compare", data, "--target", target, *ask]) == 0
    plan = make_plan(frame, target, tmp_path, contenders=tuple(everything.split(",")))
    dataset = plan.dataset
    features = dataset.table.frame[dataset.schema.inputs]
    for repeat, split in enumerate(plan.parts):
        alone = mg.MetricEnsembleClassifier(
            "f1",
            cv=2,
            encoder=TableEncoder(columns=dataset.schema.columns),
            random_state=make_seed(0, repeat),
        ).fit(features.iloc[split.train], dataset.targets[split.train])
        found = Outcome.from_json({k: v for k, v in read_outcome(out, ENSEMBLE, repeat).items() if k != "sha256"})
        assert found.weights == pytest.approx(alone.weights_, abs=1e-12)
        assert found.tuned.rule == alone.rule_
        scores = average_scores(found.weights, {name: read_candidate(out, name, repeat)[1] for name in found.weights})
        np.testing.assert_allclose(scores, alone.predict_scores(features.iloc[split.test]), rtol=1e-12)
        np.testing.assert_array_equal(found.tuned.rule(scores), alone.predict(features.iloc[split.test]))


def test_what_ships_is_the_estimator_fitted_on_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ship_the_ensemble(monkeypatch)
    frame = binary(240)
    data = written(frame, tmp_path)
    everything = "logistic regression,hybrid,xgboost,metric boosting,random forest,extra trees,ensemble"
    ask = ["--repeats", "2", "--jobs", "1", "--contenders", everything, "--out", str(tmp_path / "run")]
    assert main(["compare", data, "--target", "ripe", *ask]) == 0
    shipped = runs.load(tmp_path / "run").model
    dataset = make_plan(frame, "ripe", tmp_path).dataset
    encoder = TableEncoder(columns=dataset.schema.columns)
    alone = mg.MetricEnsembleClassifier("f1", cv=2, encoder=encoder, random_state=make_seed(0, ALL_ROWS))
    alone.fit(dataset.table.frame[dataset.schema.inputs], dataset.targets)
    assert shipped.members == pytest.approx(alone.weights_, abs=1e-12)
    assert shipped.rule == alone.rule_
    np.testing.assert_allclose(shipped.scores(frame), alone.predict_scores(frame[dataset.schema.inputs]), rtol=1e-12)


# Values


@pytest.mark.parametrize(
    ("task", "more"),
    [
        ("binary", ()),
        ("binary", ("--subject-to", "recall>=0.3")),
        ("multiclass", ()),
        ("multilabel", ()),
        ("multilabel", ("--average", "micro")),
    ],
)
def test_it_is_what_select_ensemble_finds_on_the_saved_scores(task: Any, more: tuple[str, ...], tmp_path: Path) -> None:
    run = compared(task, tmp_path, *more)
    make, target = TASKS[task]
    labels = make()[target.split(",")]
    y = labels.to_numpy() if task == "multilabel" else np.unique(labels.to_numpy(), return_inverse=True)[1].ravel()
    results = pd.read_parquet(run / "results.parquet").query("contender == 'ensemble'")
    average = more[1] if "--average" in more else "macro"
    with np.load(run / "splits.npz", allow_pickle=False) as parts:
        for repeat in range(2):
            out_of_fold = {name: read_candidate(run, name, repeat)[0] for name in CANDIDATES}
            selection = mg.select_ensemble(
                "f1",
                out_of_fold,
                y[parts[f"left-out-{repeat}"]],
                task=task,
                average=average,  # type: ignore[arg-type]
                subject_to=more[1] if "--subject-to" in more else None,
                seed=FitSeeds.draw(make_seed(0, repeat)).selection,
            )
            members = read_outcome(run, ENSEMBLE, repeat)["members"]
            assert {name: weight for name, weight in members.items() if weight} == selection.weights
            assert list(members) == CANDIDATES
            tested: Any = sum(
                weight * read_candidate(run, name, repeat)[1] for name, weight in selection.weights.items()
            )
            truth = y[parts[f"test-{repeat}"]]
            how: dict[str, Any] = {} if task == "binary" else {"average": average}
            plain = tested.argmax(1) if task == "multiclass" else tested >= 0.5
            value = results[results["repeat"] == repeat].set_index("rule")["value"]
            assert value["fixed"] == pytest.approx(f1_score(truth, plain, **how))
            assert value["tuned"] == pytest.approx(f1_score(truth, selection.rule(tested), **how))


def test_of_several_candidates_the_one_with_the_smallest_log_loss_stands_for_a_contender(tmp_path: Path) -> None:
    run = compared("binary", tmp_path)
    y = (binary()["ripe"].to_numpy() == np.unique(binary()["ripe"])[1]).astype(int)
    with np.load(run / "splits.npz", allow_pickle=False) as parts:
        for repeat in range(2):
            truth = y[parts[f"left-out-{repeat}"]]
            losses = {}
            for name in CANDIDATES[:3]:
                chance = read_candidate(run, name, repeat)[0]
                losses[name] = -np.log(np.where(truth == 1, chance, 1 - chance)).mean()
            members = read_outcome(run, "logistic regression", repeat)["members"]
            assert members == {name: float(name == min(losses, key=lambda one: losses[one])) for name in losses}


def test_its_seconds_are_those_of_its_members(tmp_path: Path) -> None:
    run = compared("binary", tmp_path)
    for repeat in range(2):
        outcome = read_outcome(run, ENSEMBLE, repeat)
        members = [name for name, weight in outcome["members"].items() if weight]
        slugs = [name.replace(", ", "-").replace(" ", "-").replace("=", "-") for name in members]
        records = [json.loads((run / "candidates" / f"{slug}-{repeat:03d}.json").read_bytes()) for slug in slugs]
        assert outcome["seconds"] == pytest.approx(sum(record["seconds"] for record in records))


def test_it_changes_nothing_else(tmp_path: Path) -> None:
    others = ",".join(ASK[-1].split(",")[:-1])
    with_it, without = compared("binary", tmp_path), compared("binary", tmp_path, "--contenders", others, out="without")
    one, two = summary(with_it), summary(without)
    assert [row for row in one["leaderboard"] if row["contender"] != ENSEMBLE] == two["leaderboard"]
    assert len(one["leaderboard"]) == len(two["leaderboard"]) + 2
    assert two["members"] is None
    assert not any("nsemble" in sentence for sentence in two["protocol"])
    assert "ensemble" not in (without / "report.html").read_text()
    for name in CANDIDATES:
        for a, b in zip(read_candidate(with_it, name, 1), read_candidate(without, name, 1), strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_weights_can_meet_the_constraint() -> None:
    scores = {"a": np.array([0.9, 0.8, 0.7, 0.1] * 10), "b": np.array([0.8, 0.9, 0.7, 0.1] * 10)}
    goal = Goal("binary", 2, "recall", subject_to="precision>=0.9")
    chosen = weigh_candidates(ENSEMBLE, goal, scores, np.array([0, 0, 1, 0] * 10), 0)
    assert chosen.weights == {"a": 0.5, "b": 0.5}
    np.testing.assert_allclose(chosen.out_of_fold, [0.85, 0.85, 0.7, 0.1] * 10)


def test_scores_of_different_shapes_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="expected scores of one shape"):
        average_scores({"a": 0.5, "b": 0.5}, {"a": np.zeros((1, 3)), "b": np.zeros((1, 1))})


def test_two_processes_choose_what_one_does(tmp_path: Path) -> None:
    make, target = TASKS["multilabel"]
    data = written(make(), tmp_path)
    (tmp_path / "script.py").write_text(
        f"import sys\n{IN_ANOTHER_PROCESS}\nfrom metricgrad.cli.main import main\n"
        "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n"
    )
    ask = ["compare", data, "--target", target, *ASK, "--jobs", "2", "--out", str(tmp_path / "two")]
    done = subprocess.run([sys.executable, str(tmp_path / "script.py"), *ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "two") == summary(compared("multilabel", tmp_path))


# Who takes part


def test_it_is_chosen_from_what_did_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = cross_fit
    broken = {"xgboost"}

    def failing(candidate: Any, *rest: Any, **options: Any) -> Any:
        if candidate.name in broken:
            raise RuntimeError("no luck")
        return real(candidate, *rest, **options)

    monkeypatch.setattr(candidate_runs, "cross_fit", failing)
    run = compared("binary", tmp_path)
    assert summary(run)["left_out"] == [["xgboost", "RuntimeError: no luck"]]
    assert {member["name"] for member in summary(run)["members"]} <= set(CANDIDATES) - {"xgboost"}
    broken |= set(CANDIDATES[:3])
    left_out = dict(summary(compared("binary", tmp_path, out="alone"))["left_out"])
    assert left_out[ENSEMBLE] == "needs 2 contenders to choose from, got hybrid"


def test_a_budget_cuts_its_repeats_too(tmp_path: Path) -> None:
    run = compared("binary", tmp_path, "--repeats", "4", "--budget", "0.0001")
    assert len(list((run / "results").glob("ensemble-*.json"))) == summary(run)["repeats"] == 2


# Estimators of the user's own


class Halves(LogisticRegression):  # type: ignore[misc]
    """A class that skops does not know."""


def test_a_pipeline_of_ones_own_is_compared_and_shipped(tmp_path: Path) -> None:
    frame = binary()
    mine = make_pipeline(mg.TableEncoder(), LogisticRegression(C=0.5))
    study = mg.compare(
        frame,
        "ripe",
        "f1",
        contenders=["xgboost", "ensemble"],
        extra_contenders={"mine": mine},
        ship="mine",
        repeats=2,
        jobs=1,
        out=tmp_path / "run",
    )
    assert set(study.leaderboard["contender"]) == {"cross-entropy", "xgboost", "mine", "ensemble"}
    assert study.verdict["ship"] == "mine"
    again = mg.load_run(tmp_path / "run")
    np.testing.assert_array_equal(again.model.predict(frame), study.model.predict(frame))
    # The mean of the models of the folds, each a clone of the pipeline that got the columns as they are.
    (member,) = runs.load(tmp_path / "run").model.estimator.members_
    inputs = runs.load(tmp_path / "run").model.schema.inputs
    expected = np.mean([one.predict_proba(frame[inputs])[:, 1] for one in member.models], 0)
    np.testing.assert_allclose(study.model.predict_scores(frame), expected)
    assert not hasattr(mine.steps[-1][1], "coef_"), "what the user passed is not touched"


def test_types_of_ones_own_are_trusted_by_name_alone(tmp_path: Path) -> None:
    mine = make_pipeline(mg.TableEncoder(), Halves())
    study = mg.compare(
        binary(), "ripe", contenders="xgboost", extra_contenders={"mine": mine}, ship="mine", repeats=2, jobs=1,
        out=tmp_path / "run",
    )  # fmt: skip
    frame = binary()
    expected = study.model.predict(frame)
    with pytest.raises(ValueError, match=r"trusted: expected .*Halves"):
        _ = mg.load_run(tmp_path / "run").model
    again = mg.load_run(tmp_path / "run", trusted=[f"{Halves.__module__}.Halves"])
    np.testing.assert_array_equal(again.model.predict(frame), expected)
    with pytest.raises(UserError, match="mine are estimators of your own, which no folder holds; compare again"):
        run_comparison.resume(tmp_path / "run", None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"hybrid": LogisticRegression()}, "expected a name that no contender has, got 'hybrid'"),
        ({"": LogisticRegression()}, "expected a name that no contender has, got ''"),
        ({"mine": 3}, "expected classifiers with predict_proba, got int as 'mine'"),
        ({"a b": LogisticRegression(), "a-b": LogisticRegression()}, "'a b' and 'a-b' differ in signs only"),
    ],
)
def test_what_is_no_contender_is_refused(own: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^extra_contenders: {message}"):
        mg.compare(binary(), "ripe", extra_contenders=own)


# Shipping


def test_a_shipped_ensemble_holds_its_members_and_predicts_as_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ship_the_ensemble(monkeypatch)
    models, add = list[Any](), RunWriter.add_model
    monkeypatch.setattr(RunWriter, "add_model", lambda self, model: models.append(model) or add(self, model))  # type: ignore[func-returns-value]
    run = compared("binary", tmp_path)
    model, frame = runs.load(run).model, binary()
    np.testing.assert_array_equal(model.scores(frame), models[0].scores(frame))
    assert model.contender == ENSEMBLE
    assert isinstance(model.estimator, mg.MetricEnsembleClassifier)
    assert sum(model.members.values()) == pytest.approx(1)
    assert set(model.members) <= set(CANDIDATES)
    again = mg.load(run / "model" / "estimator")
    inputs = frame[model.schema.inputs]
    np.testing.assert_array_equal(again.predict_scores(inputs), model.scores(frame))
    data = str(tmp_path / "data.csv")
    assert main(["predict", str(run), data, "-o", str(tmp_path / "out.csv")]) == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["score"], model.scores(frame), rtol=1e-6)
    assert main(["evaluate", str(run), data, "--replicates", "10"]) == 0
    assert main(["tune", str(run), data, "--metric", "recall", "--subject-to", "precision>=0.3"]) == 0
    assert runs.load(run).model.goal.metric == "recall"
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    assert "ensemble: " in capsys.readouterr().out


def test_train_chooses_among_all_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "run", written(binary(200), tmp_path)
    ask = ["train", data, "--target", "ripe", "--contender", ENSEMBLE, "--jobs", "1", "--out", str(out), "--json"]
    assert main(ask) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["members"].values()) == pytest.approx(1)
    assert found["members"].keys() <= {*CANDIDATES, "metric boosting", "random forest", "extra trees"}
    assert runs.load(out).model.scores(binary()).shape == (400,)
    assert main(["info", str(out)]) == 0
    assert main([*ask, "--force"]) == 0  # replaces what it wrote


def test_weights_are_described_over_the_repeats() -> None:
    decision = Decision(Threshold(0.5), 0.7, {})

    def outcome(repeat: int, **members: float) -> Outcome:
        return Outcome(ENSEMBLE, repeat, 30, 10, 1.0, decision, decision, [], members)

    found = [outcome(0, a=0.2, b=0.78, c=0.02, d=0.0), outcome(1, b=0.6, a=0.4, c=0.0, d=0.0)]
    assert describe_members(found) == [
        {"name": "b", "weight": pytest.approx(0.69), "low": 0.6, "high": 0.78},
        {"name": "a", "weight": pytest.approx(0.3), "low": 0.2, "high": 0.4},
        {"name": "c", "weight": pytest.approx(0.01), "low": 0.0, "high": 0.02},
    ]


# Going on

KILLED = f"""
import os, signal, sys
from metricgrad.comparison import run_comparison, run_writer
from metricgrad.cli.main import main
{IN_ANOTHER_PROCESS}
verdict = run_comparison.write_verdict
run_comparison.write_verdict = lambda *given: {{**verdict(*given), "ship": "ensemble", "rule": "tuned"}}
write = run_writer.write
def killing(path, data):
    if path.name == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, data)
run_writer.write = killing
main(sys.argv[2:])
"""


@pytest.mark.parametrize("place", ["ensemble-001.json", "summary.json"])
def test_killed_and_resumed_it_is_the_same(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, killed = written(binary(), tmp_path), tmp_path / "killed"
    ask = ["compare", data, "--target", "ripe", *ASK]
    done = subprocess.run([sys.executable, "-c", KILLED, place, *ask, "--out", str(killed)], capture_output=True)
    assert done.returncode == -signal.SIGKILL
    finished = {path.name: path.stat().st_mtime_ns for path in (killed / "results").glob("*.json")}
    assert ("ensemble-000.json" in finished, "ensemble-001.json" in finished) == (True, place == "summary.json")
    units = {path.name: path.stat().st_mtime_ns for path in (killed / "candidates").glob("*.json")}
    ship_the_ensemble(monkeypatch)
    assert main(["compare", "--resume", str(killed), "--jobs", "1"]) == 0
    assert finished == {name: (killed / "results" / name).stat().st_mtime_ns for name in finished}
    assert units == {path.name: path.stat().st_mtime_ns for path in (killed / "candidates").glob("*.json")}
    whole = compared("binary", tmp_path, out="whole")
    assert summary(killed) == summary(whole)
    for path in (*(whole / "candidates").glob("*.npy"), *(whole / "model").rglob("*.safetensors")):
        assert (killed / path.relative_to(whole)).read_bytes() == path.read_bytes()
    assert {path.name for path in (killed / "results").iterdir()} == {
        path.name for path in (whole / "results").iterdir()
    }


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_damaged_scores_are_refused(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, run = written(binary(), tmp_path), tmp_path / "run"
    with monkeypatch.context() as patch:

        def interrupted(*given: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr(run_comparison, "find_outcome", interrupted)
        assert main(["compare", data, "--target", "ripe", *ASK, "--out", str(run)]) == 130
    path = run / "candidates" / "xgboost-001-out-of-fold.npy"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
        reseal(run)  # the hash is right, the number of rows is not
    else:
        path.unlink()
    capsys.readouterr()
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 4
    assert "xgboost-001-out-of-fold.npy" in capsys.readouterr().err.splitlines()[-1]


# The report


def test_the_report_lists_its_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = compared("multilabel", tmp_path)
    printed = capsys.readouterr().out
    page, members = (run / "report.html").read_text(), summary(run)["members"]
    section = page[page.index('<section id="members"') :].split("</section>")[0]
    for member in members:
        row = re.search(rf"{re.escape(member['name'])}</th><td>(.*?)</td><td[^>]*>(.*?) to (.*?)</td>", section)
        assert row
        shown = [float(number) for number in row.groups()]
        assert shown == pytest.approx([member[key] for key in ("weight", "low", "high")], abs=0.001)
        assert member["name"] in printed
    assert sum(member["weight"] for member in members) == pytest.approx(1)
    without: Any = {}
    assert MembersSection().html(without) == ""
