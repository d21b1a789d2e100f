"""Made-up data in the layout of the data folder, so small that every table is filled in seconds."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import binary_soft_sets as binary
import data
import metricgrad as mg


def write_tables(folder: Path) -> None:
    """Write the four binary sets; positives have a feature of their own, so that there is something to learn."""
    random = np.random.default_rng(0)
    for name in ("mammography", "adult", "cocktailparty", "creditcard"):
        (folder / name).mkdir(parents=True)

    def features(n: int, width: int, y: Any) -> Any:
        return random.normal(size=(n, width)) + 1.5 * y[:, None] * (np.arange(width) == 0)

    y = (np.arange(120) % 4 == 0).astype(int)
    x = features(120, 6, y)
    x[100:110] = x[90:100]
    y[100:110] = y[90:100]
    frame = pd.DataFrame(x).assign(label=np.where(y > 0, "'1'", "'-1'"))
    frame.to_csv(folder / "mammography" / "mammography.csv.gz", header=False, index=False, quotechar='"')

    y = (np.arange(150) % 3 == 0).astype(int)
    words = {"workclass": ["Private", "?"], "education": ["HS", "BA"], "country": ["Cuba", "Iran"]}
    columns = {name: random.integers(0, 50, 150) + 20 * y for name in data.datasets._ADULT.split()}
    columns |= {name: random.choice(values, 150) for name, values in words.items()}
    frame = pd.DataFrame(columns).assign(income=np.where(y > 0, ">50K", "<=50K"))
    for part, rows in (("train", frame[:100]), ("test", frame[100:])):
        rows.to_csv(folder / "adult" / f"adult-{part}.csv.gz", header=False, index=False)

    names = [f"ID_00{i}" for i in range(1, 7)]
    with (
        gzip.open(folder / "cocktailparty" / "features.txt.gz", "wt") as people,
        gzip.open(folder / "cocktailparty" / "group_names.txt.gz", "wt") as groups,
    ):
        for frame_number in range(10):
            places = random.normal(size=(6, 3))
            people.write(
                f"{frame_number} "
                + " ".join(f"{n} {a} {b} {c}" for n, (a, b, c) in zip(names, places, strict=True))
                + "\n"
            )
            left = [n for n, place in zip(names, places, strict=True) if place[0] < 0]
            right = [n for n in names if n not in left]
            groups.write(f"{frame_number} < {' '.join(left)} > < {' '.join(right)} >\n")

    y = (np.arange(120) % 4 == 0).astype(int)
    columns = {"Time": np.arange(120)} | {f"V{i}": random.normal(size=120) + y for i in range(1, 29)}
    frame = pd.DataFrame(columns).assign(Amount=random.random(120), Class=y)
    frame.to_csv(folder / "creditcard" / "creditcard_allfraud_sub.csv.gz", index=False)


def write_images(folder: Path) -> None:
    """Write strips of images in the layout of the npm package, ten of each class a file."""
    place = folder / "reproduction-cifar10" / "package"
    place.mkdir(parents=True)
    random = np.random.default_rng(0)
    classes = np.arange(100) % 10
    for file in [*(f"data_batch_{i}.png" for i in range(1, 6)), "test_batch.png"]:
        pixels = random.integers(0, 60, (100, 1024, 3)) + 19 * classes[:, None, None]
        Image.fromarray(pixels.astype(np.uint8)).save(place / file)
    (place / "train_lables.json").write_text(json.dumps([int(k) for k in np.tile(classes, 5)]))
    (place / "test_lables.json").write_text(json.dumps([int(k) for k in classes]))


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Make every budget of the binary paper tiny, and forget what was loaded."""
    for name in ("EPOCHS", "AP_PERF_EPOCHS"):
        patch.setattr(binary, name, dict.fromkeys(binary.SETS, 2))
    patch.setattr(binary, "SYNTHETIC_EPOCHS", 1)
    patch.setattr(binary, "STEPS_TIMED", 2)
    patch.setattr(binary, "C_GRID", (1.0,))
    patch.setattr(mg, "MetricClassifier", partial(mg.MetricClassifier, epochs=2, cv=2))
    patch.setattr(mg, "MetricBoostingClassifier", partial(mg.MetricBoostingClassifier, n_estimators=3, cv=2))
    patch.setattr(binary, "IMAGES", {"train": 40, "validation": 20, "test": 20})
    patch.setattr(binary, "IMAGE_SCHEDULE", replace(binary.IMAGE_SCHEDULE, epochs=1))
    patch.setattr(data, "SYNTHETIC_ROWS", 300)
    patch.setattr(data, "UCI_TEST", 50)
    forget()


def forget() -> None:
    """Forget what was loaded."""
    for cached in (data.load, data.load_cifar10, binary.parts_of, binary.images_of):
        cached.cache_clear()
