"""A fitted ``TableEncoder`` as files: the descriptions of its columns as JSON, its numbers as arrays, its words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import safetensors.numpy

from metricgrad import strict_json
from metricgrad.estimators.columns.column import Column
from metricgrad.estimators.columns.dates import check_date_format
from metricgrad.estimators.columns.numbers import check_number_format
from metricgrad.estimators.columns.words import Words
from metricgrad.estimators.table_encoder import MOST_TARGET_MEANS, TableEncoder
from metricgrad.messages import one_line
from metricgrad.storage.folders import Files  # noqa: TC001 (read at run time)
from metricgrad.strict_json import Length

_ABOUT, _ARRAYS, _WORDS = "encoder.json", "encoder.safetensors", "words.json"


class _EncoderFile(TypedDict):
    output: Literal["linear", "dense", "trees"]
    names: Annotated[list[str], Length(1, 10**6)]
    columns: Annotated[list[Column], Length(1, 10**6)]
    dropped: dict[str, str]
    encoded_by_target: list[str]


def write_encoder(encoder: TableEncoder) -> Files:
    """Return the files of a fitted encoder."""
    about: _EncoderFile = {
        "output": encoder.output,
        "names": list(map(str, encoder.feature_names_in_)),
        "columns": [asdict(column) for column in encoder.columns_],  # type: ignore[misc]
        "dropped": dict(encoder.dropped_),
        "encoded_by_target": list(encoder.target_means_),
    }
    arrays = {
        "medians": encoder.medians_,
        "often-missing": encoder.often_missing_,
        "shift": encoder.shift_,
        "scale": encoder.scale_,
    }
    for i, slots in enumerate(encoder.slots_.values()):
        arrays[f"slots-{i}"] = slots
    for i, name in enumerate(encoder.target_means_):
        arrays[f"means-{i}"] = encoder.target_means_[name]
        arrays[f"mean-scales-{i}"] = encoder.mean_scales_[name]
    for i, words in enumerate(encoder.words_.values()):
        arrays[f"idf-{i}"], arrays[f"topics-{i}"] = words.idf, words.topics
    # safetensors writes the memory as it lies.
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    files = {_ABOUT: strict_json.as_json(about), _ARRAYS: safetensors.numpy.save(packed)}
    if encoder.words_:
        files[_WORDS] = strict_json.as_json([list(words.vocabulary) for words in encoder.words_.values()])
    return files


def read_encoder(files: Files) -> TableEncoder:
    """Return the encoder that ``write_encoder`` wrote; refuse anything else."""
    about: _EncoderFile = strict_json.read(files[_ABOUT], _EncoderFile, _ABOUT)
    columns = tuple(read_column(one, _ABOUT) for one in about["columns"])
    encoder = TableEncoder(about["output"])
    encoder.columns_, encoder.dropped_ = columns, about["dropped"]
    encoder.feature_names_in_ = np.asarray(about["names"], dtype=object)
    encoder.n_features_in_ = len(about["names"])
    encoder.name_parts()
    texts = [column.name for column in columns if column.kind == "text"]
    arrays = _read_arrays(files, len(encoder.codes_), len(about["encoded_by_target"]), len(texts))
    _set_numbers(encoder, arrays)
    encoder.slots_ = {}
    for i, name in enumerate(encoder.codes_):
        encoder.slots_[name] = _check_slots(arrays[f"slots-{i}"])
    encoder.target_means_, encoder.mean_scales_ = {}, {}
    by_name = {column.name: column for column in columns}
    for i, name in enumerate(about["encoded_by_target"]):
        if name not in by_name or not by_name[name].levels:
            raise ValueError(f"{_ABOUT}: expected columns of many categories, got {one_line(name, 60)!r}")
        rows = len(by_name[name].levels) + 2
        table, scales = arrays[f"means-{i}"], arrays[f"mean-scales-{i}"]
        if table.ndim != 2 or len(table) != rows or not 1 <= table.shape[1] <= MOST_TARGET_MEANS:
            raise ValueError(f"{_ARRAYS}: expected means of {rows} categories, got shape {table.shape}")
        if scales.shape != (2, table.shape[1]) or (scales[1] <= 0).any():
            raise ValueError(f"{_ARRAYS}: expected scales of {table.shape[1]} means, got others")
        encoder.target_means_[name], encoder.mean_scales_[name] = table, scales
    vocabularies = strict_json.read(files[_WORDS], list[list[str]], _WORDS) if texts else []
    if len(vocabularies) != len(texts):
        raise ValueError(f"{_WORDS}: expected the words of {len(texts)} columns, got {len(vocabularies)}")
    encoder.words_ = {
        name: Words.checked(vocabularies[i], arrays[f"idf-{i}"], arrays[f"topics-{i}"]) for i, name in enumerate(texts)
    }
    return encoder


def read_column(data: Any, where: str) -> Column:
    """Return the description of a column that a file holds, or raise a ``ValueError``."""
    values: dict[str, Any] = {key: tuple(one) if isinstance(one, list) else one for key, one in data.items()}
    column = Column(**values)
    name = one_line(column.name, 60)
    bins = len(column.categories) + column.others if column.kind == "category" else len(column.edges) + 1
    if len(column.shares) != bins or list(column.edges) != sorted(column.edges):
        raise ValueError(f"{where}: columns: expected {bins} shares of {name!r}")
    if column.levels and column.kind != "category":
        raise ValueError(f"{where}: columns: expected no levels of {name!r}")
    if column.number_format is not None:
        check_number_format(column.number_format)
    if column.date_format is not None:
        check_date_format(column.date_format)
    return column


def _read_arrays(files: Files, categories: int, means: int, texts: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = safetensors.numpy.load(files[_ARRAYS])
    names = ["medians", "often-missing", "shift", "scale", *(f"slots-{i}" for i in range(categories))]
    names += [f"{part}-{i}" for i in range(means) for part in ("means", "mean-scales")]
    names += [f"{part}-{i}" for i in range(texts) for part in ("idf", "topics")]
    if sorted(arrays) != sorted(names):
        raise ValueError(f"{_ARRAYS}: expected the arrays of the columns of {_ABOUT}, got others")
    kinds = {"often-missing": np.bool_, "shift": np.float64, "scale": np.float64}
    for name, array in arrays.items():
        kind = name.rstrip("0123456789").removesuffix("-")
        wanted = kinds.get(kind, {"slots": np.int64, "mean-scales": np.float64}.get(kind, np.float32))
        if array.dtype != wanted or not np.isfinite(array).all():
            raise ValueError(f"{_ARRAYS}: expected finite numbers of {np.dtype(wanted)} in {name}, got others")
    return arrays


def _set_numbers(encoder: TableEncoder, arrays: dict[str, np.ndarray]) -> None:
    """Set the medians and scales of the columns of numbers."""
    shape = (len(encoder.numbers_),)
    if any(arrays[name].shape != shape for name in ("medians", "often-missing", "shift", "scale")):
        raise ValueError(f"{_ARRAYS}: expected medians and scales of {shape[0]} columns, got others")
    if (arrays["scale"] <= 0).any():
        raise ValueError(f"{_ARRAYS}: expected positive scales, got others")
    encoder.medians_, encoder.often_missing_ = arrays["medians"], arrays["often-missing"]
    encoder.shift_, encoder.scale_ = arrays["shift"], arrays["scale"]


def _check_slots(slots: np.ndarray) -> np.ndarray:
    """Return the one-hot columns of codes, or raise: they are numbered from 0, and −1 stands for none."""
    used = np.unique(slots[slots >= 0]) if slots.ndim == 1 else slots
    if slots.ndim != 1 or len(slots) < 2 or slots.min() < -1 or not np.array_equal(used, np.arange(len(used))):
        raise ValueError(f"{_ARRAYS}: expected the one-hot columns of codes, got others")
    return slots
