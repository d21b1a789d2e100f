"""Target columns: the task and classes that follow from them, and their cells as encoded targets."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.estimators.columns.column import as_numbers, as_texts
from metricgrad.messages import one_line, suggest
from metricgrad.strict_json import Length, Pattern, Range

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("metricgrad")

FEWEST_ROWS_OF_A_CLASS = 10
"""The fewest rows of a class: fewer are not enough to train, tune and test on."""

_TASKS = ("binary", "multiclass", "multilabel")
_POSITIVE = ("1", "true", "yes", "y", "positive", "pos")
_NUMBERS = 100
_MOST_GROUPS_SHOWN = 5  # groups of spellings in a message


@dataclass(frozen=True)
class Target:
    """The target: its columns, the task, and the classes as texts.

    ``classes``: (negative, positive) of a binary task. ``separator``: that of the labels in one multi-label column.
    ``numeric``: whether the classes are whole numbers, so that 1, 1.0 and "1" are equal. ``counts``: the number of
    training rows of each class. ``drop_unlabelled``: whether an empty list of labels is a missing target; otherwise the
    row has none of the labels.
    """

    columns: Annotated[tuple[str, ...], Length(1, 10**6)]
    task: Annotated[str, Pattern("binary|multiclass|multilabel")]
    classes: Annotated[tuple[str, ...], Length(1, 10**6)]
    numeric: bool = False
    separator: Annotated[str, Pattern("[;|,]")] | None = None
    counts: tuple[Annotated[int, Range(0, 2**53)], ...] = ()
    drop_unlabelled: bool = False

    @property
    def labels(self) -> np.ndarray:
        """The classes as an array of numbers, or of texts."""
        return np.array([int(one) for one in self.classes] if self.numeric else self.classes)

    def has_target(self, frame: pd.DataFrame) -> np.ndarray:
        """Return which rows have a target; an empty list of labels is one, unless ``drop_unlabelled``."""
        if self.separator is None:
            return np.asarray(frame[list(self.columns)].notna().all(axis=1))
        return ~self._find_empty(frame) if self.drop_unlabelled else np.ones(len(frame), dtype=bool)

    def count_unlabelled(self, frame: pd.DataFrame) -> int:
        """Return how many rows count as having none of the labels because their list of labels is empty."""
        return 0 if self.separator is None or self.drop_unlabelled else int(self._find_empty(frame).sum())

    def _find_empty(self, frame: pd.DataFrame) -> np.ndarray:
        return _is_blank(frame[self.columns[0]])

    def to_codes(self, frame: pd.DataFrame) -> np.ndarray:
        """Return ``(N,)`` class indices, or ``(N, K)`` zeros and ones for a multi-label task."""
        if self.separator is not None:
            return _make_indicator(frame[self.columns[0]], self.separator, self.classes)
        if self.task == "multilabel":
            return np.column_stack([_read_zeros_and_ones(name, frame[name]) for name in self.columns])
        texts = pd.Index(_read_texts(frame[self.columns[0]], self.numeric))
        found = np.asarray(pd.Index(self.classes).get_indexer(texts))
        if (found < 0).any():
            strange = one_line(", ".join(map(repr, texts[found < 0].unique()[:5])), 80)
            expected = one_line(", ".join(map(repr, self.classes)), 80)
            raise UserError(
                f"target {self.columns[0]!r}: expected the classes {expected}, got {strange}; correct these rows"
            )
        return found.astype(np.int64)


def find_target(
    frame: pd.DataFrame,
    target: str | Sequence[str],
    task: str | None = None,
    positive: str | None = None,
    drop_unlabelled: bool = False,
) -> Target:
    """Return the task and the classes of target columns: a name, or several.

    ``drop_unlabelled``: of a column of lists of labels, leave out the rows whose list is empty.
    """
    if task not in (None, *_TASKS):
        raise UserError(f"task: expected one of {', '.join(_TASKS)}, got {task!r}", WRONG_CALL)
    names = _find_names(frame, target)
    if len(names) > 1:
        if task not in (None, "multilabel"):
            raise UserError(f"task: expected 'multilabel' with {len(names)} target columns, got {task!r}", WRONG_CALL)
        found = _describe_columns(frame, names)
    else:
        found = _describe_column(names[0], frame[names[0]], task, drop_unlabelled)
    found = _add_counts(found, frame)
    return _choose_positive(found, positive)


def _find_names(frame: pd.DataFrame, target: str | Sequence[str]) -> tuple[str, ...]:
    names = (target,) if isinstance(target, str) else tuple(target)
    if not names:
        raise UserError("target: expected the name of a column, got none", WRONG_CALL)
    for name in names:
        if name not in frame.columns:
            raise UserError(
                f"target: expected a column of the data, got {one_line(name)!r}; {suggest(name, frame.columns)}",
                WRONG_CALL,
            )
    if len(set(names)) < len(names):
        raise UserError(f"target: expected every column once, got {', '.join(names)}", WRONG_CALL)
    return names


def _describe_columns(frame: pd.DataFrame, names: tuple[str, ...]) -> Target:
    for name in names:
        _read_zeros_and_ones(name, frame[name].dropna())
    return Target(names, "multilabel", names)


def _describe_column(name: str, cells: pd.Series, task: str | None, drop_unlabelled: bool) -> Target:
    known = cells.dropna()
    if not len(known):
        raise UserError(f"target {name!r}: expected classes, got only missing cells; choose another column")
    texts = pd.Series(as_texts(known).to_numpy(zero_copy_only=False))
    numbers = pd.to_numeric(texts, errors="coerce")
    numeric = bool((numbers % 1 == 0).all() and (numbers.abs() < 2**53).all())
    texts = pd.Series(_read_texts(known, numeric))
    separator = None
    if not numeric and task in (None, "multilabel"):
        separator = _find_separator(texts, sure=task == "multilabel")
    if task == "multilabel" and separator is None:
        raise UserError(
            f"target {name!r}: expected labels separated by ; | or , for a multi-label task, got none in any cell",
        )
    if separator is not None:
        labelled = cells[~_is_blank(cells)] if drop_unlabelled else cells
        return replace(_describe_labels(name, labelled, separator), drop_unlabelled=drop_unlabelled)
    distinct = texts.unique()
    if len(distinct) > max(20, 0.5 * len(known)) or (
        numbers.notna().all() and len(distinct) > (_NUMBERS if numeric else 20)
    ):
        raise UserError(
            f"target {name!r}: expected classes, got {len(distinct)} different values in {len(known)} rows; "
            "choose another column, or group the values into classes"
        )
    classes = sorted(distinct, key=int) if numeric else sorted(distinct)
    found = "multiclass" if len(classes) > 2 else "binary"
    _check_spellings(name, classes)
    if len(classes) == 1:
        raise UserError(
            f"target {name!r}: expected two classes or more, got only {classes[0]!r}; add rows of another class"
        )
    if task not in (None, found):
        raise UserError(f"task: {name!r} has {len(classes)} classes, which makes it {found}, not {task}", WRONG_CALL)
    return Target((name,), found, tuple(classes), numeric)


def _describe_labels(name: str, cells: pd.Series, separator: str) -> Target:
    counts = Counter(label for cell in cells.dropna() for label in _split_labels(cell, separator))
    _check_spellings(name, sorted(counts))
    classes = sorted(
        label
        for label, count in counts.items()
        if FEWEST_ROWS_OF_A_CLASS <= count <= len(cells) - FEWEST_ROWS_OF_A_CLASS
    )
    if not classes:
        raise UserError(f"target {name!r}: expected labels of at least {FEWEST_ROWS_OF_A_CLASS} rows each, got none")
    if others := sorted(counts.keys() - set(classes)):
        few = one_line(", ".join(map(repr, others)), 120)
        log.warning(
            "target %r: left out %d labels with fewer than %d positive or negative rows: %s",
            name,
            len(others),
            FEWEST_ROWS_OF_A_CLASS,
            few,
        )
    return Target((name,), "multilabel", tuple(classes), separator=separator)


def _add_counts(target: Target, frame: pd.DataFrame) -> Target:
    codes = target.to_codes(frame[target.has_target(frame)])
    several = codes.ndim == 2
    counts = codes.sum(0) if several else np.bincount(codes, minlength=len(target.classes))
    for name, count in zip(target.classes, counts, strict=True):
        fewest, what = min((count, "with"), (len(codes) - count, "without")) if several else (count, "of")
        if fewest < FEWEST_ROWS_OF_A_CLASS:
            where = f"{what} label {one_line(name, 40)!r}" if several else f"{what} class {one_line(name, 40)!r}"
            hint = "leave it out of the targets" if several else "merge it into another class, or leave these rows out"
            raise UserError(f"target: expected at least {FEWEST_ROWS_OF_A_CLASS} rows {where}, got {fewest}; {hint}")
    return Target(**vars(target) | {"counts": tuple(map(int, counts))})


def find_spellings(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the names that differ only in case or spaces, grouped.

    >>> find_spellings(["Yes", "no", "yes", " no"])
    [('Yes', 'yes'), ('no', ' no')]
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(" ".join(name.casefold().split()), []).append(name)
    return [tuple(several) for several in groups.values() if len(several) > 1]


def describe_spellings(groups: Sequence[tuple[str, ...]]) -> str:
    """Return groups of spellings in words; no group is cut off.

    >>> describe_spellings([("Yes", "yes"), ("No", "no")])
    "'Yes', 'yes'; 'No', 'no'"
    """
    shown = "; ".join(", ".join(one_line(repr(name), 42) for name in group) for group in groups[:_MOST_GROUPS_SHOWN])
    return shown + (f" and {len(groups) - _MOST_GROUPS_SHOWN} more groups" if len(groups) > _MOST_GROUPS_SHOWN else "")


def _check_spellings(name: str, classes: Sequence[str]) -> None:
    """Raise if classes are spellings of one word: each would be a class of its own; single letters may be meant so."""
    groups = [group for group in find_spellings(classes) if len(group[0].strip()) > 1]
    if not groups:
        return
    rest = len(classes) - sum(map(len, groups)) + len(groups)
    raise UserError(
        f"target {one_line(name, 60)!r}: expected every class in one spelling, got {describe_spellings(groups)}, which "
        f"differ only in case or spaces; write them alike, then there are {rest} classes instead of {len(classes)}, or "
        "rename those that differ"
    )


def _choose_positive(target: Target, positive: str | None) -> Target:
    if target.task != "binary":
        if positive is not None:
            raise UserError(f"positive: expected none for a {target.task} task, got {positive!r}", WRONG_CALL)
        return target
    if positive is not None and positive not in target.classes:
        raise UserError(
            f"positive: expected a class of the target, got {positive!r}; {suggest(positive, target.classes)}",
            WRONG_CALL,
        )
    if positive is None:
        usual = [one for one in target.classes if one.lower() in _POSITIVE]
        positive = usual[0] if len(usual) == 1 else target.classes[int(target.counts[1] <= target.counts[0])]
    if positive == target.classes[1]:
        return target
    return Target(**vars(target) | {"classes": target.classes[::-1], "counts": target.counts[::-1]})


def _read_texts(cells: pd.Series, numeric: bool) -> np.ndarray:
    if numeric:
        cells = pd.Series(as_numbers(cells))
    return np.asarray(as_texts(cells).to_numpy(zero_copy_only=False))


def _read_zeros_and_ones(name: str, cells: pd.Series) -> np.ndarray:
    found = as_numbers(cells)
    wrong = ~np.isin(found, (0.0, 1.0))
    if wrong.any():
        strange = one_line(cells[wrong].iloc[0], 40)
        raise UserError(
            f"target {name!r}: expected 0 and 1, or true and false, as one label of several, got {strange!r}"
        )
    return found.astype(np.int64)


def _is_blank(cells: pd.Series) -> np.ndarray:
    """Return which cells are missing, or hold nothing but spaces."""
    texts = as_texts(cells)
    return np.asarray(pc.equal(pc.utf8_trim_whitespace(texts), "").fill_null(True).to_numpy(zero_copy_only=False))


def _split_labels(cell: str, separator: str) -> set[str]:
    return {part.strip() for part in cell.split(separator)} - {""}


def _find_separator(texts: pd.Series, sure: bool) -> str | None:
    """Return the separator of labels, if any: splitting by it gives fewer distinct labels than there are cells."""
    cells = texts.unique()
    best = None
    fewest = len(cells)
    for one in ";|,":
        if any(one in cell for cell in cells):
            labels = set().union(*(_split_labels(cell, one) for cell in cells))
            if len(labels) < fewest or (sure and best is None):
                best = one
                fewest = len(labels)
    return best


def _make_indicator(cells: pd.Series, separator: str, classes: tuple[str, ...]) -> np.ndarray:
    places = {name: place for place, name in enumerate(classes)}
    codes, distinct = pd.factorize(pd.Series(as_texts(cells).to_numpy(zero_copy_only=False)))
    table = np.zeros((len(distinct) + 1, len(classes)), dtype=np.int64)  # the last row is for missing cells, code −1
    for row, cell in enumerate(distinct):
        for label in _split_labels(cell, separator) & places.keys():
            table[row, places[label]] = 1
    return np.asarray(table[codes])
