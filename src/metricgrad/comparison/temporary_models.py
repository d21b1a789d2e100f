"""What a comparison keeps until its report is made: arrays that processes share, and the models of its candidates.

The folder is private to the user and this process, and not part of the run folder: only what this process wrote there
is read.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from metricgrad.comparison.errors import writing
from metricgrad.comparison.workers import Shared

MOST_REPEATS_KEPT = 5
"""The number of repeats whose models are kept."""


class TemporaryModels:
    """A temporary folder, made when it is first needed."""

    def __init__(self) -> None:
        self._path: Path | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="metricgrad-models-"))
        return self._path

    def share_matrix(self, name: str, matrix: Any) -> Shared:
        """Write a matrix, dense or sparse, for all processes, which map it into memory; other values are sent."""
        if sparse.issparse(matrix):
            parts = {part: self._add_array(f"{name}-{part}", getattr(matrix, part)) for part in _SPARSE_PARTS}
            return Shared(partial(_map_sparse, parts, matrix.shape))
        if isinstance(matrix, np.ndarray):
            return Shared(partial(_map_array, self._add_array(name, matrix)))
        return Shared.value(matrix)

    def _add_array(self, name: str, array: np.ndarray) -> Path:
        path = self.path / f"{name}.npy"
        flat = np.ascontiguousarray(array)
        about = {"descr": flat.dtype.str, "fortran_order": False, "shape": flat.shape}
        with writing(path), path.open("wb") as file:  # not np.save, which does not say why it could not write
            np.lib.format.write_array_header_1_0(file, about)
            file.write(flat.reshape(-1).view(np.uint8).data)
        return path

    def add_models(self, candidate: str, repeat: int, models: list[Any]) -> None:
        """Keep the models of a candidate, in the first repeats."""
        if repeat < MOST_REPEATS_KEPT:
            path = self._name_models(candidate, repeat)
            with writing(path):
                path.write_bytes(pickle.dumps(models, protocol=pickle.HIGHEST_PROTOCOL))

    def read_models(self, candidate: str, repeat: int) -> list[Any] | None:
        """Return the models of a candidate that this process kept, None of others."""
        path = self._name_models(candidate, repeat)
        if not path.is_file():
            return None
        models: list[Any] = pickle.loads(path.read_bytes())  # noqa: S301  # this process wrote it
        return models

    def _name_models(self, candidate: str, repeat: int) -> Path:
        return self.path / f"models-{candidate.replace(' ', '-').replace('/', '-')}-{repeat}"

    def clear(self) -> None:
        """Remove everything."""
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)
        self._path = None


_SPARSE_PARTS = ("data", "indices", "indptr")


def _map_array(path: Path) -> np.ndarray:
    found: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found


def _map_sparse(parts: dict[str, Path], shape: tuple[int, int]) -> sparse.csr_matrix:
    arrays = tuple(_map_array(parts[name]) for name in _SPARSE_PARTS)
    return sparse.csr_matrix(arrays, shape, copy=False)
