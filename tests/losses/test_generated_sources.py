"""What is written by rules is up to date: shared parameters in docstrings, and the presets for Keras."""

from __future__ import annotations

from pathlib import Path

import pytest

import generated_sources

GENERATED = dict(generated_sources.list_generated())


@pytest.mark.parametrize("path", GENERATED, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_are_what_the_rules_write(path: Path) -> None:
    assert path.read_text() == GENERATED[path], "run python tests/support/generated_sources.py"


def test_every_shared_parameter_is_used() -> None:
    used = "\n".join(GENERATED.values())
    assert [header for header in generated_sources.SHARED_PARAMETERS if f"    {header}" not in used] == []


def test_a_text_that_differs_is_replaced() -> None:
    header, other = "    ignore_index : int, optional\n", "    other : int\n        Kept.\n"
    before = f"{header}        Something else,\n        and more.\n{other}"
    after = f"{header}        Targets of this value do not count.\n{other}"
    assert generated_sources.write_shared_parameters(before) == after


def test_keras_presets_have_the_parameters_of_torch() -> None:
    text = GENERATED[generated_sources.KERAS_PRESETS]
    for name in generated_sources.KERAS_EXAMPLES:
        assert f"\ndef {name}(" in text
        assert f'    name: str = "{name}",' in text
    for absent in ("process_group", "learning", "Tensor", "(N, K, ...)", "torch.tensor("):
        assert absent not in text
