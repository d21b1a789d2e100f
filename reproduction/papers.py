"""Every paper, and every table and figure that is reproduced, by name."""

from __future__ import annotations

import mfom
import sigmoid_f1
from cells import Table

PAPERS = (sigmoid_f1, mfom)
"""The scripts, in the order of the page; each has ``TABLES`` and ``verdicts(results)``."""
TABLES: dict[str, Table] = {**sigmoid_f1.TABLES, **mfom.TABLES}
