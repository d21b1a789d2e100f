"""The files of a candidate in a repeat: its scores, and a record with their hashes."""

from __future__ import annotations

import io
import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from metricgrad import strict_json
from metricgrad.strict_json import Name, Range, Sha256

if TYPE_CHECKING:
    from metricgrad.comparison.candidate_runs import CandidateRun

SUFFIXES = {"scores": ".npy", "out_of_fold": "-out-of-fold.npy"}
"""How the names of the files of scores end: of the test rows, and of the training rows."""


@dataclass(frozen=True)
class CandidateRecord:
    """What is kept of a candidate in a repeat besides its scores, and the hashes of these."""

    candidate: Name
    repeat: Annotated[int, Range(0, 10**6)]
    seconds: Annotated[float, Range(0, 10**9)]
    history: list[dict[str, float]]
    scores: Sha256
    out_of_fold: Sha256

    @property
    def file_name(self) -> str:
        """The name of its files without their suffix."""
        return name_file(self.candidate, self.repeat)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> CandidateRecord:
        """Return the record that a file holds, or raise a ``ValueError``."""
        strict_json.check(data, cls, "candidate")
        return cls(**data)


def name_file(name: str, repeat: int) -> str:
    """Return the name of the files of a candidate or contender in a repeat, without a suffix.

    >>> name_file("logistic regression, C=0.1", 3)
    'logistic-regression-C-0.1-003'
    """
    return f"{re.sub(r'[^0-9A-Za-z.]+', '-', name)}-{repeat:03d}"


def pack_candidate(run: CandidateRun) -> tuple[CandidateRecord, dict[str, bytes]]:
    """Return the record and the files of a finished unit; its JSON file comes last, when the others are complete."""
    packed = {"scores": _pack_array(run.scores), "out_of_fold": _pack_array(run.out_of_fold)}
    hashes = {key: strict_json.sha256(data) for key, data in packed.items()}
    record = CandidateRecord(run.candidate, run.repeat, run.seconds, run.history, **hashes)
    files = {f"{record.file_name}{SUFFIXES[key]}": data for key, data in packed.items()}
    return record, {**files, f"{record.file_name}.json": strict_json.seal(asdict(record))}


def _pack_array(array: np.ndarray) -> bytes:
    packed = io.BytesIO()
    np.save(packed, np.ascontiguousarray(array, dtype=np.float64), allow_pickle=False)
    return packed.getvalue()


def parse_scores(data: bytes, rows: int, columns: int | None = None) -> np.ndarray:
    """Return the scores of an ``.npy`` file: float64, one per row, or this number of columns.

    The header is compared with the size of the file before any memory is allocated.
    """
    file = io.BytesIO(data)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("unsupported version")
        shape, by_columns, dtype = np.lib.format.read_array_header_1_0(file)
    except Exception as error:  # the header is a Python literal, and parsing it may raise anything
        raise ValueError(f"expected a numpy array, got one that cannot be read ({error})") from error
    right = shape == ((rows,) if columns is None else (rows, columns))
    if not right or by_columns or dtype != np.float64 or len(data) - file.tell() != 8 * math.prod(shape):
        raise ValueError(f"expected float64 scores of {rows} rows, got {dtype} of shape {shape}")
    return np.frombuffer(data, np.float64, offset=file.tell()).reshape(shape)
