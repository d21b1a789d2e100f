"""Which changes ``benchmarks/mutation.py`` makes, in which order, and how it counts them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cosmic_ray")

pytestmark = pytest.mark.quick
ROOT = Path(__file__).parents[1]


@pytest.fixture
def mutation(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("mutation")


SOURCE = """
if TYPE_CHECKING:
    import torch

if not TYPE_CHECKING:
    names = []

@dataclass(frozen=True, eq=False)
class Limits:
    low: Annotated[int, Range(0, 5)]
    notes: list = field(repr=False, compare=False)

def shift(values, *, by=1):
    if values > by:
        return [a + b for a, b in zip(values, others, strict=True)]
    return first(values, strict=True)
"""
CHANGED = {
    "notes: list = field(repr=False, compare=False) -> notes: list = field(repr=False, compare=True)",
    "def shift(values, *, by=1): -> def shift(values, *, by=0):",
    "def shift(values, *, by=1): -> def shift(values, *, by=2):",
    "if values > by: -> if values >= by:",
    "if values > by: -> if values < by:",
    "if values > by: -> if not values > by:",
    "return [a + b for a, b in zip(values, others, strict=True)] -> "
    "return [a - b for a, b in zip(values, others, strict=True)]",
    "return first(values, strict=True) -> return first(values, strict=False)",
}


def changes_of(mutation: Any, source: str) -> list[str]:
    changes = [mutation.make_change("room/module.py", source, place) for place in mutation.list_places("m", source)]
    assert all(source.splitlines()[change.line - 1].strip() == change.before for change in changes)
    return [f"{change.before} -> {' '.join(change.after.split())}".replace("= ", "=") for change in changes]


def test_what_cannot_matter_is_not_changed(mutation: Any) -> None:
    found = changes_of(mutation, SOURCE)
    assert len(found) == len(CHANGED)
    assert {text.replace(" ", "") for text in found} == {text.replace(" ", "") for text in CHANGED}


def test_the_order_of_changes_is_kept_when_other_lines_change(mutation: Any) -> None:
    before = changes_of(mutation, SOURCE)
    moved = "limit = 1 + 2\n" + SOURCE.replace("    ", "  ")  # another line, and another indentation
    after = [change for change in changes_of(mutation, moved) if not change.startswith("limit")]
    assert after == before


def test_an_equivalent_change_is_known_by_what_changes_in_the_line(
    mutation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutation, "EQUIVALENT", {("counts", "unsqueeze(-1)", "unsqueeze(1)"): "one axis"})
    before, after = "w = f(1).unsqueeze(-1) + x.unsqueeze(-1)", "w = f(1).unsqueeze(-1) + x.unsqueeze( 1)"
    assert mutation.explain_equivalence("core/counts.py", before, after) == "one axis"
    assert mutation.explain_equivalence("elsewhere/counts.py", f"  {before}", f" {after}") == "one axis"
    assert mutation.explain_equivalence("core/batch.py", before, after) is None
    assert mutation.explain_equivalence("core/counts.py", before, "w = f(2).unsqueeze(-1) + x.unsqueeze(-1)") is None


def test_the_test_of_the_same_name_runs_first_and_every_test_once(mutation: Any, tmp_path: Path) -> None:
    for name in ("rooms/test_a.py", "rooms/test_b.py", "rooms/inner/test_0.py", "rooms/helper.py", "other/test_c.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    tests = ["other/test_c.py", "rooms", "rooms/test_a.py", "missing/test_d.py"]
    assert mutation.order_tests("room/b.py", tests, tmp_path) == [
        *("rooms/test_b.py", "other/test_c.py", "rooms/test_a.py", "rooms/inner/test_0.py"),
    ]


def test_every_module_and_its_tests_are_there_and_names_are_unique(mutation: Any) -> None:
    stems = [Path(module).stem for module in mutation.TARGETS]
    assert len(set(stems)) == len(stems)
    assert {name for name, _, _ in mutation.EQUIVALENT} <= set(stems)
    for module, tests in mutation.TARGETS.items():
        assert (ROOT / mutation.PACKAGE / module).exists(), module
        for test in tests:
            assert (ROOT / test).exists(), test


def test_changes_are_counted_by_what_became_of_them(mutation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "EQUIVALENT", {("counts", "x + 0", "x - 0"): "adding nothing"})
    outcomes = [("y = 1", "y = 2", "noticed"), ("y = x + 0", "y = x - 0", "survived"), ("y > 1", "y >= 1", "survived")]
    tried = {
        f"change {number}": {"module": "core/counts.py", "before": before, "after": after, "outcome": outcome}
        for number, (before, after, outcome) in enumerate(outcomes)
    }
    found = mutation.summarise(tried)
    counts = {"tried": 3, "noticed": 1, "equivalent": 1, "lacking_a_test": 1}
    assert found.items() >= counts.items()
    assert found["modules"] == {"core/counts.py": counts}
    assert found["which_are_equivalent"] == {"change 1": "adding nothing"}
    assert found["which_lack_a_test"] == ["change 2"]
    assert found["outdated_entries"] == ["counts: x + 0 -> x - 0"]
