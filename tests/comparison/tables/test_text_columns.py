"""Runs on free text and many categories: kinds, drift, whole runs, and forged encoders in their folders."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from damage import change, reseal
from metricgrad.cli.main import main
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.tables.schema import Schema
from metricgrad.storage import linear_models
from short_training import shorten_training
from tables import written

N = 240
GOOD, BAD = ("lovely", "great", "a joy", "splendid"), ("awful", "a bore", "poor", "dreadful")


def reviews(rows: int = N, seed: int = 0) -> pd.DataFrame:
    """Return texts that tell the class, a number that helps, and a town of many that does not."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.4
    texts = [
        f"film {i} was {rng.choice(GOOD if one else BAD)} and {rng.choice(['long', 'short'])}"
        for i, one in enumerate(y)
    ]
    return pd.DataFrame(
        {
            "review": texts,
            "stars": rng.normal(size=rows) + y,
            "town": [f"town{k}" for k in rng.integers(0, 70, rows)],
            "liked": np.where(y, "yes", "no"),
        }
    )


# Kinds


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([f"it was day {i} of rain" for i in range(N)], "text"),
        ([f"it was day {i % 100} of rain" for i in range(N)], "category"),
        ([f"it was day {i % 300} of rain" for i in range(3 * N)], "text"),  # recurs, but has sentences
        ([f"New York{i % 300}" for i in range(3 * N)], "category"),
        ([None if i % 2 else f"it was day {i} of rain" for i in range(N)], "text"),
    ],
)
def test_free_text_is_told_from_categories(cells: list[str | None], kind: str) -> None:
    data = pd.DataFrame({"odd": cells, "y": np.arange(len(cells)) % 3 == 0})
    (column,) = Schema.of(data, "y").columns
    assert column.kind == kind
    if kind == "text":
        known = [len(cell.split()) for cell in cells if cell is not None]
        assert column.mean == pytest.approx(np.mean(known))
        assert column.missing == pytest.approx(1 - len(known) / len(cells))
    else:
        assert len(column.levels) == len(set(cells))


def test_drift_of_texts_is_that_of_their_length(tmp_path: Path, trained: Path) -> None:
    new = reviews(seed=1).assign(review=lambda data: data["review"] * 3)
    found = evaluate_run(trained, written(new, tmp_path), ["f1"], replicates=10).summary
    (of_reviews,) = [one for one in found["warnings"] if "review" in one]
    assert "column 'review' drifted" in of_reviews


# Whole runs


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch, 3, 5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    words = ["train", written(reviews(), folder), "--target", "liked", "--contender", "logistic regression"]
    assert main([*words, "--out", f"{folder}/run"]) == 0
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    for path in trained.rglob("*"):
        if path.is_file():
            place = tmp_path / "run" / path.relative_to(trained)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    return tmp_path / "run"


@pytest.mark.parametrize("contender", ["majority", "logistic regression", "hybrid", "xgboost", "metric boosting"])
def test_a_saved_model_of_texts_predicts_the_same(contender: str, tmp_path: Path) -> None:
    data, out = written(reviews(), tmp_path), tmp_path / "out.csv"
    words = ["train", data, "--target", "liked", "--contender", contender, "--out", f"{tmp_path}/run"]
    assert main(words) == 0
    model = runs.load(tmp_path / "run").model
    new = reviews(40, seed=1).assign(town=[None, "town1"] * 20)
    assert main(["predict", f"{tmp_path}/run", written(new, tmp_path, "new.csv"), "-o", str(out)]) == 0
    found = pd.read_csv(out)["score"].to_numpy()
    np.testing.assert_allclose(found, model.scores(new), rtol=1e-6)
    if contender != "majority":
        assert roc_auc_score(new["liked"] == "yes", found) > 0.9


def test_texts_are_compared(tmp_path: Path) -> None:
    words = ["compare", written(reviews(), tmp_path), "--target", "liked", "--repeats", "2", "--jobs", "1"]
    words += ["--contenders", "majority,logistic regression,xgboost,ensemble", "--out", f"{tmp_path}/run"]
    assert main(words) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    best = {row["contender"]: row["value"] for row in summary["leaderboard"] if row["rule"] == "tuned"}
    assert best["logistic regression"] > 0.9  # the words tell the class
    assert best["logistic regression"] > best["majority"]
    assert not [name for name in (tmp_path / "run").iterdir() if "scratch" in name.name]
    assert main([*words, "--force"]) == 0  # its own files, and no others


def test_blank_rows_fit(trained: Path) -> None:
    model = runs.load(trained).model
    blank = model.estimator.encoder_.encode(model.make_blank_parts(), "linear")
    assert sparse.issparse(blank)
    assert blank.shape == (1, model.width)
    assert np.isfinite(model.scores(model.make_blank())).all()


# Forgery

ENCODER = Path("model/estimator/encoder")
MEMBER = Path("model/estimator/member-0.safetensors")


def forge_array(name: str, edit: Callable[[np.ndarray], np.ndarray]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        path = folder / ENCODER / "encoder.safetensors"
        arrays = safetensors.numpy.load(path.read_bytes())
        arrays[name] = np.ascontiguousarray(edit(arrays[name]))
        path.write_bytes(safetensors.numpy.save(arrays))

    return forge


def forge_a_word_less(folder: Path) -> None:
    """Take the last word away: all parts of the encoder fit together, but not with the model."""
    for name in ("idf-0", "topics-0"):
        forge_array(name, lambda one: one[..., :-1])(folder)
    change(folder / ENCODER / "words.json", lambda words: [words[0][:-1]])


def forge_levels(folder: Path) -> None:
    def add_levels(about: dict[str, list[dict[str, object]]]) -> dict[str, list[dict[str, object]]]:
        about["columns"][1]["levels"] = ["a"]
        return about

    change(folder / ENCODER / "encoder.json", add_levels)


def forge_model(folder: Path) -> None:
    """Put a model of other features in the place of the member."""
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = LogisticRegression().fit(X, np.arange(60) % 2)
    for name, data in (linear_models.write_models([model], "member-0") or {}).items():
        (folder / MEMBER.with_name(name)).write_bytes(data)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (forge_array("scale", lambda one: one * 0), "positive scales"),
        (forge_array("topics-0", lambda one: one[0]), "frequencies and topics"),
        (forge_array("means-0", lambda one: one[1:]), "categories, got shape"),
        (forge_a_word_less, "cannot score a row"),
        (lambda folder: change(folder / ENCODER / "words.json", lambda one: one[0]), "expected a list"),
        (forge_levels, "no levels of 'stars'"),
        (forge_model, "cannot score a row"),
        (lambda folder: (folder / MEMBER).write_bytes(b"PK" * 40), "cannot be used"),
        (lambda folder: (folder / ENCODER / "encoder.safetensors").write_bytes(b"\xff" * 64), "cannot be used"),
    ],
)
def test_forged_files_of_texts_are_refused(edit: Callable[[Path], None], message: str, run: Path) -> None:
    edit(run)
    reseal(run)
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        _ = runs.load(run).model
    assert "\n" not in str(caught.value)
