"""Multi-label data, its split, and every figure of a trained model: shared by sigmoidF1 and MFoM.

A model is judged under five decision rules at once, so that one training run answers all questions about thresholds:

* "0.05", "0.5": the same fixed threshold for every label;
* "averaged": threshold averaging of Decubber et al. on the training rows (the paper's Table 4);
* "shared": the one threshold for all labels that is exactly best on the validation rows;
* "tuned": one threshold per label, exactly best on the validation rows; labels with few positives there share one.

The names of the averages are scikit-learn's, which the authors' code uses too: "micro" pools all labels and "macro" is
the mean over labels. The equations 9 and 10 of the sigmoidF1 paper define them the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

import metricgrad as mg
from data import load_multilabel
from training import Rows, logits_of

TEXT = ("cancerHallmarks", "chemicalExposure")
"""The data sets of the sigmoidF1 paper that can be had, with frozen MiniLM embeddings in place of DistilBERT's."""
DATA = (*TEXT, "goemotions", "emotions", "scene", "yeast")
UNAVAILABLE = {
    "MS-COCO": "122,218 images, and a TresNet encoder for them: neither can be had without network",
    "Pascal-VOC": "9,963 images, and a TresNet encoder for them: neither can be had without network",
    "moviePosters": "the posters are behind addresses of a film site; no archive of them can be had",
    "arXiv2020": "a snapshot of the metadata of arXiv, behind an account",
}
"""The data sets of the sigmoidF1 paper that cannot be had here, and why. Their loader would be a branch of ``load``."""

AVERAGES: tuple[Literal["weighted", "micro", "macro"], ...] = ("weighted", "micro", "macro")
MAP = "interpolated_average_precision"
RULES = ("0.05", "0.5", "averaged", "shared", "tuned")
Thresholds = dict[str, dict[str, Any]]
"""For each rule and each average, a threshold or one per label."""


@dataclass(frozen=True)
class Split:
    """The rows to train on, to choose on, and to report."""

    train: Rows
    validation: Rows
    test: Rows

    @property
    def labels(self) -> int:
        """The number of labels."""
        return self.train.y.shape[1]


def load(name: str, folder: Path | None) -> tuple[Any, Any]:
    """Return features and 0/1 labels of a data set, from the folder of data sets or fetched."""
    if name in UNAVAILABLE:
        raise ValueError(f"data: {name} cannot be had: {UNAVAILABLE[name]}")
    return load_multilabel(name, folder)


def load_split(name: str, folder: Path | None, seed: int) -> Split:
    """Return 60 % of the rows to train on, 20 % to validate and 20 % to test; features scaled by the training rows."""
    features, labels = load(name, folder)
    x, y = torch.tensor(features, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    a, b = int(0.6 * len(y)), int(0.8 * len(y))
    first = x[order[:a]]
    x = (x - first.mean(0)) / first.std(0).clamp_min(1e-6)
    return Split(*(Rows(x[part], y[part]) for part in (order[:a], order[a:b], order[b:])))


@dataclass(frozen=True)
class Scores:
    """The scores of a trained model on each part of the rows."""

    train: Tensor
    validation: Tensor
    test: Tensor


def probabilities(logits: Tensor) -> Tensor:
    """Return probabilities; where a loss has diverged, the logits are set to a finite number."""
    return torch.nan_to_num(logits.double(), nan=-30.0, posinf=30.0, neginf=-30.0).sigmoid()


def scores_of(model: nn.Module, split: Split, link: Callable[[Tensor], Tensor] = probabilities) -> Scores:
    """Return the scores of a model on all rows; ``link`` makes scores of logits."""
    return Scores(*(link(logits_of(model, part.x)) for part in (split.train, split.validation, split.test)))


def fit_thresholds(scores: Scores, split: Split) -> Thresholds:
    """Return the threshold(s) of every rule, none of them from test rows."""
    s, y = scores.validation, split.validation.y

    def best(average: Any, shared: bool) -> Any:
        kind: Any = "own" if shared else "pooled"
        return mg.tune_threshold(
            "f1", s, y, task="multilabel", average=average, shared=shared, rare_labels=kind
        ).threshold

    averaged = mg.decisions.threshold_averaging(scores.train, split.train.y).threshold
    # The threshold that is best for a label is so for the macro and the weighted average; micro F1 needs its own.
    own = best("macro", shared=False)
    return {
        "0.05": dict.fromkeys(AVERAGES, 0.05),
        "0.5": dict.fromkeys(AVERAGES, 0.5),
        "averaged": dict.fromkeys(AVERAGES, averaged),
        "shared": {average: best(average, shared=True) for average in AVERAGES},
        "tuned": {"weighted": own, "macro": own, "micro": best("micro", shared=False)},
    }


def values_of(scores: Tensor, y: Tensor, thresholds: Thresholds) -> dict[str, float]:
    """Return all figures of a model on some rows.

    "weighted f1 @0.05", and so on for every average and rule; "precision @0.05" (mean over labels, eq. 12), "predicted
    @0.05" (the share of all decisions that are positive); "mAP" from the scores (eq. 13, 14) and, as in the authors'
    code, "mAP @0.05" from the 0/1 predictions at 0.05.
    """
    found = {"mAP": mean_average_precision(scores, y)}
    for rule, by_average in thresholds.items():
        for average, threshold in by_average.items():
            found[f"{average} f1 @{rule}"] = averaged_f1(count(predictions(scores, threshold), y), average)
        predicted = predictions(scores, by_average["weighted"])
        found[f"precision @{rule}"] = mg.metrics.precision(count(predicted, y)).mean().item()
        found[f"predicted @{rule}"] = predicted.mean().item()
        if rule in ("0.05", "0.5"):
            found[f"mAP @{rule}"] = mean_average_precision(predicted, y)
    return found


def predictions(scores: Tensor, threshold: Any) -> Tensor:
    """Return 0 or 1 by a threshold on the scale of the scores, whatever that is, or one per label."""
    return (scores >= torch.as_tensor(threshold, dtype=scores.dtype)).double()


def count(predicted: Tensor, y: Tensor) -> mg.Counts:
    """Return the counts of every label."""
    y = y.double()
    tp, fp, fn = (predicted * y).sum(0), (predicted * (1 - y)).sum(0), ((1 - predicted) * y).sum(0)
    return mg.Counts(tp, fp, fn, len(y) - tp - fp - fn)


def averaged_f1(counts: mg.Counts, average: str) -> float:
    """Return F1 of all labels pooled ("micro"), or its mean over labels, by their positives if "weighted"."""
    if average == "micro":
        return mg.metrics.f1(counts.map(lambda cell: cell.sum())).item()
    support = counts.tp + counts.fn if average == "weighted" else torch.ones_like(counts.tp)
    return ((mg.metrics.f1(counts) * support).sum() / support.sum()).item()


def mean_average_precision(scores: Tensor, y: Tensor) -> float:
    """Return mAP by equations 13 and 14: precision is the highest at that recall or beyond."""
    return float(mg.evaluate(scores, y, MAP, task="multilabel")[MAP])


def choose(candidates: list[Scores], split: Split, average: str = "weighted") -> dict[str, float]:
    """Return the test figures of the candidate that is best on the validation rows, for each rule by itself.

    By weighted F1 under that rule, as the sigmoidF1 paper chooses β and η, or by another average of F1; mAP by mAP.
    """
    best: dict[str, tuple[float, dict[str, float]]] = {}
    for scores in candidates:
        thresholds = fit_thresholds(scores, split)
        seen = values_of(scores.validation, split.validation.y, thresholds)
        found = values_of(scores.test, split.test.y, thresholds)
        for rule in ("mAP", *RULES):
            value = seen["mAP" if rule == "mAP" else f"{average} f1 @{rule}"]
            if rule not in best or value > best[rule][0]:
                best[rule] = value, {k: v for k, v in found.items() if k == rule or k.endswith(f"@{rule}")}
    return {name: value for _, found in best.values() for name, value in found.items()}
