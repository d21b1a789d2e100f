"""What a comparison keeps until its report is made: arrays that processes share, and the models of its units."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np

from metricgrad import atomic
from metricgrad.app.errors import writing
from metricgrad.app.study.protocol import SavedScorer

if TYPE_CHECKING:
    from pathlib import Path

    from metricgrad.app.tables.encoder import Encoder

KEPT = 5
"""The number of repeats whose models are kept."""

_KIND = ".kind"  # the file that names the class of a model


class Scratch:
    """A temporary folder in a run folder, made when it is first needed.

    ``encoders``: by repeat, those that this process fitted.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._path: Path | None = None
        self.encoders: dict[int, Encoder] = {}

    @property
    def path(self) -> Path:
        """The folder."""
        if self._path is None:
            self._path = atomic.temporary(self._run / "scratch")
            with writing(self._path):
                self._path.mkdir()
        return self._path

    def add_array(self, name: str, array: np.ndarray) -> Path:
        """Write an array that the processes share; return its path."""
        path = self.path / name
        with writing(path):
            np.save(path, array, allow_pickle=False)
        return path

    def add_scorer(self, contender: str, repeat: int, scorer: SavedScorer) -> None:
        """Write the model of a unit, in the first repeats."""
        if repeat >= KEPT:
            return
        folder = self.path / f"{contender}-{repeat}"
        with writing(folder):
            folder.mkdir()
            for name, data in {**scorer.files, _KIND: scorer.kind.encode()}.items():
                (folder / name).write_bytes(data)

    def read_scorer(self, contender: str, repeat: int) -> SavedScorer | None:
        """Return the model of a unit that this process finished, None of others."""
        folder = self.path / f"{contender}-{repeat}"
        if not folder.is_dir():
            return None
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        return SavedScorer(files.pop(_KIND).decode(), files)

    def clear(self) -> None:
        """Remove everything."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path, self.encoders = None, {}
