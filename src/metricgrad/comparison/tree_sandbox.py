"""Boosted trees are tried in a separate process, since a forged file can crash or hang the library that reads it."""

from __future__ import annotations

import subprocess

from metricgrad.comparison import tree_sandbox_work
from metricgrad.comparison.child_process import NOT_FINISHED, Child

MOST_SECONDS = 120.0
"""The time limit of the process, which usually takes half a second, most of it to import the library."""


class TreeSandbox:
    """A running process that tries the trees of some files; it imports their library while the caller goes on."""

    def __init__(self, library: str, files: dict[str, bytes]) -> None:
        self.files = files
        self._child = Child(tree_sandbox_work.__file__, library)

    def finish(self) -> None:
        """Wait for the process; raise a ``ValueError`` if trees cannot be used."""
        data = b"".join(len(one).to_bytes(8, "big") + one for one in self.files.values())
        try:
            self._child.process.communicate(data, timeout=MOST_SECONDS)
            why = self._child.explain()
        except subprocess.TimeoutExpired:
            why = NOT_FINISHED
        finally:
            self.stop()
        if why is not None:
            raise ValueError(f"{', '.join(self.files)} cannot be used: {why}")

    def stop(self) -> None:
        """End the process if it has not ended."""
        self._child.stop()
