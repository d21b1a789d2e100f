"""After a comparison: more repeats, another contender to ship, another rule, and what the terminal shows."""

from __future__ import annotations

import io
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from metricgrad.cli import display
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.candidate_runs import ALL_ROWS
from metricgrad.comparison.errors import UserError, writing
from metricgrad.comparison.options import Options
from metricgrad.comparison.report import page
from metricgrad.comparison.workers import fill, find_shared
from short_training import shorten_training
from small_studies import make_plan, open_run_writer
from tables import binary, written

ASK = ["--target", "ripe", "--contenders", "majority,hybrid", "--jobs", "1"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return written(binary(), tmp_path)


def compared(data: str, out: Path, *more: str) -> Path:
    assert main(["compare", data, *ASK, *more, "--out", str(out)]) == 0
    return out


def read(run: Path, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "summary.json").read_bytes())
    for row in found["leaderboard"]:
        row.pop("seconds")
    return {name: found[name] for name in names or ("leaderboard", "verdict", "repeats", "model", "planned_repeats")}


def test_more_repeats_are_added_to_a_finished_run(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, whole = (
        compared(data, tmp_path / "run", "--repeats", "2"),
        compared(data, tmp_path / "whole", "--repeats", "3"),
    )
    before = {path.name: path.read_bytes() for path in (run / "results").iterdir()}
    repeats, run_one = list[int](), candidate_runs.run_candidate

    def counted(task: Any) -> Any:
        repeats.append(task.repeat)
        return run_one(task)

    monkeypatch.setattr(candidate_runs, "run_candidate", counted)
    assert main(["compare", "--resume", str(run), "--repeats", "3", "--jobs", "1"]) == 0
    assert [repeat for repeat in repeats if repeat > 1 and repeat != ALL_ROWS] == [2] * repeats.count(2)
    assert repeats.count(2) > 0
    assert before == {name: (run / "results" / name).read_bytes() for name in before}
    assert read(run) == read(whole)
    frame = binary()
    np.testing.assert_array_equal(runs.load(run).model.scores(frame), runs.load(whole).model.scores(frame))
    capsys.readouterr()
    assert main(["compare", "--resume", str(run), "--repeats", "2"]) == 2
    assert "--repeats: expected at least 3, as in the run, got 2" in capsys.readouterr().err
    assert runs.load(run).manifest["state"] == "finished"


def test_forward_in_time_more_repeats_are_refused(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = compared(data, tmp_path / "run", "--repeats", "2", "--time", "day")
    capsys.readouterr()
    assert main(["compare", "--resume", str(run), "--repeats", "3"]) == 2
    error = capsys.readouterr().err
    assert error == "metricgrad: --repeats: with --time another number of repeats changes all splits; start a new run\n"
    assert runs.load(run).manifest["state"] == "finished"


def test_the_user_ships_what_the_user_wants(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = compared(data, tmp_path / "run", "--repeats", "2", "--ship", "majority, fixed")
    model = runs.load(run).model
    assert (model.contender, model.about["kind"]) == ("majority", "fixed")
    assert read(run, "verdict")["verdict"]["chosen"]
    assert read(run, "reproduce")["reproduce"]["command"].endswith("--ship 'majority, fixed'")
    assert main(["compare", "--resume", str(run), "--ship", "hybrid", "--jobs", "1"]) == 0
    assert runs.load(run).model.contender == "hybrid"
    assert "ships   hybrid, threshold 0." in capsys.readouterr().out
    assert main(["compare", "--resume", str(run), "--ship", "hibrid"]) == 2
    assert "--ship: expected a contender of this run, got 'hibrid'; did you mean 'hybrid'?" in capsys.readouterr().err
    assert runs.load(run).model.contender == "hybrid"
    assert main(["compare", data, *ASK, "--ship", "x", "--out", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def test_the_shipped_rule_stands_everywhere_and_tune_renews_it(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = compared(data, tmp_path / "run", "--repeats", "2", "--ship", "hybrid")
    printed = capsys.readouterr().out

    def check(shown: str) -> float:
        model = runs.load(run).model
        (cut,) = model.describe()["thresholds"]
        assert re.search(rf"^ships +hybrid, threshold {cut:.4g}, tuned on ", shown, re.MULTILINE)
        assert main(["info", str(run), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == model.describe()
        payload = page.read((run / "report.html").read_text())
        assert payload["model"] == model.describe()
        (curve,) = payload["details"]["hybrid"]["classes"]
        assert (curve["threshold"], curve["ships"]) == (cut, True)
        assert not payload["details"]["majority"]["classes"][0]["ships"]
        assert f"The shipped model decides by threshold {cut:.4g}" in (run / "report.html").read_text()
        assert cut is not None
        return cut

    before = check(printed)
    assert main(["tune", str(run), data, "--metric", "f0.5"]) == 0
    capsys.readouterr()
    assert main(["info", str(run)]) == 0
    assert check(capsys.readouterr().out) != before
    (run / "report.html").write_text("mine")
    assert main(["tune", str(run), data, "--metric", "f2"]) == 0
    assert "still shows the previous rule: it was changed since it was written" in capsys.readouterr().err
    assert (run / "report.html").read_text() == "mine"


def test_the_constraint_on_test_rows_is_reported_everywhere(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = compared(data, tmp_path / "run", "--repeats", "2", "--subject-to", "recall>=0.3", "--ship", "hybrid")
    found = read(run)
    held = next(row["held"] for row in found["leaderboard"] if (row["contender"], row["rule"]) == ("hybrid", "tuned"))
    sentence = f"The constraint recall>=0.3 was met on the test rows in {held} of 2 repeats."
    assert sentence in found["verdict"]["text"]
    assert sentence in capsys.readouterr().out
    html = (run / "report.html").read_text()
    assert "The constraint recall&gt;=0.3 was met" in html
    assert page.read(html)["metric"]["constraints"] == [{"metric": "recall", "bound": 0.3, "sense": ">=", "over": None}]
    assert "macro-averaged" not in html
    capsys.readouterr()
    # No rule of the majority that predicts anything is precise: the run stays as it is.
    strict = compared(data, tmp_path / "strict", "--repeats", "2", "--subject-to", "precision>=0.7")
    assert main(["compare", "--resume", str(strict), "--ship", "majority", "--jobs", "1"]) == 6
    assert "--ship: majority, tuned rule cannot meet 'precision>=0.7'; choose another" in capsys.readouterr().err
    assert runs.load(strict).manifest["state"] == "finished"


# The terminal


def board(also: list[str], subject_to: str | None) -> dict[str, Any]:
    names = ["a", "maximal figure of merit", "weighted cross-entropy", "cross-entropy"]
    rows = [
        {
            "contender": name,
            "rule": rule,
            "value": 0.4125 + 0.01 * i,
            "low": 0.3871,
            "high": 0.4432,
            "against": {
                "cross-entropy tuned": {"difference": 0.0123, "low": 0.0, "high": 0.1, "p": 0.0 if i else 0.04}
            },
            "others": dict.fromkeys(also, 0.7654),
            "feasible": i != 1,
            "held": 4,
        }
        for i, name in enumerate(names)
        for rule in ("fixed", "tuned")
    ]
    metric = {"name": "f1", "title": "macro-averaged F1", "subject_to": subject_to, "also": also}
    verdict = {"ship": "a", "rule": "tuned", "headline": "Ship a, tuned rule.", "text": "It is good."}
    return {"metric": metric, "verdict": verdict, "leaderboard": rows, "repeats": 5, "left_out": []}


@pytest.mark.parametrize("width", [40, 60, 80, 120])
@pytest.mark.parametrize("subject_to", [None, "precision>=0.9"])
def test_no_digit_is_cut_at_any_width(width: int, subject_to: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(display, "_make_console", lambda: Console(file=file, width=width, highlight=False))
    summary = board(["average_precision", "balanced_accuracy", "auroc"], subject_to)
    display.print_leaderboard(summary)
    printed = file.getvalue()
    assert "…" not in printed
    assert max(map(len, printed.splitlines()[:-3])) <= width
    lines = printed.splitlines()
    for row in summary["leaderboard"]:
        assert any(f"{row['value']:.3f}" in line.split() for line in lines)
    # A column stands whole or not at all, and what has no room is named.
    shown = printed.split("no room for:")
    for head, cell in (("p", "<0.001"), ("95 % interval", "0.387 to 0.443"), ("gain", "+0.012"), ("auroc", "0.765")):
        missing = len(shown) > 1 and head in re.split(", | \\(", shown[1].replace("\n", " ").strip())
        assert (cell in printed) != missing or head == "auroc"
    if width == 120:
        assert printed.count("0.765") >= 8
        assert printed.count("<0.001") == 6


def test_small_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nothing"]) == 2
    assert capsys.readouterr().err == "metricgrad: No such command 'nothing'; see metricgrad --help\n"
    assert main(["--help"]) == 0
    commands = capsys.readouterr().out.split("Commands:")[1]
    assert "..." not in commands
    for error, how in (
        (FileNotFoundError(2, "x"), "No such file or directory); make its folder first, or choose another path"),
        (OSError(28, "x"), "No space left on device); free some space, or choose another path"),
        (PermissionError(13, "x"), "Permission denied); choose another path"),
    ):
        with pytest.raises(UserError, match=re.escape(how)), writing(tmp_path):
            raise error


def test_the_command_that_runs_the_same_again() -> None:
    assert Options("a.csv", ("y",), repeats=2, quick=True).command() == "metricgrad compare a.csv --target y --quick"
    assert "--repeats 5 --quick" in Options("a.csv", ("y",), quick=True).command()
    full = Options("a.csv", ("y",)).command("hybrid, fixed", 2.5)
    assert full == "metricgrad compare a.csv --target y --budget 2.5 --ship 'hybrid, fixed'"


def test_seconds_are_those_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def import_slowly(packages: tuple[str, ...]) -> None:
        clock[0] += 100

    monkeypatch.setattr(candidate_runs, "_import_lazy_modules", import_slowly)
    plan = make_plan(binary(), "ripe", tmp_path, contenders=("majority",))
    with open_run_writer(plan, tmp_path) as run_writer:
        (task,) = plan.make_tasks(run_writer, 0).yield_tasks(["majority"])
        found = candidate_runs.run_candidate(fill(task, {k: v.load() for k, v in find_shared(task).items()}))
    assert isinstance(found, candidate_runs.CandidateRun)
    assert found.seconds == 0
