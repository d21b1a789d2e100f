"""The report: one HTML file that needs nothing else, drawn from a payload.

The verdict and all tables are written here and can be read without JavaScript; the charts are drawn by the scripts in
``assets`` from the payload, which is embedded as JSON. Nothing from the data becomes markup: text is escaped here, set
as text there, and a Content-Security-Policy lets no other script or style in.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from metricgrad.atomic_files import write_file
from metricgrad.comparison.errors import WRITE, WRONG_CALL, UserError
from metricgrad.comparison.metric_titles import read_metric_title
from metricgrad.comparison.report.formulas import find_library_formulas
from metricgrad.comparison.report.page_size import as_text, shrink_payload
from metricgrad.comparison.report.section import read_asset
from metricgrad.comparison.report.sections import SECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.section import Section
    from metricgrad.comparison.shipped_model import ShippedRule


_TABLES = (
    "<noscript><section><h2>The contender to ship</h2>"
    '<p class="note">Charts need JavaScript; these are their tables.</p>{}</section></noscript>'
)


def render(payload: Payload, sections: Sequence[Section] = SECTIONS) -> str:
    """Return the page.

    The first section is the summary; a table of contents and the others follow. The choice of contender and class
    stands above the first drawn section. Sections that are for other tasks are left out.
    """
    if "formulas" not in payload:
        payload = {**payload, "formulas": find_library_formulas(payload)}
    payload = shrink_payload(payload, sections)
    sections = [section for section in sections if payload["data"]["task"] in section.tasks]
    summary, *others = ((section, markup) for section in sections if (markup := section.html(payload)))
    choice = next((i for i, (section, _) in enumerate(others) if section.drawn), len(others))
    shipped = payload["details"].get(payload["verdict"]["ship"])
    drawn = [section for section in sections if section.drawn and (shipped or section.alone)]
    tables = "".join(section.table(payload, shipped or {}) for section in drawn)
    css = join_styles(sections)
    script = join_scripts(sections)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    as_scored_batch = f"{read_metric_title(payload['metric'])} on {payload['data']['file']}"
    return Template(read_asset("report.html")).substitute(
        policy=policy,
        css=css,
        script=script,
        json=as_text(payload),
        version=escape(payload["version"]),
        created=escape(payload["created"]),
        day=escape(payload["created"][:10]),
        title=escape(as_scored_batch),
        file=escape(payload["data"]["file"]),
        metric=escape(read_metric_title(payload["metric"])),
        summary=summary[1],
        contents=_list_contents([section for section, _ in others]),
        before_choice="".join(markup for _, markup in others[:choice]),
        after_choice="".join(markup for _, markup in others[choice:]),
        tables=_TABLES.format(tables) if tables else "",
    )


def _list_contents(sections: Sequence[Section]) -> str:
    """Return links to sections; those that only scripts fill are left out without JavaScript."""
    return "".join(
        f'<li{" class=scripted" if section.drawn else ""}><a href="#{section.name}">{escape(section.title)}</a></li>\n'
        for section in sections
    )


def read(page: str) -> Payload:
    """Return the payload that a page was drawn from, as far as it is in the page."""
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.DOTALL)
    if found is None:
        raise ValueError("expected a report, got a page without its payload")
    payload: Payload = json.loads(found[1])
    return payload


def replace_rule(payload: Payload, model: ShippedRule, names: Sequence[str]) -> None:
    """Replace the rule of the shipped model, in place, after it was tuned anew; ``names``: of all classes."""
    payload["model"] = model
    drawn = names[-len(model["thresholds"]) :]
    thresholds = dict(zip(drawn, model["thresholds"], strict=True))
    plateaus = dict(zip(drawn, model.get("plateaus", ()), strict=False))
    details = payload["details"].get(model["contender"], {})
    offsets = dict(zip(names, model.get("offsets") or (), strict=False))
    for one in details.get("decision", {}).get("classes", ()):
        one["offset"] = offsets.get(one["name"])
    for curve in details.get("classes", ()):
        curve["threshold"] = thresholds.get(curve["name"])
        curve["ships"] = curve["threshold"] is not None
        curve["plateau"] = plateaus.get(curve["name"])


def write(payload: Payload, path: str | Path, sections: Sequence[Section] = SECTIONS) -> Path:
    """Write the page, whole or not at all, and return where."""
    path = Path(path)
    write_file(path, render(payload, sections).encode())
    return path


def check_output(path: Path, force: bool, option: str) -> None:
    """Raise if a report cannot be written there, before anything is computed for it."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{option}: expected a file that ends in .html, got {path.name!r}", WRONG_CALL)
    if not path.parent.is_dir():
        raise UserError(f"{option}: expected a file in a folder that exists, got {path}", WRITE)
    if path.is_dir() or (path.exists() and not force):
        raise UserError(f"{path}: exists already; choose another {option}, or replace it with --force", WRITE)


def join_scripts(sections: Sequence[Section]) -> str:
    """Return the one script of the page, without lines of comment; a section's own names are not seen outside of it."""
    own = [f"{{\n{script}\n}}" for section in sections if (script := section.script())]
    shared = [read_asset(name) for name in ("metrics.js", "charts.js", "view.js")]
    lines = "\n".join(['"use strict";', *shared, *own, read_asset("report.js")]).splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("//"))


def join_styles(sections: Sequence[Section]) -> str:
    """Return the one style sheet of the page."""
    return "\n".join([read_asset("report.css"), *filter(None, (section.style() for section in sections))])


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
