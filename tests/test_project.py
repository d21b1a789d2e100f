"""The shape of the project: public names, import order, the README's commands."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import metricgrad as mg
from metricgrad import public_names
from metricgrad.__main__ import main

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "metricgrad"
# Each room may import those before it: dependencies point one way. The folder listing is the architecture.
ROOMS = [
    *("atomic_files", "messages", "strict_json"),
    *("core.array_functions", "core.numpy_arrays", "core.class_axis", "core.storable"),
    *("core.counts", "core.metrics", "core.surrogates", "core"),
    *("losses", "decisions", "evaluation", "integrations.keras", "training", "integrations.boosting"),
    *("estimators.columns", "estimators", "storage", "comparison.child_process", "comparison.errors"),
    *("comparison.tables", "comparison", "comparison.report"),
    "comparison.compare",  # mg.compare: it writes the report after the comparison, as the command line does
    *("integrations.serving", "integrations.mlflow"),
    "cli",
]
# These import nothing but what is asked for.
OUTSIDE = (
    *("__init__", "__main__", "public_names", "integrations.__init__"),
    *("baselines", "boosting", "curves", "keras", "metrics", "plots", "presets", "samplers", "surrogates"),
)
# These need scikit-learn, numpy or more, and nothing imports them unasked.
EXTRAS = (
    *("training.array_batches", "training.batch_stream", "training.data_identity", "training.parquet_batches"),
    *("estimators", "storage", "comparison", "cli", "integrations.keras", "integrations.serving"),
    *("integrations.mlflow",),
    *("evaluation.number_objects",),
    *("integrations.boosting.libraries", "integrations.boosting.dask_training"),
)


# But these, for LinearSVMPerf.
NEED_TORCH_ALONE = ("estimators.fitted_html", "estimators.linear_svm_perf", "estimators.cutting_planes")

# This one does without numpy where it is missing.
TAKES_NUMPY_IF_THERE = ("core.numpy_arrays",)

# Names that need more than torch.
OPTIONAL = [
    *("ArrayBatches", "MetricBoostingClassifier", "MetricClassifier", "ParquetBatches", "ThresholdedClassifier"),
    *("Study", "compare", "load", "load_run", "number_objects", "save", "to_onnx"),
]
# What was public once stays. A new name needs no line here: the one in __init__.pyi is enough.
RELEASED = [
    *("AUROCLoss", "AdversarialLoss", "Checkpoint", "Comparison", "Confusion", "ConstrainedLoss", "Counts"),
    *("EERLoss", "Evaluator", "HybridLoss", "Interval", "LinearSVMPerf", "Mean", "MetricLoss", "PRBEPLoss"),
    *("PrecisionAtKLoss", "RecallAtFPRLoss", "RecallAtPrecisionLoss", "RunningLoss", "StructuredHingeLoss"),
    *("WMWLoss", "baselines", "boosting", "bootstrap", "compare_paired", "count", "curves", "decisions", "evaluate"),
    *("exact_backward", "metrics", "plots", "presets", "reliability", "samplers", "soft_hard_gap", "surrogates"),
    *("tune_threshold",),
    *OPTIONAL,
]


def test_no_public_name_is_lost() -> None:
    assert set(RELEASED) <= set(public_names.available())
    assert public_names.available() == getattr(mg, "__all__")  # noqa: B009  # type checkers know no such attribute
    assert set(public_names.available()) <= set(dir(mg))
    assert set(OPTIONAL) <= {name for name, home in public_names.homes().items() if home.extra}


def test_public_names_are_described() -> None:
    found = {name: getattr(mg, name) for name in public_names.available()}
    modules = {name: value for name, value in found.items() if isinstance(value, ModuleType)}
    assert {"baselines", "metrics", "samplers"} <= modules.keys()
    inner = {f"{name}.{inner}": getattr(value, inner) for name, value in modules.items() for inner in value.__all__}
    assert [name for name, value in {**found, **inner}.items() if not value.__doc__ and name != "metrics.Metric"] == []


def test_a_public_name_is_one_line() -> None:
    """Type checkers read Python; at run time the list is read line by line: both must see the same."""
    tree = ast.parse((SOURCE / "__init__.pyi").read_text())
    seen = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            (alias,) = node.names
            assert alias.name == alias.asname  # which is what makes it public to type checkers
            assert alias.name not in seen
            seen[alias.name] = node.module
    assert seen == {name: home.module for name, home in public_names.homes().items()}
    extras = {home.extra for home in public_names.homes().values()} - {""}
    assert extras <= public_names.PACKAGES.keys()
    assert extras <= tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()


def test_a_name_is_public_where_it_is_defined() -> None:
    for name, home in public_names.homes().items():
        value = getattr(mg, name)
        assert isinstance(value, ModuleType) or value.__module__ == home.module, name


def test_every_loss_is_public() -> None:
    """A loss that nothing derives from is for users: it needs its line in __init__.pyi."""
    for path in sorted((SOURCE / "losses").glob("*.py")):
        module = importlib.import_module(f"metricgrad.losses.{path.stem}".removesuffix(".__init__"))
        for name, value in vars(module).items():
            if name.endswith("Loss") and value.__module__ == module.__name__ and not value.__subclasses__():
                assert public_names.homes()[name].module == module.__name__


def test_where_only_torch_is_installed_a_star_import_brings_the_rest() -> None:
    code = """
import sys

HIDDEN = {"numpy", "scipy", "sklearn", "pandas", "pyarrow", "skops", "safetensors", "onnx", "xgboost", "lightgbm"}
HIDDEN |= {"keras"}

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
names = set(metricgrad.public_names.homes())
print(sorted(names - set(metricgrad.__all__)), sorted(names - set(dir(metricgrad))))
try:
    metricgrad.MetricClassifier
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, needs = done.stdout.splitlines()
    optional = sorted(name for name, home in public_names.homes().items() if home.extra)
    assert names == f"{optional} {optional}"
    assert re.fullmatch(r"MetricClassifier needs \w+: pip install 'metricgrad\[sklearn\]'", needs)


def modules() -> dict[str, Path]:
    """Return every module with its dotted name, but for the public names and the entry point."""
    found = {".".join(p.relative_to(SOURCE).with_suffix("").parts): p for p in SOURCE.rglob("*.py")}
    return {name: path for name, path in found.items() if name not in OUTSIDE}


def room(module: str) -> int:
    """Return the place of a module's room in the order."""
    found = [name for name in ROOMS if f"{module}.".startswith(f"{name}.")]
    assert found, f"{module} is in no room"
    return ROOMS.index(max(found, key=len))  # the innermost


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


def test_what_takes_seconds_to_import_waits_until_it_is_used() -> None:
    code = """
import sys

import metricgrad as mg

mg.MetricLoss, mg.StructuredHingeLoss, mg.AdversarialLoss
assert "torch._dynamo" not in sys.modules
mg.compare, mg.save, mg.load
assert "torch._dynamo" not in sys.modules
assert "skops.io" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_core_needs_torch_alone() -> None:
    for module, path in modules().items():
        if module.startswith(EXTRAS) and module not in NEED_TORCH_ALONE:
            continue
        if module in TAKES_NUMPY_IF_THERE:
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
    code = "import sys, metricgrad.cli.main; print(sorted({'torch', 'numpy', 'pandas', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "metricgrad.cli.main", None)
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "metricgrad.cli.main")
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


def _expand(extra: str) -> set[str]:
    """Return the requirements of an extra, and of those that it names."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = set()
    for requirement in wanted[extra]:
        if own := re.fullmatch(r"metricgrad\[(.*)\]", requirement):
            found |= set().union(*(_expand(name) for name in own[1].split(",")))
        else:
            found.add(requirement)
    return found


def test_one_package_of_xgboost_is_installed() -> None:
    """Both hold the module xgboost; so they may not come together from any extras."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    every = set().union(*map(_expand, extras))
    assert sorted(one.split(";")[1].strip() for one in every if one.startswith("xgboost")) == [
        "sys_platform != 'darwin'",
        "sys_platform == 'darwin'",
    ]
    assert not any(one.startswith("river") for one in _expand("app"))  # which needs numpy 2


def test_the_oldest_versions_are_the_declared_ones() -> None:
    """.ci/run installs the extra app with them."""
    lines = (ROOT / "constraints-oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    for requirement in _expand("app"):
        name, least = re.fullmatch(r"([\w-]+)>=([\d.]+)[^;]*(?:;.*)?", requirement).groups()  # type: ignore[union-attr]
        if name in pinned:
            assert pinned[name] == least or pinned[name].startswith(f"{least}."), requirement
        else:
            assert name == "xgboost", requirement  # that of macOS


def test_ci_names_tests_that_are_there() -> None:
    paths = re.findall(r"\btests/[\w./]+", (ROOT / ".ci" / "run").read_text())
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_source_distribution_has_what_its_tests_need() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = set(build["targets"]["sdist"]["include"])
    assert {"conftest.py", "reproduction", "tests", "benchmarks", "constraints-oldest.txt"} <= included
    assert all((ROOT / name).exists() for name in included)
