"""Public name of ``metricgrad.losses.presets``: one function for each published method."""

import sys

from metricgrad.losses import presets as _room
from metricgrad.losses.presets import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
