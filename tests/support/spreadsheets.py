"""Small Excel files, written by hand: what a test needs of the format, without a library for it."""

from __future__ import annotations

import datetime as dt
import zipfile
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

_TYPES = """<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
</Types>"""
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_STYLES = (
    f"""<styleSheet xmlns="{_MAIN}"><cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>"""
)


def write_excel(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    """Write sheets of rows of cells: texts, numbers, booleans, dates, and None for empty ones."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _link([("officeDocument", "xl/workbook.xml")]))
        names = "".join(f'<sheet name="{escape(name)}" sheetId="{k}" r:id="r{k}"/>' for k, name in enumerate(sheets, 1))
        archive.writestr(
            "xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>{names}</sheets></workbook>'
        )
        links = [("worksheet", f"worksheets/{k}.xml") for k in range(1, len(sheets) + 1)]
        archive.writestr("xl/_rels/workbook.xml.rels", _link([*links, ("styles", "styles.xml")]))
        archive.writestr("xl/styles.xml", _STYLES)
        for k, rows in enumerate(sheets.values(), 1):
            lines = "".join(f'<row r="{y}">{_cells(row, y)}</row>' for y, row in enumerate(rows, 1))
            archive.writestr(
                f"xl/worksheets/{k}.xml", f'<worksheet xmlns="{_MAIN}"><sheetData>{lines}</sheetData></worksheet>'
            )
    return path


def _link(targets: list[tuple[str, str]]) -> str:
    found = "".join(
        f'<Relationship Id="r{k}" Type="{_RELATIONS}/{kind}" Target="{target}"/>'
        for k, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{_PACKAGE}">{found}</Relationships>'


def _cells(row: list[Any], y: int) -> str:
    return "".join(_cell(value, f"{chr(65 + x)}{y}") for x, value in enumerate(row) if value is not None)


def _cell(value: Any, place: str) -> str:
    if isinstance(value, str):
        return f'<c r="{place}" t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    if isinstance(value, bool):
        return f'<c r="{place}" t="b"><v>{int(value)}</v></c>'
    if isinstance(value, dt.date):
        return f'<c r="{place}" s="1"><v>{(value - dt.date(1899, 12, 30)).days}</v></c>'
    return f'<c r="{place}"><v>{value}</v></c>'
