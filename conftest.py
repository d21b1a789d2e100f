"""What all tests share, those in docstrings and in the documentation too."""

import os

import torch

# Keras would take TensorFlow, which is not installed for the tests; JAX must not be in a process that forks.
os.environ.setdefault("KERAS_BACKEND", "torch")

# Pages and scripts of the site, which are no tests: what its build writes, and what it runs.
collect_ignore_glob = ["docs/*.py", "docs/_site/*", "docs/reference/*", "docs/repository/*", "docs/tutorials/*"]

pytest_plugins = ["paper_fixtures"]

# One thread: on the small tensors of tests a second one only waits, for milliseconds a call on a busy machine.
torch.set_num_threads(1)
