"""Commands that use a run: predict, evaluate, tune and report."""
