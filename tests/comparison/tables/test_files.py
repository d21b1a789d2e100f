"""Files: dialects, encodings, samples, limits, and writing whole or not at all."""

from __future__ import annotations

import csv
import gzip
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables import files

pytestmark = pytest.mark.quick

TABLE = pd.DataFrame({"name": ["Ann", "Bö", None], "x": [1.5, 2.5, -3.0], "n": [1, 2, 3]})


def put(folder: Path, data: bytes | str, name: str = "a.csv") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_csv_of_every_dialect(tmp_path: Path, separator: str, encoding: str, ending: str) -> None:
    lines = ["name;x;n", '"Ann";1.5;1', "Bö; 2.5 ;2", "NA;-3e0;3", ""]
    text = ending.join(lines).replace(";", separator)
    pd.testing.assert_frame_equal(files.read(put(tmp_path, text.encode(encoding))), TABLE)
    packed = put(tmp_path, gzip.compress(text.encode(encoding)), "b.csv")
    pd.testing.assert_frame_equal(files.read(packed), TABLE)


def test_latin_1_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "metricgrad"):
        files.read(put(tmp_path, "name,x\nBö,1\n".encode("latin-1")))
    assert "read as Latin-1" in caplog.text


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("damage", ["surrogate", "cut"])
def test_broken_utf_16_is_refused_in_one_line(tmp_path: Path, encoding: str, damage: str) -> None:
    data = ("name,x\n" + "Ann,1\n" * 50_000 + "Bo?,2\n").encode(encoding)  # the damage is beyond the first block
    mark = "?".encode("utf-16-be" if encoding == "utf-16-be" else "utf-16-le")
    alone = b"\xd8\x00" if encoding == "utf-16-be" else b"\x00\xd8"
    data = data.replace(mark, alone) if damage == "surrogate" else data[:-1]
    with pytest.raises(UserError, match=r"expected UTF-16.* text, got a broken character .*; save it again, as UTF-8$"):
        files.read(put(tmp_path, data))


def test_quotes_hold_separators_and_line_breaks(tmp_path: Path) -> None:
    found = files.read(put(tmp_path, 'a,"b, c"\n"x,\ny",1\n"say ""hi""",2\n'))
    assert found.columns.tolist() == ["a", "b, c"]
    assert found["a"].tolist() == ["x,\ny", 'say "hi"']
    single = files.read(put(tmp_path, "a;b\n'x;y';1\n'z';2\n"))
    assert single["a"].tolist() == ["x;y", "z"]


def test_random_tables_come_back_cell_by_cell(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = [
        "a",
        "b c",
        'say "hi"',
        "x,y",
        "x;y",
        "tab\there",
        "new\nline",
        "日本",
        "'q'",
        "|",
        "1,5",
        "=1+1",
        "-",
        "3.",
    ]
    for _ in range(40):
        table = pd.DataFrame(rng.choice(words, (rng.integers(1, 30), rng.integers(2, 6)))).add_prefix("b c,")
        separator, encoding = str(rng.choice([*",;|\t"])), str(rng.choice(["utf-8", "utf-16", "utf-8-sig"]))
        quoting = int(rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
        table.to_csv(tmp_path / "a.csv", index=False, sep=separator, encoding=encoding, quoting=quoting)
        pieces = list(files.stream(tmp_path / "a.csv"))
        got = pd.concat(pieces).replace("1.5", "1,5")  # a decimal comma, where commas separate nothing
        pd.testing.assert_frame_equal(got, table.astype("str"), check_dtype=False)


def test_strings_among_numbers_and_late_changes_of_type(tmp_path: Path) -> None:
    rows = ["a,b"] + [f"{i},{i}" for i in range(200_000)] + ["x,1.5"]
    found = files.read(put(tmp_path, "\n".join(rows)))
    assert found["a"].iloc[-1] == "x"
    assert found["b"].dtype == np.float64
    assert found["b"].sum() == sum(range(200_000)) + 1.5


def test_row_numbers_without_a_name_get_one(tmp_path: Path) -> None:
    assert files.read(put(tmp_path, ",a\n0,5\n1,6\n")).columns.tolist() == ["column 1", "a"]


@pytest.mark.parametrize("name", ["a.parquet", "a.feather", "a.csv", "a.csv.gz", "a.arrow"])
def test_what_is_written_is_read(tmp_path: Path, name: str) -> None:
    with files.write(tmp_path / name) as file:
        file.add(TABLE)
        file.add(TABLE)
    again = files.read(tmp_path / name)
    pd.testing.assert_frame_equal(again, pd.concat([TABLE, TABLE], ignore_index=True))
    pieces = list(files.stream(tmp_path / name, rows=2))
    assert [len(piece) for piece in pieces if len(piece) > 2] == []
    assert sum(map(len, pieces)) == 6
    assert next(files.stream(tmp_path / name, columns=["n", "x"])).columns.tolist() == ["n", "x"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_sample_is_of_all_rows_and_in_order(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": range(200_000)}), tmp_path / "a.parquet")
    found = files.read(tmp_path / "a.parquet", rows=1000)["a"]
    assert len(found) == found.nunique() == 1000
    assert found.is_monotonic_increasing
    assert abs(found.mean() - 100_000) < 6000
    assert found.equals(files.read(tmp_path / "a.parquet", rows=1000)["a"])
    assert not found.equals(files.read(tmp_path / "a.parquet", rows=1000, seed=1)["a"])
    assert len(files.read(tmp_path / "a.parquet", rows=10**6)) == 200_000


def test_too_large_for_memory_says_how_many_rows_would_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pq.write_table(pa.table({"a": range(200_000)}), tmp_path / "a.parquet")
    monkeypatch.setattr(files, "find_memory_limit", lambda: 800_000)
    with pytest.raises(UserError, match=r"--rows 80000$") as caught:
        files.read(tmp_path / "a.parquet")
    assert caught.value.code == 3
    assert len(files.read(tmp_path / "a.parquet", rows=78_000)) == 78_000


BAD: dict[str, tuple[bytes | str, str]] = {
    "nothing": ("", "got an empty file"),
    "blank lines": (" \n\n", "got an empty file"),
    "names alone": ("a,b\n", "expected rows below the column names"),
    "a name twice": ("a,a,b\n1,2,3\n", "every column name once, got 'a' more than once"),
    "a short row": ("a,b\n1,2\n3\n4,5\n", "row 3: expected 2 cells as in the line of column names, got 1"),
    "a long row": ("a,b\n1,2\n3,4,5\n", "row 3: expected 2 cells"),
    "no names": ("1,2\n3,4\n", "expected column names in the first line"),
    "a zip archive": (b"PK\x03\x04rest", "its zip stream is damaged"),
    "a pickle": (b"\x80\x04\x95rest", "got a pickle"),
    "damaged Parquet": (b"PAR1 and no more", "cannot be read"),
    "damaged Feather": (b"ARROW1 and no more", "cannot be read"),
    "bytes that are no text": (b"a,b\n\x00\x01\x02,\x00\n", "a file of another kind"),
    "damaged gzip": (gzip.compress(b"a,b\n" + b"1,2\n" * 9000)[:-20], "gzip stream is damaged"),
}
"""Tests are named by what is wrong: the bytes of gzip hold the time, and processes that share tests compare names."""


@pytest.mark.parametrize("case", BAD)
def test_bad_files_get_one_line(case: str, tmp_path: Path) -> None:
    data, message = BAD[case]
    with pytest.raises(UserError) as caught:
        files.read(put(tmp_path, data))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.code == 3


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="which does not exist"):
        files.read(tmp_path / "none.csv")
    with pytest.raises(UserError, match="Is a directory"):
        files.read(tmp_path)


def test_nothing_half_written(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _write_until(KeyboardInterrupt, tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(ZeroDivisionError):
        _write_until(ZeroDivisionError, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "old"


def _write_until(error: type[BaseException], path: Path) -> None:
    with files.write(path) as file:
        file.add(TABLE)
        raise error


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.feather"])
def test_no_place_to_write(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / name
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\)") as caught, files.write(place) as file:
        file.add(TABLE)
    assert caught.value.code == 5


def test_unknown_suffixes(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"expected a name that ends in \.csv") as caught,
        files.write(tmp_path / "a.xls"),
    ):
        pass
    assert caught.value.code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_a_full_disk(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.Writer, "_open", _onto_full_disk(files.Writer._open))
    with (
        pytest.raises(UserError, match="No space left on device") as caught,
        files.write(tmp_path / f"a.{kind}") as file,
    ):
        file.add(TABLE)
    assert caught.value.code == 5
    assert list(tmp_path.iterdir()) == []


def _onto_full_disk(opened: object) -> object:
    def instead(self: files.Writer, schema: object) -> object:
        self._path = Path("/dev/full")
        return opened(self, schema)  # type: ignore[operator]

    return instead


# Errors in threads of pyarrow


RAGGED = "a,b,y\n1,2,0\n\xe4,2\n"


@pytest.mark.parametrize("data", [b"a,b,y\n", RAGGED.encode(), RAGGED.encode("latin-1")])
def test_pyarrow_gets_no_python_objects(data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []
    real = pa.csv.open_csv

    def note(*options: Any) -> Any:
        given.append(options)
        return real(*options)

    monkeypatch.setattr(pa.csv, "open_csv", note)
    with pytest.raises(UserError, match=r"row 3: expected 3 cells|expected rows below the column names, got none"):
        files.read(put(tmp_path, data))
    for raw, reading, parsing, _ in given:
        assert isinstance(raw, pa.NativeFile)
        assert not isinstance(raw, pa.PythonFile)
        assert reading.encoding == "utf8"
        assert parsing.invalid_row_handler is None
