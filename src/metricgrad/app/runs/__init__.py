"""The run folder: written whole, verified when read."""
