"""The documentation site keeps its cheap promises; ``./check --docs`` builds it and keeps the others."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import metricgrad as mg
from metricgrad import public_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("plot_*.py"))
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that imports a script of the site."""
    monkeypatch.syspath_prepend(str(DOCS / "_site"))
    return importlib.import_module


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_the_study_answers_before_it_explains() -> None:
    text = (DOCS / "quality.md").read_text()
    assert len(text.split()) <= 2500
    assert text.index("](gains.svg)") < text.index("## How it was done")


def test_every_public_name_is_in_the_reference(site: Any) -> None:
    pages = site("reference_pages")
    listed = [name for rooms in pages.contents().values() for names in rooms.values() for name in names]
    assert len(listed) == len(set(listed))
    described = [id(pages._of(name)) for name in listed]
    for name in public_names.homes():
        value = getattr(mg, name)
        inner = [getattr(value, one) for one in value.__all__] if isinstance(value, ModuleType) else [value]
        missing = [one for one in inner if one is not mg.metrics.Metric and id(one) not in described]
        assert not missing, name


def test_tables_say_what_the_metrics_do(site: Any) -> None:
    pages = site("reference_pages")
    assert pages._behaviour(mg.metrics.f1) == ("[0,\N{NO-BREAK SPACE}1]", "0", "0")
    assert pages._behaviour(mg.metrics.mcc)[0] == "[−1,\N{NO-BREAK SPACE}1]"
    assert pages._behaviour(mg.metrics.specificity)[1:] == ("0.6667", "1")
    table = "\n".join(pages.metric_tables())
    assert all(f"metricgrad.metrics.{name}>" in table for name in mg.metrics.names())
    rules = "\n".join(pages.rule_table())
    assert all(
        f"decisions.{name}>" in rules for name in ("Threshold", "Argmax", "Offsets", "TopK", "WeightedTopK", "GFM")
    )


def test_links_between_files_of_the_repository_lead_to_their_pages(site: Any) -> None:
    moved = site("repository_pages")._moved
    text = "[a](reproduction/README.md#verdicts), [b](docs/guide.md), [c](CONTRIBUTING.md), [d](check), [e](#here)"
    assert (
        moved(text)
        == "[a](reproduction.md#verdicts), [b](../guide.md), [c](contributing.md), [d](../../check), [e](#here)"
    )
    assert moved("![p](pictures/a.svg)", "reproduction") == "![p](../../reproduction/pictures/a.svg)"
    between = "[a](../README.md#verdicts), [b](binary.md), ![c](../pictures/a.svg)"
    expected = "[a](reproduction.md#verdicts), [b](reproduction-binary.md), ![c](../../reproduction/pictures/a.svg)"
    assert moved(between, "reproduction/pages") == expected


def test_docs_name_nothing_that_the_api_does_not_have() -> None:
    for path in [*PAGES, *TUTORIALS]:
        for name in re.findall(r"\b(?:mg|:\w+:`metricgrad)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", path.read_text()):
            value: Any = mg
            for part in name.split("."):
                assert hasattr(value, part), f"{path.name}: mg.{name}"
                value = getattr(value, part)
                if not isinstance(value, ModuleType) and not inspect.isclass(value):
                    break


def test_every_page_is_in_a_toctree(site: Any) -> None:
    made = {"tutorials/index", "reference/index", *(f"repository/{page}" for page in site("repository_pages").FILES)}
    made.add("repository/reproduction")
    found, left = {"index"}, ["index"]
    while left:
        page = DOCS / f"{left.pop()}.md"
        text = page.read_text() if page.exists() else ""
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            entries = [re.sub(r".*<(.*)>", r"\1", line) for line in block.splitlines() if line and line[0] != ":"]
            left += [entry for entry in entries if entry not in found]
            found |= set(entries)
    assert found == {path.stem for path in DOCS.glob("*.md")} | made  # a new page: add it to a toctree, as in howto.md


def is_in_examples(code: str) -> bool:
    """Return whether a script in examples/, which the tests run, has these lines, however indented."""
    sources = [path.read_text() for path in sorted((ROOT / "examples").glob("*.py"))]
    return any(bare_lines(code) in bare_lines(source) for source in sources)


def bare_lines(code: str) -> str:
    """Return code without indentation and remarks for type checkers."""
    return "\n".join(line.split("  # type:")[0].strip() for line in code.strip().splitlines())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_is_run_or_says_that_it_is_not(path: Path) -> None:
    text = path.read_text()
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        above = text[: match.start()].rstrip().split("\n\n")[-1]
        only_imports = all(line.startswith("from ") for line in match[1].splitlines())
        assert ">>>" in match[1] or only_imports or is_in_examples(match[1]) or "*Not run*" in above, match[1]


def test_figures_of_the_study_are_quoted_as_they_are() -> None:
    """A figure of the study in prose stands in a table of the study, which a script writes."""
    pages = [(DOCS / name).read_text() for name in ("quality.md", "quality-appendix.md")]
    study = "\n".join(line for page in pages for line in page.splitlines() if line.startswith("|"))
    prose = [line for line in pages[0].splitlines() if not line.startswith("|")]
    prose += [(DOCS / name).read_text() for name in ("tuned-cross-entropy.md", "evidence.md")]
    quoted = re.findall(r"0\.\d{3}\b", "\n".join(prose))
    quoted += re.findall(r"added (0\.\d{3}) on average", (TUTORIALS[5]).read_text())
    assert len(quoted) > 6
    assert [figure for figure in quoted if figure not in study] == []


@pytest.mark.parametrize("path", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_links_work_in_the_repository_too(path: Path) -> None:
    made = {ROOT / "reproduction" / "README.md"}  # by reproduction/page.py
    for link in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        file = (path.parent / link).resolve()
        assert file.exists() or file in made, link


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_has_a_title_and_ends_in_a_figure(path: Path) -> None:
    text = path.read_text()
    compile(text, str(path), "exec")
    title, line = text.splitlines()[1:3]
    assert line == "=" * len(title)
    assert text.rstrip().endswith("plt.show()")


@pytest.mark.parametrize("name", ["idea", "training", "step_time"])
def test_a_picture_is_what_its_script_draws(
    name: str, site: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = site(f"{name}_picture")
    monkeypatch.setattr(script, "PICTURE", tmp_path / "picture.svg")
    script.main()
    assert (tmp_path / "picture.svg").read_text() == (DOCS / f"{name}.svg").read_text()


def test_broken_links_are_found(site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = site("check_links").main
    page = tmp_path / "a.html"
    page.write_text('<p id="x"><a href="b.html#y">1</a><a href="#x">2</a><a href="https://example.org">3</a></p>')
    (tmp_path / "b.html").write_text('<p id="y"><a href="a.html">4</a></p>')
    assert check(tmp_path) == 0
    page.write_text(page.read_text() + '<a href="b.html#z">5</a><img src="c.svg">')
    site("check_links").read.cache_clear()
    assert check(tmp_path) == 1
    assert re.findall("broken link (.*)", capsys.readouterr().out) == ["b.html#z", "c.svg"]


def test_citations_are_linked_and_other_brackets_are_not(site: Any) -> None:
    links = site("links")
    source = ["As [tsoi2022, eq. 5] says, in [0, 1], not [nobody1999]; [here](guide.md).\n```python\n[tsoi2022]\n```"]
    links.link_pages(None, "guide", source)
    text = "As [[tsoi2022](references.md#tsoi2022), eq. 5] says, in [0, 1], not [nobody1999]; [here](guide.md).\n"
    assert source == [text + "```python\n[tsoi2022]\n```"]
    lines = ["Steps [tsoi2022] in [0, 1], |p| and $x^2$, see docs/scale.md."]
    links.link_docstrings(None, "", "", None, None, lines)
    assert lines == [r"Steps [:ref:`tsoi2022 <tsoi2022>`] in [0, 1], \|p\| and :math:`x^2`, see :doc:`scale </scale>`."]


def test_pages_that_do_not_fit_or_complain_are_found(
    site: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check = site("check_pages")
    pytest.importorskip("playwright")
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        pytest.skip("no Chromium here")
    page = tmp_path / "index.html"
    page.write_text("<html><body><article><p>good</p></article></body></html>")
    assert check.main(tmp_path, []) == 0
    wide = '<p style="width: 500px">wide</p><p style="color: #999">pale</p><script>console.error("no")</script>'
    page.write_text(f"<html><body><article>{wide}</article></body></html>")
    assert check.main(tmp_path, []) == 1
    printed = capsys.readouterr().out
    for words in ("390 px: 1", "390 px: cut off: P wide", "too little contrast: pale: 2.85", "console: no"):
        assert words in printed
    assert "1280 px: cut off" not in printed
