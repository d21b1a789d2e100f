"""Guarantees: which thresholds are proven, and that what is promised holds on new rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

import metricgrad as mg
from metricgrad.core.batch import Batch
from metricgrad.core.metrics.constraints import Constraint, parse
from metricgrad.decisions.guarantees import draw_rows_by_weight, explain_shortage, find_guaranteed


def make_counts(scores: Any, y: Any) -> mg.Counts:
    return mg.curves.curve(np.asarray(scores, dtype=float), np.asarray(y)).counts


def draw(rows: int, rate: float, distance: float, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    y = (random.random(rows) < rate).astype(int)
    return random.normal(size=rows) + distance * y, y


# Rates


@pytest.mark.quick
def test_a_bound_on_recall_is_an_order_statistic_of_the_positives() -> None:
    scores, y = draw(400, 0.3, 1.0, 0)
    tuning = mg.tune_threshold("precision", scores, y, subject_to="recall >= 0.8", confidence=0.95)
    positives = np.sort(scores[y == 1])
    missed = max(k for k in range(len(positives)) if stats.binom.cdf(k, len(positives), 0.2) <= 0.05)
    assert tuning.threshold <= positives[missed]
    allowed = find_guaranteed(parse("recall >= 0.8")[0], make_counts(scores, y), 0.05)
    assert np.array_equal(allowed.numpy(), make_counts(scores, y).fn.numpy() <= missed)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("constraint", "errors", "share"),
    [
        ("recall <= 0.4", "tp", 0.4),
        ("specificity >= 0.9", "fp", 0.1),
        ("specificity <= 0.7", "tn", 0.7),
        ("predicted_positive_rate <= 0.2", "predicted", 0.2),
    ],
)
def test_bounds_on_rates_count_the_errors_of_their_rows(constraint: str, errors: str, share: float) -> None:
    counts = make_counts(*draw(300, 0.4, 1.0, 1))
    of_positives = constraint.startswith("recall")
    of_negatives = constraint.startswith("specificity")
    trials = counts.positives[0] if of_positives else counts.negatives[0] if of_negatives else counts.total[0]
    most = max(k for k in range(int(trials)) if stats.binom.cdf(k, int(trials), share) <= 0.1)
    allowed = find_guaranteed(parse(constraint)[0], counts, 0.1)
    assert torch.equal(allowed, getattr(counts, errors) <= most)


@pytest.mark.quick
def test_a_capacity_may_be_a_least_share_too() -> None:
    counts = make_counts(*draw(300, 0.4, 1.0, 1))
    most = max(k for k in range(300) if stats.binom.cdf(k, 300, 0.8) <= 0.1)
    allowed = find_guaranteed(parse("predicted_positive_rate >= 0.2")[0], counts, 0.1)
    assert torch.equal(allowed, 300 - counts.predicted <= most)


# Precision


@pytest.mark.quick
def test_precision_is_guaranteed_from_the_top_down_and_never_where_nothing_is_predicted() -> None:
    counts = make_counts(*draw(1000, 0.2, 2.0, 0))
    allowed = find_guaranteed(parse("precision >= 0.7")[0], counts, 0.05)
    places = allowed.nonzero().squeeze(1)
    assert places[0] == 1
    assert torch.equal(places, torch.arange(1, len(places) + 1))
    last = int(places[-1])
    tail = stats.binom.sf(counts.tp[last] - 1, counts.predicted[last], 0.7)
    assert tail <= 0.05
    assert allowed.sum() < (mg.metrics.precision(counts) >= 0.7).sum()


@pytest.mark.quick
def test_npv_is_precision_with_both_sides_exchanged() -> None:
    scores, y = draw(1000, 0.7, 2.0, 3)
    npv = find_guaranteed(parse("npv >= 0.7")[0], make_counts(scores, y), 0.05)
    precision = find_guaranteed(parse("precision >= 0.7")[0], make_counts(-scores, 1 - y), 0.05)
    assert precision.any()
    assert npv.sum() == precision.sum()


@pytest.mark.quick
def test_tied_scores_stand_or_fall_together() -> None:
    scores, y = draw(1000, 0.3, 2.0, 0)
    tied = np.round(scores)
    counts = make_counts(tied, y)
    allowed = find_guaranteed(parse("precision >= 0.6")[0], counts, 0.05)
    assert allowed.any()
    assert len(allowed) == len(np.unique(tied)) + 1
    everything_tied = make_counts(np.zeros(100), y[:100])
    assert not find_guaranteed(parse("precision >= 0.6")[0], everything_tied, 0.05).any()


@pytest.mark.quick
def test_a_higher_confidence_and_more_constraints_allow_less() -> None:
    scores, y = draw(1000, 0.2, 2.0, 0)

    def tune(**how: Any) -> Any:
        return mg.tune_threshold("recall", scores, y, **how)

    estimate = tune(subject_to="precision >= 0.7")
    likely = tune(subject_to="precision >= 0.7", confidence=0.6)
    sure = tune(subject_to="precision >= 0.7", confidence=0.99)
    assert estimate.value > likely.value > sure.value
    two = tune(subject_to="precision >= 0.7, predicted_positive_rate <= 0.3", confidence=0.6)
    assert two.value <= likely.value
    assert [one.constraint for one in two.guarantees] == ["precision >= 0.7", "predicted_positive_rate <= 0.3"]


# Other metrics


@pytest.mark.quick
@pytest.mark.parametrize("metric", ["f1", "mcc", "accuracy", "jaccard", "f2", "balanced_accuracy"])
def test_other_metrics_are_guaranteed_well_below_their_estimates(metric: str) -> None:
    scores, y = draw(3000, 0.3, 3.0, 0)
    counts = make_counts(scores, y)
    estimates = mg.metrics.get(metric)(counts)
    high = float(estimates.max())
    assert not find_guaranteed(parse(f"{metric} >= {high - 0.001}")[0], counts, 0.05).any()
    allowed = find_guaranteed(parse(f"{metric} >= {high - 0.15}")[0], counts, 0.05)
    assert allowed.any()
    assert bool((estimates[allowed] > high - 0.15).all())


@pytest.mark.quick
def test_a_bound_outside_the_range_and_rows_of_one_class_are_told() -> None:
    scores, y = draw(50, 0.5, 1.0, 0)
    wrong = {
        "precision >= 90": r"between 0 and 1, the range of precision, got 'precision >= 90.0'; write 0.9 for 90 %$",
        "recall >= -0.1": "between 0 and 1, the range of recall, got 'recall >= -0.1'$",
        "mcc >= -1.5": "between -1 and 1, the range of mcc",
        "predicted_positive_rate <= 1.5": "between 0 and 1",
    }
    for constraint, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            mg.tune_threshold("f1", scores, y, subject_to=constraint)
    with pytest.raises(ValueError, match="the rows have no positives; add some"):
        mg.tune_threshold("recall", scores, y * 0, subject_to="precision >= 0.5", confidence=0.9)
    with pytest.raises(ValueError, match="the rows have no negatives; add some"):
        mg.tune_threshold("recall", scores, y * 0 + 1, subject_to="f1 >= 0.99", confidence=0.9)


@pytest.mark.quick
def test_what_cannot_be_guaranteed_is_refused_in_one_line() -> None:
    scores, y = draw(50, 0.5, 1.0, 0)

    def hits(c: mg.Counts) -> Any:
        return c.tp

    wrong = {
        "precision <= 0.5": "expected a bound on recall, specificity or predicted_positive_rate, or a least value",
        "precision >= 1": "expected a bound between 0 and 1",
        "precision >= 1.5": "expected a bound between 0 and 1",
        "recall >= -0.1": "expected a bound between 0 and 1",
        "predicted_positive_rate <= 0": "expected a bound between 0 and 1",
    }
    for constraint, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            mg.tune_threshold("f1", scores, y, subject_to=constraint, confidence=0.9)
    with pytest.raises(ValueError, match="rewards right decisions"):
        mg.tune_threshold("f1", scores, y, subject_to=Constraint(hits, 3), confidence=0.9)
    with pytest.raises(ValueError, match="soft labels"):
        mg.tune_threshold("f1", scores, y * 0.5, subject_to="recall >= 0.5", confidence=0.9)
    with pytest.raises(ValueError, match="groups: expected none with confidence="):
        mg.tune_threshold("f1", scores, y, subject_to="recall >= 0.5", confidence=0.9, groups=y)
    with pytest.raises(ValueError, match="confidence_over: expected 'all' or 'each'"):
        mg.tune_threshold("f1", scores, y, subject_to="recall >= 0.5", confidence=0.9, confidence_over="any")  # type: ignore[call-overload]


# What is missing


@pytest.mark.quick
def test_where_nothing_is_found_it_is_said_whether_more_rows_would_help() -> None:
    scores, y = draw(60, 0.5, 3.0, 0)
    with pytest.raises(ValueError, match=r"too few to prove it: about \d+ more rows are needed"):
        mg.tune_threshold("recall", scores, y, subject_to="precision >= 0.95", confidence=0.95)
    random = np.random.default_rng(0).normal(size=500)
    with pytest.raises(ValueError, match="more rows will not help"):
        mg.tune_threshold("recall", random, np.arange(500) % 2, subject_to="precision >= 0.9", confidence=0.95)
    with pytest.raises(ValueError, match=r"it takes 299 positives, got \d+"):
        mg.tune_threshold("recall", scores, y, subject_to="recall >= 0.99", confidence=0.95)
    with pytest.raises(ValueError, match="it takes 14 positives, got 0"):
        mg.tune_threshold("f1", scores, 0 * y, subject_to="recall >= 0.8", confidence=0.95)


@pytest.mark.quick
def test_so_many_rows_as_are_asked_for_prove_the_same_shares() -> None:
    counts = make_counts(*draw(200, 0.5, 2.0, 2))
    for constraint in parse("precision >= 0.93, f1 >= 0.8"):
        assert not find_guaranteed(constraint, counts, 0.05).any()
        text = explain_shortage(constraint, counts, 0.05)
        more = int(text.split("about ")[1].split()[0])
        factor = math.ceil((200 + 1.3 * more) / 200)
        more_rows = mg.Counts(*(factor * cell for cell in counts.cells()))
        assert find_guaranteed(constraint, more_rows, 0.05).any()


# Labels, weights, reports


def test_the_confidence_is_of_all_labels_or_of_each() -> None:
    drawn = [draw(800, 0.3, 2.0, seed) for seed in range(4)]
    scores = np.column_stack([one for one, _ in drawn])
    y = np.column_stack([one for _, one in drawn])
    how: dict[str, Any] = {"task": "multilabel", "subject_to": "recall >= 0.8", "confidence": 0.9}
    together = mg.tune_threshold("precision", scores, y, **how).threshold
    each = mg.tune_threshold("precision", scores, y, **how, confidence_over="each").threshold
    alone = [
        mg.tune_threshold("precision", scores[:, k], y[:, k], subject_to="recall >= 0.8", confidence=0.9).threshold
        for k in range(4)
    ]
    assert each == tuple(alone)
    assert all(lower <= higher for lower, higher in zip(together, each, strict=True))
    assert together != each


def test_weights_of_one_change_nothing_and_zero_weights_leave_rows_out() -> None:
    scores, y = draw(600, 0.3, 2.0, 0)
    how: dict[str, Any] = {"subject_to": "precision >= 0.7", "confidence": 0.9}
    plain = mg.tune_threshold("recall", scores, y, **how).threshold
    assert mg.tune_threshold("recall", scores, y, weight=np.ones(600), **how).threshold == plain
    # Weights are not repetitions: twice the weight is no more evidence.
    assert mg.tune_threshold("recall", scores, y, weight=np.full(600, 2.0), **how).threshold == plain
    some = np.arange(600) < 400
    part = mg.tune_threshold("recall", scores[:400], y[:400], **how).threshold
    assert mg.tune_threshold("recall", scores, y, weight=some.astype(float), **how).threshold == part


@pytest.mark.quick
def test_rows_are_drawn_in_proportion_to_their_weights_and_in_the_same_way_again() -> None:
    weight = torch.where(torch.arange(20_000) % 2 == 1, 2.0, 0.5).unsqueeze(1)
    batch = Batch(torch.zeros(20_000, 1), torch.zeros(20_000, 1), weight, None)
    kept = draw_rows_by_weight(batch).weight
    assert kept is not None
    assert set(kept.unique().tolist()) == {0.0, 1.0}
    assert bool((kept[weight == 2.0] == 1).all())
    assert kept[weight == 0.5].mean().item() == pytest.approx(0.25, abs=0.02)
    assert torch.equal(draw_rows_by_weight(batch).weight, kept)  # type: ignore[arg-type]


def test_the_result_says_what_is_guaranteed() -> None:
    scores, y = draw(1000, 0.3, 2.0, 0)
    tuning = mg.tune_threshold("recall", scores, y, subject_to="precision >= 0.8", confidence=0.95)
    (guarantee,) = tuning.guarantees
    predicted = scores >= tuning.threshold
    assert guarantee.expected == pytest.approx(y[predicted].mean())
    assert guarantee.recall == pytest.approx(predicted[y == 1].mean()) == pytest.approx(tuning.value)
    wanted = (
        f"precision >= 0.8 with 95 % confidence; expected {guarantee.expected:.2f}; finds {100 * tuning.value:.0f} %"
    )
    assert wanted in str(tuning)
    assert mg.tune_threshold("recall", scores, y).guarantees == ()


def test_the_evaluator_guarantees_what_rows_do_but_not_with_weights() -> None:
    scores, y = draw(1000, 0.3, 2.0, 0)
    how: dict[str, Any] = {"subject_to": "precision >= 0.8", "confidence": 0.95}
    on_rows = mg.tune_threshold("recall", scores, y, **how)
    evaluator = (
        mg.Evaluator("f1", keep_scores=True, threshold=0.0).update(scores[:300], y[:300]).update(scores[300:], y[300:])
    )
    tuned = evaluator.tune("recall", **how)
    assert tuned.threshold == on_rows.threshold
    assert tuned.guarantees == on_rows.guarantees
    weighted = mg.Evaluator("f1", keep_scores=True, threshold=0.0).update(scores, y, weight=np.linspace(0.5, 1, 1000))
    with pytest.raises(ValueError, match="confidence: expected rows without weights"):
        weighted.tune("recall", **how)


def test_resamples_are_tuned_under_the_same_promise() -> None:
    scores, y = draw(400, 0.4, 2.5, 0)
    tuning = mg.tune_threshold("recall", scores, y, subject_to="precision >= 0.7", confidence=0.9, replicates=10)
    low, high = tuning.interval
    assert low <= high
    assert 0 < tuning.out_of_bag < 1


# The promise, by simulation: the true value at a threshold of normal scores is known


@pytest.mark.parametrize(
    ("constraint", "rows", "rate", "distance"),
    [("precision >= 0.6", 300, 0.3, 1.0), ("recall >= 0.8", 200, 0.3, 1.0), ("f1 >= 0.6", 400, 0.4, 1.5)],
)
def test_the_promise_is_kept(constraint: str, rows: int, rate: float, distance: float) -> None:
    name, _, bound = constraint.split()
    violated = 0
    trials = 60
    for seed in range(trials):
        scores, y = draw(rows, rate, distance, 1000 + seed)
        objective = "precision" if name == "recall" else "recall"
        try:
            tuning = mg.tune_threshold(objective, scores, y, subject_to=constraint, confidence=0.8)
        except ValueError:
            continue
        tpr, fpr = stats.norm.sf(tuning.threshold - distance), stats.norm.sf(tuning.threshold)
        shares = (rate * tpr, (1 - rate) * fpr, rate * (1 - tpr), (1 - rate) * (1 - fpr))
        true = mg.metrics.get(name)(mg.Counts(*(torch.tensor(share, dtype=torch.float64) for share in shares)))
        violated += float(true) < float(bound)
    assert violated / trials <= 0.2 + 2 * math.sqrt(0.2 * 0.8 / trials)


# Rows left undecided


def draw_classes(rows: int, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, rows)
    scores = random.normal(size=(rows, 3))
    scores[np.arange(rows), y] += 2.0
    return scores, y


@pytest.mark.parametrize("confidence", [None, 0.9])
def test_classes_are_predicted_only_where_they_meet_the_constraint(confidence: float | None) -> None:
    scores, y = draw_classes(1500, 0)
    how: dict[str, Any] = {"task": "multiclass", "subject_to": "precision >= 0.9", "confidence": confidence}
    tuning = mg.tune_threshold("recall", scores, y, abstain=True, **how)
    decided = tuning.rule(scores)
    assert set(np.unique(decided)) == {-1, 0, 1, 2}
    best = scores.argmax(1)
    assert np.array_equal(decided[decided >= 0], best[decided >= 0])
    recalls = []
    for k in range(3):
        predicted = decided == k
        assert (y[predicted] == k).mean() >= 0.9
        recalls.append(predicted[y == k].mean())
        if confidence is None:  # by brute force over the rows of the class
            own = np.sort(scores[best == k, k])
            allowed = [t for t in own if (y[(best == k) & (scores[:, k] >= t)] == k).mean() >= 0.9]
            reached = (best == k) & (scores[:, k] >= min(allowed))
            assert predicted[y == k].sum() == reached[y == k].sum()
    assert tuning.value == pytest.approx(np.mean(recalls))
    assert tuning.coverage == pytest.approx((decided >= 0).mean())
    assert f"decides {100 * tuning.coverage:.0f} % of the rows" in str(tuning)
    assert len(tuning.guarantees) == (0 if confidence is None else 3)
    values = mg.evaluate(scores, y, ["recall"], task="multiclass", rule=tuning.rule, average=None)
    assert values["recall"] == pytest.approx(recalls)


def test_a_class_that_cannot_meet_it_is_never_predicted() -> None:
    scores, y = draw_classes(1500, 0)
    y = np.where((y == 2) & (np.arange(1500) % 3 > 0), 1, y)  # most of class 2 is mislabelled
    tuning = mg.tune_threshold(
        "recall", scores, y, task="multiclass", subject_to="precision >= 0.8", confidence=0.9, abstain=True
    )
    assert tuning.threshold[2] == math.inf
    assert not (tuning.rule(scores) == 2).any()
    assert {one.label for one in tuning.guarantees} <= {0, 1}
    with pytest.raises(ValueError, match=r"no threshold reaches precision >= 0\.999"):
        mg.tune_threshold(
            "recall", scores, y, task="multiclass", subject_to="precision >= 0.999", confidence=0.9, abstain=True
        )


@pytest.mark.quick
def test_bad_options_of_abstention_are_refused_in_one_line() -> None:
    scores, y = draw_classes(30, 0)
    constraint = "precision >= 0.5"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"task": "multiclass", "subject_to": None}, "abstain: expected a constraint"),
        (
            {"task": "multiclass", "subject_to": constraint, "average": "micro"},
            "abstain: expected a metric of each class",
        ),
        (
            {"task": "multiclass", "subject_to": constraint, "abstain_label": 1},
            "abstain_label: expected a whole number",
        ),
    ]
    for how, message in wrong:
        with pytest.raises(ValueError, match=message):
            mg.tune_threshold("recall", scores, y, abstain=True, **how)
    with pytest.raises(ValueError, match="abstain_label: expected abstain=True with it, got -2 alone"):
        mg.tune_threshold("recall", scores, y, task="multiclass", abstain_label=-2)
    with pytest.raises(ValueError, match="abstain: expected task='multiclass'"):
        mg.tune_threshold("recall", scores[:, 0], y == 0, abstain=True, subject_to=constraint)
    rule = mg.decisions.ArgmaxOrAbstain((0.0, 0.0, math.inf))
    with pytest.raises(ValueError, match="rule: expected one that decides every row"):
        mg.evaluate(scores, y, ["quadratic_kappa"], task="multiclass", rule=rule)
    both = "rule: expected two rules that both may leave rows undecided, or neither"
    with pytest.raises(ValueError, match=both):
        mg.compare_paired(
            scores, scores, y, "recall", task="multiclass", rule=(rule, mg.decisions.Argmax()), replicates=5
        )


def test_undecided_rows_are_resampled_by_cells_as_by_rows() -> None:
    scores, y = draw_classes(1500, 0)
    rule = mg.decisions.ArgmaxOrAbstain((1.9, 2.2, 1.7))
    how: dict[str, Any] = {"task": "multiclass", "rule": rule, "replicates": 400}
    decided = rule(scores)[:, None] == np.arange(3)
    recalls = [decided[y == k, k].mean() for k in range(3)]
    precision = [(y[decided[:, k]] == k).mean() for k in range(3)]
    of_cells = mg.bootstrap(scores, y, ["recall", "precision"], **how)
    of_rows = mg.bootstrap(scores, y, ["recall", "precision"], groups=np.arange(1500), **how)
    of_soft_labels = mg.bootstrap(scores, np.eye(3)[y], ["recall", "precision"], **how)
    for name, value in (("recall", np.mean(recalls)), ("precision", np.mean(precision))):
        for found in (of_cells, of_rows, of_soft_labels):
            assert found[name].value == pytest.approx(value)
            assert found[name].low == pytest.approx(of_cells[name].low, abs=0.005)
            assert found[name].high == pytest.approx(of_cells[name].high, abs=0.005)
