"""Plots of evaluations, with matplotlib (the extra "plots"). Each draws on ``ax``, or on new axes, and returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from metricgrad.core import curves
from metricgrad.core.inputs import as_scored_batch, check_scale
from metricgrad.core.metrics import get, name_of
from metricgrad.decisions import hard_counts
from metricgrad.decisions.default_rule import default_rule
from metricgrad.evaluation.diagnostics import reliability as _reliability

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

    from metricgrad.core.batch import Task
    from metricgrad.core.inputs import ArrayLike
    from metricgrad.core.metrics import Metric
    from metricgrad.decisions.rules import Rule
    from metricgrad.decisions.threshold_tuning import TuningResult

__all__ = ["confusion_matrix", "metric_by_threshold", "precision_recall", "reliability"]


def precision_recall(
    scores: ArrayLike,
    targets: ArrayLike,
    *,
    tuning: TuningResult | None = None,
    weight: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot precision against recall at every threshold of a binary problem.

    Parameters
    ----------
    scores : Tensor or array-like
        Scores of a binary problem on any scale, ``(N,)``.
    targets : Tensor or array-like
        Labels 0 or 1, ``(N,)``.
    tuning : TuningResult, optional
        What ``tune_threshold`` returned for these data, to be marked.
    weight : array-like, optional
        Per sample.
    ax : matplotlib Axes, optional
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes that were drawn on.

    """
    ax = _make_axes(ax)
    curve = curves.curve(scores, targets, weight)
    precision, recall = (x.numpy() for x in curves.precision_recall(curve))
    # From the left, as average precision sums it up: its value is the area drawn.
    ax.step(recall, precision, where="pre", label=f"AP = {curves.average_precision(curve).item():.3f}")
    if tuning is not None:
        index = max(0, int((curve.thresholds >= tuning.threshold).sum()) - 1)
        ax.plot(recall[index], precision[index], "o", color="black", label=f"tuned: score ≥ {tuning.threshold:.3g}")
    ax.set(xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    ax.legend()
    return ax


def metric_by_threshold(
    metric: str | Metric,
    scores: ArrayLike,
    targets: ArrayLike,
    *,
    tuning: TuningResult | None = None,
    weight: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a metric of a binary problem against the threshold.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts``.
    scores : Tensor or array-like
        Scores of a binary problem on any scale, ``(N,)``.
    targets : Tensor or array-like
        Labels 0 or 1, ``(N,)``.
    tuning : TuningResult, optional
        What ``tune_threshold`` returned for these data; its threshold and plateau are marked.
    weight : array-like, optional
        Per sample.
    ax : matplotlib Axes, optional
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes that were drawn on.

    """
    ax = _make_axes(ax)
    curve = curves.curve(scores, targets, weight)
    thresholds = curve.thresholds[1:].numpy()
    values = get(metric)(curve.counts)[1:].numpy()
    ax.step(thresholds, values, where="post")  # they fall: a value holds down to the next lower threshold
    if tuning is not None:
        lowest = thresholds[-1].item()
        highest = thresholds[0].item()
        low, high = (min(max(end, lowest), highest) for end in tuning.plateau)
        ax.axvspan(low, high, alpha=0.2, color="grey", label="plateau")
        ax.axvline(tuning.threshold, color="black", label=f"tuned: {tuning.threshold:.3g}, {tuning.value:.3f}")
        ax.legend()
    ax.set(xlabel="threshold", ylabel=name_of(get(metric)))
    return ax


def confusion_matrix(
    scores: ArrayLike,
    targets: ArrayLike,
    *,
    task: Literal["binary", "multiclass"] = "multiclass",
    rule: Rule | None = None,
    class_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the confusion matrix, rows true and columns predicted; colours are shares of the true class.

    Parameters
    ----------
    scores : Tensor or array-like
        Scores on any scale, ``(N, K)``, or ``(N,)`` for a binary problem.
    targets : Tensor or array-like
        Class indices or labels 0 and 1, ``(N,)``.
    task : {'multiclass', 'binary'}, default 'multiclass'
        What the scores are of.
    rule : Rule, optional
        A decision rule of ``mg.decisions``; by default the argmax, or 0.5 for a binary problem.
    class_names : sequence of str, optional
        One name per class; by default the class indices.
    ax : matplotlib Axes, optional
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If names are not one per class, or a binary problem has scores outside [0, 1] and no rule.

    """
    ax = _make_axes(ax)
    if task == "binary":
        batch = as_scored_batch("binary", scores, targets)
        if rule is None:
            check_scale(batch.logits)
        counts = hard_counts.count_cells(batch, rule or default_rule("binary"))
        cells = torch.stack((counts.tn, counts.fp, counts.fn, counts.tp)).view(2, 2)
    elif task == "multiclass":
        batch = as_scored_batch("multiclass", scores, targets)
        cells = hard_counts.count_matrix(batch, rule or default_rule("multiclass")).matrix
    else:
        raise ValueError(f"task: expected 'binary' or 'multiclass', got {task!r}")
    names = [str(k) for k in range(len(cells))] if class_names is None else list(class_names)
    if len(names) != len(cells):
        raise ValueError(f"class_names: expected {len(cells)}, one per class, got {len(names)}")
    shares = cells / cells.sum(1, keepdim=True).clamp(min=1)
    ax.imshow(shares.numpy(), vmin=0, vmax=1, cmap="Blues")
    for i, row in enumerate(cells.tolist()):
        for j, cell in enumerate(row):
            ax.text(j, i, f"{cell:g}", ha="center", va="center", color="white" if shares[i, j] > 0.5 else "black")
    ticks = range(len(names))
    ax.set(xlabel="predicted", ylabel="true", xticks=ticks, yticks=ticks, xticklabels=names, yticklabels=names)
    return ax


def reliability(
    probabilities: ArrayLike, targets: ArrayLike, *, task: Task | None = None, bins: int = 10, ax: Axes | None = None
) -> Axes:
    """Plot the share of positives against the probability, in bins of equal width.

    Parameters
    ----------
    probabilities : Tensor or array-like
        In [0, 1], as torch, numpy, pandas or lists. Shape as for ``task``.
    targets : Tensor or array-like
        The true labels, as torch, numpy, pandas or lists. Shape as for ``task``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": probabilities of any shape with targets of that shape. "multilabel": probabilities ``(N, K)`` or ``(N,
        K, ...)`` with targets of that shape. "multiclass": the same probabilities with class indices ``(N,)`` or ``(N,
        ...)``, or soft labels of the shape of the probabilities. Of "multiclass" the class of the highest probability
        counts alone. None is "binary" if the shapes leave no other reading, else an error.
    bins : int, default 10
        The number of bins.
    ax : matplotlib Axes, optional
        Where to draw; by default the axes of a new figure.

    Returns
    -------
    matplotlib Axes
        The axes that were drawn on.

    Raises
    ------
    ValueError
        If a value lies outside [0, 1].

    """
    ax = _make_axes(ax)
    found = _reliability(probabilities, targets, task=task, bins=bins)
    filled = found.weight > 0
    ax.plot([0, 1], [0, 1], ":", color="grey")
    ax.plot(found.probability[filled].numpy(), found.frequency[filled].numpy(), "o-", label=f"error {found.error:.3f}")
    ax.set(xlabel="probability", ylabel="share of positives", xlim=(0, 1), ylim=(0, 1))
    ax.legend()
    return ax


def _make_axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'metricgrad[plots]'") from error
    # A figure of its own, outside pyplot: nothing to close, and no window opens.
    return Figure(layout="constrained").subplots()
