"""The sigmoidF1 and MFoM scripts: every table end to end on tiny data, and what each quirk changes."""

from __future__ import annotations

import gzip
import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

import encoder_time
import metricgrad as mg
import mfom
import multilabel
import multilabel_decisions
import multilabel_verdicts
import sigmoid_f1
from cells import Cell, append, note, results_file
from multilabel import AVERAGES, RULES, Scores, Split, choose, fit_thresholds, load_split, predictions, values_of
from sigmoid_f1 import CORRECTED, PUBLISHED, VARIANTS, published_losses, quirks_of
from training import Rows, Schedule
from verdicts import Results

SETS = ("cancerHallmarks", "chemicalExposure", "emotions", "scene", "yeast")
TABLES = {**sigmoid_f1.TABLES, **mfom.TABLES, **multilabel_decisions.TABLES, **encoder_time.TABLES}


def write_texts(place: Path, random: np.random.Generator, rows: int = 80) -> None:
    place.mkdir()
    x = random.normal(size=(rows, 5))
    with gzip.open(place / "docs.jsonl.gz", "wt") as file:
        for row in x:
            file.write(json.dumps({"labels": [f"label {k}" for k in range(3) if row[k] > 0.3]}) + "\n")
    np.savez(place / "embeddings_minilm_f16.npz", X=x.astype(np.float16))


def write_mulan(place: Path, random: np.random.Generator, rows: int = 80) -> None:
    place.mkdir()
    x = random.normal(size=(rows, 4))
    header = ["@relation tiny", *(f"@attribute x{k} numeric" for k in range(4))]
    header += [f"@attribute label{k} {{0,1}}" for k in range(3)] + ["@data"]
    lines = [",".join([*(f"{v:.4f}" for v in row), *(str(int(row[k] > 0)) for k in range(3))]) for row in x]
    with gzip.open(place / "tiny.arff.gz", "wt") as file:
        file.write("\n".join([*header, *lines]) + "\n")
    names = "".join(f'<label name="label{k}"/>' for k in range(3))
    (place / "tiny.xml").write_text(f"<labels>{names}</labels>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for name in SETS[:2]:
        write_texts(place / name, random)
    for name in SETS[2:]:
        write_mulan(place / name, random)
    return place


@pytest.fixture(autouse=True)
def tiny_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sigmoid_f1, mfom, multilabel_decisions):
        monkeypatch.setattr(module, "DATA", ("emotions",))
        monkeypatch.setattr(module, "STOPPED", Schedule(1e-2, 32, epochs=2, patience=2))
    for module in (sigmoid_f1, mfom):
        monkeypatch.setattr(module, "REPEATS", 1)
    monkeypatch.setattr(mfom, "OPTIMIZED_DATA", ("emotions",))
    monkeypatch.setattr(sigmoid_f1, "LONGER_DATA", ("emotions",))
    monkeypatch.setattr(sigmoid_f1, "PAPER_STEPS", 3)
    for name, value in (("TOKENS", 4), ("AT_ONCE", 1), ("STEPS", 7)):
        monkeypatch.setattr(encoder_time, name, value)
    monkeypatch.setattr(sigmoid_f1, "WIDTH", 8)
    monkeypatch.setattr(sigmoid_f1, "STEPS", 2)
    monkeypatch.setattr(sigmoid_f1, "EPOCHS", dict.fromkeys(sigmoid_f1.EPOCHS, 2))
    monkeypatch.setattr(sigmoid_f1, "SLOPES", (1.0, 10.0))
    monkeypatch.setattr(sigmoid_f1, "SHIFTS", (0.0, 9.0))
    monkeypatch.setattr(mfom, "SIZES", ("32 × 4",))


def fill(names: list[str], data: Path, results: Path, trials: int = 1) -> None:
    for name in names:
        path = results_file(name, results)
        note(path, "a test")
        for protocol in TABLES[name].protocols:
            for cell in TABLES[name].cells(protocol, trials):
                append(path, cell, TABLES[name].run(cell, data), 0.0)


@pytest.mark.parametrize("name", list(TABLES))
def test_every_table_runs_from_end_to_end(name: str, folder: Path, tmp_path: Path) -> None:
    fill([name], folder, tmp_path)
    results = Results.load(tmp_path)
    assert results.values
    assert all(np.isfinite(value) for found in results.values.values() for value in found.values())
    assert [*multilabel_verdicts.verdicts(results), *mfom.verdicts(results)]
    for picture in sigmoid_f1.PICTURES.values():
        file = tmp_path / "picture.svg"
        assert picture(results, file) == (name == "sigmoidf1-fig3") == file.exists()
        assert not file.exists() or "base64" not in file.read_text()


def test_verdicts_say_when_nothing_was_run(tmp_path: Path) -> None:
    results = Results.load(tmp_path)
    found = {v.claim.key: v.outcome for v in (*multilabel_verdicts.verdicts(results), *mfom.verdicts(results))}
    # These need no results: a formula, printed figures, and data that cannot be had.
    assert found.pop("sigmoidf1-formulated") == "shown on all sets"
    assert found.pop("sigmoidf1-q-all") == "refuted"
    assert found.pop("sigmoidf1-unavailable") == "cannot be tested here"
    assert set(found.values()) == {"not run yet"}


def test_metrics_that_the_page_shows_are_there(folder: Path) -> None:
    for name, metrics in {**sigmoid_f1.SHOWN, **mfom.SHOWN, **multilabel_decisions.SHOWN}.items():
        cells = list(TABLES[name].cells(TABLES[name].protocols[0], 1))
        assert set(metrics) <= set(TABLES[name].run(cells[0], folder))


def test_the_same_cell_gives_the_same_figures(folder: Path) -> None:
    cell = Cell("corrected", "sigmoidF1, learned", "emotions", 1)
    run = TABLES["sigmoidf1-3"].run
    assert run(cell, folder) == run(cell, folder)


def test_our_default_is_judged_by_what_it_predicts(folder: Path) -> None:
    split = load_split("emotions", folder, 3)
    found = sigmoid_f1.fit_default(split, 3)
    rows = split.train + split.validation
    assert len(rows) == len(split.train) + len(split.validation)
    for average in AVERAGES:
        model = mg.MetricClassifier("f1", average=average, random_state=3).fit(rows.x.numpy(), rows.y.numpy())
        predicted = model.predict(split.test.x.numpy())
        expected = f1_score(split.test.y.numpy(), predicted, average=average, zero_division=0)
        assert found[f"{average} f1 @tuned"] == pytest.approx(expected)
    assert found.keys() == {"mAP", *(f"{average} f1 @tuned" for average in AVERAGES)}


def test_unavailable_data_is_refused_with_the_reason(folder: Path) -> None:
    with pytest.raises(ValueError, match="MS-COCO cannot be had"):
        multilabel.load("MS-COCO", folder)


# --- The quirks ------------------------------------------------------------------------------------------------------


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(40, 3, generator=generator)
    return z, (torch.rand(40, 3, generator=generator) < 0.4).float()


def test_protocols_name_their_quirks() -> None:
    assert quirks_of("published") == PUBLISHED
    assert quirks_of("corrected") == CORRECTED
    for name, quirks in VARIANTS.items():
        assert quirks_of(f"published, {name}") == quirks
        assert sum(a != b for a, b in zip(vars(quirks).values(), vars(PUBLISHED).values(), strict=True)) == 1


def test_double_sigmoid_is_a_sigmoid_of_probabilities() -> None:
    z, y = batch()
    (once,) = published_losses("sigmoidF1", replace(PUBLISHED, double_sigmoid=False), [(3.0, 0.5)])
    (twice,) = published_losses("sigmoidF1", PUBLISHED, [(3.0, 0.5)])

    def by_hand(u: Tensor) -> Tensor:
        s = 1 / (1 + torch.exp(-3.0 * (u + 0.5)))
        tp, fp, fn = (s * y).sum(0), (s * (1 - y)).sum(0), ((1 - s) * y).sum(0)
        return (1 - 2 * tp / (2 * tp + fn + fp)).mean()

    torch.testing.assert_close(once(z, y), by_hand(z))
    torch.testing.assert_close(twice(z, y), by_hand(z.sigmoid()))


def test_negative_slope_turns_predictions_around() -> None:
    z, y = batch()
    quirks = replace(PUBLISHED, flipped_slope=True, double_sigmoid=False)
    (flipped,) = published_losses("sigmoidF1", quirks, [(0.75, 1.5)])
    s = 1 / (1 + torch.exp(0.75 * (z + 1.5)))
    tp, fp, fn = (s * y).sum(0), (s * (1 - y)).sum(0), ((1 - s) * y).sum(0)
    torch.testing.assert_close(flipped(z, y), (1 - 2 * tp / (2 * tp + fn + fp)).mean())


def test_unbounded_f1_of_the_code_is_bounded() -> None:
    z, y = batch()
    (loss,) = published_losses("unboundedF1", PUBLISHED, [])
    torch.testing.assert_close(loss(z, y), mg.presets.soft_dice(task="multilabel")(z, y))


def test_cross_entropy_that_takes_logits_for_probabilities_has_no_gradient_below_zero() -> None:
    _, y = batch()
    z = torch.full_like(y, -0.1).requires_grad_()
    for row in ("BCE", "focal"):
        (loss,) = published_losses(row, VARIANTS["the code for texts"], [])
        (gradient,) = torch.autograd.grad(loss(z, y), z)
        (right,) = torch.autograd.grad(published_losses(row, PUBLISHED, [])[0](z, y), z)
        assert right.abs().min() > 0
        assert row == "focal" or gradient.abs().max() == 0


def test_logits_compared_with_a_threshold_are_other_predictions() -> None:
    z = torch.tensor([[0.04, 0.06, -2.0]])
    assert predictions(z, 0.05).tolist() == [[0, 1, 0]]
    assert predictions(z.sigmoid(), 0.05).tolist() == [[1, 1, 1]]


def test_one_split_for_all_seeds_is_published_alone(folder: Path) -> None:
    for quirks, same in ((PUBLISHED, True), (CORRECTED, False)):
        first, second = (
            sigmoid_f1.split_of(Cell("", "BCE", "emotions", trial), folder, quirks).test.y for trial in (0, 1)
        )
        assert torch.equal(first, second) == same


def test_equal_budgets() -> None:
    rows = (*sigmoid_f1.LOSSES, *sigmoid_f1.BEYOND)
    assert {len(sigmoid_f1.corrected_losses(row, 3)) for row in rows} == {6}
    assert {len(mfom.losses_of(row, 3)) for row in mfom.ROWS} == {3}


# --- Figures of a model ----------------------------------------------------------------------------------------------


def scored(seed: int = 0) -> tuple[Scores, Split]:
    generator = torch.Generator().manual_seed(seed)
    y = [(torch.rand(60, 4, generator=generator) < 0.4).float() for _ in range(3)]
    s = [(torch.randn(60, 4, generator=generator) + 1.5 * part).sigmoid().double() for part in y]
    return Scores(*s), Split(*(Rows(part, part) for part in y))


def test_averages_have_the_names_of_scikit_learn() -> None:
    scores, split = scored()
    found = values_of(scores.test, split.test.y, fit_thresholds(scores, split))
    for average in AVERAGES:
        expected = f1_score(split.test.y, scores.test >= 0.5, average=average)
        assert found[f"{average} f1 @0.5"] == pytest.approx(expected)


def test_thresholds_do_not_see_test_rows() -> None:
    scores, split = scored()
    other = replace(split, test=Rows(split.test.x, 1 - split.test.y))
    assert fit_thresholds(scores, split) == fit_thresholds(replace(scores, test=1 - scores.test), other)


def test_tuned_thresholds_are_the_best_on_validation_rows() -> None:
    scores, split = scored()
    found = values_of(scores.validation, split.validation.y, fit_thresholds(scores, split))
    for average in AVERAGES:
        shared = found[f"{average} f1 @shared"]
        assert shared >= max(found[f"{average} f1 @{rule}"] for rule in ("0.05", "0.5", "averaged")) - 1e-9


def test_map_of_predictions_is_not_map_of_scores() -> None:
    scores, split = scored()
    found = values_of(scores.test, split.test.y, fit_thresholds(scores, split))
    assert found["mAP @0.5"] < found["mAP"]


def test_choice_follows_validation_rows_for_each_rule() -> None:
    good, split = scored()
    bad = Scores(*(torch.full_like(s, 0.3) for s in (good.train, good.validation, good.test)))
    assert choose([bad, good], split) == choose([good], split)
    assert {name.partition("@")[2] for name in choose([good], split)} == {"", *RULES}


def invent(folder: Path, table: str, metric: str, values: dict[tuple[str, str], float]) -> Results:
    """Return made-up results of a table: a value for every protocol and row, on all data sets and trials."""
    for (protocol, row), value in values.items():
        for data, trial in itertools.product(multilabel.DATA, range(2)):
            found = {metric.format(average): value + 0.001 * trial for average in AVERAGES}
            append(results_file(table, folder), Cell(protocol, row, data, trial), found, 1.0)
    return Results.load(folder)


def test_the_top_two_are_judged_over_sets_and_averages(tmp_path: Path) -> None:
    note(results_file("sigmoidf1-3", tmp_path), "made up")
    order = ("sigmoidF1", "BCE", "ASL", "focal", "unboundedF1")
    top = {("published", row): 0.9 - 0.1 * place for place, row in enumerate(order)}
    other = {("corrected", row): 0.9 - 0.1 * place for place, row in enumerate(order[1:] + order[:1])}
    invent(tmp_path, "sigmoidf1-3", "{} f1 @0.05", top)
    verdict = multilabel_verdicts.judge_top_two(invent(tmp_path, "sigmoidf1-3", "{} f1 @tuned", other))
    assert verdict.outcome == "refuted"
    assert verdict.corrected.counts == "refuted 18 of 18"
    assert verdict.published is not None
    assert verdict.published.outcome == "shown on all sets"
    assert "MS-COCO, weighted" in verdict.refuted_by_their_own  # BCE is fourth there


def test_the_best_shift_has_an_interval(tmp_path: Path) -> None:
    note(results_file("sigmoidf1-fig3", tmp_path), "made up")
    points = itertools.product(("published", "corrected"), (1.0, 10.0), (0.0, 9.0))
    values = {(side, f"β={b:g}, η={e:g}"): e / 10 if side == "published" else -e / 10 for side, b, e in points}
    verdict = multilabel_verdicts.judge_shift(invent(tmp_path, "sigmoidf1-fig3", "{} f1 @0.5", values))
    assert verdict.outcome == "refuted"
    assert verdict.published is not None
    assert verdict.published.outcome == "shown on all sets"
    assert verdict.figures == "corrected: best at β = 1, η = 0; published: best at β = 1, η = 9"


def test_where_all_predict_every_label_nothing_can_be_seen(tmp_path: Path) -> None:
    note(results_file("sigmoidf1-3", tmp_path), "made up")
    rows = {("published", row): 0.5 for row in sigmoid_f1.LOSSES}
    invent(tmp_path, "sigmoidf1-3", "{} f1 @0.05", rows)
    for row, data in itertools.product(sigmoid_f1.LOSSES, multilabel.DATA):
        share = 0.4 if data == "yeast" and row == "sigmoidF1" else 1.0
        append(results_file("sigmoidf1-3", tmp_path), Cell("published", row, data, 0), {"predicted @0.05": share}, 1.0)
    verdict = multilabel_verdicts.judge_best(Results.load(tmp_path), "weighted")
    assert verdict.published is not None
    assert list(verdict.published.states) == ["yeast"]
    assert verdict.published.counts == "open 1 of 1; nothing to be seen 5"


def test_label_counts_favour_the_loss_with_the_smaller_error(tmp_path: Path) -> None:
    note(results_file("sigmoidf1-decisions", tmp_path), "made up")
    values = {("corrected", row): 0.2 if row == "sigmoidF1" else 0.6 for row in sigmoid_f1.LOSSES}
    for (protocol, row), value in values.items():
        for trial in range(2):
            found = {"labels a row @0.5": value + 0.001 * trial}
            append(results_file("sigmoidf1-decisions", tmp_path), Cell(protocol, row, "yeast", trial), found, 1.0)
    verdict = multilabel_verdicts.judge_decisions(Results.load(tmp_path))[0]
    assert verdict.claim.key == "sigmoidf1-counts"
    assert verdict.corrected.states == {"yeast": "shown"}
    assert verdict.corrected.differences["yeast"].mean == pytest.approx(0.4)


def test_pick_all_labels_is_a_sum_of_softmax_cross_entropies() -> None:
    z, y = batch()
    by_hand = 0.0
    for row, labels in zip(z, y, strict=True):
        by_hand += sum(float(torch.logsumexp(row, 0) - row[k]) for k in range(3) if labels[k])
    assert float(multilabel_decisions.pick_all_labels(z, y)) == pytest.approx(by_hand / len(z), rel=1e-5)


def test_errors_of_label_counts() -> None:
    predicted = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    y = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    found = multilabel_decisions.values_of(predicted, y, "r")
    assert found["labels a row @r"] == 1.5
    assert found["rows a label @r"] == pytest.approx(1 / 3)
    assert found["row f1 @r"] == pytest.approx((2 / 3 + 0) / 2)


def test_the_paper_s_steps_are_a_switch_of_their_own() -> None:
    quirks = quirks_of("published, the paper's steps")
    assert quirks == replace(PUBLISHED, steps=sigmoid_f1.PAPER_STEPS)


def test_predicting_every_label_explains_the_printed_figures() -> None:
    assert multilabel_verdicts.judge_every_label().outcome == "refuted"
    y = load_labels()
    everything = values_of(torch.ones_like(y), y, {"0.05": dict.fromkeys(AVERAGES, 0.05)})
    p = everything["precision @0.05"]
    assert everything["micro f1 @0.05"] == pytest.approx(2 * p / (1 + p))


def load_labels() -> Tensor:
    return (torch.rand(50, 4, generator=torch.Generator().manual_seed(3)) < 0.2).float()


def test_split_is_scaled_by_training_rows(folder: Path) -> None:
    split = load_split("emotions", folder, seed=3)
    torch.testing.assert_close(split.train.x.mean(0), torch.zeros(4), atol=1e-6, rtol=0)
    assert [len(part) for part in (split.train, split.validation, split.test)] == [48, 16, 16]


# --- MFoM ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in mfom.GRADIENTS if name != "autograd"])
def test_gradients_of_mfom_agree(name: str) -> None:
    z, y = batch()
    y[0], y[1] = 1.0, 0.0  # rows without competitors
    expected = mfom.autograd_gradient(z.double(), y.double())
    torch.testing.assert_close(mfom.GRADIENTS[name](z.double(), y.double()), expected)


def test_equal_error_rate_is_where_the_errors_meet() -> None:
    scores = torch.tensor([[0.9], [0.8], [0.6], [0.4], [0.3], [0.1]], dtype=torch.float64)
    y = torch.tensor([[1.0], [1.0], [0.0], [1.0], [0.0], [0.0]])
    assert mfom.eer(scores, y) == pytest.approx(1 / 3)
    assert mfom.eer(y.double(), y) == 0
