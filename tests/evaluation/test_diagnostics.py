"""Reliability and the gap between soft and hard values against plain loops; plots draw what they should."""

from __future__ import annotations

import io
import math
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

import metricgrad as mg
import reference as ref
from metricgrad import surrogates as s
from metricgrad.decisions import Offsets, Threshold

pytestmark = pytest.mark.quick

mpl.use("agg")
Array = npt.NDArray[Any]


# Reliability


def reliability_by_hand(p: Array, y: Array, w: Array, bins: int) -> dict[str, Any]:
    total, mean, share = [0.0] * bins, [0.0] * bins, [0.0] * bins
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64).tolist()
    brier = 0.0
    for pi, yi, wi in zip(p.flat, y.flat, w.flat, strict=True):
        b = min(sum(pi >= edge for edge in edges), bins) - 1  # 0.58 · 50 is below 29
        total[b] += wi
        mean[b] += wi * pi
        share[b] += wi * yi
        brier += wi * (pi - yi) ** 2
    gaps = [abs(m - f) / t if t else 0.0 for m, f, t in zip(mean, share, total, strict=True)]
    return {
        "probability": [m / t if t else math.nan for m, t in zip(mean, total, strict=True)],
        "frequency": [f / t if t else math.nan for f, t in zip(share, total, strict=True)],
        "weight": total,
        "error": sum(g * t for g, t in zip(gaps, total, strict=True)) / sum(total),
        "worst": max(gaps),
        "brier": brier / sum(total),
    }


def check(found: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("bins", [1, 4, 10, 50])
@pytest.mark.parametrize("weighted", [False, True])
def test_reliability_is_a_plain_loop(bins: int, weighted: bool) -> None:
    rng = np.random.default_rng(bins)
    p, y = rng.random((60, 3)).round(2), rng.integers(0, 2, (60, 3))
    p[0] = [0.0, 1.0, 0.5]
    w = rng.random(60) if weighted else None
    full = np.repeat((np.ones(60) if w is None else w)[:, None], 3, 1)
    found = mg.reliability(p[:, 0], y[:, 0], bins=bins, weight=w)
    check(found, reliability_by_hand(p[:, 0], y[:, 0], full[:, 0], bins))
    check(mg.reliability(p, y, task="multilabel", bins=bins, weight=w), reliability_by_hand(p, y, full, bins))
    keep = np.arange(60) % 3 > 0
    masked = mg.reliability(np.where(keep[:, None], p, np.nan), y, task="multilabel", bins=bins, weight=w, mask=keep)
    check(masked, reliability_by_hand(p[keep], y[keep], full[keep], bins))
    classes = rng.integers(0, 3, 60)
    shares = (p + 0.01) / (p + 0.01).sum(1, keepdims=True)
    top = shares.argmax(1)
    hit = (top == classes).astype(float)
    by_hand = reliability_by_hand(shares.max(1), hit, full[:, 0], bins)
    check(mg.reliability(shares, classes, task="multiclass", bins=bins, weight=w), by_hand)
    soft = np.eye(3)[classes] * 0.7 + 0.1
    by_hand = reliability_by_hand(shares.max(1), soft[np.arange(60), top], full[:, 0], bins)
    check(mg.reliability(shares, soft, task="multiclass", bins=bins, weight=w), by_hand)


def test_probabilities_are_reliable_and_others_are_not() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(20_000)
    y = rng.random(20_000) < p
    assert mg.reliability(p, y).error < 0.02
    assert mg.reliability(p**3, y).error > 0.1
    assert mg.reliability(p**3, y).worst > mg.reliability(p**3, y).error
    assert mg.reliability(p, y).brier == pytest.approx(1 / 6, abs=0.01)
    nothing = mg.reliability([0.5], [1], mask=[False])
    assert (nothing.error, nothing.worst, nothing.brier) == (0, 0, 0)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        (([1.5, 0.2], [0, 1]), {}, r"probabilities: expected values in \[0, 1\], got 0.2 to 1.5"),
        (([0.5, math.nan], [0, 1]), {}, "scores: expected numbers, got 1 NaN"),
        (([0.5, 0.2], [0, 1]), {"bins": 0}, "bins: expected a whole number of at least 1, got 0"),
        (([0.5, 0.2], [0, 1]), {"bins": 2.5}, "bins: expected a whole number of at least 1"),
        (([0.5, 0.2], [0, 1]), {"task": "regression"}, "task: expected one of"),
    ],
)
def test_bad_input_is_refused(args: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.reliability(*args, **options)


# The gap between what is trained and what is judged

Z = torch.randn(30, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
LABELS = (torch.rand(30, 3, generator=torch.Generator().manual_seed(2)) < 0.4).double()
WEIGHT = torch.rand(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def sigmoid(z: torch.Tensor) -> Array:
    return np.asarray(np.vectorize(ref.sigmoid)(z.numpy()))


def macro_f1(members: Array, y: Array, w: Array) -> float:
    cells = ref.counts(members, y, w)
    values = [ref.f_beta(*four) for four in zip(cells["tp"], cells["fp"], cells["fn"], cells["tn"], strict=True)]
    return float(np.mean(values))


@pytest.mark.parametrize("threshold", [0.5, 0.3])
def test_the_gap_is_that_of_two_plain_loops(threshold: float) -> None:
    loss = mg.MetricLoss("f1", task="multilabel", threshold=threshold)
    gap = mg.soft_hard_gap(loss, Z, LABELS, WEIGHT)
    p, y, w = sigmoid(Z), LABELS.numpy(), WEIGHT.numpy()
    soft = np.vectorize(lambda x: ref.linear_step(x, threshold))(p)
    assert gap.soft == pytest.approx(macro_f1(soft, y, w), abs=1e-9)
    assert gap.hard == pytest.approx(macro_f1((p >= threshold).astype(float), y, w), abs=1e-9)
    assert gap.gap == pytest.approx(gap.soft - gap.hard)
    assert str(gap) == f"soft {gap.soft:.4f}, hard {gap.hard:.4f}, gap {gap.soft - gap.hard:+.4f}"
    keep = torch.arange(30) % 2 == 0
    masked = mg.soft_hard_gap(loss, Z, LABELS, WEIGHT, keep)
    assert masked == mg.soft_hard_gap(loss, Z[keep], LABELS[keep], WEIGHT[keep])
    hybrid = mg.HybridLoss("f1", task="multilabel", threshold=threshold)
    assert mg.soft_hard_gap(hybrid, Z, LABELS, WEIGHT) == gap


def losses() -> dict[str, mg.MetricLoss]:
    annealed = s.Annealed(s.Linear(0.2), s.Linear(0.01, 0.2), steps=10)
    return {
        "sigmoid": mg.MetricLoss("f1", task="multilabel", surrogate=s.Sigmoid()),
        "learned": mg.MetricLoss("f1", task="multilabel", surrogate=s.Learned(s.LogitSigmoid(), 3)),
        "mfom": mg.presets.mfom_f1(3),
        "annealed": mg.MetricLoss("f1", task="multilabel", surrogate=annealed),
        "module": mg.MetricLoss("f1", task="multilabel", surrogate=torch.nn.Sigmoid()),
    }


@pytest.mark.parametrize("name", losses())
def test_any_surrogate_has_a_gap_and_stays_as_it_was(name: str) -> None:
    loss = losses()[name]
    surrogate, before = loss.surrogate, loss(Z, LABELS)
    parameters = [(key, id(p)) for key, p in loss.named_parameters()]
    gap = mg.soft_hard_gap(loss, Z, LABELS)
    decided, y = (sigmoid(Z) >= 0.5).astype(float), LABELS.numpy()
    cells = ref.counts(decided, y)
    expected = ref.micro(cells, ref.f_beta) if name == "mfom" else macro_f1(decided, y, np.ones(30))
    assert gap.hard == pytest.approx(expected, abs=1e-9)
    assert gap.soft == pytest.approx(1 - before.item(), abs=1e-12)
    assert loss.surrogate is surrogate
    assert [(key, id(p)) for key, p in loss.named_parameters()] == parameters
    assert torch.equal(loss(Z, LABELS), before)


def test_the_gap_of_classes_is_decided_by_the_argmax() -> None:
    y = torch.arange(30) % 3
    gap = mg.soft_hard_gap(mg.MetricLoss("accuracy", task="multiclass"), Z, y)
    assert gap.hard == pytest.approx(float((Z.argmax(1) == y).double().mean()))
    with pytest.raises(ValueError, match="loss: expected one with an average, got average=None"):
        mg.soft_hard_gap(mg.MetricLoss("f1", task="multilabel", average=None), Z, LABELS)


# Plots


def rendered(ax: Axes) -> bytes:
    """Draw without a display."""
    assert isinstance(ax.figure, Figure)
    buffer = io.BytesIO()
    ax.figure.savefig(buffer, format="png", dpi=40)
    data = buffer.getvalue()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 1000
    return data


SCORES = np.array([0.9, 0.8, 0.8, 0.6, 0.4, 0.3, 0.1])
TARGETS = np.array([1, 0, 1, 1, 0, 1, 0])


def texts(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def xs(line: Any) -> list[float]:
    return [float(x) for x in np.ravel(line.get_xdata())]


def ys(line: Any) -> list[float]:
    return [float(y) for y in np.ravel(line.get_ydata())]


def height_at(line: Any, x: float) -> float:
    """The height of a drawn staircase between its corners."""
    steps = {"steps-pre": mpl.cbook.pts_to_prestep, "steps-post": mpl.cbook.pts_to_poststep}[line.get_drawstyle()]
    corners, heights = steps(line.get_xdata(), line.get_ydata())
    for left, right, height in zip(corners, corners[1:], heights, strict=False):
        if min(left, right) < x < max(left, right):
            return float(height)
    raise AssertionError(x)


def test_metric_by_threshold_draws_the_metric_of_every_threshold() -> None:
    tuning = mg.tune_threshold("f1", SCORES, TARGETS)
    ax = mg.plots.metric_by_threshold("f1", SCORES, TARGETS, tuning=tuning)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("threshold", "f1")
    staircase, line = ax.get_lines()
    for t in (0.85, 0.7, 0.5, 0.35, 0.2):
        cells = ref.counts((t <= SCORES)[:, None].astype(float), TARGETS[:, None].astype(float))
        expected = ref.f_beta(*(cells[name][0] for name in ("tp", "fp", "fn", "tn")))
        assert height_at(staircase, t) == pytest.approx(expected), t
    assert height_at(staircase, tuning.threshold) == pytest.approx(tuning.value)
    assert xs(line) == [tuning.threshold] * 2
    assert texts(ax) == ["plateau", f"tuned: {tuning.threshold:.3g}, {tuning.value:.3f}"]
    (span,) = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert span.get_x() <= tuning.threshold <= span.get_x() + span.get_width()
    rendered(ax)
    assert texts(mg.plots.metric_by_threshold(mg.metrics.mcc, SCORES, TARGETS)) == []


def test_precision_recall_draws_the_area_it_names() -> None:
    weight = np.linspace(0.5, 1, 7)
    tuning = mg.tune_threshold("f1", SCORES, TARGETS, weight=weight)
    ax = mg.plots.precision_recall(SCORES, TARGETS, tuning=tuning, weight=weight)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("recall", "precision")
    staircase, point = ax.get_lines()
    recall = np.array(xs(staircase))
    middles, widths = (recall[1:] + recall[:-1]) / 2, np.diff(recall)
    area = sum(width * height_at(staircase, x) for x, width in zip(middles, widths, strict=True) if width > 0)
    expected = mg.evaluate(SCORES, TARGETS, "average_precision", weight=weight)["average_precision"]
    assert area == pytest.approx(expected)
    assert texts(ax) == [f"AP = {expected:.3f}", f"tuned: score ≥ {tuning.threshold:.3g}"]
    at = mg.evaluate(SCORES, TARGETS, ["recall", "precision"], rule=tuning.rule, weight=weight)
    assert xs(point) + ys(point) == pytest.approx([at["recall"], at["precision"]])
    rendered(ax)
    nothing = mg.tune_threshold("accuracy", SCORES, np.zeros(7))
    rendered(mg.plots.precision_recall(SCORES, TARGETS, tuning=nothing))


def test_confusion_matrix_shows_the_counts() -> None:
    p = np.eye(3)[[0, 1, 2, 2, 1, 0]] * 0.6 + 0.1
    y = [0, 1, 2, 1, 1, 2]
    ax = mg.plots.confusion_matrix(p, y, class_names=["a", "b", "c"])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("predicted", "true")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b", "c"]
    shown = {tuple(map(int, text.get_position())): text.get_text() for text in ax.texts}  # (column, row)
    matrix = [[1, 0, 0], [0, 2, 1], [1, 0, 1]]
    assert shown == {(j, i): str(matrix[i][j]) for i in range(3) for j in range(3)}
    colours = np.asarray(ax.images[0].get_array())
    np.testing.assert_allclose(colours, np.array(matrix) / np.sum(matrix, 1, keepdims=True))
    rendered(ax)
    moved = mg.plots.confusion_matrix(p, y, rule=Offsets((9.0, 0.0, 0.0), log=False))
    assert [text.get_text() for text in moved.texts] == ["1", "0", "0", "3", "0", "0", "2", "0", "0"]
    two = mg.plots.confusion_matrix(SCORES, TARGETS, task="binary")
    assert [text.get_text() for text in two.texts] == ["2", "1", "1", "3"]
    logits = mg.plots.confusion_matrix(SCORES * 4 - 2, TARGETS, task="binary", rule=Threshold(0.0))
    assert [text.get_text() for text in logits.texts] == ["2", "1", "1", "3"]
    rendered(two)


def test_reliability_is_drawn_on_given_axes() -> None:
    ax = Figure().subplots()
    rng = np.random.default_rng(0)
    p = rng.random(200)
    y = rng.random(200) < p
    assert mg.plots.reliability(p, y, bins=5, ax=ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("probability", "share of positives")
    found = mg.reliability(p, y, bins=5)
    _, line = ax.get_lines()
    assert xs(line) == pytest.approx(found.probability.tolist())
    assert ys(line) == pytest.approx(found.frequency.tolist())
    assert texts(ax) == [f"error {found.error:.3f}"]
    rendered(ax)
    few = mg.plots.reliability([0.05, 0.95], [0, 1])  # empty bins are left out
    assert xs(few.get_lines()[1]) == [0.05, 0.95]
    three = mg.plots.reliability(np.eye(3)[[0, 1, 2]] * 0.7 + 0.1, [0, 1, 1], task="multiclass")
    rendered(three)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: mg.plots.confusion_matrix([3.0, -2.0], [1, 0], task="binary"), "threshold: 0.5 is for scores in"),
        (
            lambda: mg.plots.confusion_matrix([[0.1]], [[1]], task="multilabel"),  # type: ignore[arg-type]
            "task: expected 'binary' or 'multiclas",
        ),
        (lambda: mg.plots.confusion_matrix([[0.1, 0.9]], [1], class_names=["a"]), "class_names: expected 2, one per"),
        (lambda: mg.plots.confusion_matrix([[0.1, 0.9]], [1], rule=Threshold(0.5)), "rule: expected one that decides"),
        (lambda: mg.plots.precision_recall([0.1, math.nan], [1, 0]), "scores: expected numbers, got 1 NaN"),
    ],
)
def test_bad_plots_are_refused(draw: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw()
