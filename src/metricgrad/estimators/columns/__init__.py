"""Columns of tables: what kind each is, and how its cells become numbers."""
