"""The command line's jobs; what they need comes with the ``app`` extra."""
