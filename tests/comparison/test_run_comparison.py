"""compare, train, info: the whole way, what they write and print, and how they stop and go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

from damage import change, reseal
from interruptions import break_candidates, count_fits, interrupt_after
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison import run_writer
from metricgrad.comparison.errors import UserError
from short_training import IN_ANOTHER_PROCESS, shorten_training
from tables import binary, multiclass, multilabel, written

ASK = ["--target", "ripe", "--metric", "f1,auroc", "--repeats", "2", "--contenders", "majority,hybrid", "--jobs", "1"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return written(binary(), tmp_path)


def summary(run: Path) -> dict[str, Any]:
    """Return what the run found, without what no two runs share."""
    found: dict[str, Any] = json.loads((run / "summary.json").read_bytes())
    for row in found["leaderboard"]:
        row.pop("seconds")
    return {key: found[key] for key in ("leaderboard", "verdict", "data", "protocol", "repeats", "left_out")}


def test_a_run_folder_holds_everything(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["compare", data, *ASK, "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "Ship " in printed.out
    assert "positive: yes" in printed.err
    names = {path.name for path in out.iterdir()}
    assert names == run_writer.RUN_FILES - run_writer.INPUTS - {"Dockerfile"}
    results = pd.read_parquet(out / "results.parquet")
    assert set(results["contender"]) == {"majority", "cross-entropy", "hybrid"}
    assert len(results) == 3 * 2 * 2 * 2  # contenders, repeats, rules, metrics
    with np.load(out / "splits.npz", allow_pickle=False) as parts:
        assert len(parts["test-1"]) + len(parts["train-1"]) == 400
        assert sorted(parts["left-out-1"]) == parts["train-1"].tolist()
    manifest = json.loads((out / "run.json").read_bytes())
    assert manifest["state"] == "finished"
    assert manifest["files"]["results.parquet"] == runs.hash_file(out / "results.parquet")
    assert json.loads((out / "config.json").read_bytes())["data_sha256"] == runs.hash_file(Path(data))
    assert "<script" in (out / "report.html").read_text()


def test_the_model_that_is_shipped_predicts_as_it_was_fitted(data: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", data, "--target", "ripe", "--metric", "f1", "--out", str(out)]) == 0
    model = runs.load(out).model
    frame = binary()
    scores = model.scores(frame)
    assert scores.shape == (400,)
    assert (model.goal.metric, model.goal.task, model.contender) == ("f1", "binary", "hybrid")
    shuffled = frame.sample(frac=1, random_state=0)[list(reversed(frame.columns))].drop(columns="ripe")
    np.testing.assert_allclose(model.scores(shuffled), scores[shuffled.index], rtol=1e-6)
    assert set(model.decide(scores)) <= {0, 1}


@pytest.mark.parametrize("contender", ["majority", "xgboost", "metric boosting", "weighted cross-entropy"])
def test_every_kind_of_model_comes_back(contender: str, tmp_path: Path) -> None:
    data, out = written(multilabel(), tmp_path), tmp_path / "run"
    target = "label 0,label 1,label 2"
    assert main(["train", data, "--target", target, "--contender", contender, "--out", str(out)]) == 0
    assert runs.load(out).model.scores(multilabel()).shape == (300, 3)


def test_json_is_all_there_is_on_stdout(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert main(["compare", data, *ASK, "--out", out, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"] == out
    assert found["metric"] == {
        "name": "f1",
        "average": None,
        "title": "F1 of the class 'yes'",
        "subject_to": None,
        "also": ["auroc"],
        "constraints": [],
    }
    assert len(found["leaderboard"]) == 6
    assert main(["info", out, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["leaderboard"] == found["leaderboard"]
    assert main(["info", "--json"]) == 0
    assert "hybrid" in json.loads(capsys.readouterr().out)["contenders"]
    assert main(["info", out]) == 0
    assert found["verdict"]["headline"] in capsys.readouterr().out


def test_errors_are_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(tmp_path / "no.csv"), "--target", "y", "--json"]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out)["error"]["code"] == 3
    assert printed.err.count("\n") == 1


def test_several_classes_and_a_metric_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("mine.py").write_text("def half(c):\n    return c.tp / (c.tp + c.fn + c.fp + 1)\n")
    data = written(multiclass(), tmp_path)
    ask = ["--target", "kind", "--metric", "mine:half,kappa", "--repeats", "2", "--jobs", "1", "--contenders", "hybrid"]
    assert main(["compare", data, *ask]) == 0
    assert "Ship " in capsys.readouterr().out
    assert runs.load("metricgrad-run-data-mine-half").model.scores(multiclass()).shape == (300, 3)


# Stopping and going on

KILLED = f"""
import os, signal, sys
{IN_ANOTHER_PROCESS}
from pathlib import Path
from metricgrad.comparison import run_writer
from metricgrad.cli.main import main
write, count = run_writer.write, 0
def killing(path, data):
    global count
    if path.parent.name == "candidates" and path.suffix == ".json":
        count += 1
        if count == 4:
            path.with_name(f".metricgrad-{{path.name}}.0123456789abcdef").write_bytes(data[:20])
            os.kill(os.getpid(), signal.SIGKILL)
    write(path, data)
run_writer.write = killing
main(sys.argv[1:])
"""


def test_kill_and_resume_repeats_nothing_and_finds_the_same(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, "compare", data, *ASK, "--out", str(killed)], capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    finished = {path.stem: path.stat().st_mtime_ns for path in (killed / "candidates").glob("*.json")}
    assert len(finished) == 3
    assert main(["info", str(killed)]) == 0
    assert re.search(r"^units done +3$", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(UserError, match="the run is not finished; finish it: metricgrad compare --resume"):
        runs.load(killed)
    ran = count_fits(monkeypatch)
    assert main(["compare", "--resume", str(killed), "--jobs", "1"]) == 0
    assert str(tmp_path) not in (killed / "summary.json").read_text()
    assert len(ran) == 3 + 1 + 1, "three units, the model that is shipped, and one again for the importance"
    assert finished == {name: (killed / "candidates" / f"{name}.json").stat().st_mtime_ns for name in finished}
    assert not list(killed.glob("**/.*"))
    assert main(["compare", data, *ASK, "--out", str(whole)]) == 0
    assert summary(killed) == summary(whole)
    frame = binary()
    np.testing.assert_array_equal(runs.load(killed).model.scores(frame), runs.load(whole).model.scores(frame))
    ran.clear()
    assert main(["compare", "--resume", str(whole), "--jobs", "1"]) == 0
    assert not ran


def test_two_processes_find_what_one_does(tmp_path: Path) -> None:
    data, out = written(binary(), tmp_path), tmp_path / "two"
    script = KILLED.split("write, count")[0] + "if __name__ == '__main__':\n    sys.exit(main(sys.argv[1:]))\n"
    (tmp_path / "script.py").write_text(script)  # run as a file: its processes import it, and take the same effort
    ask = ["compare", data, *ASK[:-1], "2", "--out", str(out)]
    done = subprocess.run([sys.executable, str(tmp_path / "script.py"), *ask], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "one")]) == 0
    assert summary(out) == summary(tmp_path / "one")


def test_ctrl_c_says_how_to_go_on(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    interrupt_after(monkeypatch, 2)
    assert main(["compare", data, *ASK, "--out", str(out)]) == 130
    assert capsys.readouterr().err.endswith(f"interrupted; continue with: metricgrad compare --resume {out}\n")
    assert len(list((out / "candidates").glob("*.json"))) == 2
    assert main(["compare", "--resume", str(out), "--jobs", "1"]) == 0


def test_resume_wants_the_same_data(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    interrupt_after(monkeypatch, 1)
    assert main(["compare", data, *ASK, "--out", str(out)]) == 130
    assert main(["compare", data, "--resume", str(out)]) == 2
    assert "--resume: the run folder holds everything else, got data as well" in capsys.readouterr().err
    with Path(data).open("a") as file:
        file.write("0,0,flat,1,1,no\n")
    assert main(["compare", "--resume", str(out)]) == 4
    assert "the data changed since the run began" in capsys.readouterr().err
    Path(data).unlink()
    assert main(["compare", "--resume", str(out)]) == 4
    assert "the data of this run are missing" in capsys.readouterr().err


def test_runs_are_not_overwritten(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    ask = ["train", data, "--target", "ripe", "--contender", "majority", "--out", str(out)]
    assert main(ask) == 0
    assert main(ask) == 4
    assert "exists already; choose another --out, or use --resume or --force" in capsys.readouterr().err
    assert main([*ask, "--force"]) == 0
    (out / "notes.txt").write_text("mine")
    assert main([*ask, "--force"]) == 4
    assert "--force would delete 'notes.txt', which no run wrote" in capsys.readouterr().err
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    assert main([*ask[:-1], str(other), "--force"]) == 4
    assert (other / "thesis.tex").exists()


def test_two_cannot_write_one_run(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    ask = ["train", data, "--target", "ripe", "--contender", "majority", "--out", str(out)]
    assert main(ask) == 0
    with FileLock(out / "lock"):
        assert main([*ask, "--force"]) == 4
        assert "another process is writing to it" in capsys.readouterr().err
    assert (out / "model").is_dir()


def test_a_failing_contender_is_left_out(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_candidates(monkeypatch, "hybrid")
    out = tmp_path / "run"
    assert main(["compare", data, *ASK, "--out", str(out)]) == 0
    assert "left out: hybrid, RuntimeError: no luck" in capsys.readouterr().out
    assert summary(out)["left_out"] == [["hybrid", "RuntimeError: no luck"]]


def test_a_budget_stops_after_two_whole_repeats(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    ask = [*ASK, "--repeats", "4", "--budget", "0.0001"]
    assert main(["compare", data, *ask, "--out", str(out)]) == 0
    assert "the budget of 0.0001 minutes allows 2 of 4 repeats" in capsys.readouterr().err
    found = json.loads((out / "summary.json").read_bytes())
    assert (found["repeats"], found["planned_repeats"]) == (2, 4)
    assert "(The budget allowed 2 of 4 repeats.)" in found["verdict"]["headline"]
    assert found["command"].endswith("--budget 0.0001")
    assert "--repeats 2" in found["reproduce"]["command"]
    assert "--budget" not in found["reproduce"]["command"]


def test_a_constraint_that_no_contender_meets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = binary()
    frame["size"] = 0.0 + np.arange(400) % 7
    frame["shape"] = "flat"
    data = written(frame, tmp_path)
    ask = [*ASK, "--drop", "weight,farm,day", "--subject-to", "precision>=0.95"]
    assert main(["compare", data, *ask, "--out", str(tmp_path / "run")]) == 6
    assert "--subject-to: no contender can meet 'precision>=0.95'" in capsys.readouterr().err
    ask = ["--target", "ripe", "--drop", "weight,farm,day", "--subject-to", "precision>=0.95"]
    assert main(["train", data, *ask, "--out", str(tmp_path / "train")]) == 6
    assert (
        "--subject-to: hybrid cannot meet 'precision>=0.95' on the out-of-fold scores of 400 rows"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "train").exists()


def test_groups_and_time(data: str, tmp_path: Path) -> None:
    for name, column in (("--group", "farm"), ("--time", "day")):
        out = tmp_path / column
        assert main(["compare", data, *ASK, name, column, "--out", str(out)]) == 0
        schema = runs.load(out).schema
        assert column not in schema.inputs
        assert column in summary(out)["protocol"][0]


def test_a_group_with_most_rows_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = binary().assign(farm=np.where(np.arange(400) < 240, 0, 1 + np.arange(400) % 20))
    data = written(frame, tmp_path)
    assert main(["compare", data, *ASK, "--group", "farm", "--out", str(tmp_path / "run")]) == 0
    assert (
        "warning: --group farm: '0' has 60% of the rows, so the parts of a split are uneven" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--target", "rip"], 2, "did you mean 'ripe'?"),
        (["--target", "ripe", "--metric", "auroc"], 2, "--metric: auroc evaluates a ranking, not decisions"),
        (
            ["--target", "ripe", "--contenders", "hibrid"],
            2,
            "--contenders: unknown contender 'hibrid'; did you mean 'hybrid'?",
        ),
        (["--target", "ripe", "--group", "frm"], 2, "--group and --time: expected a column, got 'frm'"),
        (["--target", "ripe", "--time", "shape"], 3, "--time shape: expected dates of one format, or numbers, got '"),
        (
            ["--target", "ripe", "--date-format", "dd/mm/yyyy"],
            2,
            "--date-format: expected day.month.year, month/day/year",
        ),
        (["--target", "ripe", "--subject-to", "precison>=0.9"], 2, "did you mean 'precision'?"),
    ],
)
def test_wrong_calls(words: list[str], code: int, message: str, data: str, tmp_path: Path, capsys: Any) -> None:
    assert main(["compare", data, *words, "--out", str(tmp_path / "run")]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_damaged_and_foreign_run_folders(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", data, "--target", "ripe", "--contender", "majority", "--out", str(out)]) == 0
    capsys.readouterr()
    for place, message in (
        (tmp_path / "none", "got a path that does not exist"),
        (Path(data), "got a file"),
        (tmp_path, "a folder without"),
    ):
        with pytest.raises(UserError, match=message):
            runs.load(place)
    (out / "model" / "schema.json").write_text("{}")
    with pytest.raises(UserError, match=r"schema.json in .* was changed since it was written"):
        _ = runs.load(out).model
    change(out / "run.json", lambda data: data | {"format": 99})
    reseal(out)
    with pytest.raises(UserError, match="expected a run of format 1, got 99; upgrade metricgrad"):
        runs.load(out)
    (out / "run.json").write_text("{")
    with pytest.raises(UserError, match=r"run.json was changed since it was written"):
        runs.load(out)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    assert main(["compare", data, *ASK, "--out", str(locked / "run")]) == 5
    assert "cannot be written" in capsys.readouterr().err


def test_a_full_disk(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "run")]) == 5
    error = capsys.readouterr().err
    assert "cannot be written (No space left on device)" in error
    assert not list((tmp_path / "run").glob(".*"))


def test_a_rule_can_be_replaced(data: str, tmp_path: Path) -> None:
    from metricgrad.decisions.rules import Threshold

    out = tmp_path / "run"
    assert main(["train", data, "--target", "ripe", "--contender", "majority", "--out", str(out)]) == 0
    run = runs.load(out)
    run.replace_rule(Threshold(0.25), run.model.about | {"metric": "f2"})
    again = runs.load(out).model
    assert again.rule == Threshold(0.25)
    assert again.goal.metric == "f2"


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--quick", "--repeats", "2", "--jobs", "1", "--out", str(tmp_path / "demo")]) == 0
    found = summary(tmp_path / "demo")
    assert found["data"]["rows"] == 2417
    assert found["data"]["task"] == "multilabel"
    # The path of the file is not part of the report.
    assert "site-packages" not in (tmp_path / "demo" / "report.html").read_text()
    assert "Ship " in capsys.readouterr().out
