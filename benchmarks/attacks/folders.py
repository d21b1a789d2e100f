"""Damaged and forged folders: what a command or ``mg.load`` reads is as it was written, or is refused in one line.

Damage (flipped bits, cut, emptied, exchanged and missing files) must be noticed, or must not matter: results are those
of the whole folder. A forged folder, whose hashes are right, may predict anything, but must not crash, hang, run code
or fail without a word that people understand.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import shutil
import signal
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs, options
from metricgrad.estimators import candidates

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
import damage
from tables import binary, written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECONDS = 180
"""A case that takes longer hangs."""
TRAINED = {"prior": "majority", "trees": "xgboost", "network": "hybrid", "boosting": "metric boosting"}
SAVED = ("saved network", "saved boosting", "saved thresholded")
COMMANDS = ("info", "evaluate", "predict", "tune")
NASTY: list[Any] = [
    *(None, True, "", [], {}, -1, 0, 2**31, 2**62, 2**64 - 1, -3, 0.5, 1e308, "evil:f1", ["evil:f1>=1"], "../x"),
    *({"type": "array", "dtype": "<U500000000", "items": ["a"]}, {"type": "Popen"}, "x" * 5000, [[[[1]]]]),
]

# The folders


@cache
def made() -> Path:
    """Make one folder of each kind, once for each process."""
    candidates.EPOCHS = candidates.PATIENCE = options.FOLDS = 2
    candidates.ROUNDS = candidates.TREES_PER_FOREST = 3
    place = Path(tempfile.mkdtemp())
    data = written(binary(200), place)
    written(binary(40, seed=1), place, "new.csv")
    (place / "evil.py").write_text(f"open({str(place / 'was-run')!r}, 'w')\nfrom metricgrad.metrics import f1\n")
    for kind, contender in TRAINED.items():
        _told(["train", data, "--target", "ripe", "--contender", contender, "--out", f"{place}/{kind}"])
    ask = ["compare", data, "--target", "ripe", "--repeats", "2", "--contenders", "majority", "--jobs", "1"]
    _told([*ask, "--out", f"{place}/compared"])
    run_candidate, count = candidate_runs.run_candidate, 0

    def stop_at_the_third(task: candidate_runs.CandidateTask) -> candidate_runs.CandidateRun | candidate_runs.Failure:
        nonlocal count
        count += 1
        if count > 2:
            raise KeyboardInterrupt
        return run_candidate(task)

    candidate_runs.run_candidate = stop_at_the_third
    _told([*ask, "--out", f"{place}/stopped"])
    candidate_runs.run_candidate = run_candidate
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    mg.save(mg.MetricClassifier(epochs=1, random_state=0, cv=None).fit(X, y), place / "saved network")
    mg.save(mg.MetricBoostingClassifier(n_estimators=3, random_state=0, cv=2).fit(X, y), place / "saved boosting")
    mg.save(mg.ThresholdedClassifier(LogisticRegression(), cv=2).fit(X, y), place / "saved thresholded")
    mg.Checkpoint(place / "checkpoint").save(model=_network(0), step=3)
    return place


def _network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Linear(7, 1))


KINDS = (*TRAINED, "compared", "stopped", *SAVED, "checkpoint")


# What is done to them


def damaged(r: random.Random, folder: Path) -> str:
    """Damage a folder, and return how."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    path, other = r.choice(paths), r.choice(paths)
    data = bytearray(path.read_bytes())
    how = r.choice(["flip", "flip", "flip", "cut", "zeros", "append", "delete", "exchange"])
    if how == "flip":
        for _ in range(r.choice([1, 1, 1, 3])):
            data[r.randrange(len(data))] ^= 1 << r.randrange(8)
    elif how == "cut":
        data = data[: r.randrange(len(data))]
    elif how == "zeros":
        start = r.randrange(len(data))
        data[start : start + 64] = bytes(len(data[start : start + 64]))
    elif how == "append":
        data += r.choice([b" ", b"\n", b"}", b"\0" * 100])
    elif how == "exchange":
        data = bytearray(other.read_bytes())
    path.write_bytes(data)
    if how == "delete":
        path.unlink()
    return f"{how} {path.relative_to(folder)}"


def forged(r: random.Random, folder: Path) -> str:
    """Change a value of a JSON file, or bytes of another file, and make the hashes right; return how."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    texts = [path for path in paths if path.suffix == ".json"]
    if r.random() < 0.75 or folder.name in SAVED:
        path, value = r.choice(texts), r.choice(NASTY)
        data = json.loads(path.read_bytes())
        where = _replaced(r, data, value)
        path.write_bytes(json.dumps(data, indent=2).encode())
        how = f"{path.relative_to(folder)} {where} = {str(value)[:60]}"
        if r.random() < 0.05:
            path.write_bytes(b"[" * 100_000 + b"]" * 100_000)
            how = f"{path.relative_to(folder)} nested deeply"
    else:
        path = r.choice([path for path in paths if path.suffix in (".ubj", ".npy", ".skops", ".safetensors")] or texts)
        data = bytearray(path.read_bytes())
        data[r.randrange(len(data))] ^= 1 << r.randrange(8)
        path.write_bytes(data)
        how = f"flip {path.relative_to(folder)}"
    with contextlib.suppress(
        ValueError, KeyError, TypeError, AttributeError, RecursionError
    ):  # too broken to be made right
        damage.reseal(folder)
    return f"forged {how}"


def _replaced(r: random.Random, data: Any, value: Any) -> str:
    """Put a value at a random place of nested lists and objects; return where."""
    keys = list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    keys = [key for key in keys if key not in ("files", "sha256")]
    if not keys:
        return "nowhere"
    key = r.choice(keys)
    inner = data[key]
    if isinstance(inner, dict | list) and inner and r.random() < 0.8:
        return f"{key}.{_replaced(r, inner, value)}"
    data[key] = value
    return str(key)


# What must hold


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    r = random.Random(f"folders {number}")  # noqa: S311
    kind = KINDS[number % len(KINDS)]
    with tempfile.TemporaryDirectory() as place, _time_limit():
        folder = Path(place) / kind
        shutil.copytree(made() / kind, folder)
        forging = r.random() < 0.4 and kind != "checkpoint"
        how = (forged if forging else damaged)(r, folder)
        command = r.choice(COMMANDS)
        try:
            wrong = _read(kind, folder, command, forging)
        except Exception as error:
            wrong = f"{type(error).__name__}: {error}"
    if (made() / "was-run").exists():
        (made() / "was-run").unlink()
        wrong = "code was run"
    return None if wrong is None else f"{wrong} | {kind}, {command}, {how}"


def _read(kind: str, folder: Path, command: str, forging: bool) -> str | None:
    if kind == "checkpoint":
        return _checkpoint(folder)
    if kind in SAVED:
        return _loaded(folder, forging)
    out = folder.with_name("out.csv")
    words = _words("compare --resume" if kind == "stopped" else command, folder, out)
    code, printed, errors = _told(words)
    if code not in (0, 2, 3, 4, 6) or "Traceback" in errors:
        return f"exit code {code}: {errors[-300:]}"
    lines = errors.splitlines()[-1 if kind == "stopped" else 0 :]  # what resumes shows its progress before
    if code and (len(lines) != 1 or not lines[0].startswith("metricgrad: ")):
        return f"not one line: {errors[-300:]}"
    if code or forging or kind == "stopped":
        return None
    wanted = _whole(kind, command)
    found = (printed, out.read_text() if out.exists() else "")
    return None if found == wanted else "other results than of the whole folder"


def _words(command: str, folder: Path, out: Path) -> list[str]:
    new = str(made() / "new.csv")
    if command == "compare --resume":
        return ["compare", "--resume", str(folder), "--jobs", "1"]
    more = {
        "info": [],
        "evaluate": [new, "--replicates", "10", "--json"],
        "predict": [new, "-o", str(out)],
        "tune": [new],
    }
    return [command, str(folder), *more[command]]


@cache
def _whole(kind: str, command: str) -> tuple[str, str]:
    """Return what a command prints and writes given the whole folder."""
    with tempfile.TemporaryDirectory() as place:
        folder, out = Path(place) / kind, Path(place) / "out.csv"
        shutil.copytree(made() / kind, folder)
        code, printed, errors = _told(_words(command, folder, out))
        assert code == 0, errors
        return printed, out.read_text() if out.exists() else ""


def _told(words: list[str]) -> tuple[int, str, str]:
    """Run a command; return the exit code and what it printed, without names of folders and times."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main(words)
    printed = re.sub(r"in [\d.]+ s\b", "", output.getvalue())
    for word in words:
        if "/" in word:
            printed = printed.replace(str(Path(word).parent), "")
    return code, printed, errors.getvalue()


def _loaded(folder: Path, forging: bool) -> str | None:
    X = np.random.default_rng(1).normal(size=(20, 3))
    try:
        model = mg.load(folder)
    except ValueError as error:
        return None if "\n" not in str(error) else f"not one line: {error}"
    if forging:
        return None
    wanted = mg.load(made() / folder.name).predict_proba(X)
    return None if np.array_equal(model.predict_proba(X), wanted) else "other predictions than of the whole folder"


def _checkpoint(folder: Path) -> str | None:
    model, wanted = _network(1), _network(0)
    try:
        if mg.Checkpoint(folder).load(model=model) is None:
            return None  # the file is gone
    except ValueError as error:
        return None if "\n" not in str(error) else f"not one line: {error}"
    same = all(map(torch.equal, model.state_dict().values(), wanted.state_dict().values()))
    return None if same else "other weights than were saved"


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    def expired(*_: Any) -> None:
        raise TimeoutError(f"took longer than {SECONDS} seconds")

    before: Any = signal.signal(signal.SIGALRM, expired)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
