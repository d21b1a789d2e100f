"""What is compared: each way to train, and how it is fitted."""
