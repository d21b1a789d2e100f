"""What people try first, coming from other libraries, is answered with what to do here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import scipy.sparse
import torch

import metricgrad as mg

pytestmark = pytest.mark.quick

anything: Any = mg  # a module whose names and options no type checker looks at
Z, Y = torch.tensor([2.0, -1.0, 0.5, -3.0]), torch.tensor([1, 0, 1, 0])
CLASSES = torch.zeros(4, 3)


def classes(*labels: int) -> Any:
    return mg.MetricLoss("f1", task="multiclass")(CLASSES, torch.tensor(labels))


MESSAGES: list[tuple[Callable[[], Any], str]] = [
    (lambda: classes(1, 2, 3, 1), "got 1, 2, 3; they look like labels from 1 to 3: pass targets - 1"),
    (lambda: classes(0, 255, 1, 2), "got 0, 1, 2, 255; pass ignore_index=255 if that marks what does not count"),
    (lambda: classes(0, 3, 1, 2), "pass ignore_index=3 if .*; otherwise the logits have too few columns, 3"),
    (lambda: classes(0, 7, 9, 2), "the logits have 3 columns, too few for these labels"),
    (lambda: mg.MetricLoss("f1")(Z, 2 * Y - 1), "got -1, 1; they look like labels -1 and 1: pass targets > 0"),
    (
        lambda: mg.MetricLoss("f1")(Z, 255 * Y),
        "got 0, 255; they look like an image mask of 0 and 255: pass targets > 0",
    ),
    (lambda: mg.MetricLoss("f1")(Z, Y + 1), "got 1, 2; they look like labels 1 and 2: pass targets == 2"),
    (lambda: mg.MetricLoss("f1")(Z, torch.tensor([0, 1, -1, 0])), "pass ignore_index=-1 if"),
    (lambda: anything.MetricLoss("f1", surrogate=mg.surrogates.Sigmoid), r"got <class .*>; pass Sigmoid\(\)$"),
    (
        lambda: mg.MetricLoss("f1")(Z, Y.to_sparse()),
        r"^targets: expected a dense tensor, .*; pass targets.to_dense\(\)$",
    ),
    (
        lambda: anything.MetricLoss("f1")(Z, scipy.sparse.csr_matrix(Y.numpy())),
        r"^targets: expected a torch.Tensor, got csr_matrix; pass torch.as_tensor\(targets.toarray\(\)\)$",
    ),
    (
        lambda: anything.tune_threshold(Z, Y, "f1"),
        r"^metric: .* as in tune_threshold\('f1', scores, targets\), got Tensor$",
    ),
    (lambda: anything.MetricLoss(Z), r"^metric: expected a name or a function of Counts, got Tensor of shape \(4,\)$"),
    (lambda: mg.MetricLoss("f1score"), "^metric: unknown name 'f1score'; did you mean 'f1'?"),
    (lambda: mg.evaluate(Z, Y, "brier"), r"did you mean 'brier_score'\? Known: .*auroc, .*brier_score, .*ndcg"),
    (lambda: mg.evaluate(Z, Y, "roc_auc_score"), "did you mean 'auroc'?"),
    (
        lambda: mg.presets.sigmoid_f1(-0.75, 10.25),
        "got -0.75; the sigmoidF1 paper .* pass beta=0.75, and eta as printed",
    ),
]


@pytest.mark.parametrize(("call", "message"), MESSAGES)
def test_one_line_says_what_to_do(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: anything.MetricLoss("f1", reduction="mean"), "^MetricLoss: unknown option reduction=; leave it out"),
        (lambda: anything.HybridLoss("f1", pos_weight=2.0), r"pos_weight=; .* mg.baselines.bce\(positive_weight=...\)"),
        (lambda: anything.evaluate(Z, Y, "f1", num_classes=2), "^evaluate: unknown option num_classes=; leave it out"),
        (lambda: anything.Evaluator("f1", treshold=0.3), "did you mean threshold=?"),
        (lambda: anything.tune_threshold("f1", Z, Y, sample_weight=Z), "sample_weight=; it is weight= here"),
    ],
)
def test_an_option_of_another_library_is_explained(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_a_loss_of_another_library_is_explained() -> None:
    with pytest.raises(
        AttributeError, match=r"'DiceLoss'; did you mean mg.MetricLoss\('f1'\) or mg.presets.soft_dice\(\)"
    ):
        _ = anything.DiceLoss
    with pytest.raises(AttributeError, match=r"did you mean mg.MetricLoss\?$"):
        _ = anything.MetricLos
    with pytest.raises(AttributeError, match=r"no attribute 'Unheard'$"):
        _ = anything.Unheard
