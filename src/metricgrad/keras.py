"""Public name of ``metricgrad.integrations.keras``: the losses for Keras 3."""

import sys

from metricgrad.integrations import keras as _room
from metricgrad.integrations.keras import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
