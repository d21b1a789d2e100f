"""A data set in a few lines, and what to be warned of in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from metricgrad.app.errors import one_line
from metricgrad.app.tables.columns import as_numbers

if TYPE_CHECKING:
    from metricgrad.app.tables.columns import Column
    from metricgrad.app.tables.schema import Schema

_ROWS = 50_000  # leaks are looked for in so many rows
_LEAK = 0.99  # from so good a single column on, of 1


def profile(frame: pd.DataFrame, schema: Schema) -> list[tuple[str, str]]:
    """Return a few lines about a data set: (label, text)."""
    target, rows = schema.target, len(frame)
    kinds = Counter(column.kind for column in schema.columns)
    lines = [
        ("rows", f"{rows:,}" + (f", of which {rows - schema.rows:,} without a target" if rows > schema.rows else "")),
        ("task", f"{schema.task}: {one_line(', '.join(target.columns), 80)}" + _separated(schema)),
        ("classes", _balance(schema)),
        ("features", f"{len(schema.columns)}: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())),
    ]
    gaps = sorted(((column.missing, column.name) for column in schema.columns if column.missing), reverse=True)
    if gaps:
        worst = ", ".join(f"{one_line(name, 40)} {share:.1%}" for share, name in gaps[:3])
        lines.append(("missing", f"in {len(gaps)} columns, most in {worst}"))
    if schema.dropped:
        names = one_line(", ".join(schema.dropped), 120)
        lines.append(("left out", f"{len(schema.dropped)}: {names}"))
    return lines


def warnings(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Return the warnings, a sentence each."""
    frame = schema.labelled(frame)
    found = [
        f"column {one_line(name, 60)!r} was left out: {one_line(why, 120)}"
        for name, why in schema.dropped.items()
        if why != "left out as asked"
    ]
    for column in schema.columns:
        found += _odd_cells(column, frame[column.name])
    found += _duplicates(frame, schema)
    found += _leaks(frame, schema)
    return found


def _separated(schema: Schema) -> str:
    target = schema.target
    return "" if target.separator is None else f", labels with {target.separator!r} between them"


def _balance(schema: Schema) -> str:
    pairs = sorted(zip(schema.classes, schema.target.counts, strict=True), key=lambda pair: -pair[1])
    shown = [f"{one_line(name, 40)} {count / schema.rows:.1%}" for name, count in pairs[:6]]
    more = f" and {len(pairs) - 6} more, down to {pairs[-1][1] / schema.rows:.1%}" if len(pairs) > 6 else ""
    positive = "" if schema.positive is None else f" (positive: {one_line(schema.positive, 40)})"
    return ", ".join(shown) + more + positive


def _odd_cells(column: Column, cells: pd.Series) -> list[str]:
    name = one_line(column.name, 60)
    if column.kind != "number":
        return []
    if pd.api.types.is_numeric_dtype(cells.dtype):
        infinite = int(np.isinf(cells.to_numpy(np.float64, na_value=np.nan)).sum())
        return [f"column {name!r}: {infinite} infinite cells count as missing"] if infinite else []
    odd = cells[np.isnan(as_numbers(cells)) & cells.notna().to_numpy()]
    if not len(odd):
        return []
    return [f"column {name!r}: {len(odd)} cells that are no numbers ({one_line(odd.iloc[0], 30)!r}) count as missing"]


def _duplicates(frame: pd.DataFrame, schema: Schema) -> list[str]:
    features = pd.util.hash_pandas_object(schema.features(frame), index=False).to_numpy()
    targets = schema.targets(frame)
    both = pd.util.hash_pandas_object(pd.DataFrame(targets).assign(features=features), index=False)
    found = []
    copies = int(both.duplicated().sum())
    if copies:
        found.append(
            f"{copies} rows ({copies / len(frame):.1%}) repeat another row: copies may be tested on after training"
        )
    odd = pd.DataFrame({"features": features, "both": both}).groupby("features")["both"].transform("nunique") > 1
    if odd.any():
        found.append(f"{int(odd.sum())} rows ({odd.mean():.1%}) have a twin of the same features and another target")
    return found


def _leaks(frame: pd.DataFrame, schema: Schema) -> list[str]:
    """Name columns that tell the target nearly alone: they may hold what is not known when predicting."""
    if len(frame) > _ROWS:
        frame = frame.sample(_ROWS, random_state=0)
    targets = schema.targets(frame)
    several = targets if targets.ndim == 2 else np.column_stack([targets == k for k in range(len(schema.classes))])
    if schema.task == "binary":
        several = several[:, 1:]
    found = []
    for column in schema.columns:
        level = column.level(frame[column.name])
        telling = [
            _telling(level, several[:, k].astype(bool), column.kind == "category") for k in range(several.shape[1])
        ]
        # One class of many that a column tells may be by design; all of them are not.
        best = max(telling) if schema.task == "multilabel" else min(telling)
        if best >= _LEAK:
            found.append(
                f"column {one_line(column.name, 60)!r} tells the target nearly alone ({best:.1%}): if it is not known "
                "when predicting, leave it out with --drop"
            )
    return found


def _telling(level: Any, positive: Any, category: bool) -> float:
    """Return how well one column tells a class: the area under the ROC curve of its best order."""
    if positive.all() or not positive.any():
        return 0.0
    level = np.where(np.isnan(level), -np.inf, level)
    places = np.unique(level, return_inverse=True)[1]
    count, hits = np.bincount(places), np.bincount(places, positive)
    if category:
        order = np.argsort(hits / count)  # the order of categories means nothing: take the best one
        count, hits = count[order], hits[order]
    misses = count - hits
    below = np.cumsum(misses) - misses
    area = float((hits * (below + misses / 2)).sum() / (hits.sum() * misses.sum()))
    return max(area, 1 - area)
