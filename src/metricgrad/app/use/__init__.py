"""A run in use: predict, evaluate, tune."""
