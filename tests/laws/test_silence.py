"""Nothing that is wrong is accepted in silence: tasks that were not said, options without effect, probabilities."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.losses.logit_scale import ENOUGH_LOGITS

pytestmark = pytest.mark.quick

Z = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
Y = (Z + torch.randn(64, 5, generator=torch.Generator().manual_seed(1)) > 0).float()
CALLS: dict[str, Callable[..., Any]] = {
    "MetricLoss": lambda z, y, **how: mg.MetricLoss("f1", **how)(z, y),
    "HybridLoss": lambda z, y, **how: mg.HybridLoss("f1", **how)(z, y),
    "ConstrainedLoss": lambda z, y, **how: mg.ConstrainedLoss("f1", "recall>=0.5", **how)(z, y),
    "AUROCLoss": lambda z, y, **how: mg.AUROCLoss(**how)(z, y),
    "StructuredHingeLoss": lambda z, y, **how: mg.StructuredHingeLoss("f1", **how)(z, y),
    "baselines.dice": lambda z, y, **how: mg.baselines.dice(**how)(z, y),
    "baselines.bce": lambda z, y, **how: mg.baselines.bce(**how)(z, y),
    "evaluate": lambda z, y, **how: mg.evaluate(z.sigmoid(), y, "f1", **how)["f1"],
    "tune_threshold": lambda z, y, **how: mg.tune_threshold("f1", z.sigmoid(), y, **how).value,
    "bootstrap": lambda z, y, **how: mg.bootstrap(z.sigmoid(), y, "f1", replicates=20, **how)["f1"].value,
    "reliability": lambda z, y, **how: mg.reliability(z.sigmoid(), y, **how).error,
}
WITH_AVERAGE = ["MetricLoss", "evaluate", "tune_threshold", "bootstrap", "AUROCLoss"]


@pytest.mark.parametrize("name", CALLS)
def test_several_columns_without_a_task_are_asked_about(name: str) -> None:
    call = CALLS[name]
    for shape in ((64, 5), (8, 4, 2, 5)):
        with pytest.raises(
            ValueError, match=r"^task: expected 'multilabel', .* or 'binary' .* of shape \(.*\), got None$"
        ):
            call(Z.reshape(shape), Y.reshape(shape))
        assert call(Z.reshape(shape), Y.reshape(shape), task="multilabel") is not None
    assert float(call(Z, Y, task="binary")) == pytest.approx(float(call(Z.flatten(), Y.flatten())), rel=1e-5)


@pytest.mark.parametrize("name", CALLS)
def test_class_indices_without_a_task_are_asked_about(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"^task: expected 'multiclass' for \w+ \(64, 5\) with targets \(64,\), got None$"
    ):
        CALLS[name](Z, Y[:, 0].long())


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(320,), (320, 1), (4, 8, 10), (4, 1, 8, 10), (4, 1, 2, 4, 10)])
def test_one_column_and_maps_are_binary(name: str, shape: tuple[int, ...]) -> None:
    expected = CALLS[name](Z.flatten(), Y.flatten(), task="binary")
    assert float(CALLS[name](Z.reshape(shape), Y.reshape(shape))) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", WITH_AVERAGE)
@pytest.mark.parametrize("task", [None, "binary"])
def test_options_over_classes_need_classes(name: str, task: Any) -> None:
    for average in ("micro", "weighted", None):
        with pytest.raises(ValueError, match=r"^average: expected 'macro' for the one class of task='binary', got "):
            CALLS[name](Z[:, 0], Y[:, 0], task=task, average=average)
    if name != "AUROCLoss":
        with pytest.raises(ValueError, match=r"^labels: expected None for the one class of task='binary', got \[0\]; "):
            CALLS[name](Z[:, 0], Y[:, 0], task=task, labels=[0])
    assert CALLS[name](Z[:, 0], Y[:, 0], task=task, average="macro") is not None


def test_a_loss_without_a_task_is_copied_printed_and_compiled() -> None:
    loss = mg.MetricLoss("f1")
    for again in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):  # noqa: S301  # our own
        with pytest.raises(ValueError, match=r"^task: expected"):
            again(Z, Y)
    assert "task" not in repr(loss)
    assert "task='binary'" in repr(mg.MetricLoss("f1", task="binary"))
    compiled = torch.compile(loss, fullgraph=True, backend="eager")
    assert compiled(Z[:, 0], Y[:, 0]).item() == pytest.approx(loss(Z[:, 0], Y[:, 0]).item())


def test_the_start_of_boosting_asks_too() -> None:
    with pytest.raises(ValueError, match=r"^task: expected 'multilabel'"):
        mg.boosting.base_score(Y)
    assert mg.boosting.base_score(Y, task="multilabel").shape == (5,)


# ------------------------------------------------------------------------------------------- probabilities


LOSSES: dict[str, Callable[[], Any]] = {
    "MetricLoss": lambda: mg.MetricLoss("f1"),
    "HybridLoss": lambda: mg.HybridLoss("f1"),
    "HybridLoss, warming up": lambda: mg.HybridLoss("f1", warmup=3),
    "ConstrainedLoss": lambda: mg.ConstrainedLoss("f1", "recall>=0.5"),
    "RunningLoss": lambda: mg.RunningLoss(mg.HybridLoss("f1")),
    "WMWLoss": mg.WMWLoss,
    "StructuredHingeLoss": lambda: mg.StructuredHingeLoss("f1"),
    "baselines.focal": mg.baselines.focal,
}


def heard(loss: Any, logits: Tensor, calls: int = 1) -> list[str]:
    """Return the warnings of some calls."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(calls):
            loss(logits, (logits > logits.mean()).float())
    return [str(one.message) for one in found]


@pytest.mark.parametrize("name", LOSSES)
def test_probabilities_are_told_once_for_each_loss(name: str) -> None:
    p = Z.flatten()[:ENOUGH_LOGITS].sigmoid()
    for _ in range(2):
        (message,) = heard(LOSSES[name](), p, calls=3)
        assert message.startswith(f"logits: all {ENOUGH_LOGITS} lie in [0, 1], as probabilities do; ")
        assert message.endswith("without sigmoid or softmax, and used these as such")  # whatever class does it inside
        assert "\n" not in message


@pytest.mark.parametrize(
    "logits",
    [
        Z.flatten()[: ENOUGH_LOGITS - 1].sigmoid(),  # too few to tell
        Z.flatten(),
        torch.zeros(64),  # a last layer that starts at zero
        0.1 + 0.02 * Z.flatten().sigmoid(),  # an untrained network: little more than a bias
    ],
)
def test_logits_are_not_taken_for_probabilities(logits: Tensor) -> None:
    for name in ("MetricLoss", "HybridLoss", "WMWLoss"):
        assert heard(LOSSES[name](), logits) == []


def test_a_batch_that_does_not_tell_is_not_the_last_word() -> None:
    loss = mg.MetricLoss("f1")
    assert heard(loss, torch.zeros(64)) == []
    assert len(heard(loss, Z.flatten().sigmoid())) == 1


def test_a_step_of_ones_own_may_take_probabilities_and_a_compiled_loss_is_silent() -> None:
    p = Z.flatten().sigmoid()
    assert heard(mg.MetricLoss("f1", surrogate=lambda x: x), p) == []
    assert heard(torch.compile(mg.MetricLoss("f1"), backend="eager"), p) == []


def test_after_the_first_look_no_value_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    loss = mg.baselines.focal()
    loss(Z.flatten(), Y.flatten())
    monkeypatch.setattr(torch, "aminmax", None, raising=True)
    loss._check_scale(Z.flatten())


def test_soft_labels_of_several_classes_are_distributions() -> None:
    z, fine = Z[:, :3], Z[:, 2:].softmax(1)
    many = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]).repeat(32, 1)
    for call in (mg.MetricLoss("f1", task="multiclass"), mg.baselines.cross_entropy()):
        call(z, fine)
        call(z, fine.bfloat16())
        with pytest.raises(
            ValueError, match=r"^targets: expected rows that sum to 1 .*, got 2 in 32 of 64; use task='multilabel'"
        ):
            call(z, many)
        call(z, many, mask=torch.arange(64) % 2 == 1)
    with pytest.raises(ValueError, match=r"^targets: expected rows that sum to 1"):
        mg.evaluate(z, many, "f1", task="multiclass")


@pytest.mark.parametrize("kind", [lambda y: y, lambda y: y.long(), lambda y: y.bool().numpy(), lambda y: y.tolist()])
def test_scores_and_labels_exchanged_are_refused(kind: Callable[[Tensor], Any]) -> None:
    labels, scores = kind(Y[:, 0]), Z[:, 0].sigmoid()
    for call in (lambda: mg.evaluate(labels, scores, "f1"), lambda: mg.tune_threshold("f1", labels, scores)):
        with pytest.raises(ValueError, match=r"^scores: expected scores first and then targets, .*; exchange the two$"):
            call()
    with pytest.raises(ValueError, match=r"^scores: expected scores first"):
        mg.evaluate(Y[:, 0].long(), Z.softmax(1), "f1", task="multiclass")
    soft = 0.9 * Y[:, 0] + 0.05
    assert mg.evaluate(scores, soft, "f1")["f1"] > 0
    assert mg.evaluate(labels, Y[:, 0], "f1")["f1"] == 1.0
