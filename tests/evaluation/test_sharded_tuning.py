"""Tuning over shards: merged counts give the rule of the whole; rounded scores one that is off by no more than told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import start_processes

import metricgrad as mg

Array = npt.NDArray[Any]
LABELS: dict[str, Any] = {"task": "multilabel"}
METRICS = ["f1", "f0.5", "jaccard", "accuracy", "precision", "recall", "balanced_accuracy", "kappa", "mcc", "g_mean"]


def data(kind: str, shape: Any, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = (rng.random(shape) < 0.3).astype(int)
    s = rng.normal(size=shape) + y
    if kind == "ties":
        s = s.round(1)
    if kind == "infinite":
        s[rng.random(shape) < 0.1] = math.inf
        s[rng.random(shape) < 0.1] = -math.inf
    return s.astype(np.float32) if kind == "float32" else s, y


def in_shards(s: Array, y: Array, w: Array | None = None, **options: Any) -> mg.Evaluator:
    """An evaluator of three shards, one of them empty, streamed in parts."""
    total = mg.Evaluator("f1", keep_scores=True, threshold=0.0, **options)
    for shard in np.split(np.arange(len(s)), [len(s) // 3, len(s) // 3]):
        one = mg.Evaluator("f1", keep_scores=True, threshold=0.0, **options)
        for rows in np.array_split(shard, 4):
            one.update(s[rows], y[rows], None if w is None else w[rows])
        total = total + one
    return total


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "binary": ({}, {}),
    "constrained": ({}, {"subject_to": "precision>=0.4"}),
    "confident": ({}, {"subject_to": "recall>=0.5", "confidence": 0.8}),
    "macro": (LABELS, {}),
    "weighted": ({**LABELS, "average": "weighted", "empty_classes": "skip"}, {"epsilon": 0.05}),
    "each": ({**LABELS, "average": None, "labels": [0, 2]}, {}),
    "micro": ({**LABELS, "average": "micro"}, {}),
    "shared": (LABELS, {"shared": True}),
    "shared micro": ({**LABELS, "average": "micro"}, {"shared": True, "subject_to": "recall>=0.5"}),
}


@pytest.mark.parametrize("kind", ["distinct", "ties", "infinite", "float32"])
@pytest.mark.parametrize("way", WAYS)
def test_shards_give_the_rule_of_the_whole(way: str, kind: str) -> None:
    made, how = WAYS[way]
    s, y = data(kind, (90, 3) if made else 90)
    if way == "weighted":
        y[:, 1] = 0
    evaluator = in_shards(s, y, **made)
    for name in METRICS[::3]:
        got = evaluator.tune(name, **how)
        expected = mg.tune_threshold(name, s, y, **made, **how)
        for field in ("rule", "value", "exact", "plateau", "fewest", "caution", "error"):
            assert getattr(got, field) == getattr(expected, field), (name, field)
        assert str(got) == str(expected)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "confident"])
def test_weights_and_masks(way: str) -> None:
    made, how = WAYS[way]
    s, y = data("ties", (80, 3) if made else 80)
    w = np.random.default_rng(1).integers(0, 4, 80) / 2  # sums are exact, and so are comparisons
    got = in_shards(s, y, w, **made).tune("f1", **how)
    expected = mg.tune_threshold("f1", s, y, weight=w, **made, **how)
    assert (got.rule, got.value, got.plateau, got.fewest) == (
        expected.rule, expected.value, expected.plateau, expected.fewest,
    )  # fmt: skip


def slow_best(metric: Any, s: Array, y: Array, least_precision: float = 0.0) -> float:
    """The best value of any cut, one after the other."""
    best = -math.inf
    for t in [math.inf, *sorted(set(s.tolist()))]:
        on = s >= t
        cells = [np.sum(on & (y == 1)), np.sum(on & (y == 0)), np.sum(~on & (y == 1)), np.sum(~on & (y == 0))]
        counts = mg.Counts(*(torch.tensor(float(c), dtype=torch.float64) for c in cells))
        if float(mg.metrics.precision(counts)) >= least_precision:
            best = max(best, float(mg.metrics.get(metric)(counts)))
    return best


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("kind", ["distinct", "float32", "infinite"])
def test_rounded_scores_are_off_by_no_more_than_told(kind: str, bits: int) -> None:
    for seed in range(2):
        s, y = data(kind, 200, seed)
        evaluator = in_shards(s, y, score_bits=bits)
        for name in METRICS:
            got = evaluator.tune(name)
            assert got.exact == (got.error == 0)
            # The value is that of the rule on the scores as they were.
            assert got.value == pytest.approx(mg.evaluate(s, y, name, rule=got.rule)[name], abs=1e-12)
            best = slow_best(name, s, y)
            assert got.value <= best + 1e-12
            assert best <= got.value + got.error + 1e-12, (name, seed)
            for edge in got.plateau:
                assert mg.evaluate(s, y, name, rule=mg.decisions.Threshold(edge))[name] >= got.value - 0.01 - 1e-9
        careful = evaluator.tune("recall", subject_to="precision>=0.35")
        assert mg.evaluate(s, y, "precision", rule=careful.rule)["precision"] >= 0.35
        assert slow_best("recall", s, y, 0.35) <= careful.value + careful.error + 1e-12


def test_the_error_falls_with_the_bits_and_is_averaged() -> None:
    s, y = data("distinct", (3000, 2))
    errors = []
    for bits in (3, 6, 10, 14):
        tunings = [in_shards(s, y, score_bits=bits, **LABELS, average=how).tune("f1") for how in ("macro", None)]
        errors.append(tunings[0].error)
        assert tunings[0].error == pytest.approx(np.mean(tunings[1].error))
        told = f"a finer threshold is better by {tunings[0].error:.4f} at most" in str(tunings[0])
        assert told == (tunings[0].error > 0)
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.01
    assert errors[-1] < 0.002
    for options in ({"shared": True}, {"subject_to": "precision>=0.3", "confidence": 0.9}):
        got = in_shards(s, y, score_bits=8, **LABELS).tune("f1", **options)
        assert got.error is None
        assert "by an unknown amount at most" in str(got)
    assert in_shards(s, y, score_bits=8, **LABELS, average="micro").tune("f1").error is None


def test_a_metric_that_is_no_arithmetic_has_no_bound() -> None:
    def mine(c: mg.Counts) -> torch.Tensor:
        return torch.exp(-(c.fp + c.fn) / c.total)

    s, y = data("distinct", 50)
    assert in_shards(s, y, score_bits=6).tune(mine).error is None
    assert in_shards(s, y).tune(mine).rule == mg.tune_threshold(mine, s, y).rule


def test_memory_is_bounded() -> None:
    evaluator = mg.Evaluator("f1", keep_scores=True, score_bits=6)
    g = torch.Generator().manual_seed(0)
    for _ in range(20):
        s = torch.rand(5000, generator=g)
        evaluator.update(s, torch.rand(5000, generator=g) < s)
    assert sum(len(part[0]) for part in evaluator._statistics["scores"].tables[0].parts) < 3000
    assert evaluator.tune("f1").error < 0.02


def merge_and_tune(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    s, y = data("float32", (90, 3))
    part = slice(0, 20) if rank else slice(20, 90)
    evaluator = mg.Evaluator("f1", keep_scores=True, threshold=0.0, **LABELS).update(s[part], y[part])
    torch.save(evaluator.merged().tune("f1").threshold, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_processes_give_the_rule_of_the_whole(tmp_path: Path) -> None:
    start_processes(merge_and_tune, (str(tmp_path),), nprocs=2, start_method="fork")
    expected = mg.tune_threshold("f1", *data("float32", (90, 3)), **LABELS).threshold
    assert [torch.load(tmp_path / str(rank)) for rank in range(2)] == [expected, expected]


def test_what_cannot_be_tuned_is_refused_in_one_line() -> None:
    s, y = data("distinct", (20, 3))
    cases: list[tuple[Any, str]] = [
        (lambda: mg.Evaluator("f1").update([0.1], [1]).tune("f1"), "tune: expected an Evaluator with keep_scores=True"),
        (
            lambda: mg.Evaluator("f1", keep_scores=True).tune("f1"),
            "tune: expected at least one update before, got none",
        ),
        (lambda: in_shards(s, y, **LABELS, average="samples").tune("f1"), "tune: expected task='binary' or 'multil"),
        (
            lambda: mg.Evaluator("f1", task="multiclass", keep_scores=True).update(s, y[:, 0]).tune("f1"),
            "tune: expected task='binary' or 'multilabel'",
        ),
        (lambda: in_shards(s, y, **LABELS).tune("f1").interval, "interval, out_of_bag and resample: expected the rows"),
        (lambda: in_shards(s[:0], y[:0], **LABELS).tune("f1"), "scores: expected at least one sample to tune on"),
        (lambda: in_shards(s[:, 0], y[:, 0]).tune("f1", shared=True), "shared: one threshold for all classes is for"),
        (
            lambda: in_shards(s[:, 0], y[:, 0]).tune("f1", subject_to="precision>=2"),
            "subject_to: expected a bound between",
        ),
        (lambda: mg.Evaluator("f1", keep_scores=True) + mg.Evaluator("f1"), r"\+: expected evaluators made alike"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert mg.Evaluator("auroc").update([0.2, 0.8], [0, 1]).tune("f1").threshold == 0.5
