"""Recall at a precision: our loss against an exact penalty method, with the same number of steps and settings tried.

    python benchmarks/exact_penalty.py [--quick]

The exact reformulation [peng2025] has a variable s in [0, 1] for every sample, which is to be the decision p > t: that
is so if s = clip(s + p − t, 0, 1). It minimises −recall(s) + λ·(what s lacks to the precision + the violation of these
equations) over the network, t and s, with a growing λ. Every contender starts from the same network, trained with
cross-entropy, takes the same number of full-batch steps, and tries six settings, of which the one with the best recall
at the precision on validation rows is evaluated on test rows: scores alone are judged, not a threshold.
"""

from __future__ import annotations

import argparse
import copy
import itertools
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.metrics import precision_recall_curve
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import metricgrad as mg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PRECISION = 0.8
WARM, STEPS = 100, 200
Parts = list[tuple[Tensor, Tensor]]
"""Rows to train on, to validate and to test: features and 0/1 targets."""


def recall_at_precision(z: Tensor, y: Tensor) -> float:
    """Return the largest recall at the precision, of scores."""
    precision, recall, _ = precision_recall_curve(y, z)
    return float(recall[precision >= PRECISION].max())


def problems(seed: int) -> Iterator[tuple[str, Parts]]:
    """Yield data sets with rare or overlapping positives, split in three."""
    hard = make_classification(3000, 20, n_informative=6, weights=[0.9], flip_y=0.03, class_sep=1.0, random_state=seed)
    rare = make_classification(4000, 20, n_informative=5, weights=[0.96], flip_y=0.01, class_sep=1.5, random_state=seed)
    digits, digit = load_digits(return_X_y=True)
    noise = np.random.default_rng(seed).normal(0, 6, digits.shape)
    cancer, benign = load_breast_cancer(return_X_y=True)
    some = np.random.default_rng(seed).choice(cancer.shape[1], 3, replace=False)
    found = {
        "hard": hard,
        "rare": rare,
        "digit 8, noisy": (digits + noise, digit == 8),
        "cancer": (cancer[:, some], 1 - benign),
    }
    for name, (x, y) in found.items():
        first, rest, y1, y2 = train_test_split(x, y, test_size=0.5, stratify=y, random_state=seed)
        second, third, y2, y3 = train_test_split(rest, y2, test_size=0.5, stratify=y2, random_state=seed)
        scaler = StandardScaler().fit(first)
        parts = ((first, y1), (second, y2), (third, y3))
        yield name, [(torch.tensor(scaler.transform(a)).float(), torch.tensor(np.asarray(b)).float()) for a, b in parts]


def train(model: nn.Module, x: Tensor, lr: float, steps: int, loss: Callable[[Tensor], Tensor], *more: Tensor) -> None:
    """Take full-batch steps with Adam, also on further tensors."""
    groups = [{"params": list(model.parameters()), "lr": lr}, {"params": list(more), "lr": 10 * lr}]
    optimiser = torch.optim.Adam(groups if more else groups[:1])
    for _ in range(steps):
        optimiser.zero_grad()
        loss(model(x).squeeze(1)).backward()
        optimiser.step()


def ours(model: nn.Module, x: Tensor, y: Tensor, lr: float, beta: float) -> None:
    """Train on the recall at the precision."""
    loss = mg.RecallAtPrecisionLoss(PRECISION, surrogate=mg.surrogates.LogitSigmoid(beta))
    train(model, x, lr, STEPS, lambda z: loss(z, y))


def exact_penalty(model: nn.Module, x: Tensor, y: Tensor, lr: float, strength: float) -> None:
    """Train network, threshold and decisions on the exact penalty; its weight grows to ``strength``."""
    threshold = torch.tensor(0.5, requires_grad=True)
    decided = (model(x).squeeze(1).sigmoid() > 0.5).float().detach().requires_grad_()
    step = itertools.count(1)

    def loss(z: Tensor) -> Tensor:
        with torch.no_grad():
            decided.clamp_(0, 1)
        weight = strength * 10 ** (2 * next(step) / STEPS - 1)
        recall = (decided * y).sum() / y.sum()
        lacking = (PRECISION * decided.sum() - (decided * y).sum()).clamp_min(0) / y.sum()
        violation = (decided - (decided + z.sigmoid() - threshold).clamp(0, 1)).abs()
        value: Tensor = -recall + weight * (lacking + violation.sum() / y.sum())
        return value

    train(model, x, lr, STEPS, loss, decided, threshold)


def cross_entropy(model: nn.Module, x: Tensor, y: Tensor, lr: float, share: float) -> None:
    """Go on with cross-entropy, the positives weighted."""
    train(model, x, lr, STEPS, lambda z: mg.baselines.bce(share)(z, y))


SETTINGS = {ours: (1.0, 4.0), exact_penalty: (0.3, 3.0), cross_entropy: (1.0, 3.0)}
RATES = (0.003, 0.01, 0.03)


def main() -> None:
    """Train all, and print the recall of each on test rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one split instead of three")
    seeds = 1 if parser.parse_args().quick else 3
    results: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        for name, ((x, y), (x2, y2), (x3, y3)) in problems(seed):
            torch.manual_seed(seed)
            start = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, 1))
            train(start, x, 0.01, WARM, lambda z, y=y: mg.baselines.bce()(z, y))  # type: ignore[misc]
            row = []
            for contender, options in SETTINGS.items():
                tried = []
                for rate, option in itertools.product(RATES, options):
                    model = copy.deepcopy(start)
                    contender(model, x, y, rate, option)
                    with torch.no_grad():
                        pair = [recall_at_precision(model(a).squeeze(1), b) for a, b in ((x2, y2), (x3, y3))]
                    tried.append(tuple(pair))
                row.append(max(tried)[1])
            results.setdefault(name, []).append(row)
    print(f"recall at a precision of {PRECISION}, test rows, mean of {seeds} splits; splits won, lost against ours")
    print(f"{'':16}" + "".join(f"{contender.__name__:>24}" for contender in SETTINGS))
    for name, rows in results.items():
        table = np.array(rows)
        cells = [
            f"{table[:, k].mean():.3f} ({(table[:, k] > table[:, 0]).sum()}, {(table[:, k] < table[:, 0]).sum()})"
            for k in range(len(SETTINGS))
        ]
        print(f"{name:16}" + "".join(f"{cell:>24}" for cell in cells))


if __name__ == "__main__":
    main()
