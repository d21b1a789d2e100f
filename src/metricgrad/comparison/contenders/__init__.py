"""The contenders: the ways to train that are compared, and how each is fitted."""
