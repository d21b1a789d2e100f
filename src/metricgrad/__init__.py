"""metricgrad: train on the metric you will be judged on."""

from metricgrad import curves, metrics, presets, surrogates
from metricgrad.counts import Confusion, Counts, Mean, count
from metricgrad.hybrid import HybridLoss
from metricgrad.losses import MetricLoss

__version__ = "0.1.0"

__all__ = [
    "Confusion",
    "Counts",
    "HybridLoss",
    "Mean",
    "MetricLoss",
    "count",
    "curves",
    "metrics",
    "presets",
    "surrogates",
]
