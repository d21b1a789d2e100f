"""``compare`` and ``train``: data and calls that cannot be used."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from commands import GOOD, as_csv, csv, failed

pytestmark = pytest.mark.quick


RARE = ["yes"] * 3 + ["no"] * 197


# What is wrong: the file, more words of the call, the exit code, what the line says.
UNUSABLE: dict[str, tuple[bytes, list[str], int, str]] = {
    "empty file": (b"", [], 3, "got an empty file"),
    "names alone": (csv().splitlines()[0], [], 3, "expected rows below the column names, got none"),
    "one class": (csv(ripe="no"), [], 3, "expected two classes or more, got only 'no'"),
    "no such target": (csv(), ["--target", "rip"], 2, "did you mean 'ripe'?"),
    "a class with three rows": (csv(ripe=RARE), [], 3, "expected at least 10 rows of class 'yes', got 3; merge it"),
    "a target of numbers": (csv(ripe=np.linspace(0, 1, 200)), [], 3, "got 200 different values in 200 rows"),
    "a target of missing cells": (csv(ripe=""), [], 3, "got only missing cells"),
    "duplicate headers": (csv().replace(b"weight", b"size", 1), [], 3, "'size' more than once"),
    "ragged rows": (csv() + b"1,2,flat\n", [], 3, "row 202: expected 5 cells"),
    "no column names": (b"1,2,3\n4,5,6\n", [], 3, "expected column names in the first line"),
    "nothing to learn from": (as_csv(GOOD[["ripe"]]), [], 3, "expected feature columns"),
    "ids alone": (as_csv(GOOD[["ripe"]].assign(id=range(200))), [], 3, "looks like an id"),
    "all missing": (as_csv(GOOD[["ripe"]].assign(a=None, b=None)), [], 3, "all missing"),
    "a damaged zip archive": (b"PK\x03\x04 and so on", [], 3, "its zip stream is damaged"),
    "a pickle": (b"\x80\x04\x95 and so on", [], 3, "a pickle, which could run any code"),
    "damaged Parquet": (b"PAR1 and so on", [], 3, "write or copy the file again"),
    "damaged gzip": (gzip.compress(csv() * 50)[:-30], [], 3, "gzip stream is damaged"),
    "an unknown metric": (csv(), ["--metric", "f-one"], 2, "f-one"),
    "no metric": (csv(), ["--metric", ","], 2, "--metric: expected the name of a metric, got none"),
    "no target": (csv(), ["--target", ","], 2, "target: expected the name of a column, got none"),
    "quotes that do not end": (csv(), ["--drop", '"size,weight'], 2, "with a comma in double quotes, got"),
    "a bad constraint": (csv(), ["--subject-to", "precision=0.9"], 2, "'metric>=number'"),
    "an unknown column to drop": (csv(), ["--drop", "sice"], 2, "did you mean 'size'?"),
    "an unknown positive class": (csv(), ["--positive", "maybe"], 2, "expected a class of the target"),
    "an unknown option": (csv(), ["--tarot", "y"], 2, "No such option: --tarot"),
    "no rows asked for": (csv(), ["--rows", "0"], 2, "--rows"),
    "a folder that is there": (csv(), ["--out", "{here}"], 4, "exists already"),
    "no place to write": (csv(), ["--out", "{here}/data.csv/run"], 5, "cannot be written (Not a directory)"),
}


@pytest.mark.parametrize("command", ["train", "compare"])
@pytest.mark.parametrize("case", UNUSABLE)
def test_data_and_calls_that_cannot_be_used(
    command: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, more, code, message = UNUSABLE[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_bytes(data)
    words = [command, "data.csv", "--target", "ripe", "--quick", *(word.format(here=tmp_path) for word in more)]
    failed(capsys, code, message, words if "--out" in words else [*words, "--out", "run"])
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]
    assert (tmp_path / "data.csv").read_bytes() == data
