"""One thread: on the small tensors of tests a second one only waits, for milliseconds a call on a busy machine.

Keras reads the name of its backend when it is first imported; the tests use JAX unless told otherwise.
"""

from __future__ import annotations

import os

import torch

torch.set_num_threads(1)
os.environ.setdefault("KERAS_BACKEND", "jax")
