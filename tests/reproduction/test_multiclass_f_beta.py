from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import data as source
import multiclass_f_beta as paper
from cells import Cell, append, note
from training import Schedule
from verdicts import Difference, Results


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a folder of tiny data, with budgets to match."""
    random = np.random.default_rng(0)

    def table(name: str, folder: Path | None) -> source.Table:
        y = np.arange(60) % 3 // 2
        return source.Table(random.normal(size=(60, 4)) * 50 + y[:, None], y, np.arange(60) // 2)

    def images() -> tuple[Any, Any]:
        y = np.arange(70) % 10
        return (random.normal(100, 20, (70, 3, 32, 32)) + 10 * y[:, None, None, None]).astype(np.uint8), y

    (tmp_path / "multiclass").mkdir()
    y = np.arange(90) % 3
    np.savez(tmp_path / "multiclass" / "marketing.npz", X=random.normal(size=(90, 4)) + y[:, None], y=y)
    digits = paper.load_multiclass(paper.DIGITS, None)
    monkeypatch.setattr(paper, "load_digits", lambda return_X_y: (digits.x[:150], digits.y[:150]))
    monkeypatch.setattr(source, "load", table)
    monkeypatch.setattr(source, "load_cifar10", images)
    monkeypatch.setattr(source, "image_folder", lambda: tmp_path / "package")
    monkeypatch.setattr(paper, "embed", lambda images: images.reshape(len(images), -1)[:, ::100].astype(float))
    monkeypatch.setattr(paper, "IMAGES", {paper.FEATURES: (50, 20), paper.SMALL: (50, 20)})
    monkeypatch.setattr(paper, "TEST_IMAGES", 50)
    monkeypatch.setattr(paper, "HIDDEN", [8])
    monkeypatch.setattr(paper, "SCHEDULES", dict.fromkeys(paper.SCHEDULES, Schedule(batch_size=64, epochs=1)))
    monkeypatch.setattr(paper, "TABULAR", Schedule(batch_size=64, epochs=1))
    for remembered in (paper.prepare, paper.scores_of):
        remembered.cache_clear()
    return tmp_path


@pytest.mark.parametrize("name", paper.TABLES)
def test_every_cell_runs(tiny: Path, name: str) -> None:
    table = paper.TABLES[name]
    for protocol in table.protocols:
        for cell in table.cells(protocol, 1):
            found = table.run(cell, tiny)
            assert found
            assert all(math.isfinite(value) for value in found.values()), cell


def test_text_and_equation_exchange_the_betas() -> None:
    assert paper.beta_of(paper.P, "published") == 5.0 == paper.beta_of(paper.R, "corrected")
    assert paper.beta_of(paper.R, "published") == 0.25 == paper.beta_of(paper.P, "corrected")
    assert paper.betas(5.0, 1, 3) == [1.0, 5.0, 1.0]


def test_a_large_beta_pulls_a_doubtful_example_into_the_class() -> None:
    # One example of each class, and one between them: β > 1 of class 1 prefers to call it 1, β < 1 not to.
    z = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]], requires_grad=True)
    pulls = []
    for beta in (5.0, 0.25):
        loss: Any = paper.loss_of(f"β = {beta}", 1, 2)
        value = (loss(z, torch.tensor([0, 1, 1])) + loss(z, torch.tensor([0, 1, 0]))) / 2
        (gradient,) = torch.autograd.grad(value, z)
        pulls.append(float(-gradient[2, 1]))
    assert pulls[0] > pulls[1]


def test_published_has_one_split_and_corrected_one_per_trial(tiny: Path) -> None:
    def test_rows(protocol: str, trial: int) -> torch.Tensor:
        return paper.prepare(paper.DIGITS, protocol, trial, tiny).test.y

    assert torch.equal(test_rows("published", 0), test_rows("published", 1))
    assert not torch.equal(test_rows("corrected", 0), test_rows("corrected", 1))


def test_unscaled_features_keep_their_scale(tiny: Path) -> None:
    scaled = paper.prepare("adult", "published", 0, tiny).rows.x
    raw = paper.prepare("adult", f"published, {paper.UNSCALED}", 0, tiny).rows.x
    assert scaled.std(0) == pytest.approx(torch.ones(4).numpy(), abs=0.05)
    assert float(raw.std()) > 10


def test_features_are_computed_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = np.arange(7)
    first, y = paper.load_features(chosen)
    monkeypatch.setattr(paper, "embed", None)
    again, _ = paper.load_features(chosen)
    assert np.array_equal(first, again)
    assert y.tolist() == list(range(7))


def test_caltech_says_why_it_is_missing() -> None:
    with pytest.raises(OSError, match="Caltech-256"):
        paper.load_caltech256(None)


def invent(folder: Path, values: dict[tuple[str, str], float]) -> Results:
    """Return made-up results of Tables 1 and 2: 0.5 and a little for the trial, plus what rows have by protocol."""
    for name in paper.TABLES:
        file = folder / f"{name}.csv"
        note(file, "made up")
        for protocol in paper.TABLES[name].protocols:
            for cell in paper.TABLES[name].cells(protocol, 3):
                base = 0.5 + 0.01 * cell.trial + 0.001 * cell.trial**2
                gain = values.get((cell.protocol, cell.row), 0.0) * (1 + 0.1 * cell.trial)
                names = ["precision", "recall", "macro f1", "f1", "f1 tuned", *paper.BEYOND.values()]
                append(file, cell, dict.fromkeys(names, base + gain), 1.0)
    return Results.load(folder)


def test_verdicts_follow_the_results(tmp_path: Path) -> None:
    by_equation = {
        ("published", paper.P): -0.2,
        ("corrected", paper.P): 0.2,
        ("corrected", paper.R): 0.1,
        ("published", "F_1*"): 0.1,
        ("corrected", "F_1*"): -0.1,
    }
    found = {v.claim.key: v for v in paper.verdicts(invent(tmp_path, by_equation))}
    assert found["fbeta-text"].outcome == "refuted"
    assert found["fbeta-precision"].outcome == "shown on all sets"
    assert found["fbeta-precision"].refuted_by_their_own == "refuted under `published` too (refuted 2 of 2)"
    assert found["fbeta-two-classes"].outcome == "refuted"
    published = found["fbeta-two-classes"].published
    assert published is not None
    assert published.outcome == "shown on all sets"
    assert "printed figures say otherwise on cocktailparty" in found["fbeta-two-classes-btg"].refuted_by_their_own


def test_the_picture_of_beta_needs_results(tmp_path: Path) -> None:
    assert not paper.draw_beta(Results.load(tmp_path), tmp_path / "beta.svg")
    assert paper.draw_beta(invent(tmp_path, {}), tmp_path / "beta.svg")
    assert 0 < (tmp_path / "beta.svg").stat().st_size < 50_000


def test_verdicts_without_results_say_so(tmp_path: Path) -> None:
    found = {v.claim.key: v.outcome for v in paper.verdicts(Results.load(tmp_path))}
    assert found.pop("fbeta-caltech") == "cannot be tested here"
    assert set(found.values()) == {"not run yet"}


def test_turned_differences_turn_their_interval() -> None:
    turned = paper._turned(Difference(0.1, 0.0, 0.3, 4, ((0, 0.1),)))
    assert turned == Difference(-0.1, -0.3, 0.0, 4, ((0, -0.1),))
    assert paper._turned(None) is None


def test_printed_rows_are_rows_of_the_table() -> None:
    for name in ("fbeta-1", "fbeta-2"):
        table = paper.TABLES[name]
        cells = {(cell.row, cell.data) for cell in table.cells("published", 1)}
        printed = {(row, data) for row, data, _ in table.printed if data != "Caltech-256"}
        assert printed <= cells


def test_a_cell_is_the_same_when_computed_again(tiny: Path) -> None:
    cell = Cell("corrected", "CE", paper.DIGITS, 0)
    first = paper.run_1(cell, tiny)
    paper.scores_of.cache_clear()
    assert paper.run_1(cell, tiny) == first
