"""What people put into their training loop: every loss is an ``nn.Module``, in a file of its name; it imports ``core``."""
