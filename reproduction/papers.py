"""Every paper, and every table and figure that is reproduced, by name."""

from __future__ import annotations

import multiclass_f_beta
import theory
from cells import Table

PAPERS = (multiclass_f_beta, theory)
"""The scripts, in the order of the page; each has ``TABLES`` and ``verdicts(results)``."""
TABLES: dict[str, Table] = {**multiclass_f_beta.TABLES, **theory.TABLES}
