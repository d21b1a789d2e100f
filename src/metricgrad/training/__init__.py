"""Training in memory: small networks, a loop without per-sample Python, early stopping, averaged weights."""
