"""The application in Python: ``mg.compare`` and ``mg.load_run``."""
