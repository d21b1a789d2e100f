"""With the hard step the loss is 1 − the value that scikit-learn computes, for every task and average."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from sklearn import metrics as sk

import metricgrad as mg

if TYPE_CHECKING:
    from collections.abc import Callable

M = mg.metrics
Array = npt.NDArray[Any]

# scikit-learn warns of a class that is predicted and never true, and of data with one class alone.
pytestmark = [
    pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true:UserWarning"),
    pytest.mark.filterwarnings("ignore:A single label was found:UserWarning"),
]

# Those that take scikit-learn's average= and zero_division=.
AVERAGED: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "f1": (M.f1, sk.f1_score),
    "f0.5": (partial(M.f_beta, beta=0.5), partial(sk.fbeta_score, beta=0.5)),
    "f2": (partial(M.f_beta, beta=2.0), partial(sk.fbeta_score, beta=2.0)),
    "precision": (M.precision, sk.precision_score),
    "recall": (M.recall, sk.recall_score),
    "jaccard": (M.jaccard, sk.jaccard_score),
}
PLAIN: dict[str, Callable[..., float]] = {
    "accuracy": sk.accuracy_score,
    "mcc": sk.matthews_corrcoef,
    "kappa": sk.cohen_kappa_score,
    "balanced_accuracy": sk.balanced_accuracy_score,
}


def check(
    metric: str | Callable[..., Any],
    logits: Array,
    targets: Array,
    expected: Any,
    weight: Array | None = None,
    **options: Any,
) -> None:
    """Both types that are counted in, and the loss as well as the value of the statistic."""
    loss = mg.MetricLoss(metric, surrogate=mg.surrogates.Hard(), **options)
    y = torch.tensor(targets)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        z = torch.tensor(logits, dtype=dtype)
        w = None if weight is None else torch.tensor(weight, dtype=dtype)
        np.testing.assert_allclose(1 - loss(z, y, w).numpy(), expected, rtol=0, atol=tolerance)
        np.testing.assert_allclose(loss.value(loss.counts(z, y, w)).numpy(), expected, rtol=0, atol=tolerance)


def binary(case: str) -> tuple[Array, Array, Array | None]:
    """Logits, targets and weights; a logit of exactly 0, p = ½, is decided as positive."""
    rng = np.random.default_rng(0)
    n = 41
    z, y = rng.normal(size=n), rng.integers(0, 2, n)
    z[:2] = 0.0
    weight = rng.random(n) if "weighted" in case else None
    if "no positives" in case:
        y[:] = 0
    if "no negatives" in case:
        y[:] = 1
    if "none predicted" in case:
        z = -np.abs(z) - 0.1
    if "all predicted" in case:
        z = np.abs(z)
    return z, y, weight


BINARY_CASES = [
    f"{what}{how}"
    for what in (
        "plain",
        "no positives",
        "no negatives",
        "none predicted",
        "all predicted",
        "no positives, none predicted",
        "no negatives, all predicted",
    )
    for how in ("", ", weighted")
]


@pytest.mark.parametrize("case", BINARY_CASES)
def test_binary(case: str) -> None:
    z, y, w = binary(case)
    decided = (z >= 0).astype(int)
    for empty in (0.0, 1.0):
        for ours, theirs in AVERAGED.values():
            expected = theirs(y, decided, sample_weight=w, zero_division=empty)
            check(partial(ours, empty=empty), z, y, expected, w)
    for name, score in PLAIN.items():
        if name == "kappa" and len(np.unique([y, decided])) == 1:
            continue  # 0/0, which scikit-learn has no value for
        check(name, z, y, score(y, decided, sample_weight=w), w)


@pytest.mark.parametrize("threshold", [0.1, 0.5, 0.73])
def test_threshold_is_on_probabilities(threshold: float) -> None:
    z, y, w = binary("plain, weighted")
    decided = 1 / (1 + np.exp(-z)) >= threshold
    check("f1", z, y, sk.f1_score(y, decided, sample_weight=w), w, threshold=threshold)
    # Several thresholds: the mean of their values.
    several = [0.3, threshold]
    values = [sk.f1_score(y, 1 / (1 + np.exp(-z)) >= t, sample_weight=w) for t in several]
    check("f1", z, y, np.mean(values), w, threshold=several)


def multilabel(case: str) -> tuple[Array, Array, Array | None]:
    rng = np.random.default_rng(1)
    n, classes = 30, 5
    z, y = rng.normal(size=(n, classes)), (rng.random((n, classes)) < 0.4).astype(int)
    weight = rng.random(n) if "weighted" in case else None
    y[::3] = z[::3] >= 0  # rows without any error
    if "absent" in case:
        y[:, 1] = 0  # never true
        z[:, 2] = -1  # never predicted
        y[:, 3], z[:, 3] = 0, -1  # neither
        y[:, 4] = 1  # always true
        z[:5], y[:5] = -1, 0  # rows with nothing in them
    return z, y, weight


@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
@pytest.mark.parametrize("case", ["plain", "weighted", "absent", "absent, weighted"])
def test_multilabel(case: str, average: str | None) -> None:
    z, y, w = multilabel(case)
    decided = (z >= 0).astype(int)
    for empty in (0.0, 1.0):
        for ours, theirs in AVERAGED.values():
            expected = theirs(y, decided, average=average, sample_weight=w, zero_division=empty)
            check(partial(ours, empty=empty), z, y, expected, w, task="multilabel", average=average)


@pytest.mark.parametrize("labels", [[0], [2, 4], [4, 1, 3]])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", "samples", None])
def test_multilabel_of_chosen_labels(average: str | None, labels: list[int]) -> None:
    z, y, w = multilabel("absent, weighted")
    for ours, theirs in AVERAGED.values():
        expected = theirs(y, z >= 0, average=average, labels=labels, sample_weight=w, zero_division=0)
        check(ours, z, y, expected, w, task="multilabel", average=average, labels=labels)


@pytest.mark.parametrize("case", ["plain", "weighted", "absent, weighted"])
def test_multilabel_accuracies(case: str) -> None:
    z, y, w = multilabel(case)
    decided = (z >= 0).astype(int)
    hamming = 1 - sk.hamming_loss(y, decided, sample_weight=w)
    for average in ("macro", "micro", "samples"):
        check("accuracy", z, y, hamming, w, task="multilabel", average=average)
    subset = sk.accuracy_score(y, decided, sample_weight=w)
    assert 0.1 < subset < 0.9
    check("subset_accuracy", z, y, subset, w, task="multilabel", average="samples")
    per_class = [sk.matthews_corrcoef(y[:, k], decided[:, k], sample_weight=w) for k in range(y.shape[1])]
    check("mcc", z, y, per_class, w, task="multilabel", average=None)
    check("mcc", z, y, np.mean(per_class), w, task="multilabel")


def test_absent_classes_can_be_skipped() -> None:
    z, y, w = multilabel("absent, weighted")
    present = [k for k in range(y.shape[1]) if y[:, k].any()]
    assert len(present) < y.shape[1]
    expected = sk.f1_score(y, z >= 0, average="macro", labels=present, sample_weight=w, zero_division=0)
    check("f1", z, y, expected, w, task="multilabel", empty_classes="skip")


def multiclass(case: str) -> tuple[Array, Array, Array | None]:
    rng = np.random.default_rng(2)
    n, d = 50, 5
    y = rng.integers(0, d, n)
    z = rng.normal(size=(n, d)) + 1.5 * np.eye(d)[y]
    weight = rng.random(n) if "weighted" in case else None
    if "absent" in case:
        y[y == 1] = 0  # never true, sometimes predicted
        z[:, 2] = -9  # never predicted, sometimes true
        z[:, 3] = -9  # neither
        y[y == 3] = 0
    return z, y, weight


@pytest.mark.parametrize("labels", [None, [1, 2, 4], [3]])
@pytest.mark.parametrize("average", ["micro", "macro", "weighted", None])
@pytest.mark.parametrize("case", ["plain", "weighted", "absent", "absent, weighted"])
def test_multiclass(case: str, average: str | None, labels: list[int] | None) -> None:
    z, y, w = multiclass(case)
    everything = range(z.shape[1]) if labels is None else labels
    for empty in (0.0, 1.0):
        if average == "weighted" and empty and labels == [3]:
            continue  # no weight at all: scikit-learn gives zero_division, a loss has nothing to learn and gives 1
        for ours, theirs in AVERAGED.values():
            expected = theirs(y, z.argmax(1), average=average, labels=everything, sample_weight=w, zero_division=empty)
            check(partial(ours, empty=empty), z, y, expected, w, task="multiclass", average=average, labels=labels)


@pytest.mark.parametrize("case", ["plain", "weighted", "absent", "absent, weighted"])
def test_multiclass_metrics_of_the_matrix(case: str) -> None:
    z, y, w = multiclass(case)
    decided = z.argmax(1)
    scores: dict[str, Callable[..., float]] = {
        **PLAIN,
        "quadratic_kappa": partial(sk.cohen_kappa_score, weights="quadratic", labels=range(5)),
    }
    for name, score in scores.items():
        check(name, z, y, score(y, decided, sample_weight=w), w, task="multiclass")


def test_two_classes_decided_by_argmax_are_binary() -> None:
    z, y, w = binary("plain, weighted")
    both = np.stack([-z / 2, z / 2], 1)
    keep = z != 0  # a tie goes to the first class for argmax, to the positive one for p ≥ ½
    z, y, w, both = z[keep], y[keep], None if w is None else w[keep], both[keep]
    for ours, theirs in AVERAGED.values():
        expected = theirs(y, z >= 0, sample_weight=w)
        check(ours, both, y, [expected], w, task="multiclass", average=None, labels=[1])
    for name, score in PLAIN.items():
        check(name, both, y, score(y, z >= 0, sample_weight=w), w, task="multiclass")


def test_dense_predictions_are_rows() -> None:
    """(N, K, H, W) is N·H·W rows; weights of samples, positions and elements all find their place."""
    rng = np.random.default_rng(3)
    z, y = rng.normal(size=(2, 3, 4, 5)), rng.integers(0, 2, (2, 3, 4, 5))
    flat = [np.moveaxis(x, 1, -1).reshape(-1, 3) for x in (z, y)]
    for weight in (rng.random(2), rng.random((2, 4, 5))):
        w = np.broadcast_to(weight.reshape(2, *weight.shape[1:] or (1, 1)), (2, 4, 5)).reshape(-1)
        for average in ("micro", "macro", "samples", None):
            expected = sk.f1_score(flat[1], flat[0] >= 0, average=average, sample_weight=w, zero_division=0)
            check("f1", z, y, expected, weight, task="multilabel", average=average)
        classes = rng.integers(0, 3, (2, 4, 5))
        decided = flat[0].argmax(1)
        expected = sk.f1_score(classes.reshape(-1), decided, average="macro", sample_weight=w)
        check("f1", z, classes, expected, weight, task="multiclass")
        check(
            "mcc",
            z,
            classes,
            sk.matthews_corrcoef(classes.reshape(-1), decided, sample_weight=w),
            weight,
            task="multiclass",
        )
        w3 = np.broadcast_to(weight.reshape(2, 1, *weight.shape[1:] or (1, 1)), z.shape).reshape(-1)
        expected = sk.f1_score(y.reshape(-1), z.reshape(-1) >= 0, sample_weight=w3)
        if weight.ndim == 1:
            check("f1", z, y, expected, weight, task="binary")


def test_weights_of_elements_weigh_each_class_apart() -> None:
    z, y, _ = multilabel("empty_classes")
    w = np.random.default_rng(4).random(z.shape)
    for ours, theirs in AVERAGED.values():
        expected = [
            theirs(y[:, k], z[:, k] >= 0, sample_weight=w[:, k], zero_division=0, labels=[1], average="macro")
            for k in range(5)
        ]
        check(ours, z, y, expected, w, task="multilabel", average=None)
        pooled = theirs(y.ravel(), z.ravel() >= 0, sample_weight=w.ravel())
        check(ours, z, y, pooled, w, task="multilabel", average="micro")
        support = (w * y).sum(0)
        check(ours, z, y, expected @ support / support.sum(), w, task="multilabel", average="weighted")


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_labels_are_added_up_in_float64(weighted: bool) -> None:
    z, y, _ = multilabel("plain")
    soft = 0.7 * y + 0.1
    w = np.random.default_rng(5).random(len(z)) if weighted else None
    weight = np.ones((len(z), 1)) if w is None else w[:, None]
    decided = z >= 0
    f1 = 2 * (weight * soft * decided).sum(0) / ((weight * soft).sum(0) + (weight * decided).sum(0))
    found = mg.evaluate(z, soft, "f1", task="multilabel", average=None, threshold=0.0, weight=w)["f1"]
    np.testing.assert_allclose(found, f1, rtol=0, atol=1e-14)


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_labels_of_classes_are_counted_in_parts(weighted: bool) -> None:
    z, y, _ = multiclass("plain")
    classes = z.shape[1]
    soft = 0.6 * np.eye(classes)[y] + 0.4 / classes
    w = np.random.default_rng(5).random(len(z)) if weighted else None
    weight = np.ones(len(z)) if w is None else w
    right = soft[np.arange(len(z)), z.argmax(1)]
    found = mg.evaluate(z, soft, "accuracy", task="multiclass", weight=w)["accuracy"]
    assert found == pytest.approx((weight * right).sum() / weight.sum(), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32])
def test_targets_of_any_type(dtype: torch.dtype) -> None:
    z, y, _ = multilabel("plain")
    expected = 1 - sk.f1_score(y, z >= 0, average="macro")
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=mg.surrogates.Hard())
    assert float(loss(torch.tensor(z), torch.tensor(y).to(dtype))) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_class_indices_of_any_type(dtype: torch.dtype) -> None:
    z, y, _ = multiclass("plain")
    expected = 1 - sk.f1_score(y, z.argmax(1), average="macro")
    loss = mg.MetricLoss("f1", task="multiclass", surrogate=mg.surrogates.Hard())
    assert float(loss(torch.tensor(z), torch.tensor(y).to(dtype))) == pytest.approx(expected, abs=1e-12)
