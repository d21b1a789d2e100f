"""Damaging and forging saved folders: flipped bits, cut files, and changes with all hashes made right again."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from metricgrad import strict_json


def flips(folder: Path, count: int, seed: int = 0, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Flip one bit after the other, in a file chosen at random, and put it back; yield the file's name."""
    rng = random.Random(seed)  # noqa: S311
    names = [name for name in _names(folder) if name not in skip]
    for _ in range(count):
        path = folder / (name := rng.choice(names))
        before = path.read_bytes()
        at = rng.randrange(len(before))
        path.write_bytes(before[:at] + bytes([before[at] ^ 1 << rng.randrange(8)]) + before[at + 1 :])
        yield name
        path.write_bytes(before)


def cuts(folder: Path, count: int, seed: int = 0, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """Do as ``flips``, by cutting off the end of a file."""
    rng = random.Random(seed)  # noqa: S311
    names = [name for name in _names(folder) if name not in skip]
    for _ in range(count):
        path = folder / (name := rng.choice(names))
        before = path.read_bytes()
        path.write_bytes(before[: rng.randrange(len(before))])
        yield name
        path.write_bytes(before)


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    """Change what a JSON file holds; see ``reseal``."""
    path.write_bytes(strict_json.as_json(edit(json.loads(path.read_bytes()))))


def reseal(folder: Path) -> None:
    """Make all hashes of a run folder or a model folder right again, as a forger would, nested folders first."""
    for path in sorted(folder.rglob("manifest.json"), key=lambda path: -len(path.parts)):
        _reseal(path, {name: path.parent / name for name in json.loads(path.read_bytes())["files"]})
    for path in (*folder.glob("candidates/*.json"), *folder.glob("results/*.json")):
        unit = json.loads(path.read_bytes())
        for key, end in (("scores", ".npy"), ("out_of_fold", "-out-of-fold.npy")):
            if key in unit and (scores := path.with_name(f"{path.stem}{end}")).is_file():
                unit[key] = _sha256(scores)
        path.write_bytes(strict_json.seal({key: value for key, value in unit.items() if key != "sha256"}))
    if (run := folder / "run.json").is_file():
        _reseal(run, {name: folder / name for name in json.loads(run.read_bytes())["files"]})


def _reseal(path: Path, files: dict[str, Path]) -> None:
    data = json.loads(path.read_bytes())
    data.pop("sha256", None)
    data["files"] = {name: _sha256(file) if file.is_file() else data["files"][name] for name, file in files.items()}
    path.write_bytes(strict_json.seal(data))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _names(folder: Path) -> list[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    return sorted(path.relative_to(folder).as_posix() for path in found)
