"""Check every link inside the built site: the file is there, and what follows the # is an id in it.

python docs/_site/check_links.py build/docs
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The ids of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.links.add(value)


@cache
def read(path: Path) -> Page:
    """Return a page, read once."""
    return Page(path.read_text())


def broken(page: Path, link: str) -> bool:
    """Return whether a link of a page leads nowhere; links to other sites are not followed."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if file.is_dir():
        file /= "index.html"
    if not file.exists():
        return True
    fragment = unquote(parts.fragment)
    return bool(fragment) and file.suffix == ".html" and fragment not in read(file).ids


def main(site: Path) -> int:
    """Print the broken links, and return how the script ends."""
    pages = sorted(
        page for page in site.resolve().rglob("*.html") if "_static" not in page.parts
    )  # a theme's templates
    found = [(page, link) for page in pages for link in sorted(read(page).links) if broken(page, link)]
    for page, link in found:
        print(f"{page.relative_to(site.resolve())}: broken link {link}")
    print(f"{len(pages)} pages, {sum(len(read(page).links) for page in pages)} links, {len(found)} broken")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
