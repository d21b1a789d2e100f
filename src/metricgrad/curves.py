"""Public name of ``metricgrad.core.curves``: hard counts at every threshold, and what follows from them."""

import sys

from metricgrad.core import curves as _room
from metricgrad.core.curves import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
