"""Bad input gets one line that names the argument, what was expected and what came."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core.metrics.constraints import Constraint
from metricgrad.training.networks import build_network
from metricgrad.training.training_loop import TrainingSettings

pytestmark = pytest.mark.quick

Z, Y = torch.zeros(4, 3), torch.zeros(4, 3)
INDEX = torch.zeros(4, dtype=torch.long)

CONSTRUCTION: list[tuple[dict[str, Any], str]] = [
    ({"metric": "f_1_score"}, "metric: unknown name 'f_1_score'"),
    ({"metric": "recal"}, "did you mean 'recall'"),
    ({"metric": 3}, "metric: expected a name or a function of Counts, got 3"),
    ({"metric": "no.such.module:f"}, "metric: cannot import 'no.such.module:f'"),
    ({"task": "multi-label"}, "task: expected one of 'binary', 'multiclass', 'multilabel', got 'multi-label'"),
    ({"average": "mean"}, "average: expected one of .* or None, got 'mean'"),
    ({"average": "samples"}, "average: 'samples' is for task='multilabel', got task='binary'"),
    ({"empty_classes": "drop"}, "empty_classes: expected 'count' or 'skip', got 'drop'"),
    ({"threshold": 0.0}, r"threshold: expected numbers in \(0, 1\), got 0.0"),
    ({"threshold": []}, r"threshold: expected numbers in \(0, 1\), got \[\]"),
    ({"threshold": "half"}, r"threshold: expected numbers in \(0, 1\), got 'half'"),
    ({"threshold": float("nan")}, r"threshold: expected numbers in \(0, 1\), got nan"),
    ({"threshold": [0.2, 1.5]}, r"threshold: expected numbers in \(0, 1\)"),
    ({"threshold": 0.3, "surrogate": s.LogitSigmoid()}, "is not on probabilities and takes no threshold"),
    ({"threshold": [0.5], "surrogate": s.Identity()}, "takes no threshold"),
    ({"threshold": 0.3, "surrogate": torch.sigmoid}, "takes no threshold"),
    ({"threshold": 0.3, "task": "multiclass"}, "task='multiclass' decides by argmax and takes no threshold"),
    ({"surrogate": s.TopTwo()}, "surrogate: TopTwo is for task='multiclass'"),
    ({"surrogate": s.UnitsVsZeros(), "task": "multiclass"}, "is not for task='multiclass'"),
    ({"surrogate": s.Unbounded(), "task": "multiclass"}, "is not for task='multiclass'"),
    ({"surrogate": s.Table(), "task": "multiclass"}, "is not for task='multiclass'"),
    ({"surrogate": 0.5}, "surrogate: expected a callable of logits, got 0.5"),
    (
        {"metric": "quadratic_kappa"},
        "metric: quadratic_kappa is of the d×d matrix, for task='multiclass'; got 'binary'",
    ),
    ({"metric": "subset_accuracy", "task": "multilabel"}, "subset_accuracy is of rows; expected average='samples'"),
    ({"labels": [], "task": "multilabel"}, "labels: expected class indices"),
    ({"labels": [-1], "task": "multilabel"}, "labels: expected class indices"),
    ({"metric": "accuracy", "task": "multiclass", "labels": [0]}, "labels: accuracy is of the whole d×d matrix"),
]


@pytest.mark.parametrize(("options", "message"), CONSTRUCTION)
def test_what_does_not_fit_together_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        mg.MetricLoss(**{"metric": "f1", **options})
    assert "\n" not in str(caught.value)


CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("multilabel", (Z.numpy(), Y), {}, "logits: expected a torch.Tensor, got ndarray"),
    ("multilabel", (Z, Y.tolist()), {}, "targets: expected a torch.Tensor, got list"),
    ("multilabel", (Z.long(), Y), {}, "logits: expected floating point, got torch.int64"),
    (
        "multilabel",
        (Z, Y.to(torch.complex64)),
        {},
        "targets: expected bool, integers or real numbers, got torch.complex64",
    ),
    ("multilabel", (Z, Y[:, :2]), {}, r"targets: expected the shape of the logits, \(4, 3\), .* got \(4, 2\)"),
    ("multilabel", (Z[:, 0], Y[:, 0]), {}, r"logits: expected \(N, K\) or \(N, K, ...\) .* got \(4,\)"),
    ("multilabel", (torch.zeros(4, 0), torch.zeros(4, 0)), {}, "at least one class"),
    ("multilabel", (Z, Y + 2), {}, r"targets: expected values in \[0, 1\], got 2; they look like class indices"),
    ("multilabel", (Z, Y - 1), {}, "got -1; they look like labels -1 and 1: pass targets > 0"),
    ("binary", (Z, Y[:, 0]), {}, r"targets: expected the shape of the logits, \(4, 3\), for task='binary'.*multiclass"),
    ("binary", (Z[:, 0], 2 * torch.ones(4)), {}, r"targets: expected values in \[0, 1\]"),
    (
        "multiclass",
        (Z, INDEX + 3),
        {},
        "targets: expected class indices 0 to 2, got 3; they look like labels from 1 to 3: pass targets - 1",
    ),
    ("multiclass", (Z, INDEX - 100), {}, "targets: expected class indices 0 to 2, got -100; pass ignore_index=-100 if"),
    ("multiclass", (Z, INDEX.float()), {}, "targets: expected class indices of an integer type"),
    ("multiclass", (Z, INDEX[:3]), {}, r"targets: expected class indices \(4,\) or soft labels \(4, 3\), got \(3,\)"),
    ("multilabel", (Z, Y), {"weight": torch.ones(5)}, r"weight: expected shape \(4,\), \(4,\) or \(4, 3\), got \(5,\)"),
    ("multilabel", (Z, Y), {"weight": -torch.ones(4)}, "weight: expected no negative value, got -1"),
    ("multilabel", (Z, Y), {"mask": torch.ones(4)}, r"mask: expected bool \(True counts\), got torch.float32"),
    ("multiclass", (Z, INDEX), {"weight": torch.ones(4, 3)}, "weight: expected one value per sample"),
    ("multiclass", (Z, INDEX), {"mask": torch.ones(4, 3) > 0}, "mask: expected one value per sample"),
]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("task", "args", "options", "message"), CALLS)
def test_bad_batches_are_refused(
    task: Any, args: tuple[Any, ...], options: dict[str, Any], message: str, training: bool
) -> None:
    loss = mg.MetricLoss("f1", task=task)
    logits, *others = args
    if training and isinstance(logits, torch.Tensor) and logits.is_floating_point():
        logits = logits.detach().clone().requires_grad_()
    with pytest.raises(ValueError, match=message) as caught:
        loss(logits, *others, **options)
    assert "\n" not in str(caught.value)


def test_large_batches_are_checked_too() -> None:
    z, y = torch.zeros(300_000, 2), torch.zeros(300_000, 2)
    y[-1, -1] = 3
    for surrogate in (s.Linear(), s.UnitsVsZeros(), torch.sigmoid):
        loss = mg.MetricLoss("f1", task="multilabel", surrogate=surrogate)
        for call in (loss, loss.counts):
            with pytest.raises(
                ValueError, match=r"targets: expected values in \[0, 1\], got 0, 3; they look like labels 0 and 3"
            ):
                call(z, y)
    with pytest.raises(
        ValueError,
        match=r"targets: expected class indices 0 to 1, got 0, 1, 2; pass ignore_index=2 if .* too few columns, 2",
    ):
        mg.MetricLoss("f1", task="multiclass")(z, torch.arange(300_000) % 3)


def test_a_metric_that_is_not_elementwise_is_refused() -> None:
    for average in ("macro", "micro", None):
        loss = mg.MetricLoss(lambda c: c.tp.sum(-1, keepdim=True).expand(2), task="multilabel", average=average)
        with pytest.raises(ValueError, match="must be elementwise"):
            loss(Z, Y)
    constant: Any = lambda c: 1.0  # noqa: E731
    with pytest.raises(ValueError, match="must be elementwise"):
        mg.MetricLoss(constant, task="multilabel")(Z, Y)
    per_class = partial(mg.metrics.f_beta, beta=torch.tensor([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="average: expected 'macro', 'weighted' or None"):
        mg.MetricLoss(per_class, task="multilabel", average="micro")(Z, Y)


def test_a_metric_that_wants_the_matrix_is_told_how_to_get_it() -> None:
    with pytest.raises(AttributeError, match="annotates its argument"):
        mg.MetricLoss(lambda c: c.matrix.sum(), task="multiclass")(Z, INDEX)


def test_an_error_inside_a_users_metric_is_theirs() -> None:
    def broken(counts: mg.Counts) -> torch.Tensor:
        raise TypeError("the user's own mistake")

    with pytest.raises(TypeError, match="the user's own mistake"):
        mg.MetricLoss(broken, task="multilabel")(Z, Y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric_weight": -1.0}, "metric_weight: expected a number of at least 0, got -1.0"),
        ({"metric_weight": float("nan")}, "metric_weight: expected"),
        ({"warmup": -1}, "warmup: expected"),
        ({"metric": mg.MetricLoss("f1"), "task": "multilabel"}, "a MetricLoss is complete, got also task"),
        ({"task": "nothing"}, "task: expected"),
    ],
)
def test_impossible_hybrids_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.HybridLoss(**{"metric": "f1", **options})


@pytest.mark.parametrize("average", ["macro", "micro", "weighted", None])
def test_labels_beyond_the_classes_are_refused(average: Any) -> None:
    z, y = torch.tensor([0.9, 0.2, 0.6]), torch.tensor([1, 0, 1])
    calls: list[Callable[..., Any]] = [
        lambda *data, **how: mg.MetricLoss("f1", average=average, **how)(*data),
        lambda z, y, **how: mg.evaluate(z, y, "f1", average=average, **how),
        lambda *data, **how: mg.tune_threshold("f1", *data, average=average, **how),
    ]
    for call in calls:
        if average == "macro":
            with pytest.raises(ValueError, match=r"^labels: expected None for the one class of .*, got \[1\]; leave"):
                call(z, y, labels=[1])
        with pytest.raises(ValueError, match=r"^labels: expected None for one class, .* got \[1\]; leave labels= out$"):
            call(z[:, None], y[:, None], labels=[1], task="multilabel")
        with pytest.raises(ValueError, match=r"^labels: expected class indices below 3, got 5$"):
            call(z.expand(3, 3), y.expand(3, 3), labels=[1, 5], task="multilabel")


WHOLE: Any = np.int64
REAL: Any = np.float32
NUMPY: dict[str, Callable[[], Any]] = {
    "precision at k": lambda: mg.PrecisionAtKLoss(WHOLE(3)),
    "precision at a share": lambda: mg.PrecisionAtKLoss(REAL(0.25)),
    "top k": lambda: mg.decisions.TopK(WHOLE(2)),
    "bound": lambda: Constraint("recall", REAL(0.5), over=WHOLE(1)),
    "thresholds": lambda: mg.AUROCLoss(thresholds=WHOLE(5)),
    "focal": lambda: mg.baselines.focal(gamma=REAL(2.0)),
    "annealed": lambda: mg.surrogates.Annealed(mg.surrogates.Sigmoid(REAL(2)), mg.surrogates.Sigmoid(9), 5),
    "bits": lambda: mg.Evaluator("f1", score_bits=WHOLE(8)),
    "settings": lambda: TrainingSettings(epochs=WHOLE(3), batch_size=WHOLE(8)),
    "sizes": lambda: build_network([WHOLE(4)], 3, 1, 0.0, "binary"),
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_numbers_are_numbers(name: str) -> None:
    assert NUMPY[name]()


def test_true_is_no_number_of_samples() -> None:
    with pytest.raises(ValueError, match=r"^k: expected a number of at least 1 .*, got True$"):
        mg.PrecisionAtKLoss(True)
