"""HybridLoss: torch's cross-entropy plus a share of the metric loss, weighted and masked as the metric is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s

pytestmark = pytest.mark.quick

G = torch.Generator().manual_seed(5)
Z = torch.randn(12, 3, generator=G)
LABELS = (torch.rand(12, 3, generator=G) < 0.4).float()
CLASSES = torch.randint(3, (12,), generator=G)
WEIGHT = torch.rand(12, generator=G)


def torch_entropy(task: str, z: Tensor, y: Tensor, w: Tensor) -> Tensor:
    if task == "multiclass":
        return (F.cross_entropy(z, y, reduction="none") * w).sum() / w.sum()
    each = F.binary_cross_entropy_with_logits(z, y, reduction="none")
    w = w.reshape(-1, *[1] * (z.dim() - 1)).expand_as(each)
    return (each * w).sum() / w.sum()


@pytest.mark.parametrize(
    ("task", "z", "y"), [("binary", Z[:, 0], LABELS[:, 0]), ("multilabel", Z, LABELS), ("multiclass", Z, CLASSES)]
)
def test_it_is_cross_entropy_plus_a_share_of_the_metric_loss(task: Any, z: Tensor, y: Tensor) -> None:
    hybrid, metric = mg.HybridLoss("f2", metric_weight=0.7, task=task), mg.MetricLoss("f2", task=task)
    for weight in (None, WEIGHT):
        expected = torch_entropy(task, z, y, torch.ones(12) if weight is None else weight) + 0.7 * metric(z, y, weight)
        torch.testing.assert_close(hybrid(z, y, weight), expected)


def test_what_is_left_out_counts_in_neither_part() -> None:
    hybrid = mg.HybridLoss("f1", task="multiclass", ignore_index=-1)
    y = CLASSES.clone()
    y[::3] = -1
    kept = y >= 0
    torch.testing.assert_close(hybrid(Z, y), hybrid(Z[kept], y[kept]))
    labels = mg.HybridLoss("f1", task="multilabel")
    z = Z.clone()
    z[~kept] = torch.nan
    torch.testing.assert_close(labels(z, LABELS, mask=kept), labels(Z[kept], LABELS[kept]))
    assert labels(Z, LABELS, mask=torch.zeros(12) > 0).isfinite()


def test_warm_up_starts_from_cross_entropy_alone_and_survives_saving() -> None:
    hybrid: Any = mg.HybridLoss("f1", metric_weight=0.4, warmup=4, task="multilabel")
    seen = []
    for _ in range(6):
        seen.append(hybrid.current_metric_weight)
        hybrid.step()
    assert seen == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.4])
    again: Any = mg.HybridLoss("f1", metric_weight=0.4, warmup=4, task="multilabel")
    torch.testing.assert_close(again(Z, LABELS), F.binary_cross_entropy_with_logits(Z, LABELS))
    again.load_state_dict(hybrid.state_dict())
    assert again.current_metric_weight == 0.4


def test_bad_targets_are_refused_during_the_warm_up_too() -> None:
    hybrid = mg.HybridLoss("f1", warmup=10, task="multilabel")
    with pytest.raises(ValueError, match=r"targets: expected values in \[0, 1\]"):
        hybrid(Z, LABELS + 1)


def test_it_takes_a_complete_metric_loss() -> None:
    metric = mg.MetricLoss("mcc", task="multilabel", surrogate=s.Sigmoid(), average="micro")
    hybrid = mg.HybridLoss(metric, metric_weight=1.0)
    torch.testing.assert_close(hybrid(Z, LABELS) - hybrid.cross_entropy(Z, LABELS), metric(Z, LABELS))
    assert "metric_weight=1.0" in repr(hybrid)
    assert "mcc" in repr(hybrid)


def test_a_masked_weight_may_be_anything() -> None:
    weight = WEIGHT.clone()
    weight[0] = torch.nan
    mask = torch.arange(12) > 0
    for loss in (mg.MetricLoss("f1", task="multilabel"), mg.HybridLoss("f1", task="multilabel")):
        torch.testing.assert_close(loss(Z, LABELS, weight, mask), loss(Z[1:], LABELS[1:], WEIGHT[1:]))


def test_the_metric_of_each_image() -> None:
    g = torch.Generator().manual_seed(3)
    z, y = torch.randn(4, 3, 5, 6, generator=g), torch.randint(0, 2, (4, 3, 5, 6), generator=g)
    loss = mg.HybridLoss("f1", task="multilabel", per_image=True, metric_weight=0.5)
    images = mg.MetricLoss("f1", task="multilabel", per_image=True)(z, y)
    expected = mg.baselines.bce(task="multilabel")(z, y) + 0.5 * images
    torch.testing.assert_close(loss(z, y), expected)
    assert loss(z, y) != mg.HybridLoss("f1", task="multilabel", metric_weight=0.5)(z, y)
    complete = mg.MetricLoss("f1")
    assert mg.HybridLoss(complete, per_image=False).metric_loss is complete
    with pytest.raises(ValueError, match=r"^metric: a MetricLoss is complete, got also per_image"):
        mg.HybridLoss(complete, per_image=True)


def test_a_loss_per_class_is_refused() -> None:
    message = r"^average: expected 'micro', .*, got None; the mix is one number"
    with pytest.raises(ValueError, match=message):
        mg.HybridLoss("f1", task="multilabel", average=None)
    with pytest.raises(ValueError, match=message):
        mg.HybridLoss(mg.MetricLoss("f1", task="multilabel", average=None))
