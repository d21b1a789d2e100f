"""The comforts of the command line: --config, standard input and output, the model card, progress and completion."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from metricgrad.cli.main import main
from metricgrad.comparison.candidate_runs import CandidateRun, Failure
from metricgrad.comparison.model_card import plain
from metricgrad.comparison.option_texts import write_toml
from metricgrad.comparison.progress import LiveProgress
from short_training import shorten_training
from tables import binary, multilabel, written

ASK = ["--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return written(binary(), tmp_path)


def read_leaderboard(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((run / "summary.json").read_bytes())["leaderboard"]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def pipe(monkeypatch: pytest.MonkeyPatch, path: str | bytes) -> None:
    raw = path if isinstance(path, bytes) else Path(path).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


# --config


def test_a_run_is_repeated_from_its_own_configuration(data: str, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    words = [*ASK, "--metric", "f2,auroc", "--seed", "3", "--drop", "weight", "--positive", "yes"]
    assert main(["compare", data, *words, "--out", str(first)]) == 0
    config = str(first / "config.toml")
    assert main(["compare", "--config", config, "--jobs", "1", "--out", str(second)]) == 0
    assert read_leaderboard(second) == read_leaderboard(first)
    assert (second / "config.toml").read_bytes() == (first / "config.toml").read_bytes()
    assert json.loads((second / "config.json").read_bytes()) == json.loads((first / "config.json").read_bytes())
    words = ["--config", config, "--jobs", "1", "--seed", "4", "--metric", "mcc", "--out", str(third)]
    assert main(["compare", *words]) == 0
    found = tomllib.loads((third / "config.toml").read_text())
    assert found == {**tomllib.loads((first / "config.toml").read_text()), "seed": 4, "metric": ["mcc"]}


def test_a_configuration_of_ones_own(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(
        'data = "data.csv"\ntarget = "ripe"\nmetric = ["f2", "mcc"]\ncontenders = ["majority"]\nrepeats = 2\njobs = 1\n'
        'out = "run"\nsubject_to = "recall>=0.1"\n'
    )
    assert main(["compare", "--config", str(config), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    metric = found["metric"]
    assert (metric["name"], metric["subject_to"], metric["also"]) == ("f2", "recall>=0.1", ["mcc"])
    assert (tmp_path / "run" / "run.json").is_file()


def test_training_is_repeated_from_its_own_configuration(data: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    words = ["--target", "ripe", "--contender", "majority", "--rule", "fixed", "--seed", "2"]
    assert main(["train", data, *words, "--out", str(first)]) == 0
    assert main(["train", "--config", str(first / "config.toml"), "--out", str(second)]) == 0
    assert (second / "summary.json").read_bytes() == (first / "summary.json").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metrik = 'f1'", "unknown option 'metrik'; did you mean 'metric'?"),
        ("resume = 'run'", "got 'resume', which only the command line may set; type --resume"),
        ("force = true", "got 'force', which only the command line may set; type --force"),
        ("cluster = 'tcp://127.0.0.1:9'", "got 'cluster', which only the command line may set; type --cluster"),
        ("target = ", "expected TOML, got "),
        ("[compare]\nmetric = 'f1'", "unknown option 'compare'; "),
        ("metric = {a = 1}", "metric: expected a text, a number, true or false, got {'a': 1}"),
        ("repeats = 'five'", "Invalid value for '--repeats'"),
        ("repeats = 1", "Invalid value for '--repeats'"),
        ("metric = 'os:system'\ntarget = 'y'\ndata = 'x'", "os:system is code, and a file may not name code to import"),
        ("subject-to = 'os:system>=1'\ntarget = 'y'\ndata = 'x'", "if you trust it, type --subject-to os:system>=1"),
    ],
)
def test_bad_configurations_are_refused_in_one_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    assert main(["compare", "--config", str(config)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert main(["compare", "--config", str(tmp_path / "none.toml")]) == 2
    assert "cannot be read (No such file or directory); check the path" in capsys.readouterr().err


def test_code_is_typed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("half_metric.py").write_text("def half(c):\n    return c.tp / (c.tp + c.fn + c.fp + 1)\n")
    assert main(["compare", data, *ASK, "--metric", "half_metric:half", "--out", "run"]) == 0
    again = ["compare", "--config", "run/config.toml", "--jobs", "1", "--out", "again"]
    assert main(again) == 2
    assert main([*again, "--metric", "half_metric:half"]) == 0
    assert read_leaderboard(Path("again")) == read_leaderboard(Path("run"))


def test_any_text_comes_back_from_toml() -> None:
    config = {"target": 'a"b\\c\n\t\x7f\x00é😀', "subject_to": None, "rows": 3, "quick": True, "budget": 0.5}
    found = tomllib.loads(write_toml("compare", config))
    assert found == {"target": config["target"], "rows": 3, "quick": True, "budget": 0.5}


# Standard input and output


def test_data_from_standard_input(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped, plain_run = tmp_path / "piped", tmp_path / "plain"
    pipe(monkeypatch, data)
    assert main(["compare", "-", *ASK, "--out", str(piped)]) == 0
    assert main(["compare", data, *ASK, "--out", str(plain_run)]) == 0
    assert read_leaderboard(piped) == read_leaderboard(plain_run)
    assert (piped / "stdin.csv").read_bytes() == Path(data).read_bytes()
    assert json.loads((piped / "config.json").read_bytes())["data"] == "stdin.csv"
    moved = piped.rename(tmp_path / "moved")
    assert main(["compare", "--config", str(moved / "config.toml"), "--jobs", "1", "--out", str(tmp_path / "b")]) == 0
    assert read_leaderboard(tmp_path / "b") == read_leaderboard(plain_run)
    assert main(["compare", data, *ASK, "--out", str(moved), "--force"]) == 0
    assert not (moved / "stdin.csv").exists()
    capsys.readouterr()
    for words in (["evaluate"], ["tune", "--dry-run"]):
        pipe(monkeypatch, data)
        assert main([words[0], str(moved), "-", *words[1:], "--json"]) == 0
        from_pipe = json.loads(capsys.readouterr().out)
        assert main([words[0], str(moved), data, *words[1:], "--json"]) == 0
        assert from_pipe == {**json.loads(capsys.readouterr().out), "data": "-"}


def test_predictions_to_standard_output(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run, output = str(tmp_path / "run"), tmp_path / "predictions.csv"
    pipe(monkeypatch, data)
    assert main(["train", "-", "--target", "ripe", "--contender", "majority", "--out", run]) == 0
    assert main(["predict", run, data, "-o", str(output), "--id", "day"]) == 0
    capfdbinary.readouterr()
    pipe(monkeypatch, data)
    assert main(["predict", run, "-", "-o", "-", "--id", "day"]) == 0
    assert capfdbinary.readouterr() == (output.read_bytes(), b"")
    for other in (["--json"], []):
        given = data if other else str(tmp_path)
        assert main(["predict", run, given, "-o", "-", *other]) == 2
        assert b"--output: expected a path together with " in capfdbinary.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "standard input: expected column names and rows, got an empty file"),
        (b"a,ripe\n1,2,3\n", "standard input: row 2: expected 2 cells"),
        (b"\x80\x04pickle", "standard input: expected CSV, Parquet or Feather, got a pickle"),
    ],
)
def test_errors_name_standard_input(
    text: bytes, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipe(monkeypatch, text)
    assert main(["compare", "-", *ASK]) == 3
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_kept_data_that_changed_do_not_resume(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("metricgrad.comparison.run_comparison.rank_contenders", interrupt)
        pipe(patch, data)
        assert main(["compare", "-", *ASK, "--out", str(run)]) == 130
    kept = (run / "stdin.csv").read_bytes()
    (run / "stdin.csv").write_bytes(kept.replace(b"round", b"flat"))
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 4
    assert "stdin.csv: the data changed since the run began" in capsys.readouterr().err
    (run / "stdin.csv").write_bytes(kept)
    assert main(["compare", "--resume", str(run), "--jobs", "1"]) == 0


# The model card


def test_the_model_card_says_what_the_run_found(data: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert main(["compare", data, *ASK, "--metric", "f2", "--subject-to", "recall>=0.1", "--out", str(run)]) == 0
    card, summary = (run / "model_card.md").read_text(), json.loads((run / "summary.json").read_bytes())
    headings = ["Model card", "What it is for", "Data", "Metric and decision rule", "How it was chosen", "Limits"]
    assert [line.lstrip("# ") for line in card.splitlines() if line.startswith("#")] == [*headings, "How to load it"]
    assert plain(summary["verdict"]["headline"], None) in card
    for row in summary["leaderboard"]:
        cells = [row["contender"], row["rule"], f"{row['value']:.3f}"]
        assert cells in [[cell.strip() for cell in line.split("|")[1:4]] for line in card.splitlines()]
    assert "subject to recall\\>=0.1" in card
    assert "It predicts ripe (binary) for rows like those it was trained on: data.csv." in card
    manifest = json.loads((run / "run.json").read_bytes())
    assert {"model_card.md", "config.toml"} <= manifest["files"].keys()


def test_text_of_the_data_is_no_markup_in_the_card(tmp_path: Path) -> None:
    frame = multilabel().rename(columns={"label 0": "<img src=x>|# x", "a": "[a](http://x)", "b": "*b*\n# c"})
    run = tmp_path / "run"
    data = tmp_path / "data.parquet"
    frame.to_parquet(data)
    words = ["--target", "<img src=x>|# x,label 1,label 2", "--contender", "majority", "--out", str(run)]
    assert main(["train", str(data), *words]) == 0
    card = (run / "model_card.md").read_text()
    assert "\\<img src=x\\>\\|\\# x" in card
    assert "\\[a\\](http:\\//x), \\*b\\* \\# c" in card
    assert "<img" not in card.replace("\\<img", "")


# Progress


def finished(repeat: int) -> CandidateRun:
    return CandidateRun("hybrid", repeat, 1.0, [], np.zeros(1), np.zeros(1), [])


def show(monkeypatch: pytest.MonkeyPatch, total: int, done: int, verbose: bool = False, terminal: bool = False) -> str:
    clock = iter(range(0, 10_000, 60))
    monkeypatch.setattr("metricgrad.comparison.progress.time.monotonic", lambda: next(clock))
    file = io.StringIO()
    progress = LiveProgress(verbose)
    progress.console = Console(file=file, force_terminal=terminal, width=100, highlight=False)
    with progress:
        progress.show_profile([("rows", "4")], [f"{i} is odd" for i in range(14)])
        progress.start(total, done)
        for repeat in range(total - done - 1):
            progress.finish_unit(finished(repeat))
        progress.finish_unit(Failure("xgboost", 0, "no memory"))
    return file.getvalue()


def test_time_left_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(monkeypatch, total=40, done=20).splitlines()
    assert "warning: 2 more warnings are in the report" in lines
    assert "20 of 40 units are finished already" in lines
    left = [line for line in lines if "left" in line]
    # The clock of this test ticks once for every line, so the first four units took 1 minute, the first eight 2.
    assert left[:2] == [
        "24 of 40 units are finished, about 4 min left",
        "28 of 40 units are finished, about 3 min left",
    ]
    assert len(left) == 4
    assert lines[-1] == "xgboost failed: no memory"
    assert not any("repeat" in line for line in lines)


def test_verbose_prints_every_unit_and_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(monkeypatch, total=40, done=0, verbose=True).splitlines()
    assert sum(line.startswith("warning: ") for line in lines) == 14
    assert "repeat 3, hybrid: fitted in 1.0 s" in lines
    assert sum(line.startswith("repeat ") for line in lines) == 39
    on_terminal = show(monkeypatch, total=4, done=0, verbose=True, terminal=True)
    assert "repeat 2, hybrid: fitted in 1.0 s" in on_terminal
    assert "units are finished, about" not in on_terminal


def test_verbose_on_the_command_line(data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "a")]) == 0
    assert "repeat 1, majority: " not in capsys.readouterr().err
    assert main(["compare", data, *ASK, "--out", str(tmp_path / "b"), "--verbose"]) == 0
    assert "repeat 1, majority: " in capsys.readouterr().err


# Completion


def run_command(words: list[str], home: Path, **environment: str) -> str:
    environment = {**os.environ, "HOME": str(home), "SHELL": "/bin/bash", **environment}
    done = subprocess.run(
        [sys.executable, "-m", "metricgrad", *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_shell_completes_commands_and_options(tmp_path: Path) -> None:
    ask = {"_METRICGRAD_COMPLETE": "complete_bash", "COMP_CWORD": "1"}
    assert run_command([], tmp_path, COMP_WORDS="metricgrad ev", **ask).split() == ["evaluate"]
    found = run_command([], tmp_path, COMP_WORDS="metricgrad compare --subj", **{**ask, "COMP_CWORD": "2"})
    assert found.split() == ["--subject-to"]


def test_help_names_completion(tmp_path: Path) -> None:
    assert "--install-completion" in run_command(["--help"], tmp_path)


def test_numbers_of_the_model_do_not_depend_on_the_way_of_the_data(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, data)
    words = ["--target", "ripe", "--contender", "logistic regression", "--out"]
    assert main(["train", "-", *words, str(tmp_path / "piped")]) == 0
    assert main(["train", data, *words, str(tmp_path / "plain")]) == 0
    for run in ("piped", "plain"):
        assert main(["predict", str(tmp_path / run), data, "-o", str(tmp_path / f"{run}.csv")]) == 0
    frames = [pd.read_csv(tmp_path / f"{run}.csv") for run in ("piped", "plain")]
    np.testing.assert_array_equal(frames[0]["score"], frames[1]["score"])


def test_closed_streams_cost_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdin", None)
        assert main(["train", "-", "--target", "ripe", "--out", str(tmp_path / "run")]) == 3
    assert "standard input, which is closed" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(sys, "__stdout__", None)
        assert main(["predict", str(tmp_path), str(tmp_path / "data.csv"), "-o", "-"]) == 5
    assert "expected an open standard output, got a closed one" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert main(["info"]) == 0
        sys.stdout.close()
