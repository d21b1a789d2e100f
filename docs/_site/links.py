"""What Markdown and docstrings write as plain text becomes a link: keys of references, files outside docs/, pages."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
# Files of the repository that are pages of the site, by what a link to them looks like; all others are downloads.
PAGES = {
    r"CONTRIBUTING\.md": "repository/contributing.md",
    r"SECURITY\.md": "repository/security.md",
    r"CHANGELOG\.md": "repository/changelog.md",
    r"reproduction/README\.md": "repository/reproduction.md",
    r"reproduction/pages/(\w+)\.md": r"repository/reproduction-\1.md",
    r"examples/tutorials/(\w+)\.py": r"tutorials/\1.rst",
}


@cache
def keys() -> frozenset[str]:
    """Return the keys of references.md."""
    return frozenset(re.findall(r"^\| (\w+\d+) \|", (DOCS / "references.md").read_text(), re.MULTILINE))


def _cited(text: str, link: str) -> str:
    """Link the first key of every citation: ``[tsoi2022, eq. 5]``, but not a link that has an address already."""

    def linked(match: re.Match[str]) -> str:
        return f"[{link.format(match[1])}{match[2]}]" if match[1] in keys() else match[0]

    return re.sub(r"\[(\w+)((?:[,;] [^\]]*)?)\](?!\()", linked, text)


def link_pages(_: Any, page: str, source: list[str]) -> None:
    """Link a page of Markdown, when Sphinx reads it."""
    if not (DOCS / f"{page}.md").exists() or page.startswith("tutorials/"):
        return
    up = "../" * page.count("/")
    parts = re.split(r"(```.*?```)", source[0], flags=re.DOTALL)  # code stays as it is
    for i in range(0, len(parts), 2):
        text = _cited(parts[i], f"[{{0}}]({up}references.md#{{0}})")
        if page == "references":
            text = re.sub(r"^\| (\w+) \|(?! work)", r"| [\1]{#\1} |", text, flags=re.MULTILINE)
        for file, inside in PAGES.items():
            text = re.sub(rf"\]\(\.\./{file}", rf"]({inside}", text)
        parts[i] = text
    source[0] = "".join(parts)


def link_docstrings(_: Any, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Link the docstring of a public name: citations, pages in docs/, and formulas between dollars."""
    text = "\n".join(lines)
    text = _cited(text, ":ref:`{0} <{0}>`")
    text = re.sub(r"\bdocs/(\w+)\.md", r":doc:`\1 </\1>`", text)
    text = re.sub(r"(?<!\w)\$([^$\n]+)\$(?!\w)", r":math:`\1`", text)
    text = re.sub(r"(?<!`)\|(\w[^|\n`]*)\|(?!`)", r"\\|\1\\|", text)  # a magnitude, not a substitution
    lines[:] = text.split("\n")
