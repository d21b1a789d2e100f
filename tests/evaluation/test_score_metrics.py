"""Metrics of scores: the values of scikit-learn and torchmetrics; streams, weights and resamples add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sk
from torchmetrics import functional as tm

import metricgrad as mg

R = np.random.default_rng(0)
N = 240
BINARY = (R.random(N).round(2), R.integers(0, 2, N))
LABELS = (R.random((N, 5)).round(1), (R.random((N, 5)) < 0.4).astype(int))
LABELS[1][:3] = 0
LABELS[1][3:5] = 1
CLASSES = (R.dirichlet(np.ones(4), N), R.integers(0, 4, N))
WEIGHT = R.random(N)
TASKS: dict[str, tuple[Any, Any]] = {"binary": BINARY, "multilabel": LABELS, "multiclass": CLASSES}


def by_label(function: Any) -> Any:
    """The mean over labels of a function of scikit-learn that takes one."""
    return lambda y, s, **options: np.mean([function(y[:, k], s[:, k], **options) for k in range(s.shape[1])])


EQUAL: list[tuple[str, str, Any]] = [
    ("brier_score", "binary", sk.brier_score_loss),
    ("brier_score", "multilabel", by_label(sk.brier_score_loss)),
    ("brier_score", "multiclass", sk.brier_score_loss),
    ("log_loss", "binary", sk.log_loss),
    ("log_loss", "multilabel", by_label(sk.log_loss)),
    ("log_loss", "multiclass", sk.log_loss),
    ("hamming_loss", "binary", lambda y, s, **o: sk.hamming_loss(y, s >= 0.5, **o)),
    ("hamming_loss", "multilabel", lambda y, s, **o: sk.hamming_loss(y, s >= 0.5, **o)),
    ("hamming_loss", "multiclass", lambda y, s, **o: sk.hamming_loss(y, s.argmax(1), **o)),
    ("ndcg", "multilabel", sk.ndcg_score),
    ("ndcg@2", "multilabel", lambda y, s, **o: sk.ndcg_score(y, s, k=2, **o)),
    ("ranking_loss", "multilabel", sk.label_ranking_loss),
    ("coverage_error", "multilabel", sk.coverage_error),
    ("top_k_accuracy", "multiclass", sk.top_k_accuracy_score),
    ("top_k_accuracy@3", "multiclass", lambda y, s, **o: sk.top_k_accuracy_score(y, s, k=3, **o)),
    ("auroc@0.2", "binary", lambda y, s, **o: sk.roc_auc_score(y, s, max_fpr=0.2, **o)),
    ("auroc@1", "binary", sk.roc_auc_score),
    ("auroc", "multiclass", lambda y, s, **o: sk.roc_auc_score(y, s, multi_class="ovr", **o)),
]


@pytest.mark.parametrize(("name", "task", "reference"), EQUAL)
@pytest.mark.parametrize("weighted", [False, True])
def test_values_of_scikit_learn(name: str, task: Any, reference: Any, weighted: bool) -> None:
    scores, targets = TASKS[task]
    found = mg.evaluate(scores, targets, name, task=task, weight=WEIGHT if weighted else None)[name]
    expected = reference(targets, scores, **({"sample_weight": WEIGHT} if weighted else {}))
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("average", ["macro", "weighted"])
def test_one_against_one(average: Any) -> None:
    scores, targets = CLASSES
    found = mg.evaluate(scores, targets, "auroc_ovo", task="multiclass", average=average)["auroc_ovo"]
    assert found == pytest.approx(sk.roc_auc_score(targets, scores, multi_class="ovo", average=average), abs=1e-12)
    weighted = mg.evaluate(np.repeat(scores, 2, 0), np.repeat(targets, 2), "auroc_ovo", task="multiclass")
    doubled = mg.evaluate(scores, targets, "auroc_ovo", task="multiclass", weight=np.full(N, 2.0))
    assert weighted == pytest.approx(doubled)


def test_values_of_torchmetrics() -> None:
    scores, targets = (torch.from_numpy(x) for x in BINARY)
    found = mg.evaluate(scores, targets, ["expected_calibration_error", "expected_calibration_error@7"])
    for name, bins in (("expected_calibration_error", 15), ("expected_calibration_error@7", 7)):
        expected = tm.classification.binary_calibration_error(scores, targets, n_bins=bins)
        assert found[name] == pytest.approx(expected.item(), abs=1e-6)
    p, y = (torch.from_numpy(x) for x in CLASSES)
    expected = tm.classification.multiclass_calibration_error(p, y, num_classes=4, n_bins=15)
    found = mg.evaluate(p, y, "expected_calibration_error", task="multiclass")
    assert found["expected_calibration_error"] == pytest.approx(expected.item(), abs=1e-6)
    assert mg.evaluate(scores, targets, "equal_error_rate")["equal_error_rate"] == pytest.approx(
        tm.classification.binary_eer(scores, targets).item(), abs=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("trees", [10, 15, 30])
def test_votes_of_trees_are_on_the_edges_of_calibration_bins(trees: int, dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(trees)
    votes = torch.randint(0, trees + 1, (400,), generator=g).to(dtype) / trees
    targets = torch.randint(0, 2, (400,), generator=g)
    for bins in (5, 10, 15):
        name = f"expected_calibration_error@{bins}"
        expected = tm.classification.binary_calibration_error(votes, targets, n_bins=bins).item()
        assert mg.evaluate(votes, targets, name)[name] == pytest.approx(expected, abs=1e-6)


def test_of_equal_scores_the_last_is_among_the_best_as_in_scikit_learn() -> None:
    targets = np.array([0, 0, 0, 1, 1, 2])
    for scores in (np.full((6, 3), 1 / 3), np.array([[0.4, 0.4, 0.2]] * 6), np.array([[0.2, 0.4, 0.4]] * 6)):
        for k in (1, 2):
            name = f"top_k_accuracy@{k}"
            found = mg.evaluate(scores, targets, name, task="multiclass")[name]
            assert found == pytest.approx(sk.top_k_accuracy_score(targets, scores, k=k))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_log_loss_in_half_precision_is_that_of_the_same_numbers(dtype: torch.dtype) -> None:
    p, y = torch.tensor([0.0, 1.0, 0.002, 0.5, 1.0]).to(dtype), torch.tensor([0, 1, 0, 1, 0])
    half, single = (mg.evaluate(s, y, "log_loss")["log_loss"] for s in (p, p.float()))
    assert half == single == pytest.approx(sk.log_loss(y, p.float().numpy()))
    # Rounding to half precision moves the sum of a row by more than a thousandth.
    classes = torch.softmax(torch.randn(300, 7, generator=torch.Generator().manual_seed(0)), 1).to(dtype)
    targets = torch.arange(300) % 7
    rounded = mg.evaluate(classes, targets, "log_loss", task="multiclass")["log_loss"]
    assert rounded == pytest.approx(sk.log_loss(targets, classes.double() / classes.double().sum(1, True)), rel=0.01)


def test_of_two_points_that_are_equally_near_the_equal_error_rate_is_the_larger() -> None:
    for scores, targets in (([0.9, 0.5, 0.1], [1, 0, 1]), ([0.9, 0.5, 0.1], [0, 1, 0])):
        # In the first, FNR and FPR are 1/2 and 0 at 0.9, and 1/2 and 1 at 0.5; the second is its mirror image.
        assert mg.evaluate(scores, targets, "equal_error_rate")["equal_error_rate"] == 0.75


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
@pytest.mark.parametrize("metric", ["precision", "f1", "recall"])
def test_metrics_at_k_are_those_of_top_k(metric: str, average: Any) -> None:
    scores, targets = LABELS
    found = mg.evaluate(scores, targets, f"{metric}@2", task="multilabel", average=average, weight=WEIGHT)
    rule = mg.decisions.TopK(2)
    expected = mg.evaluate(scores, targets, metric, task="multilabel", average=average, weight=WEIGHT, rule=rule)
    assert found[f"{metric}@2"] == pytest.approx(expected[metric], abs=1e-12)


ALL = {
    "binary": [
        "brier_score",
        "log_loss",
        "expected_calibration_error",
        "hamming_loss",
        "equal_error_rate",
        "auroc@0.2",
    ],
    "multilabel": ["brier_score", "expected_calibration_error", "ndcg@3", "ranking_loss", "coverage_error", "f1@2"],
    "multiclass": ["brier_score", "log_loss", "top_k_accuracy", "auroc_ovo", "hamming_loss"],
}


@pytest.mark.parametrize("task", list(TASKS))
def test_batches_add_up_and_the_last_batch_has_its_own_value(task: Any) -> None:
    scores, targets = TASKS[task]
    evaluator = mg.Evaluator(ALL[task], task=task)
    parts = [slice(0, 100), slice(100, 180), slice(180, N)]
    for part in parts:
        alone = evaluator(scores[part], targets[part])
        assert alone == pytest.approx(mg.evaluate(scores[part], targets[part], ALL[task], task=task), abs=1e-12)
    whole = mg.evaluate(scores, targets, ALL[task], task=task)
    assert evaluator.compute() == pytest.approx(whole, abs=1e-12)
    evaluator.reset()
    with pytest.raises(ValueError, match="expected at least one update"):
        evaluator.compute()
    assert evaluator.update(scores[:50], targets[:50]).compute() == pytest.approx(
        mg.evaluate(scores[:50], targets[:50], ALL[task], task=task), abs=1e-12
    )


@pytest.mark.parametrize("task", list(TASKS))
def test_an_integer_weight_repeats_the_row(task: Any) -> None:
    scores, targets = TASKS[task]
    times = np.arange(N) % 3
    weighted = mg.evaluate(scores, targets, ALL[task], task=task, weight=times)
    repeated = mg.evaluate(np.repeat(scores, times, 0), np.repeat(targets, times, 0), ALL[task], task=task)
    assert weighted == pytest.approx(repeated, abs=1e-12)


@pytest.mark.parametrize("task", list(TASKS))
def test_masked_rows_do_not_count(task: Any) -> None:
    scores, targets = TASKS[task]
    keep = np.arange(N) % 4 > 0
    spoiled = np.where(keep.reshape(-1, *[1] * (scores.ndim - 1)), scores, np.nan)
    masked = mg.evaluate(spoiled, targets, ALL[task], task=task, mask=keep)
    assert masked == pytest.approx(mg.evaluate(scores[keep], targets[keep], ALL[task], task=task), abs=1e-12)


@pytest.mark.parametrize("task", list(TASKS))
def test_intervals_hold_the_value_and_resample_rows(task: Any) -> None:
    scores, targets = TASKS[task]
    found = mg.bootstrap(scores, targets, ALL[task], task=task, replicates=40)
    values = mg.evaluate(scores, targets, ALL[task], task=task)
    for name, interval in found.items():
        assert interval.value == pytest.approx(values[name], abs=1e-12)
        assert interval.low <= interval.high
        assert interval.replicates.std() > 0
    groups = np.arange(N)
    assert mg.bootstrap(scores, targets, ALL[task][0], task=task, replicates=5, groups=groups)


def test_two_models_compare() -> None:
    scores, targets = BINARY
    better = np.clip(0.3 * scores + 0.6 * targets, 0, 1)
    found = mg.compare_paired(better, scores, targets, ["brier_score", "equal_error_rate", "auroc@0.3"], replicates=99)
    assert found["brier_score"].difference < 0
    assert found["brier_score"].p_value < 0.05
    assert found["auroc@0.3"].difference > 0


def test_rounded_scores_have_a_bound() -> None:
    scores, targets = R.random(4000), R.integers(0, 2, 4000)
    names = ["auroc@0.2", "equal_error_rate", "auroc"]
    exact = mg.evaluate(scores, targets, names)
    rough = mg.Evaluator(names, score_bits=4).update(scores, targets)
    errors = rough.curve_error()
    for name, value in rough.compute().items():
        assert abs(value - exact[name]) <= errors[name] + 1e-12
        assert errors[name] > 0


BAD: list[tuple[str, str, dict[str, Any], str]] = [
    ("brier_score", "binary", {}, r"^scores: expected probabilities in \[0, 1\] for brier_score, got -3 to 2; apply"),
    ("log_loss", "multiclass", {}, r"^scores: expected probabilities in \[0, 1\] for log_loss.*torch.softmax"),
    ("ndcg", "binary", {}, r"^metrics: 'ndcg' is for task='multilabel', got task='binary'"),
    ("auroc_ovo", "multilabel", {}, r"^metrics: 'auroc_ovo' is for task='multiclass'"),
    (
        "f1@0",
        "multilabel",
        {},
        r"^metrics: expected a whole number of at least 1 after the @, as in 'f1@5', got 'f1@0'",
    ),
    ("f1@9", "multilabel", {}, r"^k: expected at most the 2 labels there are, got 9"),
    ("nothing@3", "multilabel", {}, "nothing"),
    ("auroc@2", "binary", {}, r"^metrics: expected a false positive rate in \(0, 1\] after the @"),
    ("auroc@x", "binary", {}, r"^metrics: expected a false positive rate in \(0, 1\] after the @"),
    ("ndcg", "multilabel", {"weight": [[1.0, 2.0]] * 4}, r"^weight and mask: expected one per row for ndcg"),
    ("brier_score", "multilabel", {"average": "samples"}, "^average: 'samples' is not for brier_score"),
]


@pytest.mark.parametrize(("name", "task", "options", "message"), BAD)
def test_what_does_not_fit_is_refused(name: str, task: Any, options: dict[str, Any], message: str) -> None:
    scores: Any = [-3.0, 0.2, 1.0, 2.0] if task == "binary" else [[-3.0, 2.0], [0.1, 0.2], [0.4, 0.3], [0.5, 0.5]]
    targets: Any = [0, 1, 0, 1] if task != "multilabel" else [[0, 1], [1, 0], [1, 1], [0, 0]]
    with pytest.raises(ValueError, match=message):
        mg.evaluate(scores, targets, name, task=task, **options)


def test_probabilities_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^scores: expected the probabilities of each row to add up to 1 for log_loss"
    ):
        mg.evaluate([[0.2, 0.2], [0.5, 0.5]], [0, 1], "log_loss", task="multiclass")
