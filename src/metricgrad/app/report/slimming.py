"""Making a payload fit for a page: clean text, short numbers, and a bounded size however many classes there are."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricgrad.app.report.payload import ClassCurve, Details, Payload

CLASSES = 30
"""Classes that are drawn; the most frequent ones."""
LIMIT = 2_400_000
"""Bytes of JSON; the page around it takes some 200 kB more."""
LETTERS = 300
"""Of a name or a cell."""

_STEPS = [("cuts", 101), ("cuts", 51), ("mistakes", 5), ("cuts", 25), *(("contenders", n) for n in (24, 12, 6, 3, 1))]
_NOTES = {
    "cuts": "Curves are drawn from {} cuts each.",
    "mistakes": "Of each contender the {} worst mistakes are listed, with twelve columns.",
    "contenders": "Charts are drawn of the best {} contenders.",
}
_EXACT = {"cuts", "threshold", "plateau"}  # counts hold at these very numbers
_LONG = {"command", "text"}
# Control characters, marks that turn the direction of what follows, and halves of characters.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def slim(payload: Payload) -> tuple[Payload, list[str]]:
    """Return a copy that fits, and sentences that say what was left out."""
    small: Payload = _clean(payload)
    notes = {}
    if len(small["data"]["classes"]) > CLASSES:
        notes["classes"] = _keep_frequent(small)
    for kind, number in _STEPS:
        if len(as_text(small).encode()) <= LIMIT:
            break
        notes[kind] = _NOTES[kind].format(number)
        {"cuts": _thin, "mistakes": _fewer_mistakes, "contenders": _best}[kind](small, number)
    return small, list(notes.values())


def _clean(value: Any, key: str = "") -> Any:
    """Return JSON that any page can show: what is not a number is None, text is short and holds no odd characters."""
    if type(value) is int:  # most of what there is
        return value
    if isinstance(value, dict):
        return {_text(str(k), key): _clean(v, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v, key) for v in value]
    if isinstance(value, str):
        return _text(value, key)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if key in _EXACT else float(f"{value:.5g}")
    return value


def _text(text: str, key: str) -> str:
    limit = 20 * LETTERS if key in _LONG else LETTERS
    return _UNFIT.sub("�", text if len(text) <= limit else text[: limit - 1] + "…")


def _keep_frequent(payload: Payload) -> str:
    data = payload["data"]
    balance, total = data["balance"], len(data["classes"])
    kept = sorted(sorted(range(total), key=lambda k: -balance[k])[:CLASSES])
    for details in payload["details"].values():
        if len(details["classes"]) == total:
            details["classes"] = [details["classes"][k] for k in kept]
        if len(details["per_class"]) == total:
            details["per_class"] = [details["per_class"][k] for k in kept]
        if details["confusion"]:
            details["confusion"] = _merged(details["confusion"], kept)
    rest = total - CLASSES
    data["classes"] = [*(data["classes"][k] for k in kept), f"{rest} other classes"]
    data["balance"] = [*(balance[k] for k in kept), sum(balance) - sum(balance[k] for k in kept)]
    return f"Of {total} classes the {CLASSES} most frequent are drawn; the leaderboard counts all of them."


def _merged(matrix: list[list[int]], kept: list[int]) -> list[list[int]]:
    """Return the confusion matrix of the classes kept and all others as one."""
    others = sorted(set(range(len(matrix))) - set(kept))
    sides = [*([k] for k in kept), others]
    return [[sum(matrix[i][j] for i in rows for j in columns) for columns in sides] for rows in sides]


def _thin(payload: Payload, number: int) -> None:
    for details in payload["details"].values():
        details["classes"] = [_thinned(curve, number) for curve in details["classes"]]


def _thinned(curve: ClassCurve, number: int) -> ClassCurve:
    """Keep cuts at even steps, the first and the last, and those that a reader asks for."""
    last = len(curve["cuts"]) - 1
    places = {round(i * last / (number - 1)) for i in range(number)} if last >= number else set(range(last + 1))
    places |= {i for i, cut in enumerate(curve["cuts"]) if cut in (0.5, curve["threshold"])}
    kept = sorted(places)
    cuts, tp, fp = [curve["cuts"][i] for i in kept], [curve["tp"][i] for i in kept], [curve["fp"][i] for i in kept]
    return {**curve, "cuts": cuts, "tp": tp, "fp": fp}


def _fewer_mistakes(payload: Payload, number: int) -> None:
    for details in payload["details"].values():
        details["errors"] = [{**error, "cells": error["cells"][:12]} for error in details["errors"][:number]]


def _best(payload: Payload, number: int) -> None:
    names = list(dict.fromkeys([payload["verdict"]["ship"], *(row["contender"] for row in payload["leaderboard"])]))
    details: dict[str, Details] = payload["details"]
    payload["details"] = {name: details[name] for name in names[:number] if name in details}


def as_text(payload: Any) -> str:
    """Return compact JSON that no HTML parser takes for markup, for ``<script type="application/json">``."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
