"""The schema of a data set: its target and feature columns; it turns any later frame into the same numbers."""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self, TypedDict

import pandas as pd

from metricgrad import strict_json
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.tables import targets as target_columns
from metricgrad.comparison.tables.targets import Target
from metricgrad.estimators.columns.column import Column, describe_column, read_columns
from metricgrad.estimators.columns.numbers import UNREADABLE
from metricgrad.messages import one_line, suggest
from metricgrad.strict_json import Range

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy as np

    from metricgrad.comparison.tables.gaps import Gaps

DROPPED = "left out as asked"
"""The reason why a column named by ``drop`` is not a feature."""


@dataclass(frozen=True)
class Schema:
    """The target, the feature columns, and the columns left out with the reason.

    >>> import numpy as np, pandas as pd
    >>> frame = pd.DataFrame({"size": np.arange(40.0) % 7, "shape": ["flat", "round"] * 20, "ripe": [0, 0, 0, 1] * 10})
    >>> schema = Schema.of(frame, "ripe")
    >>> schema.task, schema.classes, [(column.name, column.kind) for column in schema.columns]
    ('binary', ('0', '1'), [('size', 'number'), ('shape', 'category')])
    """

    target: Target
    columns: tuple[Column, ...]
    dropped: dict[str, str]
    rows: int

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        target: str | Sequence[str],
        *,
        task: str | None = None,
        positive: str | None = None,
        drop: Sequence[str] = (),
        date_format: str | None = None,
        drop_unlabelled: bool = False,
    ) -> Self:
        """Infer the schema of a frame.

        ``target``: a column, or several. ``task``: by default inferred from the target. ``positive``: the positive
        class of a binary target; by default 1, true or yes, else the rarer class. ``drop``: feature columns to exclude.
        ``date_format``: of dates that could be read in several ways. ``drop_unlabelled``: as in ``find_target``.
        """
        for name in drop:
            if name not in frame.columns:
                raise UserError(
                    f"drop: expected columns of the data, got {one_line(name)!r}; {suggest(name, frame.columns)}",
                    WRONG_CALL,
                )
        with _refuse_unreadable("target"):
            found = target_columns.find_target(frame, target, task, positive, drop_unlabelled)
        dropped = {name: DROPPED for name in drop if name not in found.columns}
        columns = []
        labelled = frame[found.has_target(frame)]
        for name in frame.columns:
            if name in found.columns or name in dropped:
                continue
            column = describe_column(name, labelled[name], date_format)
            if isinstance(column, str):
                dropped[name] = column
            else:
                columns.append(column)
        if not columns:
            why = one_line("; ".join(f"{name!r} {reason}" for name, reason in dropped.items()), 200)
            raise UserError(f"data: expected feature columns, got none{f' ({why})' if why else ''}; add some")
        return cls(found, tuple(columns), dropped, len(labelled))

    @property
    def task(self) -> str:
        """The task: "binary", "multiclass" or "multilabel"."""
        return self.target.task

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes as texts, in the order of ``targets``; (negative, positive) of a binary task."""
        return self.target.classes

    @property
    def short_names(self) -> tuple[str, ...]:
        """The classes as short texts of one line, for sentences."""
        return tuple(one_line(name, 40) for name in self.classes)

    @property
    def positive(self) -> str | None:
        """The positive class of a binary task."""
        return self.classes[1] if self.task == "binary" else None

    @property
    def inputs(self) -> list[str]:
        """The names of the feature columns."""
        return [column.name for column in self.columns]

    def check(self, present: Iterable[str]) -> None:
        """Raise if a feature column is missing among ``present``."""
        _require(self.inputs, present, "the feature columns")

    def check_target(self, present: Iterable[str]) -> None:
        """Raise if a target column is missing among ``present``."""
        _require(self.target.columns, present, "the target")

    def keep_labelled(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows that have a target."""
        self.check_target(frame.columns)
        known = self.target.has_target(frame)
        if not known.any():
            raise UserError(f"target {self.target.columns[0]!r}: expected labelled rows, got only missing cells")
        return frame if known.all() else frame[known]

    def encode_targets(self, frame: pd.DataFrame) -> np.ndarray:
        """Return ``(N,)`` indices into ``classes`` (1 is the positive class of two), or ``(N, K)`` zeros and ones."""
        self.check_target(frame.columns)
        with _refuse_unreadable("target"):
            return self.target.to_codes(frame)

    def to_features(self, frame: pd.DataFrame, gaps: Gaps | None = None) -> pd.DataFrame:
        """Return the features: float32 numbers with NaN for missing, codes of categories with −1 for missing, texts.

        New categories, and texts not written as in training, become missing; ``gaps`` counts them by column.
        """
        return pd.DataFrame(self.read_parts(frame, gaps), index=frame.index)

    def read_parts(self, frame: pd.DataFrame, gaps: Gaps | None = None) -> dict[str, np.ndarray]:
        """Return what ``to_features`` does as arrays by name, without the time that pandas takes to make a frame."""
        self.check(frame.columns)
        try:
            found = read_columns(self.columns, frame, None if gaps is None else gaps.count)
        except ValueError as error:
            raise UserError(str(error)) from error
        if gaps is not None:
            gaps.rows += len(frame)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain data, but for the columns, which the encoder of the model holds."""
        return {"target": asdict(self.target), "dropped": self.dropped, "rows": self.rows}

    @classmethod
    def from_json(cls, data: bytes, columns: tuple[Column, ...]) -> Self:
        """Return the schema that ``to_json`` wrote, from the bytes of its file, or raise a ``ValueError``."""
        found = strict_json.read(data, _SchemaFile, "schema.json")
        about: dict[str, Any] = {
            key: tuple(one) if isinstance(one, list) else one for key, one in found["target"].items()
        }
        target = Target(**about)
        _check_target(target)
        return cls(target, columns, found["dropped"], found["rows"])


class _SchemaFile(TypedDict):
    target: Target
    dropped: dict[str, str]
    rows: Annotated[int, Range(1, 2**53)]


def _check_target(target: Target) -> None:
    """Raise a ``ValueError`` if the classes do not fit the task."""
    number = len(target.classes)
    if number != 2 if target.task == "binary" else number < (3 if target.task == "multiclass" else 1):
        raise ValueError(f"schema.json: target: expected the classes of a {target.task} task, got {number}")
    if len(set(target.classes)) < number or len(target.counts) != number:
        raise ValueError("schema.json: target: expected every class once, with its count")
    if target.numeric and not all(re.fullmatch(r"-?\d{1,16}", name) for name in target.classes):
        raise ValueError("schema.json: target: expected whole numbers of at most 16 digits as classes")


@contextmanager
def _refuse_unreadable(what: str) -> Iterator[None]:
    """Turn an error of pandas or pyarrow about cells, such as lists or impossible dates, into a ``UserError``."""
    try:
        yield
    except UNREADABLE as error:
        raise UserError(
            f"{what}: got cells that cannot be read ({type(error).__name__}: {one_line(error, 120)}); correct them"
        ) from error


def _require(names: Sequence[str], present: Iterable[str], what: str) -> None:
    present = list(present)
    if absent := [name for name in names if name not in present]:
        shown = one_line(", ".join(map(repr, absent)), 200)
        verb = "is" if len(absent) == 1 else "are"
        hint = suggest(absent[0], present, "the columns given are")
        raise UserError(f"data: expected {what}, of which {shown} {verb} missing; {hint}")
