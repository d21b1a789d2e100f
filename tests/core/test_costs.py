"""``Cost``: values against naive loops, decisions against the argmin, weights, bad input."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad.core.batch import encode
from metricgrad.core.metrics import savings

pytestmark = pytest.mark.quick

MATRIX = [[0.0, 1.0, 4.0], [2.0, -1.0, 3.0], [9.0, 5.0, 0.5]]


def make_rows(seed: int, rows: int = 60) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    targets = (random.random(rows) < 0.3).astype(int)
    probabilities = random.random(rows)
    tp, tn = random.normal(size=(2, rows))
    fn = tp + random.exponential(20, rows)
    fp = tn + random.exponential(2, rows)
    return probabilities, targets, {"fp": fp, "fn": fn, "tp": tp, "tn": tn}


def count_money(costs: dict[str, np.ndarray], targets: np.ndarray, decisions: np.ndarray) -> float:
    """Add up the cost of each row, by hand."""
    total = 0.0
    for i, (y, decided) in enumerate(zip(targets, decisions, strict=True)):
        cell = ("tp" if decided else "fn") if y else ("fp" if decided else "tn")
        total += float(costs[cell][i])
    return total


@pytest.mark.parametrize("seed", range(3))
def test_total_per_row_and_savings_against_a_loop(seed: int) -> None:
    p, y, each = make_rows(seed)
    cost = mg.Cost(**each)
    decided = p >= 0.5
    total = count_money(each, y, decided)
    none = count_money(each, y, np.zeros_like(y))
    everything = count_money(each, y, np.ones_like(y))
    perfect = count_money(each, y, y)
    cheaper = min(none, everything)
    assert cost.total(y, decided) == pytest.approx(total)
    assert cost.per_row(y, decided) == pytest.approx(total / len(y))
    assert cost.of_rows(y, decided).sum() == pytest.approx(total)
    assert cost.alike(y) == pytest.approx([none, everything])
    assert cost.savings(y, decided) == pytest.approx((cheaper - total) / (cheaper - perfect))
    assert cost.savings(y, y) == pytest.approx(1)
    assert max(cost.savings(y, np.full_like(y, k)) for k in (0, 1)) == pytest.approx(0)


@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_the_argmin_of_expected_cost(seed: int) -> None:
    p, _, each = make_rows(seed)
    if_negative = p * each["fn"] + (1 - p) * each["tn"]
    if_positive = p * each["tp"] + (1 - p) * each["fp"]
    cost = mg.Cost(**each)
    assert (cost.decide(p) == (if_positive <= if_negative)).all()
    assert cost.expect(p) == pytest.approx(np.column_stack((if_negative, if_positive)))
    assert (cost.adjust(p) >= 0.5).tolist() == cost.decide(p).tolist()
    assert isinstance(cost.decide(torch.from_numpy(p)), torch.Tensor)


def test_decisions_of_several_classes_are_the_argmin() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    expected = np.array([[sum(row[i] * MATRIX[i][j] for i in range(3)) for j in range(3)] for row in p])
    cost = mg.Cost(matrix=MATRIX)
    assert (cost.decide(p) == expected.argmin(1)).all()
    y = np.arange(40) % 3
    decided = cost.decide(p)
    by_hand = sum(MATRIX[i][j] for i, j in zip(y, decided, strict=True))
    assert cost.total(y, decided) == pytest.approx(by_hand)
    cheaper = min(sum(MATRIX[i][k] for i in y) for k in range(3))
    perfect = sum(MATRIX[i][i] for i in y)
    assert cost.savings(y, decided) == pytest.approx((cheaper - by_hand) / (cheaper - perfect))
    one_hot = np.eye(3)[decided]
    assert mg.evaluate(one_hot, y, cost, task="multiclass")["savings"] == pytest.approx(cost.savings(y, decided))


def test_a_row_in_which_nothing_is_at_stake_is_not_predicted() -> None:
    cost = mg.Cost(fp=[0.0, 1.0], fn=[0.0, 1.0])
    assert cost.decide([0.9, 0.5]).tolist() == [False, True]


def test_constant_costs_are_a_metric_of_counts() -> None:
    counts = mg.Counts(*map(torch.tensor, (30.0, 4.0, 6.0, 60.0)))
    cost = mg.Cost(fp=3.0, fn=12.0, tp=-2.0, tn=1.0)
    assert cost(counts) == savings(counts, fp=2.0, fn=14.0)
    y = [1] * 36 + [0] * 64
    decided = [1] * 30 + [0] * 6 + [1] * 4 + [0] * 60
    assert cost(counts).item() == pytest.approx(cost.savings(y, decided))


def test_weighed_rows_have_the_savings_of_the_money() -> None:
    p, y, each = make_rows(4)
    cost = mg.Cost(**each)
    for threshold in (0.2, 0.5, 0.8):
        found = mg.evaluate(p, y, [cost, "f1"], threshold=threshold)
        assert found["savings"] == pytest.approx(cost.savings(y, p >= threshold))
        assert found["f1"] == mg.evaluate(p, y, "f1", threshold=threshold)["f1"]


def test_soft_labels_are_weighed_by_part() -> None:
    cost = mg.Cost(fp=[2.0, 4.0], fn=[10.0, 20.0])
    logits = torch.zeros(2, 1, dtype=torch.float64)
    targets = torch.tensor([[0.25], [0.5]], dtype=torch.float64)
    weighed = cost.weigh(encode("binary", logits, targets))
    assert weighed.weight is not None
    assert torch.allclose((weighed.weight * weighed.targets).squeeze(1), torch.tensor([2.5, 10.0]).double())
    assert torch.allclose((weighed.weight * (1 - weighed.targets)).squeeze(1), torch.tensor([1.5, 2.0]).double())


def test_rows_are_taken_by_index_mask_slice_and_as_scikit_learn_does() -> None:
    from sklearn.utils import _safe_indexing

    cost = mg.Cost(fp=1.0, fn=[5.0, 6.0, 7.0])
    assert cost.take([2, 0]) == mg.Cost(fp=1.0, fn=[7.0, 5.0])
    assert cost.take(np.array([True, False, True])) == mg.Cost(fp=1.0, fn=[5.0, 7.0])
    assert cost.take(slice(1, 3)) == mg.Cost(fp=1.0, fn=[6.0, 7.0])
    assert _safe_indexing(cost, np.array([1])) == mg.Cost(fp=1.0, fn=[6.0])
    assert mg.Cost(fp=1.0, fn=2.0).take([0]) == mg.Cost(fp=1.0, fn=2.0)
    assert mg.Cost(fp=1.0, fn=[0.0, 2.0]).take([0]).decide([0.9]).tolist() == [False]
    assert not hasattr(mg.Cost(fp=1.0, fn=2.0), "shape")


def test_columns_of_a_table_and_texts() -> None:
    import pandas as pd

    cost = mg.Cost.from_text("fp=5, fn=amount, tp=-0.5")
    assert cost == mg.Cost(fp=5.0, fn="amount", tp=-0.5)
    assert mg.Cost.from_text(cost.to_text()) == cost
    frame = pd.DataFrame({"amount": [10, 20]})
    assert cost.of_table(frame) == mg.Cost(fp=5.0, fn=[10.0, 20.0], tp=-0.5)
    assert cost.of_table(frame).mean() == mg.Cost(fp=5.0, fn=15.0, tp=-0.5)


@pytest.mark.parametrize("metric", ["constant", "rows"])
def test_the_tuned_threshold_is_exact(metric: str) -> None:
    for seed in range(5):
        p, y, each = make_rows(seed)
        p = p.round(1)  # ties
        cost = mg.Cost(**each) if metric == "rows" else mg.Cost(fp=2.0, fn=9.0, tp=-1.0)
        tuned = mg.tune_threshold(cost, p, y)
        best = max(cost.savings(y, p >= threshold) for threshold in [*np.unique(p), 2.0])
        assert tuned.exact
        assert tuned.value == pytest.approx(best)
        assert cost.savings(y, p >= tuned.threshold) == pytest.approx(best)


def test_weights_are_repetitions() -> None:
    p, y, each = make_rows(1, 12)
    times = np.arange(12) % 3
    rows = np.repeat(np.arange(12), times)
    cost = mg.Cost(**each)
    repeated = mg.evaluate(p[rows], y[rows], cost.take(rows))["savings"]
    assert mg.evaluate(p, y, cost, weight=times)["savings"] == pytest.approx(repeated)


def test_offsets_of_several_classes_lower_the_cost() -> None:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, 300)
    p = np.exp(random.normal(size=(300, 3)) + 1.5 * np.eye(3)[y])
    p /= p.sum(1, keepdims=True)
    cost = mg.Cost(matrix=MATRIX)
    tuned = mg.tune_threshold(cost, p, y, task="multiclass")
    assert tuned.value == pytest.approx(cost.savings(y, tuned.rule(p)))
    assert tuned.value > cost.savings(y, p.argmax(1))


def test_intervals_of_costs_per_row() -> None:
    p, y, each = make_rows(0, 300)
    cost = mg.Cost(**each)
    found = mg.bootstrap(p, y, [cost, "f1"], replicates=200)
    assert list(found) == ["savings", "f1"]
    assert found["savings"].value == pytest.approx(cost.savings(y, p >= 0.5))
    assert found["savings"].low < found["savings"].value < found["savings"].high
    better = mg.compare_paired(cost.adjust(p), p, y, cost, replicates=200)["savings"]
    assert better.a == pytest.approx(cost.savings(y, cost.decide(p)))
    retuned = mg.bootstrap(p, y, cost, rule=mg.decisions.TuningSpec(cost), replicates=20)["savings"]
    assert retuned.low < retuned.high
    with pytest.raises(ValueError, match="tuned for the costs per row"):
        mg.bootstrap(p, y, "f1", rule=mg.decisions.TuningSpec(cost), replicates=20)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"fp": 1.0}, "fn: expected a cost, got None"),
    ({}, "fp: expected a cost, got None"),
    ({"fp": 1.0, "fn": [1.0, float("nan")]}, "fn: expected finite numbers, got 1 NaN or infinite"),
    ({"fp": float("inf"), "fn": 1.0}, "fp: expected finite numbers, got inf"),
    ({"fp": 1.0, "fn": [[1.0, 2.0]]}, r"fn: expected a number or one per row, \(N,\), got shape \(1, 2\)"),
    ({"fp": [1.0, 2.0], "fn": [1.0]}, "expected arrays of one length, a number for each row, got 2 of fp, 1 of fn"),
    (
        {"fp": 1.0, "fn": 1.0, "tn": 2.0},
        "fp: expected at least tn, since a wrong decision is no gain, got fp − tn = -1",
    ),
    ({"fp": 1.0, "fn": [3.0, 1.0], "tp": 2.0}, "fn: expected at least tp.* got fn − tp = -1 in row 1"),
    ({"fp": 1.0, "fn": 2.0, "tp": 2.0}, "got the same in every row; it never pays to predict positive"),
    ({"fp": 0.0, "fn": 2.0}, "it never pays to predict negative"),
    ({"fp": 1.0, "fn": ["a", "b"]}, "fn: expected numbers"),
    ({"fp": "", "fn": 1.0}, "fp: expected a number, an array or the name of a column, got an empty text"),
    ({"matrix": [[0, 1], [1, 0], [1, 1]]}, r"matrix: expected shape \(d, d\), rows true and columns predicted"),
    ({"matrix": [[0, 1], [float("nan"), 0]]}, "matrix: expected finite numbers, got 1 NaN or infinite"),
    ({"matrix": [[1, 0], [1, 0]]}, "expected no cost below that of the right decision, got 0 for class 0 predicted as"),
    (
        {"matrix": [[0, 1, 0], [1, 0, 0], [1, 1, 0]]},
        "column 0 nowhere below column 2; it never pays to predict class 0",
    ),
    ({"matrix": [[0, 1], [1, 0]], "fp": 1.0}, "matrix: expected no other cost beside it"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_costs_are_refused_in_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        mg.Cost(**given)
    assert "\n" not in str(caught.value)


def test_bad_use_is_refused_in_one_line() -> None:
    cost = mg.Cost(fp=1.0, fn=[5.0, 6.0, 7.0])
    named = mg.Cost(fp=1.0, fn="amount")
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: cost.decide([0.1, 0.2]), "expected one number for each of 2 rows, got 3; pass costs=cost.take"),
        (lambda: cost.decide([0.1, 0.2, 1.5]), r"probabilities: expected numbers in \[0, 1\], got 1.5"),
        (lambda: cost.decide(np.zeros((3, 2))), r"pass probabilities\[:, 1\]"),
        (lambda: cost.total([0, 1], [0, 1]), "expected one number for each of 2 rows, got 3"),
        (lambda: cost.total([0, 1, 0], [0, 1]), "decisions: expected one for each of 3 targets, got 2"),
        (lambda: cost.total([0, 1, 0], [0.2, 0.7, 0.1]), "decisions: expected 0 and 1, got other values"),
        (lambda: named.decide([0.1]), "got the column 'amount'; pass cost.of_table"),
        (lambda: named.of_table({"price": [1.0]}), "fn: expected a column of the table, got 'amount'; it has price"),
        (lambda: named.of_table({"amount": [np.nan]}), "fn: column 'amount': expected finite numbers"),
        (lambda: mg.Cost.from_text("fp=5, miss=3"), "expected fp=..., fn=..., tp=... or tn=..., each once, got 'miss"),
        (lambda: mg.Cost.from_text("fp=5"), "expected both fp=... and fn=..., got 'fp=5'"),
        (lambda: cost.to_text(), "expected numbers and names of columns here, got an array"),
        (lambda: mg.evaluate([0.1, 0.2], [0, 1], cost), "expected one number for each of 2 rows, got 3"),
        (lambda: mg.tune_threshold(cost, [0.1, 0.2], [0, 1]), "expected one number for each of 2 rows, got 3"),
        (
            lambda: mg.tune_threshold(cost, [0.1, 0.2, 0.3], [0, 1, 1], subject_to="precision >= 0.5"),
            "subject_to: expected costs that are the same for every row",
        ),
        (lambda: mg.metrics.get(cost), "expected costs that are the same for every row here"),
        (
            lambda: mg.evaluate(np.zeros((3, 2)), np.zeros((3, 2), int), cost, task="multilabel"),
            "expected the same costs for every row with task='multilabel'",
        ),
        (lambda: mg.evaluate([0.1], [1], mg.Cost(matrix=MATRIX)), "of the d×d matrix"),
        (
            lambda: mg.evaluate(np.eye(4), np.arange(4), mg.Cost(matrix=MATRIX), task="multiclass"),
            "matrix: expected costs of 4 classes, got 3",
        ),
        (
            lambda: mg.Evaluator(cost, keep_scores=True).update([0.1, 0.2, 0.3], [0, 1, 1]).tune(cost),
            "got arrays; use tune_threshold",
        ),
    ]
    for call, message in calls:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_batches_and_shards_add_up() -> None:
    p, y, each = make_rows(2)
    cost = mg.Cost(**each)
    parts = []
    for rows in (slice(0, 20), slice(20, 60)):
        part = mg.Evaluator({"money": cost.take(rows)})
        parts.append(part.update(p[rows], y[rows]))
    together = parts[0] + parts[1]
    assert together.compute()["money"] == pytest.approx(cost.savings(y, p >= 0.5))


def test_repr_and_equality() -> None:
    assert repr(mg.Cost(fp=1, fn=2, tp=-3)) == "Cost(fp=1.0, fn=2.0, tp=-3.0)"
    assert repr(mg.Cost(matrix=[[0, 1], [1, 0]])) == "Cost(matrix=[[0.0, 1.0], [1.0, 0.0]])"
    several = [mg.Cost(fp=1, fn=2), mg.Cost(fp=1, fn=[2.0]), mg.Cost(fp=1, fn="x"), mg.Cost(matrix=MATRIX)]
    for one, two in itertools.combinations(several, 2):
        assert one != two
    assert hash(mg.Cost(fp=1, fn=2)) == hash(mg.Cost(fp=1, fn=2.0))
