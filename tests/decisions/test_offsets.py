"""The search for offsets of many classes: incremental counts equal whole matrices, and what is not worth it is left."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics
from metricgrad.core.objective import Objective
from metricgrad.decisions import offsets
from metricgrad.decisions.incremental import make_incremental

pytestmark = pytest.mark.quick


def undefined_at_times(c: mg.Counts) -> Tensor:
    """0/0 where nothing is predicted."""
    return c.tp / c.predicted


def trace_of_shares(c: mg.Confusion) -> Tensor:
    """A metric of the matrix that has no incremental form."""
    return torch.sqrt(c.matrix.diagonal(dim1=-2, dim2=-1)).sum(-1) / c.matrix.sum((-2, -1)).sqrt()


OBJECTIVES: dict[str, Any] = {
    name: lambda name=name: Objective("multiclass", name)
    for name in ("accuracy", "balanced_accuracy", "g_mean", "mcc", "kappa", "quadratic_kappa", "f1", "precision")
} | {
    "micro f2": lambda: Objective("multiclass", "f2", "micro", [0, 2]),
    "weighted jaccard": lambda: Objective("multiclass", "jaccard", "weighted"),
    "macro of some": lambda: Objective("multiclass", "f1", "macro", [1, 3], "skip"),
    "one beta per class": lambda: Objective(
        "multiclass", partial(metrics.f_beta, beta=torch.tensor([0.5, 1.0, 2.0, 4.0]))
    ),
    "empty is one": lambda: Objective("multiclass", partial(metrics.balanced_accuracy, empty=1.0)),
    "undefined at times": lambda: Objective("multiclass", undefined_at_times),
}


def data(seed: int, kind: str) -> tuple[Tensor, Tensor]:
    """Return levels and weighted labels of four classes, one of which may be missing."""
    g = torch.Generator().manual_seed(seed)
    y = F.one_hot(torch.randint(0, 4 - seed % 2, (40,), generator=g), 4).double()
    levels = torch.randn(40, 4, generator=g).double() + y
    if kind == "weighted":
        y = y * torch.rand(40, 1, generator=g).double()
    elif kind == "soft":
        y = 0.8 * y + 0.05
    elif kind == "ties":
        levels = levels.round()
    elif kind == "certain":
        levels[:10] = (y[:10] + 1).log().masked_fill(y[:10] == 0, -torch.inf)
    return levels, y


@pytest.mark.parametrize("kind", ["plain", "weighted", "soft", "ties", "certain"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_incremental_counts_are_exact_along_every_offset(name: str, kind: str) -> None:
    for seed in range(4):
        levels, wy = data(seed, kind)
        climb = offsets._OffsetSearch(levels, wy, OBJECTIVES[name]())
        assert climb.incremental is not None
        start = torch.randn(4, generator=torch.Generator().manual_seed(seed)).double()
        for k in range(4):
            line = offsets._Leaders(levels, start).make_line(k)
            best, place = offsets._search_incrementally(line, climb.incremental, climb.weight)
            other, _ = offsets._search_by_matrices(line, wy, climb._evaluate_matrix)  # 40 rows: looks at every place
            assert best == pytest.approx(other, abs=1e-12), (seed, k)
            assert line.may_stop()[place]
            _, moved = climb._find_best_offset(offsets._Leaders(levels, start), k)
            there = start.clone()
            there[k] = moved
            assert climb.evaluate_offsets(there) == pytest.approx(best, abs=1e-12)


def test_the_two_highest_follow_the_offsets() -> None:
    for seed in range(5):
        levels, _ = data(seed, "ties" if seed % 2 else "plain")
        leaders = offsets._Leaders(levels, torch.zeros(4).double())
        g = torch.Generator().manual_seed(seed)
        for _ in range(30):
            leaders.move_offset(int(torch.randint(0, 4, (), generator=g)), float(torch.randint(-2, 3, (), generator=g)))
            anew = offsets._find_two_highest(levels + leaders.offsets)
            for kept, found in zip((leaders.first, leaders.second), anew, strict=True):
                assert torch.equal(kept.values, found.values)
                assert torch.equal(kept.classes, found.classes)


def test_a_metric_without_an_incremental_form_is_searched_by_matrices_if_there_are_few_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels, wy = data(0, "plain")
    y = wy.argmax(1)
    assert make_incremental(Objective("multiclass", trace_of_shares), wy) is None
    tuning = mg.tune_threshold(trace_of_shares, levels, y, task="multiclass")
    plain = mg.evaluate(levels, y, {"": trace_of_shares}, task="multiclass")[""]
    assert tuning.origins == ["own"] * 4
    assert tuning.value > plain
    monkeypatch.setattr(offsets, "MOST_CLASSES_BY_MATRIX", 3)
    kept = mg.tune_threshold(trace_of_shares, levels, y, task="multiclass")
    assert kept.rule == mg.decisions.Argmax()
    assert kept.value == pytest.approx(plain)
    assert kept.caution == "trace_of_shares has no fast search for 4 classes: the argmax is kept"
    assert "with the default rule" in str(kept)
    # What has an incremental form has no such limit.
    assert mg.tune_threshold("kappa", levels, y, task="multiclass").origins == ["own"] * 4


def test_a_form_that_disagrees_with_the_metric_is_not_used() -> None:
    def of_all(c: mg.Counts) -> Tensor:  # not elementwise: one class's value depends on the others
        return c.tp / c.tp.sum(-1, keepdim=True)

    levels, wy = data(0, "plain")
    assert offsets._OffsetSearch(levels, wy, Objective("multiclass", of_all)).incremental is None


def test_a_metric_of_ones_own_that_no_negative_count_may_enter_has_an_incremental_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rooted(c: mg.Counts) -> Tensor:
        return 1 - torch.sqrt(c.fn * c.fp) / c.total

    levels, wy = data(0, "plain")
    monkeypatch.setattr(offsets, "MOST_CLASSES_BY_MATRIX", 3)  # without such a form four classes would be too many
    tuning = mg.tune_threshold(rooted, levels, wy.argmax(1), task="multiclass")
    assert tuning.origins == ["own"] * 4
    assert tuning.value >= mg.evaluate(levels, wy.argmax(1), {"": rooted}, task="multiclass")[""]


def mean_f1(c: mg.Counts) -> Tensor:
    return metrics.f1(c).mean()


def always_half(_: mg.Counts) -> Any:
    return 0.5


@pytest.mark.parametrize(("metric", "got"), [(mean_f1, r"\(\)"), (always_half, "float")])
def test_a_metric_without_a_value_for_each_class_is_refused_in_one_line(metric: Any, got: str) -> None:
    levels, wy = data(0, "plain")
    with pytest.raises(ValueError, match=rf"^metric: {metric.__name__} must be elementwise.* got {got}$"):
        mg.tune_threshold(metric, levels, wy.argmax(1), task="multiclass")


def test_a_hundred_classes_of_four_rows_end() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 4)
    z = rng.normal(size=(400, 100)) + 3 * np.eye(100)[y]
    tuning = mg.tune_threshold("f1", z, y, task="multiclass")
    assert tuning.value > mg.evaluate(z, y, "f1", task="multiclass", rule=mg.decisions.Argmax())["f1"] + 0.05
    assert tuning.caution == "only 4 positives or negatives in 100 of 100 classes: the threshold is not to be trusted"
    assert tuning.rule == mg.tune_threshold("f1", z, y, task="multiclass").rule


def test_the_work_is_bounded_whatever_the_size() -> None:
    assert offsets.limit_sweeps(400 * 100) == offsets.MOST_SWEEPS
    assert offsets.limit_sweeps(20_000 * 1000) <= 4
    assert offsets.limit_sweeps(1 << 40) == offsets.FEWEST_SWEEPS


def test_rare_classes_may_keep_the_argmax_before_anything_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 19])
    z = rng.normal(size=(109, 3)) + np.eye(3)[y]
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    tuned = mg.tune_threshold("f1", p, y, task="multiclass", rare_labels="fixed", labels=[0, 1])
    assert tuned.caution is None  # the rare class does not count
    assert tuned.threshold != (0.0,) * 3

    def search(*_: Any) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("metricgrad.decisions.problem.tune_offsets", search)
    kept = mg.tune_threshold("f1", p, y, task="multiclass", rare_labels="fixed", replicates=2)
    assert kept.caution == "only 19 positives or negatives in 1 of 3 classes: the argmax is kept"
    assert str(kept).splitlines()[-1] == f"caution: {kept.caution}"
    assert (kept.rule(p) == p.argmax(1)).all()
    assert kept.value == pytest.approx(mg.evaluate(p, y, "f1", task="multiclass")["f1"])
    assert kept.rule == mg.decisions.Argmax()
    assert kept.interval is None
    assert kept.origins == ["fixed"] * 3
    assert 0 < kept.out_of_bag < 1


def test_rare_classes_may_share_the_strength_of_their_offsets() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [60, 30, 10])
    z = rng.normal(size=(100, 3)) + np.eye(3)[y] + np.log([0.6, 0.3, 0.1])
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    tuned = mg.tune_threshold("f1", p, y, task="multiclass", rare_labels="pooled")
    assert tuned.origins == ["pooled"] * 3
    assert tuned.caution == "only 10 positives or negatives in 1 of 3 classes: one number moves the offsets of all"
    shares = -np.log([0.6, 0.3, 0.1])
    strength = tuned.threshold[2] / (shares[2] - shares[0])
    assert np.allclose(tuned.threshold, strength * (shares - shares[0]))
    assert strength > 0
    for other in np.arange(-1, 2.01, 0.05):
        rule = mg.decisions.Offsets(tuple(other * shares), log=True)
        assert mg.evaluate(p, y, "f1", task="multiclass", rule=rule)["f1"] <= tuned.value + 1e-12
    logits = mg.tune_threshold("f1", z, y, task="multiclass", rare_labels="pooled")
    assert np.allclose(logits.threshold, tuned.threshold)
    many = mg.tune_threshold("f1", np.tile(p, (2, 1)), np.tile(y, 2), task="multiclass", rare_labels="pooled")
    assert many.origins == ["own"] * 3


def test_of_pooled_offsets_that_are_equally_good_the_weakest_is_taken() -> None:
    y = torch.tensor([0] * 8 + [1] * 4 + [2] * 2)  # told apart by every strength near 0, and by many others
    scores = torch.nn.functional.one_hot(y).double() * 0.97 + 0.01
    found = mg.tune_threshold("f1", scores, y, task="multiclass", rare_labels="pooled")
    assert found.threshold == (0.0, 0.0, 0.0)
    assert found.value == 1.0


def test_one_class_without_a_value_leaves_none() -> None:
    targets = torch.tensor([0, 1, 2, 0, 1, 2])
    form = make_incremental(Objective("multiclass", undefined_at_times), F.one_hot(targets).double())
    assert form is not None
    weight = torch.ones(6, dtype=torch.float64)
    assert form.value_of_decisions(torch.tensor([0, 1, 2, 0, 2, 2]), weight).item() == pytest.approx(
        (1 + 1 + 2 / 3) / 3
    )
    assert form.value_of_decisions(torch.tensor([0, 1, 1, 0, 1, 1]), weight).item() == -torch.inf
