from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import binary_soft_sets as binary
import page
import run
from cells import Cell, append, finished, note, read
from verdicts import Difference, Results, judge, paired, satisfies


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


def test_the_page_is_made_from_results_alone(tmp_path: Path) -> None:
    invent(tmp_path, gain=0.1)
    file = tmp_path / "README.md"
    page.write_page(tmp_path, file)
    text = file.read_text()
    assert "| Soft F1 ≥ BCE in F1 on all four sets (Table 1) | **holds** |" in text
    assert "creditcard-subset" in text
    assert "0.750 ± 0.010" in text
    for name in binary.TABLES:
        assert f"(`{name}`)" in text
    for picture in binary.BOX_PLOTS:
        drawn = (tmp_path / "pictures" / f"{picture}.svg").read_text()
        assert f"pictures/{picture}.svg" in text
        assert drawn.startswith("<?xml")
    page.write_page(tmp_path, file)
    assert file.read_text() == text


def test_the_page_copes_with_no_results(tmp_path: Path) -> None:
    page.main(["--results", str(tmp_path), "--page", str(tmp_path / "README.md")])
    text = (tmp_path / "README.md").read_text()
    assert "**holds**" not in text
    assert "Not run yet." in text


def test_the_page_copes_with_a_few_results(tmp_path: Path) -> None:
    append_first = Cell("corrected", "F1", "adult", 0)
    note(tmp_path / "btg-1.csv", "made up")
    append(tmp_path / "btg-1.csv", append_first, {"f1": 0.5}, 1.0)
    page.write_page(tmp_path, tmp_path / "README.md")
    assert "not run yet" in (tmp_path / "README.md").read_text()


def test_the_share_of_cells_that_agree(tmp_path: Path) -> None:
    note(tmp_path / "btg-1.csv", "made up")
    for metric, value in (("f1", 0.764), ("accuracy", 0.9)):
        append(tmp_path / "btg-1.csv", Cell("published", "F1", "cocktailparty", 0), {metric: value}, 1.0)
    append(
        tmp_path / "btg-1.csv", Cell("published, losses of the text", "F1", "cocktailparty", 0), {"accuracy": 0.86}, 1.0
    )
    text = "".join(page.agreement_section(Results.load(tmp_path)))
    assert "1 of 2 cells (50%)" in text
    assert "with “losses of the text” the figure is 0.860" in text


def test_a_verdict_names_the_quirk_that_makes_it(tmp_path: Path) -> None:
    note(tmp_path / "btg-1.csv", "made up")
    for trial in range(3):
        noise = 0.001 * trial
        for row, published, switched, fair in (("F1", 0.7, 0.7, 0.7), ("BCE", 0.5, 0.8 + noise, 0.8 + noise)):
            found = {"f1": published, "f1 (probabilities)": switched, "f1 (at 0.5)": published}
            append(tmp_path / "btg-1.csv", Cell("published", row, "adult", trial), found, 1.0)
            append(tmp_path / "btg-1.csv", Cell("corrected", row, "adult", trial), {"f1": fair}, 1.0)
    verdict = binary.verdicts(Results.load(tmp_path))[0]
    assert verdict.verdict == "holds only under their protocol"
    assert "one change is enough: decided on probabilities (adult)" in verdict.reason
    assert "decided at 0.5" not in verdict.reason


@pytest.mark.parametrize(
    ("differences", "relation", "expected"),
    [
        ([0.1, 0.12, 0.1], "better", True),
        ([0.1, -0.1, 0.05], "better", False),
        ([0.1, -0.2, 0.05], "at least", True),
        ([-0.1, -0.11, -0.12], "at least", False),
        ([0.01, -0.03, 0.02], "alike", True),
        ([0.1, 0.12, 0.11], "alike", False),
        ([0.1], "better", True),
        ([-0.1], "at least", False),
    ],
)
def test_the_rules_of_a_verdict(differences: list[float], relation: Any, expected: bool) -> None:
    found = paired(differences)
    assert found is not None
    assert satisfies(found, relation) == expected


def test_a_claim_that_trials_leave_open_is_not_called_refuted() -> None:
    clear, wide, good = Difference(-0.1, -0.15, -0.05, 3), Difference(0.1, -0.1, 0.3, 3), Difference(0.1, 0.05, 0.15, 3)
    mixed = judge("c", {}, {"a": clear, "b": wide, "c": good}, "better")
    assert mixed.verdict == "does not hold here"
    assert mixed.reason == "fails on a; not shown, nor refuted, on b"
    assert not mixed.undecided
    assert judge("c", {}, {"b": wide, "c": good}, "better").undecided
    assert judge("c", {}, {"b": wide}, "alike").reason == "not shown, nor refuted, on b"
    assert judge("c", {}, {"a": clear}, "alike").reason == "fails on a"
    weak = judge("c", {}, {"b": wide, "c": good}, "at least")
    assert (weak.verdict, weak.reason) == (
        "holds",
        "clearly better on c; worse by more than 0.02 is not ruled out on b",
    )
    assert ". It is clearly better on c" in page.explained(weak)
    once = Difference(0.01, float("-inf"), float("inf"), 1)
    assert judge("c", {}, {"a": once}, "better").reason == "not shown, nor refuted, on a"


def test_what_to_use_is_sorted_and_compared_with_tuned_cross_entropy(tmp_path: Path) -> None:
    question = page.Question(
        "One label", "t", ("a", "b"), {"plain": ("BCE", "f1"), "tuned": ("BCE", "f1 tuned"), "ours": ("F1", "f1")}
    )
    assert list(page.answer(question, Results.load(tmp_path))) == ["Not run yet.\n"]
    note(tmp_path / "t.csv", "made up")
    for trial, data in itertools.product(range(3), "ab"):
        noise = 0.001 * trial * (1 if data == "a" else -1)
        append(tmp_path / "t.csv", Cell("corrected", "BCE", data, trial), {"f1": 0.5, "f1 tuned": 0.6}, 1.0)
        value = {"f1": 0.7 + noise} if data == "a" else {"f1": 0.58 + noise}
        append(tmp_path / "t.csv", Cell("corrected", "F1", data, trial), value, 1.0)
    table, sentence = page.answer(question, Results.load(tmp_path))
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


def test_a_claim_that_was_not_run_is_not_judged() -> None:
    assert judge("c", {"a": None}, {"a": None}, "better").verdict == "cannot be tested here"
    partly = judge("c", {}, {"a": Difference(0.1, 0.05, 0.15, 3), "b": None}, "better")
    assert partly.verdict == "holds"
    assert "b: not run yet" in partly.figures


def test_the_page_is_that_of_the_committed_results(tmp_path: Path) -> None:
    page.write_page(page=tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == page.PAGE.read_text()
    drawn = {file.name for file in (tmp_path / "pictures").iterdir()}
    assert drawn == {file.name for file in (page.PAGE.parent / "pictures").iterdir()}
