"""What a comparison keeps until its report is made: arrays that processes share, and the models of its units."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from metricgrad import atomic_files
from metricgrad.comparison.errors import writing
from metricgrad.comparison.protocol import SavedScorer
from metricgrad.comparison.workers import Shared
from metricgrad.estimators.encoded_rows import TextFeatures

if TYPE_CHECKING:
    from pathlib import Path

    from metricgrad.estimators.encoded_rows import Features
    from metricgrad.estimators.table_encoder import Encoder

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
            self._path = atomic_files.temporary(self._run / "scratch")
            with writing(self._path):
                self._path.mkdir()
        return self._path

    def share_array(self, name: str, array: np.ndarray) -> Shared:
        """Write an array for all processes, which map it into memory."""
        return Shared(partial(_map_array, self._add_array(name, array)))

    def share_features(self, repeat: int, features: Features) -> Shared:
        """Write the encoded rows of a repeat for all processes: an array, or several."""
        if isinstance(features, np.ndarray):
            return self.share_array(f"features-{repeat}.npy", features)
        paths = {name: self._add_array(f"{name}-{repeat}.npy", array) for name, array in features.arrays.items()}
        return Shared(partial(_map_features, paths))

    def _add_array(self, name: str, array: np.ndarray) -> Path:
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


def _map_array(path: Path) -> np.ndarray:
    found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


def _map_features(paths: dict[str, Path]) -> TextFeatures:
    return TextFeatures.of_arrays({name: _map_array(path) for name, path in paths.items()})
