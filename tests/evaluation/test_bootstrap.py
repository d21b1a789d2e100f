"""Intervals and comparisons: replicates against scikit-learn, draws against their distribution, and coverage."""

from __future__ import annotations

import itertools
import math
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk
from torch import Tensor

import metricgrad as mg
from metricgrad.decisions import Argmax, Offsets, Threshold, TuningSpec
from metricgrad.decisions.resampling import draw_units, index_groups, weigh_cells, weigh_units
from metricgrad.evaluation.one_more_row import OneMoreRow

Array = npt.NDArray[Any]
LABELS: dict[str, Any] = {"task": "multilabel"}
CLASSES: dict[str, Any] = {"task": "multiclass"}


def binary(n: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.4).astype(int)
    return (rng.normal(size=n) + y).clip(-1, 2) / 3 + 1 / 3, y


def many(n: int, k: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = (rng.random((n, k)) < 0.4).astype(int)
    return (rng.normal(size=(n, k)) + y).clip(-1, 2) / 3 + 1 / 3, y


# Draws


@pytest.mark.parametrize("counts", [[30.0, 0.0, 5.0, 65.0, 100.0], [7.0], [0.0, 3.0], [1.0] * 9])
def test_cells_weigh_what_their_rows_do(counts: list[float]) -> None:
    x = torch.tensor(counts, dtype=torch.float64)
    drawn = weigh_cells(x, 10_000, torch.Generator().manual_seed(0))
    assert drawn.shape == (10_000, len(x))
    assert ((drawn > 0) == (x > 0)).all()
    error = (x / 10_000).sqrt()  # a sum of n exponential weights has mean and variance n
    assert ((drawn.mean(0) - x).abs() <= 5 * error + 1e-12).all()
    torch.testing.assert_close(drawn.var(0), x, rtol=0.1, atol=0)


def test_units_have_exponential_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.decisions.resampling._NUMBERS_AT_ONCE", 1000)  # several parts
    drawn = torch.cat(list(weigh_units(12, 5000, torch.Generator().manual_seed(1))))
    assert drawn.shape == (5000, 12)
    assert (drawn > 0).all()
    torch.testing.assert_close(drawn.T.cov(), torch.eye(12, dtype=torch.float64), rtol=0, atol=0.12)


def test_units_are_drawn_as_often_as_there_are_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.decisions.resampling._NUMBERS_AT_ONCE", 1000)  # several parts
    drawn = torch.cat(list(draw_units(12, 5000, torch.Generator().manual_seed(1))))
    assert drawn.shape == (5000, 12)
    assert (drawn.sum(1) == 12).all()
    torch.testing.assert_close(drawn.mean(0), torch.ones(12, dtype=torch.float64), rtol=0, atol=0.08)
    expected = torch.eye(12, dtype=torch.float64) - 1 / 12
    torch.testing.assert_close(drawn.T.cov(), expected, rtol=0, atol=0.08)


@pytest.mark.parametrize(
    "groups", [[5, 9, 5, 7], ["b", "a", "b", "c"], np.array([0.5, 9.0, 0.5, 7.0]), torch.tensor([1, 0, 1, 2])]
)
def test_groups_may_be_numbers_or_names(groups: Any) -> None:
    index, units = index_groups(groups, 4)
    assert units == 3
    assert index[0] == index[2]
    assert len(set(index.tolist())) == 3


# Replicates: with known draws they are scikit-learn's values of the drawn rows

RNG = np.random.default_rng(8)
TIMES = np.stack([np.bincount(RNG.integers(0, 40, 40), minlength=40) for _ in range(6)])


def known_draws(units: int, replicates: int, generator: torch.Generator) -> Any:
    yield torch.tensor(TIMES[:, :units], dtype=torch.float64)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the draws known ones, and leave the additional rows out."""
    monkeypatch.setattr("metricgrad.evaluation.replicates.weigh_units", known_draws)

    def add(self: OneMoreRow, metrics: Any, statistics: Any, right: bool) -> Any:
        return statistics

    monkeypatch.setattr(OneMoreRow, "add", add)


METRICS: dict[str, tuple[dict[str, Any], Any]] = {
    **{
        average: ({**LABELS, "average": average}, partial(sk.f1_score, average=average, zero_division=0))
        for average in ("macro", "micro", "weighted", "samples")
    },
    "each": ({**LABELS, "average": None}, partial(sk.f1_score, average=None, zero_division=0)),
    "labels": ({**LABELS, "labels": [0, 2]}, partial(sk.f1_score, average="macro", labels=[0, 2], zero_division=0)),
    "classes": ({**CLASSES}, partial(sk.f1_score, average="macro", labels=[0, 1, 2], zero_division=0)),
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.usefixtures("known")
def test_replicates_are_the_values_of_the_rows_drawn(name: str, weighted: bool, grouped: bool) -> None:
    options, theirs = METRICS[name]
    s, y = many(40, 3, 1)
    if name == "classes":
        y = np.random.default_rng(2).integers(0, 3, 40)
    decided = s.argmax(1) if name == "classes" else (s >= 0.5).astype(int)
    w = np.random.default_rng(3).random(40) if weighted else np.ones(40)  # ones keep rows from falling into cells
    groups = np.arange(40) % 8 if grouped else None
    got = mg.bootstrap(s, y, "f1", weight=w, groups=groups, replicates=6, **options)["f1"]
    expected = []
    for times in TIMES:
        rows = times[:8][np.arange(40) % 8] if grouped else times
        expected.append(theirs(y, decided, sample_weight=w * rows))
    intervals = got if name == "each" else [got]
    replicates = np.stack([interval.replicates[0] for interval in intervals], -1)
    np.testing.assert_allclose(replicates, np.reshape(expected, replicates.shape), atol=1e-12)
    whole = np.ravel(theirs(y, decided, sample_weight=w))
    np.testing.assert_allclose([interval.value for interval in intervals], whole, atol=1e-12)
    for k, interval in enumerate(intervals):
        ends = np.quantile(replicates[:, k], [0.025, 0.975])
        np.testing.assert_allclose([interval.low, interval.high], ends, atol=1e-12)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
@pytest.mark.usefixtures("known")
def test_ranking_metrics_and_others_are_drawn_together(average: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.evaluation.replicates._CURVE_WEIGHTS_AT_ONCE", 300)  # several parts
    s, y = many(40, 3, 4)
    got = mg.bootstrap(s, y, ["auroc", "average_precision", "f1"], average=average, replicates=6, **LABELS)
    for i, times in enumerate(TIMES):
        rows = np.repeat(np.arange(40), times)
        how = {"average": average}
        assert got["auroc"].replicates[0, i] == pytest.approx(sk.roc_auc_score(y[rows], s[rows], **how))
        expected = sk.average_precision_score(y[rows], s[rows], **how)
        assert got["average_precision"].replicates[0, i] == pytest.approx(expected)
        assert got["f1"].replicates[0, i] == pytest.approx(sk.f1_score(y[rows], s[rows] >= 0.5, **how))


def distance(one: Tensor, two: Tensor) -> float:
    """Kolmogorov and Smirnov's: the largest gap between two distributions."""
    every = torch.cat((one, two)).sort().values
    shares = [torch.searchsorted(x.sort().values, every, right=True) / len(x) for x in (one, two)]
    return float((shares[0] - shares[1]).abs().max())


@pytest.mark.parametrize("task", ["binary", "multiclass"])
@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_weighing_cells_is_weighing_rows(task: Any, metric: str) -> None:
    s, y = binary(80) if task == "binary" else (many(80, 4)[0], np.random.default_rng(0).integers(0, 4, 80))
    cells = mg.bootstrap(s, y, metric, task=task, replicates=4000)[metric]
    rows = mg.bootstrap(s, y, metric, task=task, replicates=4000, weight=np.ones(80), seed=1)[metric]
    assert cells.value == pytest.approx(rows.value, abs=1e-12)
    for one, two in zip(cells.replicates, rows.replicates, strict=True):
        assert distance(one, two) < 0.045  # 1.95·√(2/4000) at a chance of 1 in 1000
        for q in (0.05, 0.25, 0.5, 0.75, 0.95):
            assert float(one.quantile(q)) == pytest.approx(float(two.quantile(q)), abs=0.012)
    # The distribution is able to tell: a third less data is seen at once.
    fewer = mg.bootstrap(s[:50], y[:50], metric, task=task, replicates=4000)[metric].replicates[0]
    assert distance(fewer - fewer.mean(), rows.replicates[0] - rows.replicates[0].mean()) > 0.045


def test_soft_targets_and_halves_of_weight_are_counted_exactly() -> None:
    s, y = many(30, 2)
    soft = 0.8 * y + 0.1
    for weight in (None, np.full(30, 0.3)):
        value = mg.bootstrap(s, soft, "f1", weight=weight, replicates=3, **LABELS)["f1"].value
        assert value == pytest.approx(mg.evaluate(s, soft, "f1", weight=weight, **LABELS)["f1"], abs=1e-14)
    probabilities = np.full((30, 3), 0.2) + 0.4 * np.eye(3)[np.arange(30) % 3]
    value = mg.bootstrap(s.repeat(2, 1)[:, :3], probabilities, "kappa", replicates=3, **CLASSES)["kappa"].value
    assert value == pytest.approx(mg.evaluate(s.repeat(2, 1)[:, :3], probabilities, "kappa", **CLASSES)["kappa"])


def test_seeds_confidence_and_groups() -> None:
    s, y = binary(100)
    first, again, other = (mg.bootstrap(s, y, "f1", seed=seed)["f1"] for seed in (3, 3, 4))
    assert first == again
    assert torch.equal(first.replicates, again.replicates)
    assert first != other
    narrow = mg.bootstrap(s, y, "f1", seed=3, confidence=0.5)["f1"]
    assert first.low < narrow.low < narrow.high < first.high
    # Ten copies of each row are no more data: whole groups must be drawn.
    rows, ten = np.repeat(np.arange(100), 10), np.repeat([f"case {i}" for i in range(100)], 10)
    grouped = mg.bootstrap(s[rows], y[rows], "f1", groups=ten, replicates=2000)["f1"]
    fooled = mg.bootstrap(s[rows], y[rows], "f1", replicates=2000)["f1"]
    assert float(grouped.replicates[0].std()) == pytest.approx(float(first.replicates[0].std()), rel=0.12)
    assert float(fooled.replicates[0].std()) == pytest.approx(
        float(first.replicates[0].std()) / math.sqrt(10), rel=0.12
    )


# One more row


@pytest.mark.parametrize(("hits", "misses"), [(5, 0), (0, 5), (4, 1), (27, 3)])
@pytest.mark.parametrize("metric", ["recall", "precision"])
@pytest.mark.parametrize("weight", [None, 3.0])
def test_the_interval_of_a_rate_is_exact(hits: int, misses: int, metric: str, weight: float | None) -> None:
    """Clopper and Pearson's, with equal weights and with rows that come in copies too."""
    right, wrong = (1, 1), ((1, 0) if metric == "recall" else (0, 1))
    others = [(1, 0)] * 5 if metric == "precision" else [(0, 0)] * 5  # which this rate does not see
    rows = np.array([right] * hits + [wrong] * misses + others)
    copies = np.repeat(np.arange(len(rows)), 1 if weight is None else 4)
    y, s = rows[copies].T
    how: dict[str, Any] = {} if weight is None else {"weight": np.full(len(y), weight), "groups": copies}
    found = mg.bootstrap(s.astype(float), y, metric, replicates=20_000, **how)[metric]
    exact = stats.binomtest(hits, hits + misses).proportion_ci()
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=0.012)
    assert found.low < found.high


FEW = ["f1", "precision", "recall", "accuracy", "mcc", "auroc", "average_precision", "specificity"]


@pytest.mark.parametrize("scores", ["perfect", "wrong", "constant"])
@pytest.mark.parametrize("kind", ["cells", "rows", "tuned"])
def test_five_positives_have_intervals_of_some_width(scores: str, kind: str) -> None:
    y = np.array([1] * 5 + [0] * 20)
    s = {"perfect": y * 0.8 + 0.1, "wrong": 0.9 - y * 0.8, "constant": np.full(25, 0.9)}[scores]
    options: dict[str, dict[str, Any]] = {"rows": {"weight": np.ones(25)}, "tuned": {"rule": TuningSpec("f1")}}
    how = options.get(kind, {})
    for name, found in mg.bootstrap(s, y, FEW, replicates=50, **how).items():
        assert found.low < found.high, name
        assert kind == "tuned" or found.low <= found.value <= found.high, name


def test_metrics_of_scores_have_width_too() -> None:
    s, y = np.array([[0.9, 0.1, 0.2]] * 8), np.array([[1, 0, 0]] * 8)
    metrics = ["ndcg", "hamming_loss", "ranking_loss", "recall@1", "subset_accuracy"]
    for name, found in mg.bootstrap(s, y, metrics, replicates=50, **LABELS).items():
        assert found.low < found.high, name
        assert found.low <= found.value <= found.high, name
    best = mg.bootstrap(s, np.zeros(8, int), ["top_k_accuracy", "auroc_ovo"], replicates=50, **CLASSES)
    assert best["top_k_accuracy"].low < best["top_k_accuracy"].high == 1
    pairs = mg.bootstrap(np.eye(3).repeat(3, 0), np.arange(9) // 3, "auroc_ovo", replicates=50, **CLASSES)["auroc_ovo"]
    assert pairs.low < pairs.high == 1


@pytest.mark.parametrize("metric", ["f1", "accuracy", "subset_accuracy"])
def test_a_mean_over_rows_is_lower_with_one_more_wrong_row_than_with_one_more_right_row(metric: str) -> None:
    s, y = many(20, 3)
    with_wrong, with_right = mg.bootstrap(s, y, metric, average="samples", replicates=50, **LABELS)[metric].replicates
    assert (with_wrong < with_right).all()


def test_each_of_two_models_has_half_of_the_row_that_is_added_to_a_mean_over_rows() -> None:
    s, y = np.array([[0.9, 0.1, 0.2]] * 8), np.array([[1, 0, 0]] * 8)  # both models are right everywhere
    found = mg.compare_paired(s, s, y, "f1", average="samples", replicates=20_000, **LABELS)["f1"]
    rng = np.random.default_rng(1)
    weight_of_rows = rng.exponential(size=(100_000, 8)).sum(1)
    weight_of_wrong_row = rng.exponential(size=100_000) / 2
    losses = weight_of_wrong_row / (weight_of_rows + weight_of_wrong_row)
    largest_loss = float(np.quantile(losses, 0.975))
    assert (found.low, found.high) == pytest.approx((-largest_loss, largest_loss), abs=0.01)


def test_a_metric_of_ones_own_and_one_that_is_better_when_lower_have_both_ends() -> None:
    s, y = binary(60)

    def cost(c: mg.Counts) -> Tensor:
        return c.fp + 5 * c.fn

    found = mg.bootstrap(s, y, {"cost": lambda c: cost(c) / c.total, "mcc": "mcc"}, replicates=200)
    assert found["cost"].low < found["cost"].value < found["cost"].high
    assert -1 <= found["mcc"].low < found["mcc"].value < found["mcc"].high <= 1
    rate = mg.bootstrap(s, y, "equal_error_rate", replicates=200)["equal_error_rate"]
    assert rate.low < rate.value < rate.high


def test_too_few_positives_are_refused() -> None:
    s, y = np.linspace(0, 1, 40), np.array([0] * 36 + [1] * 4)
    message = r"targets: too few positives for an interval, .* at least 5, got 4"
    for metric in ("f1", "auroc"):
        with pytest.raises(ValueError, match=message):
            mg.bootstrap(s, y, metric)
        with pytest.raises(ValueError, match=message):
            mg.compare_paired(s, s, y, metric)
    with pytest.raises(ValueError, match=message):
        mg.bootstrap(s, y, "f1", rule=TuningSpec("f1"))
    with pytest.raises(ValueError, match=r"too few positives for an interval, .* got 2"):  # two groups of positives
        mg.bootstrap(np.r_[s, s], np.r_[y, y], "f1", groups=np.r_[np.arange(40), np.arange(40)] // 2)
    assert mg.bootstrap(s, y, "brier_score")["brier_score"].low > 0  # a mean over rows
    both, labels = np.stack([s, s], 1), np.stack([y, 1 - y], 1)
    with pytest.raises(ValueError, match=r"too few positives for an interval of class 0, .* got 4; choose classes"):
        mg.bootstrap(both, labels, "f1", average=None, **LABELS)
    assert len(mg.bootstrap(both, labels, "f1", average=None, labels=[1], **LABELS)["f1"]) == 1
    with pytest.raises(ValueError, match=rf"{message}; mg.evaluate returns the value alone"):
        mg.bootstrap(both[:, :1], labels[:, :1], "f1", average=None, **LABELS)  # there is no other class to choose
    assert mg.bootstrap(both, labels, "f1", **LABELS)["f1"].low > 0  # 40 positives in all


def test_what_has_no_value_has_no_interval() -> None:
    nothing = mg.bootstrap(np.linspace(0, 1, 6), [1] * 6, "auroc", replicates=20)["auroc"]
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.low)
    assert math.isnan(nothing.high)
    masked = mg.bootstrap([0.9] * 5 + [math.nan], [1] * 5 + [0], "f1", mask=[True] * 5 + [False], replicates=20)["f1"]
    assert masked.value == 1
    assert str(mg.bootstrap(*binary(50), "f1")["f1"]).count(" to ") == 1


def test_an_average_over_classes_is_moved_less_than_a_class() -> None:
    y = np.tile(np.repeat([1, 0], 20)[:, None], (1, 25))
    s = y * 0.8 + 0.1
    one = mg.bootstrap(s[:, 0], y[:, 0], "recall", replicates=2000)["recall"]
    average = mg.bootstrap(s, y, "recall", replicates=2000, **LABELS)["recall"]
    each = mg.bootstrap(s, y, "recall", average=None, replicates=2000, **LABELS)["recall"]
    assert 0 < 1 - average.low < 0.5 * (1 - one.low)
    assert [interval.low for interval in each] == pytest.approx([one.low] * 25, abs=0.05)


def test_one_more_row_of_each_class_goes_wrong_once_whatever_it_is_taken_for() -> None:
    y = np.arange(300) % 3
    found = mg.bootstrap(np.eye(3)[y], y, "accuracy", replicates=2000, **CLASSES)["accuracy"]
    wrong = 3 / math.sqrt(3)  # a row of each of three classes, 1/√3 each
    assert found.replicates[0].mean().item() == pytest.approx(300 / (300 + wrong), abs=5e-4)
    assert (found.replicates[1] == 1).all()


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (([0.1], [0], "f1"), {"replicates": 0}, "replicates: expected a whole number of at least 1, got 0"),
        (([0.1], [0], "f1"), {"replicates": 10.5}, "replicates: expected a whole number of at least 1"),
        (([0.1], [0], "f1"), {"confidence": 1.0}, r"confidence: expected a number in \(0, 1\), got 1.0"),
        (([0.1], [0], "f1"), {"confidence": 0.0}, r"confidence: expected a number in \(0, 1\), got 0.0"),
        (([], [], "f1"), {}, "scores: expected at least one sample, got none"),
        (([0.1, 2.0], [0, 1], "f1"), {}, r"threshold: 0.5 is for scores in \[0, 1\]"),
        (([0.1, 0.2], [0, 1], "f1"), {"groups": [1, 2, 3]}, r"groups: expected one per row, \(2,\), got \(3,\)"),
        (([0.1, 0.2], [0, 1], "f1"), {"rule": Argmax()}, "rule: expected one that decides label by label"),
        (([[0.1, 0.2]], [1], "f1"), {**CLASSES, "rule": Threshold(0.5)}, "rule: expected one that decides a class"),
        (
            ([0.1, 0.2], [0, 1], "f1"),
            {"rule": TuningSpec("f1"), "threshold": 0.3},
            "threshold: expected none beside a rule",
        ),
        (
            ([0.1, 0.2], [0, 1], "f1"),
            {"rule": TuningSpec("f1", **LABELS)},
            "rule: expected one tuned for task='binary'",
        ),
    ],
)
def test_bad_input_is_refused(args: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.bootstrap(*args, **options)
    with pytest.raises(ValueError, match=message):
        mg.compare_paired(args[0], *args, **options)


def test_labels_that_can_be_read_once_count_for_both_models() -> None:
    s, y = many(40, 3, 4)
    once, often = (mg.compare_paired(s, 1 - s, y, "f1", labels=labels, **LABELS) for labels in (iter([1, 2]), [1, 2]))
    assert once == often


# Tuned rules


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_tuned_rule_is_valued_where_it_was_not_tuned(task: Any) -> None:
    rng = np.random.default_rng(5)
    noise = rng.random(90) if task == "binary" else rng.random((90, 3))
    y = rng.integers(0, 3, 90) if task == "multiclass" else rng.integers(0, 2, noise.shape)
    apparent = mg.tune_threshold("f1", noise, y, task=task)
    found = mg.bootstrap(noise, y, ["f1", "accuracy"], rule=TuningSpec("f1", task=task), task=task, replicates=25)
    left_out = mg.tune_threshold("f1", noise, y, task=task, replicates=25).out_of_bag
    assert found["f1"].value == pytest.approx(left_out, abs=1e-12)  # the same seed draws the same rows
    assert found["f1"].value < apparent.value
    assert found["f1"].low < found["f1"].value < found["f1"].high
    again = mg.bootstrap(noise, y, "f1", rule=TuningSpec("f1", task=task), task=task, replicates=25)
    assert again["f1"] == found["f1"]


def test_a_tuned_rule_by_hand() -> None:
    """What varies: the tuned rule on every resample, and every re-tuned rule on all rows."""
    s, y = binary(40, 3)
    groups = np.arange(40) // 2

    def f1_of(t: float, times: Array) -> float:
        tp, wrong = (times * (y * (s >= t))).sum(), (times * (y != (s >= t))).sum()
        return float(2 * tp / (2 * tp + wrong)) if tp else 0.0

    def best(times: Array) -> float:
        there = np.unique(s[times > 0])[::-1]
        values = [f1_of(t, times) for t in there]
        cut = int(np.argmax(values))
        return float(there[cut] + there[cut + 1]) / 2 if cut + 1 < len(there) else float(there[cut])

    draws = np.stack([np.bincount(np.random.default_rng(i).integers(0, 20, 20), minlength=20) for i in range(8)])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("draw_units", "weigh_units"):
            patch.setattr(
                f"metricgrad.evaluation.replicates.{name}", lambda *_: iter([torch.tensor(draws, dtype=torch.float64)])
            )
        patch.setattr(OneMoreRow, "add", lambda self, metrics, statistics, right: statistics)
        got = mg.bootstrap(s, y, "f1", rule=TuningSpec("f1"), groups=groups, replicates=8)["f1"]
    times = draws[:, groups]
    rules = [best(t) for t in times]
    value = np.mean([f1_of(rule, t == 0) for rule, t in zip(rules, times, strict=True)])
    noise = np.array([f1_of(best(np.ones(40)), t) for t in times]) - f1_of(best(np.ones(40)), np.ones(40))
    moves = np.array([f1_of(rule, np.ones(40)) for rule in rules])
    assert got.value == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(got.replicates[0], value + noise + moves - moves.mean(), atol=1e-12)


def test_logits_need_no_scale_for_a_tuned_rule_and_nothing_may_be_left_out() -> None:
    s, y = binary(30)
    found = mg.bootstrap(20 * s - 10, y, "f1", rule=TuningSpec("f1"), replicates=10)["f1"]
    assert 0 < found.value < 1
    # Five groups: a replicate that draws them all leaves nothing to judge on, which is no value of 0.
    easy, labels = [0.9, 0.1] * 20, [1, 0] * 20
    with pytest.MonkeyPatch.context() as patch:
        all_drawn, some = torch.ones(1, 5, dtype=torch.float64), torch.tensor([[5.0, 0, 0, 0, 0]]).double()
        patch.setattr("metricgrad.evaluation.replicates.draw_units", lambda *_: iter([torch.cat((all_drawn, some))]))
        how: dict[str, Any] = {"rule": TuningSpec("f1"), "groups": np.arange(40) // 2 % 5, "replicates": 2}
        assert mg.bootstrap(easy, labels, "f1", **how)["f1"].value == 1
        patch.setattr("metricgrad.evaluation.replicates.draw_units", lambda *_: iter([all_drawn]))
        assert math.isnan(mg.bootstrap(easy, labels, "f1", **(how | {"replicates": 1}))["f1"].value)


# Comparisons


def two_models(n: int, seed: int, lift: float = 0.0) -> tuple[Array, Array, Array]:
    """Two models of equal worth, correlated; the first better by ``lift``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    common = rng.normal(size=n)
    a, b = (0.25 * (common + rng.normal(size=n)) + 0.5 + up * (y - 0.5) for up in (0.3 + lift, 0.3))
    return a.clip(0, 1), b.clip(0, 1), y


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "cells": ("f1", {}),
    "rows": ("f1", {"weight": np.ones(70)}),
    "groups": ("accuracy", {"groups": np.arange(70) // 3}),
    "ranking": ("auroc", {}),
    "tuned": ("f1", {"rule": TuningSpec("f1")}),
}


@pytest.mark.parametrize("name", KINDS)
def test_comparisons_are_antisymmetric_and_equal_models_are_equal(name: str) -> None:
    metric, options = KINDS[name]
    a, b, y = two_models(70, 1, 0.2)
    replicates = 3000 if name == "cells" else 60
    one, two = (
        mg.compare_paired(*pair, y, metric, replicates=replicates, **options)[metric] for pair in ((a, b), (b, a))
    )
    tolerance = 0.02 if name == "cells" else 1e-12  # cells of the other order are drawn otherwise
    assert one.difference == pytest.approx(-two.difference, abs=1e-12)
    assert (one.a, one.b) == pytest.approx((two.b, two.a), abs=1e-12)
    assert one.difference == pytest.approx(one.a - one.b, abs=1e-12)
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low), abs=tolerance)
    assert one.p_value == pytest.approx(two.p_value, abs=tolerance)
    same = mg.compare_paired(a, a.copy(), y, metric, replicates=60, **options)[metric]
    assert (same.difference, same.p_value) == (0, 1)
    assert same.low < 0 < same.high  # models that agree on these rows may not on others


@pytest.mark.parametrize("name", ["cells", "rows", "ranking", "tuned"])
def test_a_clearly_better_model_is_told(name: str) -> None:
    metric, options = KINDS[name]
    a, b, y = two_models(70, 2, 0.5)
    found = mg.compare_paired(a, b, y, metric, replicates=200, **options)[metric]
    assert found.low > 0
    assert found.p_value < 0.02
    assert str(found).startswith(f"{found.difference:+.4f} (")


def noise(seed: int) -> tuple[Array, Array]:
    """Return scores that tell nothing, on which a tuned rule looks better than it is, and labels."""
    rng = np.random.default_rng(seed)
    return rng.random(60), rng.integers(0, 2, 60)


def test_the_optimism_of_tuning_cancels_between_two_models() -> None:
    s, y = noise(1)
    tuning = mg.tune_threshold("mcc", s, y, replicates=100)
    assert tuning.value > tuning.out_of_bag + 0.2
    same = mg.compare_paired(s, s.copy(), y, "mcc", rule=TuningSpec("mcc"), replicates=100)["mcc"]
    # Both are re-tuned alike, so that only what the rows weigh is left, with one more row wrong for one of them.
    fixed = mg.bootstrap(s, y, "mcc", rule=tuning.rule, weight=np.ones(60), replicates=100)["mcc"]
    apart = fixed.replicates[0] - fixed.replicates[1]
    assert same.low >= apart.quantile(0.025).item() - 1e-6
    assert same.high <= -apart.quantile(0.025).item() + 1e-6


def test_each_of_two_models_has_half_of_the_added_row_with_tuned_rules_too() -> None:
    s, y = noise(1)
    rule = mg.tune_threshold("mcc", s, y).rule
    fixed, tuned = (
        mg.compare_paired(s, s.copy(), y, "mcc", rule=how, weight=np.ones(60), replicates=100)["mcc"]
        for how in (rule, TuningSpec("mcc"))
    )
    assert (tuned.low, tuned.high) == pytest.approx((fixed.low, fixed.high), abs=1e-12)


def test_values_and_intervals_of_a_comparison_are_those_of_the_models() -> None:
    a, b, y = two_models(70, 3)
    found = mg.compare_paired(a, b, y, ["f1", "auroc"], weight=np.ones(70), replicates=300, seed=5)
    for name, model in (("a", a), ("b", b)):
        alone = mg.evaluate(model, y, ["f1", "auroc"])
        assert getattr(found["f1"], name) == pytest.approx(alone["f1"])
        assert getattr(found["auroc"], name) == pytest.approx(alone["auroc"])
    alone = mg.bootstrap(a, y, "f1", weight=np.ones(70), replicates=300, seed=5)["f1"]
    assert found["f1"].high - found["f1"].low < 2 * (alone.high - alone.low)  # paired


@pytest.mark.parametrize("rule", [Threshold(0.5), TuningSpec("f1", **LABELS)])
def test_each_class_is_compared_as_if_it_were_the_only_one(rule: Any) -> None:
    a, y = many(60, 3, 1)
    b = many(60, 3, 2)[0]
    how: dict[str, Any] = {"rule": rule, "replicates": 40, **LABELS}
    each = mg.compare_paired(a, b, y, "f1", average=None, **how)["f1"]
    for k in range(3):
        alone = mg.compare_paired(a, b, y, "f1", labels=[k], **how)["f1"]
        assert (each[k].low, each[k].high) == pytest.approx((alone.low, alone.high), abs=1e-12)
        assert each[k].p_value == alone.p_value


@pytest.mark.parametrize("grouped", [False, True])
def test_the_p_value_is_that_of_all_exchanges(grouped: bool) -> None:
    a, b, y = two_models(16, 11, 0.15)
    groups = np.arange(16) // 2 if grouped else np.arange(16)
    da, db = a >= 0.5, b >= 0.5

    def difference(swap: Array) -> float:
        one, two = np.where(swap, db, da), np.where(swap, da, db)
        hits = [((y == 1) & d).sum() / max(1, (y == 1).sum() + d.sum()) for d in (one, two)]
        return float(2 * (hits[0] - hits[1]))

    observed = abs(difference(np.zeros(16, bool)))
    free = np.unique(groups[da != db])  # exchanging equal decisions changes nothing
    found = []
    for swapped in itertools.product((False, True), repeat=len(free)):
        found.append(abs(difference(np.isin(groups, free[np.array(swapped)]))) >= observed - 1e-12)
    exact = np.mean(found)
    assert 0.03 < exact < 0.3
    for options in ({}, {"weight": np.ones(16)}) if not grouped else ({"groups": groups},):
        got = mg.compare_paired(a, b, y, "f1", replicates=20_000, **options)["f1"].p_value  # type: ignore[arg-type]
        assert got == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize("name", ["cells", "rows", "multilabel"])
def test_under_the_null_p_values_are_uniform(name: str) -> None:
    small = []
    for seed in range(200):
        if name == "multilabel":
            (a, b, y), (c, d, z) = two_models(70, 1000 + seed), two_models(70, 5000 + seed)
            a, b, y = np.stack([a, c], 1), np.stack([b, d], 1), np.stack([y, z], 1)
            metric, options = "f1", LABELS
        else:
            a, b, y = two_models(70, 1000 + seed)
            metric, options = KINDS[name]
        found = mg.compare_paired(a, b, y, metric, replicates=99, seed=seed, **options)[metric]
        small.append(found.p_value <= 0.1)
    assert 0.04 <= np.mean(small) <= 0.17


def test_what_has_no_value_has_no_p_value() -> None:
    nothing = mg.compare_paired(np.linspace(0, 1, 6), np.linspace(1, 0, 6), [1] * 6, "auroc", replicates=50)["auroc"]
    assert all(math.isnan(x) for x in (nothing.difference, nothing.low, nothing.high, nothing.p_value))
    # Each model predicts one row; an exchange of one of them leaves a model without predictions, undefined here.
    one, two = [0.9] + [0.1] * 7, [0.1, 0.9] + [0.1] * 6
    found = mg.compare_paired(one, two, [1, 0] + [1] * 6, {"p": lambda c: c.tp / (c.tp + c.fp)}, replicates=200)["p"]
    assert (found.difference, found.p_value) == (1, 1)


def test_each_model_may_have_its_own_rule_and_scale() -> None:
    a, b, y = two_models(70, 6)
    logits = np.log(b.clip(0.01, 0.99) / (1 - b.clip(0.01, 0.99)))
    own = mg.compare_paired(a, logits, y, "f1", rule=(Threshold(0.5), Threshold(0.0)), replicates=50)["f1"]
    assert own == mg.compare_paired(a, b, y, "f1", replicates=50)["f1"]
    mixed = mg.compare_paired(a, logits, y, "f1", rule=(Threshold(0.5), TuningSpec("f1")), replicates=50)["f1"]
    assert 0 < mixed.p_value <= 1
    with pytest.raises(ValueError, match="rule: expected one, or a pair of them, got 3"):
        mg.compare_paired(a, b, y, "f1", rule=[None] * 3)
    classes = np.random.default_rng(0).integers(0, 3, 70)
    s = np.random.default_rng(1).random((70, 3))
    rules = (Argmax(), Offsets((5.0, 0.0, 0.0), log=False))
    moved = mg.compare_paired(s, s, classes, "accuracy", rule=rules, replicates=50, **CLASSES)["accuracy"]
    assert moved.b == pytest.approx((classes == 0).mean())


# Coverage: how often the interval holds the truth. benchmarks/coverage.py does the same at length.

CDF = NormalDist().cdf


def population_f1(share: float, t: float) -> float:
    """Positives score N(1.5, 1), negatives N(0, 1)."""
    hit, alarm = 1 - CDF(t - 1.5), 1 - CDF(t)
    return 2 * share * hit / (share * hit + (1 - share) * alarm + share)


@pytest.mark.parametrize(
    ("kind", "sets", "replicates"), [("binary", 200, 200), ("macro", 200, 200), ("tuned", 50, 100)]
)
def test_intervals_hold_the_truth_as_often_as_they_say(kind: str, sets: int, replicates: int) -> None:
    shares = [0.2, 0.3, 0.5] if kind == "macro" else [0.3]
    held = naive = 0
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        y = (rng.random((200, len(shares))) < shares).astype(int)
        s = rng.normal(size=y.shape) + 1.5 * y
        how: dict[str, Any] = {"replicates": replicates, "seed": seed, **(LABELS if kind == "macro" else {})}
        rule: Any = Threshold(0.75)
        if kind == "tuned":
            best = mg.tune_threshold("f1", s, y)
            rule, truth = TuningSpec("f1"), population_f1(shares[0], best.threshold)
            taken = mg.bootstrap(s, y, "f1", rule=best.rule, **how)["f1"]
            naive += taken.low <= truth <= taken.high
        else:
            truth = float(np.mean([population_f1(share, 0.75) for share in shares]))
        found = mg.bootstrap(s, y, "f1", rule=rule, **how)["f1"]
        held += found.low <= truth <= found.high
    if kind == "tuned":  # fewer data sets, and wider limits by as much
        assert 0.88 <= held / sets <= 1.0
        assert naive < held  # an interval that takes the tuned rule as given flatters
    else:
        assert 0.90 <= held / sets <= 0.99
