"""Pages of reports in tests: read as a browser without JavaScript would, and filled with hostile texts."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from typing import Any, cast

from metricgrad.comparison.report.payload import Payload

HOSTILE = [
    "</script><img src=x onerror=alert(1)>",
    '"><b onmouseover=alert(2)>',
    "<!--<script>",
    "=cmd()",
    "a\x00b\x1b[31m",
    "\u202eright to left\u2066",
    "half \ud800",
    "line\u2028end",
    "$policy ${json} $$",
    "&lt;i&gt; &amp;",
    "x" * 10_000,
]


class Reader(HTMLParser):
    """Collects tags, attributes and text, as a browser without JavaScript would find them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def embedded(page: str) -> Payload:
    inner = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.DOTALL)
    assert inner
    return json.loads(inner[1])  # type: ignore[no-any-return]


def hostile(payload: Payload, text: str) -> Payload:
    """Put a text wherever the data may bring one."""
    bad: Any = copy.deepcopy(payload)
    bad["data"].update(file=text, target=[text], classes=[text, text + "2"], profile=[(text, text)], warnings=[text])
    bad["verdict"].update(headline=text, text=text)
    bad["command"] = bad["reproduce"]["command"] = text
    for details in bad["details"].values():
        for curve in details["classes"]:
            curve["name"] = text
        for row in details["per_class"]:
            row["name"] = text
        for error in details["errors"]:
            error.update(truth=text, decided=text, cells=[(text, text)])
    for one in bad["importance"]:
        one["column"] = text
    study = bad["study"]
    for each in study["dependence"]:
        each.update(column=text, names=[text] * len(each["names"]))
    for each in study["segments"]:
        each["column"] = text
        for one in each["segments"]:
            one["name"] = text
    for each in study["columns"]:
        each.update(column=text, kind=text, names=[text] * len(each["names"]))
    return cast("Payload", bad)
