"""Change one operator, comparison or number at a time, and see whether the tests nearest to it notice.

    python benchmarks/mutation.py --each 10 --state mutation-state.json --json benchmarks/results/mutation.json
    python benchmarks/mutation.py --each 10 --only decisions/offsets --show     # print the changes, run nothing
    python benchmarks/mutation.py --summary --state mutation-state.json --json benchmarks/results/mutation.json

The changes are those of cosmic-ray (extra ``bench``). Of each module in ``TARGETS`` the first ``--each`` in a random
order are tried, in a copy of the repository. The order is that of the SHA-256 of each change: it needs no seed, and a
change keeps its place when other lines change. Those that are done are kept in the file of ``--state``, and the same
command goes on where it stopped; ``--again`` tries those that lack a test once more, and ``--summary`` counts what is
done. Of the tests of a module those that run the changed statement are tried, the quickest first, until one fails: see
``mutation_runs.py``.

A change that no test notices is either the same program, for everything that is promised (``EQUIVALENT`` says why), or
lacks a test. Some changes never make a difference that a test should notice, and are not tried:

- ``frozen=``, ``eq=`` and ``repr=`` of dataclasses and their fields,
- ``strict=`` of ``zip``,
- the condition of ``if TYPE_CHECKING``,
- what is inside ``Annotated[...]``: limits of numbers that are read from files,
- the ``*`` that makes parameters keyword-only.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from cosmic_ray.ast import Visitor, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

from mutation_runs import Case, CollectedTests, collect_and_work, find_statement, run_anew, select_cases

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/metricgrad")

OPERATORS = [
    *(f"core/ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Lt_Gt", "Gt_Lt")),
    *("core/ReplaceUnaryOperator_Delete_USub", "core/ReplaceUnaryOperator_Delete_Not", "core/AddNot"),
    *("core/NumberReplacer", "core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"),
    *("core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceBreakWithContinue"),
]

METRICS = ["tests/core/metrics", "tests/core/test_counts.py", "tests/decisions/test_empty_counts.py"]
CORE = ["tests/core"]
DECISIONS = ["tests/decisions", "tests/evaluation/test_hard_values.py", "tests/core/test_sparse.py"]
BOOTSTRAP = ["tests/evaluation/test_bootstrap.py", "tests/decisions/test_ensemble_selection.py"]
COMPARISON = [
    f"tests/comparison/test_{name}.py"
    for name in ("leaderboard", "splits", "uncertainty", "protocol", "contenders", "class_shifts")
]
WHOLE_RUNS = ["tests/comparison/test_shipping.py", *COMPARISON]
TARGETS = {
    **{
        f"core/metrics/{name}.py": METRICS
        for name in (
            *("averages", "bounds", "class_sums", "constraints", "derivatives", "functions", "matrix", "parameters"),
            *("properties", "registry"),
        )
    },
    "core/counts.py": METRICS,
    **{f"core/{name}.py": CORE for name in ("kernel", "objective", "statistics")},
    **{
        f"decisions/{name}.py": DECISIONS
        for name in (
            *("averaged_thresholds", "default_rule", "ensemble_selection", "expected_f", "hard_counts", "incremental"),
            *("k_labels", "label_thresholds", "offsets", "problem", "rare_labels", "rules", "selection_criteria"),
            *("sparse_search", "threshold_search", "threshold_tuning"),
        )
    },
    "decisions/resampling.py": BOOTSTRAP,
    **{f"evaluation/{name}.py": BOOTSTRAP for name in ("bootstrap", "interval_ends", "one_more_row", "replicates")},
    **{
        f"comparison/{name}.py": COMPARISON
        for name in ("class_shifts", "contenders", "leaderboard", "protocol", "splits", "uncertainty", "verdict")
    },
    **{
        f"comparison/{name}.py": WHOLE_RUNS
        for name in (
            *("candidate_runs", "candidate_tasks", "contender_outcomes", "outcomes", "plateaus", "shipping"),
            "unit_files",
        )
    },
}
"""The modules that are changed, and the tests that should notice: files, or folders of them."""

DOCSTRINGS = "tests/laws/test_docstrings.py"
"""Compares the defaults of public functions with their docstrings."""

EQUIVALENT = {
    ("averages", "new_zeros(1, scores.shape[1]", "new_zeros(2, scores.shape[1]"): "only the number of columns is used",
    ("averages", "weight.reshape(0, 1)", "weight.reshape(-1, 1)"): "nothing as one column is (0, 1) either way",
    ("bounds", "high.clamp(min=0)", "high.clamp(min=-1)"): "what is clamped is used only where it is above 0",
    ("constraints", "leaves[0].sum()", "leaves[-1].sum()"): "0 times any of the cells will do",
    ("counts", "bit_length() - 52", "bit_length() - 53"): "sums are exact with one bit more, too",
    ("counts", "m.shape[-1]", "m.shape[-2]"): "the matrix is square",
    ("counts", "m.where(keep, 0)", "m.where(keep, -1)"): "what is masked has weight 0",
    ("counts", "m.where(keep, 0)", "m.where(keep, 1)"): "what is masked has weight 0",
    ("counts", "mask.unsqueeze(-1)", "mask.unsqueeze(1)"): "a mask of one axis: its last axis is its only one",
    ("counts", "max(rows, 1)", "max(rows, 0)"): "without rows there is nothing to round",
    ("counts", "weight.unsqueeze(-1)", "weight.unsqueeze(1)"): "a weight of one axis: its last axis is its only one",
    ("counts", "y.where(keep, 0)", "y.where(keep, -1)"): "what is masked has weight 0",
    ("counts", "y.where(keep, 0)", "y.where(keep, 1)"): "what is masked has weight 0",
    ("ensemble_selection", "zeros_like(candidates[0])", "zeros_like(candidates[-1])"): "only the shape is used",
    ("expected_f", "(above > _NEGLIGIBLE", "(above >= _NEGLIGIBLE"): "what is negligible may be summed as well",
    ("incremental", "2 * column", "3 * column"): "any counts show whether a metric is elementwise",
    ("k_labels", "min(blocks * 4, rows", "min(blocks * 3, rows"): "how fast the blocks become small is not promised",
    ("leaderboard", "in decisions[0].others", "in decisions[-1].others"): "every repeat has the same other metrics",
    ("offsets", "(k < second_class)", "(k <= second_class)"): "where class k was the second, both are found anew",
    ("one_more_row", "max(1, classes - 1)", "max(0, classes - 1)"): "a matrix has two classes or more",
    ("one_more_row", "seed + 2", "seed + 1"): "any stream will do but that of the weights of the rows",
    ("registry", "len(takers) < 3", "len(takers) <= 3"): "no parameter belongs to exactly three metrics",
    ("replicates", "_MOST_CELLS = 1 << 12", "_MOST_CELLS = 1 << 11"): "rows are weighed as well as cells, more slowly",
    ("replicates", "len(models) == 1", "len(models) == 0"): "several models are counted like one, more slowly",
    ("replicates", "seed + 1", "seed + 2"): "any stream will do but that of the weights of the rows",
    ("selection_criteria", "positives[0] > 0", "positives[0] > -1"): "0 in the sum of each candidate: the same order",
    ("selection_criteria", "> 2 * SCORE_BINS", ">= 2 * SCORE_BINS"): "from how many rows on bins are used",
    ("sparse_search", "after.nan_to_num(0, 0, 0)", "after.nan_to_num(0, 0, -1)"): "NaN takes its place in the sums",
    (
        "sparse_search",
        "index_add_(0, population",
        "index_add_(-1, population",
    ): "a vector: its last axis is its only one",
    ("sparse_search", "middle <= score", "middle < score"): "where they are equal, either is the same threshold",
    ("threshold_search", "for sign in (1, -1)", "for sign in (1, -2)"): "only the sign counts",
}
"""Changes that make no difference, and why: the name of the module, what stands in a line, and what it becomes.

White space does not count, and neither does the rest of the line.
"""

UNIMPORTANT_ARGUMENTS = {
    *(("dataclass", name) for name in ("frozen", "eq", "repr")),
    *(("field", name) for name in ("frozen", "eq", "repr")),
    ("zip", "strict"),
}
"""Functions and their keyword arguments that are not changed."""


# Which changes there are


class Place(NamedTuple):
    """A place where an operator of cosmic-ray applies: which of all its places in a module, and where that is."""

    operator: str
    number: int
    line: int
    column: int


class _PlaceFinder(Visitor):  # type: ignore[misc]
    """Collect the places where an operator applies and may make a difference."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.operator = get_operator(name)()
        self.seen = 0
        self.places: list[Place] = []

    def visit(self, node: Any) -> Any:
        for (line, column), _ in self.operator.mutation_positions(node):
            if not is_unimportant(node):
                self.places.append(Place(self.name, self.seen, line, column))
            self.seen += 1  # cosmic-ray counts every place
        return node


def is_unimportant(node: Any) -> bool:
    """Tell whether a change of a node of the syntax tree is one of those that are not tried: see the module."""
    if node.type == "operator" and node.parent.type in ("parameters", "lambdef"):
        return True
    if node.type == "if_stmt":  # what is changed is its condition
        cannot_be_negated = node.children[1].type == "namedexpr_test"  # "if not a := b" is no Python
        return cannot_be_negated or _asks_type_checking(node)
    child, parent = node, node.parent
    while parent is not None:
        if parent.type == "if_stmt" and child is parent.children[1] and _asks_type_checking(parent):
            return True
        if parent.type == "atom_expr" and parent.children[0].get_code(include_prefix=False) == "Annotated":
            return True
        if parent.type == "argument" and _called_with(parent) in UNIMPORTANT_ARGUMENTS:
            return True
        child, parent = parent, parent.parent
    return False


def _asks_type_checking(if_statement: Any) -> bool:
    condition = if_statement.children[1].get_code(include_prefix=False)
    return condition in ("TYPE_CHECKING", "not TYPE_CHECKING")


def _called_with(argument: Any) -> tuple[str, str]:
    """Return the function that an argument is given to, and the keyword."""
    call = argument.parent
    while call is not None and call.type != "atom_expr":
        call = call.parent
    if call is None:
        return "", ""
    return call.children[0].get_code(include_prefix=False), argument.children[0].get_code(include_prefix=False)


def list_places(module: str, source: str) -> list[Place]:
    """Return the places of a module that can be changed, in a random order that depends on each alone."""
    tree = get_ast(source)
    lines = source.splitlines()
    ranks: dict[Place, bytes] = {}
    for name in OPERATORS:
        finder = _PlaceFinder(name)
        finder.walk(tree)
        repeated: dict[str, int] = {}  # a number has two changes, and a line may occur twice
        for place in finder.places:
            line = lines[place.line - 1]
            column = place.column - (len(line) - len(line.lstrip()))
            identity = f"{module} {name} {column} {line.strip()}"
            times = repeated[identity] = repeated.get(identity, 0) + 1
            ranks[place] = hashlib.sha256(f"{identity} {times}".encode()).digest()
    return sorted(ranks, key=lambda place: ranks[place])


class Change(NamedTuple):
    """A change of a module: the number of the line, the line as it was and as it is, and the whole source."""

    module: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> str:
        """The change as text, for the file of what is done."""
        return f"{self.module}:{self.line}: {self.before} -> {self.after}"


def make_change(module: str, source: str, place: Place) -> Change:
    """Return the change at a place."""
    changed: str = mutate_code(source, get_operator(place.operator)(), place.number)
    difference = list(difflib.unified_diff(source.splitlines(), changed.splitlines(), lineterm="", n=0))[2:]
    before = " ".join(line[1:].strip() for line in difference if line.startswith("-"))
    after = " ".join(line[1:].strip() for line in difference if line.startswith("+"))
    return Change(module, place.line, before, after, changed)


def list_changes(module: str, each: int) -> list[Change]:
    """Return the first changes of a module."""
    source = (ROOT / PACKAGE / module).read_text()
    return [make_change(module, source, place) for place in list_places(module, source)[:each]]


def explain_equivalence(module: str, before: str, after: str) -> str | None:
    """Return why a change makes no difference; None if that is not known."""
    name, line, changed = Path(module).stem, _without_space(before), _without_space(after)
    for (where, old, new), reason in EQUIVALENT.items():
        if where != name:
            continue
        old, new = _without_space(old), _without_space(new)
        for found in re.finditer(re.escape(old), line):
            if line[: found.start()] + new + line[found.end() :] == changed:
                return reason
    return None


def list_outdated() -> list[str]:
    """Return the entries of ``EQUIVALENT`` whose text is no longer in their module."""
    sources = {Path(module).stem: (ROOT / PACKAGE / module) for module in TARGETS}
    texts = {name: _without_space(path.read_text()) for name, path in sources.items() if path.exists()}
    return [
        f"{name}: {old} -> {new}" for name, old, new in EQUIVALENT if _without_space(old) not in texts.get(name, "")
    ]


def _without_space(text: str) -> str:
    return re.sub(r"\s+", "", text)


# Which tests notice


def order_tests(module: str, tests: list[str], root: Path = ROOT) -> list[str]:
    """Return the files of tests that exist: ``test_<module>.py`` first, then in the order given, folders by name."""
    files: list[Path] = []
    for name in tests:
        path = root / name
        if path.is_dir():
            inside = sorted(path.rglob("test_*.py"), key=lambda file: (len(file.parts), file.name))  # subfolders last
            files += inside
        elif path.exists():
            files.append(path)
    own = f"test_{Path(module).stem}.py"
    nearest = [file for file in files if file.name == own]
    once = dict.fromkeys([*nearest, *files])
    return [str(file.relative_to(root)) for file in once]


def prepare_copy(folder: Path) -> None:
    """Copy what the tests need, and make the copy the one that is imported."""
    for name in ("src", "tests", "benchmarks", "reproduction", "docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("conftest.py", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    os.chdir(folder)
    sys.path.insert(0, str(folder / "src"))
    temporary = folder / "tmp"
    temporary.mkdir()
    tempfile.tempdir = str(temporary)
    os.environ |= {"PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    os.environ["TMPDIR"] = str(temporary)
    sys.dont_write_bytecode = True
    for name in ("torch", "numpy", "scipy.stats", "pandas", "sklearn.linear_model", "pyarrow", "pytest"):
        import_module(name)
    import_module("torch").set_num_threads(1)


def measure(each: int, only: str, again: bool, state_path: Path) -> dict[str, Any]:
    """Try the changes that are not done yet, or lack a test; return these and those that were, with their outcomes."""
    state: dict[str, Any] = json.loads(state_path.read_text()) if state_path.exists() else {}
    chosen = [module for module in TARGETS if re.search(only, module)]
    changes = {module: list_changes(module, each) for module in chosen}
    waiting: list[Change] = []
    for number in range(each):  # a change of each module before the second of any
        for module in chosen:
            if number >= len(changes[module]):
                continue
            change = changes[module][number]
            done = state.get(change.key)
            if done is None or (again and classify(done) == "lacking_a_test"):
                waiting.append(change)
    if waiting:
        with tempfile.TemporaryDirectory() as folder:
            _try_changes(waiting, Path(folder).resolve(), state_path)
    state = json.loads(state_path.read_text())
    wanted = [change.key for module in chosen for change in changes[module]]
    return {key: state[key] for key in wanted}


def _try_changes(waiting: list[Change], folder: Path, state_path: Path) -> None:
    """Try changes: those in functions where the tests are collected already, the others one by one."""
    copy = folder / "copy"
    prepare_copy(copy)
    modules = dict.fromkeys(change.module for change in waiting)
    tests = dict.fromkeys(test for module in modules for test in order_tests(module, TARGETS[module]))
    doctests = [str(PACKAGE / module) for module in modules]
    paths = {module: str(copy / PACKAGE / module) for module in modules}
    left_file = folder / "left.json"
    lines_file = state_path.with_suffix(f".{_digest_texts(copy, [*tests, *doctests])}.lines.json")

    def try_in_functions(collected: CollectedTests) -> None:
        left: list[str] = []
        for change in waiting:
            statement = find_statement(change.source, change.line)
            names = select_cases(collected.cases, change.module, statement.lines)
            if not (statement.is_in_function and names):
                left.append(change.key)
                continue
            noticed = collected.notices(change.module, change.source, names)
            if not noticed:
                others = collected.list_other_cases(change.module, names)
                noticed = bool(others) and collected.notices(change.module, change.source, others)
            _keep_outcome(change, noticed, state_path, collected.messages)
        left_file.write_text(json.dumps(left))

    plugin = CollectedTests(paths, lines_file, try_in_functions)
    if not collect_and_work([*tests, *doctests], plugin):
        raise SystemExit(f"tests: expected to be collected, got an error; see python -m pytest -q {' '.join(tests)}")
    cases = [Case(*row) for row in json.loads(lines_file.read_text())]
    left = json.loads(left_file.read_text())
    for change in waiting:
        if change.key in left:
            _keep_outcome(change, _notices_anew(change, copy, cases), state_path, sys.stdout)


def _digest_texts(folder: Path, files: list[str]) -> str:
    """Return a text that changes with the files: which test runs which lines need not be found again before that."""
    digest = hashlib.sha256()
    for name in files:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


def _notices_anew(change: Change, copy: Path, cases: list[Case]) -> bool:
    """Tell whether tests notice a change when the library is imported with it."""
    path = copy / PACKAGE / change.module
    statement = find_statement(change.source, change.line)
    names = select_cases(cases, change.module, statement.lines)
    tests = list(dict.fromkeys(name.partition("[")[0] for name in names))
    if not tests:  # what is run in other processes is not followed
        tests = order_tests(change.module, TARGETS[change.module])
    is_head_of_function = statement.lines is not None and not statement.is_in_function
    if is_head_of_function:
        tests.append(DOCSTRINGS)
    original = path.read_text()
    path.write_text(change.source)
    try:
        return not run_anew(tests)
    finally:
        path.write_text(original)


def _keep_outcome(change: Change, noticed: bool, state_path: Path, messages: TextIO) -> None:
    """Print what became of a change, and add it to the file of what is done."""
    outcome = "noticed" if noticed else "survived"
    state = json.loads(state_path.read_text()) if state_path.exists() else {}
    state[change.key] = {
        "module": change.module,
        "line": change.line,
        "before": change.before,
        "after": change.after,
        "outcome": outcome,
    }
    state_path.write_text(json.dumps(state, indent=1))
    print(outcome, change.key, file=messages, flush=True)


def classify(one: dict[str, Any]) -> str:
    """Return what became of a change that was tried: "noticed", "equivalent" or "lacking_a_test"."""
    if one["outcome"] == "noticed":
        return "noticed"
    reason = explain_equivalence(one["module"], one["before"], one["after"])
    return "lacking_a_test" if reason is None else "equivalent"


def list_present(state: dict[str, Any]) -> dict[str, Any]:
    """Return what was tried and is still a change of the present code, under its present line."""
    found: dict[str, Any] = {}
    for module in dict.fromkeys(one["module"] for one in state.values()):
        tried = [one for one in state.values() if one["module"] == module]
        source = (ROOT / PACKAGE / module).read_text()
        lines = source.splitlines()
        changed_lines = {one["before"] for one in tried}
        places = [place for place in list_places(module, source) if lines[place.line - 1].strip() in changed_lines]
        changes = [make_change(module, source, place) for place in places]
        for one in tried:
            same = [c for c in changes if (c.before, c.after) == (one["before"], one["after"])]
            if same:
                nearest = min(same, key=lambda change: abs(change.line - one["line"]))
                found[nearest.key] = one | {"line": nearest.line}
    return found


def summarise(tried: dict[str, Any]) -> dict[str, Any]:
    """Return how many changes are possible and were tried, and what became of them, in all and by module."""
    nothing = {"possible": 0, "tried": 0, "noticed": 0, "equivalent": 0, "lacking_a_test": 0}
    total = dict(nothing)
    modules: dict[str, dict[str, int]] = {}
    for module in dict.fromkeys(one["module"] for one in tried.values()):
        possible = len(list_places(module, (ROOT / PACKAGE / module).read_text()))
        modules[module] = nothing | {"possible": possible}
        total["possible"] += possible
    keys: dict[str, list[str]] = {"noticed": [], "equivalent": [], "lacking_a_test": []}
    for key, one in tried.items():
        kind = classify(one)
        keys[kind].append(key)
        for counts in (total, modules[one["module"]]):
            counts["tried"] += 1
            counts[kind] += 1
    reasons = {}
    for key in keys["equivalent"]:
        one = tried[key]
        reasons[key] = explain_equivalence(one["module"], one["before"], one["after"])
    return {
        "command": "python benchmarks/mutation.py " + " ".join(sys.argv[1:]),
        "versions": {name: version(name) for name in ("cosmic-ray", "torch", "metricgrad")}
        | {"python": platform.python_version()},
        **total,
        "modules": modules,
        "which_are_equivalent": reasons,
        "which_lack_a_test": keys["lacking_a_test"],
        "outdated_entries": list_outdated(),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", type=int, default=10, help="how many changes of each module (default: 10)")
    parser.add_argument("--only", default="", metavar="PATTERN", help="modules whose path holds this pattern")
    parser.add_argument("--state", type=Path, default=Path("mutation-state.json"), help="what is done")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    parser.add_argument("--again", action="store_true", help="try the changes that lack a test once more")
    parser.add_argument("--summary", action="store_true", help="try nothing, count what is done")
    parser.add_argument("--show", action="store_true", help="print the changes and stop")
    options = parser.parse_args()
    if options.show:
        for module in TARGETS:
            if re.search(options.only, module):
                print("\n".join(change.key for change in list_changes(module, options.each)))
        return
    output = None if options.json is None else options.json.resolve()
    if options.summary:
        tried = list_present(json.loads(options.state.read_text()))
    else:
        tried = measure(options.each, options.only, options.again, options.state.resolve())
    found = summarise(tried)
    print(json.dumps(found, indent=1))
    if output is not None:
        output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
