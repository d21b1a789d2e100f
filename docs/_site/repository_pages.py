"""Pages of the site that are files of the repository outside docs/: written once there, included here."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FILES = {
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
    "changelog": "CHANGELOG.md",
    "reproduction": "reproduction/README.md",
    **{
        f"reproduction-{page}": f"reproduction/pages/{page}.md"
        for page in ("binary", "multiclass", "multilabel", "mfom", "theory", "appendix")
    },
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
        _write(folder / f"{page}.md", _moved(file.read_text(), posixpath.dirname(name)) if file.exists() else NOT_RUN)


def _moved(text: str, folder: str = "") -> str:
    """Return the text of a file in a folder of the repository with its links as they are from docs/repository/."""
    pages = {file: f"{page}.md" for page, file in FILES.items()}

    def moved(match: re.Match[str]) -> str:
        path, hash_, anchor = match[1].partition("#")
        file = posixpath.normpath(posixpath.join(folder, path))
        link = pages.get(file) or posixpath.relpath(file, "docs/repository")
        return f"]({link}{hash_}{anchor}"

    return re.sub(r"\]\((?!https?:|#|mailto:)([^)\s]+)", moved, text)


def _write(path: Path, text: str) -> None:
    """Write, if the text is another: Sphinx reads again what is newer."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
