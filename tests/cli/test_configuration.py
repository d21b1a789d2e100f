"""``--config``: options from TOML, such as those that every run writes."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from commands import ASK, read_leaderboard
from metricgrad.cli.main import main
from metricgrad.comparison.option_texts import write_toml
from short_training import shorten_training


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


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
