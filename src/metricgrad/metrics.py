"""Public name of ``metricgrad.core.metrics``: the metrics, functions of counts."""

import sys

from metricgrad.core import metrics as _room
from metricgrad.core.metrics import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
