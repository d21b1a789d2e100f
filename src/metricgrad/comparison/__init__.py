"""The command-line application; its dependencies come with the ``app`` extra."""
