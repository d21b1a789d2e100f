"""Label counts, pick-all-labels, and the questions of the sigmoidF1 paper's §7, as one small factorial study.

Every loss is trained once, with its first candidate, and stopped by one half of the validation rows. Its scores are
then decided in every way: with thresholds from the *training* rows, from the rows that also *stopped* the training, or
from the other half, *held out* for that purpose; one threshold for all labels ("global"), one per label, or the label
set of the highest expected F1 of each row, which needs no threshold ("expected-F").

Pick-all-labels is a softmax over the labels that a row's labels share: the cross-entropy of every label that is on.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import metricgrad as mg
from cells import Cell, Table
from multilabel import AVERAGES, DATA, Split, averaged_f1, count, load_split
from sigmoid_f1 import LOSSES, STOPPED, corrected_losses, trained
from training import Loss, Rows, logits_of

PICK_ALL = "pick-all-labels"
ROWS = (*LOSSES, "MFoM", PICK_ALL)
TUNED_ON = ("training", "stopping", "held-out")


def pick_all_labels(logits: Tensor, y: Tensor) -> Tensor:
    """Return the pick-all-labels loss: the sum over a row's labels of the softmax cross-entropy, the mean over rows."""
    return -(y * torch.log_softmax(logits, 1)).sum(1).mean()


def loss_of(row: str, labels: int) -> Loss:
    """Return the loss of a row: the first of its candidates; sigmoidF1's is S = σ."""
    return pick_all_labels if row == PICK_ALL else corrected_losses(row, labels)[0][0]


def probabilities_of(row: str, logits: Tensor) -> Tensor:
    """Return the scores of a row; where a loss has diverged, the logits are set to a finite number."""
    finite = torch.nan_to_num(logits.double(), nan=-30.0, posinf=30.0, neginf=-30.0)
    return torch.softmax(finite, 1) if row == PICK_ALL else finite.sigmoid()


def run_decisions(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: one trained loss under all decisions."""
    split = load_split(cell.data, folder, seed=cell.trial)
    half = len(split.validation) // 2
    stopping, held_out = (
        Rows(split.validation.x[part], split.validation.y[part]) for part in (slice(half), slice(half, None))
    )
    loss = loss_of(cell.row, split.labels)
    head = trained(loss, Split(split.train, stopping, split.test), cell.trial, STOPPED, warm_up=cell.row == "MFoM")
    rows = {"training": split.train, "stopping": stopping, "held-out": held_out}
    scores = {name: probabilities_of(cell.row, logits_of(head, part.x)) for name, part in rows.items()}
    test, y = probabilities_of(cell.row, logits_of(head, split.test.x)), split.test.y
    found = values_of((test >= 0.5).double(), y, "0.5")
    for name, shared in itertools.product(TUNED_ON, (True, False)):
        kind: Any = "own" if shared else "pooled"
        rule = mg.tune_threshold(
            "f1", scores[name], rows[name].y, task="multilabel", average="macro", shared=shared, rare_labels=kind
        ).rule
        found |= values_of(rule(test).double(), y, f"{'global' if shared else 'per label'}, {name}")
    return found | values_of(mg.decisions.ExpectedFBeta()(test).double(), y, "expected-F")


def values_of(predicted: Tensor, y: Tensor, rule: str) -> dict[str, float]:
    """Return F1 of each average, F1 of rows, and the errors of the numbers of labels, of a row and of a label.

    The error of rows is the mean distance of the predicted and the true number of labels; that of labels is the mean
    distance of the predicted and the true number of rows, over the true number of labels in all.
    """
    counts = count(predicted, y)
    found = {f"{average} f1 @{rule}": averaged_f1(counts, average) for average in AVERAGES}
    hits = (predicted * y).sum(1)
    sizes = predicted.sum(1) + y.sum(1)
    found[f"row f1 @{rule}"] = (2 * hits / sizes.clamp_min(1)).mean().item()
    found[f"labels a row @{rule}"] = (predicted.sum(1) - y.sum(1)).abs().mean().item()
    found[f"rows a label @{rule}"] = ((predicted.sum(0) - y.sum(0)).abs().sum() / y.sum()).item()
    return found


def _cells(protocol: str, trials: int) -> Iterable[Cell]:
    # The small sets come first: they are done in seconds.
    data = sorted(DATA, key=("emotions", "yeast", "scene", "cancerHallmarks", "chemicalExposure", "goemotions").index)
    return [Cell(protocol, row, name, t) for t in range(trials) for name in data for row in ROWS]


TABLES = {
    "sigmoidf1-decisions": Table(
        "Label counts, pick-all-labels, and the questions of §7: losses by decisions by the rows that thresholds "
        "are from",
        _cells,
        run_decisions,
        trials=3,
        reduced="the first candidate of every loss, at most 60 epochs, half of the validation rows for stopping",
        protocols=("corrected",),
    ),
}
SHOWN = {
    "sigmoidf1-decisions": (
        *(f"macro f1 @{rule}" for rule in ("0.5", "global, held-out", "per label, held-out", "per label, training")),
        *("row f1 @global, held-out", "row f1 @expected-F"),
        *("labels a row @0.5", "labels a row @per label, held-out", "rows a label @0.5"),
    )
}
