"""Selection equals a slow greedy loop that tunes every candidate alone; it is deterministic and refuses nonsense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.core.inputs import as_scored_batch
from metricgrad.core.metrics.constraints import Constraint
from metricgrad.decisions import Argmax, Offsets, Threshold, ensemble_selection, selection_criteria
from metricgrad.decisions.ensemble_selection import select_ensemble
from metricgrad.decisions.threshold_tuning import TuningSpec
from own_metrics import skill, total_profit


def problem(task: str, rows: int = 300, classes: int = 3, seed: int = 0, candidates: int = 4) -> tuple[Any, Tensor]:
    """Return the scores of candidates that know different things, and targets."""
    g = torch.Generator().manual_seed(seed)
    columns = 1 if task == "binary" else classes
    truth = torch.randn(rows, columns, generator=g, dtype=torch.float64)
    noise = [torch.randn(rows, columns, generator=g, dtype=torch.float64) for _ in range(candidates + 1)]
    y = truth + 0.7 * noise[-1]
    logits = [truth + (0.6 + 0.2 * i) * one - 1 for i, one in enumerate(noise[:-1])]
    if task == "multiclass":
        bias = torch.linspace(1.0, 0.0, classes, dtype=torch.float64)
        return {f"c{i}": (z + bias).softmax(1) for i, z in enumerate(logits)}, (y + bias).argmax(1)
    y, scores = (y > 0.8).long(), [z.sigmoid() for z in logits]
    if task == "binary":
        return {f"c{i}": s.squeeze(1) for i, s in enumerate(scores)}, y.squeeze(1)
    return {f"c{i}": s for i, s in enumerate(scores)}, y


def greedy(scores: Any, value: Any, rounds: int, after: Any = None) -> tuple[dict[str, float], float]:
    """Return what a plain loop selects: weights by name, and the best value."""
    names, chosen = list(scores), list[str]()
    best, kept, order = -np.inf, list[str](), list[int]()
    for _ in range(rounds):
        trials = [value(sum(scores[one] for one in [*chosen, name]) / (len(chosen) + 1)) for name in names]
        top = max(trials)
        if not chosen:
            order = sorted(range(len(names)), key=lambda i: -trials[i])
        chosen.append(names[next(i for i in order if trials[i] >= top - 1e-12)])
        if top > best + 1e-12:
            best, kept = top, list(chosen)
        if after is not None:
            after(sum(scores[one] for one in chosen) / len(chosen), len(chosen))
    return {name: kept.count(name) / len(kept) for name in set(kept)}, best


def check(found: Any, expected: tuple[dict[str, float], float]) -> None:
    assert found.weights == pytest.approx(expected[0], abs=1e-12)
    assert float(np.mean(found.value)) == pytest.approx(expected[1], abs=1e-12)
    assert sum(found.weights.values()) == pytest.approx(1)
    assert list(found.weights.values()) == sorted(found.weights.values(), reverse=True)


@pytest.mark.parametrize("metric", ["f1", "mcc", "f0.5", "accuracy", "balanced_accuracy"])
@pytest.mark.parametrize("weighted", [False, True])
def test_binary_equals_the_plain_loop(metric: str, weighted: bool) -> None:
    scores, y = problem("binary")
    w = torch.rand(len(y), generator=torch.Generator().manual_seed(1)).double() if weighted else None
    expected = greedy(scores, lambda s: mg.tune_threshold(metric, s, y, weight=w).value, 8)
    found = select_ensemble(metric, scores, y, weight=w, select_by="metric", rounds=8, bags=0)
    check(found, expected)
    assert found.rule == mg.tune_threshold(metric, found.scores, y, weight=w).rule
    for name, value in found.alone.items():
        assert value == pytest.approx(mg.tune_threshold(metric, scores[name], y, weight=w).value)
    assert found.value >= max(found.alone.values())


@pytest.mark.parametrize("average", ["macro", "weighted", None, "micro", "samples"])
@pytest.mark.parametrize("weighted", [False, True])
def test_multilabel_equals_the_plain_loop(average: Any, weighted: bool) -> None:
    scores, y = problem("multilabel", 400)
    w = torch.rand(len(y), generator=torch.Generator().manual_seed(1)).double() if weighted else None
    options: dict[str, Any] = {"task": "multilabel", "average": average, "weight": w}
    shared = average in ("micro", "samples")
    expected = greedy(
        scores, lambda s: float(np.mean(mg.tune_threshold("f1", s, y, shared=shared, **options).value)), 5
    )
    found = select_ensemble("f1", scores, y, select_by="metric", rounds=5, bags=0, **options)
    if not shared:
        check(found, expected)
    assert found.weights == pytest.approx(expected[0])
    assert float(np.mean(found.value)) >= expected[1] - 1e-12, "a threshold per label is no worse than one for all"
    assert found.rule == mg.tune_threshold("f1", found.scores, y, **options).rule


@pytest.mark.parametrize("metric", ["f1", "mcc"])
def test_multiclass_equals_the_plain_loop_at_the_offsets_so_far(metric: str) -> None:
    scores, y = problem("multiclass", 200)
    rules: list[Any] = []

    def value_at(s: Tensor, rule: Any) -> float:
        return float(next(iter(mg.evaluate(s, y, metric, task="multiclass", rule=rule).values())))

    def value(s: Tensor) -> float:
        if not rules:
            return float(mg.tune_threshold(metric, s, y, task="multiclass").value)
        return value_at(s, rules[-1])

    def after(s: Tensor, size: int) -> None:
        if size in (1, 2, 4, 8):
            new = mg.tune_threshold(metric, s, y, task="multiclass").rule
            if not rules or value_at(s, new) > value_at(s, rules[-1]):
                rules.append(new)

    weights, best = greedy(scores, value, 8, after)
    found = select_ensemble(metric, scores, y, task="multiclass", select_by="metric", rounds=8, bags=0)
    assert found.weights == pytest.approx(weights)
    assert found.value >= max(found.alone.values())
    assert found.value >= best - 0.02
    assert isinstance(found.rule, Offsets)


def test_of_several_classes_the_ensemble_is_never_below_its_best_candidate() -> None:
    ended_below = 0
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        y = torch.randint(4, (60,), generator=generator)
        rows = torch.arange(60)
        scores = {}
        for name in "abc":
            logits = torch.randn(60, 4, generator=generator, dtype=torch.float64)
            logits[rows, y] += 1.0
            scores[name] = logits.softmax(1)
        found = select_ensemble("f1", scores, y, task="multiclass", select_by="metric", rounds=3, bags=4)
        alone = {
            name: float(mg.tune_threshold("f1", s, y, task="multiclass", rare_labels="pooled").value)
            for name, s in scores.items()
        }
        best = max(alone, key=lambda name: alone[name])
        assert found.value >= alone[best] - 1e-12
        assert found.value == pytest.approx(
            mg.tune_threshold("f1", found.scores, y, task="multiclass", rare_labels="pooled").value
        )
        ended_below += found.weights == {best: 1.0} and found.value == pytest.approx(alone[best])
    assert ended_below  # the case occurs


@pytest.mark.parametrize("subject_to", ["precision >= 0.7", {"recall": 0.8}, [Constraint("specificity", 0.8)]])
def test_constraints_hold_in_every_step(subject_to: Any) -> None:
    scores, y = problem("binary")
    expected = greedy(scores, lambda s: mg.tune_threshold("f1", s, y, subject_to=subject_to).value, 5)
    found = select_ensemble("f1", scores, y, subject_to=subject_to, rounds=5, bags=0)
    check(found, expected)
    many, labels = problem("multilabel", 200)
    for average in ("macro", "micro", "samples"):
        found = select_ensemble(
            "f1", many, labels, task="multilabel", average=average, subject_to="recall >= 0.6", rounds=3, bags=2
        )
        reached = mg.evaluate(found.scores, labels, "recall", task="multilabel", average=average, rule=found.rule)
        assert next(iter(reached.values())) >= 0.6


def test_candidates_that_miss_a_constraint_are_passed_over_and_all_of_them_refused() -> None:
    y = torch.tensor([1, 1, 0, 0] * 10)
    good, bad = torch.where(y == 1, 0.9, 0.1).double(), torch.where(y == 1, 0.1, 0.9).double()
    found = select_ensemble("recall", {"bad": bad, "good": good}, y, subject_to="precision >= 0.9", rounds=3, bags=0)
    assert found.weights == {"good": 1.0}
    assert found.alone["bad"] == -np.inf
    with pytest.raises(ValueError, match=r"^subject_to: no threshold reaches precision >= 0.9"):
        select_ensemble("recall", {"bad": bad}, y, subject_to="precision >= 0.9", bags=2)


@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_a_given_rule_and_other_criteria(task: Any) -> None:
    scores, y = problem(task)
    rule = Argmax() if task == "multiclass" else Threshold(0.5)
    options: dict[str, Any] = {"task": task, "rounds": 6, "bags": 0}
    expected = greedy(scores, lambda s: next(iter(mg.evaluate(s, y, "f1", task=task, rule=rule).values())), 6)
    for given in ("fixed", rule):
        found = select_ensemble("f1", scores, y, rule=given, select_by="metric", **options)
        check(found, expected)
        assert found.rule == rule
        assert found.tuning is None
    hot = y if task != "multiclass" else torch.nn.functional.one_hot(y, 3)

    def precision(s: Tensor) -> float:
        pairs = [(s, hot)] if task == "binary" else list(zip(s.T, hot.T, strict=True))
        return float(np.mean([float(mg.curves.average_precision(mg.curves.curve(*pair))) for pair in pairs]))

    def likelihood(s: Tensor) -> float:
        p = s.clamp(1e-6, 1)
        return float(
            p.log()[torch.arange(len(y)), y].mean()
            if task == "multiclass"
            else -torch.nn.functional.binary_cross_entropy(p, y.double())
        )

    for name, value in (("average-precision", precision), ("log-loss", likelihood)):
        found = select_ensemble("f1", scores, y, select_by=name, **options)  # type: ignore[arg-type]
        assert found.weights == pytest.approx(greedy(scores, value, 6)[0])
        assert found.select_by == name
        assert found.value == pytest.approx(
            mg.tune_threshold("f1", found.scores, y, task=task, rare_labels="pooled").value
        )


def test_weights_count_as_repeated_rows() -> None:
    scores, y = problem("binary", 80)
    times = torch.randint(1, 4, (80,), generator=torch.Generator().manual_seed(3))
    again = {name: s.repeat_interleave(times) for name, s in scores.items()}
    for by in ("metric", "average-precision", "log-loss"):
        options: dict[str, Any] = {"select_by": by, "rounds": 6, "bags": 0}
        weighted = select_ensemble("f1", scores, y, weight=times.double(), **options)
        repeated = select_ensemble("f1", again, y.repeat_interleave(times), **options)
        assert weighted.weights == pytest.approx(repeated.weights)
        assert weighted.value == pytest.approx(repeated.value)


def test_ties_go_to_the_best_alone_then_to_the_first_and_equal_rounds_to_the_earliest() -> None:
    s, y = torch.tensor([0.9, 0.8, 0.2, 0.1]), torch.tensor([1, 1, 0, 0])
    found = select_ensemble("f1", {"a": s, "b": s**2, "c": s}, y, select_by="metric", bags=0)
    assert found.weights == {"a": 1.0}
    assert found.value == 1.0
    scores, y = problem("binary")
    scores = {"constant": torch.full_like(scores["c0"], 0.5), "c3": scores["c3"]}
    found = select_ensemble("f1", scores, y, select_by="metric", bags=4)
    assert found.weights == {"c3": 1.0}, "adding a constant changes no decision"
    assert select_ensemble("f1", {"c3": scores["c3"]}, y, select_by="metric").weights == {"c3": 1.0}


class LikesAnySecond:
    """The mean score of one candidate, 1 for any two that differ; what is not of interest gets a number below 0."""

    chosen: Tensor | None = None

    def value(self, scores: Tensor, least_of_interest: float = -torch.inf) -> float:
        differs = self.chosen is not None and not torch.equal(scores, self.chosen)
        value = 1.0 if differs else scores.mean().item()
        return value if value >= least_of_interest else -value

    def follow(self, scores: Tensor, size: int) -> None:
        self.chosen = scores


def test_of_those_that_add_as_much_the_best_alone_is_chosen() -> None:
    alone = torch.tensor([0.75, 0.25, 0.375, 0.5]).double()
    shares = ensemble_selection._select_greedily(LikesAnySecond(), alone.view(4, 1, 1), 2)
    assert shares.tolist() == [0.5, 0, 0, 0.5]


def test_auto_goes_by_the_log_loss_where_positives_are_few() -> None:
    scores, y = problem("binary", 2000)
    assert select_ensemble("f1", scores, y, rounds=2, bags=0).select_by == "metric"
    few = y.clone()
    few[few.nonzero().squeeze(1)[ensemble_selection.FEWEST_POSITIVES_FOR_METRIC - 1 :]] = 0
    assert select_ensemble("f1", scores, few, rounds=2, bags=0).select_by == "log-loss"
    constrained = select_ensemble("f1", scores, few, subject_to="recall >= 0.1", rounds=2, bags=0)
    assert constrained.select_by == "metric"
    both = {name: torch.stack((s, s), 1) for name, s in scores.items()}
    labels = torch.stack((y, torch.zeros_like(y)), 1)
    found = select_ensemble("f1", both, labels, task="multilabel", rounds=2, bags=0)
    assert found.select_by == "metric", "a label without positives makes the others no rarer"


def find_rarest_labels(targets: Tensor) -> Tensor:
    """Return the rarest label of each row, and the number of labels for a row that has none."""
    order = targets.sum(0).argsort().tolist()
    rarest = [next((label for label in order if row[label]), len(order)) for row in targets.tolist()]
    return torch.tensor(rarest)


def test_bags_are_deterministic_halves_with_half_of_every_class() -> None:
    scores, y = problem("binary", 400)
    one, two = (select_ensemble("f1", scores, y, seed=5, rounds=5, bags=4) for _ in range(2))
    assert one.weights == two.weights
    assert one.weights != select_ensemble("f1", scores, y, seed=6, rounds=5, bags=4).weights
    for targets in (y, torch.randint(0, 3, (400,)), problem("multilabel", 400)[1]):
        halves = list(ensemble_selection._draw_halves(targets, 4, 0))
        assert len(halves) == 4
        for first, second in (halves[:2], halves[2:]):
            assert sorted(torch.cat((first, second)).tolist()) == list(range(400))
        assert not torch.equal(halves[0], halves[2])
        kinds = targets if targets.dim() == 1 else find_rarest_labels(targets)
        for rows in halves:
            share = torch.bincount(kinds[rows].long()) * 2 - torch.bincount(kinds.long())
            assert share.abs().max() <= 1


def test_small_weights_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, y = problem("binary", 1000)
    whole = select_ensemble("f1", scores, y, rounds=10, bags=6)
    least = min(whole.weights.values())
    assert len(whole.weights) == 4
    monkeypatch.setattr(ensemble_selection, "LEAST_WEIGHT", 1.01 * least)
    found = select_ensemble("f1", scores, y, rounds=10, bags=6)
    kept = {name: weight for name, weight in whole.weights.items() if weight > 1.01 * least}
    assert found.weights == pytest.approx({name: weight / sum(kept.values()) for name, weight in kept.items()})


@pytest.mark.parametrize(
    "metric",
    ["f1", "f2", "jaccard", "accuracy", "balanced_accuracy", "mcc", "precision", skill, total_profit],
    ids=mg.metrics.name_of,
)
@pytest.mark.parametrize("kind", ["fine", "tied", "weighted", "skewed", "constant", "no positives"])
def test_bins_find_the_same_threshold_as_a_sort(metric: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_criteria, "SCORE_BINS", 32)
    scores, y = problem("binary", 600)
    w = torch.rand(600, generator=torch.Generator().manual_seed(1)).double() if kind == "weighted" else None
    y = torch.zeros_like(y) if kind == "no positives" else y
    searched = TuningSpec(metric).problem()
    for s in scores.values():
        s = {"tied": s.mul(50).round() / 50, "skewed": s**9, "constant": torch.full_like(s, 0.3)}.get(kind, s)
        expected = mg.tune_threshold(metric, s, y, weight=w).value
        criterion: Any = selection_criteria.make_criterion("metric", searched, as_scored_batch("binary", s, y, w), None)
        assert criterion.by_bins
        column = s.unsqueeze(1)
        assert criterion.value(column) == pytest.approx(expected, abs=1e-12)
        for least_of_interest in (expected - 0.01, expected, expected + 1e-13):
            assert criterion.value(column, least_of_interest) == pytest.approx(expected, abs=1e-12)
        assert criterion.value(column, expected + 0.01) < expected + 0.01


def test_bins_are_for_metrics_that_rise_and_fall_everywhere() -> None:
    scores, y = problem("multilabel", 3 * selection_criteria.SCORE_BINS, classes=2, candidates=2)
    batch = as_scored_batch("multilabel", scores["c0"], y)
    for metric, known in (("f1", True), ("f0.5", True), ("kappa", True), (_own, True), (_hesitant, False)):
        criterion: Any = selection_criteria.make_criterion(
            "metric", TuningSpec(metric, "multilabel").problem(), batch, None
        )
        assert criterion.by_bins is known
        expected = mg.tune_threshold(metric, scores["c0"], y, task="multilabel").value
        assert criterion.value(scores["c0"]) == pytest.approx(expected, abs=1e-12)


def _own(c: Any) -> Any:
    return mg.metrics.f1(c)


def _hesitant(c: Any) -> Any:
    """F1 that also rewards false alarms, as long as they are few."""
    return mg.metrics.f1(c) + mg.metrics.ratio(c.fp, c.fp + c.tp) * mg.metrics.ratio(c.tp, c.fp + c.tp)


def test_scores_may_be_numpy_lists_and_frames() -> None:
    import pandas as pd

    scores, y = problem("binary", 60)
    options: dict[str, Any] = {"select_by": "metric", "rounds": 4, "bags": 0}
    expected = select_ensemble("f1", scores, y, **options)
    for given in (
        {name: s.numpy() for name, s in scores.items()},
        {name: s.tolist() for name, s in scores.items()},
        pd.DataFrame({name: s.numpy() for name, s in scores.items()}),
    ):
        assert select_ensemble("f1", dict(given), y.tolist(), **options).weights == expected.weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": {}}, "scores: expected at least one candidate, got none"),
        ({"scores": {"a": [0.1, 0.2], "b": [0.1, 0.2, 0.3]}}, "targets: expected the shape of the scores"),
        ({"scores": {"a": [0.1, float("nan")]}}, "scores: expected numbers, got 1 NaN"),
        ({"scores": {"a": []}, "targets": []}, "scores: expected at least one sample, got none"),
        ({"rounds": 0}, "rounds: expected a whole number of at least 1, got 0"),
        ({"bags": -1}, "bags: expected a whole number of at least 0, got -1"),
        ({"select_by": "auc"}, "select_by: expected one of 'auto', 'metric', 'average-precision', 'log-loss', got"),
        ({"rule": "best"}, "rule: expected 'tuned', 'fixed' or a rule of mg.decisions, got 'best'"),
        ({"metric": "f-one"}, "metric: unknown name 'f-one'"),
    ],
)
def test_bad_input_gets_one_line(change: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"metric": "f1", "scores": {"a": [0.1, 0.2]}, "targets": [0, 1]} | change
    with pytest.raises(ValueError, match=message) as error:
        select_ensemble(call.pop("metric"), call.pop("scores"), call.pop("targets"), **call)
    assert "\n" not in str(error.value)
