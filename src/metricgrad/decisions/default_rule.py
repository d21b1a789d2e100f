"""Defaults: the rule that is not tuned, and what estimators and the application do with rare labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad.decisions.rules import Argmax, Rule, Threshold

if TYPE_CHECKING:
    from metricgrad.core.batch import Task
    from metricgrad.decisions.rare_labels import ThresholdSource

RARE_LABELS: ThresholdSource = "pooled"
"""What the estimators and the application do with a label of few samples; chosen by benchmarks/rare_labels.py."""


def default_rule(task: Task, threshold: float | tuple[float, ...] = 0.5) -> Rule:
    """Return the default rule: the argmax for classes, otherwise a threshold, which is 0.5 on probabilities."""
    return Argmax() if task == "multiclass" else Threshold(threshold)


def resolve_rule(rule: Any, task: Task) -> Rule | None:
    """Return a rule as it is or what "fixed" means, None for "tuned"; or raise."""
    if rule == "tuned":
        return None
    if rule == "fixed":
        return default_rule(task)
    if not isinstance(rule, Rule):
        raise ValueError(f"rule: expected 'tuned', 'fixed' or a rule of mg.decisions, got {rule!r}")
    return rule
