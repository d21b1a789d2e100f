"""Public name of ``metricgrad.integrations.boosting``: metric losses as objectives of XGBoost and LightGBM."""

import sys

from metricgrad.integrations import boosting as _room
from metricgrad.integrations.boosting import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
