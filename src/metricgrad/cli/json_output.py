"""``--json``: one document on standard output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def print_json(document: Mapping[str, object]) -> None:
    """Print a document as one line of JSON."""
    print(json.dumps(_replace_non_finite(document), ensure_ascii=False, allow_nan=False))


def _replace_non_finite(value: object) -> object:
    """Return a document with null in place of NaN and infinite numbers, which JSON cannot hold."""
    if isinstance(value, Mapping):
        return {key: _replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
