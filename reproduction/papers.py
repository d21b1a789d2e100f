"""Every table and figure that is reproduced, by name."""

from __future__ import annotations

import multiclass_f_beta
from cells import Table

TABLES: dict[str, Table] = {**multiclass_f_beta.TABLES}
