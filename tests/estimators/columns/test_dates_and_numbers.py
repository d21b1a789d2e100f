"""Dates and numbers as people write them: one format for a column, found from all cells, said and used again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metricgrad.cli.main import main
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.tables.gaps import Gaps
from metricgrad.comparison.tables.profile import describe_data, find_warnings
from metricgrad.comparison.tables.schema import Schema
from metricgrad.comparison.times import read_times
from metricgrad.estimators.columns.dates import NAMES, check_date_format, find_date_formats, read_dates
from metricgrad.estimators.columns.lookalikes import describe_numbers_in_texts
from metricgrad.estimators.columns.numbers import check_number_format, find_number_formats, read_formatted
from metricgrad.estimators.table_encoder import TableEncoder
from metricgrad.storage.table_encoders import read_encoder, write_encoder
from tables import written

pytestmark = pytest.mark.quick

N = 60
DAYS = [datetime(2021, 11, 20 + i % 11, i % 24, 5) if i % 2 else datetime(2022, 2, 1 + i % 28, 13, i) for i in range(N)]

WRITTEN = {
    "%Y-%m-%d": "year-month-day",
    "%Y-%m-%dT%H:%M:%SZ": "year-month-day",
    "%Y/%m/%d": "year/month/day",
    "%d.%m.%Y": "day.month.year",
    "%d.%m.%y %H:%M": "day.month.year",
    "%d/%m/%Y": "day/month/year",
    "%m/%d/%Y": "month/day/year",
    "%m/%d/%Y %I:%M %p": "month/day/year",
    "%d-%m-%Y %H:%M:%S": "day-month-year",
    "%m-%d-%Y": "month-day-year",
    "%d-%b-%Y": "day-month-year",
    "%d %B %Y": "day month year",
    "%b %d, %Y %H:%M": "month day year",
}


@pytest.mark.parametrize("pattern", WRITTEN)
def test_the_format_of_dates_is_found_and_they_are_read(pattern: str) -> None:
    texts = pd.Series([day.strftime(pattern) for day in DAYS])
    assert find_date_formats(texts, 1.0) == (WRITTEN[pattern],)
    plain = pattern.removesuffix("Z")
    expected = [datetime.strptime(text.removesuffix("Z"), plain) for text in texts]
    assert read_dates(texts, WRITTEN[pattern]).tolist() == expected
    assert read_dates(texts, pattern).tolist() == expected


def test_one_cell_decides_for_the_whole_column() -> None:
    early = pd.Series([f"{day:02}/{month:02}/2021" for day in range(1, 13) for month in range(1, 13)])
    assert find_date_formats(early, 1.0) == ("day/month/year", "month/day/year")
    assert find_date_formats(early, 1.0, given="month/day/year") == ("month/day/year",)
    found = find_date_formats(pd.concat([early, pd.Series(["31/12/2021"])]), 1.0)
    assert found == ("day/month/year",)
    assert read_dates(early, "day/month/year").iloc[1] == pd.Timestamp(2021, 2, 1)
    assert read_dates(early, "month/day/year").iloc[1] == pd.Timestamp(2021, 1, 2)


@pytest.mark.parametrize(
    "text", ["31.02.2021", "0.1.2021", "1.13.2021", "1.1.2021 24:00", "1.1.2021 1:60", "31.12.21x", "1.1.021", "", "x"]
)
def test_what_is_no_date_is_missing(text: str) -> None:
    assert read_dates(pd.Series([text, None, "1.12.2021"]), "day.month.year").isna().tolist() == [True, True, False]


def test_dates_without_leading_zeros() -> None:
    texts = pd.Series(["2021-1-31", "2021-12-1 7:05", "2021-02-03", None])
    assert find_date_formats(texts.dropna(), 1.0) == ("year-month-day",)
    expected = [pd.Timestamp(2021, 1, 31), pd.Timestamp(2021, 12, 1, 7, 5), pd.Timestamp(2021, 2, 3)]
    assert read_dates(texts, "year-month-day").tolist() == [*expected, pd.NaT]


def test_versions_and_addresses_are_no_dates() -> None:
    for texts in (["1.2.3", "10.20.30"], ["10.0.0.1", "10.0.0.2"], ["12-34", "56-78"], ["2021", "2022"]):
        assert find_date_formats(pd.Series(texts), 0.95) == ()


@pytest.mark.parametrize("text", ["day/month", "", "dd.mm.yyyy", "%Q", "%d.%", "year-day-month"])
def test_formats_that_do_not_exist(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        check_date_format(text)
    for name in (*NAMES, "%d%m%Y"):
        check_date_format(name)


# Numbers


def write(value: float, notation: str) -> str:
    """Write a number slowly, by hand."""
    decimal, thousands = notation[-2], notation[1] if notation[1] != "2" else ""
    whole, fraction = f"{abs(value):.2f}".split(".")
    groups = [whole[max(0, end - 3) : end] for end in range(len(whole), 0, -3)][::-1]
    return ("-" if value < 0 else "") + thousands.join(groups) + decimal + fraction


VALUES = np.round(np.random.default_rng(0).normal(size=N) * 10.0 ** np.arange(N).clip(0, 6), 2)


@pytest.mark.parametrize("notation", ["1234.5", "1,234.5", "1.234,5", "1 234.5", "1 234,5", "1'234.5", "1'234,5"])
@pytest.mark.parametrize(
    ("before", "after", "unit"), [("", "", ""), ("$", "", " $"), ("", " €", " €"), ("", "%", " %")]
)
def test_the_format_of_numbers_is_found_and_they_are_read(notation: str, before: str, after: str, unit: str) -> None:
    texts = pd.Series([before + write(value, notation) + after for value in VALUES])
    (found,) = find_number_formats(texts, 1.0)
    assert found == (notation if notation != "1234.5" or not unit else "1,234.5") + unit
    if found != "1234.5":
        np.testing.assert_array_equal(read_formatted(texts, found), VALUES)


@pytest.mark.parametrize(
    ("texts", "formats", "first"),
    [
        (["1,234", "2,500"], ("1,234.5", "1.234,5"), 1234),
        (["0,221", "1,345"], ("1.234,5",), 0.221),
        (["1,5", "1,234"], ("1.234,5",), 1.5),
        (["1.234", "1.234.567"], ("1.234,5",), 1234),
        (["1.000 kr", "5 kr"], ("1.234,5 kr", "1,234.5 kr"), 1000),
        (["12,345 %", "1,234 %"], ("1.234,5 %", "1,234.5 %"), 12.345),
        (["(1,234.50)", "3.00"], ("1,234.5",), -1234.5),
        (["1\u202f234,5", "2"], ("1 234,5",), 1234.5),
        (["\u22125,0 €", "4,0 €"], ("1.234,5 €",), -5),
    ],
)
def test_doubtful_numbers(texts: list[str], formats: tuple[str, ...], first: float) -> None:
    assert find_number_formats(pd.Series(texts), 1.0) == formats
    assert read_formatted(pd.Series(texts), formats[0])[0] == first


def test_other_units_and_plain_numbers_in_a_column_of_per_cent_are_not_read() -> None:
    cells = pd.Series(["5 $", "5 €", "5", "5 %", None, "1,23,456", "+49 30 123"])
    assert np.isnan(read_formatted(cells, "1,234.5 $")).tolist() == [False, True, False, True, True, True, True]
    assert np.isnan(read_formatted(cells, "1,234.5 %")).tolist() == [True, True, True, False, True, True, True]
    for text in ("1,234,5", "1234.5 x", "1.234,5 €€", ""):
        with pytest.raises(ValueError, match="expected a format of numbers"):
            check_number_format(text)


# Columns


def table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"size": np.arange(N) % 7.0, "y": ["no", "no", "yes"] * (N // 3)} | columns)


def test_formats_are_said_and_stored_and_used_again() -> None:
    price = [write(value, "1.234,5") + " €" for value in VALUES]
    rate = [f"{value % 100:.1f} %" for value in VALUES]
    data = table(price=price, rate=rate, bought=[day.strftime("%d.%m.%Y") for day in DAYS])
    schema = Schema.of(data, "y")
    assert {column.name: column.kind for column in schema.columns} == {
        "size": "number",
        "price": "number",
        "rate": "number",
        "bought": "date",
    }
    lines = describe_data(data, schema)
    assert ("column 'bought'", "read as day.month.year") in lines
    assert ("column 'price'", "read as numbers like 1.234,5 €") in lines
    stored = read_encoder(write_encoder(TableEncoder(columns=schema.columns).fit(data)))
    again = Schema.from_json(json.dumps(schema.to_json()).encode(), stored.columns_)
    assert again == schema
    later = table(price=["1.000,00 €"] * N, rate=["0.5"] * N, bought=["1.2.2022"] * N)
    gaps = Gaps()
    features = again.to_features(later, gaps)
    assert features["price"].unique().tolist() == [1000]
    assert features["bought (month)"].unique().tolist() == [2]
    assert features["bought (year)"].unique().tolist() == [2022]
    assert "bought (hour)" not in features
    assert gaps.unknown == {"rate": N}


def test_dates_that_could_be_two_are_not_guessed() -> None:
    data = table(when=[f"{1 + i % 12}/{1 + i % 11}/2021" for i in range(N)])
    schema = Schema.of(data, "y")
    assert "when" not in schema.inputs
    (said,) = [line for line in find_warnings(data, schema) if "'when'" in line]
    assert "could be day/month/year or month/day/year; say which with --date-format 'day/month/year'" in said
    chosen = Schema.of(data, "y", date_format="month/day/year")
    assert chosen.to_features(data)["when (month)"].tolist() == [1 + i % 12 for i in range(N)]


def test_what_is_odd_is_said() -> None:
    zips = [f"z{i % 400:03}" for i in range(4000)]
    data = pd.DataFrame(
        {
            "zip": zips,
            "amount": [f"{1 + i % 9},{100 + i % 80}" for i in range(4000)],
            "city": ["Berlin", "berlin", "Rome", "Oslo"] * 1000,
            "y": ["a", "no", "A", "no"] * 1000,
        }
    )
    said = find_warnings(data, Schema.of(data, "y"))
    alike = "differ only in case or spaces; write them alike if they mean the same"
    assert f"the classes 'A', 'a' {alike}" in said
    assert f"column 'city': the categories 'Berlin', 'berlin' {alike}" in said
    pooled = "of 400 categories the 255 most frequent are distinguished (63.7% of the cells)"
    assert f"column 'zip': {pooled}; all are also encoded by the target" in said
    assert any("'1,100' was read as 1100, and could be 1.1 as well" in line for line in said)


def test_spellings_of_one_class_are_refused_and_all_are_named() -> None:
    words = ["yes", "Yes", "YES", "yEs", "yes ", "no", "No", "NO", "nO", " no"]
    data = pd.DataFrame({"x": np.arange(400) % 7, "y": words * 40})
    message = (
        "target 'y': expected every class in one spelling, got ' no', 'NO', 'No', 'nO', 'no'; 'YES', 'Yes', 'yEs', "
        "'yes', 'yes ', which differ only in case or spaces; write them alike, then there are 2 classes instead of 10, "
        "or rename those that differ"
    )
    with pytest.raises(UserError) as error:
        Schema.of(data, "y")
    assert str(error.value) == message
    labels = data.assign(y=["red;green", "Red", "green", "blue"] * 100)
    with pytest.raises(UserError, match="got 'Red', 'red', which differ only in case or spaces"):
        Schema.of(labels, "y", task="multilabel")
    many = data.assign(y=[f"{'Class' if i % 2 else 'class'} {i % 16 // 2}" for i in range(400)])
    with pytest.raises(UserError, match="'Class 4', 'class 4' and 3 more groups, which differ"):
        Schema.of(many, "y")


LOOKALIKES: dict[str, Callable[[int], str]] = {
    "amounts in several units ($, €), such as '$0.10' and '0.10 €'": lambda i: f"${i}.10" if i % 2 else f"{i}.10 €",
    "numbers with letters for thousands or millions, such as '0.5k'": lambda i: f"{i}.5k" if i % 3 else f"{i}00",
    "times or durations, such as '00:00'": lambda i: f"{i // 60:02}:{i % 60:02}",
    "numbers with the unit 'kg', such as '0.5 kg'": lambda i: f"{i}.5 kg",
}


@pytest.mark.parametrize("what", LOOKALIKES)
def test_numbers_that_are_not_read_are_said(what: str) -> None:
    write, kind = LOOKALIKES[what], what.split(", such as")[0].split(" (")[0]
    data = pd.DataFrame({"few": [write(i % 12) for i in range(400)], "many": [write(i) for i in range(400)]})
    data = data.assign(x=np.arange(400) % 7, y=np.arange(400) % 100 < 30)
    schema = Schema.of(data, "y")
    assert [column.name for column in schema.columns] == ["few", "x"]
    assert schema.dropped["many"].startswith(f"holds {kind}")
    assert schema.dropped["many"].endswith("; write plain numbers of one unit to use it")
    (said,) = (line for line in find_warnings(data, schema) if "'few'" in line)
    assert said.startswith(f"column 'few' holds {kind}")
    assert "which count as 12 categories without an order; write plain numbers of one unit" in said


def test_codes_and_words_are_no_numbers() -> None:
    for texts in (["A1", "B2"], ["12a", "3c", "7b"], ["red", "blue"], ["1-2", "3-4"], ["10.0.0.1", "10.0.0.2x"]):
        assert describe_numbers_in_texts(pd.Series(texts * 20), 0.95) is None


# The column of --time


def test_times_in_the_order_of_the_calendar() -> None:
    for pattern in WRITTEN:
        texts = pd.Series([day.strftime(pattern) for day in DAYS], name="when")
        dates = [datetime.strptime(text.removesuffix("Z"), pattern.removesuffix("Z")) for text in texts]
        times, ((label, how),) = read_times(texts, None)
        assert np.argsort(times, kind="stable").tolist() == np.argsort(np.array(dates), kind="stable").tolist()
        assert (label, how) == ("column 'when'", f"read as {WRITTEN[pattern]}, from 2021-11-20 to 2022-02-27")


def test_times_that_are_numbers() -> None:
    compact = pd.Series([31122021, 1012022], name="when")
    assert read_times(compact, None)[1][0][1] == "read as numbers, from 1012022 to 31122021"
    times, ((_, how),) = read_times(pd.Series([31122021, 10012022], name="when"), "%d%m%Y")
    assert times[0] < times[1]
    assert how == "read as %d%m%Y, from 2021-12-31 to 2022-01-10"
    assert read_times(pd.Series(["1.000,5", "2,5"], name="t"), None)[0].tolist() == [1000.5, 2.5]


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["1/2/2021", "2/1/2022"],
            "'1/2/2021', could be day/month/year or month/day/year; say which with --date-format",
        ),
        (
            ["31.12.2021", "2022-01-01", "1.1.2022"],
            "expected dates all like day.month.year, or numbers, got '2022-01-01'",
        ),
        (["31/12/2021", "12/31/2021"], "--time t: expected dates .* got"),
        (["soon", "later"], "expected dates of one format, or numbers, got 'soon' and 1 others in rows 1 and 2;"),
        (["inf", "1"], "--time t: expected dates or numbers, got infinite ones in row 1$"),
        (["2021-01-01", None], "--time t: expected a value in every row, got none in row 2; fill them in"),
        ([None, "2021-01-01", None], "got none in rows 1 and 3; fill them in, or leave these rows out$"),
        ([*["2021-01-01"] * 9, *[None] * 9], "got none in rows 10, 11, 12, 13, 14 and 4 more; fill them in"),
    ],
)
def test_times_that_are_refused(cells: list[str | None], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_times(pd.Series(cells, name="t"), None)


def test_rows_are_named_as_in_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table(when=pd.date_range("2021-01-01", periods=N).astype(str))
    frame.loc[[6, 30], "when"] = None
    frame.loc[[0, 1], "y"] = None  # rows without a target are left out before
    data = written(frame, tmp_path)
    for option in ("--time", "--group"):
        words = ["train", data, "--target", "y", "--contender", "majority", option, "when", "--out", f"{tmp_path}/run"]
        assert main(words) == 3
        assert "got none in rows 7 and 31; fill them in" in capsys.readouterr().err
        assert main([*words, "--rows", "55"]) == 3
        assert " of the sample; fill them in" in capsys.readouterr().err


def test_the_format_is_in_the_json_of_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = written(table(when=[f"{1 + i % 12}/{1 + i % 11}/2021" for i in range(N)]), tmp_path)
    words = ["train", data, "--target", "y", "--contender", "majority", "--json", "--time", "when"]
    assert main([*words, "--out", f"{tmp_path}/no"]) == 3
    assert "--date-format day/month/year" in json.loads(capsys.readouterr().out)["error"]["message"]
    assert main([*words, "--out", f"{tmp_path}/run", "--date-format", "month/day/year"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert ["column 'when'", "read as month/day/year, from 2021-01-01 to 2021-12-05"] in found["profile"]
    assert main(["info", f"{tmp_path}/run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profile"] == found["profile"]
