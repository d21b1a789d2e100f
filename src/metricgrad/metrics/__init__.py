"""Counts to values: the metrics, their derivatives and bounds, averages over classes, constraints."""

from typing import TYPE_CHECKING

from metricgrad.metrics.derivatives import log as log
from metricgrad.metrics.derivatives import ratio as ratio
from metricgrad.metrics.derivatives import root as root
from metricgrad.metrics.registry import Metric as Metric
from metricgrad.metrics.registry import get as get
from metricgrad.metrics.registry import name_of as name_of
from metricgrad.metrics.registry import names as names
from metricgrad.metrics.registry import of_counts as of_counts
from metricgrad.metrics.registry import of_matrix as of_matrix

if TYPE_CHECKING:  # type checkers see the functions themselves
    from metricgrad.metrics.functions import *  # noqa: F403
    from metricgrad.metrics.matrix import *  # noqa: F403
else:
    globals().update({name: get(name) for name in names()})
    __all__ = sorted(["Metric", "get", "log", "names", "ratio", "root", *names()])
