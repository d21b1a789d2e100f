"""A ``TableEncoder`` as ONNX operators: an input for each column, and the matrices that candidates see.

Numbers are inputs of floats, NaN where they are missing; categories and texts are texts, empty where they are missing;
dates are seconds since 1970 in float64. Everything else is as ``TableEncoder.read`` and ``encode`` do it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricgrad.estimators.table_encoder import code_missing_as_nan, one_hot
from metricgrad.storage.onnx_graph import LEARNING, RUNTIME

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import View
    from metricgrad.estimators.columns.column import Column
    from metricgrad.estimators.columns.words import Words
    from metricgrad.estimators.table_encoder import TableEncoder
    from metricgrad.storage.onnx_graph import Graph

_WORD = r"[\p{L}\p{N}_]+"  # what Python's \w+ is
_SHORTEST_WORD = 2
_NO_WORD = "\x01"
_LOCALE = "C.UTF-8"  # the locale in which texts become lower case; containers have this one
_SECONDS_PER_DAY = 86_400.0
_FIRST_DAY = 946_684_800.0  # 2000-01-01


def add_cells(graph: Graph, column: Column) -> str:
    """Add the input of a column, ``(rows, 1)``."""
    types = {"number": graph.dtype, "boolean": graph.dtype, "date": np.float64, "category": object, "text": object}
    return graph.add_input(column.name, types[column.kind], 1)


class TableInputs:
    """The columns of a table as inputs of a graph, and what an encoder makes of them; each is added once."""

    def __init__(self, graph: Graph, encoder: TableEncoder) -> None:
        self.graph = graph
        self.encoder = encoder
        self._views: dict[View, str] = {}
        self._blocks: dict[str, str] = {}

    def add_view(self, view: View) -> str:
        """Add the matrix that candidates of a view see."""
        if view not in self._views:
            self._views[view] = self._add_for_trees() if view == "trees" else self._add_for_linear(view)
        return self._views[view]

    def _add_for_trees(self) -> str:
        """Add numbers and codes, NaN where they are missing, means of the target, and topics, in float32."""
        encoder = self.encoder
        blocks = [self._add_numbers()] if encoder.numbers_ else []
        for column in self._list_categories():
            codes = code_missing_as_nan(_list_codes(column.categories))
            blocks.append(self._look_up(column, column.categories, column.others, codes[:, None]))
        for name, table in encoder.target_means_.items():
            column = self._find_column(name)
            blocks.append(self._look_up(column, column.levels, True, table.astype(np.float32)))
        blocks += self._add_topics()
        return self.graph.concatenate(blocks)

    def _add_for_linear(self, view: View) -> str:
        """Add scaled numbers, where they are missing, categories one-hot, means of the target, words or topics."""
        graph = self.graph
        encoder = self.encoder
        blocks = self._add_scaled_numbers() if encoder.numbers_ else []
        for column in self._list_categories():
            codes = _list_codes(column.categories)
            table = one_hot(codes, encoder.slots_[column.value_part])
            blocks.append(self._look_up(column, column.categories, column.others, table))
        for name, means in encoder.target_means_.items():
            column = self._find_column(name)
            shift, scale = encoder.mean_scales_[name]
            blocks.append(self._look_up(column, column.levels, True, (means - shift) / scale))
        if view == "dense":
            blocks += [graph.cast(block, np.float64) for block in self._add_topics()]
        if view == "dense" or not encoder.words_:
            return graph.concatenate(blocks)
        in_float32 = [graph.cast(block, np.float32) for block in blocks]
        words = [self._add_words(name, words) for name, words in encoder.words_.items() if words.vocabulary]
        return graph.concatenate([*in_float32, *words])

    def _add_scaled_numbers(self) -> list[str]:
        graph = self.graph
        encoder = self.encoder
        numbers = self._add_numbers()
        is_missing = graph.add("IsNaN", numbers)
        filled = graph.add("Where", is_missing, graph.constant(encoder.medians_), numbers)
        centred = graph.add("Sub", graph.cast(filled, np.float64), graph.constant(encoder.shift_))
        blocks = [graph.add("Div", centred, graph.constant(encoder.scale_))]
        if encoder.often_missing_.any():
            flags = graph.take_columns(graph.cast(is_missing, np.float64), np.flatnonzero(encoder.often_missing_))
            blocks.append(flags)
        return blocks

    def _add_numbers(self) -> str:
        """Add all numbers in float32, ``(rows, numbers)``; infinite ones are missing."""
        if "numbers" not in self._blocks:
            graph = self.graph
            parts: list[str] = []
            for column in self.encoder.columns_:
                if column.kind == "date":
                    parts += _add_date(graph, column)
                elif column.kind in ("number", "boolean"):
                    parts.append(graph.cast(add_cells(graph, column), np.float32))
            given = graph.concatenate(parts)
            largest = graph.constant(np.finfo(np.float32).max)
            is_finite = graph.add("LessOrEqual", graph.add("Abs", given), largest)
            self._blocks["numbers"] = graph.add("Where", is_finite, given, graph.constant(np.float32(np.nan)))
        return self._blocks["numbers"]

    def _look_up(self, column: Column, known: tuple[str, ...], others: bool, table: np.ndarray) -> str:
        """Add the row of a table for each cell: the first one for missing cells, then those of the known categories.

        A category that is not known is missing or, if ``others``, in the last row.
        """
        graph = self.graph
        name = f"{column.name} in {len(known)}{' and others' if others else ''}"
        if name not in self._blocks:
            # "" is a missing cell, unless it is a category.
            places = {"": 0} | {category: place for place, category in enumerate(known, 1)}
            self._blocks[name] = graph.add(
                "LabelEncoder",
                graph.add("Reshape", add_cells(graph, column), graph.constant([-1])),
                domain=LEARNING,
                keys_strings=list(places),
                values_int64s=list(places.values()),
                default_int64=len(known) + 1 if others else 0,
            )
        return graph.add("Gather", graph.constant(table), self._blocks[name])

    def _add_topics(self) -> list[str]:
        """Add the topics of each column of text, in float32."""
        graph = self.graph
        topics = []
        for name, words in self.encoder.words_.items():
            if words.vocabulary:
                tf_idf = graph.cast(self._add_words(name, words), np.float64)
                weights = np.ascontiguousarray(words.topics.T, dtype=np.float64)
                sums = graph.add("MatMul", tf_idf, graph.constant(weights))
                topics.append(graph.cast(sums, np.float32))
        return topics

    def _add_words(self, part: str, words: Words) -> str:
        """Add the TF-IDF of a column of text, in float32, rounded where scikit-learn rounds."""
        if part not in self._blocks:
            graph = self.graph
            column = next(one for one in self.encoder.columns_ if one.value_part == part)
            counts = _add_word_counts(graph, add_cells(graph, column), words)
            is_there = graph.add("Greater", counts, graph.constant(np.float32(0)))
            one = graph.constant(np.float32(1))
            logarithms = graph.add("Log", graph.add("Max", counts, one))
            sublinear = graph.add("Where", is_there, graph.add("Add", logarithms, one), counts)
            weighted = graph.add("Mul", sublinear, graph.constant(words.idf.astype(np.float32)))
            squares = graph.cast(graph.add("Mul", weighted, weighted), np.float64)
            length = graph.add("Sqrt", graph.add("ReduceSum", squares, graph.constant([1]), keepdims=1))
            is_empty = graph.add("Equal", length, graph.constant(0.0))
            divisor = graph.add("Where", is_empty, graph.constant(1.0), length)
            scaled = graph.add("Div", graph.cast(weighted, np.float64), divisor)
            self._blocks[part] = graph.cast(scaled, np.float32)
        return self._blocks[part]

    def _list_categories(self) -> list[Column]:
        return [column for column in self.encoder.columns_ if column.kind == "category"]

    def _find_column(self, name: str) -> Column:
        return next(column for column in self.encoder.columns_ if column.name == name)


def _list_codes(categories: tuple[str, ...]) -> np.ndarray:
    """Return all codes of a column: -1 for missing, the categories, and the one after the last for others."""
    return np.arange(-1, len(categories) + 1)


def _add_word_counts(graph: Graph, texts: str, words: Words) -> str:
    """Add how often each word and pair of words occurs, ``(rows, vocabulary)``, in float32."""
    # The operators refuse no texts, and texts without words; one more text, left out again at the end, has a word.
    some_text = graph.constant(np.array([["some text"]], dtype=object))
    more = graph.add("Concat", texts, some_text, axis=0)
    flat = graph.add("Reshape", more, graph.constant([-1]))
    lower = graph.add("StringNormalizer", flat, case_change_action="LOWER", is_case_sensitive=1, locale=_LOCALE)
    tokens = graph.add(
        "Tokenizer",
        lower,
        domain=RUNTIME,
        mark=0,
        mincharnum=_SHORTEST_WORD,
        pad_value=_NO_WORD,
        tokenexp=_WORD,
    )
    split = [(word.split(" "), place) for place, word in enumerate(words.vocabulary)]
    single = [(parts, place) for parts, place in split if len(parts) == 1]
    pairs = [(parts, place) for parts, place in split if len(parts) == 2]
    counts = graph.add(
        "TfIdfVectorizer",
        tokens,
        mode="TF",
        min_gram_length=1 if single else 2,
        max_gram_length=2 if pairs else 1,
        max_skip_count=0,
        ngram_counts=[0, len(single)] if pairs else [0],
        ngram_indexes=[place for _, place in single + pairs],
        pool_strings=[word for parts, _ in single + pairs for word in parts],
    )
    start, end, axis = (graph.constant([number]) for number in (0, -1, 0))
    return graph.add("Slice", counts, start, end, axis)


# Dates


@dataclass(frozen=True)
class _Number:
    """Numbers in float64, NaN where they are missing, with Python's operators."""

    graph: Graph
    name: str

    def __add__(self, other: _Number | float) -> _Number:
        return self._combine("Add", other)

    def __sub__(self, other: _Number | float) -> _Number:
        return self._combine("Sub", other)

    def __mul__(self, other: float) -> _Number:
        return self._combine("Mul", other)

    def __truediv__(self, other: float) -> _Number:
        return self._combine("Div", other)

    def __floordiv__(self, other: float) -> _Number:
        return _Number(self.graph, self.graph.add("Floor", (self / other).name))

    def __mod__(self, other: float) -> _Number:
        return self - (self // other) * other

    def at_least(self, other: float) -> _Number:
        """Return 1 where a number is at least another, 0 elsewhere."""
        reached = self.graph.add("GreaterOrEqual", self.name, self.graph.constant(float(other)))
        return _Number(self.graph, self.graph.cast(reached, np.float64))

    def _combine(self, kind: str, other: _Number | float) -> _Number:
        second = other.name if isinstance(other, _Number) else self.graph.constant(float(other))
        return _Number(self.graph, self.graph.add(kind, self.name, second))


def _add_date(graph: Graph, column: Column) -> list[str]:
    """Add the parts of a date, given as seconds since 1970, in float32."""
    seconds = _Number(graph, add_cells(graph, column))
    day = seconds // _SECONDS_PER_DAY
    year, month = _find_year_and_month(day)
    found: dict[str, _Number] = {
        "days": (seconds - _FIRST_DAY) / _SECONDS_PER_DAY,
        "year": year,
        "month": month,
        "weekday": (day + 3) % 7,  # the first day was a Thursday
        "hour": (seconds % _SECONDS_PER_DAY) // 3600,
    }
    return [graph.cast(found[part].name, np.float32) for part in column.date_parts]


def _find_year_and_month(day: _Number) -> tuple[_Number, _Number]:
    """Return year and month of days since 1970: the calendar repeats every 400 years, and a year begins in March."""
    since_march_of_year_0 = day + 719_468
    era = since_march_of_year_0 // 146_097
    day_of_era = since_march_of_year_0 % 146_097
    leap_days = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leap_days) // 365
    day_of_year = day_of_era - (year_of_era * 365 + year_of_era // 4 - year_of_era // 100)
    month_from_march = (day_of_year * 5 + 2) // 153
    is_next_year = month_from_march.at_least(10)
    month = month_from_march + 3 - is_next_year * 12
    year = era * 400 + year_of_era + is_next_year
    return year, month


def add_given_matrix(graph: Graph, columns: tuple[Column, ...]) -> str:
    """Add the columns of a table as they are, as a matrix of numbers, for an estimator that was fitted on them."""
    texts: Any = next((column for column in columns if column.kind not in ("number", "boolean")), None)
    if texts is not None:
        raise ValueError(
            f"X: expected columns of numbers without a TableEncoder, got {texts.name!r}, a {texts.kind}; put a "
            "TableEncoder first in a pipeline"
        )
    return graph.concatenate([add_cells(graph, column) for column in columns])
