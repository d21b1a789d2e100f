"""Every table and figure that is reproduced, by name."""

from __future__ import annotations

from cells import Table

TABLES: dict[str, Table] = {}
