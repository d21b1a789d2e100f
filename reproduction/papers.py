"""Every table and figure that is reproduced, by name."""

from __future__ import annotations

import mfom
import sigmoid_f1
from cells import Table

TABLES: dict[str, Table] = {**sigmoid_f1.TABLES, **mfom.TABLES}
