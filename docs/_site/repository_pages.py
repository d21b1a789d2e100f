"""Pages of the site that are files of the repository outside docs/: written once there, included here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
    "changelog": "CHANGELOG.md",
    "reproduction": "reproduction/README.md",
}
NOT_RUN = """# The papers, reproduced

`python reproduction/run.py --all` runs the experiments of the papers, and `python reproduction/page.py` writes what
came out. This copy of the repository has no results yet.
"""


def write(docs: Path) -> None:
    """Write docs/repository/: a page for each file, with links as they are from there."""
    folder = docs / "repository"
    folder.mkdir(exist_ok=True)
    for page, name in FILES.items():
        file = docs.parent / name
        where = "../../" + name.removesuffix(file.name)
        _write(folder / f"{page}.md", _moved(file.read_text(), where) if file.exists() else NOT_RUN)


def _moved(text: str, where: str = "../../") -> str:
    """Return the text with its relative links as they are from docs/repository/."""

    def moved(match: re.Match[str]) -> str:
        link = match[1]
        for page, file in FILES.items():
            link = link.replace(file, f"{page}.md") if link.startswith(file) else link
        if link.startswith("docs/"):
            link = f"../{link.removeprefix('docs/')}"
        elif link == match[1]:
            link = where + link
        return f"]({link}"

    return re.sub(r"\]\((?!https?:|#|mailto:)([^)\s]+)", moved, text)


def _write(path: Path, text: str) -> None:
    """Write, if the text is another: Sphinx reads again what is newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
