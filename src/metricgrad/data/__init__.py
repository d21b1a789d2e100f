"""Batches from data that does not fit into memory."""
