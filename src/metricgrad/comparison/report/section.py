"""What a section of the report is.

A new section is a subclass in ``report/sections/``, named in ``SECTIONS`` there where it stands in the page, and a
script of its name in ``assets/sections/``.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any, ClassVar

from metricgrad.comparison.report.markup import make_folded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs

ASSETS = files("metricgrad.comparison.report") / "assets"


class Section:
    """A part of the page: what it measures, what it shows, and its share in keeping the page small.

    Everything has a default but ``name`` and ``title``. Markup is returned as text in which everything that comes from
    the data is escaped; ``report/markup.py`` has functions that do so.
    """

    name: ClassVar[str]
    """The id of its place in the page, and the name of its files in ``assets/sections/``."""
    title: ClassVar[str]
    """Its heading."""
    note: ClassVar[str] = ""
    """A sentence or two below the heading."""
    drawn: ClassVar[bool] = False
    """Whether its script fills it. Such a section follows the choice of contender and class, and needs JavaScript."""
    tasks: ClassVar[tuple[str, ...]] = ("binary", "multiclass", "multilabel")
    """The tasks for which it is in the page."""
    folded: ClassVar[bool] = False
    """Whether it stays folded below its heading until a reader opens it."""
    on_sheet: ClassVar[bool] = False
    """Whether it is on the one sheet that a browser prints."""
    alone: ClassVar[bool] = False
    """Whether it shows ``payload["study"]``, whichever contender is chosen, and needs no details of one; its script
    says so too."""
    exact: ClassVar[frozenset[str]] = frozenset()
    """The keys of numbers that stay exact in the page; all others are rounded to five digits."""
    sizes: ClassVar[tuple[tuple[int, int], ...]] = ()
    """Pairs of a step and what is passed to ``shrink`` then. As long as a page is too large, all sections take step 1,
    then step 2, and so on."""
    size_note: ClassVar[str] = ""
    """Says in the page that ``shrink`` was applied; ``{}`` is the size."""

    def measure(self, predictions: Predictions) -> dict[str, Any]:
        """Return what the page needs of a contender, as plain JSON, for ``payload["details"][contender]``."""
        return {}

    def measure_study(self, model: ShippedModelInputs) -> dict[str, Any]:
        """Return what the page needs once for the whole study, as plain JSON, for ``payload["study"]``."""
        return {}

    def keep_classes(self, details: Details, kept: Sequence[int], total: int) -> None:
        """Keep some of many classes in what was measured, in place."""

    def shrink(self, details: Details, size: int) -> None:
        """Make what was measured smaller, in place."""

    def body(self, payload: Payload) -> str:
        """Return the markup below heading and note: all of it, or the places that the script fills."""
        return ""

    def table(self, payload: Payload, details: Details) -> str:
        """Return what a drawn section shows of the contender to ship, for readers without JavaScript."""
        return ""

    def html(self, payload: Payload) -> str:
        """Return the whole section."""
        heading = f'<h2 id="{self.name}-title">{escape(self.title)}</h2>'
        note = f'<p class="note">{escape(self.note, quote=False)}</p>\n' if self.note else ""
        inner = note + self.body(payload)
        content = make_folded(heading, inner) if self.folded else f"{heading}\n{inner}"
        return self.make_place(content, f"{self.name}-title")

    def make_place(self, content: str, heading: str) -> str:
        """Return the element of the section; ``heading``: the id of what it is called by."""
        kinds = " ".join(kind for kind, applies in (("scripted", self.drawn), ("sheet", self.on_sheet)) if applies)
        of_kinds = f' class="{kinds}"' if kinds else ""
        return f'<section id="{self.name}"{of_kinds} aria-labelledby="{heading}">\n{content}\n</section>\n'

    def script(self) -> str:
        """Return the script of the section, or an empty text."""
        return read_asset(f"sections/{self.name}.js")

    def style(self) -> str:
        """Return the style sheet of the section, or an empty text."""
        return read_asset(f"sections/{self.name}.css")


def read_asset(path: str) -> str:
    """Return the text of a file in ``assets``, or nothing if there is none."""
    asset = ASSETS / path
    return asset.read_text(encoding="utf-8") if asset.is_file() else ""
