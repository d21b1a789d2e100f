"""The demo: one small network, trained twice on a real multi-label data set, judged by macro-F1.

The data are the Yeast genes of Elisseeff and Weston (2001): 2417 genes, 103 measurements, 14 functional groups, as
shipped inside the package ``river``.
"""

from __future__ import annotations

import gzip
import importlib.resources
import io
from statistics import fmean, stdev

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from metricgrad.averages import class_weights, mean_over_classes
from metricgrad.losses import MetricLoss
from metricgrad.metrics import f1
from metricgrad.surrogates import Hard

LABELS = 14
CUTS = [cut / 100 for cut in range(5, 100, 5)]


def run(seeds: int = 5, epochs: int = 60) -> dict[str, list[float]]:
    """Train and judge, print the table, and return the test scores."""
    torch.set_num_threads(1)  # the network is too small to share out
    x, y = yeast()
    print(f"Yeast: {len(x)} genes, {x.shape[1]} measurements, {LABELS} groups. Judge: macro-F1 on unseen genes.")
    scores: dict[str, list[float]] = {
        "cross-entropy, cut at 0.5": [],
        "cross-entropy, cut tuned on validation genes": [],
        "metric loss (macro-F1), cut at 0.5": [],
    }
    for seed in range(seeds):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
        train, validation, test = order[:1450], order[1450:1933], order[1933:]
        entropy = fit(nn.BCEWithLogitsLoss(), x[train], y[train], seed, epochs)
        metric = fit(MetricLoss("f1", task="multilabel"), x[train], y[train], seed, epochs)
        with torch.no_grad():
            tuned = CUTS[int(macro_f1(entropy(x[validation]), y[validation], CUTS).argmax())]
            found = (
                macro_f1(entropy(x[test]), y[test], [0.5]),
                macro_f1(entropy(x[test]), y[test], [tuned]),
                macro_f1(metric(x[test]), y[test], [0.5]),
            )
        for column, value in zip(scores.values(), found, strict=True):
            column.append(value.item())
        print(
            f"  split {seed + 1} of {seeds}: " + "   ".join(f"{column[-1]:.3f}" for column in scores.values()),
            flush=True,
        )
    report(scores)
    return scores


def report(scores: dict[str, list[float]]) -> None:
    """Print mean and spread of each, and what the metric loss gains."""
    print()
    for name, values in scores.items():
        spread = f" ± {stdev(values):.3f}" if len(values) > 1 else ""
        print(f"  {fmean(values):.3f}{spread}  {name}")
    plain, tuned, metric = scores.values()
    print("\nTraining on the metric gains")
    print(f"  {difference(metric, plain)} over cross-entropy at 0.5")
    print(f"  {difference(metric, tuned)} over cross-entropy with a tuned cut")


def difference(ours: list[float], theirs: list[float]) -> str:
    """Return the mean difference over the splits with its 95 % t-interval (optimistic: splits share genes)."""
    gains = [a - b for a, b in zip(ours, theirs, strict=True)]
    if len(gains) < 2:
        return f"{gains[0]:+.3f}"
    half = float(stats.t.ppf(0.975, len(gains) - 1)) * stdev(gains) / len(gains) ** 0.5
    return f"{fmean(gains):+.3f} ({fmean(gains) - half:+.3f} to {fmean(gains) + half:+.3f})"


def fit(loss: nn.Module, x: Tensor, y: Tensor, seed: int, epochs: int) -> nn.Module:
    """Train the lecture's network (one hidden layer, ReLU, dropout, SGD) and return it, ready to predict."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, LABELS))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(145):
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return model.eval()


def macro_f1(logits: Tensor, y: Tensor, cuts: list[float]) -> Tensor:
    """Return the hard macro-F1 at each cut of the probabilities."""
    counts = MetricLoss("f1", task="multilabel", surrogate=Hard(), threshold=cuts).counts(logits, y)
    return mean_over_classes(f1(counts), class_weights("macro", counts.positives))


def yeast() -> tuple[Tensor, Tensor]:
    """Return the standardised measurements ``(2417, 103)`` and the groups ``(2417, 14)``."""
    packed = (importlib.resources.files("river") / "datasets" / "yeast.csv.gz").read_bytes()
    table = np.loadtxt(io.BytesIO(gzip.decompress(packed)), delimiter=",", skiprows=1, dtype=np.float32)
    data = torch.from_numpy(table)
    x, y = data[:, :-LABELS], data[:, -LABELS:]
    return (x - x.mean(0)) / x.std(0), y
