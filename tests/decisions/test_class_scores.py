"""Class-wise scores: tuning at another base rate, and the bounded summary that files keep."""

from __future__ import annotations

import pytest
import torch

import metricgrad as mg
from metricgrad.core.inputs import as_scored_batch
from metricgrad.decisions import Threshold
from metricgrad.decisions.class_scores import ClassScores, ScoreCounts, bin_scores
from metricgrad.storage.values import decode, encode

pytestmark = pytest.mark.quick


def draw(n: int, rate: float, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(n, generator=generator) < rate).long()
    scores = (torch.randn(n, generator=generator, dtype=torch.float64) + 1.5 * targets - 2).sigmoid()
    return scores, targets


# A base rate that is given


def test_a_base_rate_is_the_same_as_repeated_rows() -> None:
    scores = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    targets = torch.tensor([1, 0, 1, 0, 0, 1, 0, 1])
    # 4 positives and 4 negatives at 1/5: each negative is there four times.
    times = torch.where(targets == 1, 1, 4)
    repeated = mg.tune_threshold("f1", scores.repeat_interleave(times), targets.repeat_interleave(times))
    weighted = mg.tune_threshold("f1", scores, targets, prevalence=0.2)
    assert weighted.threshold == repeated.threshold
    assert weighted.value == pytest.approx(repeated.value)
    assert mg.tune_threshold("f1", scores, targets).threshold != weighted.threshold


def test_a_base_rate_of_classes_is_the_same_as_repeated_rows() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.arange(60) % 3
    scores = (torch.randn(60, 3, generator=generator, dtype=torch.float64) + 2 * torch.eye(3)[targets]).softmax(1)
    times = torch.tensor([1, 2, 5])[targets]
    repeated = mg.tune_threshold(
        "f1", scores.repeat_interleave(times, 0), targets.repeat_interleave(times), task="multiclass"
    )
    weighted = mg.tune_threshold("f1", scores, targets, task="multiclass", prevalence=[1 / 8, 2 / 8, 5 / 8])
    assert weighted.value == pytest.approx(repeated.value)
    assert weighted.threshold == pytest.approx(repeated.threshold)


def test_labels_have_base_rates_of_their_own() -> None:
    scores, targets = draw(400, 0.3)
    both = mg.tune_threshold(
        "f1",
        torch.stack((scores, scores), 1),
        torch.stack((targets, targets), 1),
        task="multilabel",
        average=None,
        prevalence=[0.05, 0.6],
    )
    alone = [mg.tune_threshold("f1", scores, targets, prevalence=rate) for rate in (0.05, 0.6)]
    assert both.threshold == tuple(one.threshold for one in alone)
    assert both.value == pytest.approx([one.value for one in alone])


def test_soft_labels_are_split() -> None:
    soft = mg.tune_threshold("f1", [0.9, 0.6, 0.3], [1.0, 0.5, 0.0], prevalence=0.2)
    split = mg.tune_threshold("f1", [0.9, 0.6, 0.6, 0.3], [1, 1, 0, 0], weight=[1.0, 0.5, 0.5, 1.0], prevalence=0.2)
    assert soft.threshold == split.threshold
    assert soft.value == pytest.approx(split.value)


def test_the_rows_own_base_rate_changes_nothing() -> None:
    scores, targets = draw(500, 0.2)
    plain = mg.tune_threshold("f1", scores, targets)
    same = plain.at_prevalence(targets.double().mean().item())
    assert same.threshold == plain.threshold
    assert same.value == pytest.approx(plain.value)


def test_a_result_is_tuned_again() -> None:
    scores, targets = draw(500, 0.2)
    again = mg.tune_threshold("f1", scores, targets).at_prevalence(0.02)
    assert again.threshold == mg.tune_threshold("f1", scores, targets, prevalence=0.02).threshold
    assert again.evaluate(Threshold(0.0)) == pytest.approx(2 * 0.02 / 1.02)
    assert 0 < again.out_of_bag < 1
    low, high = again.interval
    assert low <= again.threshold <= high


def test_resamples_without_positives_do_not_stop_it() -> None:
    found = mg.tune_threshold("f1", [0.9, 0.5, 0.4, 0.3, 0.2], [1, 0, 0, 0, 0], prevalence=0.5, replicates=50)
    assert 0 <= found.out_of_bag <= 1


@pytest.mark.parametrize(
    ("prevalence", "message"),
    [
        (0.0, "prevalence: expected a share above 0 and below 1, got 0"),
        (1, "prevalence: expected a share above 0 and below 1, got 1"),
        (float("nan"), "prevalence: expected a share above 0 and below 1, got nan"),
        ([0.1, 0.9], "prevalence: expected one number, the share of positives, got"),
        ("a tenth", "prevalence: expected one number, the share of positives, got 'a tenth'"),
    ],
)
def test_no_base_rates(prevalence: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.tune_threshold("f1", [0.1, 0.9], [0, 1], prevalence=prevalence)


def test_base_rates_that_do_not_fit() -> None:
    scores = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    with pytest.raises(ValueError, match="prevalence: expected 3 numbers, one per class, got 2"):
        mg.tune_threshold("f1", scores, targets, task="multiclass", prevalence=[0.5, 0.5])
    with pytest.raises(ValueError, match="prevalence: expected 3 numbers, one per class, got"):
        mg.tune_threshold("f1", scores, targets, task="multiclass", prevalence=0.5)
    with pytest.raises(ValueError, match="prevalence: expected 3 numbers in the order of the classes, got a mapping"):
        mg.tune_threshold("f1", scores, targets, task="multiclass", prevalence={0: 0.2, 1: 0.3, 2: 0.5})
    with pytest.raises(ValueError, match="prevalence: expected shares of all classes that sum to 1, got"):
        mg.tune_threshold("f1", scores, targets, task="multiclass", prevalence=[0.4, 0.4, 0.4])
    with pytest.raises(ValueError, match=r"targets: expected some of every class .* got no positives"):
        mg.tune_threshold("f1", [0.1, 0.9], [0, 0], prevalence=0.5)
    with pytest.raises(ValueError, match=r"targets: expected some of every class .* got no class 2"):
        mg.tune_threshold("f1", scores, targets % 2, task="multiclass", prevalence=[0.4, 0.4, 0.2])
    labels = (scores > 0.5).long()
    with pytest.raises(ValueError, match="prevalence: expected an average over classes with it"):
        mg.tune_threshold("f1", scores, labels, task="multilabel", average="samples", prevalence=[0.1, 0.1, 0.1])
    with pytest.raises(ValueError, match="prevalence: expected no confidence= with it"):
        mg.tune_threshold(
            "recall", [0.1, 0.9, 0.8], [0, 1, 1], subject_to="precision>=0.5", confidence=0.9, prevalence=0.1
        )


# The summary


def test_few_rows_are_kept_as_they_are() -> None:
    scores, targets = draw(800, 0.2)
    summary = ClassScores.of(as_scored_batch(None, scores, targets), "binary")
    assert len(summary.scores[0]) == 800
    (share,) = summary.prevalence
    assert share == pytest.approx(targets.double().mean().item())


def test_many_rows_are_binned_with_exact_counts() -> None:
    scores, targets = draw(20_000, 0.05)
    scores = scores.round(decimals=4)  # ties
    counts = torch.stack((1 - targets, targets), 1).double()
    table = bin_scores(ScoreCounts(scores.unsqueeze(1), counts), 100)
    assert len(table.scores) <= 201
    assert table.counts.sum(0).tolist() == counts.sum(0).tolist()
    # No bin is larger than a hundredth of some class, ties aside.
    assert (table.counts / counts.sum(0)).max() <= 0.011
    for i in (0, 50, len(table.scores) - 1):
        above = counts[scores >= table.scores[i, 0]].sum(0)
        assert table.counts[: i + 1].sum(0).tolist() == above.tolist()


def test_the_summary_tunes_as_the_rows_do() -> None:
    scores, targets = draw(30_000, 0.02)
    result = mg.tune_threshold("f1", scores, targets)
    summary = decode(encode(result.class_scores))
    batch = summary.as_batch("binary")
    from_summary = mg.tune_threshold("f1", batch.logits, batch.targets, weight=batch.weight, prevalence=0.1)
    from_rows = result.at_prevalence(0.1)
    assert from_summary.value == pytest.approx(from_rows.value, abs=1e-3)
    assert from_rows.evaluate(from_summary.rule) == pytest.approx(from_rows.value, abs=2e-3)


def test_the_summary_of_labels_and_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(50, 3, generator=generator)
    labels = (torch.rand(50, 3, generator=generator) < 0.4).long()
    mask = torch.rand(50, 3, generator=generator) < 0.8
    summary = ClassScores.of(as_scored_batch("multilabel", scores, labels, None, mask), "multilabel")
    positives, totals = summary.count_sides()
    assert positives.tolist() == (labels * mask).sum(0).tolist()
    assert totals.tolist() == mask.sum(0).tolist()
    targets = torch.arange(50) % 3
    summary = ClassScores.of(as_scored_batch("multiclass", scores, targets), "multiclass")
    assert summary.prevalence == pytest.approx((17 / 50, 17 / 50, 16 / 50))
    again = summary.as_batch("multiclass")
    assert again.targets.sum(0).tolist() == [17, 17, 16]


def test_many_rows_of_classes_are_drawn() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(5000, generator=generator) < 0.1).long()
    scores = torch.rand(5000, 2, generator=generator).softmax(1)
    summary = ClassScores.of(as_scored_batch("multiclass", scores, targets), "multiclass")
    positives, _ = summary.count_sides()
    assert positives.tolist() == pytest.approx(targets.bincount().tolist())
    assert len(summary.scores[0]) == 2 * (1000 + int(targets.sum()))


@pytest.mark.parametrize(
    "fields",
    [
        {"scores": [[0.1]], "counts": [[1.0]], "columns": 1, "classes": 2},
        {"scores": [[0.1]], "counts": [[1.0, -1.0]], "columns": 1, "classes": 2},
        {"scores": [["a"]], "counts": [[1.0, 1.0]], "columns": 1, "classes": 2},
        {"scores": [], "counts": [], "columns": 1, "classes": 2},
        {"scores": [[0.1, 0.2]], "counts": [[1.0, 1.0, 1.0]], "columns": 2, "classes": 3},
    ],
)
def test_forged_summaries_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="class scores: expected"):
        ClassScores(**fields)  # type: ignore[arg-type]
