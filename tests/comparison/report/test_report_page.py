"""The report in a real browser. Skipped where there is no Chromium, unless METRICGRAD_CHROMIUM demands it."""

from __future__ import annotations

import copy
import doctest
import itertools
import math
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from metricgrad import metrics
from metricgrad.comparison.contenders import CONTENDERS
from metricgrad.comparison.goal import Goal
from metricgrad.comparison.report.page import write
from metricgrad.comparison.report.payload import Payload
from metricgrad.comparison.report.section import Section
from metricgrad.comparison.report.section_inputs import Predictions
from metricgrad.comparison.report.sections import EVALUATION, RUNS, SECTIONS
from metricgrad.comparison.tables.labelled_table import LabelledTable
from metricgrad.comparison.verdict import Circumstances, write_verdict
from metricgrad.core.counts import Counts
from metricgrad.core.metrics.expressions import trace
from report_example import NAMES, Example, simulate
from report_pages import HOSTILE, hostile

# A path to a browser, or "1": one must be found.
WISH = os.environ.get("METRICGRAD_CHROMIUM", "")
FOUND = [name for name in (WISH, "chromium", "chromium-browser", "google-chrome") if name and shutil.which(name)]
# The path of axe.min.js; the tests of accessibility are skipped without it.
AXE = os.environ.get("METRICGRAD_AXE", "")
if not WISH:
    if not FOUND:
        pytest.skip("no Chromium here", allow_module_level=True)
    pytest.importorskip("playwright")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    assert FOUND, f"METRICGRAD_CHROMIUM={WISH}: expected a Chromium, found none"
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=shutil.which(FOUND[0]), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def binary() -> Example:
    return simulate(rows=1500)


@pytest.fixture(scope="module")
def labels() -> Example:
    return simulate(rows=600, contenders=5, classes=["energy", "transport", "growth", "repair"])


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Open a payload's page; whatever the page complains of fails the test."""
    contexts: list[Any] = []
    complaints: list[str] = []
    asked: list[str] = []
    places = itertools.count()

    def open_(
        payload: Payload,
        width: int = 1100,
        sections: Sequence[Section] = SECTIONS,
        unfolded: bool = False,
        **options: Any,
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(write(payload, tmp_path / f"{next(places)}.html", sections).as_uri())
        if unfolded:
            page.evaluate(UNFOLD)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []


# Opens what is folded, and waits until its charts are drawn.
UNFOLD = """() => new Promise((done) => {
  document.querySelectorAll("details.folded").forEach((details) => { details.open = true; });
  requestAnimationFrame(() => requestAnimationFrame(done));
})"""


def overflow(page: Any) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def readout(page: Any) -> tuple[list[int], list[str]]:
    """Return tp, fn, fp, tn and the values beside them."""
    cells = [int(text.replace(",", "")) for text in page.locator("#matrix td strong").all_inner_texts()]
    return cells, page.locator("#values dd").all_inner_texts()


def counted(scores: torch.Tensor, targets: torch.Tensor, cut: float) -> list[int]:
    taken, true = scores >= cut, targets == 1
    return [int(x.sum()) for x in (taken & true, ~taken & true, taken & ~true, ~taken & ~true)]


def test_the_slider_shows_the_counts_of_the_raw_scores(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    ship = binary.payload["verdict"]["ship"]
    curve = binary.payload["details"][ship]["classes"][0]
    tuned = curve["threshold"]
    assert tuned
    scores, targets = binary.scores[ship][:, 0], binary.targets[:, 0]
    slider = page.locator("#threshold-slider")
    assert float(slider.input_value()) == tuned
    slider.focus()
    seen = set()
    for key in (None, "Home", "ArrowRight", "End", "ArrowLeft", "PageDown", "PageDown"):
        if key:
            slider.press(key)
        cut = float(slider.input_value())
        assert cut in curve["grid"]
        cells, values = readout(page)
        assert cells == counted(scores, targets, cut)
        tp, fn, fp, tn = (torch.tensor(float(x)) for x in cells)
        four = Counts(tp, fp, fn, tn)
        wanted = [metrics.get(name)(four).item() for name in ("f2", "precision", "recall")]
        assert values == [f"{value:.3f}" for value in wanted]
        told = slider.get_attribute("aria-valuetext") or ""
        assert f"recall {wanted[2]:.3f}; {cells[0]:,} found, {cells[1]:,} missed, {cells[2]:,} false alarms" in told
        seen.add(cut)
    assert len(seen) == 7
    page.click("#go-half")
    assert readout(page)[0] == counted(scores, targets, 0.5)
    page.click("#go-best")
    best = float(readout(page)[1][0])
    page.click("#go-tuned")
    assert readout(page)[0] == counted(scores, targets, tuned)
    assert best >= float(readout(page)[1][0])


def test_dragging_in_the_chart_moves_the_threshold(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    page.locator("#threshold-chart").scroll_into_view_if_needed()
    box = page.locator("#threshold-chart .grab").bounding_box()
    before = page.locator("#threshold-slider").input_value()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 50)
    assert page.locator("#tip").is_visible()
    assert page.locator("#threshold-slider").input_value() == before
    page.mouse.down()
    high = float(page.locator("#threshold-slider").input_value())
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 50)
    page.mouse.up()
    assert float(page.locator("#threshold-slider").input_value()) < high


def test_the_thumb_stands_below_its_place_in_the_chart(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    slider = page.locator("#threshold-slider")
    for button in ("#go-tuned", "#go-half", "#go-best"):
        page.click(button)
        low, high = (float(slider.get_attribute(name) or "") for name in ("min", "max"))
        value = float(slider.input_value())
        track = slider.bounding_box()
        line = page.locator("#threshold-chart .now").bounding_box()
        thumb = track["x"] + 8 + (track["width"] - 16) * (value - low) / (high - low)
        assert abs(thumb - (line["x"] + line["width"] / 2)) < 2


def test_the_best_threshold_meets_the_constraint(opened: Any, binary: Example) -> None:
    payload = copy.deepcopy(binary.payload)
    bound = {"metric": "precision", "bound": 0.9, "sense": ">=", "over": None}
    payload["metric"] |= {"subject_to": "precision>=0.9", "constraints": [bound]}
    page = opened(payload)
    page.click("#go-best")
    curve = payload["details"][payload["verdict"]["ship"]]["classes"][0]
    counts = [
        (cut, tp, tp / (tp + fp))
        for cut, tp, fp in zip(curve["grid"], curve["tp"], curve["fp"], strict=True)
        if tp + fp
    ]
    best = max(tp for _, tp, precision in counts if precision >= 0.9)  # the most that F2 can have then
    assert float(readout(page)[1][1]) >= 0.9
    assert abs(readout(page)[0][0] - best) <= 2
    assert "among thresholds that meet precision>=0.9" in page.inner_text("#threshold .readout .note")
    assert page.locator(".leaderboard tbody tr").first.locator("[data-label=Met]").inner_text() == "5 of 5"
    bound["bound"] = 1.5
    assert opened(payload).locator("#go-best").is_disabled()


def test_the_shipped_threshold_is_marked(opened: Any, binary: Example) -> None:
    payload = copy.deepcopy(binary.payload)
    ship = payload["verdict"]["ship"]
    curve = payload["details"][ship]["classes"][0]
    curve |= {"threshold": curve["grid"][20], "ships": True}
    words = f"threshold {curve['threshold']:.4g}"
    payload["model"] = {"contender": ship, "rule": words, "kind": "tuned", "thresholds": [], "tuned_on": "90 rows"}
    page = opened(payload)
    assert page.inner_text("#shipped-rule") == f"The shipped model decides by {words}, tuned on 90 rows."
    assert page.inner_text("#go-tuned") == "Shipped"
    assert page.locator("#threshold-chart text", has_text="ships").count() == 1
    assert float(page.locator("#threshold-slider").input_value()) == curve["threshold"]
    page.select_option("#contender", label="cross-entropy")
    assert page.inner_text("#go-tuned") == "Tuned"


def test_switches_hide_and_show_curves(opened: Any, binary: Example) -> None:
    page = opened(binary.payload, unfolded=True)
    curve = page.locator('#curve-chart path[data-contender="cross-entropy"]')
    chip = page.locator("#chips button", has_text="cross-entropy").and_(page.locator("[title=cross-entropy]"))
    assert curve.count() == 1
    assert chip.get_attribute("aria-pressed") == "true"
    chip.click()
    assert curve.count() == 0
    assert chip.get_attribute("aria-pressed") == "false"
    chip.click()
    assert curve.count() == 1


def test_other_contenders_and_classes_are_shown(opened: Any, labels: Example) -> None:
    page = opened(labels.payload)
    page.select_option("#contender", label="cross-entropy")
    page.select_option("#class", label="growth")
    curve = labels.payload["details"]["cross-entropy"]["classes"][2]
    cells, _ = readout(page)
    assert cells == counted(labels.scores["cross-entropy"][:, 2], labels.targets[:, 2], curve["threshold"] or 0.5)
    assert page.locator("#class-chart rect.fill").count() == 4
    assert page.locator("#confusion").is_hidden()


@pytest.fixture
def multiclass(labels: Example) -> Payload:
    """Return the payload of a multi-class problem, whose third class is the rarest."""
    payload: Any = copy.deepcopy(labels.payload)
    payload["data"]["task"] = "multiclass"
    names = payload["data"]["classes"]
    for name, details in payload["details"].items():
        ships = name == payload["verdict"]["ship"]
        details["confusion"] = [[40, 3, 2, 1], [5, 30, 0, 2], [1, 1, 20, 9], [0, 0, 4, 12]]
        offsets = [0.0, 0.25, math.log(2), -0.5] if ships else [None] * 4
        details["decision"] = {
            "ships": ships,
            "classes": [
                {"name": one, "offset": offset, "rows": 40, "predicted": 44}
                for one, offset in zip(names, offsets, strict=True)
            ],
        }
        for curve in details["classes"]:
            curve |= {"threshold": None, "plateau": None, "ships": False}
        details["classes"][2]["positives"] = 10
    return payload  # type: ignore[no-any-return]


def test_multi_class_shows_the_whole_matrix_first(opened: Any, multiclass: Payload) -> None:
    page = opened(multiclass)
    assert page.locator("#confusion-table td.right").all_inner_texts() == ["40", "30", "20", "12"]
    drawn = page.locator("main section.scripted:visible")
    assert drawn.first.get_attribute("id") == "classes"
    assert drawn.first.locator("figure").first.get_attribute("id") == "confusion"


def test_multi_class_shows_the_rule_and_no_threshold(opened: Any, multiclass: Payload) -> None:
    page = opened(multiclass, unfolded=True)
    for name in ("threshold", "profit"):
        assert page.locator(f"#{name}").count() == 0
    assert (
        page.locator("#decision-note").inner_text().startswith("The shipped model multiplies the score of each class")
    )
    rows = [row.split("\t") for row in page.locator("#decision-table tbody tr").all_inner_texts()]
    assert [row[1:] for row in rows] == [
        ["× 1", "0.000", "40", "44"],
        ["× 1.284", "+0.250", "40", "44"],
        ["× 2", "+0.693", "40", "44"],
        ["× 0.6065", "−0.500", "40", "44"],
    ]
    page.select_option("#contender", label="cross-entropy")
    assert page.locator("#decision-note").inner_text() == (
        "cross-entropy, in each split, predicts the class with the largest score; no class has an offset."
    )
    assert "hreshold" not in page.locator("#curve-table").inner_text()
    assert page.locator("#score-charts line.now").count() == 0
    assert "at 0.5" not in page.inner_text("body")


def test_multi_class_rings_are_what_the_rule_does(opened: Any, multiclass: Payload) -> None:
    ship = multiclass["verdict"]["ship"]
    multiclass["details"][ship]["per_class"][2] |= {"precision": 0.25, "recall": 0.75}
    page = opened(multiclass, unfolded=True)
    row = page.locator("#curve-table tbody tr", has_text=ship)
    assert [cell.strip() for cell in row.inner_text().split("\t")][-2:] == ["0.250", "0.750"]
    ring = page.locator("#curve-chart circle.ring.s0")
    grid = page.locator("#curve-chart line.axis").last.evaluate("e => [e.x1.baseVal.value, e.x2.baseVal.value]")
    across = ring.evaluate("e => e.cx.baseVal.value")
    assert (across - grid[0]) / (grid[1] - grid[0]) == pytest.approx(0.75, abs=0.01)


def test_the_page_opens_on_the_rarest_class(opened: Any, multiclass: Payload, labels: Example) -> None:
    page = opened(multiclass)
    assert page.locator("#class").evaluate("e => e.selectedIndex") == 2
    page = opened(labels.payload)
    rows = labels.targets.sum(0)
    assert page.locator("#class").evaluate("e => e.selectedIndex") == int(rows.argmin())
    assert (
        page.locator("#threshold-caption")
        .inner_text()
        .startswith(f"F2 of {labels.payload['data']['classes'][int(rows.argmin())]}")
    )


def test_the_leaderboard_sorts_filters_and_unfolds(opened: Any) -> None:
    payload = simulate(rows=300, contenders=50).payload
    page = opened(payload, unfolded=True)
    rows = page.locator(".leaderboard tbody tr:visible")
    assert rows.count() == 5
    assert page.locator("#chips button").count() < 12
    page.click("#all-rows")
    assert rows.count() == 100
    page.click("[data-filter=tuned]")
    assert rows.count() == 50
    page.locator("th[data-key=name] button").click()
    names = [name.split("\n")[0] for name in page.locator(".leaderboard tbody tr:visible th").all_inner_texts()]
    assert names == sorted(names, key=str.lower)
    assert page.locator("th[data-key=name]").get_attribute("aria-sort") == "ascending"
    page.locator("th[data-key=value] button").click()
    values = [float(text) for text in page.locator(".leaderboard tbody tr:visible .value .number").all_inner_texts()]
    assert values == sorted(values, reverse=True)
    page.locator("th[data-key=gain1] button").click()  # cross-entropy tuned has none against itself: it comes last
    assert page.locator(".leaderboard tbody tr:visible th").last.inner_text().startswith("cross-entropy")
    page.locator("#more-chips summary").click()
    page.locator("#more-chips button").last.click()
    assert page.locator("#curve-chart path[data-contender]").count() == 6


@pytest.mark.parametrize("width", [360, 768, 1100])
def test_nothing_is_wider_than_the_screen(opened: Any, width: int) -> None:
    payload = simulate(rows=300, contenders=12, classes=[f"a rather long label {k}" for k in range(9)]).payload
    for task, chart in (("multilabel", "threshold-chart"), ("multiclass", "class-chart")):
        payload["data"]["task"] = task  # type: ignore[typeddict-item]
        for details in payload["details"].values():
            details["confusion"] = [[1234] * 9 for _ in range(9)]
            names = payload["data"]["classes"]
            details["decision"] = {
                "ships": True,
                "classes": [{"name": name, "offset": -0.125, "rows": 123456, "predicted": 123456} for name in names],
            }
        page = opened(payload, width=width, unfolded=True)
        assert overflow(page) == 0
        page.set_viewport_size({"width": 320, "height": 700})
        page.wait_for_timeout(100)
        assert overflow(page) == 0
        assert page.locator(f"#{chart} svg").bounding_box()["width"] <= 320


def test_charts_of_scores_use_the_width_of_a_phone(opened: Any, binary: Example) -> None:
    pairs = opened(binary.payload, width=390, unfolded=True).locator("#score-charts .pair")
    room = pairs.first.bounding_box()["width"]
    assert [round(svg.bounding_box()["width"]) for svg in pairs.first.locator("svg").all()] == [room, room]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(opened: Any, binary: Example, scheme: str) -> None:
    page = opened(binary.payload, unfolded=True, color_scheme=scheme)
    for theme in (scheme, {"light": "dark", "dark": "light"}[scheme]):
        assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") in ("light dark", theme)
        assert page.evaluate(CONTRAST) == []
        page.click("#theme")


# Every text and its background, by the formula of the Web Content Accessibility Guidelines 2.2.
CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const pixel = (colour, under) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const c of [under, colour]) { if (c) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); } }
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const css = (p) => `rgb(${p[0]} ${p[1]} ${p[2]})`;
  const ground = (e) => {
    const above = [];
    for (; e; e = e.parentElement) above.unshift(getComputedStyle(e).backgroundColor);
    return above.reduce((under, colour) => css(pixel(colour, under)), "white");
  };
  const poor = [];
  for (const e of document.querySelectorAll("body *:not(script):not(noscript)")) {
    const words = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!words || !e.checkVisibility()) continue;
    const style = getComputedStyle(e), under = ground(e);
    const ink = pixel(e.closest("svg") ? style.fill : style.color, under);
    const [a, b] = [light(ink), light(pixel(under))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) poor.push(`${e.textContent.slice(0, 30)}: ${contrast.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("first", [HOSTILE[0], HOSTILE[1], HOSTILE[-1]], ids=["script", "tag", "long"])
def test_hostile_data_is_shown_as_text(opened: Any, binary: Example, first: str) -> None:
    payload = hostile(binary.payload, first)
    errors = payload["details"][payload["verdict"]["ship"]]["errors"]
    for error, text in zip(errors, HOSTILE, strict=False):
        error["cells"] = [(text, text)]
    page = opened(payload, width=360, unfolded=True)
    assert overflow(page) == 0
    assert page.locator("img, b, i, iframe").count() == 0
    page.click("#mistake-table summary")
    for text, shown in zip(HOSTILE, page.locator("#mistake-table dd").all_inner_texts(), strict=False):
        assert shown == text if text.isprintable() and len(text) < 100 else len(shown) < 200
    if len(first) < 100:
        assert page.locator("h1").inner_text() == first


def test_metrics_are_those_of_the_library(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    names = sorted(
        {*metrics.names(), "f0.5", "f_3", "f2.", "savings(fp=1 fn=10)"} - {"quadratic_kappa", "subset_accuracy"}
    )
    steps = [trace(metrics.get(name)) for name in names]
    four = [(3, 1, 1, 5), (0, 0, 4, 6), (5, 0, 0, 0), (0, 4, 0, 3), (0, 0, 0, 0), (70, 20, 10, 4000), (0, 0, 0, 9)]
    values = "([each, all]) => each.map((steps) => all.map(([tp, fp, fn, tn]) => compute(steps, {tp, fp, fn, tn})))"
    counts = Counts(*torch.tensor(four, dtype=torch.float64).T)
    for name, got in zip(names, page.evaluate(values, [steps, four]), strict=True):
        assert got == pytest.approx(metrics.get(name)(counts).tolist(), abs=1e-12), name
    assert page.evaluate("metricNamed('quadratic_kappa')") is None
    assert page.evaluate("metricNamed('constructor')") is None


def test_without_javascript_the_tables_are_there(opened: Any, binary: Example) -> None:
    page = opened(binary.payload, width=360, java_script_enabled=False)
    assert page.locator("h1").inner_text() == binary.payload["verdict"]["headline"]
    assert page.locator(".leaderboard tbody tr:visible").count() == 16
    assert page.locator("noscript table:visible").count() == 6
    assert page.locator("#threshold-slider").is_hidden()


def test_charts_have_names_and_tables(opened: Any, labels: Example) -> None:
    page = opened(labels.payload, unfolded=True)
    assert page.evaluate(
        "[...document.querySelectorAll('.chart svg, .multiples svg')].every((e) => e.getAttribute('aria-label'))"
    )
    assert page.evaluate("[...document.querySelectorAll('select, input')].every((e) => e.labels.length > 0)")
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map((e) => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    for details in page.locator("details.data").all():
        details.locator("summary").click()
        assert details.locator("tbody tr").count() > 0


@pytest.mark.parametrize(
    ("name", "drawn", "told"),
    [
        ("cross-entropy", "hard", ["hard", "loss"]),
        ("hybrid loss", "soft, hard", ["hard", "soft", "loss"]),
        ("metric-boosted trees", "loss", ["loss"]),
        ("plain trees", "loss", ["loss"]),
    ],
)
def test_learning_curves_are_of_what_is_known(
    opened: Any, binary: Example, name: str, drawn: str, told: list[str]
) -> None:
    page = opened(binary.payload, unfolded=True)
    chart = page.locator("#learning-charts figure").filter(has=page.get_by_text(name, exact=True)).locator("svg")
    step = "round" if "trees" in name else "epoch"
    assert chart.get_attribute("aria-label") == f"By {step}: {drawn}; table below"
    assert chart.get_by_text(step, exact=True).count() == 1
    assert "NaN" not in chart.inner_html()
    chart.hover()
    heading, *lines = page.locator("#tip").inner_text().splitlines()
    assert heading.startswith(step)
    assert [line.split()[0] for line in lines] == told


def test_a_report_without_details_is_still_one(opened: Any, binary: Example) -> None:
    payload = copy.deepcopy(binary.payload)
    payload["details"] = {}
    page = opened(payload)
    assert page.locator(".focus").is_hidden()
    assert page.locator(".leaderboard tbody tr:visible").count() == 5


def count_pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@pytest.mark.parametrize("text", ["", "long " * 400], ids=["usual", "long"])
@pytest.mark.parametrize("paper", [{"prefer_css_page_size": True}, {"format": "Letter"}], ids=["A4", "Letter"])
def test_one_sheet_is_printed(opened: Any, binary: Example, text: str, paper: dict[str, Any]) -> None:
    payload = copy.deepcopy(binary.payload)
    payload["verdict"]["text"] += text
    payload["data"]["warnings"] = [f"warning {i} {text}" for i in range(9)]
    page = opened(payload, color_scheme="dark")
    assert count_pages(page.pdf(**paper)) == 1
    page.emulate_media(media="print")
    places = page.locator("main > *:visible").evaluate_all("places => places.map((place) => place.id)")
    assert places == ["verdict"]
    assert page.locator(".figures .big:visible").count() == 3
    assert page.locator("#verdict svg.bar:visible").count() == 4
    assert page.locator(".warnings li:visible").count() == 3
    assert page.locator(".print-only:visible").text_content() == "The report has 6 more warnings."
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(31, 30, 27)"


def test_a_button_prints_everything(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    page.evaluate("window.print = () => { window.printed = document.querySelectorAll('.folded:not([open])').length; }")
    page.click("#print-everything")
    assert page.evaluate("window.printed") == 0
    page.emulate_media(media="print")
    assert page.locator(".tools").first.is_hidden()
    assert page.locator("#contents").is_hidden()
    assert page.locator(".leaderboard tbody tr:visible").count() == 16
    assert page.locator("#learning-charts svg").first.is_visible()
    headings = "[...document.querySelectorAll('h2, h3, caption')].map((e) => getComputedStyle(e).breakAfter)"
    assert set(page.evaluate(headings)) == {"avoid"}
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 without its margins
    page.wait_for_timeout(100)
    assert overflow(page) == 0
    assert count_pages(page.pdf()) > 3  # and what was folded is folded again
    assert page.locator(".folded[open]").count() == 0
    assert page.locator("#learning-charts").is_hidden()
    assert count_pages(page.pdf()) == 1


def documented() -> Section:
    """Return the section that docs/extending.md writes, with the script that it shows."""
    text = (Path(__file__).parents[3] / "docs" / "extending.md").read_text()
    part = text[text.index("## A report section") :]
    script = re.search(r"```js\n(.*?)```", part, re.DOTALL)
    assert script
    names: dict[str, Any] = {}
    for example in doctest.DocTestParser().get_examples(part):
        exec(example.source, names)  # noqa: S102 (our own documentation)
        if "Order" in names:
            break
    names["Order"].script = lambda self: script[1]
    return names["Order"]()  # type: ignore[no-any-return]


def test_the_section_of_the_docs_is_drawn(opened: Any, binary: Example) -> None:
    payload, section, targets = copy.deepcopy(binary.payload), documented(), binary.targets[:, 0].numpy().astype(int)
    table = LabelledTable(pd.DataFrame(index=range(len(targets))), targets, ("stayed", "churned"))
    for name, scores in binary.scores.items():
        s, everyone = scores[:, 0].numpy(), np.arange(len(targets))
        decided = (s >= 0.5).astype(int)
        predictions = Predictions(
            name, Goal("binary", 2, "f2"), table, everyone, s, targets, decided, [], [], history=[]
        )
        payload["details"][name] |= section.measure(predictions)
    page = opened(payload, sections=[*SECTIONS, section])
    place = page.locator("#order")
    assert place.locator("h2").inner_text() == section.title
    assert place.locator("svg path.line").is_visible()
    place.locator("summary").click()
    page.select_option("#contender", label="focal loss")
    wanted = [f"{share:.3f}" for share in payload["details"]["focal loss"]["order"]]
    assert place.locator("td").all_inner_texts() == wanted
    bare = opened(payload, sections=[*SECTIONS, section], java_script_enabled=False)
    assert bare.locator("noscript table:visible").count() == 7


def test_a_section_with_nothing_to_show_is_hidden(opened: Any, binary: Example) -> None:
    payload = copy.deepcopy(binary.payload)
    for name, details in payload["details"].items():
        if name != "cross-entropy":
            details["errors"] = []
    page = opened(payload)
    assert page.locator("#mistakes").is_hidden()
    page.select_option("#contender", label="cross-entropy")
    assert page.locator("#mistakes").is_visible()
    page.select_option("#contender", label="hybrid loss")
    assert page.locator("#mistakes").is_hidden()


# A phone, the contents, accessibility


def enrich(payload: Payload) -> Payload:
    """Return a payload with as much to show as the report of a real table has."""
    rich: Any = copy.deepcopy(payload)
    rich["verdict"] |= write_verdict(rich["leaderboard"], Circumstances("F2"), contenders=CONTENDERS_OF_EXAMPLE)
    rich["importance"] = [{"column": f"column {i}", "drop": 0.1, "low": 0.05, "high": 0.15} for i in range(20)]
    for details in rich["details"].values():
        for error in details["errors"]:
            error["cells"] = [(f"mean of column {i}", "0.1234") for i in range(12)]
    for each in rich["study"]["segments"]:
        each["segments"] = [
            {"name": f"{i} to {i + 1}", "rows": 90, "value": 0.5, "low": 0.4, "high": 0.6} for i in range(8)
        ]
    if rich["data"]["task"] == "binary":
        rules = ("this model and rule", "today's rule, 0.5", "predict none", "predict all", "perfect decisions")
        amounts = [
            {"rule": rule, "total": 1234.5, "per_row": 0.8, "low": 0.7, "high": 0.9, "savings": 0.4} for rule in rules
        ]
        cells = [("a column", "with a value")] * 12
        row = {"row": 7, "truth": "churned", "decided": "stayed", "score": 0.1, "lost": 25.0, "cells": cells}
        rich["study"]["money"] = {"amounts": amounts, "lost": [row] * 10}
    return rich  # type: ignore[no-any-return]


CONTENDERS_OF_EXAMPLE = dict.fromkeys([name for name, _, _ in NAMES], CONTENDERS["hybrid"])


@pytest.fixture
def payloads(binary: Example, labels: Example, multiclass: Payload, evaluation: Payload) -> dict[str, Payload]:
    return {
        "binary": enrich(binary.payload),
        "multiclass": enrich(multiclass),
        "multilabel": enrich(labels.payload),
        "evaluation": evaluation,
    }


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_a_phone_shows_it_on_eight_screens(opened: Any, payloads: dict[str, Payload], task: str) -> None:
    page = opened(payloads[task], width=390)
    assert page.evaluate("document.documentElement.scrollHeight") <= 8 * 844
    assert overflow(page) == 0


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_the_contents_lead_to_every_section_and_open_it(opened: Any, payloads: dict[str, Payload], task: str) -> None:
    page = opened(payloads[task])
    links = page.locator("#contents a:visible")
    names = [address[1:] for address in links.evaluate_all("links => links.map((a) => a.getAttribute('href'))")]
    shown = page.locator("main > section:visible").evaluate_all("places => places.map((place) => place.id)")
    assert names == shown[1:]
    assert page.locator(".folded[open]").count() == 0
    assert page.locator("section > .folded").count() >= 7
    for name in names:
        link = page.locator(f"#contents a[href='#{name}']")
        link.focus()
        link.press("Enter")
        page.locator(f"#{name} > .folded:first-child:not([open])").wait_for(state="detached")
    assert page.locator(".data[open], #dependence[open]").count() == 0  # parts of a section stay folded
    width = page.locator("#learning").bounding_box()["width"]
    assert page.locator("#curve-chart svg").bounding_box()["width"] > 0.4 * width
    page.goto(page.url.split("#")[0] + "#protocol")
    page.reload()
    assert page.locator("#protocol li").first.is_visible()
    assert page.locator("#scores table").is_hidden()


def test_the_threshold_is_reached_and_moved_by_keyboard(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    page.focus("#contender")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "threshold-slider"
    before = readout(page)
    page.keyboard.press("PageUp")
    assert readout(page) != before
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the button of the tuned threshold
    assert readout(page) == before


def read_axe() -> str:
    """Return the script of axe-core; skip where none is named."""
    if not AXE:
        pytest.skip("METRICGRAD_AXE is not set: a path to axe.min.js of axe-core (npm pack axe-core)")
    assert Path(AXE).is_file(), f"METRICGRAD_AXE={AXE}: expected the file axe.min.js, found none"
    return Path(AXE).read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel", "evaluation"])
def test_axe_finds_no_violation(opened: Any, payloads: dict[str, Payload], task: str, scheme: str) -> None:
    script = read_axe()
    sections = EVALUATION if task == "evaluation" else SECTIONS
    page = opened(payloads[task], width=390, sections=sections, color_scheme=scheme)
    page.evaluate(script)
    assert find_violations(page) == []
    page.evaluate(UNFOLD)
    assert find_violations(page) == []


def find_violations(page: Any) -> list[str]:
    """Return what axe-core finds against the Web Content Accessibility Guidelines and its own best practices."""
    found = page.evaluate("""() => axe.run(document, {
      runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    })""")
    return [f"{one['id']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


# Profit, importance, segments, columns


def earned(page: Any) -> str:
    return str(page.inner_text("#profit-text"))


def money(profit: float) -> str:
    return f"{profit:,.2f}".rstrip("0").rstrip(".").replace("-", "−")


def test_profit_is_counted_and_its_best_threshold_found(opened: Any, binary: Example) -> None:
    page = opened(binary.payload, unfolded=True)
    ship = binary.payload["verdict"]["ship"]
    curve = binary.payload["details"][ship]["classes"][0]
    scores, targets = binary.scores[ship][:, 0], binary.targets[:, 0]

    def profits(hit: float, alarm: float, miss: float) -> list[float]:
        cells = [counted(scores, targets, cut) for cut in curve["grid"]]
        return [hit * tp - alarm * fp - miss * fn for tp, fn, fp, _ in cells]

    # Typed with the keyboard alone, from one input to the next.
    page.focus("#profit-hit")
    for text in ("7", "2.5", "3"):
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "go-profit"
    wanted = profits(7, 2.5, 3)
    now = curve["grid"].index(curve["threshold"])
    best = wanted.index(max(wanted))
    assert earned(page).startswith(f"At {curve['threshold']:.4g}: {money(wanted[now])}, ")
    assert f"Best: {money(max(wanted))} at {curve['grid'][best]:.4g}." in earned(page)
    assert f"best {curve['grid'][best]:.4g}" in page.locator("#profit-chart").text_content()
    page.keyboard.press("Enter")
    assert page.inner_text("#threshold-value") == f"{curve['grid'][best]:.4g}"
    assert readout(page)[0] == counted(scores, targets, curve["grid"][best])
    page.locator("#threshold-slider").press("Home")
    assert earned(page).startswith(f"At {curve['grid'][0]:.4g}: {money(wanted[0])}, ")


@pytest.mark.parametrize("typed", ["", "-", "1e999", "0"])
def test_profit_of_odd_inputs_is_no_error(opened: Any, binary: Example, typed: str) -> None:
    page = opened(binary.payload, unfolded=True)
    for name in ("#profit-hit", "#profit-alarm", "#profit-miss"):
        page.focus(name)
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.press("Delete")
        page.keyboard.type(typed)
    assert "NaN" not in page.locator("#profit").inner_html()
    assert "Best: 0 at" in earned(page)


def test_importance_is_drawn_with_its_intervals(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    found = binary.payload["importance"]
    names = page.locator("#importance-chart text.strong").all_text_contents()
    assert names == [one["column"] for one in found]
    bars = [bar.bounding_box()["width"] for bar in page.locator("#importance-chart rect.fill").all()]
    assert bars == sorted(bars, reverse=True)
    page.locator("#importance .data summary").click()
    cells = page.locator("#importance .data td").all_inner_texts()
    assert cells[:2] == [f"+{found[0]['drop']:.3f}", f"+{found[0]['low']:.3f} to +{found[0]['high']:.3f}"]
    page.locator("#importance-chart rect.cover").first.hover()
    assert found[0]["column"] in page.locator("#tip").inner_text()


def test_wide_intervals_of_importance_are_drawn_whole(opened: Any, binary: Example) -> None:
    payload = copy.deepcopy(binary.payload)
    wide: list[Any] = [
        {"column": "a", "drop": 0.02, "low": -0.2, "high": 0.24},
        {"column": "b", "drop": 0.01, "low": 0.005, "high": 0.015},
        {"column": "c", "drop": -0.01, "low": -0.4, "high": 0.38},
    ]
    payload["importance"] = wide
    page = opened(payload)
    lines = page.locator("#importance-chart line.now").evaluate_all(
        "lines => lines.map((line) => ['x1', 'x2'].map((name) => Number(line.getAttribute(name))))"
    )
    scale = (lines[0][1] - lines[0][0]) / 0.44
    for (left, right), one in zip(lines, wide, strict=True):
        assert right - left == pytest.approx(scale * (one["high"] - one["low"]))
        assert left - lines[0][0] == pytest.approx(scale * (one["low"] + 0.2), abs=1e-6)


def test_dependence_follows_the_class(opened: Any, labels: Example) -> None:
    page = opened(labels.payload, unfolded=True)
    chart = page.locator("#dependence-charts svg").nth(1)
    for k, name in enumerate(["energy", "transport"]):
        page.select_option("#class", label=name)
        assert name in page.inner_text("#dependence-note")
        chart.hover(position={"x": chart.bounding_box()["width"] / 2 + 20, "y": 40})
        score = labels.payload["study"]["dependence"][1]["scores"][k][1]
        assert f"mean score {score:.3f}" in page.locator("#tip").inner_text()


def test_segments_of_the_chosen_column(opened: Any, binary: Example) -> None:
    page = opened(binary.payload)
    select = page.locator("#segment-column")
    assert select.locator("option").all_inner_texts() == [e["column"] for e in binary.payload["study"]["segments"]]
    select.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.click("#segments .data summary")
    heads = page.locator("#segments .data tbody th").all_inner_texts()
    assert heads == [f"calls {i}" for i in range(4)]
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#segments .data tbody tr").all()]
    assert rows[0] == ["0.400", "0.300 to 0.500", "400"]
    assert rows[3] == ["too few rows", "", "310"]
    assert page.locator("#segment-chart circle").count() == 3


def test_columns_are_drawn_a_dozen_first(opened: Any, binary: Example) -> None:
    page = opened(binary.payload, unfolded=True)
    figures = page.locator("#column-charts figure:visible")
    assert figures.count() == 12
    page.focus("#all-columns")
    page.keyboard.press("Enter")
    assert figures.count() == 15
    assert page.locator("#column-charts figure svg").count() == 15
    assert "4.2 % missing" in figures.last.inner_text().replace("\u00a0", " ")
    page.keyboard.press("Enter")
    assert figures.count() == 12


def test_new_sections_are_hidden_in_reports_of_older_runs(opened: Any, binary: Example) -> None:
    payload: Any = copy.deepcopy(binary.payload)
    payload["study"] = {}
    del payload["importance"]
    page = opened(payload)
    for name in ("importance", "segments", "columns"):
        assert page.locator(f"#{name}").is_hidden()
    assert page.locator("#profit").is_visible()


@pytest.mark.parametrize(
    "text",
    [HOSTILE[0], HOSTILE[1], HOSTILE[5], HOSTILE[-1], "🍏" * 40],
    ids=["script", "tag", "turned", "long", "apples"],
)
def test_hostile_names_of_columns_and_values_are_shown_as_text(opened: Any, labels: Example, text: str) -> None:
    page = opened(hostile(labels.payload, text), width=390, unfolded=True)
    assert overflow(page) == 0
    assert page.locator("img, b, i, iframe").count() == 0
    page.locator("#segment-column").focus()
    page.keyboard.press("ArrowDown")
    page.click("#all-columns")
    assert overflow(page) == 0
    if text.isprintable() and len(text) < 60:
        assert page.locator("#column-charts figcaption").first.inner_text().startswith(text)
        assert page.locator("#segments .data tbody th").first.text_content() == text


# Other pages


@pytest.fixture
def evaluation(binary: Example) -> Payload:
    """Return the payload of a report of evaluate, with drift."""
    payload: Any = copy.deepcopy(binary.payload)
    name = payload["verdict"]["ship"]
    payload["details"] = {name: payload["details"][name]}
    payload["leaderboard"] = []
    payload["evaluation"] = {
        "rule": "cut at 0.2",
        "confidence": 0.95,
        "metrics": {
            "f2": {"value": 0.61, "low": 0.55, "high": 0.67, "note": None},
            "auroc": {"value": 0.8, "low": None, "high": None, "note": "too few positives for an interval"},
        },
        "constraints": [{"constraint": "precision>=0.9", "value": 0.7, "met": False}],
        "promised": {"metric": "f2", "value": 0.7, "low": 0.68, "high": 0.72, "note": None, "source": "3 repeats"},
    }
    for one in payload["study"]["columns"]:
        one |= {"now": one["shares"][::-1], "missing_now": 0.3, "psi": 0.4, "suspicious": ["mean moved by +1.00"]}
    return payload  # type: ignore[no-any-return]


@pytest.mark.parametrize("width", [390, 1100])
def test_the_report_of_evaluate(opened: Any, evaluation: Payload, width: int) -> None:
    page = opened(evaluation, width=width, sections=EVALUATION)
    assert overflow(page) == 0
    assert page.locator("h1").inner_text() == "F2 0.610, 0.550 to 0.670"
    assert page.locator(".focus").is_hidden()  # one contender, one class
    assert "Counts are of the new rows." in page.inner_text("#threshold-note")
    assert "Promised F2: 0.700, 0.680 to 0.720 (3 repeats)." in page.inner_text("#evaluation")
    assert "not met: 0.700" in page.inner_text("#metrics")
    assert "too few positives for an interval" in page.inner_text("#metrics")
    assert page.locator("#column-charts rect.then:visible").count() == 10 * 12
    assert page.locator("#column-charts .changed:visible").count() == 12
    page.locator("#threshold-slider").press("Home")
    assert sum(readout(page)[0]) == 1500
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})
    page.wait_for_timeout(100)
    assert overflow(page) == 0


def test_the_report_of_a_folder_draws_drift_without_rows(opened: Any, evaluation: Payload) -> None:
    payload = copy.deepcopy(evaluation)
    payload["details"] = {}
    payload["study"] = {key: value for key, value in payload["study"].items() if key.startswith("columns")}
    page = opened(payload, sections=EVALUATION)
    assert page.locator("#column-charts svg:visible").count() == 12
    for name in ("threshold", "profit", "curves", "scores", "classes", "segments", "mistakes"):
        assert page.locator(f"#{name}").is_hidden()
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(100)
    assert overflow(page) == 0
    bare = opened(payload, sections=EVALUATION, java_script_enabled=False)
    assert bare.locator("noscript table:visible").count() == 1


@pytest.mark.parametrize("text", ["plain", HOSTILE[0], HOSTILE[-1]], ids=["plain", "script", "long"])
def test_two_runs_on_a_phone(opened: Any, binary: Example, text: str) -> None:
    payload: Any = hostile(binary.payload, text)
    side = {
        "name": text[:60],
        "rule": text,
        "summary": {key: value for key, value in payload.items() if key not in ("details", "study", "leaderboard")},
        "leaderboard": payload["leaderboard"],
        "config": {"target": text, "seed": 1},
        "splits": "same",
    }
    other = {**side, "config": {"target": text + text, "seed": 2}}
    page = opened({**payload, "details": {}, "study": {}, "leaderboard": [], "runs": [side, other]}, 390, sections=RUNS)
    assert overflow(page) == 0
    assert page.locator("img, b, i, iframe").count() == 0
    assert page.locator("#boards tbody tr").count() == 16
    page.click("#theme")
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 718, "height": 1000})
    assert overflow(page) == 0
