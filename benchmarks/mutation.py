"""Change one operator, comparison or number at a time, and see whether the tests nearest to it notice.

    python benchmarks/mutation.py --each 10 --state mutation-state.json --json benchmarks/results/mutation.json
    python benchmarks/mutation.py --show metricgrad/decisions/offsets.py:3     # one change, as a difference

The changes are those of cosmic-ray (extra ``bench``). Of each module in ``TARGETS`` the first ``--each`` in a random
order that is always the same are tried, in a copy of the repository; those that are done are kept in the file of
``--state``, and the same command goes on where it stopped. A change that no test notices is either the same program
(``EQUIVALENT`` says why) or lacks a test.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import platform
import random
import shutil
import signal
import sys
import tempfile
import time
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 400
"""A run of the tests that takes longer counts as noticed: the change made something endless."""

OPERATORS = [
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_Gt", "Gt_Lt")),
    *("core/ReplaceUnaryOperator_Delete_USub", "core/ReplaceUnaryOperator_Delete_Not", "core/AddNot"),
    *("core/NumberReplacer", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceBreakWithContinue"),
]

DECISIONS = ["tests/decisions"]
STUDY = [
    f"tests/comparison/test_{name}.py" for name in ("leaderboard", "splits", "uncertainty", "protocol", "shipping")
]
METRICS = ["tests/core/metrics", "tests/evaluation/test_hard_values.py", "tests/losses/test_constrained_loss.py"]
TARGETS = {
    **{f"core/metrics/{name}.py": METRICS for name in ("averages", "bounds", "constraints", "functions", "matrix")},
    "core/metrics/derivatives.py": METRICS,
    "core/counts.py": [*METRICS, "tests/decisions/test_empty_counts.py"],
    **{
        f"decisions/{name}.py": DECISIONS
        for name in (
            *("averaged_thresholds", "ensemble_selection", "expected_f", "hard_counts", "incremental", "k_labels"),
            *("label_thresholds", "offsets", "problem", "rare_labels", "rules", "sparse_search", "threshold_search"),
            "threshold_tuning",
        )
    },
    **{
        f"evaluation/{name}.py": ["tests/evaluation/test_bootstrap.py"]
        for name in ("bootstrap", "interval_ends", "one_more_row", "replicates")
    },
    **{
        f"comparison/{name}.py": STUDY
        for name in ("leaderboard", "protocol", "shipping", "splits", "uncertainty", "unit_runner", "verdict")
    },
}

EQUIVALENT = {
    "metricgrad/core/metrics/bounds.py:0": "what is clamped is used only where it is above 0",
    "metricgrad/core/counts.py:0": "a weight of one axis: its last axis is its only one",
}
"""Changes that make no difference, and why."""


class _Places(Visitor):  # type: ignore[misc]
    """Count the places where an operator can be applied."""

    def __init__(self, operator: Any) -> None:
        self.operator, self.number = operator, 0

    def visit(self, node: Any) -> Any:
        self.number += len(list(self.operator.mutation_positions(node)))
        return node


def list_changes(module: str) -> list[tuple[str, int]]:
    """Return the changes of a module, operators and which of their places, in one random order."""
    tree = get_ast((ROOT / "src/metricgrad" / module).read_text())
    found = []
    for name in OPERATORS:
        places = _Places(get_operator(name)())
        places.walk(tree)
        found += [(name, place) for place in range(places.number)]
    random.Random(module).shuffle(found)  # noqa: S311
    return found


def make_change(module: str, number: int) -> tuple[str, str]:
    """Return the source of a module with one change, and the lines that differ."""
    before = (ROOT / "src/metricgrad" / module).read_text()
    name, place = list_changes(module)[number]
    after: str = mutate_code(before, get_operator(name)(), place)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    return after, "\n".join(changed)


def _run_in_child(tests: list[str]) -> NoReturn:
    status = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        import pytest

        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))
    finally:
        os._exit(status)  # whatever happened: the folder of the copy belongs to the parent


def run_tests(tests: list[str]) -> str:
    """Return "noticed" or "survived": run tests in a process that has the libraries loaded, but none of our code."""
    child = os.fork()
    if child == 0:
        _run_in_child(tests)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "noticed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "noticed"


def prepare_copy(folder: Path) -> None:
    """Copy what the tests need, and make the copy the one that is imported."""
    for name in ("src", "tests", "benchmarks", "reproduction", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    os.chdir(folder)
    sys.path.insert(0, str(folder / "src"))
    os.environ |= {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    sys.dont_write_bytecode = True
    for name in ("torch", "numpy", "scipy.stats", "pandas", "sklearn.linear_model", "pyarrow", "pytest"):
        import_module(name)
    import_module("torch").set_num_threads(1)


def measure(each: int, only: str, state_path: Path) -> dict[str, Any]:
    """Try the changes that are not done yet, and keep what was found."""
    state: dict[str, Any] = json.loads(state_path.read_text()) if state_path.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        prepare_copy(copy)
        for number in range(each):
            for module, tests in TARGETS.items():
                key = f"metricgrad/{module}:{number}"
                if only not in module or key in state or number >= len(list_changes(module)):
                    continue
                path = copy / "src/metricgrad" / module
                original = path.read_text()
                after, lines = make_change(module, number)
                path.write_text(after)
                state[key] = {"lines": lines, "outcome": run_tests(tests)}
                path.write_text(original)
                print(key, state[key]["outcome"], flush=True)
                state_path.write_text(json.dumps(state, indent=1))
    return state


def summarise(state: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of changes by module, and those that survived."""
    modules: dict[str, dict[str, int]] = {}
    survived = {}
    for key, one in state.items():
        counts = modules.setdefault(key.split(":")[0], {"tried": 0, "noticed": 0})
        counts["tried"] += 1
        counts["noticed"] += one["outcome"] == "noticed"
        if one["outcome"] == "survived":
            survived[key] = {"lines": one["lines"], "why": EQUIVALENT.get(key, "no test")}
    return {
        "command": "python benchmarks/mutation.py " + " ".join(sys.argv[1:]),
        "versions": {name: version(name) for name in ("cosmic-ray", "torch", "metricgrad")}
        | {"python": platform.python_version()},
        "tried": sum(one["tried"] for one in modules.values()),
        "noticed": sum(one["noticed"] for one in modules.values()),
        "modules": modules,
        "survived": survived,
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=10, help="how many changes of each module (default: 10)")
    parser.add_argument("--only", default="", metavar="TEXT", help="modules whose path holds this text")
    parser.add_argument("--state", type=Path, default=Path("mutation-state.json"), help="what is done")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument("--show", metavar="MODULE:NUMBER", help="print one change and stop")
    options = parser.parse_args()
    if options.show:
        module, _, number = options.show.removeprefix("metricgrad/").rpartition(":")
        print(make_change(module, int(number))[1])
        return
    output = None if options.json is None else options.json.resolve()
    found = summarise(measure(options.each, options.only, options.state.resolve()))
    print(json.dumps(found, indent=1))
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
