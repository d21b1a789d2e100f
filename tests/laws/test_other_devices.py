"""Tensors on other devices: losses fetch nothing, evaluation single numbers, searches the scores and targets once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metricgrad as mg
from metricgrad.training.networks import build_network
from other_device import OtherDevice, TensorElsewhere

ROWS = 200
TASKS: dict[Any, tuple[int, ...]] = {"binary": (ROWS,), "multiclass": (ROWS, 4), "multilabel": (ROWS, 3)}
LOSSES: dict[str, Callable[..., nn.Module]] = {
    **{
        name: lambda task, name=name: mg.MetricLoss(name, task=task)
        for name in ("f1", "jaccard", "precision", "g_mean")
    },
    "mcc": lambda task: mg.MetricLoss("mcc", task=task),
    "own metric": lambda task: mg.MetricLoss(lambda c: mg.metrics.ratio(c.tp, c.tp + c.fp + c.fn), task=task),
    "hybrid": lambda task: mg.HybridLoss("f1", task=task),
    "running": lambda task: mg.RunningLoss(mg.HybridLoss("f1", task=task)),
    "constrained": lambda task: mg.ConstrainedLoss("recall", "precision >= 0.9", task=task),
    "auroc": lambda task: mg.AUROCLoss(task=task),
    "wmw": lambda task: mg.WMWLoss(task=task),
    "prbep": lambda task: mg.PRBEPLoss(task=task),
    "eer": lambda task: mg.EERLoss(task=task),
    "recall at precision": lambda task: mg.RecallAtPrecisionLoss(0.8, task=task),
}


def draw(task: str) -> tuple[Tensor, Tensor]:
    """Return scores and targets."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(TASKS[task], generator=generator)
    if task == "multiclass":
        return scores / scores.sum(1, keepdim=True), torch.randint(4, (ROWS,), generator=generator)
    return scores, torch.randint(2, TASKS[task], generator=generator)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_wait_for_no_number(name: str, task: Any) -> None:
    """On torch's "meta" device there are no numbers: to ask for one is an error."""
    loss = LOSSES[name](task).to("meta")
    logits = torch.randn(TASKS[task], device="meta", requires_grad=True)
    value = loss(logits, draw(task)[1].to("meta"))
    value.backward()
    assert value.is_meta
    assert logits.grad is not None


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", LOSSES)
def test_values_of_losses_are_those_of_the_host(name: str, task: Any) -> None:
    scores, targets = draw(task)
    logits = 4 * scores - 2
    loss = LOSSES[name](task)
    with torch.no_grad(), OtherDevice() as device:
        found = LOSSES[name](task)(TensorElsewhere(logits), TensorElsewhere(targets))
    assert device.numbers_read == 0
    torch.testing.assert_close(found.here, loss(logits, targets), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("metrics", [["f1", "mcc", "accuracy"], ["auroc", "average_precision", "brier_score"]])
def test_evaluation_fetches_single_numbers_alone(task: Any, metrics: list[str]) -> None:
    scores, targets = draw(task)
    with OtherDevice() as device:
        found = mg.evaluate(TensorElsewhere(scores), TensorElsewhere(targets), metrics, task=task)
    assert found == pytest.approx(mg.evaluate(scores, targets, metrics, task=task))
    assert device.numbers_read < 25  # not one for each row


@pytest.mark.parametrize("task", TASKS)
def test_an_evaluator_keeps_its_counts_on_the_device(task: Any) -> None:
    scores, targets = draw(task)
    here = mg.Evaluator("f1", task=task)
    there = mg.Evaluator("f1", task=task)
    with OtherDevice():
        for part in range(4):
            rows = slice(50 * part, 50 * part + 50)
            here.update(scores[rows], targets[rows])
            there.update(TensorElsewhere(scores[rows]), TensorElsewhere(targets[rows]))
        assert there.compute() == here.compute()


def test_rules_decide_on_the_device() -> None:
    scores = draw("multilabel")[0]
    rules: list[Any] = [mg.decisions.Threshold((0.2, 0.5, 0.7)), mg.decisions.TopK(2), mg.decisions.Argmax()]
    for rule in rules:
        with OtherDevice():
            found = rule(TensorElsewhere(scores))
        assert torch.equal(found.here, rule(scores))


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_networks_run_on_the_device(model: Any) -> None:
    network = build_network(model, 5, 3, 0.1, "multilabel").to("meta")
    loss = mg.HybridLoss("f1", task="multilabel")
    loss(network(torch.randn(ROWS, 5, device="meta")), draw("multilabel")[1].to("meta")).backward()
    assert all(weight.grad is not None for weight in network.parameters())


SEARCHES: dict[str, Callable[..., Any]] = {
    "tune_threshold": lambda scores, targets, task: mg.tune_threshold("f1", scores, targets, task=task).rule,
    "bootstrap": lambda scores, targets, task: mg.bootstrap(scores, targets, "f1", task=task, replicates=20),
    "compare_paired": lambda scores, targets, task: mg.compare_paired(
        scores, scores, targets, "f1", task=task, replicates=20
    ),
    "select_ensemble": lambda scores, targets, task: (
        mg.select_ensemble("f1", {"one": scores, "two": scores**2}, targets, task=task, rounds=3).weights
    ),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", SEARCHES)
def test_searches_fetch_scores_and_targets_once(name: str, task: Any) -> None:
    scores, targets = draw(task)
    with OtherDevice(copies="allow") as device:
        found = SEARCHES[name](TensorElsewhere(scores), TensorElsewhere(targets), task)
    assert found == SEARCHES[name](scores, targets, task)
    # Scores and targets of each model; an ensemble reads the targets once more.
    assert device.tensors_read == {"tune_threshold": 2, "bootstrap": 2, "compare_paired": 4, "select_ensemble": 5}[name]


def test_the_other_device_refuses_what_a_real_one_would() -> None:
    there = TensorElsewhere(torch.ones(3))
    with OtherDevice():
        with pytest.raises(RuntimeError, match="3 numbers are copied to the host"):
            there.cpu()
        with pytest.raises(RuntimeError, match="expected all tensors on one device"):
            there + torch.ones(3)
        assert (there + 1).sum().item() == 6
