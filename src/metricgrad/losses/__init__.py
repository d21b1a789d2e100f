"""Every loss is an nn.Module, one file for each kind."""
