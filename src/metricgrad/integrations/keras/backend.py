"""Whether Keras can start: it takes TensorFlow unless told otherwise, installed or not."""

from __future__ import annotations

try:
    import keras  # noqa: F401
except ModuleNotFoundError as error:
    if error.name == "keras":
        raise
    raise ImportError(
        f"Keras: expected its backend to be installed, got no {error.name}; set the environment variable KERAS_BACKEND "
        "to jax, torch or tensorflow before Keras is imported"
    ) from error
