"""JSON Lines, Excel and compressed files are read as the same table in CSV, or refused in one line."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import logging
import lzma
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables import files, packed_files
from tables import binary

TABLE = pd.DataFrame(
    {
        "name": ["Ann", "Bö", None, "a,b"],
        "x": [1.5, 2.5, -3.0, 1e-7],
        "n": [1, 2, 3, 12345678901],
        "new": [True, False, True, False],
        "day": ["2024-01-05", "2024-02-29", None, "2023-12-31"],
    }
)


def as_csv(frame: pd.DataFrame) -> bytes:
    text: str = frame.to_csv(index=False)
    return text.encode()


def as_json_lines(frame: pd.DataFrame) -> bytes:
    text: str = frame.to_json(orient="records", lines=True, double_precision=15)
    return text.encode()


def zipped(data: bytes, path: Path, *others: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/table", data)
        for name in others:
            archive.writestr(name, b"more")
    return path


def put(folder: Path, data: bytes, name: str = "data") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.fixture
def expected(tmp_path: Path) -> pd.DataFrame:
    return files.read(put(tmp_path, as_csv(TABLE).replace(b"True", b"true").replace(b"False", b"false"), "plain.csv"))


def test_json_lines_are_read_as_csv(tmp_path: Path, expected: pd.DataFrame) -> None:
    text = as_json_lines(TABLE)
    for data in (text, b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r\n"), b"\n" + text + b"\n\n"):
        pd.testing.assert_frame_equal(files.read(put(tmp_path, data)), expected)
    source = files.Source(put(tmp_path, text))
    assert source.names == list(TABLE)
    parts = list(source.pieces(3, ["n", "name"]))
    assert [part.num_rows for part in parts] == [3, 1]
    assert parts[0].column_names == ["n", "name"]
    sample = files.read(put(tmp_path, text), rows=2, seed=1)
    assert len(sample) == 2


def test_records_of_json_lines_may_lack_columns_and_hold_odd_numbers(tmp_path: Path) -> None:
    text = b'{"a": 1}\n{"b": "x", "a": NaN}\n{"a": 12345678901234567890123, "b": null}\n{}\n{"a": -Infinity}\n'
    found = next(files.stream(put(tmp_path, text)))
    assert found["a"].tolist()[::2] == ["1", "12345678901234567890123", "-inf"]
    assert found["a"].isna().tolist() == [False, True, False, True, False]
    assert found["b"].isna().tolist() == [True, False, True, True, True]


@pytest.mark.parametrize("make", [as_csv, as_json_lines], ids=["csv", "json"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, "zip"], ids=["gz", "bz2", "xz", "zip"])
def test_compressed_files(tmp_path: Path, make: Any, pack: Any) -> None:
    data = make(TABLE)
    wanted = files.read(put(tmp_path, data, "plain"))
    path = zipped(data, tmp_path / "packed") if pack == "zip" else put(tmp_path, pack(data), "packed")
    pd.testing.assert_frame_equal(files.read(path), wanted)
    assert [len(piece) for piece in files.stream(path, 3)] == [3, 1]


def test_parquet_within_an_archive_and_temporary_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    TABLE.to_parquet(tmp_path / "a.parquet")
    path = zipped((tmp_path / "a.parquet").read_bytes(), tmp_path / "a.zip", "__MACOSX/note")
    assert files.read(path)["n"].tolist() == TABLE["n"].tolist()
    assert list((tmp_path / "temporary").iterdir()) == []


BAD: dict[str, tuple[bytes, str]] = {
    "an array": (b'[{"a": 1},\n{"a": 2}]\n', "line 1: expected a JSON record in one line"),
    "over several lines": (b'{\n"a": 1}\n', "line 1: expected a JSON record in one line"),
    "a broken record": (b'{"a": 1}\n{"a": \n', "line 2: expected a JSON record in one line"),
    "a number": (b'{"a": 1}\n3\n', "line 2: expected a record such as"),
    "an array of records": (
        b'[{"a": 1}]\n',
        'line 1: expected a record such as {"a": 1}, got [{"a": 1}]; write JSON Lines, as',
    ),
    "a list in a cell": (b'{"a": 1}\n{"a": [1, 2]}\n', "line 2: column 'a': expected one value, got a list"),
    "a record in a cell": (b'{"a": {"b": 1}}\n', "line 1: column 'a': expected one value, got a record"),
    "a name twice": (b'{"a": 1, "a": 2}\n', "line 1: expected every column name once"),
    "no UTF-8": (b'{"a": "\xff"}\n', "line 1: expected UTF-8 text"),
    "too deep": (b'{"a": ' + b"[" * 100_000 + b"\n", "line 1: expected a JSON record in one line"),
    "no columns": (b"{}\n{}\n", "expected rows below the column names, got none"),
    "damaged xz": (lzma.compress(as_csv(TABLE) * 99)[:-30], "its xz stream is damaged"),
    "damaged bzip2": (bz2.compress(as_csv(TABLE) * 99)[:-30], "its bzip2 stream is damaged"),
    "an archive in an archive": (bz2.compress(gzip.compress(b"a,b\n1,2\n")), "got gzip within an archive"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_line(case: str, tmp_path: Path) -> None:
    data, message = BAD[case]
    path = put(tmp_path, data)
    with pytest.raises(UserError) as caught:
        files.read(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_archives_of_several_files_and_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="expected a zip archive of one file, got 2 files; unpack it first"):
        files.read(zipped(as_csv(TABLE), tmp_path / "two.zip", "other"))
    monkeypatch.setattr(packed_files, "MOST_BYTES", 1000)
    bomb = put(tmp_path, lzma.compress(b"a,b\n" + b"1,2\n" * 200_000))
    assert bomb.stat().st_size < 5000
    with pytest.raises(UserError, match=r"expected a file that unpacks to at most .* got more"):
        files.read(bomb)


def test_excel_is_read_as_csv(tmp_path: Path, expected: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("python_calamine")
    from spreadsheets import write_excel

    days = [None if pd.isna(day) else dt.date.fromisoformat(day) for day in TABLE["day"]]
    rows = [[*row[:4], day] for row, day in zip(TABLE.astype(object).values.tolist(), days, strict=True)]
    table = [list(TABLE), *([None if pd.isna(cell) else cell for cell in row] for row in rows)]
    path = write_excel(tmp_path / "a.xlsx", {"sheet": table})
    with caplog.at_level(logging.WARNING, "metricgrad"):
        pd.testing.assert_frame_equal(files.read(path), expected)
        assert caplog.text == ""
        several = write_excel(tmp_path / "b.xlsx", {"empty": [], "first": table, "second": [["a"], [1]]})
        pd.testing.assert_frame_equal(files.read(several), expected)
    assert "has 2 sheets, of which the first, 'first', was read" in caplog.text
    assert [len(piece) for piece in files.stream(path, 3)] == [3, 1]


def test_damaged_excel_is_refused_in_one_line(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    from spreadsheets import write_excel

    empty = write_excel(tmp_path / "empty.xlsx", {"sheet": []})
    with pytest.raises(UserError, match="expected a sheet with column names and rows"):
        files.read(empty)
    path = write_excel(tmp_path / "a.xlsx", {"sheet": [["a", "b"], *([1, "x"] for _ in range(200))]})
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    messages = []
    for _ in range(5):
        damaged = bytearray(whole)
        for place in generator.integers(100, len(whole) - 700, 40):
            damaged[place] ^= 255
        path.write_bytes(damaged)
        try:
            files.read(path)
        except UserError as error:
            messages.append(str(error))
    assert messages
    assert all("\n" not in message for message in messages)


def test_without_the_extra_excel_files_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from spreadsheets import write_excel

    path = write_excel(tmp_path / "a.xlsx", {"sheet": [["a"], [1]]})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"to read Excel files, install metricgrad\[excel\], or save it as CSV"):
        files.read(path)


def test_commands_take_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = put(tmp_path, as_json_lines(binary(200)), "data.jsonl")
    study = mg.compare(data, "ripe", contenders="logistic regression", repeats=2, jobs=1, out=tmp_path / "run")
    new = binary(60, seed=1)
    packed = put(tmp_path, lzma.compress(as_json_lines(new)), "new.jsonl.xz")
    out = tmp_path / "out.csv"
    assert main(["predict", str(study.path), str(packed), "-o", str(out)]) == 0
    assert (pd.read_csv(out)["prediction"] == study.model.predict(new)).all()
    archive = zipped(as_csv(new), tmp_path / "new.zip")
    found = []
    for path in (archive, packed):
        capsys.readouterr()
        assert main(["evaluate", str(study.path), str(path), "--json", "--replicates", "10"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert {**found[0], "data": None} == {**found[1], "data": None}
