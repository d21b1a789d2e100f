"""JSON files that anyone may have changed: read strictly, compared with a declared type, sealed by a hash.

The declaration is a type as Python writes it: ``TypedDict`` and dataclasses for objects, ``Literal`` for one of several
words, ``Annotated[int, Range(1, 10)]`` and ``Annotated[str, Length(1, 80)]`` for bounds. Standard library alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, get_args, get_origin

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 1 << 26
"""Bytes of a JSON file, at most."""
LARGEST_OTHER = 1 << 35
"""Bytes of any other file of a folder, at most."""
DEEPEST = 48
"""Lists and objects within each other, at most: far below where Python's own parser would fail."""
MOST_VALUES = 4_000_000
"""Values in a file, at most."""

_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")
_SEAL = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n\}')
_SEAL_BYTES = len(b',\n  "sha256": ""\n}') + 64


@dataclass(frozen=True)
class Range:
    """The bounds of a number, both included."""

    least: float
    most: float

    def holds(self, value: Any) -> bool:
        return bool(self.least <= value <= self.most)

    def __str__(self) -> str:
        return f"from {self.least} to {self.most}"


@dataclass(frozen=True)
class Length:
    """The bounds of the length of a text, a list or an object, both included."""

    least: int
    most: int

    def holds(self, value: Any) -> bool:
        return self.least <= len(value) <= self.most

    def __str__(self) -> str:
        return f"of length {self.least} to {self.most}"


@dataclass(frozen=True)
class Pattern:
    """What a whole text must look like."""

    text: str

    def holds(self, value: Any) -> bool:
        return re.fullmatch(self.text, value) is not None

    def __str__(self) -> str:
        return f"like {self.text}"


Sha256 = Annotated[str, Pattern("[0-9a-f]{64}")]
Line = Annotated[str, Length(0, 10_000)]
Name = Annotated[str, Length(1, 10_000)]


# Bytes to values


def read_file(path: Path) -> bytes:
    """Return the bytes of a file, or raise a ``ValueError``, before any is read, if there are too many."""
    most = LARGEST if path.suffix == ".json" else LARGEST_OTHER
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"{path.name}: expected at most {most} bytes, got {size}")
    return path.read_bytes()


def as_json(data: Any) -> bytes:
    """Return data as JSON for people to read."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).encode()


def read(data: bytes, wanted: Any, name: str) -> Any:
    """Return what a JSON file holds, or raise a ``ValueError`` of one line; ``wanted`` is its declared type.

    >>> read(b'{"rows": 3}', dict[str, Annotated[int, Range(0, 2)]], "about.json")
    Traceback (most recent call last):
    ...
    ValueError: about.json: 'rows': expected a whole number from 0 to 2, got 3
    """
    if len(data) > LARGEST:
        raise ValueError(f"{name}: expected at most {LARGEST} bytes, got {len(data)}")
    _check_nesting(data, name)
    try:
        found = json.loads(
            data.decode("utf-8"),
            parse_int=_read_whole_number,
            parse_float=_read_number,
            parse_constant=_refuse_constant,
            object_pairs_hook=_make_object,
        )
        if b"\\u" in data:  # half a surrogate pair can be written so, and no text can hold it
            json.dumps(found, ensure_ascii=False).encode()
    except ValueError as error:  # also what cannot be decoded
        raise ValueError(f"{name}: expected JSON, got {_join_lines(error)}") from error
    check(found, wanted, name)
    return found


def _check_nesting(data: bytes, name: str) -> None:
    """Refuse too many or too deeply nested values before they are parsed."""
    bare = _TEXT.sub(b"", data)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MOST_VALUES:
        raise ValueError(f"{name}: expected at most {MOST_VALUES} values, got more")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEEPEST:
            raise ValueError(f"{name}: expected values nested at most {DEEPEST} deep, got more")


def _read_whole_number(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= int(text) < 2**64:
        raise ValueError(f"the number {text[:20]}…, which no 64 bits hold")
    return int(text)


def _read_number(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {text[:20]}, which no 64 bits hold")
    return float(text)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text}, which is no JSON")


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object with one key twice")
    return found


# Values against their declared type


def check(value: Any, wanted: Any, where: str) -> None:
    """Raise a ``ValueError`` that starts with ``where`` unless a value is of the declared type.

    ``Any`` is any value; a whole number is accepted for a float; lists and tuples are the same; a class that is no
    dataclass means its instances.
    """
    wanted, bounds = _without_bounds(wanted)
    if wanted is Any:
        return
    origin = get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        _check_either(value, get_args(wanted), where)
    elif _is_object(wanted):
        _check_object(value, wanted, where)
    elif not _is_of_type(value, wanted):
        raise _make_error(where, wanted, bounds, value)
    elif origin is dict:
        for key, item in value.items():
            check(key, get_args(wanted)[0], f"{where}: a key")
            check(item, get_args(wanted)[1], f"{where}: {_shorten(key)}")
    elif origin in (list, tuple):
        parts = get_args(wanted)
        if origin is tuple and parts[-1:] != (...,):
            if len(value) != len(parts):
                raise _make_error(where, wanted, bounds, value)
        else:
            parts = parts[:1] * len(value)
        for i, (item, part) in enumerate(zip(value, parts, strict=True)):
            check(item, part, f"{where}: item {i}")
    if not all(bound.holds(value) for bound in bounds):
        raise _make_error(where, wanted, bounds, value)


def _without_bounds(wanted: Any) -> tuple[Any, tuple[Any, ...]]:
    if get_origin(wanted) is NotRequired:
        wanted = get_args(wanted)[0]
    if get_origin(wanted) is not Annotated:
        return wanted, ()
    inner, *bounds = get_args(wanted)
    return inner, tuple(bound for bound in bounds if isinstance(bound, Range | Length | Pattern))


def _is_of_type(value: Any, wanted: Any) -> bool:
    origin = get_origin(wanted)
    if wanted is None or wanted is type(None):
        return value is None
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(wanted))
    if wanted is float:
        return type(value) in (int, float)
    if wanted in (bool, int, str):
        return type(value) is wanted
    if origin in (list, tuple):
        return type(value) in (list, tuple)
    return type(value) is dict if origin is dict else isinstance(value, wanted)


def _check_either(value: Any, choices: tuple[Any, ...], where: str) -> None:
    """Check against the choices of the value's own kind: their message is the helpful one."""
    alike = [choice for choice in choices if _is_of_kind(value, _without_bounds(choice)[0])]
    if not alike:
        expected = " or ".join(_describe_type(*_without_bounds(choice)) for choice in choices)
        raise ValueError(f"{where}: expected {expected}, got {_shorten(value)}")
    for choice in alike[:-1]:
        with contextlib.suppress(ValueError):
            return check(value, choice, where)
    return check(value, alike[-1], where)


def _is_of_kind(value: Any, wanted: Any) -> bool:
    return type(value) is dict if _is_object(wanted) else wanted is Any or _is_of_type(value, wanted)


def _is_object(wanted: Any) -> bool:
    return typing.is_typeddict(wanted) or dataclasses.is_dataclass(wanted)


def _check_object(value: Any, wanted: Any, where: str) -> None:
    if type(value) is not dict:
        raise ValueError(f"{where}: expected an object, got {_shorten(value)}")
    fields = _list_fields(wanted)
    if strange := [key for key in value if key not in fields]:
        raise ValueError(f"{where}: expected {', '.join(fields)}, got also {_shorten(strange[0])}")
    for key, part in fields.items():
        if key in value:
            check(value[key], part, f"{where}: {key}")
        elif get_origin(part) is not NotRequired:
            raise ValueError(f"{where}: expected {key!r}, got none")


@cache
def _list_fields(wanted: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(wanted, include_extras=True)
    if dataclasses.is_dataclass(wanted):
        # A field with a default may be missing: files of earlier versions do not have it.
        given = {field.name: _has_default(field) for field in dataclasses.fields(wanted)}
        return {name: NotRequired[hints[name]] if optional else hints[name] for name, optional in given.items()}
    return hints


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


def _make_error(where: str, wanted: Any, bounds: tuple[Any, ...], value: Any) -> ValueError:
    return ValueError(f"{where}: expected {_describe_type(wanted, bounds)}, got {_shorten(value)}")


def _describe_type(wanted: Any, bounds: tuple[Any, ...] = ()) -> str:
    names: dict[Any, str] = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        None: "null",
    }
    names |= {type(None): "null", list: "a list", tuple: "a list", dict: "an object"}
    if get_origin(wanted) is Literal:
        return " or ".join(map(repr, get_args(wanted)))
    key = get_origin(wanted) or wanted
    return " ".join([names.get(key, f"a {getattr(key, '__name__', 'value')}"), *map(str, bounds)])


def _shorten(value: Any) -> str:
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    return _join_lines(repr(value)[:80])


def _join_lines(text: object) -> str:
    return " ".join(str(text).split())[:200]


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message, to be part of another message."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


# Seals


def sha256(data: bytes) -> str:
    """Return the hash of bytes."""
    return hashlib.sha256(data).hexdigest()


def seal(data: dict[str, Any]) -> bytes:
    """Return data as JSON that ends with the hash of all before it, as its last key "sha256"."""
    return as_json({**data, "sha256": sha256(as_json(data))})


def unseal(data: bytes, wanted: Any, name: str) -> Any:
    """Return what ``seal`` was given; the hash is compared before anything is parsed.

    >>> unseal(seal({"rows": 3}), dict[str, int], "about.json")
    {'rows': 3}
    """
    found = _SEAL.fullmatch(data, max(0, len(data) - _SEAL_BYTES))
    if found is None or sha256(data[: found.start()] + b"\n}") != found[1].decode():
        raise ValueError(f"{name} was changed since it was written (its sha256 differs)")
    return read(data[: found.start()] + b"\n}", wanted, name)


# Names of code


def names_code(value: Any) -> bool:
    """Tell whether a metric or a constraint, or a list of these, names code: a "package.module:function" anywhere.

    >>> names_code(["precision>=0.9", {"os:system": 1}])
    True
    """
    if isinstance(value, str):
        return ":" in value
    if isinstance(value, dict):
        return any(names_code(part) for pair in value.items() for part in pair)
    return isinstance(value, list | tuple) and any(map(names_code, value))
