"""The losses for Keras 3, on TensorFlow, JAX and torch: ``loss(y_true, y_pred, sample_weight)``, always of logits.

The metrics are the very functions of ``metricgrad.metrics`` and the surrogates the dataclasses of
``metricgrad.surrogates``; values and gradients are those of the losses in torch. Each batch is its own: a loss that is
exact over several processes or micro-batches is torch's alone.
"""

from metricgrad.integrations.keras import backend  # noqa: F401  # first: it says what to do when Keras cannot start
from metricgrad.integrations.keras.evaluation import ExactMetric as ExactMetric
from metricgrad.integrations.keras.losses import HybridLoss as HybridLoss
from metricgrad.integrations.keras.losses import MetricLoss as MetricLoss
from metricgrad.integrations.keras.presets import mfom_f1 as mfom_f1
from metricgrad.integrations.keras.presets import multiclass_f_beta as multiclass_f_beta
from metricgrad.integrations.keras.presets import sigmoid_f1 as sigmoid_f1
from metricgrad.integrations.keras.presets import soft_dice as soft_dice
from metricgrad.integrations.keras.presets import soft_set as soft_set
from metricgrad.integrations.keras.presets import unbounded_f1 as unbounded_f1

__all__ = [
    "ExactMetric",
    "HybridLoss",
    "MetricLoss",
    "mfom_f1",
    "multiclass_f_beta",
    "sigmoid_f1",
    "soft_dice",
    "soft_set",
    "unbounded_f1",
]
