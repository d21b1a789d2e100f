"""The files of a unit: its scores, and its outcome with their hashes."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import numpy as np

from metricgrad import strict_json

if TYPE_CHECKING:
    from metricgrad.comparison.protocol import Outcome

SCORES = {"scores": ".npy", "held_out": "-held.npy"}
"""The scores of a unit, of test and of held-out rows: the key of their hash, and how the name of their file ends."""


def name_unit(outcome: Outcome) -> str:
    """Return the name of a unit's files without their suffix."""
    return f"{outcome.contender.replace(' ', '-')}-{outcome.repeat:03d}"


def pack_unit(outcome: Outcome, scores: np.ndarray, held_out: np.ndarray | None) -> dict[str, bytes]:
    """Return the files of a unit by name: the scores, and the outcome with their hashes."""
    name, about, files = name_unit(outcome), outcome.to_json(), dict[str, bytes]()
    for which, array in (("scores", scores), ("held_out", held_out)):
        if array is not None:
            packed = io.BytesIO()
            np.save(packed, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
            files[f"{name}{SCORES[which]}"] = packed.getvalue()
            about[which] = strict_json.sha256(packed.getvalue())
    return {**files, f"{name}.json": strict_json.sealed(about)}


def parse_scores(data: bytes, rows: int, classes: int | None = None) -> np.ndarray:
    """Return the scores of an ``.npy`` file: float64, with this number of rows, and of classes if given.

    The header is compared with the size of the file before any memory is allocated.
    """
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("unsupported version")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # the header is a Python literal, and parsing it may raise anything
        raise ValueError(f"expected a numpy array, got one that cannot be read ({error})") from error
    right = len(shape) in (1, 2) and shape[0] == rows and (classes is None or shape == (rows, classes))
    if not right or by_columns or dtype != np.float64 or len(data) - file.tell() != 8 * math.prod(shape):
        raise ValueError(f"expected float64 scores of {rows} rows, got {dtype} of shape {shape}")
    return np.frombuffer(data, np.float64, offset=file.tell()).reshape(shape)
