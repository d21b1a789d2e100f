"""Decision rules: small values that apply to anything; label sets of the best expected F-beta, against all 2^K sets."""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

import metricgrad as mg
import reference as ref
from metricgrad.core.storable import KINDS
from metricgrad.decisions import (
    GFM,
    Argmax,
    ArgmaxOrAbstain,
    ExpectedFBeta,
    Offsets,
    Rule,
    SizeHead,
    Threshold,
    TopK,
    TuningSpec,
    WeightedTopK,
    threshold_averaging,
)
from metricgrad.decisions.default_rule import default_rule
from metricgrad.decisions.expected_f import _find_probable_sizes, _find_size_probabilities, _find_sizes_without_each

pytestmark = pytest.mark.quick

Array = npt.NDArray[Any]

SCORES = np.array([[0.2, 0.7, 0.1], [0.5, 0.1, 0.4], [0.3, 0.3, 0.4]])
RULES: list[tuple[Rule, str, Any]] = [
    (Threshold(0.4), "Threshold(threshold=0.4)", SCORES >= 0.4),
    (Threshold((0.4, 0.3, 0.05)), "Threshold(threshold=(0.4, 0.3, 0.05))", SCORES >= [0.4, 0.3, 0.05]),
    (Argmax(), "Argmax()", [1, 0, 2]),
    (Offsets((0.0, 0.0, 3.0), log=True), "Offsets(offsets=(0.0, 0.0, 3.0), log=True)", [2, 2, 2]),
    (Offsets((0.0, 0.0, 0.2), log=False), "Offsets(offsets=(0.0, 0.0, 0.2), log=False)", [1, 2, 2]),
    (TopK(2), "TopK(k=2)", [[True, True, False], [True, False, True], [True, False, True]]),
    (TopK(0), "TopK(k=0)", np.zeros((3, 3), bool)),
    (
        WeightedTopK(1, (1.0, 2.0, 0.0), (0.0, 0.0, 0.45)),
        "WeightedTopK(k=1, scale=(1.0, 2.0, 0.0), offset=(0.0, 0.0, 0.45))",
        [[False, True, False], [True, False, False], [False, True, False]],
    ),
    (ExpectedFBeta(2.0), "ExpectedFBeta(beta=2.0, empty=0.0)", None),
]


@pytest.mark.parametrize(("rule", "text", "expected"), RULES, ids=[text for _, text, _ in RULES])
def test_rules_print_compare_pickle_and_apply_to_anything(rule: Rule, text: str, expected: Any) -> None:
    assert repr(rule) == text
    again = pickle.loads(pickle.dumps(rule))  # noqa: S301
    assert again == rule == copy.deepcopy(rule)
    assert hash(again) == hash(rule)
    assert [other == rule for other, _, _ in RULES].count(True) == 1
    got = rule(SCORES)
    assert isinstance(got, np.ndarray)
    if expected is not None:
        np.testing.assert_array_equal(got, expected)
    for given in (SCORES.tolist(), pd.DataFrame(SCORES), SCORES.astype(np.float32)):
        decided = rule(given)
        assert isinstance(decided, np.ndarray)
        np.testing.assert_array_equal(decided, got)
    np.testing.assert_array_equal(rule(SCORES[::-1]), got[::-1])
    for dtype in (torch.float32, torch.float64):
        decided = rule(torch.tensor(SCORES, dtype=dtype))
        assert isinstance(decided, Tensor)
        np.testing.assert_array_equal(decided, got)
    assert len(rule(torch.zeros(0, 3))) == 0
    with pytest.raises(ValueError, match="scores: expected numbers, got 1 NaN"):
        rule(np.where(SCORES == 0.7, np.nan, SCORES))


def test_thresholds_of_any_kind_are_one_value() -> None:
    same: list[Any] = [
        (0.25, 0.5),
        [0.25, 0.5],
        np.array([0.25, 0.5]),
        torch.tensor([0.25, 0.5]),
        pd.Series([0.25, 0.5]),
    ]
    assert {Threshold(given) for given in same} == {Threshold((0.25, 0.5))}
    one: list[Any] = [1, 1.0, np.float64(1), torch.tensor(1)]
    assert {Threshold(given) for given in one} == {Threshold(1.0)}
    assert Offsets([0, 1], log=False) == Offsets((0.0, 1.0), log=False)  # type: ignore[arg-type]


def test_a_threshold_compares_in_the_scores_own_type() -> None:
    tenth = np.array([0.1], np.float32)  # above 0.1 in float64, equal in float32
    for t in (0.1, float(np.nextafter(np.float32(0.1), np.float32(1)))):
        assert Threshold(t)(tenth)[0] == (tenth >= t)[0] == (torch.tensor(tenth) >= t).item()
        assert Threshold((t,))(tenth[:, None])[0, 0] == (tenth >= t)[0]


def test_shapes_of_thresholds() -> None:
    maps = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    cuts = (0.2, 0.5, 0.8)
    for k, cut in enumerate(cuts):
        assert (Threshold(cuts)(maps)[:, k] == (maps[:, k] >= cut)).all()
    assert Threshold(0.5)([0.4, 0.6]).tolist() == [False, True]
    assert Threshold(math.inf)([1e300]).tolist() == [False]


def test_offsets_tell_float32_probabilities_apart_as_the_argmax_does() -> None:
    # In float32 the logarithms of these neighbours are equal, and the first of equals would win.
    several = (torch.tensor(1e-3).view(torch.int32) + torch.arange(100, dtype=torch.int32)).view(torch.float32)
    i = int((several.log().diff() == 0).nonzero()[0])
    p = torch.full((1, 1000), float(several[i]))
    p[0, 1] = several[i + 1]
    assert Offsets((0.0,) * 1000, log=True)(p).tolist() == Argmax()(p).tolist() == [1]


def test_top_k_takes_the_first_of_equals() -> None:
    rng = np.random.default_rng(0)
    s = rng.integers(0, 3, (20, 6)).astype(float)
    for k in range(7):
        decided = TopK(k)(s)
        for row, got in zip(s, decided, strict=True):
            best = sorted(range(6), key=lambda i: (-row[i], i))[:k]
            assert sorted(np.flatnonzero(got)) == sorted(best)


@pytest.mark.parametrize("rule", [TopK(2), WeightedTopK(2, (1.0, 1.0, 1.0), (0.0, 0.0, 0.0))])
def test_a_positive_without_a_score_is_not_among_the_highest(rule: Rule) -> None:
    scores = sp.csr_matrix([[0.5, 0.0, 0.0], [0.0, 0.3, 0.4]])
    targets = sp.csr_matrix([[1, 0, 1], [0, 1, 0]])  # the last label of the first row has no score
    np.testing.assert_array_equal(rule(scores).toarray(), [[True, False, False], [False, True, True]])
    found = mg.evaluate(scores, targets, ["recall", "precision"], task="multilabel", rule=rule, average=None)
    assert found["recall"] == [1.0, 1.0, 0.0]
    assert found["precision"] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Threshold(math.nan), "threshold: expected a number or one per class, got nan"),
        (lambda: Threshold(()), "threshold: expected a number or one per class"),
        (lambda: Threshold("half"), "threshold: expected numbers"),  # type: ignore[arg-type]
        (lambda: Threshold((0.1, 0.2))(SCORES), r"scores: expected \(N, 2\), one threshold each; got \(3, 3\)"),
        (lambda: Argmax()([0.1, 0.2]), r"scores: expected \(N, K\), got \(2,\)"),
        (lambda: Offsets((), log=True), "offsets: expected one number per class"),
        (lambda: Offsets((0.0, math.nan), log=True), "offsets: expected one number per class"),
        (lambda: Offsets((0.0, 1.0), log=True)(SCORES), "scores: expected 2 classes, one offset each; got 3"),
        (lambda: Offsets((0.0,) * 3, log=True)(-SCORES), "scores: expected probabilities, got -0.7"),
        (lambda: TopK(-1), "k: expected a whole number of at least 0, got -1"),
        (lambda: TopK(4)(SCORES), "k: expected at most the 3 labels there are, got 4"),
        (lambda: ExpectedFBeta(0.0), "beta: expected a positive number, got 0.0"),
        (lambda: ExpectedFBeta()(SCORES * 2), "scores: expected probabilities, got 0.2 to 1.4"),
        (lambda: ExpectedFBeta()(SCORES[0]), r"scores: expected \(N, K\), got \(3,\)"),
        (lambda: ExpectedFBeta()(SCORES[:, :0]), "scores: expected at least one label"),
        (lambda: GFM()(SCORES), r"scores: expected \(N, K, S \+ 1\), got \(3, 3\)"),
        (lambda: SizeHead(4, 3, sizes=4), "sizes: expected 1 to 3, got 4"),
        (lambda: SizeHead(4, 3).loss(torch.zeros(2, 4), torch.zeros(2, 2)), r"targets: expected shape \(2, 3\)"),
        (lambda: TuningSpec("f1", task="neither").problem(), "task: expected one of"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# The best label set in expectation


def all_sets(k: int) -> Array:
    return np.array(list(itertools.product((0, 1), repeat=k)))


def table(k: int, beta: float, empty: float) -> Array:
    """F-beta of every predicted set (rows) for every true set (columns)."""
    sets = all_sets(k)
    tp, size = sets @ sets.T, sets.sum(1)[:, None] + beta**2 * sets.sum(1)
    return np.where(size > 0, (1 + beta**2) * tp / np.where(size > 0, size, 1), empty)


def place(row: Array) -> int:
    return int("".join(str(int(x)) for x in row), 2)


BETAS = [(0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.0)]


@pytest.mark.parametrize(("beta", "empty"), BETAS)
@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_expected_f_beta_is_the_best_of_all_sets(k: int, beta: float, empty: float) -> None:
    rng = np.random.default_rng(k)
    p = rng.beta(0.5, 0.8, (40, k))
    p[:8] = rng.choice([0.0, 1.0, 0.5], (8, k))
    p[8:16] = rng.choice([0.0, 1.0, 1e-9, 1 - 1e-9, 0.3], (8, k))
    p[16] = 0.0
    p[17] = 1.0
    sets, values = all_sets(k), table(k, beta, empty)
    chances = np.prod(np.where(sets[None] == 1, p[:, None], 1 - p[:, None]), axis=2)  # (rows, true sets)
    expected = chances @ values.T
    for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 1e-6)):
        decided = ExpectedFBeta(beta, empty)(p.astype(dtype))
        for row, worth in zip(decided, expected, strict=True):
            assert worth[place(row)] == pytest.approx(worth.max(), abs=tolerance)
    assert not decided[16].any()
    assert decided[17].all()


@pytest.mark.parametrize(("beta", "empty"), BETAS)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_gfm_is_the_best_of_all_sets_for_any_joint(k: int, beta: float, empty: float) -> None:
    rng = np.random.default_rng(10 + k)
    sets, values = all_sets(k), table(k, beta, empty)
    chances = rng.dirichlet(np.full(len(sets), 0.1), 60)  # few sets carry most of the weight: dependent labels
    chances[0] = np.eye(len(sets))[0]
    chances[1] = np.eye(len(sets))[-1]
    joint = np.zeros((60, k, k + 1))
    for chance, y in zip(chances.T, sets, strict=True):
        joint[:, y == 1, y.sum()] += chance[:, None]
        if not y.any():
            joint[:, :, 0] += chance[:, None]
    expected = chances @ values.T
    joint = joint.clip(0, 1)
    for row, worth in zip(GFM(beta, empty)(joint), expected, strict=True):
        assert worth[place(row)] == pytest.approx(worth.max(), abs=1e-12)
    wider = np.pad(joint, ((0, 0), (0, 0), (0, 3)))  # sizes that never occur
    np.testing.assert_array_equal(GFM(beta, empty)(wider), GFM(beta, empty)(joint))


def test_gfm_of_independent_labels_is_expected_f_beta() -> None:
    rng = np.random.default_rng(4)
    p = rng.random((30, 7))
    joint = np.zeros((30, 7, 8))
    for y in all_sets(7):
        chance = np.prod(np.where(y == 1, p, 1 - p), axis=1)
        joint[:, y == 1, y.sum()] += chance[:, None]
        joint[:, :, 0] += chance[:, None] * (not y.any())
    np.testing.assert_array_equal(GFM()(joint), ExpectedFBeta()(p))


def plain_sizes(p: Array) -> tuple[Array, Array]:
    """P(|y| = s), and P(|y without i| = s) for every i, each by adding one label after the other."""

    def added(parts: Array) -> Array:
        found = np.ones(1)
        for q in parts:
            found = np.convolve(found, (1 - q, q))
        return found

    return added(p), np.array([added(np.delete(p, i)) for i in range(len(p))])


HARD: dict[str, Array] = {
    "random": np.random.default_rng(0).random(200),
    "halves": np.full(200, 0.5),
    "around a half": 0.5 + np.linspace(-1e-9, 1e-9, 200),
    "rare": np.full(200, 1e-3),
    "nearly sure": 1 - np.random.default_rng(1).random(200) * 1e-12,
    "exactly 0 and 1": np.random.default_rng(2).choice([0.0, 1.0, 0.5], 200),
    "spread": 10.0 ** np.linspace(-15, 0, 200),
}


@pytest.mark.parametrize("name", HARD)
def test_two_hundred_labels_are_stable(name: str) -> None:
    p = np.sort(HARD[name])[::-1]
    total, others = plain_sizes(p)
    marginals = torch.tensor(p.copy()).unsqueeze(0)
    sizes = _find_size_probabilities(marginals)
    first, last = _find_probable_sizes(sizes)
    np.testing.assert_allclose(sizes[0], total, rtol=0, atol=1e-13)
    for low, high in ((0, 199), (first - 1, last - 1)):
        without = _find_sizes_without_each(marginals, sizes, low, high)
        np.testing.assert_allclose(without[0], others[:, low : high + 1], rtol=0, atol=1e-12)
    assert (total[1:first] < 1e-19).all()
    assert (total[last + 1 :] < 1e-19).all()
    k = np.arange(1, 201)
    for beta in (0.5, 1.0, 2.0):
        within = np.cumsum(p[:, None] * others, axis=0)  # E[hits among the first k; |y| = s]
        worth = ((1 + beta**2) * within / (k[:, None] + beta**2 * k)).sum(1)
        size = int(ExpectedFBeta(beta)(p[None]).sum())
        assert worth[size - 1] == pytest.approx(worth.max(), abs=1e-12)
        assert ExpectedFBeta(beta)(p[None])[0, :size].all()


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    p, joint = torch.rand(50, 6, generator=g), torch.rand(50, 6, 4, generator=g) / 6
    whole = ExpectedFBeta()(p), GFM()(joint)
    monkeypatch.setattr("metricgrad.decisions.expected_f._NUMBERS_AT_ONCE", 100)
    assert torch.equal(ExpectedFBeta()(p), whole[0])
    assert torch.equal(GFM()(joint), whole[1])
    assert GFM()(torch.zeros(0, 6, 4)).shape == (0, 6)
    weighted_top_k = WeightedTopK(2, scale=(1.0, 2.0, 1.0, 1.0, 3.0, 1.0), offset=(0.0,) * 6)
    decided = weighted_top_k(p)
    monkeypatch.setattr("metricgrad.decisions.rules._SCORES_AT_ONCE", 5)  # less than a row
    assert torch.equal(weighted_top_k(p), decided)


def test_where_no_label_can_be_true_none_is_expected() -> None:
    assert not ExpectedFBeta()(torch.zeros(3, 4)).any()


# Labels that depend on each other


def dependent(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two kinds of rows with equal marginals, 0.4 for each of five labels.

    First kind: all five or none; second kind: exactly two.
    """
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(2, (n,), generator=g)
    together = (torch.rand(n, 1, generator=g) < 0.4).expand(n, 5)
    two = torch.rand(n, 5, generator=g).argsort(1) < 2
    y = torch.where((kind == 0).unsqueeze(1), together, two)
    return torch.nn.functional.one_hot(kind, 2).float(), y.long()


@pytest.fixture(scope="module")
def head() -> SizeHead:
    torch.manual_seed(0)
    head = SizeHead(2, 5)
    x, y = dependent(1500, 0)
    optimiser = torch.optim.Adam(head.parameters(), lr=0.1)
    for _ in range(100):
        optimiser.zero_grad()
        head.loss(x, y).backward()
        optimiser.step()
    return head


def test_a_size_head_learns_the_joint(head: SizeHead) -> None:
    joint = head.joint(torch.eye(2)).detach()
    truth = torch.zeros(2, 5, 6)
    truth[0, :, 5], truth[0, :, 0] = 0.4, 0.6
    truth[1, :, 2] = 0.4
    torch.testing.assert_close(joint, truth, rtol=0, atol=0.05)
    again = SizeHead(2, 5)
    again.load_state_dict(head.state_dict())
    again = pickle.loads(pickle.dumps(again))  # noqa: S301
    assert torch.equal(again.joint(torch.eye(2)), head.joint(torch.eye(2)))


def test_gfm_beats_every_threshold_where_labels_depend_on_each_other(head: SizeHead) -> None:
    worth = partial(mg.metrics.f1, empty=1.0)  # an empty prediction is right for an empty row
    x, y = dependent(4000, 1)
    joint = head.joint(x).detach()
    how: dict[str, Any] = {"task": "multilabel", "average": "samples"}

    def judge(decided: Tensor) -> float:
        return ref.samples(decided.double().numpy(), y.double().numpy(), partial(ref.f_beta, empty=1.0))

    gfm = judge(GFM(empty=1.0)(joint))
    marginals = torch.full((4000, 5), 0.4)  # what a perfect model of each label alone gives
    for shared in (True, False):  # tuned on the very rows that judge: as good as thresholds get
        tuning = mg.tune_threshold(worth, marginals, y, shared=shared, **how)
        assert gfm > tuning.value + 0.07
    assert gfm == pytest.approx((0.6 + 4 / 7) / 2, abs=0.02)
    assert gfm > judge(ExpectedFBeta(empty=1.0)(marginals)) + 0.07


def test_sets_larger_than_sizes_count_as_that_large() -> None:
    head = SizeHead(2, 4, sizes=2)
    y = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    logits, empty = head(torch.eye(2)[[0, 1, 0]])
    classes = torch.tensor([[2, 2, 2, 0], [0, 0, 0, 0], [1, 0, 0, 0]])
    logs = logits.log_softmax(2).gather(2, classes.unsqueeze(2)).squeeze(2)
    none = torch.tensor([False, True, False])
    expected = -logs.mean() - torch.where(none, empty, -empty).sigmoid().log().mean()
    for targets in (y, y.bool(), y.float()):
        torch.testing.assert_close(head.loss(torch.eye(2)[[0, 1, 0]], targets), expected)
    head.loss(torch.eye(2)[[0, 1, 0]], y).backward()
    assert head.linear.weight.grad is not None


# Threshold averaging


@pytest.mark.parametrize("name", ["f1", "jaccard", "accuracy"])
def test_threshold_averaging_is_a_plain_loop(name: str) -> None:
    metric = {"f1": ref.f_beta, "jaccard": ref.jaccard, "accuracy": ref.accuracy}[name]
    rng = np.random.default_rng(6)
    s, y = rng.random((40, 5)).round(1), (rng.random((40, 5)) < 0.4).astype(int)
    y[:3] = 0
    best = []
    for row, labels in zip(s, y, strict=True):
        if labels.any():
            cells = [ref.counts((row >= t)[:, None].astype(float), labels[:, None].astype(float)) for t in row]
            values = [metric(*(c[cell][0] for cell in ("tp", "fp", "fn", "tn"))) for c in cells]
            best.append(max(t for t, v in zip(row, values, strict=True) if v >= max(values) - 1e-12))
    found = threshold_averaging(s, y, name)
    assert found.threshold == pytest.approx(np.mean(best), abs=1e-12)
    exact = mg.tune_threshold(name, s, y, task="multilabel", average="samples", shared=True)
    assert exact.value >= mg.evaluate(s, y, name, task="multilabel", average="samples", rule=found)[name]


def test_threshold_averaging_needs_a_positive() -> None:
    with pytest.raises(ValueError, match="targets: expected at least one row with a positive label, got none"):
        threshold_averaging([[0.1, 0.2]], [[0, 0]])


# A rule that abstains


def test_the_highest_score_is_predicted_where_it_reaches_its_threshold() -> None:
    rule = ArgmaxOrAbstain((0.5, 0.9, math.inf), abstain_label=-7)
    scores = [[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.1, 0.9, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]
    assert rule(np.array(scores)).tolist() == [0, -7, 1, -7, -7]
    assert rule.abstains
    assert rule.numbers == (0.5, 0.9, math.inf)
    with pytest.raises(ValueError, match="scores: expected 3 classes, one threshold each; got 2"):
        rule(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="abstain_label: expected a whole number besides the class indices 0 to 2"):
        ArgmaxOrAbstain((0.5, 0.9, 1.0), abstain_label=2)
    with pytest.raises(ValueError, match="thresholds: expected one number per class"):
        ArgmaxOrAbstain((0.5, math.nan))


# One class knows all about a rule


@dataclass(frozen=True)
class Above(Rule):
    """A rule of a user's own: nothing but ``decide``."""

    cut_off: float = 0.4

    def decide(self, scores: Tensor) -> Tensor:
        return scores > self.cut_off


def test_every_rule_is_exported_and_known_to_files_by_being_defined() -> None:
    ours = {name for name, kind in KINDS.items() if issubclass(kind, Rule)}
    assert ours == {
        *("Argmax", "ArgmaxOrAbstain", "ExpectedFBeta", "GFM", "LeastCost", "LeastCostOfClasses", "Offsets"),
        *("Threshold", "TopK", "WeightedTopK"),
    }
    assert all(name in vars(mg.decisions)["__all__"] for name in ours)
    assert all(getattr(mg.decisions, name) is KINDS[name] for name in ours)
    assert "Above" not in KINDS, "a file must not name code that is not this library's"


def test_a_kind_of_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^Threshold: expected a name of its own, got that of metricgrad\.decisions"):
        type("Threshold", (Rule,), {"__module__": "metricgrad.elsewhere"})
    assert KINDS["Threshold"] is Threshold


@pytest.mark.parametrize(
    ("rule", "numbers", "text", "cut"),
    [
        (Threshold(0.25), 0.25, "threshold 0.25", 0.25),
        (Threshold((0.5, 0.125)), (0.5, 0.125), "a threshold per label, 0.125 to 0.5", 0.125),
        (Threshold(math.inf), math.inf, "threshold inf", None),
        (Argmax(), None, "largest score", None),
        (Offsets((0.0, 1.0), log=True), (0.0, 1.0), "largest score with offsets", None),
        (TopK(2), None, "the 2 largest scores", None),
        (WeightedTopK(2, (1.0, 2.0), (0.0, 0.5)), None, "the 2 largest weighted scores", None),
        (Above(), None, "Above(cut_off=0.4)", None),
    ],
)
def test_a_rule_tells_its_numbers_its_words_and_its_cut(rule: Rule, numbers: Any, text: str, cut: Any) -> None:
    assert rule.numbers == numbers
    assert rule.describe() == text
    assert rule.threshold_of(1) == cut


@pytest.mark.parametrize(
    "rule",
    [Threshold(0.3), Threshold((0.2, 0.5, 0.9)), Argmax(), *(Offsets((0.0, 1.0, -0.5), log) for log in (True, False))],
)
def test_at_centred_probabilities_the_default_rule_decides_as_the_rule_does(rule: Rule) -> None:
    p = torch.rand(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p[0] = torch.tensor([0.3, 0.5, 0.9])  # at thresholds
    default = default_rule(rule.tasks[-1])
    assert torch.equal(default.decide(rule.recentre_probabilities(p)), rule.decide(p))
    assert torch.equal(Above().recentre_probabilities(p), p)


def test_the_default_rule() -> None:
    assert [default_rule(task) for task in ("binary", "multilabel")] == [Threshold(0.5)] * 2
    assert default_rule("multiclass") == Argmax()
    assert default_rule("binary", 0.0) == Threshold(0.0)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9, 1e-9, 1 - 1e-9])
def test_what_stands_at_the_threshold_is_more_probable_than_a_half(threshold: float) -> None:
    at = torch.tensor([threshold], dtype=torch.float64)
    below = torch.nextafter(at, torch.zeros_like(at))
    rule = Threshold(threshold)
    moved = rule.recentre_probabilities(torch.cat((below, at)))
    assert rule(torch.cat((below, at))).tolist() == [False, True]
    assert moved[0] <= 0.5 < moved[1]
    assert moved[1] == pytest.approx(0.5, abs=1e-6)
