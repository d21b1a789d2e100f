"""The parts of ``attack.py``: each module makes numbered cases and returns what is wrong with one."""
