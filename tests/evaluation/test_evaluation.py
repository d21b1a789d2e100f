"""Evaluation: scikit-learn's values on ordinary and degenerate data; streams, shards and processes equal the whole."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

import metricgrad as mg
from metricgrad.decisions import GFM, Argmax, Offsets, Threshold, TopK, TuningSpec

M = mg.metrics
Array = npt.NDArray[Any]

# scikit-learn warns of what is degenerate; its value is what matters here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning"),
    pytest.mark.filterwarnings("ignore:A single label was found:UserWarning"),
    pytest.mark.filterwarnings("ignore:Only one class is present in y_true:sklearn.exceptions.UndefinedMetricWarning"),
    pytest.mark.filterwarnings("ignore:No positive class found in y_true:UserWarning"),
]

AVERAGED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "f1": (M.f1, sk.f1_score),
    "f0.5": (partial(M.f_beta, beta=0.5), partial(sk.fbeta_score, beta=0.5)),
    "f2": (partial(M.f_beta, beta=2.0), partial(sk.fbeta_score, beta=2.0)),
    "precision": (M.precision, sk.precision_score),
    "recall": (M.recall, sk.recall_score),
    "jaccard": (M.jaccard, sk.jaccard_score),
}
CASES = [
    f"{what}{how}"
    for what in ("random", "ties", "all ties", "no positives", "no negatives", "none predicted", "all predicted")
    for how in ("", ", weighted")
]


def case(name: str, shape: Any, seed: int = 0) -> tuple[Array, Array, Array | None]:
    """Scores in [0, 1], 0/1 targets, and weights of the rows."""
    rng = np.random.default_rng(seed)
    s, y = rng.random(shape), (rng.random(shape) < 0.4).astype(int)
    if "ties" in name:
        s = s.round(1)
    if "all ties" in name:
        s[:] = 0.5
    if "no positives" in name:
        y[:] = 0
    if "no negatives" in name:
        y[:] = 1
    if "none predicted" in name:
        s *= 0.4
    if "all predicted" in name:
        s = 0.5 + s / 2
    return s, y, rng.random(len(s)) if "weighted" in name else None


def both_ways(averaged: dict[str, Any], empty: float) -> dict[str, Any]:
    return {name: partial(ours, empty=empty) for name, (ours, _) in averaged.items()}


# Values


@pytest.mark.parametrize("name", CASES)
def test_binary_values_are_those_of_scikit_learn(name: str) -> None:
    s, y, w = case(name, 41)
    decided = (s >= 0.5).astype(int)
    for empty in (0.0, 1.0):
        got = mg.evaluate(s, y, both_ways(AVERAGED, empty), weight=w)
        for metric, (_, theirs) in AVERAGED.items():
            assert got[metric] == pytest.approx(theirs(y, decided, sample_weight=w, zero_division=empty), abs=1e-12)
    got = mg.evaluate(
        s, y, ["accuracy", "mcc", "balanced_accuracy", "kappa", "specificity", "npv", "auroc", "average_precision"],
        weight=w,
    )  # fmt: skip
    expected = {
        "accuracy": sk.accuracy_score(y, decided, sample_weight=w),
        "mcc": sk.matthews_corrcoef(y, decided, sample_weight=w),
        "balanced_accuracy": sk.balanced_accuracy_score(y, decided, sample_weight=w),
        "kappa": sk.cohen_kappa_score(y, decided, sample_weight=w),
        "specificity": sk.recall_score(y, decided, sample_weight=w, pos_label=0, zero_division=0),
        "npv": sk.precision_score(y, decided, sample_weight=w, pos_label=0, zero_division=0),
        "auroc": sk.roc_auc_score(y, s, sample_weight=w),
        "average_precision": sk.average_precision_score(y, s, sample_weight=w),
    }
    if math.isnan(expected["kappa"]):
        expected["kappa"] = 0.0  # 0/0 is `empty` here
    assert got == pytest.approx(expected, abs=1e-12, nan_ok=True)


def labels_case(name: str) -> tuple[Array, Array, Array | None]:
    s, y, w = case(name, (40, 4), 1)
    if name.startswith("random"):
        y[:, 2] = 0  # a class without positives
        s[:, 3] /= 2  # and one without predictions
    return s, y, w


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
def test_multilabel_values_are_those_of_scikit_learn(name: str, average: Any) -> None:
    s, y, w = labels_case(name)
    decided = (s >= 0.5).astype(int)
    how: dict[str, Any] = {"task": "multilabel", "average": average, "weight": w}
    for empty in (0.0, 1.0):
        got = mg.evaluate(s, y, both_ways(AVERAGED, empty), **how)
        for metric, (_, theirs) in AVERAGED.items():
            expected = theirs(y, decided, average=average, sample_weight=w, zero_division=empty)
            if average == "weighted" and not y.any():
                expected = 0.0  # no class has weight
            np.testing.assert_allclose(got[metric], expected, atol=1e-12, err_msg=f"{metric} {empty}")
    if average in ("micro", "macro"):
        got = mg.evaluate(s, y, ["accuracy", "subset_accuracy"], **how)
        assert got["accuracy"] == pytest.approx(1 - sk.hamming_loss(y, decided, sample_weight=w))
        assert got["subset_accuracy"] == pytest.approx(sk.accuracy_score(y, decided, sample_weight=w))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
def test_multilabel_rankings_are_those_of_scikit_learn(name: str, average: Any) -> None:
    s, y, w = labels_case(name)
    got = mg.evaluate(s, y, ["auroc", "average_precision"], task="multilabel", average=average, weight=w)
    if y.any(0).all() and not y.all(0).any():
        expected = sk.roc_auc_score(y, s, average=average, sample_weight=w)
        np.testing.assert_allclose(got["auroc"], expected, atol=1e-12)
    elif average == "macro":
        assert math.isnan(got["auroc"])
    expected = sk.average_precision_score(y, s, average=average, sample_weight=w)
    np.testing.assert_allclose(got["average_precision"], expected, atol=1e-12)


def classes_case(name: str) -> tuple[Array, Array, Array | None]:
    rng = np.random.default_rng(3)
    n, d = 60, 4
    y = rng.integers(0, d, n)
    p = rng.dirichlet(np.ones(d), n) + 0.5 * np.eye(d)[y]
    if "ties" in name:
        p = p.round(1) + 0.1
    if "all ties" in name:
        p[:] = 1.0
    if "one class" in name:
        y[:] = 2
    if "class unseen" in name:
        y[y == 1] = 0
    p /= p.sum(1, keepdims=True)
    return p, y, rng.random(n) if "weighted" in name else None


CLASS_CASES = [
    f"{what}{how}" for what in ("random", "ties", "all ties", "one class", "class unseen") for how in ("", ", weighted")
]


@pytest.mark.parametrize("name", CLASS_CASES)
def test_multiclass_values_are_those_of_scikit_learn(name: str) -> None:
    p, y, w = classes_case(name)
    decided = p.argmax(1)
    every = [0, 1, 2, 3]
    for average, labels in itertools.product(("micro", "macro", "weighted", None), (None, [1, 3])):
        how: dict[str, Any] = {"task": "multiclass", "average": average, "weight": w, "labels": labels}
        for empty in (0.0, 1.0):
            got = mg.evaluate(p, y, both_ways(AVERAGED, empty), **how)
            for metric, (_, theirs) in AVERAGED.items():
                options = {"average": average, "labels": labels or every, "sample_weight": w, "zero_division": empty}
                if average == "weighted" and not np.isin(y, labels or every).any():
                    assert got[metric] == 0  # no class has weight
                    continue
                np.testing.assert_allclose(got[metric], theirs(y, decided, **options), atol=1e-12, err_msg=metric)
    got = mg.evaluate(
        p, y, ["accuracy", "mcc", "balanced_accuracy", "kappa", "quadratic_kappa"], task="multiclass", weight=w
    )
    expected = {
        "accuracy": sk.accuracy_score(y, decided, sample_weight=w),
        "mcc": sk.matthews_corrcoef(y, decided, sample_weight=w),
        "balanced_accuracy": sk.balanced_accuracy_score(y, decided, sample_weight=w),
        "kappa": sk.cohen_kappa_score(y, decided, labels=every, sample_weight=w),
        "quadratic_kappa": sk.cohen_kappa_score(y, decided, labels=every, weights="quadratic", sample_weight=w),
    }
    expected = {metric: 0.0 if math.isnan(value) else value for metric, value in expected.items()}
    assert got == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize("name", ["random", "random, weighted", "ties", "all ties"])
def test_multiclass_ranking_is_one_against_the_rest(name: str, average: Any) -> None:
    p, y, w = classes_case(name)
    got = mg.evaluate(p, y, ["auroc", "average_precision"], task="multiclass", average=average, weight=w)
    expected = sk.roc_auc_score(y, p, average=average, multi_class="ovr", sample_weight=w)
    np.testing.assert_allclose(got["auroc"], expected, atol=1e-12)
    expected = sk.average_precision_score(np.eye(4)[y], p, average=average, sample_weight=w)
    np.testing.assert_allclose(got["average_precision"], expected, atol=1e-12)
    some = mg.evaluate(p, y, "auroc", task="multiclass", average=None, labels=[3, 1], weight=w)["auroc"]
    whole = sk.roc_auc_score(y, p, average=None, multi_class="ovr", sample_weight=w)
    np.testing.assert_allclose(some, whole[[3, 1]], atol=1e-12)


def test_classes_without_positives_take_no_part_in_a_weighted_or_skipping_ranking() -> None:
    s, y, _ = case("random", (40, 3), 2)
    y[:, 1] = 0
    each = [sk.roc_auc_score(y[:, k], s[:, k]) for k in (0, 2)]
    shares = y[:, [0, 2]].sum(0) / y.sum()
    how: dict[str, Any] = {"task": "multilabel"}
    assert math.isnan(mg.evaluate(s, y, "auroc", **how)["auroc"])
    assert mg.evaluate(s, y, "auroc", empty_classes="skip", **how)["auroc"] == pytest.approx(np.mean(each))
    assert mg.evaluate(s, y, "auroc", average="weighted", **how)["auroc"] == pytest.approx(shares @ each)
    assert mg.evaluate(s, y, "auroc", labels=[0, 2], **how)["auroc"] == pytest.approx(np.mean(each))


def test_interpolated_average_precision_is_a_plain_loop() -> None:
    s, y, w = case("ties, weighted", 50)
    assert w is not None
    points = []
    for t in sorted(set(s), reverse=True):
        tp = (w * y)[s >= t].sum()
        points.append((tp / (w * y).sum(), tp / w[s >= t].sum()))
    total = before = 0.0
    for i, (recall, _) in enumerate(points):
        total += (recall - before) * max(precision for _, precision in points[i:])
        before = recall
    got = mg.evaluate(s, y, "interpolated_average_precision", weight=w)
    assert got["interpolated_average_precision"] == pytest.approx(total, abs=1e-12)
    assert mg.evaluate(s, y, mg.curves.auroc, weight=w) == mg.evaluate(s, y, "auroc", weight=w)


def test_scores_of_infinity_are_scores() -> None:
    s, y = [math.inf, 3.0, -math.inf, 0.0], [1, 0, 0, 1]
    got = mg.evaluate(s, y, ["f1", "auroc", "average_precision"], threshold=0.0)
    assert got == pytest.approx({"f1": 0.8, "auroc": 0.75, "average_precision": (1 + 2 / 3) / 2})
    assert mg.Evaluator("auroc", score_bits=4).update(s, y).compute()["auroc"] == pytest.approx(0.75)


# Rules and scales


def test_rules_decide() -> None:
    s, y, _ = case("random", (30, 3))
    how: dict[str, Any] = {"task": "multilabel"}
    by_class = (s >= [0.2, 0.5, 0.8]).astype(int)
    got = mg.evaluate(s, y, "f1", threshold=[0.2, 0.5, 0.8], **how)
    assert got["f1"] == pytest.approx(sk.f1_score(y, by_class, average="macro"))
    top = TopK(2)(s).astype(int)
    assert mg.evaluate(s, y, "f1", rule=TopK(2), **how)["f1"] == pytest.approx(sk.f1_score(y, top, average="macro"))
    assert mg.evaluate(top, y, "f1", **how)["f1"] == pytest.approx(sk.f1_score(y, top, average="macro"))
    assert mg.evaluate(top.astype(bool), y, "f1", **how) == mg.evaluate(top, y, "f1", **how)
    classes = y.argmax(1)
    decided = (s + np.array([0.3, 0.0, 0.0])).argmax(1)
    rule = Offsets((0.3, 0.0, 0.0), log=False)
    got = mg.evaluate(s, classes, "accuracy", task="multiclass", rule=rule)
    assert got["accuracy"] == pytest.approx((decided == classes).mean())


def test_the_default_cut_is_for_probabilities() -> None:
    logits, y = [3.0, -2.0, 0.2], [1, 0, 1]
    message = r"threshold: 0.5 is for scores in \[0, 1\], got scores from -2 to 3; pass threshold=0.0 for logits"
    with pytest.raises(ValueError, match=message):
        mg.evaluate(logits, y, "f1")
    with pytest.raises(ValueError, match=r"rule=mg\.decisions\.Threshold\(0\.5\) if it is meant"):
        mg.Evaluator("f1").update([0.1], [0]).update([1.5], [1])
    assert mg.evaluate(logits, y, "f1", threshold=0.0)["f1"] == 1
    assert mg.evaluate(logits, y, "f1", rule=Threshold(0.5))["f1"] == pytest.approx(2 / 3)
    assert mg.evaluate(logits, y, "auroc")["auroc"] == 1  # needs no cut
    assert mg.evaluate([*logits, 0.9], [*y, 1], "f1", mask=[False, False, True, True])["f1"] == pytest.approx(2 / 3)
    assert mg.evaluate([[3.0, -2.0]], [0], "accuracy", task="multiclass")["accuracy"] == 1
    assert mg.evaluate([], [], "f1")["f1"] == 0


S, Y = [0.1, 0.9, 0.4], [0, 1, 1]
S2, Y2 = [[0.1, 0.9], [0.4, 0.3]], [[0, 1], [1, 0]]
LABELS: dict[str, Any] = {"task": "multilabel"}
CLASSES: dict[str, Any] = {"task": "multiclass"}


@pytest.mark.parametrize(
    ("scores", "targets", "options", "message"),
    [
        ([0.1, math.nan, math.nan], Y, {}, "scores: expected numbers, got 2 NaN; use mask= to leave them out"),
        (S, [0.0, 1.0, math.nan], {}, "targets: expected numbers, got NaN; use mask= to leave them out"),
        (S, Y, {"weight": [1.0, 1.0, math.nan]}, "weight: expected numbers, got NaN"),
        (S, Y, {"mask": [1, 0, 1]}, "mask: expected bool"),
        (
            S,
            [0, 1, 3],
            {},
            r"targets: expected values in \[0, 1\], got 0, 1, 3; they look like class indices: use task='multiclass'",
        ),
        (
            S2,
            [0, 2],
            CLASSES,
            "targets: expected class indices 0 to 1, got 0, 2; pass ignore_index=2 if .* the scores have too few",
        ),
        (S2, [0, 1], {}, r"got two columns; pass scores\[:, 1\]"),
        (S, Y, {"threshold": 0.3, "rule": Threshold(0.5)}, "threshold: expected none beside rule="),
        (S, Y, {"rule": 0.5}, "rule: expected a decision rule of mg.decisions, got 0.5"),
        (S, Y, {"rule": TuningSpec("f1")}, "rule: expected a decision rule of mg.decisions"),
        (S, Y, {"rule": Argmax()}, r"rule: expected one that decides label by label for this task, got Argmax\(\)"),
        (S2, Y2, {**LABELS, "rule": Argmax()}, "rule: expected one that decides label by label"),
        (S2, [0, 1], {**CLASSES, "rule": Threshold(0.5)}, "rule: expected one that decides a class for each row"),
        (S2, [0, 1], {**CLASSES, "threshold": 0.3}, "threshold: task='multiclass' decides by argmax"),
        (S2, Y2, {**LABELS, "threshold": [0.1, 0.2, 0.3]}, r"scores: expected \(N, 3\), one threshold each"),
        (S2, Y2, {**LABELS, "rule": GFM()}, r"scores: expected \(N, K, S \+ 1\), got \(2, 2\)"),
        (S2, Y2, {**LABELS, "average": None, "class_names": ["a"]}, "class_names: expected 2, one per class, got 1"),
        (S2, Y2, {**LABELS, "average": None, "labels": [1], "class_names": ["a"]}, "class_names: expected 2, one per"),
        (S2, Y2, {**LABELS, "labels": [2]}, "labels: expected class indices below 2, got 2"),
        (S, Y, {"average": "mean"}, "average: expected one of"),
        (S, Y, {"score_bits": 1}, "score_bits: expected 2 to 52 or None, got 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(scores: Any, targets: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        mg.evaluate(scores, targets, ["f1"], **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metrics", "options", "message"),
    [
        ([], {}, "metrics: expected at least one, each under a name of its own"),
        (["f1", "f1"], {}, "metrics: expected at least one, each under a name of its own"),
        ("f_one", {}, "metric: unknown name 'f_one'"),
        ("auroc", {**LABELS, "average": "samples"}, "average: 'samples' is not for auroc"),
        ("quadratic_kappa", {}, "metric: quadratic_kappa is of the d×d matrix"),
        ("subset_accuracy", {}, "metric: subset_accuracy is of rows"),
    ],
)
def test_metrics_that_do_not_fit_are_refused(metrics: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.Evaluator(metrics, **options)


def test_an_evaluator_without_data_has_no_values() -> None:
    with pytest.raises(ValueError, match="compute: expected at least one update before, got none"):
        mg.Evaluator("f1").compute()
    with pytest.raises(ValueError, match=r"process_group: torch\.distributed is not initialised"):
        mg.Evaluator("f1").merged()


def test_names_of_metrics_and_classes() -> None:
    def mine(c: mg.Counts) -> torch.Tensor:
        return mg.metrics.ratio(c.tp, c.total)

    s, y, _ = case("random", (20, 3))
    how: dict[str, Any] = {**LABELS, "average": None, "class_names": ["cat", "dog", "cow"]}
    got = mg.evaluate(s, y, {"F": "f1", "mine": mine, "area": "auroc"}, **how)
    assert list(got) == ["F", "mine", "area"]
    for values in got.values():
        assert list(values) == ["cat", "dog", "cow"]
    expected = sk.f1_score(y, s >= 0.5, average=None)
    assert got["F"] == pytest.approx(dict(zip(["cat", "dog", "cow"], expected, strict=True)))
    assert list(mg.evaluate(s, y, mine, **how, labels=[2, 0])["mine"]) == ["cow", "cat"]
    assert mg.evaluate(s, y, "f1", **{**how, "average": "macro"})["f1"] == pytest.approx(expected.mean())
    assert "task='multilabel'" in repr(mg.Evaluator(["f1", "auroc"], **how))


def test_torch_numpy_pandas_and_dense_maps() -> None:
    s, y, w = case("random, weighted", 30)
    assert w is not None
    expected = mg.evaluate(s, y, ["f1", "auroc"], weight=w)
    for kind in (torch.tensor, pd.Series, list, lambda x: x[:, None], lambda x: x.reshape(5, 3, 2)):
        assert mg.evaluate(kind(s), kind(y), ["f1", "auroc"], weight=kind(w)) == pytest.approx(expected)
    frame = pd.DataFrame({"score": s, "label": y, "weight": w})
    got = mg.evaluate(frame["score"], frame["label"], ["f1", "auroc"], weight=frame["weight"])
    assert got == pytest.approx(expected)
    maps, labels, _ = case("random", (4, 3, 2, 5))
    got = mg.evaluate(maps, labels, ["f1", "auroc"], **LABELS)
    flat = [np.moveaxis(x, 1, -1).reshape(-1, 3) for x in (maps, labels)]
    assert got["f1"] == pytest.approx(sk.f1_score(flat[1], flat[0] >= 0.5, average="macro"))
    assert got["auroc"] == pytest.approx(sk.roc_auc_score(flat[1], flat[0], average="macro"))


def test_counts_are_exact_in_chunks_and_beyond_float32() -> None:
    rng = np.random.default_rng(0)
    s, y = rng.random(600_000).astype(np.float32), rng.random(600_000) < 0.3
    got = mg.evaluate(s, y, ["precision", "recall"])
    tp = (y & (s >= 0.5)).sum()
    assert got == {"precision": tp / (s >= 0.5).sum(), "recall": tp / y.sum()}
    heavy = np.array([2.0**24, 1.0, 1.0, 2.0**25 + 1])  # float32 would lose the ones
    four = np.array([0.9, 0.9, 0.1, 0.1], np.float32)
    got = mg.evaluate(four, [1, 0, 1, 0], ["precision", "recall"], weight=heavy)
    assert got == {"precision": 2.0**24 / (2.0**24 + 1), "recall": 2.0**24 / (2.0**24 + 1)}


# Streams, shards, masks, weights

EVERYTHING: dict[str, tuple[dict[str, Any], Any]] = {
    "binary": ({}, ["f1", "mcc", "auroc", "average_precision"]),
    "macro": ({**LABELS}, ["f1", "accuracy", "subset_accuracy", "auroc", "interpolated_average_precision"]),
    "micro": ({**LABELS, "average": "micro"}, ["f1", "mcc", "average_precision"]),
    "samples": ({**LABELS, "average": "samples", "labels": [0, 2]}, ["f1", "jaccard"]),
    "each": ({**LABELS, "average": None}, ["f1", "auroc"]),
    "classes": ({**CLASSES}, ["f1", "kappa", "quadratic_kappa", "auroc"]),
    "weighted classes": ({**CLASSES, "average": "weighted", "labels": [1, 2]}, ["f2", "average_precision"]),
}


def stream(name: str, n: int, seed: int = 0) -> tuple[Array, Array]:
    s, y, _ = case("ties", (n, 3), seed)
    if name == "binary":
        return s[:, 0], y[:, 0]
    return s, np.random.default_rng(seed).integers(0, 3, n) if "classes" in name else y


def assert_same(got: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(got) == list(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_stream_equals_the_whole_and_shards_add(name: str, weighted: bool) -> None:
    options, metrics = EVERYTHING[name]
    s, y = stream(name, 57)
    w = np.random.default_rng(5).random(57) if weighted else None
    expected = mg.evaluate(s, y, metrics, weight=w, **options)
    one, two = (mg.Evaluator(metrics, **options) for _ in range(2))
    for i, rows in enumerate(np.split(np.arange(57), [3, 3, 10, 30, 31])):  # one of them empty
        part = (two if i % 2 else one).update(s[rows], y[rows], None if w is None else w[rows])
        assert part in (one, two)
    before = one.compute()
    assert_same((one + two).compute(), expected)
    assert_same((two + one).compute(), expected)
    assert_same((one + two + mg.Evaluator(metrics, **options)).compute(), expected)
    assert_same(one.compute(), before)  # adding changes neither
    assert_same(pickle.loads(pickle.dumps(one + two)).compute(), expected)  # noqa: S301
    assert_same((one + two).update(s[:0], y[:0]).compute(), expected)


def test_evaluators_made_differently_do_not_add() -> None:
    whole = mg.Evaluator("f1").update([0.9], [1])
    for other in (mg.Evaluator("f2"), mg.Evaluator("f1", threshold=0.3), mg.Evaluator({"f1": "recall"})):
        with pytest.raises(ValueError, match=r"\+: expected evaluators made alike"):
            whole + other
    with pytest.raises(TypeError):
        whole + 1  # type: ignore[operator]
    rounded = [mg.Evaluator("auroc", score_bits=bits).update([0.9], [1]) for bits in (4, 5)]
    with pytest.raises(ValueError, match="score_bits: expected equal ones to add up, got 4 and 5"):
        rounded[0] + rounded[1]


@pytest.mark.parametrize("name", EVERYTHING)
def test_masking_rows_is_deleting_them_and_ignoring_a_target_too(name: str) -> None:
    options, metrics = EVERYTHING[name]
    s, y = stream(name, 40, 1)
    keep = np.arange(40) % 3 != 1
    expected = mg.evaluate(s[keep], y[keep], metrics, **options)
    hidden = s.copy()
    hidden[~keep] = np.nan
    assert_same(mg.evaluate(hidden, y, metrics, mask=keep, **options), expected)
    void = y.copy()
    void[~keep] = -1
    assert_same(mg.evaluate(hidden, void, metrics, ignore_index=-1, **options), expected)
    nothing = mg.evaluate(hidden, y, metrics, mask=np.zeros(40, bool), **options)
    assert all(v == 0 or math.isnan(v) for value in nothing.values() for v in np.ravel(value))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 3), min_size=12, max_size=12), st.sampled_from(sorted(EVERYTHING)))
def test_law_weights_are_repetitions(times: list[int], name: str) -> None:
    options, metrics = EVERYTHING[name]
    s, y = stream(name, 12, 2)
    rows = np.repeat(np.arange(12), times)
    got = mg.evaluate(s, y, metrics, weight=np.array(times, float), **options)
    expected = mg.evaluate(s[rows], y[rows], metrics, **options)
    assert_same(got, expected)


# Rounded scores


def kinds_of_scores(rng: np.random.Generator, kind: int, shape: Any) -> Array:
    return np.asarray(
        [
            rng.random(shape),
            rng.normal(size=shape) * 5,
            -rng.random(shape),
            rng.integers(-3, 3, shape) / 3,
            10.0 ** rng.uniform(-300, 0, shape) * rng.choice([-1, 1], shape),
            rng.choice([-math.inf, -0.0, 0.0, 1e-310, 1e300, math.inf], shape),
        ][kind % 6]
    )


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
def test_rounding_is_off_by_no_more_than_it_says(average: Any) -> None:
    metrics = ["auroc", "average_precision", "interpolated_average_precision"]
    off = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        y = (rng.random((60, 3)) < rng.choice([0.1, 0.5])).astype(int)
        y[:2] = [[0, 1, 0], [1, 0, 1]]
        s = kinds_of_scores(rng, seed, y.shape)
        w = rng.random(60) + 0.1 if seed % 3 == 0 else None
        exact = mg.evaluate(s, y, metrics, weight=w, average=average, **LABELS)
        rounded = mg.Evaluator(metrics, average=average, score_bits=2 + seed % 4, **LABELS)
        for rows in np.split(np.arange(60), [20]):
            rounded.update(s[rows], y[rows], None if w is None else w[rows])
        got, error = rounded.compute(), rounded.curve_error()
        for name in metrics:
            distance = np.abs(np.array(got[name]) - exact[name])
            assert (distance <= np.array(error[name]) + 1e-12).all(), (seed, name)
            off += int((distance > 1e-9).any())
    assert off > 60  # otherwise nothing was rounded


def test_classes_of_one_kind_do_not_spoil_the_bound() -> None:
    # Pooled, the classes tie with each other although neither has ties of its own.
    apart = mg.Evaluator(["auroc", "average_precision"], average="micro", score_bits=2, **LABELS)
    apart.update([[0.9, 0.89], [0.91, 0.61]], [[1, 0], [1, 0]])
    exact = mg.evaluate([[0.9, 0.89], [0.91, 0.61]], [[1, 0], [1, 0]], "auroc", average="micro", **LABELS)
    assert exact["auroc"] == 1
    assert apart.compute()["auroc"] == 0.75
    assert apart.curve_error()["auroc"] == 0.25
    each = mg.Evaluator("auroc", score_bits=4, empty_classes="skip", **LABELS)
    each.update([[0.9, 0.1], [0.3, 0.2]], [[1, 0], [0, 0]])
    assert each.curve_error()["auroc"] == 0


def test_eleven_bits_are_nearly_exact_and_without_rounding_there_is_no_error() -> None:
    s, y, _ = case("random", 3000)
    exact, rounded = (mg.Evaluator(["auroc", "average_precision"], score_bits=bits) for bits in (None, 11))
    for evaluator in (exact, rounded):
        evaluator.update(s, y)
    assert exact.curve_error() == {"auroc": 0.0, "average_precision": 0.0}
    assert 0 < rounded.curve_error()["auroc"] < 1e-3
    assert rounded.compute() == pytest.approx(exact.compute(), abs=1e-3)
    assert mg.Evaluator("auroc").curve_error() == {"auroc": 0.0}


def held(evaluator: mg.Evaluator) -> list[int]:
    """How many scores wait in each part of the first class's table."""
    return [len(part[0]) for part in evaluator._statistics["scores"].tables[0].parts]


def test_memory_is_bounded_and_small_batches_do_not_pile_up() -> None:
    g = torch.Generator().manual_seed(0)
    rounded = mg.Evaluator("auroc", score_bits=6)
    for _ in range(40):
        rounded.update(torch.rand(5000, generator=g), torch.randint(2, (5000,), generator=g))
    assert sum(held(rounded)) < 1500  # of 200000: 32 numbers an octave
    exact = mg.Evaluator("auroc")
    for _ in range(600):
        exact.update(torch.rand(4, generator=g), torch.randint(2, (4,), generator=g))
    assert sum(held(exact)) <= 2400
    assert len(held(exact)) < 15
    counts = mg.Evaluator(["f1", "mcc"]).update(torch.rand(5000, generator=g), torch.randint(2, (5000,), generator=g))
    assert set(counts._statistics) == {"cells"}  # no scores are kept without need
