"""A run's model over HTTP: ``metricgrad serve``."""
