"""``metricgrad convert``: reads a folder of the older format strictly, and writes the current one, with all hashes.

The older format has hashes of some files only. Those that exist are verified; everything else is checked as far as
possible: JSON against its declared type, arrays against their shape, trees in a separate process.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

from metricgrad.atomic_files import TEMPORARY, write_folder
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.contenders import scorers
from metricgrad.comparison.contenders.table import CONTENDERS
from metricgrad.comparison.errors import RUN, UserError, one_line, writing
from metricgrad.comparison.option_texts import split_names
from metricgrad.comparison.options import read_options
from metricgrad.comparison.protocol import Outcome
from metricgrad.comparison.run_folder import locked
from metricgrad.comparison.run_writer import NEWER, OURS, list_entries
from metricgrad.comparison.shipped_model import Model, RuleFile
from metricgrad.comparison.summaries import KINDS
from metricgrad.comparison.tree_sandbox import Trial
from metricgrad.comparison.unit_files import name_unit, pack_unit, parse_scores
from metricgrad.storage import estimators, folders, records
from metricgrad.storage.records import Line, Name, Sha256  # noqa: TC001 (read at run time)

if TYPE_CHECKING:
    from pathlib import Path

_TEMPORARY = re.compile(r"\.scratch|\.model\.[0-9a-f]{8}|\..+\.[0-9a-f]{16}")
_COPIED = ("environment.json", "splits.npz", "results.parquet", "report.html")


class _RunFile(TypedDict):
    format: Literal[2]
    kind: Literal["compare", "train"]
    state: Literal["running", "finished"]
    created: Line
    finished: NotRequired[Line]
    files: NotRequired[dict[Name, Sha256]]


def convert(folder: Path, out: Path | None = None) -> dict[str, Any]:
    """Convert a run folder, or a folder of ``mg.save``, to the current format: in place, or into a new folder."""
    place = (folder if out is None else out).resolve()
    if out is not None and out.exists():
        raise UserError(f"{out}: exists already; choose another --out", RUN)
    if not place.parent.is_dir():
        raise UserError(f"{place}: expected a path in an existing folder; create {place.parent} first", RUN)
    is_run = (folder / "run.json").is_file()
    if not is_run and not (folder / folders.MANIFEST).is_file():
        raise UserError(f"{folder}: expected a run folder or a folder of mg.save, got neither", RUN)
    with locked(folder) if is_run and out is None else nullcontext():
        _convert_folder(folder, place, is_run, in_place=out is None)
    return {"folder": str(folder), "written": str(folder if out is None else out), "format": folders.FORMAT}


def _convert_folder(folder: Path, place: Path, is_run: bool, in_place: bool) -> None:
    try:
        files = _convert_run(folder) if is_run else _convert_saved(folder)
        if in_place:
            _check_only_ours(folder, files)
        with writing(place):
            write_folder(place, files, replaced=in_place)
    except UserError:
        raise
    except Exception as error:  # a forged file may raise anything in scikit-learn, skops or XGBoost
        raise UserError(f"{folder}: cannot be converted: {one_line(error, 300)}", RUN) from error


def _check_only_ours(folder: Path, files: dict[str, bytes]) -> None:
    """Raise if a folder to be replaced holds files that this library did not write."""
    known = {
        *files,
        *(name.rpartition("/")[0] for name in files),
        *(OURS - NEWER),
        "model/rule.json",
        "model/estimator",
    }
    for name in list_entries(folder):
        parts = name.split("/")
        old = any(_TEMPORARY.fullmatch(part) or TEMPORARY.fullmatch(part) for part in parts)
        unit = parts[0] == "results" and name.endswith(".npy")
        if (name not in known and not old and not unit) or (folder / name).is_symlink():
            raise UserError(f"{folder}: {name!r} is not a file of metricgrad; move it away, or choose --out", RUN)


def _check_older(found: object) -> None:
    if found == folders.FORMAT:
        raise ValueError(f"it has format {folders.FORMAT} already")
    if found != folders.OLDER:
        raise ValueError(f"expected format {folders.OLDER}, got {found}")


# Folders of mg.save


def _convert_saved(folder: Path) -> dict[str, bytes]:
    contents, files = _read_estimator(folder)
    return folders.packed(contents, files)


def _read_estimator(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the manifest's contents and the files of a saved estimator, checked."""
    _check_older(folders.version(folder))
    manifest, files = folders.read_older(folder)
    if "contender" in manifest:
        raise ValueError("this is the model of a run; pass the run folder")
    estimators.checked(manifest, files)
    _try_trees(files)
    return {key: value for key, value in manifest.items() if key not in ("format", "files")}, files


def _try_trees(files: dict[str, bytes]) -> None:
    for name, library in scorers.find_tree_files(files).items():
        Trial(name, library, files[name]).finish()


# Run folders


def _convert_run(folder: Path) -> dict[str, bytes]:
    """Return the files of a run, by name, in the current format."""
    data = runs.read_bytes(folder / "run.json")
    about = records.read(data, dict[str, Any], "run.json")
    _check_older(about.get("format"))
    records.check(about, _RunFile, "run.json")
    finished = about["state"] == "finished"
    files = {name: copy for name in _COPIED if (copy := _read_verified(folder, name, about)) is not None}
    files["config.json"] = _convert_config(_read_required(folder, "config.json", about))
    files |= _convert_units(folder)
    if finished:
        files["summary.json"] = _read_required(folder, "summary.json", about)
        records.read(files["summary.json"], KINDS[about["kind"]], "summary.json")
        files |= {f"model/{name}": data for name, data in _convert_model(folder / "model").items()}
    listed = {name: records.sha256(data) for name, data in files.items() if "/" not in name}
    if not finished:
        listed = {name: one for name, one in listed.items() if name in ("config.json", "environment.json")}
    return {**files, "run.json": records.sealed({**about, "format": runs.FORMAT, "files": listed})}


def _convert_config(data: bytes) -> bytes:
    """Return ``config.json`` with lists of names, which were comma-separated texts."""
    config = records.read(data, dict[str, str | float | bool | None], "config.json")
    lists = {name: list(split_names(config.get(name))) for name in ("target", "metric", "drop", "only")}
    found = records.as_json({**config, **lists})
    read_options(records.read(found, dict[str, Any], "config.json"))
    return found


def _read_verified(folder: Path, name: str, about: dict[str, Any]) -> bytes | None:
    """Return a file, verified by its hash in ``run.json`` if there is one; None if the file does not exist."""
    if not (folder / name).is_file():
        return None
    data, expected = runs.read_bytes(folder / name), about.get("files", {}).get(name)
    if expected not in (None, records.sha256(data)):
        raise ValueError(f"{name} was changed since it was written (its sha256 differs)")
    return data


def _read_required(folder: Path, name: str, about: dict[str, Any]) -> bytes:
    data = _read_verified(folder, name, about)
    if data is None:
        raise ValueError(f"expected a file {name}, got none")
    return data


def _convert_units(folder: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in sorted((folder / "results").glob("[!.]*.json")):
        outcome = Outcome.from_json(records.read(runs.read_bytes(path), dict[str, Any], path.name))
        if name_unit(outcome) != path.stem or outcome.contender not in CONTENDERS:
            raise ValueError(f"results/{path.name}: expected the unit of its file name, got {name_unit(outcome)}")
        data = runs.read_bytes(path.with_suffix(".npy"))
        scores = parse_scores(data, outcome.test_rows)
        found |= {f"results/{name}": part for name, part in pack_unit(outcome, scores, None).items()}
    return found


def _convert_model(folder: Path) -> dict[str, bytes]:
    """Return the files of a run's model, with the rule in the manifest."""
    manifest, files = folders.read_older(folder)
    rule = records.read(runs.read_bytes(folder / "rule.json"), RuleFile, "rule.json")
    contents = {"contender": manifest.get("contender"), "kind": manifest.get("kind"), "rule": rule}
    names = {"Prior": ("prior.json",), "Trees": ("trees.ubj",)}.get(str(contents["kind"]))
    if names is None:
        inner = folders.packed(*_read_estimator(folder / "estimator"))
    else:
        inner = {name: runs.read_bytes(folder / "estimator" / name) for name in names}
    packed = folders.packed(contents, {**files, **{f"estimator/{name}": data for name, data in inner.items()}})
    Model.from_files(
        *folders.unpacked(packed, str(folder))
    )  # this tries the trees, and checks that the parts fit together
    return packed
