"""Which tests run a changed line, and whether they notice the change: for ``mutation.py``.

Importing the library and collecting its tests takes longer than most tests do. So one process collects them once, finds
which test runs which lines, and forks for every change: the child gives the functions of the changed module their new
code, and runs the tests that run the changed statement, the quickest first, until one fails.

A change outside of functions (a constant, a default) needs the module to be imported with it: ``run_anew`` does that.
"""

from __future__ import annotations

import ast
import gc
import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MOST_CASES = 2
"""Of the cases of a parametrised test, as many are looked at first; the others only if these notice nothing."""

SECONDS_OF_TESTS = 60
"""Of the tests that run a line, as many are tried as took together this long when lines were followed."""

LONGEST = 150
"""A run of tests that takes longer, in seconds, counts as noticed: the change made something endless."""


class Statement(NamedTuple):
    """The lines that are run if a changed line is, and whether they are in a function: None if that cannot be said."""

    lines: frozenset[int] | None
    is_in_function: bool


def find_statement(source: str, line: int) -> Statement:
    """Return the statement of a line; for the head of a function, whose defaults are read when it runs, its body."""
    parent: Any = ast.parse(source)
    is_in_function = False
    while True:
        node = next((child for child in ast.iter_child_nodes(parent) if _holds(child, line)), None)
        if node is None:
            return Statement(None, False)
        first, last = _find_ends(node)
        body = getattr(node, "body", None)
        head_ends = max(first, _find_ends(body[0])[0] - 1) if body else last
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if line > head_ends:
            parent = node
            is_in_function |= is_function
        elif is_in_function:
            return Statement(frozenset(range(first, head_ends + 1)), True)
        else:
            return Statement(frozenset(range(head_ends + 1, last + 1)) if is_function else None, False)


def _holds(node: Any, line: int) -> bool:
    """Tell whether a node is a statement, or a part of one with statements of its own, and holds a line."""
    if not isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
        return False
    first, last = _find_ends(node)
    return first <= line <= last


def _find_ends(node: Any) -> tuple[int, int]:
    """Return the first and the last line of a node, decorators included."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, _find_ends(node.body[-1])[1]
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)]), node.end_lineno


# Which tests run which lines


class Case(NamedTuple):
    """A test, or one case of a parametrised one: how long it took, and the lines of each module that it ran."""

    name: str
    seconds: float
    lines: dict[str, list[int]]

    @property
    def test(self) -> str:
        """The name of the test, without that of the case."""
        return self.name.partition("[")[0]


def choose_cases(names: list[str], most: int) -> list[str]:
    """Return at most so many cases of each test, spread over all of its cases, in the order given."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)
    chosen: set[str] = set()
    for of_test in cases.values():
        number = min(most, len(of_test))
        chosen.update(of_test[k * len(of_test) // number] for k in range(number))
    return [name for name in names if name in chosen]


def select_cases(cases: list[Case], module: str, lines: frozenset[int] | None) -> list[str]:
    """Return the cases that run any of the lines of a module: one of each test before the second of any.

    The quickest first, and no more than take ``SECONDS_OF_TESTS`` together.
    """
    running = [case for case in cases if _runs(case, module, lines)]
    running.sort(key=lambda case: case.seconds)
    seen: Counter[str] = Counter()
    ranks = []
    for case in running:
        ranks.append((seen[case.test], case.seconds, case.name))
        seen[case.test] += 1
    return _take_seconds([(name, seconds) for _, seconds, name in sorted(ranks)])


def _take_seconds(names: list[tuple[str, float]]) -> list[str]:
    """Return the first names, as many as take ``SECONDS_OF_TESTS``."""
    taken: list[str] = []
    total = 0.0
    for name, seconds in names:
        total += seconds
        if taken and total > SECONDS_OF_TESTS:
            break
        taken.append(name)
    return taken


def _runs(case: Case, module: str, lines: frozenset[int] | None) -> bool:
    of_module = case.lines.get(module)
    return of_module is not None and (lines is None or not lines.isdisjoint(of_module))


class _LineTracer:
    """Collect the lines of some modules that are run."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.modules = {path: module for module, path in paths.items()}
        self.lines: dict[str, set[int]] = {}

    def __call__(self, frame: Any, event: str, argument: Any) -> Any:
        module = self.modules.get(frame.f_code.co_filename)
        if module is None:
            return None
        lines = self.lines.setdefault(module, set())

        def add_line(frame: Any, event: str, argument: Any) -> Any:
            lines.add(frame.f_lineno)
            return add_line

        return add_line

    def take(self) -> dict[str, set[int]]:
        """Return what was collected since the last time."""
        lines = self.lines
        self.lines = {}
        return lines


def _merge_lines(into: dict[str, set[int]], lines: dict[str, set[int]]) -> None:
    for module, own in lines.items():
        into.setdefault(module, set()).update(own)


# Processes


def run_in_child(work: Callable[[], bool], longest: float = LONGEST) -> bool:
    """Return what a function returns in a forked process; False if it fails, or takes too long."""
    child = os.fork()
    if child == 0:
        _end_with(work)
    end = time.monotonic() + longest
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def _end_with(work: Callable[[], bool]) -> NoReturn:
    succeeded = False
    try:
        os.setsid()
        succeeded = work()
    finally:
        os._exit(0 if succeeded else 1)  # whatever happened: files and folders belong to the parent


def run_anew(tests: list[str]) -> bool:
    """Tell whether tests pass in a process that has the libraries loaded, but none of our code."""
    return run_in_child(lambda: _run_pytest(["-x", *tests]) == 0)


def collect_and_work(tests: list[str], plugin: CollectedTests) -> bool:
    """Collect tests in a process of their own, and let the plugin do its work there."""
    return run_in_child(lambda: _run_pytest(tests, [plugin]) == 0, longest=float("inf"))


def _run_pytest(arguments: list[str], plugins: list[Any] | None = None) -> int:
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    return int(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments], plugins=plugins))


def swap_code(functions: list[FunctionType], path: str, source: str) -> None:
    """Give the functions of a file the code that they have in a changed source, which has the same lines."""
    changed = {_name_code(code): code for code in _list_codes(compile(source, path, "exec", dont_inherit=True))}
    for function in functions:
        function.__code__ = changed[_name_code(function.__code__)]


def _name_code(code: CodeType) -> tuple[str, int, tuple[str, ...]]:
    return code.co_qualname, code.co_firstlineno, code.co_freevars


def _list_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_codes(constant)


class CollectedTests:
    """A plugin of pytest that collects tests, finds the lines that each runs, and then does some work with them."""

    def __init__(self, paths: dict[str, str], lines_file: Path, work: Callable[[CollectedTests], None]) -> None:
        self.messages = os.fdopen(os.dup(1), "w")  # pytest's own output goes nowhere
        self.paths = paths
        self.lines_file = lines_file
        self.work = work
        self.items: dict[str, Any] = {}
        self.cases: list[Case] = []
        self.functions: dict[str, list[FunctionType]] = {path: [] for path in paths.values()}
        self._tracer: _LineTracer | None = None
        self._lines_of_fixtures: dict[str, dict[str, set[int]]] = {}
        self._seconds_of_fixtures: dict[str, float] = defaultdict(float)
        self._failed = False
        self._skipped = False

    def pytest_runtestloop(self, session: Any) -> bool:
        """Do the work, in the place of running the tests."""
        self.items = {item.nodeid: item for item in session.items}
        for thing in gc.get_objects():
            if type(thing) is FunctionType and thing.__code__.co_filename in self.functions:
                self.functions[thing.__code__.co_filename].append(thing)
        gc.freeze()
        if not self.lines_file.exists():
            run_in_child(self._follow_lines, longest=3600)
        self.cases = [Case(*row) for row in json.loads(self.lines_file.read_text())]
        self.work(self)
        return True

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember that a test failed, or was skipped."""
        self._failed |= report.failed
        self._skipped |= report.skipped

    def _run(self, names: list[str]) -> Iterator[str]:
        """Run tests, and yield the name of each that has run."""
        for name, following in zip(names, [*names[1:], None], strict=True):
            item = self.items[name]
            next_item = None if following is None else self.items[following]
            item.ihook.pytest_runtest_protocol(item=item, nextitem=next_item)
            yield name

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Keep the lines and the time of fixtures of a whole file: they belong to every test of the file."""
        if self._tracer is None or fixturedef.scope == "function":
            return (yield)
        before = self._tracer.take()
        begin = time.monotonic()
        try:
            return (yield)
        finally:
            file = request.node.nodeid.partition("::")[0]
            self._seconds_of_fixtures[file] += time.monotonic() - begin
            _merge_lines(self._lines_of_fixtures.setdefault(file, {}), self._tracer.take())
            self._tracer.lines = before

    def _follow_lines(self) -> bool:
        """Write which case runs which lines."""
        self._tracer = _LineTracer(self.paths)
        rows: list[tuple[str, float, dict[str, set[int]]]] = []
        begin = time.monotonic()
        sys.settrace(self._tracer)
        for name in self._run(choose_cases(list(self.items), MOST_CASES)):
            lines = self._tracer.take()
            if self._failed:
                print(f"fails without a change, and is left out: {name}", file=self.messages, flush=True)
            elif not self._skipped:
                rows.append((name, time.monotonic() - begin, lines))
            self._failed = False
            self._skipped = False
            begin = time.monotonic()
        sys.settrace(None)
        cases = []
        for name, seconds, lines in rows:
            file = name.partition("::")[0]
            _merge_lines(lines, self._lines_of_fixtures.get(file, {}))
            sorted_lines = {module: sorted(own) for module, own in lines.items()}
            cases.append((name, seconds + self._seconds_of_fixtures[file], sorted_lines))
        self.lines_file.write_text(json.dumps(cases))
        return True

    def notices(self, module: str, source: str, names: list[str]) -> bool:
        """Tell whether one of some tests fails when the functions of a module have the code of a changed source."""
        path = self.paths[module]

        def work() -> bool:
            swap_code(self.functions[path], path, source)
            return not any(self._failed for _ in self._run(names))

        return not run_in_child(work)

    def list_other_cases(self, module: str, names: list[str]) -> list[str]:
        """Return cases whose lines were not followed: those of the tests of ``names``, then of all that run a module.

        As many as should take ``SECONDS_OF_TESTS``.
        """
        seconds: dict[str, float] = {}
        for case in self.cases:
            if module in case.lines:
                seconds[case.test] = max(case.seconds, seconds.get(case.test, 0.0))
        nearest = {name.partition("[")[0] for name in names}
        followed = {case.name for case in self.cases}
        tests = {name: name.partition("[")[0] for name in self.items if name not in followed}
        others = [name for name, test in tests.items() if test in seconds]
        others.sort(key=lambda name: (tests[name] not in nearest, seconds[tests[name]]))
        return _take_seconds([(name, seconds[tests[name]]) for name in others])
