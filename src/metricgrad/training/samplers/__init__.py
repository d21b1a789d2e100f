"""Samplers: which samples make a batch, for rare classes and metrics that need positives in every batch.

A batch without positives gives a metric no gradient, and at 0.2 % positives most small batches have none. All samplers
here take the targets as torch, numpy, pandas or lists: 0/1 or class indices ``(N,)``, or 0/1 labels ``(N, K)`` where
said; and the keywords ``seed``, ``rank`` and ``world_size`` (those of ``torch.distributed``, if it runs). The order of
an epoch follows from the seed and the epoch alone, and an epoch that ran to its end moves on to the next.
``batch_size`` is that of the batch over all processes: each process gets its disjoint part of every batch, so that the
batches are the same on one process and on eight. A part has the classes of its batch up to one sample each, so that a
batch with at least as many samples of a class as there are processes gives every process one.
"""

from metricgrad.training.samplers.batches import ClassBalancedBatchSampler as ClassBalancedBatchSampler
from metricgrad.training.samplers.batches import MinimumPositivesBatchSampler as MinimumPositivesBatchSampler
from metricgrad.training.samplers.batches import StratifiedBatchSampler as StratifiedBatchSampler
from metricgrad.training.samplers.epochs import Epochs as Epochs
from metricgrad.training.samplers.epochs import epoch_generator as epoch_generator
from metricgrad.training.samplers.oversampling import OversamplingSampler as OversamplingSampler

__all__ = [
    "ClassBalancedBatchSampler",
    "MinimumPositivesBatchSampler",
    "OversamplingSampler",
    "StratifiedBatchSampler",
]
