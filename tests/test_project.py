"""The shape of the project: public names, import order, the README's commands."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metricgrad as mg
from metricgrad.__main__ import main

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "metricgrad"
# Each room may import those before it: dependencies point one way. The folder listing is the architecture.
ROOMS = [
    *("atomic", "storable", "counts", "metrics", "surrogates", "engine", "curves", "samplers", "losses", "presets"),
    *("decisions", "evaluation", "plots", "boosting", "data", "training", "estimators", "storage"),
    *("app.errors", "app.tables", "app.contenders", "app.report", "app.runs", "app.study", "app.use", "app.cli"),
]
# These need scikit-learn, numpy or more, and nothing imports them unasked.
EXTRAS = ("data", "estimators", "storage", "boosting.libraries")


# Names that need more than torch, by extra.
OPTIONAL = [
    "ArrayBatches",
    "MetricBoostingClassifier",
    "MetricClassifier",
    "ParquetBatches",
    "ThresholdedClassifier",
    "load",
    "save",
    "to_onnx",
]


def test_public_names() -> None:
    core = [
        "AUROCLoss",
        "AdversarialLoss",
        "Checkpoint",
        "Comparison",
        "Confusion",
        "ConstrainedLoss",
        "Counts",
        "EERLoss",
        "Evaluator",
        "HybridLoss",
        "Interval",
        "LinearSVMPerf",
        "Mean",
        "MetricLoss",
        "PRBEPLoss",
        "PrecisionAtKLoss",
        "RecallAtFPRLoss",
        "RecallAtPrecisionLoss",
        "RunningLoss",
        "StructuredHingeLoss",
        "WMWLoss",
        "baselines",
        "boosting",
        "bootstrap",
        "compare_paired",
        "count",
        "curves",
        "decisions",
        "evaluate",
        "exact_backward",
        "metrics",
        "plots",
        "presets",
        "reliability",
        "samplers",
        "soft_hard_gap",
        "surrogates",
        "tune_threshold",
    ]
    assert sorted(mg.__all__) == sorted([*core, *OPTIONAL])
    assert set(mg.__all__) <= set(dir(mg))
    modules = (mg.baselines, mg.boosting, mg.curves, mg.decisions, mg.metrics, mg.plots, mg.presets, mg.samplers)
    for module in (mg, *modules, mg.surrogates):
        for name in module.__all__:
            assert name == "Metric" or getattr(module, name).__doc__, name


def test_type_checkers_see_the_same_names_and_homes() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)  # of extras too: editors show what they import
        for alias in node.names:
            assert alias.name == alias.asname  # which is what makes it public to them
            home = (node.module or "").removeprefix("metricgrad").lstrip(".")
            inner = f"{home}.{alias.name}".lstrip(".")
            seen[alias.name] = inner if inner in modules() or f"{inner}.__init__" in modules() else home
    assert sorted(name for name in mg._HOME if mg._home(name)[1]) == OPTIONAL
    assert seen == {name: mg._home(name)[0] for name in mg._HOME}


def test_where_only_torch_is_installed_a_star_import_brings_the_rest() -> None:
    code = """
import sys

HIDDEN = {"numpy", "scipy", "sklearn", "pandas", "pyarrow", "skops", "safetensors", "onnx", "xgboost", "lightgbm"}

class Hides:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hides(finder) for finder in sys.meta_path]
from metricgrad import *
import metricgrad
assert MetricLoss is metricgrad.MetricLoss
assert not HIDDEN & set(sys.modules), HIDDEN & set(sys.modules)
print(sorted(set(metricgrad._HOME) - set(metricgrad.__all__)), sorted(set(metricgrad._HOME) - set(dir(metricgrad))))
try:
    metricgrad.MetricClassifier
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, needs = done.stdout.splitlines()
    assert names == f"{OPTIONAL} {OPTIONAL}"
    assert re.fullmatch(r"MetricClassifier needs \w+: pip install 'metricgrad\[sklearn\]'", needs)


def modules() -> dict[str, Path]:
    """Return every module with its dotted name, but for the table of public names and the entry point."""
    found = {".".join(p.relative_to(SOURCE).with_suffix("").parts): p for p in SOURCE.rglob("*.py")}
    return {name: path for name, path in found.items() if name not in ("__init__", "__main__", "app.__init__")}


def room(module: str) -> int:
    """Return the place of a module's room in the order."""
    found = [i for i, name in enumerate(ROOMS) if f"{module}.".startswith(f"{name}.")]
    assert found, f"{module} is in no room"
    return found[0]


def imported(path: Path) -> set[str]:
    """Return the names of this package that a module imports, modules and what is in them."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("metricgrad"):
            inner = (node.module or "").removeprefix("metricgrad").lstrip(".")
            found |= {f"{inner}.{alias.name}".lstrip(".") for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("metricgrad")}
    return found - {"__version__"}


def test_imports_point_one_way() -> None:
    wrong = [(name, one) for name, path in modules().items() for one in imported(path) if room(one) > room(name)]
    assert wrong == []


def test_core_needs_torch_alone() -> None:
    for module, path in modules().items():
        if module.startswith(("app.", *EXTRAS)) and module != "estimators.linear_svm":
            continue
        tree = ast.parse(path.read_text())
        names = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
        names |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not {name.split(".")[0] for name in names} & {"numpy", "scipy", "sklearn", "pandas", "pyarrow", "river"}


def test_readme_opens_with_two_commands_and_ci_runs_the_second() -> None:
    blocks = re.findall(r"```(?:sh|bash|shell|console)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    commands = blocks[0].strip().splitlines()
    assert len(commands) == 2
    assert "metricgrad demo" in commands[0]
    assert commands[1] in (ROOT / ".ci" / "run").read_text().replace("pip install -q", "pip install")


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"metricgrad {mg.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "COMMAND"),
        (["demo", "--repeats", "0"], "metricgrad: Invalid value for '--repeats'"),
        (["fly"], "metricgrad: No such command 'fly'"),
        (["compare"], "metricgrad: compare: expected DATA and --target, or --resume RUN"),
    ],
)
def test_bad_command_lines_get_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_the_command_line_answers_without_torch() -> None:
    code = "import sys, metricgrad.app.cli.main; print(sorted({'torch', 'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "metricgrad.app.cli.main", None)
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "metricgrad.app.cli.main")
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "metricgrad: typer is missing; pip install 'metricgrad[app]'\n"


def test_no_test_passes_by_leaving_early() -> None:
    """A bare return in a test passes without a word: leave the case out, or call pytest.skip with a reason."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in ast.walk(ast.parse(path.read_text())):
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                early = [n.lineno for n in ast.walk(test) if isinstance(n, ast.Return) and n.value is None]
                assert not early, f"{path.name}:{early[0]} {test.name}"


def test_a_public_module_is_not_hidden_by_what_it_holds() -> None:
    code = "import metricgrad as mg; print(mg.curves.curves.__name__, mg.bootstrap.__name__, mg.baselines.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["curves", "bootstrap", "metricgrad.losses.baselines"]
