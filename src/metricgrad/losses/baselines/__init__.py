"""Baselines: what people train with today, one short function per method, to compare a metric loss with.

Each returns an ``nn.Module`` called as ``loss(logits, targets, weight=None, mask=None)``, always with logits, and takes
the keywords ``task``, ``ignore_index`` and ``process_group``; those that are a ``MetricLoss`` take ``surrogate``,
``average``, ``threshold``, ``labels`` and ``empty_classes`` too, all others ``reduction``. The value is the weighted
mean over what counts by default, where a paper or its authors' code sums. The loss of a soft label is the mean of the
losses of its hard labels: it is linear in the label. A baseline is public by being in ``__all__`` of its file here.
"""

from typing import TYPE_CHECKING

from metricgrad.losses.baselines import entropies, focusing, lovasz, overlap
from metricgrad.losses.baselines.entropies import *  # noqa: F403
from metricgrad.losses.baselines.focusing import *  # noqa: F403
from metricgrad.losses.baselines.lovasz import *  # noqa: F403
from metricgrad.losses.baselines.overlap import *  # noqa: F403

if not TYPE_CHECKING:  # type checkers read the imports above
    __all__ = [*entropies.__all__, *focusing.__all__, *lovasz.__all__, *overlap.__all__]
