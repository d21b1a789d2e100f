"""What users write is fully typed: results of ``evaluate`` and ``tune_threshold``, metrics of one's own."""

from __future__ import annotations

from pathlib import Path

from mypy import api

USAGE = Path(__file__).parent / "support" / "typed" / "usage.py"


def test_a_typed_script_passes_mypy_strict() -> None:
    """Without the checks of this library itself, which ``./check`` runs anyway."""
    options = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "--no-incremental"]
    told, _, failed = api.run([*options, str(USAGE)])
    assert not failed, told
