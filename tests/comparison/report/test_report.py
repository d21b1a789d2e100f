"""The report's file: what it holds, how large it is, and that nothing in the data becomes markup."""

from __future__ import annotations

import base64
import copy
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import pytest

from metricgrad.comparison.contenders import CONTENDERS
from metricgrad.comparison.number_texts import format_value
from metricgrad.comparison.report.page import join_scripts, join_styles, render, write
from metricgrad.comparison.report.page_size import MOST_CLASSES, shrink_payload
from metricgrad.comparison.report.payload import Payload
from metricgrad.comparison.report.section import ASSETS, Section
from metricgrad.comparison.report.sections import EVALUATION, RUNS, SECTIONS
from metricgrad.comparison.report.sections.verdict import VerdictSection
from metricgrad.comparison.verdict import Circumstances, write_verdict
from report_example import Example, simulate
from report_pages import HOSTILE, Reader, embedded, hostile

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def example() -> Example:
    return simulate(rows=1500)


def test_the_page_says_it_without_javascript(example: Example) -> None:
    payload = example.payload
    reader = Reader(render(payload))
    text = reader.text
    assert payload["verdict"]["headline"] in text
    assert payload["protocol"][0] in text
    assert payload["reproduce"]["command"] in text
    best = payload["leaderboard"][0]
    assert text.count(best["contender"]) > 2
    assert f"{best['value'] or 0:.3f}" in text
    rows = sum(tag == "tr" for tag, _ in reader.tags)
    assert rows > len(payload["leaderboard"])
    assert "Worst mistakes" in text


def test_the_page_stands_alone(example: Example) -> None:
    page = render(example.payload)
    reader = Reader(page)
    for tag, attributes in reader.tags:
        for name in ("src", "href", "action", "data", "poster"):
            address = attributes.get(name)
            assert address is None or address in ("data:,",) or address.startswith("#"), (tag, attributes)
    assert not re.findall(r"@import|url\(", page)
    assert set(re.findall(r"https?://[^\s\"'<]+", page)) == {"http://www.w3.org/2000/svg"}


def test_the_policy_lets_in_its_own_script_and_style_alone(example: Example) -> None:
    page = render(example.payload)
    policy = next(a["content"] for t, a in Reader(page).tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        inner = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        assert inner
        digest = base64.b64encode(hashlib.sha256(inner[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not [a for _, a in Reader(page).tags if any(name == "style" or name.startswith("on") for name in a)]


def test_scripts_never_write_markup() -> None:
    text = join_scripts(SECTIONS)
    assert "textContent" in text
    assert "\n//" not in text
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|\.srcdoc", text
    )


def test_every_section_has_its_files_and_every_file_its_section() -> None:
    pages = (SECTIONS, EVALUATION, RUNS)
    for sections in pages:
        names = [section.name for section in sections]
        assert len(set(names)) == len(names)
    files = {asset.name for asset in (ASSETS / "sections").iterdir()}
    every = [section for sections in pages for section in sections]
    assert {name.rsplit(".", 1)[0] for name in files} <= {section.name for section in every}
    for section in every:
        assert section.title
        assert f"{section.name}.js" in files or not section.drawn, section.name
        assert not section.script() or f'section("{section.name}", {{' in section.script()
        assert not section.style() or section.style() in join_styles(every)
        assert ("alone: true" in section.script()) == section.alone


class Rare(Section):
    """A section of two lines, with a script that uses names of other sections' scripts."""

    name = "rare"
    title = "Rare & odd"
    note = "a < b"

    def body(self, payload: Payload) -> str:
        return f"<p>{len(payload['data']['classes'])} classes</p>"

    def script(self) -> str:
        return "const NEAR = 1, figure = 2;"

    def style(self) -> str:
        return "#rare { margin: 0; }"


def test_a_section_more_has_its_place_script_and_style(example: Example) -> None:
    page = render(example.payload, [Rare(), *SECTIONS])
    assert page.index('<section id="rare"') < page.index('<section id="verdict"')
    assert '<h2 id="rare-title">Rare &amp; odd</h2>\n<p class="note">a &lt; b</p>\n<p>2 classes</p>' in page
    assert "{\nconst NEAR = 1, figure = 2;\n}" in page
    assert "#rare { margin: 0; }" in page
    last = render(example.payload, [*SECTIONS, Rare()])
    assert last.index('<section id="rare"') > last.index('<section id="reproduce"')


def test_sections_stand_in_order_and_the_choice_of_contender_above_the_first_that_is_drawn(example: Example) -> None:
    page = render(example.payload)
    # This run has one label, so it has no section for several; it has no costs, and ships no ensemble.
    absent = {"decision", "money", "members"}
    here = [section for section in SECTIONS if section.name not in absent]
    starts = [page.index(f'<section id="{section.name}"') for section in here]
    assert starts == sorted(starts)
    drawn = [start for start, section in zip(starts, here, strict=True) if section.drawn]
    choice = page.index('<div class="focus')
    assert next(start for start in starts if start > choice) == drawn[0]
    assert starts[0] < page.index('<nav id="contents"') < starts[1]
    for section in here:
        assert (f'<section id="{section.name}" class="scripted"' in page) == section.drawn
        assert (f'aria-labelledby="{section.name}-title">\n<details class="folded">' in page) == section.folded
    for section in (section for section in SECTIONS if section.name in absent):
        assert f'<section id="{section.name}"' not in page
        assert f'href="#{section.name}"' not in page
        assert not section.drawn or section.script().strip() not in page


def test_members_are_shown_if_the_ensemble_ships(example: Example) -> None:
    payload = copy.deepcopy(example.payload)
    assert payload["members"]
    assert "Members of the ensemble" not in Reader(render(payload)).text
    payload["verdict"]["ship"] = "ensemble"
    assert Reader(render(payload)).text.count("Members of the ensemble") == 2  # in the contents, and its heading


def test_the_verdict_says_each_number_once(example: Example) -> None:
    payload = copy.deepcopy(example.payload)
    contenders = dict.fromkeys([row["contender"] for row in payload["leaderboard"]], CONTENDERS["hybrid"])
    verdict = write_verdict(payload["leaderboard"], Circumstances("F2"), contenders=contenders)
    payload["verdict"] = verdict
    shipped = payload["leaderboard"][0]
    assert f"{shipped['value']:.3f}" in verdict["text"]
    text = Reader(VerdictSection().html(payload)).text
    numbers = [shipped[key] for key in ("value", "low", "high")]
    claims = [claim[key] for claim in verdict["claims"].values() for key in ("difference", "low", "high")]
    for number in (*(format_value(one) for one in numbers), *(format_value(one, "+") for one in claims)):
        assert len(re.findall(rf"(?<![\d.+−]){re.escape(number)}(?!\d)", text)) == 1, number


def test_a_reference_that_cannot_ship_is_no_figure_of_the_verdict(example: Example) -> None:
    payload = copy.deepcopy(example.payload)
    assert "against cross-entropy fixed" in Reader(VerdictSection().html(payload)).text
    for row in payload["leaderboard"]:
        row["feasible"] = row["rule"] == "tuned"  # as with a constraint
    text = Reader(VerdictSection().html(payload)).text
    assert "against cross-entropy fixed" not in text
    assert "against cross-entropy tuned" in text


@pytest.mark.parametrize("text", HOSTILE)
def test_data_never_becomes_markup(example: Example, text: str) -> None:
    page = render(hostile(example.payload, text))
    clean = render(hostile(example.payload, "harmless"))
    wanted, found = Reader(clean), Reader(page)
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in wanted.tags]
    assert [sorted(a) for _, a in found.tags] == [sorted(a) for _, a in wanted.tags]
    assert page.encode()
    assert not re.search("[\x00-\x08\x0b-\x1f\u2028-\u202e\u2066-\u2069]", page)
    inner = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.DOTALL)
    assert inner
    assert not set("<>&") & set(inner[1])
    kept = embedded(page)["data"]["file"]
    assert len(kept) <= 300
    if text.isprintable() and len(text) < 300:
        assert kept == text
        assert text in found.text


def test_numbers_that_are_none_are_dashes(example: Example) -> None:
    payload: Any = copy.deepcopy(example.payload)
    for row in payload["leaderboard"]:
        row.update(low=None, high=None, seconds=None, folds=[], others={"precision": float("nan")})
        for gain in row["against"].values():
            gain.update(low=None, high=None, p=None)
    payload["leaderboard"][-1]["value"] = float("nan")
    payload["left_out"], payload["data"]["warnings"], payload["details"] = [], [], {}
    page = render(payload)
    assert embedded(page)["leaderboard"][0]["others"] == {"precision": None}
    assert "nan" not in Reader(page).text.lower().split()


def test_constraints_are_marked(example: Example) -> None:
    payload = copy.deepcopy(example.payload)
    payload["metric"]["subject_to"] = "precision >= 0.9"
    payload["leaderboard"][0]["feasible"] = False
    page = render(payload)
    assert "Subject to precision &gt;= 0.9" in page
    assert page.count('class="broken"') == 1


def test_of_many_classes_some_are_kept_and_the_page_says_so(example: Example) -> None:
    names = [f"label {k}" for k in range(60)]
    payload = simulate(rows=300, contenders=4, classes=names).payload
    first = next(iter(payload["details"].values()))
    first["confusion"] = [[i * 60 + j for j in range(60)] for i in range(60)]
    small = shrink_payload(payload, SECTIONS)
    assert small["protocol"][:-1] == payload["protocol"]
    assert "Of 60 classes the 30 most frequent are drawn" in small["protocol"][-1]
    kept = small["details"][next(iter(payload["details"]))]
    assert len(kept["classes"]) == len(kept["per_class"]) == MOST_CLASSES
    assert len(kept["confusion"]) == len(small["data"]["classes"]) == MOST_CLASSES + 1
    assert sum(map(sum, kept["confusion"])) == sum(map(sum, first["confusion"]))
    assert sum(small["data"]["balance"]) == pytest.approx(sum(payload["data"]["balance"]), abs=1e-3)
    assert len(payload["data"]["classes"]) == 60  # the payload itself is left alone
    assert "Of 60 classes" in render(payload)


def test_a_page_of_everything_stays_small() -> None:
    payload = simulate(rows=400, contenders=8, classes=[f"label {k}" for k in range(30)]).payload
    rich = next(iter(payload["details"].values()))
    for error in rich["errors"]:
        error["cells"] = [(f"column {i}", "text " * 50) for i in range(30)]
    for i in range(42):
        payload["details"][f"copy {i}"] = rich
        row = copy.deepcopy(payload["leaderboard"][0])
        payload["leaderboard"].append({**row, "contender": f"copy {i}"})
    page = render(payload)
    small = embedded(page)
    assert len(page.encode()) < 3_000_000
    notes = small["protocol"][len(payload["protocol"]) :]
    assert notes[0].startswith("Curves are drawn from")
    assert len({note.split(" ")[0] for note in notes}) == len(notes)  # one for each subject, the last
    assert Reader(page).text.count("Curves are drawn from") == 2  # to be read, and in the JSON
    assert small["verdict"]["ship"] in small["details"]
    for details in small["details"].values():
        for curve in details["classes"]:
            assert {0.5, curve["threshold"]} <= set(curve["grid"])
            assert len(curve["grid"]) == len(curve["tp"]) == len(curve["fp"])


def test_writing_is_whole_or_nothing(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(example.payload, tmp_path / "report.html")
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(example.payload, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
