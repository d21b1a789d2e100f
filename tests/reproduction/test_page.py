from __future__ import annotations

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

import advice
import binary_soft_sets as binary
import binary_verdicts
import forest
import page
import page_tables
import run
from cells import Cell, append, finished, note, read
from claims import load_claims
from verdicts import (
    Difference,
    Results,
    agrees,
    judge,
    judge_exactly,
    mean_over_sets,
    outcome_of,
    paired,
    state_of,
)

ROOT = Path(page.__file__).parents[1]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runner compute in this process, where budgets are tiny."""
    monkeypatch.setattr(run, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs))


def invent(folder: Path, trials: int = 3, gain: float = 0.0) -> None:
    """Write results for all tables: values that depend on the cell, and ``gain`` for the soft F1 loss."""
    for name, table in binary.TABLES.items():
        file = folder / f"{name}.csv"
        note(file, f"python reproduction/run.py --table {name} (made up)")
        for protocol in table.protocols:
            for cell in table.cells(protocol, trials):
                value = 0.5 + 0.01 * cell.trial + (gain if cell.row == "F1" else 0.0)
                metrics = [metric for row, data, metric in table.printed if (row, data) == (cell.row, cell.data)]
                found = dict.fromkeys([*metrics, "f1", "f1 tuned"], value)
                found |= {"met the cap": 1.0, "seconds an epoch": 1.0}
                found |= {f"f1 ({variant})": value for variant in binary.JUDGED}
                append(file, cell, found, 2.0)


def test_a_run_goes_on_after_a_kill(tiny: Path, tmp_path: Path, here: None) -> None:
    options = ["--table", "btg-3", "--protocol", "corrected", "--trials", "1"]
    options += ["--data", str(tiny), "--results", str(tmp_path)]
    assert run.main(options) == 0
    file = tmp_path / "btg-3.csv"
    whole, cells = file.read_text(), finished(file)
    assert len(cells) == 3
    # A kill in the middle of a line: what was cut is computed again, the rest is not.
    first = whole.index("corrected")
    file.write_text(whole[: first + whole[first:].index("F2") + 9])
    assert finished(file) < cells
    assert run.main(options) == 0
    assert finished(file) == cells
    values = [{key: row[key] for key in ("row", "metric", "value")} for row in read(file)]
    file.write_text(whole)
    assert sorted(values, key=str) == sorted(
        ({key: row[key] for key in ("row", "metric", "value")} for row in read(file)), key=str
    )
    assert "FOLDER" in whole
    assert str(tiny) not in whole


def test_a_missing_file_leaves_its_cell_empty_and_the_others_go_on(tmp_path: Path, here: None, capsys: Any) -> None:
    (tmp_path / "data").mkdir()
    options = ["--table", "btg-3", "--trials", "1", "--data", str(tmp_path / "data"), "--results", str(tmp_path)]
    assert run.main(options) == 1
    assert "btg-3 1/6" in capsys.readouterr().err
    assert not finished(tmp_path / "btg-3.csv")


def test_the_pages_are_made_from_results_alone(tmp_path: Path) -> None:
    invent(tmp_path, gain=0.1)
    file = tmp_path / "README.md"
    page.write_pages(tmp_path, file)
    text, tables = file.read_text(), (tmp_path / "pages" / "binary.md").read_text()
    line = next(line for line in text.splitlines() if line.endswith("|") and "soft F1 − BCE in F1 |" in line)
    assert "| strict | **shown on all sets**: 4 of 4; cut off | shown on all sets: 4 of 4 |" in line
    assert "creditcard-subset" in tables
    assert "0.750 ± 0.010" in tables
    for name in binary.TABLES:
        assert f"(`{name}`)" in tables
    assert "pictures/verdicts-binary.svg" in text
    for picture in binary.BOX_PLOTS:
        assert f"pictures/{picture}.svg" in tables
        assert (tmp_path / "pictures" / f"{picture}.svg").read_text().startswith("<?xml")


def test_the_pages_cope_with_no_results(tmp_path: Path) -> None:
    page.main(["--results", str(tmp_path), "--page", str(tmp_path / "README.md")])
    text = (tmp_path / "README.md").read_text()
    assert "**not run yet**" in text
    # What is left needs no results: a formula, and printed figures.
    shown = [line for line in text.splitlines() if "| **shown" in line or "| **refuted" in line]
    assert len(shown) == 2
    missing = (tmp_path / "pages" / "appendix.md").read_text()
    assert "| btg-1 | " in missing
    assert "`python reproduction/run.py --table btg-1 --protocol published corrected --data FOLDER`" in missing


def test_the_pages_cope_with_a_few_results(tmp_path: Path) -> None:
    append_first = Cell("corrected", "F1", "adult", 0)
    note(tmp_path / "btg-1.csv", "made up")
    append(tmp_path / "btg-1.csv", append_first, {"f1": 0.5}, 1.0)
    page.write_pages(tmp_path, tmp_path / "README.md")
    assert "**not run yet**" in (tmp_path / "README.md").read_text()


def test_the_share_of_cells_that_agree(tmp_path: Path) -> None:
    note(tmp_path / "btg-1.csv", "made up")
    for metric, value in (("f1", 0.764), ("accuracy", 0.9)):
        append(tmp_path / "btg-1.csv", Cell("published", "F1", "cocktailparty", 0), {metric: value}, 1.0)
    append(
        tmp_path / "btg-1.csv", Cell("published, losses of the text", "F1", "cocktailparty", 0), {"accuracy": 0.86}, 1.0
    )
    text = "".join(page_tables.agreement_section(Results.load(tmp_path)))
    assert "1 of 2 cells (50%)" in text
    assert "with “losses of the text” the figure is 0.860" in text


def test_a_verdict_names_the_quirk_that_makes_it(tmp_path: Path) -> None:
    note(tmp_path / "btg-1.csv", "made up")
    for trial in range(3):
        noise = 0.001 * trial
        for row, published, switched, fair in (("F1", 0.7, 0.7, 0.7), ("BCE", 0.5, 0.8 + noise, 0.8 + noise)):
            found = {"f1": published + noise, "f1 (probabilities)": switched, "f1 (at 0.5)": published + noise}
            append(tmp_path / "btg-1.csv", Cell("published", row, "adult", trial), found, 1.0)
            append(tmp_path / "btg-1.csv", Cell("corrected", row, "adult", trial), {"f1": fair}, 1.0)
    verdict = binary_verdicts.verdicts(Results.load(tmp_path))[0]
    assert verdict.claim.key == "btg-f1-bce"
    assert verdict.corrected.states == {"adult": "refuted"}
    assert verdict.published is not None
    assert verdict.published.states == {"adult": "shown"}
    assert verdict.notes == ("one change undoes `published`: decided on probabilities (adult)",)


def test_a_row_that_the_cap_ended_is_called_cut_off(tmp_path: Path) -> None:
    note(tmp_path / "btg-1.csv", "made up")
    for row, trial in itertools.product(("F1", "AP-Perf"), range(3)):
        met = float(row == "AP-Perf")
        append(tmp_path / "btg-1.csv", Cell("corrected", row, "adult", trial), {"f1": 0.5, "met the cap": met}, 1.0)
    pair = binary_verdicts.PAIRS["btg-f1-apperf"]
    verdict = binary_verdicts.judge_pair("btg-f1-apperf", pair, Results.load(tmp_path))
    assert verdict.notes[0] == "AP-Perf was cut off by the cap of epochs in 3 of 3 runs"
    assert page.verdict_row(2, verdict)[3].endswith("; cut off")


@pytest.mark.parametrize(
    ("interval", "relation", "expected"),
    [
        ((0.01, 0.2), "strict", "shown"),
        ((-0.01, 0.2), "strict", "open"),
        ((-0.2, -0.01), "strict", "refuted"),
        ((-0.01, 0.2), "at least", "shown"),
        ((-0.03, 0.2), "at least", "open"),
        ((-0.03, -0.01), "at least", "open"),
        ((-0.2, -0.03), "at least", "refuted"),
        ((-0.01, 0.01), "alike", "shown"),
        ((-0.01, 0.03), "alike", "open"),
        ((0.03, 0.05), "alike", "refuted"),
        ((-0.05, -0.03), "alike", "refuted"),
        ((float("-inf"), float("inf")), "strict", "open"),
        ((float("-inf"), float("inf")), "alike", "open"),
    ],
)
def test_the_state_on_one_set_is_that_of_the_whole_interval(
    interval: tuple[float, float], relation: Any, expected: str
) -> None:
    assert state_of(Difference(0.0, *interval, 3), relation, 0.02) == expected


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["shown", "shown"], "shown on all sets"),
        (["shown", "open"], "shown on some, refuted on none"),
        (["open", "open"], "open"),
        (["shown", "open", "refuted"], "refuted on some"),
        (["refuted", "refuted"], "refuted"),
        ([], "cannot be tested here"),
    ],
)
def test_the_verdict_follows_from_the_states(states: Any, expected: str) -> None:
    assert outcome_of(states) == expected
    assert outcome_of(reversed(states)) == expected


def test_the_same_numbers_have_the_same_verdict() -> None:
    numbers = {"a": paired([-0.005, 0.02, -0.03]), "b": paired([-0.004, -0.001, -0.007])}
    strict = [key for key, claim in load_claims().items() if claim.relation == "strict"]
    assert len({judge(key, numbers, numbers).outcome for key in strict}) == 1
    assert all(judge(key, numbers, numbers).published.outcome == judge(key, numbers).outcome for key in strict)  # type: ignore[union-attr]


def test_what_their_own_protocol_or_table_refutes_is_said() -> None:
    up, down = paired([0.1, 0.11, 0.12]), paired([-0.1, -0.11, -0.12])
    verdict = judge("btg-f1-bce", {"a": up, "b": up}, {"a": down, "b": up}, {"a": 0.1, "b": -0.1})
    assert verdict.outcome == "shown on all sets"
    assert verdict.refuted_by_their_own == (
        "refuted under `published` too (shown 1, refuted 1 of 2); the printed figures say otherwise on b"
    )
    assert judge("btg-f1-bce", {"a": up}, {"a": up}, {"a": 0.1}).refuted_by_their_own == ""


def test_in_general_is_the_mean_over_sets() -> None:
    key = "btg-oversampled-f1"
    strong, weak, wide = paired([0.3, 0.31, 0.32]), paired([-0.01, -0.011, -0.012]), paired([0.1, -0.3, 0.2])
    general = judge(key, {"a": strong, "b": weak})
    assert general.outcome == "shown in general"
    assert general.corrected.counts == "shown 1, refuted 1 of 2"
    assert judge(key, {"a": strong, "b": strong}).outcome == "shown on all sets"
    assert judge(key, {"a": weak, "b": wide}).outcome == "open"
    assert judge(key, {"a": weak, "b": weak}).outcome == "refuted"
    # Trial by trial, over the trials that all sets have.
    both = mean_over_sets({"a": Difference(0, 0, 0, 2, ((0, 1.0), (1, 2.0))), "b": Difference(0, 0, 0, 1, ((1, 4.0),))})
    assert both is not None
    assert both.by_trial == ((1, 3.0),)


def test_printed_figures_agree_by_their_sign_or_margin() -> None:
    claims = load_claims()
    assert agrees(0.001, claims["btg-f1-bce"])
    assert not agrees(0.0, claims["btg-f1-bce"])
    assert agrees(-0.02, claims["btg-f1-accuracy"])
    assert not agrees(-0.021, claims["btg-f1-accuracy"])
    assert not agrees(0.03, claims["btg-accuracy-bce"])


def test_lower_within_the_margin_is_said() -> None:
    verdict = judge("btg-f1-accuracy", {"a": Difference(-0.01, -0.015, -0.005, 3), "b": Difference(0.1, 0.05, 0.2, 3)})
    assert verdict.outcome == "shown on all sets"
    assert verdict.notes == ("clearly lower, if not by more than 0.02, on a",)


def test_a_claim_that_was_not_run_is_not_judged() -> None:
    assert judge("btg-f1-bce", {"a": None}).outcome == "not run yet"
    partly = judge("btg-f1-bce", {"a": Difference(0.1, 0.05, 0.15, 3), "b": None})
    assert partly.outcome == "shown on all sets"
    assert partly.corrected.counts == "shown 1 of 1; not run yet 1"
    assert judge_exactly("theory-limits-50", {}, "").outcome == "not run yet"


def test_a_forest_plot_has_a_row_for_every_claim_with_figures(tmp_path: Path) -> None:
    found = {"a": paired([0.1, 0.12]), "b": paired([0.2, 0.22])}
    verdicts = [
        (1, judge("btg-f1-bce", found, {"a": paired([0.3, 0.3])}, {"a": 0.4})),
        (2, judge("btg-k", {"a": None})),
    ]
    (line,) = forest.summary_lines(verdicts)
    assert line.label == "1. soft F1 − BCE in F1"
    assert line.corrected is not None
    assert line.corrected.mean == pytest.approx(0.16)
    assert line.published == pytest.approx(0.3)
    assert line.printed == 0.4
    assert len(line.dots) == 2
    assert [one.label for one in forest.detailed_lines(verdicts)] == ["1. soft F1 − BCE in F1", "a (open)", "b (shown)"]
    assert forest.draw_forest([line], "x < y", tmp_path / "a.svg")
    assert "x &lt; y" in (tmp_path / "a.svg").read_text()
    assert not forest.draw_forest([], "nothing", tmp_path / "b.svg")
    places = [forest.place(value) for value in (-9.0, -1.0, -0.1, 0.0, 0.1, 1.0)]
    assert places == sorted(places)
    assert places[0] == places[1]


def test_what_to_use_is_sorted_and_compared_with_tuned_cross_entropy(tmp_path: Path) -> None:
    question = advice.Question(
        "One label", "t", ("a", "b"), {"plain": ("BCE", "f1"), "tuned": ("BCE", "f1 tuned"), "ours": ("F1", "f1")}
    )
    assert list(advice.answer(question, Results.load(tmp_path))) == ["Not run yet.\n"]
    note(tmp_path / "t.csv", "made up")
    for trial, data in itertools.product(range(3), "ab"):
        noise = 0.001 * trial * (1 if data == "a" else -1)
        append(tmp_path / "t.csv", Cell("corrected", "BCE", data, trial), {"f1": 0.5, "f1 tuned": 0.6}, 1.0)
        value = {"f1": 0.7 + noise} if data == "a" else {"f1": 0.58 + noise}
        append(tmp_path / "t.csv", Cell("corrected", "F1", data, trial), value, 1.0)
    table, sentence = advice.answer(question, Results.load(tmp_path))
    assert [line.split(" |")[0] for line in table.splitlines()[2:]] == ["| ours", "| tuned", "| plain"]
    assert "| ours | 0.701 | 0.579 | 0.640 | +0.040 | better on a; worse on b |" in table
    assert "| plain | 0.500 | 0.500 | 0.500 | -0.100 | worse on a, b |" in table
    assert sentence.endswith("changes its mean by +0.100; best on average here: ours.\n")


def test_differences_are_paired_by_trial(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    note(file, "made up")
    for trial, row, value in ((0, "a", 1.0), (1, "a", 3.0), (2, "a", 9.0), (0, "b", 0.5), (1, "b", 2.0)):
        append(file, Cell("corrected", row, "d", trial), {"f1": value}, 1.5)
    results = Results.load(tmp_path)
    found = results.difference("t", "corrected", "a", "b", "d", "f1")
    assert found is not None
    assert (found.mean, found.n) == (0.75, 2)
    assert found.low == pytest.approx(0.75 - 12.706 * 0.25, rel=1e-3)
    assert results.difference("t", "corrected", "a", "c", "d", "f1") is None
    assert results.seconds == {"t": 7.5}


def test_the_pages_are_those_of_the_committed_results(tmp_path: Path) -> None:
    page.write_pages(page=tmp_path / "README.md")
    here = page.PAGE.parent
    for folder in ("pages", "pictures"):
        assert {file.name for file in (tmp_path / folder).iterdir()} == {
            file.name for file in (here / folder).iterdir()
        }
    # Matplotlib's own pictures are compared with the version that drew them; ours are always the same.
    pinned = re.search(r"^matplotlib==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    same_version = mpl.__version__ == pinned[1]
    for file in [tmp_path / "README.md", *(tmp_path / "pages").iterdir(), *(tmp_path / "pictures").iterdir()]:
        if same_version or file.suffix == ".md" or file.name.startswith(("verdicts-", "details-")):
            assert file.read_text() == (here / file.relative_to(tmp_path)).read_text(), file.name


def test_the_main_page_can_be_read_to_the_end() -> None:
    text = page.PAGE.read_text()
    assert len(text.splitlines()) <= 400
    assert len(text.encode()) <= 60_000
    assert len(re.findall(r"^\d\. \*\*", text, re.MULTILINE)) == 5
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
    assert all((page.PAGE.parent / link).exists() for link in links)
