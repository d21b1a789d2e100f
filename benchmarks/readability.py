"""How dense code is: operations per line, tuple assignments, comments and names, in the rooms of a package.

    python benchmarks/readability.py [FOLDER ...] [--files N]

Without folders: the core rooms of metricgrad (``core``, ``losses``, ``decisions``, ``evaluation``), and all of it.
Lines are those of code: no blank ones, comments or docstrings. An operation is a call, an operator, a comparison,
an index or a comprehension. ``--files N`` lists the N densest files too. There is no number to reach: a
file at the top of the list is one to read again.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SOURCE = Path(__file__).parents[1] / "src" / "metricgrad"
CORE_ROOMS = ("core", "losses", "decisions", "evaluation")
OPERATIONS = (
    *(ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.IfExp),
)


@dataclass
class Density:
    """What was counted in some files."""

    lines: int = 0
    comments: int = 0
    operations: int = 0
    tuple_assignments: int = 0
    functions: int = 0
    one_word_functions: int = 0
    names: list[int] = field(default_factory=list)

    def add(self, other: Density) -> None:
        """Count what another one counted, too."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def operations_per_line(self) -> float:
        """Operations in a line of code."""
        return self.operations / max(self.lines, 1)

    def format_row(self, title: str) -> str:
        """Return a row of the table."""
        cells = (
            f"{self.operations_per_line:.2f}",
            f"{100 * self.tuple_assignments / max(self.lines, 1):.1f}",
            f"{100 * self.comments / max(self.lines, 1):.1f}",
            f"{100 * self.one_word_functions / max(self.functions, 1):.0f} %",
            f"{sum(self.names) / max(len(self.names), 1):.1f}",
            f"{self.lines}",
        )
        return f"{title:44}" + "".join(f"{cell:>12}" for cell in cells)


def measure_file(path: Path) -> Density:
    """Count what is in a file."""
    text = path.read_text()
    tree = ast.parse(text)
    code_lines: set[int] = set()
    comments = 0
    layout = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments += 1
        elif token.type not in layout:
            code_lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code_lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # a docstring
    found = Density(lines=len(code_lines), comments=comments)
    for node in ast.walk(tree):
        if isinstance(node, OPERATIONS):
            found.operations += 1
        elif isinstance(node, ast.BoolOp):
            found.operations += len(node.values) - 1
        elif isinstance(node, ast.Assign):
            found.tuple_assignments += any(isinstance(target, ast.Tuple) for target in node.targets)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_special = node.name.startswith("__")
            found.functions += not is_special
            found.one_word_functions += not is_special and "_" not in node.name.strip("_")
        found.names += [len(name) for name in _list_new_names(node)]
    return found


def _list_new_names(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node gives: functions, classes, parameters and variables."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        if not node.name.startswith("__"):
            yield node.name
    elif isinstance(node, ast.arg):
        if node.arg not in ("self", "cls"):
            yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def list_files(folders: Iterable[Path]) -> list[Path]:
    """Return the Python files below folders."""
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--files", type=int, default=0, metavar="N", help="list the N densest files too")
    options = parser.parse_args()
    groups = {str(folder): [folder] for folder in options.folders}
    if not groups:
        groups = {"core rooms": [SOURCE / room for room in CORE_ROOMS], "all rooms": [SOURCE]}
    heads = ("operations", "tuple ass.", "comments", "one-word", "mean name", "lines")
    print(" " * 44 + "".join(f"{head:>12}" for head in heads))
    print(
        " " * 44
        + "".join(f"{head:>12}" for head in ("per line", "per 100", "per 100", "functions", "length", "of code"))
    )
    every: dict[Path, Density] = {}
    for title, folders in groups.items():
        total = Density()
        for path in list_files(folders):
            every[path] = measure_file(path)
            total.add(every[path])
        print(total.format_row(title))
    large = {path: one for path, one in every.items() if one.lines >= 30}
    densest = sorted(large, key=lambda path: -large[path].operations_per_line)
    for path in densest[: options.files]:
        print(large[path].format_row("/".join(path.parts[-2:])))


if __name__ == "__main__":
    main()
