"""A fitted ``TableEncoder`` as files: the descriptions of its columns as JSON, its numbers as arrays, its words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal, TypedDict

import numpy as np
import safetensors
import safetensors.numpy

from metricgrad import strict_json
from metricgrad.estimators.columns.column import Column
from metricgrad.estimators.columns.dates import check_date_format
from metricgrad.estimators.columns.numbers import check_number_format
from metricgrad.estimators.columns.words import Words
from metricgrad.estimators.table_encoder import MOST_TARGET_MEANS, TableEncoder
from metricgrad.messages import one_line
from metricgrad.storage.folders import Files  # noqa: TC001 (read at run time)
from metricgrad.strict_json import Length, first_line

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
        arrays[f"idf-{i}"] = words.idf
        arrays[f"topics-{i}"] = words.topics
    # safetensors writes the memory as it lies.
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    files = {_ABOUT: strict_json.as_json(about), _ARRAYS: safetensors.numpy.save(packed)}
    if encoder.words_:
        files[_WORDS] = strict_json.as_json([list(words.vocabulary) for words in encoder.words_.values()])
    return files


def read_encoder(files: Files) -> TableEncoder:
    """Return the encoder that ``write_encoder`` wrote; refuse anything else."""
    about: _EncoderFile = strict_json.read(_take_file(files, _ABOUT), _EncoderFile, _ABOUT)
    encoder = TableEncoder(about["output"])
    encoder.columns_ = tuple(read_column(one, _ABOUT) for one in about["columns"])
    encoder.dropped_ = about["dropped"]
    encoder.feature_names_in_ = np.asarray(about["names"], dtype=object)
    encoder.n_features_in_ = len(about["names"])
    _check_names(about["names"], encoder.columns_)
    encoder.name_parts()
    arrays = _read_arrays(files, len(encoder.codes_), len(about["encoded_by_target"]), len(encoder.texts_))
    _set_numbers(encoder, arrays)
    _set_slots(encoder, arrays)
    _set_target_means(encoder, about["encoded_by_target"], arrays)
    _set_words(encoder, files, arrays)
    return encoder


def _take_file(files: Files, name: str) -> bytes:
    if name not in files:
        raise ValueError(f"{name}: expected a file of this name, got none")
    return files[name]


def _check_names(names: list[str], columns: tuple[Column, ...]) -> None:
    """Refuse columns of the same name, and columns that the table did not have."""
    if len(set(names)) < len(names):
        raise ValueError(f"{_ABOUT}: names: expected every name once")
    names_of_columns = [column.name for column in columns]
    if len(set(names_of_columns)) < len(names_of_columns) or not set(names_of_columns) <= set(names):
        raise ValueError(f"{_ABOUT}: columns: expected columns of the table, each once")


def read_column(data: Any, where: str) -> Column:
    """Return the description of a column that a file holds, or raise a ``ValueError``."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    column = Column(**values)
    name = one_line(column.name, 60)
    bins = len(column.categories) + column.others if column.kind == "category" else len(column.edges) + 1
    if len(column.shares) != bins or list(column.edges) != sorted(column.edges):
        raise ValueError(f"{where}: columns: expected {bins} shares of {name!r}")
    if column.levels and column.kind != "category":
        raise ValueError(f"{where}: columns: expected no levels of {name!r}")
    try:
        if column.number_format is not None:
            check_number_format(column.number_format)
        if column.date_format is not None:
            check_date_format(column.date_format)
    except ValueError as error:
        raise ValueError(f"{where}: columns: {name!r}: {first_line(error)}") from error
    return column


def _read_arrays(files: Files, categories: int, means: int, texts: int) -> dict[str, np.ndarray]:
    data = _take_file(files, _ARRAYS)
    try:
        arrays: dict[str, np.ndarray] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"{_ARRAYS}: cannot be read: {first_line(error)}") from error
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
    encoder.medians_ = arrays["medians"]
    encoder.often_missing_ = arrays["often-missing"]
    encoder.shift_ = arrays["shift"]
    encoder.scale_ = arrays["scale"]


def _set_slots(encoder: TableEncoder, arrays: dict[str, np.ndarray]) -> None:
    """Set the one-hot column of each code of a category."""
    category_columns = [column for column in encoder.columns_ if column.kind == "category"]
    encoder.slots_ = {}
    for i, column in enumerate(category_columns):
        slots = arrays[f"slots-{i}"]
        most_codes = len(column.categories) + 3  # with those of missing, other and new categories
        if not _are_slots(slots, most_codes):
            raise ValueError(f"{_ARRAYS}: expected the one-hot columns of codes, got others")
        encoder.slots_[column.value_part] = slots


def _are_slots(slots: np.ndarray, most_codes: int) -> bool:
    """Return whether the one-hot columns of codes are numbered from 0 on, −1 standing for none."""
    if slots.ndim != 1 or not 2 <= len(slots) <= most_codes or slots.min() < -1:
        return False
    used = np.unique(slots[slots >= 0])
    return np.array_equal(used, np.arange(len(used)))


def _set_target_means(encoder: TableEncoder, names: list[str], arrays: dict[str, np.ndarray]) -> None:
    """Set the means of the target, and their scales, of the columns of these names."""
    levels_of_column = {column.name: column.levels for column in encoder.columns_}
    encoder.target_means_ = {}
    encoder.mean_scales_ = {}
    for i, name in enumerate(names):
        levels = levels_of_column.get(name, ())
        if not levels:
            raise ValueError(f"{_ABOUT}: expected columns of many categories, got {one_line(name, 60)!r}")
        rows = len(levels) + 2
        table = arrays[f"means-{i}"]
        scales = arrays[f"mean-scales-{i}"]
        if table.ndim != 2 or len(table) != rows or not 1 <= table.shape[1] <= MOST_TARGET_MEANS:
            raise ValueError(f"{_ARRAYS}: expected means of {rows} categories, got shape {table.shape}")
        if scales.shape != (2, table.shape[1]) or (scales[1] <= 0).any():
            raise ValueError(f"{_ARRAYS}: expected scales of {table.shape[1]} means, got others")
        encoder.target_means_[name] = table
        encoder.mean_scales_[name] = scales


def _set_words(encoder: TableEncoder, files: Files, arrays: dict[str, np.ndarray]) -> None:
    """Set the words of the columns of text."""
    count = len(encoder.texts_)
    vocabularies = strict_json.read(_take_file(files, _WORDS), list[list[str]], _WORDS) if count else []
    if len(vocabularies) != count:
        raise ValueError(f"{_WORDS}: expected the words of {count} columns, got {len(vocabularies)}")
    encoder.words_ = {}
    for i, name in enumerate(encoder.texts_):
        encoder.words_[name] = Words.checked(vocabularies[i], arrays[f"idf-{i}"], arrays[f"topics-{i}"])
