"""Public name of ``metricgrad.evaluation.plots``: plots of evaluations, with matplotlib."""

import sys

from metricgrad.evaluation import plots as _room
from metricgrad.evaluation.plots import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
