"""Every paper, and every table and figure that is reproduced, by name."""

from __future__ import annotations

import binary_soft_sets
from cells import Table

PAPERS = (binary_soft_sets,)
"""The scripts, in the order of the page; each has ``TABLES`` and ``verdicts(results)``."""
TABLES: dict[str, Table] = {**binary_soft_sets.TABLES}
