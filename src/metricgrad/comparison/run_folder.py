"""Run folders: reading their manifest, files and shipped model; ``run_writer`` writes them.

The hash of every file is verified before it is parsed, and nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, TypeVar

from filelock import FileLock, Timeout

from metricgrad import __version__, strict_json
from metricgrad.atomic_files import write_file
from metricgrad.comparison.errors import RUN, WRONG_CALL, UserError, writing
from metricgrad.comparison.shipped_model import ModelFile, ShippedModel, ShippedRule, decode_rule, describe_rule
from metricgrad.messages import one_line
from metricgrad.storage import folders
from metricgrad.storage.skops_files import list_untrusted_types
from metricgrad.strict_json import Line, Name, Range, Sha256

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from metricgrad.comparison.tables.schema import Schema
    from metricgrad.decisions.rules import Rule

FORMAT = 1
"""The version of the folder format; it grows with every incompatible change."""

_LIBRARIES = ("metricgrad", "torch", "numpy", "scikit-learn", "pandas", "pyarrow", "scipy", "xgboost", "xgboost-cpu")


class RunFile(TypedDict):
    """``run.json``, which ends with its own hash; "files": the hashes of the other files written so far."""

    format: int
    kind: Literal["compare", "train"]
    state: Literal["running", "finished"]
    created: Line
    finished: NotRequired[Line]
    repeats: NotRequired[Annotated[int, Range(2, 10_000)]]  # if --resume added some
    ship: NotRequired[Line]  # what --ship chose
    files: dict[Name, Sha256]


# Writing


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, or raise a ``UserError``."""
    with writing(path):
        write_file(path, data)


@contextmanager
def locked(path: Path, option: str = "--out") -> Iterator[None]:
    """Lock a folder against other writers; ``option`` is that by which the user chose it."""
    refuse_links(path)  # one called "lock" would be opened for writing
    # The operating system releases the lock when the process ends, however it ends.
    with writing(path):
        lock = FileLock(path / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{path}: another process is writing to it; wait, or choose another {option}", RUN
            ) from error
    try:
        yield
    finally:
        lock.release()


# Reading


@dataclass(eq=False)
class Run:
    """A run folder, finished or not.

    ``trusted``: names of types in estimators of the user's own that may be made from its files.
    """

    path: Path
    manifest: dict[str, Any]
    trusted: Sequence[str] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The options of the run, and the hash of its data."""
        return self.read_json("config.json", dict[Name, str | float | bool | list[str] | dict[str, float] | None])  # type: ignore[no-any-return]

    def read_json(self, name: str, expected: Any) -> Any:
        """Return the contents of a JSON file of the run; its hash and its declared type are checked."""
        data = self.read_file(name)
        with refuse_invalid(self.path):
            return strict_json.read(data, expected, name)

    def read_file(self, name: str) -> bytes:
        """Return the bytes of a file of the run; its hash is checked."""
        data = read_bytes(self.path / name)
        if strict_json.sha256(data) != self.manifest["files"].get(name):
            raise UserError(f"{self.path / name} was changed since it was written (its sha256 differs); run again", RUN)
        return data

    def write_manifest(self) -> None:
        """Write ``run.json``."""
        write(self.path / "run.json", strict_json.seal(self.manifest))

    def replace_file(self, name: str, data: bytes) -> None:
        """Replace a file of a finished run, and its hash in the manifest."""
        with locked(self.path):
            write(self.path / name, data)
            self.manifest["files"][name] = strict_json.sha256(data)
            self.write_manifest()

    @cached_property
    def model(self) -> ShippedModel:
        """The shipped model."""
        return self.check_model()

    def check_model(self) -> ShippedModel:
        """Read the model from its files and return it, or raise a ``UserError``."""
        try:
            return ShippedModel.from_files(*folders.read(self.path / "model"), self.trusted)
        except Exception as error:  # a forged file may raise anything in scikit-learn, skops or XGBoost
            raise UserError(f"{self.path}: its model cannot be used: {one_line(error, 300)}", RUN) from error

    def describe_rule(self, thresholds: int = 0) -> ShippedRule:
        """Return the rule of the shipped model without loading the model; ``thresholds``: how many there can be."""
        with refuse_invalid(self.path):
            manifest = folders.read(self.path / "model")[0]
            strict_json.check(manifest, ModelFile, "manifest.json")
            about = dict(manifest["rule"])
            return describe_rule(manifest["contender"], decode_rule(about.pop("rule")), about, thresholds)

    @property
    def schema(self) -> Schema:
        """The columns that the model uses."""
        return self.model.schema

    def replace_rule(self, rule: Rule, about: dict[str, Any]) -> None:
        """Replace the rule of the model; ``about`` has at least metric, average and subject_to."""
        self.model.rule = rule
        self.model.about = about
        with locked(self.path), writing(self.path / "model"):
            folders.rewrite(self.path / "model", {"rule": self.model.pack_rule()})


def load(run: str | Path) -> Run:
    """Return a finished run, or raise a ``UserError`` that says what is wrong with its folder."""
    found = open_run(Path(run))
    if found.manifest["state"] != "finished":
        path = found.path
        kind = found.manifest["kind"]
        how = f"metricgrad compare --resume {path}" if kind == "compare" else "train again with --force"
        raise UserError(f"{path}: the run is not finished; finish it: {how}", RUN)
    return found


def list_types(path: Path) -> list[str]:
    """Return the types in the model of a run that a reader would have to trust."""
    packed = sorted((path / "model" / "estimator").rglob("*.skops"))
    return sorted({name for file in packed for name in list_untrusted_types(read_bytes(file))})


def open_run(path: Path) -> Run:
    """Return a run, finished or not, or raise."""
    check_folder(path)
    data = read_bytes(path / "run.json")
    with refuse_invalid(path):
        found = strict_json.unseal(data, dict[str, Any], "run.json")
        strict_json.check(found.get("format"), int, "run.json: format")
        if found["format"] != FORMAT:
            how = "upgrade metricgrad" if found["format"] > FORMAT else "run again"
            raise UserError(f"{path}: expected a run of format {FORMAT}, got {found['format']}; {how}", RUN)
        strict_json.check(found, RunFile, "run.json")
    return Run(path, found)


def check_folder(path: Path) -> None:
    """Raise unless there is a run folder."""
    if not path.is_dir():
        got = "a file" if path.exists() else "a path that does not exist"
        raise UserError(f"{path}: expected a run folder, got {got}; check the path", RUN)
    if not (path / "run.json").is_file():
        raise UserError(f"{path}: expected a run folder with a run.json, got a folder without one", RUN)
    refuse_links(path)


def refuse_links(path: Path) -> None:
    """Raise if a folder holds a link, at any depth: what it leads to is not part of the folder."""
    for folder, names, files in os.walk(path):
        for name in (*names, *files):
            place = Path(folder) / name
            if place.is_symlink():
                raise UserError(
                    f"{path}: expected files and folders, got {place.relative_to(path).as_posix()!r}, a link, and none "
                    "is followed; remove it, or put a copy of what it leads to in its place",
                    RUN,
                )


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a file of a run folder, or raise; one that is too large is not read."""
    try:
        return strict_json.read_file(path)
    except ValueError as error:
        raise UserError(f"{path.parent}: {error}; run again", RUN) from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({one_line(error, 200)}); run again", RUN) from error


@contextmanager
def refuse_invalid(path: Path | str, how: str = "run again") -> Iterator[None]:
    """Turn a ``ValueError`` about a file of a run folder into a ``UserError``."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"{path}: {one_line(error, 300)}; {how}", RUN) from error


Named = TypeVar("Named", str, str | None)


def check_code_was_typed(text: Named, typed: Collection[str], option: str = "--metric") -> Named:
    """Return a metric or constraint from a run folder; if it names code, the user must have typed that in this call.

    >>> check_code_was_typed("f1", []), check_code_was_typed("mine:half>=0.5", ["mine:half"])
    ('f1', 'mine:half>=0.5')
    """
    for name in re.findall(r"[^\s,<>=\[\]]*:[^\s,<>=\[\]]*", text or ""):
        if name not in typed:
            shown = one_line(name, 80)
            raise UserError(
                f"metric: the run uses {shown}, which is code, and a folder may not name code to import; "
                f"if you trust it, type {option} {shown}",
                WRONG_CALL,
            )
    return text


# Environment


def describe_environment() -> dict[str, Any]:
    """Return the versions of libraries and a description of the machine."""
    versions = {"python": platform.python_version(), "metricgrad": __version__}
    for library in _LIBRARIES:
        try:
            versions.setdefault(library, version(library))
        except PackageNotFoundError:
            continue
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return {"versions": versions, "machine": machine}


def hash_file(path: Path) -> str:
    """Return the hash of a file of any size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def now() -> str:
    """Return the current time in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
