"""JSON from anywhere: what is not as declared is refused in one line, whatever it is, before it costs anything."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from metricgrad import strict_json
from metricgrad.strict_json import Length, Pattern, Range

pytestmark = pytest.mark.quick


class Inner(TypedDict):
    name: Annotated[str, Length(1, 5)]
    kind: NotRequired[Literal["a", "b"]]


@dataclass
class Outer:
    count: Annotated[int, Range(1, 10)]
    share: float
    inner: list[Inner]
    pair: tuple[int, str] | None = None
    named: dict[str, bool] | Annotated[str, Pattern("x+")] = "x"


GOOD: dict[str, Any] = {"count": 3, "share": 1, "inner": [{"name": "n"}], "pair": [1, "a"], "named": {"k": True}}


def test_what_is_declared_is_read() -> None:
    assert strict_json.read(strict_json.as_json(GOOD), Outer, "x.json") == GOOD
    assert strict_json.read(strict_json.as_json(GOOD | {"pair": None, "named": "xx"}), Outer, "x.json")["named"] == "xx"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "x.json: count: expected a whole number from 1 to 10, got 0"),
        ({"count": True}, "x.json: count: expected a whole number from 1 to 10, got True"),
        ({"count": 3.0}, "x.json: count: expected a whole number from 1 to 10, got 3.0"),
        ({"share": "1"}, "x.json: share: expected a number, got '1'"),
        ({"inner": {}}, "x.json: inner: expected a list, got an object of 0"),
        ({"inner": [{"name": ""}]}, "x.json: inner: item 0: name: expected a text of length 1 to 5, got ''"),
        ({"inner": [{}]}, "x.json: inner: item 0: expected 'name', got none"),
        ({"inner": [{"name": "n", "kind": "c"}]}, "x.json: inner: item 0: kind: expected 'a' or 'b', got 'c'"),
        ({"inner": [{"name": "n", "more": 1}]}, "x.json: inner: item 0: expected name, kind, got also 'more'"),
        ({"pair": [1]}, "x.json: pair: expected a list, got a list of 1"),
        ({"pair": 1}, "x.json: pair: expected a list or null, got 1"),
        ({"named": {"k": 1}}, "x.json: named: 'k': expected true or false, got 1"),
        ({"named": "xy"}, "x.json: named: expected a text like x+, got 'xy'"),
    ],
)
def test_what_is_not_declared_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=r"^x\.json: ") as caught:
        strict_json.read(strict_json.as_json(GOOD | changes), Outer, "x.json")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected JSON, got "),
        (b"{", "expected JSON, got "),
        (b"\xff\xfe", "expected JSON, got 'utf-8' codec"),
        (b'"\\ud800"', "expected JSON, got 'utf-8' codec"),
        (b'{"a": 1, "a": 2}', "expected JSON, got an object with one key twice"),
        (b"[NaN]", "expected JSON, got NaN, which is no JSON"),
        (b"[-Infinity]", "expected JSON, got -Infinity, which is no JSON"),
        (b"[1e999]", "expected JSON, got the number 1e999, which no 64 bits hold"),
        (b"[1" + b"0" * 30 + b"]", "which no 64 bits hold"),
        (b"[" + b"9" * 100_000 + b"]", "which no 64 bits hold"),
        (b"[" * 100_000 + b"]" * 100_000, "expected values nested at most 48 deep, got more"),
        (b'{"a":' * 100_000, "expected values nested at most 48 deep, got more"),
        (b'["' + b'[\\"' * 100 + b'", ' + b"[" * 60, "expected values nested at most 48 deep, got more"),
        (b"[" + b"0," * (strict_json.MOST_VALUES + 1) + b"0]", "expected at most 4000000 values, got more"),
        (b'"' + b" " * strict_json.LARGEST + b'"', "expected at most 67108864 bytes, got 67108866"),
    ],
)
def test_hostile_bytes_are_refused_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=r"^x\.json: ") as caught:
        strict_json.read(data, Any, "x.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_brackets_in_texts_do_not_nest() -> None:
    text = '["\\' * 100
    assert strict_json.read(strict_json.as_json([text]), list[str], "x.json") == [text]


def test_a_seal_covers_every_byte() -> None:
    data = strict_json.seal({"a": 1, "b": [2]})
    assert strict_json.unseal(data, dict[str, Any], "x.json") == {"a": 1, "b": [2]}
    for at in range(len(data)):
        with pytest.raises(ValueError, match=r"^x.json was changed since it was written \(its sha256 differs\)$"):
            strict_json.unseal(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], dict[str, Any], "x.json")
    for at in range(len(data)):
        with pytest.raises(ValueError, match=r"^x.json was changed"):
            strict_json.unseal(data[:at], dict[str, Any], "x.json")


def test_names_of_code_are_found_wherever_they_are() -> None:
    code: list[Any] = [
        "os:system",
        ["f1", "os:system"],
        [["os:system>=1"]],
        {"os:system": 1},
        {"a": ({"c": "d:e"},)},
    ]
    assert all(map(strict_json.names_code, code))
    plain: list[Any] = ["f1", None, 3, ["precision>=0.9", {"recall": 0.5}]]
    assert not any(map(strict_json.names_code, plain))


def test_the_reader_needs_the_standard_library_alone() -> None:
    code = (
        "import sys, importlib.util as u\n"
        f"spec = u.spec_from_file_location('strict_json', {strict_json.__file__!r})\n"
        "module = sys.modules['strict_json'] = u.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(sorted({'torch', 'numpy', 'metricgrad'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
