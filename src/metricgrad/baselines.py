"""Public name of ``metricgrad.losses.baselines``: what people train with today."""

import sys

from metricgrad.losses import baselines as _room
from metricgrad.losses.baselines import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
