"""The recipe for Hugging Face's Trainer: its gradient is that of the whole batch, and it stops and keeps by F1."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg

transformers = pytest.importorskip("transformers")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("huggingface_trainer")


def gradients_of_first_step(recipe: Any, folder: Path, micro: int, kind: Any) -> dict[str, Tensor]:
    """Return the gradients that the optimiser gets in its first step."""
    found: dict[str, Tensor] = {}

    class KeepsGradients(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, *, model: Any, **others: Any) -> None:
            found.update((name, weight.grad.clone()) for name, weight in model.named_parameters())

    trainer = recipe.make_trainer(str(folder), micro, kind)
    trainer.args.max_steps = 1
    trainer.args.max_grad_norm = 0.0
    trainer.add_callback(KeepsGradients())
    trainer.train()
    assert found
    return found


def largest_difference(first: dict[str, Tensor], second: dict[str, Tensor]) -> float:
    """Return the largest difference of two gradients, relative to the largest gradient."""
    scale = max(float(gradient.abs().max()) for gradient in first.values())
    return max(float((first[name] - second[name]).abs().max()) for name in first) / scale


@pytest.mark.parametrize(("loss", "least"), [(mg.HybridLoss, 1e-3), (mg.MetricLoss, 0.1)])
def test_accumulated_gradients_are_those_of_the_batch(
    loss: Any, least: float, recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recipe, "LOSS", loss("f1", task="multilabel"))
    whole = gradients_of_first_step(recipe, tmp_path / "whole", 64, transformers.Trainer)
    exact = gradients_of_first_step(recipe, tmp_path / "exact", 8, recipe.ExactTrainer)
    assert largest_difference(whole, exact) < 1e-5
    # compute_loss_func alone gives the sum of the micro-batches' gradients, and their mean is another gradient.
    sums = gradients_of_first_step(recipe, tmp_path / "sums", 8, transformers.Trainer)
    assert largest_difference(whole, sums) > 1
    assert largest_difference(whole, {name: gradient / 8 for name, gradient in sums.items()}) > least


def test_training_stops_and_keeps_the_best_epoch_by_the_metric(recipe: Any, tmp_path: Path) -> None:
    trainer = recipe.make_trainer(str(tmp_path), 64, transformers.Trainer, epochs=20)
    values = iter([0.1, 0.6, 0.5, 0.4, 0.3])
    trainer.compute_metrics = lambda found: {"f1": next(values)}
    trainer.train()
    logged = [row["eval_f1"] for row in trainer.state.log_history if "eval_f1" in row]
    assert logged == [0.1, 0.6, 0.5, 0.4]  # two epochs without a better one
    assert trainer.state.best_metric == 0.6
    best = transformers.AutoModelForSequenceClassification.from_pretrained(trainer.state.best_model_checkpoint)
    for name, weight in trainer.model.state_dict().items():
        assert torch.equal(weight, best.state_dict()[name])
