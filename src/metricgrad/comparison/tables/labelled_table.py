"""The data of a comparison: the labelled rows as they were read, and their targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The labelled rows as they were read, their targets, and the names of the classes."""

    frame: pd.DataFrame
    targets: Any
    names: tuple[str, ...]
