"""Rules in files of their own: equal when read again, refused when damaged or forged."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import decisions, strict_json
from metricgrad.decisions.rules import Rule

RULES = [
    decisions.Threshold(0.25),
    decisions.Threshold((0.5, math.inf, 1e-300)),
    decisions.Argmax(),
    decisions.Offsets((0.0, -1.5), log=True),
    decisions.TopK(3),
    decisions.LeastCost((5.0, "amount", 0.0, 0.0)),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_rule_is_read_again(rule: Rule, tmp_path: Path) -> None:
    path = mg.save_rule(rule, tmp_path / "rule.json")
    assert mg.load_rule(path) == rule
    assert mg.load_rule(str(mg.save_rule(rule, path))) == rule  # in the place of the first


def test_a_tuned_rule_decides_alike(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(200, 3, generator=generator)
    targets = torch.rand(200, 3, generator=generator) < scores**2
    rule = mg.tune_threshold("f1", scores, targets, task="multilabel").rule
    again = mg.load_rule(mg.save_rule(rule, tmp_path / "rule.json"))
    assert torch.equal(again(scores), rule(scores))


def test_damage_is_noticed(tmp_path: Path) -> None:
    path = mg.save_rule(decisions.Threshold(0.25), tmp_path / "rule.json")
    path.write_bytes(path.read_bytes().replace(b"0.25", b"0.35"))
    with pytest.raises(ValueError, match=r"^rule\.json was changed since it was written"):
        mg.load_rule(path)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"type": "os.system", "threshold": 1}, "expected a type of this library"),
        ({"type": "Threshold", "threshold": "many"}, "expected a rule"),
        ({"type": "Sigmoid"}, "expected a rule, got Sigmoid"),
        ({"threshold": 0.5}, "expected a rule, got dict"),
    ],
)
def test_forged_files_are_refused(rule: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "rule.json"
    path.write_bytes(strict_json.seal({"format": 1, "metricgrad": "0.1.0", "rule": rule}))
    with pytest.raises(ValueError, match=message):
        mg.load_rule(path)


@dataclass(frozen=True)
class OwnRule(Rule):
    def decide(self, scores: Tensor) -> Tensor:
        return scores > 0


def test_only_rules_of_the_library_are_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^rule: expected one of this library, got OwnRule\(\); a file holds no code"):
        mg.save_rule(OwnRule(), tmp_path / "rule.json")
    with pytest.raises(ValueError, match=r"^rule: expected a decision rule, such as tuning\.rule, got float$"):
        mg.save_rule(0.5, tmp_path / "rule.json")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
