"""The report: one HTML file that needs nothing else, drawn from a payload.

The verdict and all tables are written here and can be read without JavaScript; the charts are drawn by the scripts in
``assets`` from the payload, which is embedded as JSON. Nothing from the data becomes markup: text is escaped here, set
as text there, and a Content-Security-Policy lets no other script or style in.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from metricgrad.app.report.slimming import as_text, slim
from metricgrad.app.report.tabulated import items, judge, parts
from metricgrad.atomic import write_file

if TYPE_CHECKING:
    from metricgrad.app.report.payload import Payload

_ASSETS = files("metricgrad.app") / "assets"
_SCRIPTS = ("metrics.js", "charts.js", "figures.js", "report.js")


def render(payload: Payload) -> str:
    """Return the page."""
    payload, notes = slim(payload)
    data, metric = payload["data"], payload["metric"]
    css = _asset("report.css")
    script = '"use strict";\n' + "\n".join(_asset(name) for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(css)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_asset("report.html")).substitute(
        policy=policy,
        css=css,
        script=script,
        json=as_text(payload),
        version=escape(payload["version"]),
        created=escape(payload["created"]),
        day=escape(payload["created"][:10]),
        title=escape(f"{judge(metric)} on {data['file']}"),
        file=escape(data["file"]),
        judge=escape(judge(metric)),
        notes=items(notes),
        **parts(payload),
    )


def write(payload: Payload, path: str | Path) -> Path:
    """Write the page, whole or not at all, and return where."""
    path = Path(path)
    write_file(path, render(payload).encode())
    return path


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
