"""What all tests share, those in docstrings and in the documentation too."""

import os

import torch

# Keras would take TensorFlow, which is not installed for the tests; JAX must not be in a process that forks.
os.environ.setdefault("KERAS_BACKEND", "torch")

# Pages and scripts of the site, which are no tests: what its build writes, and what it runs.
collect_ignore_glob = [
    "docs/*.py",
    "docs/_site/*",
    "docs/_report/*",
    "docs/reference/*",
    "docs/repository/*",
    "docs/tutorials/*",
]

# Public names of rooms: each replaces itself by the module that it names, which is collected where it is.
ROOMS = ("baselines", "boosting", "curves", "keras", "metrics", "plots", "presets", "samplers", "surrogates")
collect_ignore_glob += [f"src/metricgrad/{name}.py" for name in ROOMS]

# It has no examples to run, and MLflow, which it imports, is in no environment of the tests.
collect_ignore_glob += ["src/metricgrad/integrations/mlflow.py"]

pytest_plugins = ["paper_fixtures"]

# One thread: on the small tensors of tests a second one only waits, for milliseconds a call on a busy machine.
torch.set_num_threads(1)
