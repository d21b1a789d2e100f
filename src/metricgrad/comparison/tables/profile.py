"""The profile of a data set in a few lines, and warnings about it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from metricgrad.comparison.tables.rows import hash_rows
from metricgrad.comparison.tables.schema import DROPPED
from metricgrad.comparison.tables.targets import describe_spellings, find_spellings
from metricgrad.estimators.columns.column import SHARE_OF_ONE_KIND
from metricgrad.estimators.columns.dates import ISO
from metricgrad.estimators.columns.lookalikes import describe_numbers_in_texts
from metricgrad.estimators.columns.numbers import PLAIN, find_number_formats, read_formatted
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.estimators.columns.column import Column

_LEAK_SAMPLE_ROWS = 50_000  # leaks are searched for in a sample of this size
_LEAK_AUROC = 0.99  # the AUROC of a single column from which on it is suspected to leak the target


def describe_data(frame: pd.DataFrame, schema: Schema) -> list[tuple[str, str]]:
    """Return a few lines about a data set, as (label, text)."""
    target = schema.target
    rows = len(frame)
    kinds = Counter(column.kind for column in schema.columns)
    lines = [
        ("rows", f"{rows:,}" + _describe_targets(frame, schema)),
        ("task", f"{schema.task}: {one_line(', '.join(target.columns), 80)}" + _describe_separator(schema)),
        ("classes", _describe_balance(schema)),
        ("features", f"{len(schema.columns)}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
    ]
    gaps = sorted(((column.missing, column.name) for column in schema.columns if column.missing), reverse=True)
    if gaps:
        worst = ", ".join(f"{one_line(name, 40)} {_format_share(share)}" for share, name in gaps[:3])
        columns = f"{len(gaps)} columns, most in" if len(gaps) > 1 else "1 column,"
        lines.append(("missing", f"in {columns} {worst}"))
    if schema.dropped:
        names = one_line(", ".join(schema.dropped), 120)
        lines.append(("left out", f"{len(schema.dropped)}: {names}"))
    return [*lines, *_describe_formats(schema)]


def _describe_targets(frame: pd.DataFrame, schema: Schema) -> str:
    missing = len(frame) - schema.rows
    unlabelled = schema.target.count_unlabelled(frame)
    parts = [f", of which {missing:,} without a target"] if missing else []
    parts += [f", of which {unlabelled:,} with an empty list of labels"] if unlabelled else []
    return "".join(parts)


def _describe_formats(schema: Schema) -> list[tuple[str, str]]:
    """Return a line for every format of numbers and dates that is not the usual one."""
    named: dict[str, list[str]] = {}
    for column in schema.columns:
        if column.number_format not in (None, PLAIN):
            named.setdefault(f"numbers like {column.number_format}", []).append(column.name)
        if column.date_format not in (None, ISO):
            named.setdefault(str(column.date_format), []).append(column.name)
    return [
        (f"column {one_line(names[0], 60)!r}", f"read as {how}")
        if len(names) == 1
        else (f"{len(names)} columns", f"read as {how}: {one_line(', '.join(names), 120)}")
        for how, names in named.items()
    ]


def find_warnings(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Return warnings about a data set, one sentence each; what concerns the target comes first."""
    frame = schema.keep_labelled(frame)
    found = [*_find_unlabelled(frame, schema), *_find_spellings("the classes", schema.classes)]
    found += _find_leaks(frame, schema)
    found += _find_duplicates(frame, schema)
    for column in schema.columns:
        found += _find_odd_cells(column, frame[column.name])
        found += _find_doubtful_numbers(column, frame[column.name])
        found += _find_numbers_in_categories(column)
        found += _find_pooled(column, frame[column.name])
        found += _find_spellings(f"column {one_line(column.name, 60)!r}: the categories", column.categories)
    found += [
        f"column {one_line(name, 60)!r} was left out: {one_line(why.replace('date_format=', '--date-format '), 160)}"
        for name, why in schema.dropped.items()
        if why != DROPPED
    ]
    return found


def _find_unlabelled(frame: pd.DataFrame, schema: Schema) -> list[str]:
    count = schema.target.count_unlabelled(frame)
    if not count:
        return []
    return [
        f"target {one_line(schema.target.columns[0], 60)!r}: {count:,} of {len(frame):,} cells are empty and count as "
        "rows with none of the labels; if their labels are unknown, leave these rows out with --drop-unlabelled"
    ]


def _format_share(share: float) -> str:
    """Return a share that is not 0 in percent.

    >>> _format_share(0.123), _format_share(0.0001)
    ('12.3%', 'less than 0.1%')
    """
    return "less than 0.1%" if share < 0.001 else f"{share:.1%}"


def _describe_separator(schema: Schema) -> str:
    target = schema.target
    return "" if target.separator is None else f", labels separated by {target.separator!r}"


def _describe_balance(schema: Schema) -> str:
    pairs = sorted(zip(schema.classes, schema.target.counts, strict=True), key=lambda pair: -pair[1])
    shown = [f"{one_line(name, 40)} {count / schema.rows:.1%}" for name, count in pairs[:6]]
    more = f" and {len(pairs) - 6} more, down to {pairs[-1][1] / schema.rows:.1%}" if len(pairs) > 6 else ""
    positive = "" if schema.positive is None else f" (positive: {one_line(schema.positive, 40)})"
    return ", ".join(shown) + more + positive


def _find_odd_cells(column: Column, cells: pd.Series) -> list[str]:
    name = one_line(column.name, 60)
    if column.kind not in ("number", "date"):
        return []
    if pd.api.types.is_numeric_dtype(cells.dtype):
        infinite = int(np.isinf(cells.to_numpy(np.float64, na_value=np.nan)).sum())
        return [f"column {name!r}: {infinite} infinite cells count as missing"] if infinite else []
    odd = cells[np.isnan(column.to_level(cells)) & cells.notna().to_numpy()]
    if not len(odd):
        return []
    what = f"are not {column.kind}s ({one_line(odd.iloc[0], 30)!r})"
    return [f"column {name!r}: {len(odd)} cells that {what} count as missing"]


def _find_doubtful_numbers(column: Column, cells: pd.Series) -> list[str]:
    """Return a warning if the numbers of a column could also be read in another way."""
    if column.kind != "number" or column.number_format in (None, PLAIN):
        return []
    known = cells.dropna().map(str)
    formats = find_number_formats(known, SHARE_OF_ONE_KIND)
    if len(formats) < 2:
        return []
    one, other = (read_formatted(known, how) for how in formats[:2])
    place = int(np.flatnonzero(~np.isclose(one, other, equal_nan=True))[0])
    return [
        f"column {one_line(column.name, 60)!r}: {one_line(known.iloc[place], 30)!r} was read as {one[place]:.15g}, and "
        f"could be {other[place]:.15g} as well; write plain numbers if this is wrong"
    ]


def _find_numbers_in_categories(column: Column) -> list[str]:
    """Return a warning if the categories of a column look like numbers."""
    texts = pd.Series(column.categories, dtype=str)
    what = describe_numbers_in_texts(texts, SHARE_OF_ONE_KIND) if len(texts) else None
    if what is None:
        return []
    return [
        f"column {one_line(column.name, 60)!r} holds {what}, which count as {len(texts)} categories without an order; "
        "write plain numbers of one unit if they are numbers"
    ]


def _find_pooled(column: Column, cells: pd.Series) -> list[str]:
    """Return a warning if there are too many categories to have a column each."""
    if not column.others:
        return []
    number = cells.nunique()
    kept = f"the {len(column.levels):,} most frequent" if number > len(column.levels) else "all"
    return [
        f"column {one_line(column.name, 60)!r}: of {number:,} categories the {len(column.categories)} most frequent "
        f"are distinguished ({1 - column.shares[-1]:.1%} of the cells); {kept} are also encoded by the target"
    ]


def _find_spellings(what: str, names: Sequence[str]) -> list[str]:
    """Return a warning if names differ only in case or spaces."""
    variants = find_spellings(names)
    if not variants:
        return []
    return [
        f"{what} {describe_spellings(variants)} differ only in case or spaces; write them alike if they mean the same"
    ]


def _find_duplicates(frame: pd.DataFrame, schema: Schema) -> list[str]:
    rows = schema.to_features(frame)
    features = hash_rows(rows)
    both = hash_rows(rows, schema.encode_targets(frame))
    found = []
    copies = len(both) - len(np.unique(both))
    if copies:
        found.append(
            f"{copies} rows ({copies / len(frame):.1%}) duplicate another row: copies may be in training and test rows"
        )
    odd = pd.DataFrame({"features": features, "both": both}).groupby("features")["both"].transform("nunique") > 1
    if odd.any():
        found.append(
            f"{int(odd.sum())} rows ({odd.mean():.1%}) have the same features as another row, but a different target"
        )
    return found


def _find_leaks(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Find columns that separate the classes almost perfectly: they may hold what is unknown at prediction time."""
    if len(frame) > _LEAK_SAMPLE_ROWS:
        frame = frame.sample(_LEAK_SAMPLE_ROWS, random_state=0)
    targets = schema.encode_targets(frame)
    several = targets if targets.ndim == 2 else np.column_stack([targets == k for k in range(len(schema.classes))])
    if schema.task == "binary":
        several = several[:, 1:]
    found = []
    for column in schema.columns:
        level = column.to_level(frame[column.name])
        separations = [
            _rate_leak(level, several[:, k].astype(bool), column.kind == "category") for k in range(several.shape[1])
        ]
        # That a column tells one class from several others may be by design; all of them, hardly.
        area = max(separations) if schema.task == "multilabel" else min(separations)
        if area >= _LEAK_AUROC:
            what = _describe_separation(schema, separations, area)
            found.append(
                f"column {one_line(column.name, 60)!r} alone {what}: if it is unknown at prediction time, leave it out "
                "with --drop"
            )
    return found


def _describe_separation(schema: Schema, separations: Sequence[float], area: float) -> str:
    """Return what a column does, and the area under the ROC curve (AUROC) that shows it."""
    how = "separates" if area == 1 else "nearly separates"
    shown = f"AUROC {'1' if area == 1 else f'{area:.4f}'}"
    if schema.task == "multilabel":
        label = schema.classes[int(np.argmax(separations))]
        return f"{how} the rows with label {one_line(label, 40)!r} from the others ({shown})"
    return f"{how} the classes ({shown}{'' if schema.task == 'binary' else ' or more for each of them'})"


def _rate_leak(level: np.ndarray, positive: np.ndarray, category: bool) -> float:
    """Return how well one column separates a class: the area under the ROC curve of its best order."""
    if positive.all() or not positive.any():
        return 0.0
    level = np.where(np.isnan(level), -np.inf, level)
    places = np.unique(level, return_inverse=True)[1]
    count = np.bincount(places)
    hits = np.bincount(places, positive)
    if category:
        order = np.argsort(hits / count)  # categories have no order: take the best one
        count = count[order]
        hits = hits[order]
    misses = count - hits
    below = np.cumsum(misses) - misses
    area = float((hits * (below + misses / 2)).sum() / (hits.sum() * misses.sum()))
    return max(area, 1 - area)
