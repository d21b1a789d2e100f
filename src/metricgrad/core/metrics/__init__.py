"""Counts to values: the metrics, their derivatives and bounds, averages over classes, constraints."""

from typing import TYPE_CHECKING

from metricgrad.core.metrics.derivatives import log as log
from metricgrad.core.metrics.derivatives import ratio as ratio
from metricgrad.core.metrics.derivatives import root as root
from metricgrad.core.metrics.properties import MetricProperties as MetricProperties
from metricgrad.core.metrics.properties import declare as declare
from metricgrad.core.metrics.properties import properties_of as properties_of
from metricgrad.core.metrics.registry import get as get
from metricgrad.core.metrics.registry import name_of as name_of
from metricgrad.core.metrics.registry import names as names
from metricgrad.core.metrics.signatures import Metric as Metric
from metricgrad.core.metrics.signatures import of_counts as of_counts
from metricgrad.core.metrics.signatures import of_matrix as of_matrix

if TYPE_CHECKING:  # type checkers see the functions themselves
    from metricgrad.core.metrics.functions import *  # noqa: F403
    from metricgrad.core.metrics.matrix import *  # noqa: F403
else:
    globals().update({name: get(name) for name in names()})
    __all__ = sorted(
        [
            "Metric",
            "MetricProperties",
            "declare",
            "get",
            "log",
            "names",
            "properties_of",
            "ratio",
            "root",
            *names(),
        ]
    )
