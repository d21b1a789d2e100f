"""Real data for the studies, read from a folder that you fill from the official sources.

| name | file in the folder | source |
|---|---|---|
| mammography | mammography/mammography.csv.gz | OpenML 310 |
| adult | adult/adult-train.csv.gz, adult-test.csv.gz | UCI Adult (adult.data, adult.test) |
| yeast, scene, emotions | NAME/*.arff.gz, NAME/*.xml | Mulan multi-label repository |
| cancerHallmarks | cancerHallmarks/docs.jsonl.gz, embeddings_minilm_f16.npz | Hallmarks of Cancer; MiniLM-L6 |
| any other | suite/NAME.npz (X, y) or suite/NAME.csv.gz (last column the label) | OpenML, ADBench, imbalanced-learn |

Features come as a frame or an array, unscaled; targets as 0/1, ``(n,)`` or ``(n, K)``.
"""

from __future__ import annotations

import gzip
import io
import json
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.io import arff

if TYPE_CHECKING:
    from pathlib import Path

MULTILABEL = ("yeast", "scene", "emotions", "cancerHallmarks")
_ADULT = "age workclass fnlwgt education education_num marital occupation relationship race sex gain loss hours country"


def load(name: str, folder: Path) -> tuple[Any, Any]:
    """Return features and targets of a data set."""
    special = {"mammography": _mammography, "adult": _adult, "cancerHallmarks": _hallmarks}
    if name in special:
        return special[name](folder)
    return _mulan(folder / name) if name in MULTILABEL else _suite(folder / "suite", name)


def _mammography(folder: Path) -> tuple[Any, Any]:
    table = pd.read_csv(folder / "mammography" / "mammography.csv.gz", header=None, quotechar="'")
    return table.iloc[:, :6].to_numpy(float), (table[6] == 1).to_numpy(int)


def _adult(folder: Path) -> tuple[Any, Any]:
    columns = [*_ADULT.split(), "income"]
    files = (folder / "adult" / f"adult-{part}.csv.gz" for part in ("train", "test"))
    table = pd.concat([pd.read_csv(f, names=columns, skipinitialspace=True, na_values="?") for f in files])
    # fnlwgt is a survey weight, not a property of the person.
    return table.drop(columns=["income", "fnlwgt"]).reset_index(drop=True), table.income.str.startswith(">").to_numpy(
        int
    )


def _hallmarks(folder: Path, least: int = 10) -> tuple[Any, Any]:
    place = folder / "cancerHallmarks"
    with gzip.open(place / "docs.jsonl.gz", "rt") as lines:
        labels = [json.loads(line)["labels"] for line in lines]
    names, counts = np.unique([name for row in labels for name in set(row)], return_counts=True)
    kept = names[counts >= least]
    return np.load(place / "embeddings_minilm_f16.npz")["X"].astype(float), np.array(
        [[int(name in row) for name in kept] for row in labels]
    )


def _mulan(place: Path) -> tuple[Any, Any]:
    tree = ET.parse(next(place.glob("*.xml")))  # noqa: S314 (a file of one's own)
    labels = [element.attrib["name"] for element in tree.iter() if element.tag.endswith("label")]
    tables = []
    for file in sorted(place.glob("*.arff.gz")):
        with gzip.open(file, "rt") as text:
            tables.append(pd.DataFrame(arff.loadarff(io.StringIO(text.read()))[0]))
    table = pd.concat(tables, ignore_index=True)
    return table.drop(columns=labels).to_numpy(float), table[labels].map(int).to_numpy()


def _suite(place: Path, name: str) -> tuple[Any, Any]:
    if (place / f"{name}.npz").exists():
        found = np.load(place / f"{name}.npz")
        return found["X"], found["y"].astype(int)
    table = pd.read_csv(place / f"{name}.csv.gz")
    label = table.iloc[:, -1]
    return table.iloc[:, :-1], (label == label.value_counts().idxmin()).to_numpy(int)
