"""Scores and targets to values: streaming, bootstrap intervals, diagnostics."""
