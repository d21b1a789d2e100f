"""Decisions: the rules that turn scores into labels, and their tuning.

Fixed: ``Threshold``, ``Argmax``, ``Offsets``, ``TopK``. Tuned: ``tune_threshold``, ``threshold_averaging``, and
``Tuned`` for a rule that is yet to be. For one instance's label set: ``ExpectedFBeta``, and ``GFM`` with the
``SizeHead`` it needs.
"""

from metricgrad.decisions.expected_f import GFM, ExpectedFBeta, SizeHead
from metricgrad.decisions.rules import Argmax, Offsets, Rule, Threshold, TopK
from metricgrad.decisions.tuning import Tuned, Tuning, threshold_averaging, tune_threshold

__all__ = [
    "GFM",
    "Argmax",
    "ExpectedFBeta",
    "Offsets",
    "Rule",
    "SizeHead",
    "Threshold",
    "TopK",
    "Tuned",
    "Tuning",
    "threshold_averaging",
    "tune_threshold",
]
