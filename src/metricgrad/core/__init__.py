"""One batch to loss and gradient: inputs, the batch, its statistics, the kernel, the objective, processes."""
