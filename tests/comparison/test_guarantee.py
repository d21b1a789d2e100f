"""``compare --confidence``: rows held out for the rule of the shipped model, and what is said of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.options import GUARANTEE_SHARE, Options, prepare_dataset

if TYPE_CHECKING:
    from pathlib import Path


def make_table(rows: int = 800) -> pd.DataFrame:
    random = np.random.default_rng(0)
    y = random.random(rows) < 0.4
    return pd.DataFrame({"a": random.normal(size=rows) + 2.5 * y, "b": random.normal(size=rows), "y": y.astype(int)})


def make_options(folder: Path, **changes: Any) -> Options:
    path = folder / "table.csv"
    make_table().to_csv(path, index=False)
    given: dict[str, Any] = {"metric": ("recall",), "subject_to": "precision>=0.8", "confidence": 0.9, **changes}
    return Options(str(path), ("y",), **given)


def test_a_share_of_the_rows_is_held_out_of_everything(tmp_path: Path) -> None:
    dataset = prepare_dataset(make_options(tmp_path))
    assert dataset.guarantee is not None
    held_out = dataset.guarantee.frame.index
    assert len(held_out) == round(GUARANTEE_SHARE * 800)
    assert len(dataset.targets) == 800 - len(held_out)
    assert not set(held_out) & set(dataset.features.index)
    assert np.array_equal(dataset.guarantee.targets, dataset.guarantee.frame["y"])
    assert prepare_dataset(make_options(tmp_path, confidence=None)).guarantee is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"subject_to": None}, "--confidence: expected a constraint to hold with it"),
        ({"group": "b"}, "--confidence: expected neither --group nor --time"),
        ({"subject_to": "precision<=0.8"}, "--subject-to: with confidence= expected a bound on recall"),
    ],
)
def test_what_cannot_be_guaranteed_is_refused_before_training(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        prepare_dataset(make_options(tmp_path, **changes))


def test_the_shipped_rule_is_tuned_on_these_rows_and_says_what_it_guarantees(tmp_path: Path) -> None:
    options: dict[str, Any] = {"contenders": "logistic regression", "quick": True, "jobs": 1, "out": tmp_path / "run"}
    study = mg.compare(make_table(), "y", "recall", subject_to="precision>=0.8", confidence=0.9, **options)
    guaranteed = "0.8 with 90 % confidence; expected"  # in HTML the sign before it is escaped
    for name in ("report.html", "model_card.md", "summary.json", "model/manifest.json"):
        assert guaranteed in (tmp_path / "run" / name).read_text(), name
    assert "200 rows held out for the guarantee" in (tmp_path / "run" / "model" / "manifest.json").read_text()
    assert 0 < study.model.rule_.numbers < 1


def test_what_is_expected_of_the_shipped_rule_is_its_own_value_not_that_of_rules_without_the_confidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    options: dict[str, Any] = {"contenders": "logistic regression", "quick": True, "jobs": 1, "out": run}
    study = mg.compare(make_table(), "y", "recall", subject_to="precision>=0.9", confidence=0.95, **options)
    held_out = prepare_dataset(make_options(tmp_path)).guarantee
    assert held_out is not None
    value = mg.evaluate(study.model.predict_scores(held_out.frame), held_out.targets, "recall", rule=study.model.rule_)[
        "recall"
    ]
    of_repeats = study.leaderboard.loc[study.leaderboard["ships"], "value"].item()
    assert value < of_repeats
    card = (run / "model_card.md").read_text()
    assert f"On these 200 rows held out for the guarantee the recall of the class '1' is {value:.3f}." in card
    assert "There the rules are tuned without the confidence; the shipped one has it" in study.verdict.text
    assert f"held out for the guarantee, with the value {value:.3f} there" in (run / "report.html").read_text()
    assert main(["evaluate", str(run), str(tmp_path / "table.csv")]) == 0
    assert f"promised {value:.4f}, on 200 rows held out for the guarantee" in capsys.readouterr().out
    assert main(["tune", str(run), str(tmp_path / "table.csv"), "--dry-run"]) == 0
    warned = capsys.readouterr().err
    assert "the present rule is subject to precision>=0.9, the new one to nothing; keep it by --subject-to" in warned
    assert "the present rule has a guarantee, the new one has none; for one pass --confidence" in warned
    assert main(["tune", str(run), "--unlabelled", str(tmp_path / "table.csv"), "--dry-run"]) == 0
    assert "the present rule has a guarantee, the new one has none; for one tune on" in capsys.readouterr().err
    assert main(["info", str(run)]) == 0
    assert f"with the value {value:.3f} there; precision >= 0.9" in " ".join(capsys.readouterr().out.split())


def test_a_bound_that_the_rows_cannot_prove_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"these are the 50 rows held out for the guarantee, a quarter of all"):
        mg.compare(
            make_table(200),
            "y",
            "recall",
            subject_to="precision>=0.5, recall>=0.9",
            confidence=0.9999,
            contenders="logistic regression",
            quick=True,
            jobs=1,
        )


def test_a_class_that_cannot_be_guaranteed_is_named() -> None:
    frame = make_table(600)
    frame["y"] = np.array(["low", "middle", "high"])[np.digitize(frame["b"], [-0.4, 0.4])]
    options: dict[str, Any] = {"contenders": "logistic regression", "quick": True, "jobs": 1, "abstain": True}
    with pytest.raises(ValueError, match=r"no threshold reaches .* in class '(high|low|middle)'; .*a quarter of all"):
        mg.compare(frame.drop(columns="b"), "y", "recall", subject_to="precision>=0.3", confidence=0.9999, **options)
