"""Value and gradient of a loss of Keras, whatever its backend, as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

Call = Callable[[Any], Any]
"""Of logits: returns a scalar."""


def value_and_gradient(call: Call, logits: np.ndarray[Any, Any], compiled: bool = False) -> tuple[Any, Any]:
    """Return a scalar function of the logits and its gradient; ``compiled``: under jax.jit or tf.function."""
    if keras.backend.backend() == "jax":
        import jax

        both = jax.value_and_grad(call)
        found = (jax.jit(both) if compiled else both)(logits)
    elif keras.backend.backend() == "tensorflow":
        found = _on_tensorflow(call, logits, compiled)
    else:
        import torch

        z = torch.tensor(logits, requires_grad=True)
        value = call(z)
        found = value.detach(), torch.autograd.grad(value, z)[0]
    return tuple(np.asarray(x) for x in found)  # type: ignore[return-value]


def _on_tensorflow(call: Call, logits: np.ndarray[Any, Any], compiled: bool) -> tuple[Any, Any]:
    import tensorflow as tf

    def both(z: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(z)
            value = call(z)
        return value, tape.gradient(value, z)

    if compiled:  # of any number of rows, as in model.fit
        shape = tf.TensorSpec((None, *logits.shape[1:]), tf.as_dtype(logits.dtype))
        both = tf.function(both, input_signature=[shape])
    value, gradient = both(tf.constant(logits))
    return value.numpy(), gradient.numpy()
