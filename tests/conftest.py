"""One thread: on the small tensors of tests a second one only waits, for milliseconds a call on a busy machine."""

from __future__ import annotations

import torch

pytest_plugins = ["paper_fixtures"]
torch.set_num_threads(1)
