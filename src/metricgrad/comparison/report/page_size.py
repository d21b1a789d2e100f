"""Making a payload fit for a page: clean text, short numbers, and a bounded size however many classes there are."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.section import Section

MOST_CLASSES = 30
"""The most classes that are drawn: the most frequent ones."""
MOST_BYTES = 2_400_000
"""The most bytes of JSON; the page around it takes some 200 kB more."""
MOST_LETTERS = 300
"""The most letters of a name or a cell."""
CONTENDERS_DRAWN = (24, 12, 6, 3, 1)
"""How many contenders are drawn if the page is too large after all other steps: each number is tried in turn."""

_KEYS_OF_LONG_TEXTS = {"command", "text"}
# Control characters, marks that turn the direction of what follows, and halves of characters.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def shrink_payload(payload: Payload, sections: Sequence[Section]) -> Payload:
    """Return a copy that fits; its ``protocol`` says what was left out. What came from a page fits already."""
    if payload.get("slim"):
        return payload
    small: Payload = _clean(payload, frozenset().union(*(section.exact for section in sections)))
    notes = {}
    if len(small["data"]["classes"]) > MOST_CLASSES:
        notes["classes"] = _keep_frequent(small, sections)
    steps = _shrink_by_steps(small, sections)
    while len(as_text(small).encode()) > MOST_BYTES and (step := next(steps, None)):
        subject, note = step
        notes[subject] = note
    small["protocol"] += notes.values()
    small["slim"] = True
    return small


def _clean(value: Any, exact: Set[str], key: str = "") -> Any:
    """Return JSON that any page can show: what is not a number is None, text is short and holds no odd characters."""
    if type(value) is int:  # most of what there is
        return value
    if isinstance(value, dict):
        return {_shorten_text(str(k), key): _clean(v, exact, k) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(v, exact, key) for v in value]
    if isinstance(value, str):
        return _shorten_text(value, key)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if key in exact else float(f"{value:.5g}")
    return value


def _shorten_text(text: str, key: str) -> str:
    limit = 20 * MOST_LETTERS if key in _KEYS_OF_LONG_TEXTS else MOST_LETTERS
    return _UNFIT.sub("�", text if len(text) <= limit else text[: limit - 1] + "…")


def find_frequent(frequencies: Sequence[float]) -> list[int]:
    """Return the places of the classes that are drawn, in ascending order: the most frequent ones."""
    return sorted(sorted(range(len(frequencies)), key=lambda k: -frequencies[k])[:MOST_CLASSES])


def _keep_frequent(payload: Payload, sections: Sequence[Section]) -> str:
    """Keep the most frequent classes, in place, and return what to say about it."""
    data = payload["data"]
    balance = data["balance"]
    total = len(data["classes"])
    kept = find_frequent(balance)
    for details in payload["details"].values():
        for section in sections:
            section.keep_classes(details, kept, total)
    rest = total - MOST_CLASSES
    data["classes"] = [*(data["classes"][k] for k in kept), f"{rest} other classes"]
    data["balance"] = [*(balance[k] for k in kept), sum(balance) - sum(balance[k] for k in kept)]
    return f"Of {total} classes the {MOST_CLASSES} most frequent are drawn; the leaderboard counts all of them."


def _shrink_by_steps(payload: Payload, sections: Sequence[Section]) -> Iterator[tuple[str, str]]:
    """Make the payload smaller, in place, step by step; yield after each its subject and what to say about it."""
    steps = sorted((step, i, size) for i, section in enumerate(sections) for step, size in section.sizes)
    for _, i, size in steps:
        for details in payload["details"].values():
            sections[i].shrink(details, size)
        yield sections[i].name, sections[i].size_note.format(size)
    for number in CONTENDERS_DRAWN:
        _keep_best(payload, number)
        yield "contenders", f"Charts are drawn of the best {number} contenders."


def _keep_best(payload: Payload, number: int) -> None:
    names = list(dict.fromkeys([payload["verdict"]["ship"], *(row["contender"] for row in payload["leaderboard"])]))
    details = payload["details"]
    payload["details"] = {name: details[name] for name in names[:number] if name in details}


def as_text(payload: Any) -> str:
    """Return compact JSON that no HTML parser takes for markup, for ``<script type="application/json">``."""
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
