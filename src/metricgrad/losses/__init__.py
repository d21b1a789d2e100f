"""What people put into their training loop: a loss is an ``nn.Module``, in a file of its name, and imports ``core``."""
