"""Hugging Face Trainer: multi-label texts, exact gradient accumulation, the best epoch by F1, a threshold per label.

python examples/huggingface_trainer.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers
from torch import Tensor

import metricgrad as mg
import tickets

LOSS = mg.HybridLoss("f1", task="multilabel")


class ExactTrainer(transformers.Trainer):  # type: ignore[misc]
    """Backpropagates all micro-batches of a step as one batch, at the last of them."""

    def get_batch_samples(self, *args: Any) -> Any:
        self.micro_batches, items = super().get_batch_samples(*args)
        return self.micro_batches, items

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        if inputs is not self.micro_batches[-1]:
            return torch.zeros((), device=self.args.device)
        batches = [dict(self._prepare_inputs(batch)) for batch in self.micro_batches]
        how: Any = {"forward": lambda model, batch: (model(**batch).logits, batch["labels"])}
        with self.compute_loss_context_manager():  # autocast, if any
            return mg.exact_backward(LOSS, model.train(), batches, scaler=self.accelerator.scaler, **how)


def evaluate(found: Any) -> dict[str, float]:
    """Return macro-F1 with the best threshold of each label, which tells epochs apart long before 0.5 does."""
    return {"f1": mg.tune_threshold("f1", found.predictions, found.label_ids, task="multilabel").value}


def make_trainer(folder: str, micro: int, kind: Any = ExactTrainer, epochs: int = 8) -> Any:
    """Return a trainer on batches of 64 in parts of ``micro``, with a small new model."""
    transformers.set_seed(0)
    tokenizer = tickets.make_tokenizer()
    batches = {"per_device_train_batch_size": micro, "gradient_accumulation_steps": 64 // micro, "learning_rate": 5e-3}
    each_epoch = dict.fromkeys(("eval_strategy", "save_strategy", "logging_strategy"), "epoch")
    best = {"load_best_model_at_end": True, "metric_for_best_model": "f1", "num_train_epochs": epochs}
    quiet: Any = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "per_device_eval_batch_size": 500}
    return kind(
        model=tickets.make_model(tokenizer),
        args=transformers.TrainingArguments(folder, **batches, **each_epoch, **best, **quiet),
        train_dataset=tickets.read_tickets(tokenizer, 2048, seed=0),
        eval_dataset=tickets.read_tickets(tokenizer, 1000, seed=1),
        processing_class=tokenizer,
        compute_loss_func=lambda outputs, labels, num_items_in_batch=None: LOSS(outputs.logits, labels),
        compute_metrics=evaluate,
        callbacks=[transformers.EarlyStoppingCallback(early_stopping_patience=2)],
    )


def main() -> dict[str, Any]:
    """Train, tune, save, load and evaluate."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(folder, micro=32)
        before = trainer.evaluate()["eval_f1"]
        trainer.train()
        found = trainer.predict(trainer.eval_dataset)
        tuning = mg.tune_threshold("f1", found.predictions, found.label_ids, task="multilabel")
        trainer.save_model(folder)
        mg.save_rule(tuning.rule, f"{folder}/rule.json")
        after = evaluate_saved(folder)
    print(f"Hugging Face Trainer: F1 {before:.3f} before, {after:.3f} after")
    return {"before": before, "after": after, "history": trainer.state.log_history}


def evaluate_saved(folder: str) -> float:
    """Return macro-F1 of new texts by the model and the rule in a folder."""
    texts, labels = tickets.write_tickets(1000, seed=2)
    classify = transformers.pipeline("text-classification", folder, top_k=None, function_to_apply="none")
    scores = [[one["score"] for one in sorted(row, key=lambda one: one["label"])] for row in classify(texts)]
    return mg.evaluate(scores, labels, "f1", task="multilabel", rule=mg.load_rule(f"{folder}/rule.json"))["f1"]


if __name__ == "__main__":
    main()
