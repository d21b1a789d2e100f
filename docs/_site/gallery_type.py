"""Type in the pictures of the tutorials that can still be read in a thumbnail."""

from __future__ import annotations

from typing import Any


def enlarge_type(_gallery: dict[str, Any], _file: str) -> None:
    """Set the size of letters and lines, before every tutorial."""
    import matplotlib as mpl

    mpl.rcParams.update({"font.size": 13, "axes.titlesize": 13, "lines.linewidth": 2})
