"""Scarce decisions: the shared threshold against brute force, what is told, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad.decisions import Threshold

LIMIT = 4
ROWS = 12
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "row weights": {"weight": np.linspace(0.5, 2.0, ROWS)},
    "element mask": {"mask": np.arange(4 * ROWS).reshape(ROWS, 4) % 7 != 3},
}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make labels with fewer than four positives rare, for data that brute force can search."""
    for name in ("FEWEST_TO_TUNE", "FEWEST_TO_TUNE_ALONE"):
        monkeypatch.setattr(f"metricgrad.decisions.problem.{name}", LIMIT)


def small(seed: int) -> tuple[Any, Any]:
    """Return scores and labels of four classes: 0 and 2 are rare, 1 and 3 are not."""
    rng = np.random.default_rng(seed)
    y = np.zeros((ROWS, 4), int)
    for k, positives in enumerate((2, 6, 3, 5)):
        y[rng.permutation(ROWS)[:positives], k] = 1
    s = np.round(rng.random((ROWS, 4)) * 0.7 + 0.3 * y * rng.random((ROWS, 4)), 2 - seed % 2)  # with and without ties
    return s, y


def value(metric: str, s: Any, y: Any, average: Any, rule: Any, how: dict[str, Any]) -> Any:
    return mg.evaluate(s, y, metric, task="multilabel", average=average, rule=rule, **how)[metric]


def cuts(scores: Any) -> list[float]:
    return [*np.unique(scores).tolist(), np.inf]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
@pytest.mark.parametrize("metric", ["f1", "accuracy"])
def test_the_shared_threshold_is_the_best_that_rare_labels_can_share(metric: str, average: Any, way: str) -> None:
    for seed in range(2):
        s, y = small(seed)
        how = WAYS[way]
        tuning = mg.tune_threshold(metric, s, y, task="multilabel", average=average, rare_labels="pooled", **how)
        pooled, own, same, other = tuning.threshold
        assert pooled == same
        assert tuning.origins == ["pooled", "own", "pooled", "own"]
        assert tuning.exact
        assert tuning.value == pytest.approx(value(metric, s, y, average, tuning.rule, how))
        for group, places in (([0, 2], cuts(s[:, [0, 2]])), ([1], cuts(s[:, 1])), ([3], cuts(s[:, 3]))):
            for cut in places:  # none of the three is better elsewhere
                moved = np.array([pooled, own, same, other])
                moved[group] = cut
                assert value(metric, s, y, average, Threshold(tuple(moved)), how) <= tuning.value + 1e-12
        if average == "micro" and way == "plain":  # nor are all of them together
            for a, b, c in itertools.product(cuts(s[:, [0, 2]]), cuts(s[:, 1]), cuts(s[:, 3])):
                assert value(metric, s, y, average, Threshold((a, b, a, c)), how) <= tuning.value + 1e-12


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("way", WAYS)
def test_the_samples_average_cannot_be_improved_by_one_of_its_thresholds(way: str) -> None:
    s, y = small(0)
    how = WAYS[way]
    tuning = mg.tune_threshold("f1", s, y, task="multilabel", average="samples", rare_labels="pooled", **how)
    assert not tuning.exact
    assert tuning.threshold[0] == tuning.threshold[2]
    for group in ([0, 2], [1], [3]):
        for cut in cuts(s[:, group]):
            moved = np.array(tuning.threshold)
            moved[group] = cut
            assert value("f1", s, y, "samples", Threshold(tuple(moved)), how) <= tuning.value + 1e-12


@pytest.mark.usefixtures("few")
def test_without_an_average_the_shared_threshold_is_that_of_the_mean() -> None:
    s, y = small(1)
    each = mg.tune_threshold("f1", s, y, task="multilabel", average=None, rare_labels="pooled")
    macro = mg.tune_threshold("f1", s, y, task="multilabel", rare_labels="pooled")
    assert each.rule == macro.rule
    assert np.mean(each.value) == pytest.approx(macro.value)
    assert each.plateau == macro.plateau
    low, high = macro.plateau[0]
    assert low <= macro.threshold[0] <= high


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("average", ["macro", "micro", "samples"])
def test_if_every_label_is_rare_they_share_what_shared_finds(average: Any) -> None:
    s, y = small(0)
    s, y = s[:, [0, 2]], y[:, [0, 2]]
    pooled = mg.tune_threshold("f1", s, y, task="multilabel", average=average, rare_labels="pooled")
    shared = mg.tune_threshold("f1", s, y, task="multilabel", average=average, shared=True)
    assert pooled.value == pytest.approx(shared.value)
    assert pooled.exact
    assert len(set(pooled.threshold)) == 1
    assert pooled.caution == "fewer than 4 positives or negatives in 2 of 2 classes, which share one threshold"


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("seed", range(8))
def test_the_threshold_that_all_labels_share_is_the_best_for_the_samples_average(seed: int) -> None:
    s, y = small(seed)
    y = y * (np.cumsum(y, 0) <= 3)  # every label is rare
    tuning = mg.tune_threshold("f1", s, y, task="multilabel", average="samples", rare_labels="pooled")
    assert tuning.origins == ["pooled"] * 4
    best = max(value("f1", s, y, "samples", Threshold(cut), {}) for cut in cuts(s))
    assert tuning.value == pytest.approx(best, abs=1e-12)


def test_fewer_than_fifty_share_a_threshold_and_fewer_than_twenty_are_cautioned_against() -> None:
    rng = np.random.default_rng(0)

    def tune(positives: tuple[int, ...], rare_labels: Any) -> Any:
        y = (np.arange(200)[:, None] < np.array(positives)).astype(int)
        return mg.tune_threshold("f1", rng.random(y.shape), y, task="multilabel", rare_labels=rare_labels)

    assert tune((49, 49, 50), "pooled").origins == ["pooled", "pooled", "own"]
    assert tune((151, 49, 150), "pooled").origins == ["pooled", "pooled", "own"]  # as few negatives
    fixed = tune((19, 20, 50), "fixed")
    assert fixed.origins == ["fixed", "own", "own"]
    assert fixed.threshold[0] == 0.5
    assert fixed.rare_labels == [True, False, False]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("average", ["macro", "micro", "samples"])
@pytest.mark.parametrize("columns", [[1, 3], [0, 1, 3]])
def test_one_rare_label_or_none_has_nothing_to_share(average: Any, columns: list[int]) -> None:
    s, y = small(0)
    s, y = s[:, columns], y[:, columns]
    pooled, own = (
        mg.tune_threshold("f1", s, y, task="multilabel", average=average, rare_labels=rare_labels)
        for rare_labels in ("pooled", "own")
    )
    assert pooled.rule == own.rule
    assert pooled.origins == ["own"] * len(columns)
    assert pooled.caution == own.caution
    assert (own.caution is None) == (len(columns) == 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("average", ["macro", "micro", "samples", None])
def test_fixed_labels_stay_at_the_default_and_the_others_are_the_best_beside_them(average: Any) -> None:
    s, y = small(0)
    tuning = mg.tune_threshold(
        "f1", s, y, task="multilabel", average=average, rare_labels="fixed", default_threshold=0.4
    )
    assert (tuning.threshold[0], tuning.threshold[2]) == (0.4, 0.4)
    assert tuning.origins == ["fixed", "own", "fixed", "own"]
    assert tuning.caution == "only 2 positives or negatives in 2 of 4 classes: kept at 0.4"
    assert tuning.value == pytest.approx(value("f1", s, y, average, tuning.rule, {}))
    if average == "macro":
        assert tuning.plateau[0] == (0.4, 0.4)
    for a, b in itertools.product(cuts(s[:, 1]), cuts(s[:, 3])):
        other = np.mean(value("f1", s, y, average, Threshold((0.4, a, 0.4, b)), {}))
        assert other <= np.mean(tuning.value) + (0.05 if average == "samples" else 1e-12)


@pytest.mark.usefixtures("few")
def test_any_increasing_scale_leads_to_the_same_decisions() -> None:
    s, y = small(0)
    for average in ("macro", "micro", "samples"):
        how: dict[str, Any] = {"task": "multilabel", "average": average, "rare_labels": "pooled"}
        plain, steep = mg.tune_threshold("f1", s, y, **how), mg.tune_threshold("f1", np.exp(9 * s) - 50, y, **how)
        assert (plain.rule(s) == steep.rule(np.exp(9 * s) - 50)).all()


@pytest.mark.usefixtures("few")
def test_labels_that_do_not_count_are_in_no_pool() -> None:
    s, y = small(0)
    for average in ("macro", "micro", "samples"):
        how: dict[str, Any] = {"task": "multilabel", "average": average, "labels": [0, 1]}
        pooled, own = (
            mg.tune_threshold("f1", s, y, rare_labels=rare_labels, **how) for rare_labels in ("pooled", "own")
        )
        assert pooled.rule == own.rule
        assert pooled.origins == ["own"] * 4


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("rare_labels", ["pooled", "fixed"])
@pytest.mark.parametrize("confidence", [None, 0.6])
def test_under_a_constraint_every_label_is_tuned_on_its_own_and_meets_it(rare_labels: Any, confidence: Any) -> None:
    s, y = small(0)
    how: dict[str, Any] = {"task": "multilabel", "subject_to": "recall >= 0.4", "confidence": confidence}
    if confidence is not None:
        how["confidence_over"] = "each"
    tuning = mg.tune_threshold("precision", s, y, rare_labels=rare_labels, **how)
    assert tuning.rule == mg.tune_threshold("precision", s, y, rare_labels="own", **how).rule
    assert tuning.origins == ["own"] * 4
    assert min(value("recall", s, y, None, tuning.rule, {})) >= 0.4
    assert tuning.caution == "only 2 positives or negatives in 2 of 4 classes: the threshold is not to be trusted"


@pytest.mark.usefixtures("few")
def test_resamples_do_with_rare_labels_what_was_done_with_all_rows() -> None:
    s, y = small(0)
    tuning = mg.tune_threshold("f1", s, y, task="multilabel", rare_labels="pooled", replicates=20)
    low, _, same, _ = tuning.interval
    assert low == same
    fixed = mg.tune_threshold("f1", s, y, task="multilabel", rare_labels="fixed", replicates=20)
    assert fixed.interval[0] == (0.5, 0.5)
    problem = mg.decisions.TuningSpec("f1", "multilabel", rare_labels="fixed").problem()
    batch = fixed._batch
    times = torch.ones(ROWS, dtype=torch.float64)
    times[torch.as_tensor(y[:, 1] == 1).nonzero()[:4, 0]] = 0  # two positives of label 1 are left in this resample
    assert problem.tune_on_drawn_rows(batch, times).numbers[1] != 0.5


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("rare_labels", ["pooled", "fixed", "own"])
@pytest.mark.parametrize("average", ["macro", "micro"])
def test_an_evaluator_of_shards_does_the_same(rare_labels: Any, average: Any) -> None:
    s, y = small(0)
    whole = mg.tune_threshold("f1", s, y, task="multilabel", average=average, rare_labels=rare_labels)
    shards = [
        mg.Evaluator("f1", task="multilabel", average=average, keep_scores=True).update(s[part], y[part])
        for part in (slice(5), slice(5, None))
    ]
    found = (shards[0] + shards[1]).tune("f1", rare_labels=rare_labels)
    for name in ("rule", "origins", "caution", "plateau", "exact"):
        assert getattr(found, name) == getattr(whole, name), name
    rounded = mg.Evaluator("f1", task="multilabel", average=average, keep_scores=True, score_bits=4).update(s, y)
    coarse = rounded.tune("f1", rare_labels=rare_labels)
    assert coarse.value == pytest.approx(value("f1", s, y, average, coarse.rule, {}))
    assert coarse.threshold[0] == coarse.threshold[2] or rare_labels == "own"
    assert coarse.error is None or rare_labels == "own"


def test_one_decision_is_tuned_or_fixed() -> None:
    s = np.linspace(0, 1, 40)
    y = (np.arange(40) % 9 > 6).astype(int)
    pooled, own, fixed = (
        mg.tune_threshold("f1", s, y, rare_labels=rare_labels) for rare_labels in ("pooled", "own", "fixed")
    )
    assert pooled.rule == own.rule != fixed.rule == Threshold(0.5)
    assert fixed.value == pytest.approx(mg.evaluate(s, y, "f1")["f1"])
    assert fixed.caution == "only 8 positives or negatives: kept at 0.5"
    assert "f1 0.2857 with the default rule" in str(fixed)
    both, labels = np.stack((s, 1 - s), 1), np.stack((y, 1 - y), 1)
    how: dict[str, Any] = {"task": "multilabel", "shared": True, "rare_labels": "fixed"}
    shared = mg.tune_threshold("f1", both[:20], labels[:20], **how)  # 4 + 4 is rare
    assert shared.rule == fixed.rule
    assert shared.exact == fixed.exact
    assert mg.tune_threshold("f1", np.tile(both, (3, 1)), np.tile(labels, (3, 1)), **how).origins == ["own"]


def test_what_makes_no_sense_is_refused_in_one_line() -> None:
    s, y = np.linspace(-3, 3, 12), np.arange(12) % 2
    with pytest.raises(ValueError, match=r"^rare_labels: expected one of 'pooled', 'own', 'fixed', got 'keep'$"):
        mg.tune_threshold("f1", s, y, rare_labels="keep")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"^default_threshold: expected a number, got 'half'$"):
        mg.tune_threshold("f1", s, y, default_threshold="half")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"^default_threshold: expected a number, got nan$"):
        mg.decisions.TuningSpec("f1", default_threshold=float("nan")).problem()
    with pytest.raises(
        ValueError, match=r"^default_threshold: expected one on the scale of the scores, -3 to 3, got 0.5"
    ):
        mg.tune_threshold("f1", s, y, rare_labels="fixed")
    assert mg.tune_threshold("f1", s, y, rare_labels="fixed", default_threshold=0.0).threshold == 0.0
    assert mg.tune_threshold("f1", s, y).origins == ["own"]  # nothing needs the default here
