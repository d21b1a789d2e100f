"""Counts to values: the metrics, their derivatives and bounds, averages over classes, constraints."""

from typing import TYPE_CHECKING

from metricgrad.metrics import functions
from metricgrad.metrics.derivatives import ratio as ratio
from metricgrad.metrics.derivatives import root as root
from metricgrad.metrics.functions import *  # noqa: F403
from metricgrad.metrics.functions import name_of as name_of
from metricgrad.metrics.functions import of_counts as of_counts
from metricgrad.metrics.functions import of_matrix as of_matrix

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = functions.__all__
