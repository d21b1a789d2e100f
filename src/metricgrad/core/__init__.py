"""One batch to loss and gradient, computed in ``kernel.py``: inputs, statistics, metrics, surrogates, processes."""
