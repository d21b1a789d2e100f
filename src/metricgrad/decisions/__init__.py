"""Decisions: the rules that turn scores into labels, and their tuning.

Fixed: ``Threshold``, ``Argmax``, ``Offsets``, ``ArgmaxOrAbstain``, ``TopK``, ``WeightedTopK``. Tuned:
``tune_threshold``, ``tune_top_k``, ``threshold_averaging``, and ``TuningSpec`` for a rule that is yet to be. For one
instance's label set: ``ExpectedFBeta``, and ``GFM`` with the ``SizeHead`` it needs. For the least expected cost of a
row: ``LeastCost``, and ``LeastCostOfClasses``. For the label sets of all rows together: ``choose_k_labels``. For a base
rate that moved: ``estimate_prevalence``.
"""

from typing import TYPE_CHECKING

from metricgrad.decisions import rules
from metricgrad.decisions.averaged_thresholds import threshold_averaging as threshold_averaging
from metricgrad.decisions.expected_f import GFM as GFM
from metricgrad.decisions.expected_f import ExpectedFBeta as ExpectedFBeta
from metricgrad.decisions.expected_f import SizeHead as SizeHead
from metricgrad.decisions.guarantees import Guarantee as Guarantee
from metricgrad.decisions.k_labels import choose_k_labels as choose_k_labels
from metricgrad.decisions.k_labels import tune_top_k as tune_top_k
from metricgrad.decisions.least_cost import LeastCost as LeastCost
from metricgrad.decisions.least_cost import LeastCostOfClasses as LeastCostOfClasses
from metricgrad.decisions.prevalence import Prevalence as Prevalence
from metricgrad.decisions.prevalence import estimate_prevalence as estimate_prevalence
from metricgrad.decisions.rules import *  # noqa: F403
from metricgrad.decisions.threshold_tuning import TuningResult as TuningResult
from metricgrad.decisions.threshold_tuning import TuningSpec as TuningSpec
from metricgrad.decisions.threshold_tuning import tune_threshold as tune_threshold

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = [
        *rules.__all__,
        *("ExpectedFBeta", "GFM", "Guarantee", "LeastCost", "LeastCostOfClasses", "SizeHead"),
        *("Prevalence", "TuningResult", "TuningSpec", "choose_k_labels", "estimate_prevalence"),
        *("threshold_averaging", "tune_threshold", "tune_top_k"),
    ]
