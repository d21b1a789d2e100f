"""Public name of ``metricgrad.core.surrogates``: soft steps that turn logits into memberships."""

import sys

from metricgrad.core import surrogates as _room
from metricgrad.core.surrogates import *  # noqa: F403  # for type checkers

sys.modules[__name__] = _room
