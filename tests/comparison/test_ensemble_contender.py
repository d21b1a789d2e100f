"""The ensemble in ``compare``: weights chosen on saved scores, evaluated, shipped, saved, resumed, shown."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from metricgrad.comparison.contenders.simple import Prior
from metricgrad.comparison.ensemble import average_weights, describe_members
from sklearn.metrics import f1_score

import metricgrad as mg
from damage import reseal
from metricgrad.cli.main import main
from metricgrad.comparison import protocol, run_comparison, unit_runner, verdict
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.contenders import CONTENDERS, ENSEMBLE, choose_weights, select_contenders
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.outcomes import Decision, Outcome
from metricgrad.comparison.report.sections.members import Members
from metricgrad.comparison.splits import make_splits
from metricgrad.decisions.rules import Threshold
from short_training import shorten_training
from tables import binary, multiclass, multilabel, written

CANDIDATES = ("logistic regression", "cross-entropy", "xgboost")
ASK = ["--repeats", "2", "--jobs", "1", "--contenders", "majority,logistic regression,xgboost,ensemble"]
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


def read_unit(run: Path, name: str, repeat: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a unit's scores of held-out and of test rows."""
    stem = f"{run}/results/{name.replace(' ', '-')}-{repeat:03d}"
    return np.load(f"{stem}-held.npy", allow_pickle=False), np.load(f"{stem}.npy", allow_pickle=False)


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
            held_out = {name: read_unit(run, name, repeat)[0] for name in CANDIDATES}
            selection = mg.select_ensemble(
                "f1",
                held_out,
                y[parts[f"held-{repeat}"]],
                task=task,
                average=average,  # type: ignore[arg-type]
                subject_to=more[1] if "--subject-to" in more else None,
                seed=unit_runner.make_seed(0, repeat),
            )
            unit = json.loads((run / "results" / f"ensemble-{repeat:03d}.json").read_bytes())
            assert {name: weight for name, weight in unit["members"].items() if weight} == selection.weights
            assert set(unit["members"]) == set(CANDIDATES)
            np.testing.assert_allclose(read_unit(run, "ensemble", repeat)[0], selection.scores, rtol=1e-12)
            tested: Any = sum(weight * read_unit(run, name, repeat)[1] for name, weight in selection.weights.items())
            np.testing.assert_allclose(read_unit(run, "ensemble", repeat)[1], tested, rtol=1e-12)
            truth = y[parts[f"test-{repeat}"]]
            how: dict[str, Any] = {} if task == "binary" else {"average": average}
            plain = tested.argmax(1) if task == "multiclass" else tested >= 0.5
            value = results[results["repeat"] == repeat].set_index("rule")["value"]
            assert value["fixed"] == pytest.approx(f1_score(truth, plain, **how))
            assert value["tuned"] == pytest.approx(f1_score(truth, selection.rule(tested), **how))


def test_its_seconds_are_those_of_its_members(tmp_path: Path) -> None:
    run = compared("binary", tmp_path)
    for repeat in range(2):
        units = {
            name: json.loads(next((run / "results").glob(f"{name.replace(' ', '-')}-{repeat:03d}.json")).read_bytes())
            for name in (*CANDIDATES, ENSEMBLE)
        }
        members = [name for name, weight in units[ENSEMBLE]["members"].items() if weight]
        assert units[ENSEMBLE]["seconds"] > sum(units[name]["seconds"] for name in members)


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
        for a, b in zip(read_unit(with_it, name, 1), read_unit(without, name, 1), strict=True):
            np.testing.assert_array_equal(a, b)


def test_no_weights_can_meet_the_constraint() -> None:
    scores = {"a": np.array([0.9, 0.8, 0.7, 0.1] * 10), "b": np.array([0.8, 0.9, 0.7, 0.1] * 10)}
    goal = Goal("binary", 2, "recall", subject_to="precision>=0.9")
    assert choose_weights(goal, scores, np.array([0, 0, 1, 0] * 10), 0) == {"a": 0.5, "b": 0.5}


def test_two_processes_choose_what_one_does(tmp_path: Path) -> None:
    make, target = TASKS["multilabel"]
    data = written(make(), tmp_path)
    script = KILLED.split("verdict =")[0] + "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n"
    (tmp_path / "script.py").write_text(script)  # its processes import it, and take the same effort
    ask = ["compare", data, "--target", target, *ASK, "--jobs", "2", "--out", str(tmp_path / "two")]
    done = subprocess.run([sys.executable, str(tmp_path / "script.py"), *ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert summary(tmp_path / "two") == summary(compared("multilabel", tmp_path))


# Who takes part


def test_it_needs_two_contenders_that_are_no_baselines() -> None:
    goal = Goal("binary", 2, "f1")
    assert ENSEMBLE in select_contenders(goal)[0]
    assert select_contenders(goal, ["hybrid", ENSEMBLE]) == (["cross-entropy", "hybrid", ENSEMBLE], [])
    asked = select_contenders(goal, ["majority", ENSEMBLE])
    reason = "needs 2 contenders to choose from, got cross-entropy"
    assert asked == (["majority", "cross-entropy"], [(ENSEMBLE, reason)])


def test_it_is_chosen_from_what_did_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = protocol.run_contender
    broken = {"xgboost"}

    def failing(name: str, *rest: Any) -> Any:
        if name in broken and rest[-1] == 1:  # in the second repeat
            raise RuntimeError("no luck")
        return real(name, *rest)

    monkeypatch.setattr(protocol, "run_contender", failing)
    run = compared("binary", tmp_path)
    assert {member["name"] for member in summary(run)["members"]} <= {"logistic regression", "cross-entropy"}
    broken.add("logistic regression")
    left_out = dict(summary(compared("binary", tmp_path, out="alone"))["left_out"])
    assert left_out[ENSEMBLE] == "needs 2 contenders to choose from, got cross-entropy"


def test_a_budget_cuts_its_repeats_too(tmp_path: Path) -> None:
    run = compared("binary", tmp_path, "--repeats", "4", "--budget", "0.0001")
    assert len(list((run / "results").glob("ensemble-*.json"))) == summary(run)["repeats"] == 2


# Shipping


def test_a_shipped_ensemble_holds_its_members_and_predicts_as_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ship_the_ensemble(monkeypatch)
    models, add = list[Any](), Workspace.add_model
    monkeypatch.setattr(Workspace, "add_model", lambda self, model: models.append(model) or add(self, model))  # type: ignore[func-returns-value]
    run = compared("binary", tmp_path)
    model, frame = runs.load(run).model, binary()
    np.testing.assert_array_equal(model.scores(frame), models[0].scores(frame))
    assert model.contender == ENSEMBLE
    assert isinstance(model.scorer, Ensemble)
    means = {member["name"]: member["weight"] for member in summary(run)["members"] if member["weight"] >= 0.02}
    saved = {member.name: member.weight for member in model.scorer.members}
    assert saved == pytest.approx({name: weight / sum(means.values()) for name, weight in means.items()})
    members = json.loads((run / "model" / "estimator" / "ensemble.json").read_bytes())
    assert [member["name"] for member in members] == list(saved)
    assert not (run / "model" / "estimator" / f"member-{len(saved)}-manifest.json").exists()
    data = str(tmp_path / "data.csv")
    assert main(["predict", str(run), data, "-o", str(tmp_path / "out.csv")]) == 0
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv")["score"], model.scores(frame), rtol=1e-6)
    assert main(["evaluate", str(run), data, "--replicates", "10"]) == 0
    assert main(["tune", str(run), data, "--metric", "recall", "--subject-to", "precision>=0.3"]) == 0
    assert runs.load(run).model.goal.metric == "recall"
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "ensemble: " in shown
    assert next(iter(saved)) in shown
    assert main(["convert", str(run)]) == 4
    assert "it has format 3 already" in capsys.readouterr().err


def test_only_members_are_fitted() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2)).astype(np.float32)
    y = (x[:, 0] + rng.normal(size=200) > 0).astype(int)
    goal, effort, split = Goal("binary", 2, "f1"), Effort(2, 2, 3), make_splits(y, "binary", 2, 0)[0]
    weights = {"xgboost": 0.75, "cross-entropy": 0.25}
    scorer, rules, held_out = protocol.fit_contender(ENSEMBLE, goal, effort, x, y, split, 0, weights)
    alone = {name: protocol.fit_contender(name, goal, effort, x, y, split, 0).scorer.scores(x) for name in weights}
    np.testing.assert_array_equal(scorer.scores(x), 0.75 * alone["xgboost"] + 0.25 * alone["cross-entropy"])
    assert rules["tuned"].rule == mg.tune_threshold("f1", held_out, y[split.held_out]).rule
    np.testing.assert_array_equal(load_scorer("Ensemble", scorer.files()).scores(x), scorer.scores(x))


def test_members_of_different_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected scores of one shape"):
        average_scores([(0.5, np.zeros((1, 3))), (0.5, np.zeros((1, 1)))])
    files = {"ensemble.json": b'[{"name": "a", "weight": 1.0, "kind": "Prior"}]', "member-0-prior.json": b"0.25"}
    np.testing.assert_array_equal(load_scorer("Ensemble", files).scores(np.zeros((2, 1))), [0.25, 0.25])
    assert isinstance(load_scorer("Prior", {"prior.json": b"0.25"}), Prior)


def test_train_chooses_among_all_contenders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, data = tmp_path / "run", written(binary(200), tmp_path)
    ask = ["train", data, "--target", "ripe", "--contender", ENSEMBLE, "--out", str(out), "--json"]
    assert main(ask) == 0
    found = json.loads(capsys.readouterr().out)
    assert sum(found["members"].values()) == pytest.approx(1)
    assert found["members"].keys() <= CONTENDERS.keys() - {ENSEMBLE, "majority"}
    assert runs.load(out).model.scores(binary()).shape == (400,)
    assert main(["info", str(out)]) == 0
    assert main([*ask, "--force"]) == 0  # replaces what it wrote


def test_mean_weights_are_shipped_without_small_ones() -> None:
    decision = Decision(Threshold(0.5), 0.7, {})

    def outcome(repeat: int, **members: float) -> Outcome:
        return Outcome(ENSEMBLE, repeat, 30, 10, 1.0, decision, decision, [], members)

    found = [outcome(0, a=0.2, b=0.78, c=0.02, d=0.0), outcome(1, b=0.6, a=0.4, c=0.0, d=0.0)]
    assert describe_members(found) == [
        {"name": "b", "weight": pytest.approx(0.69), "low": 0.6, "high": 0.78},
        {"name": "a", "weight": pytest.approx(0.3), "low": 0.2, "high": 0.4},
        {"name": "c", "weight": pytest.approx(0.01), "low": 0.0, "high": 0.02},
    ]
    assert average_weights(found) == pytest.approx({"b": 0.69 / 0.99, "a": 0.3 / 0.99})
    assert list(average_weights(found)) == ["b", "a"]
    assert Outcome.from_json(found[0].to_json()) == found[0]
    assert "members" not in Outcome("hybrid", 0, 30, 10, 1.0, decision, decision, []).to_json()


# Going on

KILLED = """
import os, signal, sys
from metricgrad.comparison import run_comparison, run_writer
from metricgrad.cli.main import main
verdict = run_comparison.write_verdict
run_comparison.write_verdict = lambda *given: {**verdict(*given), "ship": "ensemble", "rule": "tuned"}
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
    ship_the_ensemble(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "run_contender", lambda *given: pytest.fail("a unit was repeated"))
        assert main(["compare", "--resume", str(killed), "--jobs", "1"]) == 0
    assert finished == {name: (killed / "results" / name).stat().st_mtime_ns for name in finished}
    whole = compared("binary", tmp_path, out="whole")
    assert summary(killed) == summary(whole)
    for folder in ("results", "model", "model/estimator"):
        for path in (whole / folder).glob("*"):
            if path.suffix in (".npy", ".safetensors", ".ubj"):
                assert (killed / folder / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in (killed / "results").iterdir()} == {
        path.name for path in (whole / "results").iterdir()
    }


def stopped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a run that was interrupted before its first ensemble."""
    data = written(binary(), folder)
    with monkeypatch.context() as patch:

        def interrupted(*given: Any) -> Any:
            raise KeyboardInterrupt

        patch.setattr("metricgrad.comparison.ensemble.choose_weights", interrupted)
        assert main(["compare", data, "--target", "ripe", *ASK, "--out", str(folder / "run")]) == 130
    return folder / "run"


def test_units_without_held_out_scores_are_of_an_earlier_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stopped(tmp_path, monkeypatch)
    path = run / "results" / "xgboost-001.json"
    path.write_text(
        json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != "held_out"})
    )
    (run / "results" / "xgboost-001-held.npy").unlink()
    reseal(run)
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 0
    reason = "xgboost was fitted by an earlier version, which kept no held-out scores"
    assert summary(run)["left_out"] == [[ENSEMBLE, reason]]
    assert summary(run)["members"] is None


@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_damaged_held_out_scores_are_refused(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped(tmp_path, monkeypatch)
    path = run / "results" / "xgboost-001-held.npy"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-8])
        reseal(run)  # the hash is right, the number of rows is not
    else:
        path.unlink()
    capsys.readouterr()
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 4
    assert "xgboost-001-held.npy" in capsys.readouterr().err.splitlines()[-1]


# The report


def test_the_report_lists_its_members(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = compared("multilabel", tmp_path)
    printed = capsys.readouterr().out
    page, members = (run / "report.html").read_text(), summary(run)["members"]
    section = page[page.index('<section id="members"') :].split("</section>")[0]
    for member in members:
        assert f'<th scope="row">{member["name"]}</th><td>{member["weight"]:.3f}</td>' in section
        assert f"{member['low']:.3f} to {member['high']:.3f}" in section
        assert f"{member['weight']:.2f} {member['name']}" in printed
    assert sum(member["weight"] for member in members) == pytest.approx(1)
    without: Any = {}
    assert Members().html(without) == ""
