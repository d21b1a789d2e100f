"""Folders that were damaged, forged or written by strangers: refused in one line, and no code in them is run."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metricgrad as mg
from damage import change, cuts, flips, reseal
from interruptions import interrupt_after
from metricgrad import strict_json
from metricgrad.cli.main import main
from metricgrad.comparison import protocol, tree_sandbox, tree_sandbox_work
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.options import read_options
from metricgrad.comparison.run_writer import RunWriter
from metricgrad.comparison.shipped_model import ShippedModel
from metricgrad.comparison.study import Verdict
from metricgrad.comparison.trained_rows import MOST_HASHES
from metricgrad.comparison.tree_sandbox import TreeSandbox
from metricgrad.decisions.rules import Threshold
from metricgrad.storage import folders
from short_training import shorten_training
from tables import binary, multilabel, written

KINDS = {
    "prior": "majority",
    "trees": "xgboost",
    "network": "hybrid",
    "boosting": "metric boosting",
    "ensemble": "ensemble",
}
EVIL = "from pathlib import Path\nPath('was-run').touch()\nfrom metricgrad.metrics import f1\n"


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("made")
    data = written(binary(200), folder)
    with pytest.MonkeyPatch.context() as patch:
        shorten_training(patch)
        for kind, contender in KINDS.items():
            assert main(["train", data, "--target", "ripe", "--contender", contender, "--out", f"{folder}/{kind}"]) == 0
        ask = ["compare", data, "--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]
        assert main([*ask, "--out", f"{folder}/compared"]) == 0
        interrupt_after(patch, 2)
        assert main([*ask, "--out", f"{folder}/stopped"]) == 130
    return {name: folder / name for name in (*KINDS, "compared", "stopped")}


@pytest.fixture
def run(made: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    def copied(kind: str) -> Path:
        for path in made[kind].rglob("*"):
            if path.is_file():
                place = tmp_path / kind / path.relative_to(made[kind])
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(path.read_bytes())
        return tmp_path / kind

    return copied


def refused(read: Callable[[], Any], *, match: str = ".") -> None:
    with pytest.raises(UserError, match=match) as caught:
        read()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert caught.value.code in (2, 4)


def resumable(path: Path) -> None:
    """Read all that --resume reads."""
    with RunWriter.resume(path) as run_writer:
        with runs.refuse_invalid(path):
            read_options(run_writer.config)
        for name, repeat in list(run_writer._records):
            run_writer.read_candidate_scores(name, repeat, 50, None)
            run_writer.read_out_of_fold(name, repeat, 150, None)
        run_writer.read_outcomes()


# Damage


@pytest.mark.parametrize("damage", [flips, cuts])
@pytest.mark.parametrize("kind", [*KINDS, "compared"])
def test_every_damaged_byte_that_is_read_is_refused(
    kind: str, damage: Any, run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(kind)
    unread = ("config.toml", "environment.json", "splits.npz", "results.parquet", "report.html", "model_card.md")
    seen = set()
    for name in damage(path, 60, seed=len(kind)):
        seen.add(name)
        if name.startswith("model/"):
            refused(lambda: runs.load(path).model)
        elif name in unread or name.startswith(("candidates/", "results/")):
            assert main(["info", str(path)]) == 0
        else:
            assert main(["info", str(path)]) == 4
            assert capsys.readouterr().err.count("\n") == 1
    assert any(name.startswith("model/estimator/") for name in seen)


@pytest.mark.parametrize("damage", [flips, cuts])
def test_a_stopped_run_is_as_safe(damage: Any, run: Callable[[str], Path]) -> None:
    path = run("stopped")
    resumable(path)
    for _ in damage(path, 100, skip=("config.toml", "environment.json", "splits.npz")):
        refused(lambda: resumable(path), match="was changed since it was written")


def test_a_rule_is_replaced_whole_or_not_at_all(run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = run("prior")
    found = runs.load(path)
    rule = found.model.rule

    def failing(self: Path, target: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(UserError, match="No space left"):
        found.replace_rule(Threshold(0.25), found.model.about)
    monkeypatch.undo()
    assert runs.load(path).model.rule == rule
    found.replace_rule(Threshold(0.25), found.model.about)
    assert runs.load(path).model.rule == Threshold(0.25)


# Forgery: all hashes are right


def of_model(*keys: Any, value: Any) -> Callable[[Any], Any]:
    """Return the edit that puts a value at a place."""

    def edit(data: Any) -> Any:
        inner = data
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        return data

    return edit


MANIFEST = "model/estimator/manifest.json"
NETWORK = "model/estimator/member-0/manifest.json"
HISTORY = "model/estimator/member-0/history.json"
MEMBER = ("ensemble", "members", 0)


@pytest.mark.parametrize(
    ("kind", "file", "edit", "message"),
    [
        ("prior", "model/manifest.json", of_model("rule", value=[]), "rule: expected an object"),
        ("prior", "model/manifest.json", of_model("rule", "rule", value={"type": "Popen"}), "type of this library"),
        ("prior", "model/manifest.json", of_model("rule", "rule", "threshold", value=[1, 2]), "one threshold each"),
        ("prior", "model/manifest.json", of_model("rule", "subject_to", value=["os:system>=1"]), "expected a text"),
        ("prior", "model/manifest.json", of_model("rule", "subject_to", value="inf"), "expected 'metric>=number'"),
        ("prior", "model/manifest.json", of_model("rule", "subject_to", value="luck>=1"), "unknown name 'luck'"),
        ("prior", "model/manifest.json", of_model("rule", "metric", value=["os:system"]), "metric: expected a text"),
        ("prior", "model/manifest.json", of_model("rule", "average", value="median"), "average: expected 'macro'"),
        ("prior", "model/manifest.json", of_model("rule", "previous", value=[{}]), "previous: item 0: expected 'rule'"),
        ("prior", "model/schema.json", of_model("rows", value=-3), "rows: expected a whole number from 1"),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", value=[]),
            "columns: expected a list of length 1",
        ),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", 0, "kind", value="code"),
            "kind: expected a text like",
        ),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", 0, "shares", value=[]),
            "shares of 'size'",
        ),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", 0, "number_format", value="1x5"),
            "format of numbers such as",
        ),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", 0, "date_format", value="%Q"),
            "a format of strptime, got",
        ),
        (
            "prior",
            "model/estimator/encoder/encoder.json",
            of_model("columns", 0, "date_parts", value=["code"]),
            "expected a text like days",
        ),
        ("prior", "model/schema.json", of_model("target", "task", value="multilabel"), "expected scores of shape"),
        ("prior", "model/schema.json", of_model("target", "classes", value=["a"]), "classes of a binary task, got 1"),
        ("prior", "model/schema.json", of_model("target", "numeric", value=True), "expected whole numbers"),
        ("network", NETWORK, of_model("networks", "count", value=0), "count: expected a whole"),
        ("network", NETWORK, of_model("networks", "count", value=3), "history of 3 models"),
        ("network", NETWORK, of_model("features", "count", value=-3), "count: expected a whole"),
        ("network", NETWORK, of_model("features", "count", value=4), "as saved, got"),
        ("network", NETWORK, of_model("parameters", "model", value=[2**62]), "model: item 0"),
        ("network", NETWORK, of_model("parameters", "model", value="code"), "expected one of"),
        ("network", NETWORK, of_model("parameters", "metric", value="os:system"), "no code"),
        ("network", NETWORK, of_model("classes", "items", value=[0, 10**30]), "64 bits"),
        ("network", NETWORK, of_model("classes", "items", value=[0, 2**63]), "items of int64"),
        ("network", NETWORK, of_model("classes", "items", value=[0, 2]), "expected the classes of the ensemble"),
        ("network", NETWORK, of_model("classes", "dtype", value="O,O"), "array of numbers"),
        ("network", HISTORY, of_model("history", value=[[{"loss": "x"}]] * 2), "expected a number"),
        ("boosting", NETWORK, of_model("boosters", "rounds", value=[-1, 1]), "rounds: item 0"),
        ("boosting", NETWORK, of_model("boosters", "backend", value="os"), "backend: expected"),
        ("boosting", NETWORK, of_model("boosters", "categories", value=[1]), "categories"),
        ("ensemble", MANIFEST, of_model("ensemble", "members", value=[]), "members: expected a list of length 1"),
        ("ensemble", MANIFEST, of_model(*MEMBER, "weight", value=2), "weight: expected a number from"),
        ("ensemble", MANIFEST, of_model(*MEMBER, "weight", value=0), "weights that sum to 1"),
        ("ensemble", MANIFEST, of_model(*MEMBER, "kind", value="Popen"), "kind: expected"),
        ("ensemble", MANIFEST, of_model(*MEMBER, "view", value="code"), "view: expected"),
        ("ensemble", MANIFEST, of_model(*MEMBER, "code", value="os:system"), "got also 'code'"),
        ("ensemble", MANIFEST, of_model("parameters", "metric", value="os:system"), "no code"),
    ],
)
def test_forged_values_are_refused(
    kind: str,
    file: str,
    edit: Callable[[Any], Any],
    message: str,
    run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TreeSandbox, "finish", TreeSandbox.stop)  # the trees are not the matter here
    path = run(kind)
    change(path / file, edit)
    reseal(path)
    refused(lambda: runs.load(path).model, match=re.escape(message))


@pytest.mark.parametrize("data", [b"", b"1234567", bytes(8 * MOST_HASHES + 8), b"\xff" * 8 + bytes(8)])
def test_forged_hashes_of_rows_are_refused(data: bytes, run: Callable[[str], Path]) -> None:
    path = run("prior")
    (path / "model" / "rows.bin").write_bytes(data)
    reseal(path)
    refused(lambda: runs.load(path).model, match="rows.bin: expected")


@pytest.mark.parametrize("name", ["schema.json", "estimator/encoder/encoder.json", "manifest.json"])
def test_deep_nesting_is_refused(name: str, run: Callable[[str], Path]) -> None:
    path = run("prior")
    deep = b'{\n  "format": 1,\n  "a": ' + b"[" * 100_000 + b"]" * 100_000 + b"\n}"
    if name == "manifest.json":
        deep = deep[:-2] + b',\n  "sha256": "' + hashlib.sha256(deep).hexdigest().encode() + b'"\n}'
    (path / "model" / name).write_bytes(deep)
    if name != "manifest.json":
        reseal(path)
    refused(lambda: runs.load(path).model, match="nested at most 48 deep")


def test_the_length_of_texts_is_not_taken_from_the_file(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = mg.MetricClassifier(epochs=1, random_state=0, cv=None).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    folder = mg.save(model, tmp_path / "model")
    change(folder / "manifest.json", of_model("classes", "dtype", value="<U500000000"))
    reseal(folder)
    assert mg.load(folder).classes_.dtype == "<U3"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (of_model("repeat", value=-1), "repeat: expected a whole number from 0"),
        (of_model("repeat", value=7), "expected the unit of its file name"),
        (of_model("candidate", value="somebody"), "expected the unit of its file name"),
        (of_model("seconds", value=None), "seconds: expected a number"),
        (of_model("history", value=[{"loss": None}]), "expected a number"),
        (of_model("scores", value="0"), "scores: expected"),
    ],
)
def test_forged_units_are_refused(edit: Callable[[Any], Any], message: str, run: Callable[[str], Path]) -> None:
    path = run("stopped")
    place = path / "candidates" / "majority-000.json"
    place.write_bytes(
        strict_json.seal({k: v for k, v in edit(json.loads(place.read_bytes())).items() if k != "sha256"})
    )
    refused(lambda: resumable(path), match=re.escape(message))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (of_model("repeat", value=7), "expected the outcome of its file name"),
        (of_model("contender", value="somebody"), "expected the outcome of its file name"),
        (of_model("tuned", value=None), "tuned"),
        (of_model("tuned", "rule", value={"type": "Linear"}), "rule: expected a Rule"),
        (of_model("tuned", "plateau", value="wide"), "plateau: expected"),
        (of_model("members", value={"hybrid": 2}), "expected a number from 0 to 1"),
        (of_model("members", value={"hybrid": 0.0}), "members: expected weights that sum to 1"),
    ],
)
def test_forged_outcomes_are_refused(edit: Callable[[Any], Any], message: str, run: Callable[[str], Path]) -> None:
    path = run("compared")
    change(path / "results" / "majority-000.json", edit)
    reseal(path)
    refused(lambda: resumable(path), match=re.escape(message))


@pytest.mark.parametrize(
    "header", ["{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }", "{'descr': '|O', }", "("]
)
def test_forged_arrays_are_refused(header: str, run: Callable[[str], Path]) -> None:
    path = run("stopped")
    length = len(header).to_bytes(2, "little")
    (path / "candidates" / "majority-000.npy").write_bytes(b"\x93NUMPY\x01\x00" + length + header.encode() + bytes(400))
    reseal(path)
    refused(lambda: resumable(path), match=r"majority-000\.npy")


@pytest.mark.parametrize(
    ("key", "value"), [("repeats", 10**9), ("seed", -1), ("rows", "all"), ("quick", 1), ("more", 1), ("data", None)]
)
def test_forged_configurations_are_refused(key: str, value: Any, run: Callable[[str], Path]) -> None:
    path = run("stopped")
    change(path / "config.json", of_model(key, value=value))
    reseal(path)
    refused(lambda: resumable(path), match=key)


def forged(data: bytes, key: bytes, value: int, kind: bytes = b"[$l#L", size: int = 4) -> bytes:
    """Put a value into the first place of the first array of that name, in XGBoost's file."""
    at = data.index(key + kind) + len(key + kind) + 8 + (kind == b"[#L")  # the count, and the type of one item
    return data[:at] + value.to_bytes(size, "big", signed=True) + data[at + size :]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: forged(data, b"left_children", 0), "cannot be used"),  # it would never end
        (lambda data: forged(data, b"left_children", 10**9), "cannot be used"),
        (lambda data: forged(data, b"split_indices", 10**9), "cannot be used"),
        (
            lambda data: forged(data, b"tree_info", 100, b"[#L", 1),
            "cannot be used: ValueError: expected trees of 1 outputs",
        ),
        (lambda data: data[:100], "cannot be used: XGBoostError"),
    ],
)
def test_forged_trees_cost_a_line_and_not_the_process(
    make: Callable[[bytes], bytes],
    message: str,
    run: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = run("trees")
    trees = path / "model" / "estimator" / "member-0" / "booster-0.ubj"
    trees.write_bytes(make(trees.read_bytes()))
    reseal(path)
    assert main(["predict", str(path), written(binary(30), tmp_path, "new.csv"), "-o", f"{tmp_path}/out.csv"]) == 4
    error = capsys.readouterr().err
    assert f"booster-1.ubj {message}" in error
    assert error.count("\n") == 1


def test_a_library_that_crashes_or_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script.py"
    monkeypatch.setattr(tree_sandbox_work, "__file__", str(script))
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with pytest.raises(ValueError, match=r"^t.ubj cannot be used: it crashes its library \(SIGSEGV\)$"):
        TreeSandbox("xgboost", {"t.ubj": b"x" * 10**6}).finish()
    script.write_text("while True: pass\n")
    monkeypatch.setattr(tree_sandbox, "MOST_SECONDS", 0.5)
    with pytest.raises(ValueError, match=r"^t.ubj cannot be used: its library did not finish reading it$"):
        TreeSandbox("xgboost", {"t.ubj": b""}).finish()


# Names of code


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module in the working directory that says when it is imported."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("evil.py").write_text(EVIL)
    yield
    sys.modules.pop("evil", None)


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize(
    ("key", "value"), [("metric", ["evil:f1"]), ("metric", ["f1", "evil:f1"]), ("subject_to", "evil:f1>=0")]
)
def test_resume_imports_nothing_that_the_folder_names(
    key: str, value: str | list[str], run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = run("stopped")
    change(path / "config.json", of_model(key, value=value))
    reseal(path)
    for words in ([], ["--metric", "f1"], ["--metric", "evil:f2"]):
        assert main(["compare", "--resume", str(path), *words]) == 2
        error = capsys.readouterr().err
        assert "evil:f" in error
        assert "--" in error
        assert error.count("\n") == 1
    assert str(Path.cwd()) not in sys.path[:-1]
    assert not Path("was-run").exists()


@pytest.mark.usefixtures("evil")
@pytest.mark.parametrize("where", ["metric", "subject_to"])
def test_evaluate_and_tune_import_nothing_that_the_folder_names(
    where: str, run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, data = run("prior"), written(binary(60), tmp_path, "new.csv")
    forgery = {"metric": "evil:f1", "subject_to": "evil:f1>=0"}[where]
    change(path / "model" / "manifest.json", of_model("rule", where, value=forgery))
    reseal(path)
    sys.path.append(str(Path.cwd()))  # even where it could be found
    assert main(["evaluate", str(path), data]) == 2
    assert "type --metric evil:f1" in capsys.readouterr().err
    assert main(["tune", str(path), data]) == (2 if where == "metric" else 0)
    assert main(["info", str(path)]) == 0
    assert main(["predict", str(path), data, "-o", f"{tmp_path}/out.csv"]) == 0
    assert not Path("was-run").exists()
    change(path / "model" / "manifest.json", of_model("rule", where, value=forgery))
    reseal(path)
    assert main(["evaluate", str(path), data, "--metric", "evil:f1", "--replicates", "10"]) == 0
    assert Path("was-run").exists(), "typed in this call, it is imported"


@pytest.mark.usefixtures("evil")
def test_a_metric_of_ones_own_is_typed_again_to_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = written(binary(200), tmp_path)
    ask = ["--target", "ripe", "--metric", "evil:f1,mcc", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]
    interrupt_after(monkeypatch, 2)
    assert main(["compare", data, *ask, "--out", "run"]) == 130
    assert main(["compare", "--resume", "run"]) == 2
    assert "if you trust it, type --metric evil:f1" in capsys.readouterr().err
    assert main(["compare", "--resume", "run", "--metric", "evil:f1"]) == 2
    assert "--metric: expected 'evil:f1,mcc', as in the run" in capsys.readouterr().err
    assert main(["compare", "--resume", "run", "--metric", "evil:f1,mcc", "--jobs", "1"]) == 0
    assert main(["compare", "--resume", "run"]) == 0, "finished, it only tells"


# Other people's files


def test_force_and_resume_leave_the_users_files_alone(
    run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = run("stopped")
    data = json.loads((path / "config.json").read_bytes())["data"]
    ask = ["train", data, "--target", "ripe", "--contender", "majority", "--out", str(path), "--force"]
    for name in (".env", ".git/config", "results/.notes", "results/notes.txt", "model/mine.txt"):
        mine = path / name
        mine.parent.mkdir(exist_ok=True)
        mine.write_text("mine")
        assert main(ask) == 4
        assert "which no run wrote; move it away" in capsys.readouterr().err
        assert mine.read_text() == "mine"
    assert (path / "run.json").is_file()
    assert main(["compare", "--resume", str(path), "--jobs", "1"]) == 4
    assert "'model/mine.txt', which no run wrote; move it away" in capsys.readouterr().err
    (path / "model" / "mine.txt").unlink()
    half = path / "results" / ".metricgrad-majority-001.json.0123456789abcdef"
    half.write_text("{")
    assert main(["compare", "--resume", str(path), "--jobs", "1"]) == 0
    assert not half.exists()
    for name in (".env", ".git/config", "results/.notes", "results/notes.txt"):
        assert (path / name).read_text() == "mine"


def test_links_are_not_followed(run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, elsewhere = run("prior"), tmp_path / "elsewhere"
    data = json.loads((path / "config.json").read_bytes())["data"]
    elsewhere.mkdir()
    (elsewhere / "config.json").write_text("mine")
    (path / "results").symlink_to(elsewhere)
    assert main(["train", data, "--target", "ripe", "--out", str(path), "--force"]) == 4
    assert "'results', which no run wrote" in capsys.readouterr().err
    assert (elsewhere / "config.json").read_text() == "mine"


@pytest.mark.parametrize("kind", ["prior", "stopped"])
@pytest.mark.parametrize("name", ["lock", "results", "model", "run.json", "config.json", "mine"])
def test_no_link_in_a_run_folder_is_followed(
    kind: str, name: str, run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, elsewhere = run(kind), tmp_path / "elsewhere"
    if (path / name).exists() and name != "lock":
        (path / name).rename(elsewhere)
    else:
        (path / name).unlink(missing_ok=True)
        elsewhere.write_text("mine")
    (path / name).symlink_to(elsewhere)
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    data = written(binary(60), tmp_path, "new.csv")
    calls = [["info"], ["tune"], ["predict"]] if kind == "prior" else [["info"], ["compare", "--resume"]]
    for words in calls:
        more = [data] if words[0] in ("tune", "predict") else []
        more += ["-o", f"{tmp_path}/out.csv"] if words[0] == "predict" else []
        assert main([*words, str(path), *more]) == 4
        error = capsys.readouterr().err
        assert f"'{name}', a link, and none is followed" in error
        assert error.count("\n") == 1
    assert {one: one.read_bytes() for one in before} == before


@pytest.mark.parametrize("name", ["run.json", "config.json", "model/manifest.json"])
def test_a_file_that_is_too_large_is_not_read(
    name: str, run: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run("prior")
    with (path / name).open("r+b") as file:
        file.truncate(60 << 30)  # a file with a hole, which takes up no space
    data = written(binary(60), tmp_path, "new.csv")
    assert (
        main(
            [
                "predict" if "model" in name else "info",
                str(path),
                *([data, "-o", f"{tmp_path}/o.csv"] if "model" in name else []),
            ]
        )
        == 4
    )
    error = capsys.readouterr().err
    assert "bytes, got 64424509440" in error
    assert error.count("\n") == 1


def test_a_model_that_cannot_be_read_is_not_called_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> Any:
        raise ValueError("holds types that are not trusted")

    monkeypatch.setattr(ShippedModel, "from_files", refuse)
    data, out = written(binary(200), tmp_path), tmp_path / "run"
    assert main(["train", data, "--target", "ripe", "--contender", "majority", "--out", str(out)]) == 4
    assert "its model cannot be used: holds types that are not trusted" in capsys.readouterr().err
    assert not out.exists()
    ask = ["compare", data, "--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]
    assert main([*ask, "--out", str(out)]) == 4
    assert runs.open_run(out).manifest["state"] == "running"


def test_a_forged_verdict_cannot_command_a_terminal() -> None:
    forged = Verdict(headline="Ship \x1b[2J it.", text="So\x9b5n\nbe it.")
    assert str(forged) == "Ship ?[2J it.\nSo?5n be it."


# One answer to whether a constraint is met


@pytest.mark.parametrize("average", ["macro", "micro"])
def test_compare_and_evaluate_agree_whether_a_constraint_is_met(average: str, tmp_path: Path) -> None:
    data = written(multilabel(), tmp_path)
    ask = ["--target", "label 0,label 1,label 2", "--subject-to", "recall>=0.6", "--average", average]
    assert main(["train", data, *ask, "--contender", "logistic regression", "--out", f"{tmp_path}/run"]) == 0
    found = runs.load(tmp_path / "run")
    model = found.model
    answers = set()
    for cut in np.linspace(0.1, 0.9, 9):
        found.replace_rule(Threshold(float(cut)), model.about)
        reported = evaluate_run(tmp_path / "run", data, ["f1"], replicates=10).summary["constraints"]
        frame = multilabel()
        scores, targets = model.scores(frame), model.schema.encode_targets(frame)
        assert [one["met"] for one in reported] == [
            protocol.meets_constraints(model.goal, Threshold(float(cut)), scores, targets)
        ]
        each = mg.evaluate(scores, targets, ["recall"], task="multilabel", average=None, threshold=float(cut))["recall"]
        pooled = mg.evaluate(scores, targets, ["recall"], task="multilabel", average="micro", threshold=float(cut))
        right = min(each) >= 0.6 if average == "macro" else pooled["recall"] >= 0.6
        assert reported[0]["met"] == right
        answers.add(right)
    assert answers == {True, False}


def test_hashes_of_records_and_folders_are_one() -> None:
    assert folders.as_json is strict_json.as_json
