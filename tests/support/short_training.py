"""Training that takes no time: tests look at what is done with models, not at how good they are."""

from __future__ import annotations

import pytest

from metricgrad.comparison import options
from metricgrad.estimators import candidates

IN_ANOTHER_PROCESS = """
from metricgrad.comparison import options
from metricgrad.estimators import candidates
candidates.EPOCHS = candidates.PATIENCE = 2
candidates.ROUNDS = candidates.TREES_PER_FOREST = 3
options.FOLDS = 2
"""
"""The same, at the beginning of a program for another process."""


def shorten_training(patch: pytest.MonkeyPatch, epochs: int = 2, rounds: int = 3, folds: int = 2) -> None:
    """Let networks and trees of ``compare`` be trained for a moment only."""
    patch.setattr(candidates, "EPOCHS", epochs)
    patch.setattr(candidates, "PATIENCE", epochs)
    patch.setattr(candidates, "ROUNDS", rounds)
    patch.setattr(candidates, "TREES_PER_FOREST", 3)
    patch.setattr(options, "FOLDS", folds)
