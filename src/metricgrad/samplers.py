"""Public name of ``metricgrad.training.samplers``: which samples make a batch."""

import sys

from metricgrad.training import samplers as _room
from metricgrad.training.samplers import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
