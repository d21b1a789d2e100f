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
def runs(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("mutation_runs")


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
    if found := values[by:]:
        return found
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


STATEMENTS = """
LIMIT = 3

def far(x, at=LIMIT,
        by=2):
    y = (x +
         by)
    if y > at:
        return y

    def near(z, w=1):
        return z - w
    return near(y)

class Box:
    size = 4

    def grow(self):
        self.size += 1
"""


@pytest.mark.parametrize(
    ("line", "lines", "is_in_function"),
    [
        (2, None, False),  # a constant
        (5, range(6, 14), False),  # a default is read where the function runs
        (7, range(6, 8), True),  # one statement of two lines
        (8, [8], True),
        (9, [9], True),
        (11, [11], True),  # the head of a function that is defined in a function
        (12, [12], True),
        (16, None, False),  # what a class holds
        (19, [19], True),
    ],
)
def test_the_statement_of_a_line(runs: Any, line: int, lines: Any, is_in_function: bool) -> None:
    found = runs.find_statement(STATEMENTS, line)
    assert found.lines == (None if lines is None else frozenset(lines))
    assert found.is_in_function == is_in_function


def test_tests_that_run_a_line_are_tried_quickest_first_and_one_of_each_before_a_second(
    runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [
        runs.Case("t.py::a[1]", 3.0, {"m.py": [4, 5]}),
        runs.Case("t.py::a[2]", 0.5, {"m.py": [4]}),
        runs.Case("t.py::b", 1.0, {"m.py": [5, 6], "other.py": [4]}),
        runs.Case("t.py::c", 0.1, {"other.py": [4]}),
    ]
    assert runs.select_cases(cases, "m.py", frozenset([4, 5])) == ["t.py::a[2]", "t.py::b", "t.py::a[1]"]
    assert runs.select_cases(cases, "m.py", frozenset([6, 7])) == ["t.py::b"]
    assert runs.select_cases(cases, "m.py", None) == ["t.py::a[2]", "t.py::b", "t.py::a[1]"]
    assert runs.select_cases(cases, "m.py", frozenset([9])) == []
    monkeypatch.setattr(runs, "SECONDS_OF_TESTS", 2.0)
    assert runs.select_cases(cases, "m.py", None) == ["t.py::a[2]", "t.py::b"]
    names = [f"t.py::a[{k}]" for k in range(5)] + ["t.py::b"]
    assert runs.choose_cases(names, 2) == ["t.py::a[0]", "t.py::a[2]", "t.py::b"]


def test_functions_that_exist_get_the_code_of_a_changed_source(runs: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "changed.py")
    source = "def outer(by):\n    def inner(x):\n        return x + by\n    return inner\n"
    names: dict[str, Any] = {}
    exec(compile(source, path, "exec"), names)  # noqa: S102
    made = names["outer"](2)
    assert made(5) == 7
    runs.swap_code([names["outer"], made], path, source.replace("+", "-"))
    assert made(5) == names["outer"](2)(5) == 3


def test_what_runs_in_a_child_fails_there_and_leaves_nothing_here(runs: Any) -> None:
    seen: list[int] = []
    assert runs.run_in_child(lambda: not seen.append(1))  # type: ignore[func-returns-value]
    assert not runs.run_in_child(lambda: False)
    assert not runs.run_in_child(lambda: bool(1 / 0))
    assert seen == []


def test_changes_are_counted_by_what_became_of_them(mutation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutation, "EQUIVALENT", {("counts", "x + 0", "x - 0"): "adding nothing"})
    outcomes = [("y = 1", "y = 2", "noticed"), ("y = x + 0", "y = x - 0", "survived"), ("y > 1", "y >= 1", "survived")]
    monkeypatch.setattr(mutation, "list_places", lambda module, source: [None] * 7)
    tried = {
        f"change {number}": {"module": "core/counts.py", "before": before, "after": after, "outcome": outcome}
        for number, (before, after, outcome) in enumerate(outcomes)
    }
    found = mutation.summarise(tried)
    counts = {"possible": 7, "tried": 3, "noticed": 1, "equivalent": 1, "lacking_a_test": 1}
    assert found.items() >= counts.items()
    assert found["modules"] == {"core/counts.py": counts}
    assert found["which_are_equivalent"] == {"change 1": "adding nothing"}
    assert found["which_lack_a_test"] == ["change 2"]
    assert found["outdated_entries"] == ["counts: x + 0 -> x - 0"]
