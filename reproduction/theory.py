"""What the papers prove, in numbers and pictures.

* theory-surrogates: the soft steps by k and δ (binary paper, Figures 2–4; sigmoidF1, Figure 2). ``draw`` draws them.
* theory-lipschitz: Theorems 4.1 and 4.2 (binary) and 5.1 (multi-class): constants against the steepest slopes found.
* theory-convergence: soft and hard metrics with growing n. ``published`` draws both as the theorems assume (§4.2,
  supplement §1.2; multi-class §5.2): hard decisions Bernoulli or categorical, memberships Beta or Dirichlet with the
  *same means*. ``corrected`` draws scores once and takes both from them, as a network does.
* theory-trained: the same gap on the test rows of trained networks.
* theory-lookup: the lookup table of supplement §3 against the step that it replaces, in CPU time.
* lecture-means, lecture-maxent: the means of precision and recall, and softmax regression as the maximum-entropy
  classifier (NPFL129, lecture 5).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.datasets import load_iris
from torch import Tensor, nn

import data as source
import metricgrad as mg
from cells import Cell, Table, grid
from metricgrad.surrogates import Hard, Identity, Linear, LogitSigmoid, Sigmoid, TopTwo
from multiclass_f_beta import load_multiclass, standardise
from training import Loss, Rows, Schedule, dense, logits_of, train
from verdicts import Results, Verdict, judge, judge_exactly, paired

TAUS = tuple(i / 10 for i in range(1, 10))
KS = (1, 10, 20, 50)
DELTAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
POINTS = 100_001
"""The number of points in [0, 1] at which steps are evaluated."""
SIZES = (100, 1_000, 10_000, 100_000)


ENTRIES: dict[str, Callable[[mg.Counts], Tensor]] = {
    "TP": lambda c: c.tp,
    "FP": lambda c: c.fp,
    "FN": lambda c: c.fn,
    "TN": lambda c: c.tn,
    "F_1": mg.metrics.f1,
}
"""The entries of the soft-set matrix, and a metric of them."""


# The soft steps, and how steep they are.


def step_of(row: str) -> Linear | Sigmoid:
    """Return a step by its name, "sigmoid k = 10" or "linear δ = 0.1"."""
    kind, _, _, number = row.split()
    return Sigmoid(float(number)) if kind == "sigmoid" else Linear(float(number))


def slopes_of(step: Linear | Sigmoid, tau: float) -> Tensor:
    """Return the slopes of the secants between neighbouring points."""
    p = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    return step.step(p, tau).diff() * (POINTS - 1)


def run_surrogates(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: at how many τ a step reaches 0 and 1; at τ = 0.5 where it is flat, how steep, how far off."""
    step = step_of(f"{cell.data.split()[0]} {cell.row}")
    p = torch.linspace(0, 1, POINTS, dtype=torch.float64)
    ends = [step.step(p[[0, -1]], tau) for tau in TAUS]
    slopes = slopes_of(step, 0.5)
    return {
        "τ of 9 with ends within 0.01": float(sum(bool(end[0] <= 0.01 and end[1] >= 0.99) for end in ends)),
        "share with slope < 0.01": float((slopes < 0.01).double().mean()),
        "steepest slope": float(slopes.max()),
        "mean distance to the hard step": float((step.step(p, 0.5) - (p >= 0.5).double()).abs().mean()),
    }


def cells_surrogates(protocol: str, trials: int) -> Iterable[Cell]:
    """List the steps."""
    rows = {"sigmoid step": [f"k = {k}" for k in KS], "linear step": [f"δ = {delta:g}" for delta in DELTAS]}
    return [Cell(protocol, row, data, 0) for data, names in rows.items() for row in names]


def lipschitz_constant(step: Linear | Sigmoid, tau: float) -> float:
    """Return the constant of Theorem 4.1, max(m₁, m₂, m₃); for the sigmoid k/4."""
    return step.k / 4 if isinstance(step, Sigmoid) else float(max(step.pieces(tau)[2:]))


def multiclass_constant(delta: float) -> float:
    """Return a constant for Theorem 5.1, whose proof was not published, with respect to each probability; δ ≤ 0.2.

    The slope of the step is at most (1 − 2δ)/τ, and h ≥ 2δp/τ, so a row's sum of steps is at least 2δ/τ: the step
    contributes (1 − 2δ)/2δ. The change of τ contributes c/2δ with c = max(1, (½ − δ)/δ), since |∂h/∂τ| ≤ c·h/τ. The
    number of classes does not matter.
    """
    assert 0 < delta <= 0.2
    return (1 - 2 * delta) / (2 * delta) + max(1.0, (0.5 - delta) / delta) / (2 * delta)


def run_lipschitz(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: the constant of a theorem and the steepest slope that was found."""
    generator = torch.Generator().manual_seed(cell.trial)
    what, number = cell.row.rsplit(" = ", 1)
    if cell.data == "Theorem 4.1":
        step, tau = step_of(what.removesuffix(", τ")), float(number)
        constant, measured = lipschitz_constant(step, tau), float(slopes_of(step, tau).max())
    elif cell.data == "Theorem 4.2":
        constant, measured = _steepest_entry(what.removesuffix(", positives"), float(number), generator)
    else:
        constant, measured = multiclass_constant(TopTwo().delta), _steepest_membership(int(number), generator)
    return {"constant": constant, "steepest slope": measured, "ratio": measured / constant}


def cells_lipschitz(protocol: str, trials: int) -> Iterable[Cell]:
    """List the theorems' cases."""
    rows = {
        "Theorem 4.1": [
            f"{step}, τ = {tau}"
            for step in ("linear δ = 0.1", "linear δ = 0.2", "sigmoid k = 10")
            for tau in (0.1, 0.5, 0.9)
        ],
        "Theorem 4.2": [f"{entry}, positives = {share}" for entry in ENTRIES for share in (0.3, 0.002)],
        "Theorem 5.1": [f"d = {d}" for d in (2, 3, 10, 100)],
    }
    return [Cell(protocol, row, theorem, 0) for theorem, names in rows.items() for row in names]


def _steepest_entry(entry: str, share: float, generator: torch.Generator, n: int = 1024) -> tuple[float, float]:
    """Return the constant and the steepest slope of an entry of the matrix, or of F1, in any one probability."""
    step, tau = Linear(), 0.5
    y = (torch.arange(n) < max(1, round(share * n))).double()
    constant = lipschitz_constant(step, tau)
    if entry == "F_1":
        # |∂F₁/∂TP| and |∂F₁/∂FP| are at most 2/P, so the constant grows as positives become rare.
        constant *= 2 / float(y.sum())
    steepest = 0.0
    low = step.pieces(tau)[0]
    for draw in range(30):
        p = torch.rand(n, dtype=torch.float64, generator=generator)
        # From all probabilities at the lower knot, where little is predicted and slopes are large, to uniform ones.
        p = (low + 1e-6 + (p - low) * draw / 29).requires_grad_()
        counts = mg.count(step.step(p, tau).unsqueeze(1), y.unsqueeze(1))
        (slope,) = torch.autograd.grad(ENTRIES[entry](counts).sum(), p)
        steepest = max(steepest, float(slope.abs().max()))
    return constant, steepest


def _steepest_membership(d: int, generator: torch.Generator, rows: int = 400) -> float:
    """Return the steepest slope of a membership along the edges of the simplex, per unit of the L1 norm."""
    noise = torch.rand(rows, d, dtype=torch.float64, generator=generator).clamp_min(1e-12)
    weights = [torch.exp(s * torch.log(-torch.log(noise))) for s in (0.01, 0.1, 0.5, 1.0, 2.0)]
    # Two rivals above the others, near the upper knot and below; the others near the lower knot.
    for share in (0.05, 0.3, 0.45, 0.55, 1.0):
        rivals = share * (1 + 0.02 * noise)
        rivals[:, 0] = 1 + 0.55 * noise[:, 0]
        rivals[:, 1] = 1 - 0.55 * noise[:, 0] * (noise[:, 1] < 0.5)
        weights.append(rivals)
    p = torch.cat(weights)
    p = (p / p.sum(1, keepdim=True)).requires_grad_()
    member = TopTwo()(p.log())
    steepest = 0.0
    for k in range(d):
        (slope,) = torch.autograd.grad(member[:, k].sum(), p, retain_graph=True)
        # Moving a unit of probability from class j to class i changes p by 2 in the L1 norm.
        steepest = max(steepest, float((slope.amax(1) - slope.amin(1)).max()) / 2)
    return steepest


# Convergence.

R, U, V = 0.3, 0.8, 0.1
"""The share of positives, and the probability that a positive, a negative, is classified as positive."""
SPREAD = 2.0
"""α + β of the Beta distributions of memberships, and Σα of the Dirichlet ones."""
POSITIVES, NEGATIVES = stats.beta(3.0, 1.5), stats.beta(1.0, 4.0)
"""Scores of positives and of negatives, for what the theorems do not assume."""
SHARES = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
"""The classes of the multi-class case; an example of class i is classified as j with the probability CONFUSED[i, j]."""
CONFUSED = 0.7 * np.eye(5) + 0.06 * np.ones((5, 5))
THRESHOLDS = 20
BINARY = {"F_1": "f1", "accuracy": "accuracy", "G-mean": "g_mean", "Jaccard": "jaccard"}
MACRO = {"macro F_1": 1.0, "macro F_2": 2.0}


def run_convergence(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: a metric of one sample of n rows, soft and hard, and their distance."""
    random = np.random.default_rng([cell.trial, SIZES.index(int(cell.data.removeprefix("n = ")))])
    n = int(cell.data.removeprefix("n = "))
    as_assumed = cell.protocol == "published"
    if cell.row == "AUROC":
        soft, hard = _auroc_pair(n, as_assumed, random)
    elif cell.row in MACRO:
        soft, hard = _macro_pair(n, MACRO[cell.row], as_assumed, random)
    else:
        soft, hard = _binary_pair(n, BINARY[cell.row], as_assumed, random)
    return {"soft": soft, "hard": hard, "gap": abs(soft - hard)}


def _binary_pair(n: int, metric: str, as_assumed: bool, random: Any) -> tuple[float, float]:
    y = (np.arange(n) < round(R * n)).astype(float)
    if as_assumed:
        mean = np.where(y == 1, U, V)
        members = random.beta(SPREAD * mean, SPREAD * (1 - mean)), random.random(n) < mean
    else:
        p = _scores(y, random)
        members = Linear().step(torch.from_numpy(p), 0.5).numpy(), p >= 0.5
    soft, hard = (mg.count(torch.from_numpy(m.astype(float))[:, None], torch.from_numpy(y)[:, None]) for m in members)
    return tuple(float(mg.metrics.get(metric)(counts)) for counts in (soft, hard))  # type: ignore[return-value]


def _scores(y: Any, random: Any) -> Any:
    """Return scores of positives and negatives."""
    return np.where(y == 1, POSITIVES.rvs(len(y), random_state=random), NEGATIVES.rvs(len(y), random_state=random))


def _auroc_pair(n: int, as_assumed: bool, random: Any) -> tuple[float, float]:
    """Return eq. 18 from soft sets and from hard decisions, at τ = i/k, with rates of 1 and 0 at the ends."""
    y = np.arange(n) < round(R * n)
    taus = np.arange(1, THRESHOLDS) / THRESHOLDS
    x, x_soft, p = random.random(n), random.random(n), _scores(y, random)
    rates = []
    for tau in taus:
        if as_assumed:
            mean = np.where(y, POSITIVES.sf(tau), NEGATIVES.sf(tau))
            hard = x <= mean  # eq. 19: one uniform number per example, so that rates fall with τ
            alpha = SPREAD / 2
            soft = stats.beta.ppf(x_soft, alpha, alpha * (1 - mean) / mean)
        else:
            hard, soft = p >= tau, Linear().step(torch.from_numpy(p), float(tau)).numpy()
        rates.append([soft[y].mean(), soft[~y].mean(), hard[y].mean(), hard[~y].mean()])
    curve = np.array([[1.0] * 4, *rates, [0.0] * 4])
    areas = [float(-np.sum(np.diff(curve[:, i + 1]) * (curve[1:, i] + curve[:-1, i])) / 2) for i in (0, 2)]
    return areas[0], areas[1]


def _macro_pair(n: int, beta: float, as_assumed: bool, random: Any) -> tuple[float, float]:
    y = np.repeat(np.arange(5), np.round(SHARES * n).astype(int))
    if as_assumed:
        soft = np.concatenate([random.dirichlet(SPREAD * CONFUSED[k], int((y == k).sum())) for k in range(5)])
        chosen = np.concatenate([random.choice(5, int((y == k).sum()), p=CONFUSED[k]) for k in range(5)])
        hard = np.eye(5)[chosen]
    else:
        z = torch.from_numpy(random.normal(size=(len(y), 5)) + 2 * np.eye(5)[y])
        soft, hard = TopTwo()(z).numpy(), Hard().rows(z).numpy()
    values = []
    for member in (soft, hard):
        counts = mg.Confusion(torch.from_numpy(np.eye(5)[y].T @ member)).counts()
        values.append(float(mg.metrics.f_beta(counts, beta).mean()))
    return values[0], values[1]


def limit_of(row: str) -> float:
    """Return the value to which both converge under the assumptions: eq. 10, 15, 20, multi-class eq. 14."""
    if row == "AUROC":
        tau = np.arange(THRESHOLDS + 1) / THRESHOLDS
        u, v = POSITIVES.sf(tau), NEGATIVES.sf(tau)
        return float(-np.sum(np.diff(v) * (u[1:] + u[:-1])) / 2)
    if row in MACRO:
        b = MACRO[row] ** 2
        true = np.diag(CONFUSED) * SHARES
        return float(np.mean((1 + b) * true / (b * SHARES + CONFUSED.T @ SHARES)))
    cells = (R * U, (1 - R) * V, R * (1 - U), (1 - R) * (1 - V))
    return float(mg.metrics.get(BINARY[row])(mg.Counts(*(torch.tensor(cell, dtype=torch.float64) for cell in cells))))


# The gap on trained networks.

TRAINED = {
    "mammography": ("BCE", "F_1, linear", "F_1, sigmoid"),
    "adult": ("BCE", "F_1, linear", "F_1, sigmoid"),
    "digits": ("CE", "macro F_1"),
    "marketing": ("CE", "macro F_1"),
}
TRAINED_SCHEDULE = Schedule(epochs=60, patience=15)
DRAWS = 50


def run_trained(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: soft and hard metrics of a trained network on its test rows, and on samples of them."""
    z, y = fit_network(cell, folder)
    return _binary_gaps(z, y, cell) if z.ndim == 1 else _multiclass_gaps(z, y, cell)


@lru_cache(maxsize=2)
def fit_network(cell: Cell, folder: Path | None) -> tuple[Tensor, Tensor]:
    """Train the network of a cell and return its logits and the labels of the test rows."""
    binary = cell.data in ("mammography", "adult")
    table = source.load(cell.data, folder) if binary else load_multiclass(cell.data, folder)
    split = source.split_fairly(table, cell.trial)
    x = standardise(np.asarray(table.x, dtype=np.float32), split.train)
    parts = [Rows(torch.from_numpy(x[part]), torch.from_numpy(table.y[part]).long()) for part in vars(split).values()]
    outputs = 1 if binary else int(table.y.max()) + 1
    torch.manual_seed(cell.trial)
    model = nn.Sequential(dense([x.shape[1], 32, 16, outputs]), *([nn.Flatten(0)] if binary else []))
    schedule = replace(TRAINED_SCHEDULE, epochs=20, patience=5) if cell.data == "adult" else TRAINED_SCHEDULE
    train(model, _loss_of(cell.row), parts[0], parts[1], replace(schedule, batch_size=256), cell.trial)
    return logits_of(model, parts[2].x).double(), parts[2].y


def _loss_of(row: str) -> Loss:
    losses: dict[str, Callable[[], Loss]] = {
        "BCE": lambda: lambda z, y: nn.functional.binary_cross_entropy_with_logits(z, y.float()),
        "F_1, linear": lambda: mg.presets.soft_set("f1"),
        "F_1, sigmoid": lambda: mg.presets.soft_set("f1", surrogate=Sigmoid()),
        "CE": nn.CrossEntropyLoss,
        "macro F_1": mg.presets.multiclass_f_beta,
    }
    return losses[row]()


def _binary_gaps(z: Tensor, y: Tensor, cell: Cell) -> dict[str, float]:
    step = Sigmoid() if cell.row.endswith("sigmoid") else Linear()
    found = _gaps({name: mg.MetricLoss(name, surrogate=step) for name in ("f1", "accuracy")}, z, y, cell)
    hard = float(mg.evaluate(z, y, "auroc", threshold=0.0)["auroc"])
    found["auroc gap"] = 1 - float(mg.AUROCLoss(surrogate=step)(z, y)) - hard
    # The theorems' assumption: soft and hard decisions have the same means, for positives (u) and for negatives (v).
    for name, rows in (("u", y == 1), ("v", y == 0)):
        found[f"{name} gap"] = float((step(z[rows]) - (z[rows] >= 0).double()).mean())
    return found


def _multiclass_gaps(z: Tensor, y: Tensor, cell: Cell) -> dict[str, float]:
    losses = {"f1": mg.presets.multiclass_f_beta(), "f2": mg.presets.multiclass_f_beta(2.0)}
    return _gaps(losses, z, y, cell)


def _gaps(losses: dict[str, mg.MetricLoss], z: Tensor, y: Tensor, cell: Cell) -> dict[str, float]:
    """Return soft − hard of each loss on all rows, and its mean size for the first on samples of 100 and 1,000 rows."""
    found = {}
    for name, loss in losses.items():
        gap = mg.soft_hard_gap(loss, z, y)
        found.update({f"{name} soft": gap.soft, f"{name} hard": gap.hard, f"{name} gap": gap.gap})
    generator = torch.Generator().manual_seed(cell.trial)
    for n in (100, 1_000):
        rows = [torch.randint(len(y), (n,), generator=generator) for _ in range(DRAWS)]
        found[f"f1 |gap|, n = {n}"] = fmean(abs(mg.soft_hard_gap(losses["f1"], z[r], y[r]).gap) for r in rows)
    return found


def cells_trained(protocol: str, trials: int) -> Iterable[Cell]:
    """List the trained networks."""
    return [Cell(protocol, row, data, t) for t in range(trials) for data, rows in TRAINED.items() for row in rows]


# The lookup table.

BATCHES = (1_024, 1_048_576)
REPEATS = 30


class _Lookup(torch.autograd.Function):
    """The step from a table that was made before, in value and slope: the cheapest that torch can do."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, values: Tensor, slopes: Tensor) -> Tensor:
        entry = (p * (len(values) - 1)).long()
        ctx.save_for_backward(entry, slopes)
        return values[entry]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        entry, slopes = ctx.saved_tensors
        return grad * slopes[entry], None, None


def run_lookup(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: CPU time of the table over that of the step: alone, in an F1 loss, and over our closed form."""
    step = step_of(cell.row)
    n = int(cell.data.removeprefix("batch "))
    z = torch.randn(n, generator=torch.Generator().manual_seed(cell.trial))
    y = (torch.arange(n) < 0.3 * n).float()
    grid_ = torch.linspace(0, 1, 101)
    values, slopes = step.step(grid_, 0.5), step.slope(grid_, 0.5)
    p, z = torch.sigmoid(z).requires_grad_(), z.requires_grad_()

    def read(x: Tensor) -> Tensor:
        member: Tensor = _Lookup.apply(x, values, slopes)  # type: ignore[no-untyped-call]
        return member

    def compute(x: Tensor) -> Tensor:
        return step.step(x, 0.5)

    def loss(membership: Callable[[Tensor], Tensor]) -> Tensor:
        member = membership(torch.sigmoid(z))
        return 1 - 2 * (member * y).sum() / (member.sum() + y.sum())

    kernel = mg.MetricLoss("f1", surrogate=step)
    return {
        "step": _ratio(lambda: read(p).sum(), lambda: compute(p).sum()),
        "loss": _ratio(lambda: loss(read), lambda: loss(compute)),
        "our kernel": _ratio(lambda: loss(read), lambda: kernel(z, y)),
    }


def _ratio(table: Callable[[], Tensor], plain: Callable[[], Tensor]) -> float:
    """Return the ratio of the median CPU times, forward and backward, measured in turns."""
    times: list[list[float]] = [[], []]
    for _ in range(REPEATS):
        for call, seconds in zip((table, plain), times, strict=True):
            start = time.thread_time()
            call().backward()
            seconds.append(time.thread_time() - start)
    return float(np.median(times[0]) / np.median(times[1]))


# The lecture.


def run_means(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: a mean of a precision of 1 % and a recall of 100 %."""
    p, r = 0.01, 1.0
    counts = mg.Counts(*(torch.tensor(value) for value in (p, 1 - p, 0.0, 1.0)))
    means = {
        "arithmetic": (p + r) / 2,
        "geometric": float(mg.metrics.fowlkes_mallows(counts)),
        "harmonic": float(mg.metrics.f1(counts)),
    }
    return {"value": means[cell.row]}


MAXENT_STEPS = 3_000


def run_maxent(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: how far softmax regression is from Σᵢ π(xᵢ)ₖ xᵢⱼ = Σᵢ [tᵢ = k] xᵢⱼ, per row, on scaled features.

    Also how steeply the entropy changes when π does, the constraints kept: not at all, by the form of softmax. Entropy
    is concave, so a π of this form that meets the constraints has the highest entropy of all that do.
    """
    x, t = _regression_rows(cell.data, folder)
    classes = int(t.max()) + 1
    penalty = 0.5 / len(t) if cell.row == "regularised (C = 1)" else 0.0
    loss = mg.presets.multiclass_f_beta() if cell.row == "macro F_1" else nn.CrossEntropyLoss()
    weight = torch.zeros(x.shape[1], classes, dtype=torch.float64, requires_grad=True)
    steps = 10 if cell.row == "stopped after 10 steps" else MAXENT_STEPS
    # Line search and small tolerances: the constraints are met as far as the gradient vanishes.
    optimizer = torch.optim.LBFGS(
        [weight],
        max_iter=steps,
        max_eval=2 * steps,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = loss(x @ weight, t) + penalty * weight.square().sum()
        value.backward()
        return value

    optimizer.step(closure)
    with torch.no_grad():
        log_pi = torch.log_softmax(x @ weight, 1)
        moments = x.T @ (log_pi.exp() - nn.functional.one_hot(t, classes)) / len(t)
        violation = float(moments.abs().max().clamp_min(1e-17))
        return {"violation, log10": float(np.log10(violation)), "entropy slope": _entropy_slope(log_pi, x, cell.trial)}


@lru_cache(maxsize=4)
def _regression_rows(name: str, folder: Path | None) -> tuple[Tensor, Tensor]:
    """Return scaled features with a constant one, and classes."""
    if name == "iris":
        x, t = load_iris(return_X_y=True)
    else:
        table = load_multiclass(name, folder)
        x, t = table.x, table.y
    x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
    return torch.from_numpy(np.column_stack([x, np.ones(len(x))])), torch.from_numpy(t).long()


def _entropy_slope(log_pi: Tensor, x: Tensor, seed: int, draws: int = 20) -> float:
    """Return the largest slope of Σ H(π(xᵢ)) along random changes that keep to the constraints, from 0 to 1."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(x)
    slopes = []
    for _ in range(draws):
        # A row's changes sum to zero, and so does each class's sum of changes times x.
        change = torch.randn(log_pi.shape, dtype=torch.float64, generator=generator)
        change = change - change.mean(1, keepdim=True)
        change = change - basis @ (basis.T @ change)
        slopes.append(abs(float((log_pi * change).sum() / log_pi.norm() / change.norm())))
    return max(slopes)


TABLES = {
    "theory-surrogates": Table(
        "Soft steps by k and δ (binary paper, Figures 2–4)",
        cells_surrogates,
        run_surrogates,
        trials=1,
        protocols=("published",),
    ),
    "theory-lipschitz": Table(
        "Lipschitz constants of Theorems 4.1, 4.2 (binary) and 5.1 (multi-class) against the steepest slopes found",
        cells_lipschitz,
        run_lipschitz,
        trials=1,
        reduced="5.1: the constant is ours, since the paper's proof is in a supplement that was not published with it.",
        protocols=("published",),
    ),
    "theory-convergence": Table(
        "Soft and hard metrics with growing n: as the theorems assume, and with both from the same scores",
        grid([*BINARY, "AUROC", *MACRO], [f"n = {n}" for n in SIZES]),
        run_convergence,
        trials=10,
    ),
    "theory-trained": Table(
        "Soft minus hard metrics of trained networks on test rows",
        cells_trained,
        run_trained,
        trials=3,
        reduced="Networks 32-16, at most 60 epochs, patience 15 (adult: 20 and 5).",
        protocols=("corrected",),
    ),
    "theory-lookup": Table(
        "The lookup table of supplement §3: CPU time over that of the step, forward and backward",
        grid(["linear δ = 0.1", "sigmoid k = 10"], [f"batch {n}" for n in BATCHES]),
        run_lookup,
        trials=3,
        protocols=("published",),
    ),
    "lecture-means": Table(
        "Lecture: means of precision 1 % and recall 100 %",
        grid(["arithmetic", "geometric", "harmonic"], ["1 %, 100 %"]),
        run_means,
        trials=1,
        protocols=("published",),
        printed={
            ("arithmetic", "1 %, 100 %", "value"): (0.505, None),
            ("geometric", "1 %, 100 %", "value"): (0.1, None),
            ("harmonic", "1 %, 100 %", "value"): (0.02, None),
        },
    ),
    "lecture-maxent": Table(
        "Lecture: softmax regression meets its maximum-entropy moment constraints",
        grid(
            ["unregularised, converged", "regularised (C = 1)", "stopped after 10 steps", "macro F_1"],
            ["iris", "contraceptive", "satimage"],
        ),
        run_maxent,
        trials=1,
        protocols=("published",),
    ),
}


# Verdicts.


def verdicts(results: Results) -> list[Verdict]:
    """Return what became of the theorems; the rules are with each."""
    lookups = {"linear": "linear δ = 0.1", "sigmoid": "sigmoid k = 10"}
    return [
        *(_lipschitz(results, f"theory-lipschitz-{number}", theorem) for number, theorem in THEOREMS.items()),
        _limits(results, 50),
        _limits(results, 1),
        _consistent(results, "theory-consistent", "published"),
        _consistent(results, "theory-q-consistent", "corrected"),
        *(_lookup(results, f"theory-lookup-{name}", step) for name, step in lookups.items()),
        _maxent(results),
    ]


THEOREMS = {"41": "Theorem 4.1", "42": "Theorem 4.2", "51": "Theorem 5.1"}


def _column(results: Results, table: str, metric: str, protocol: str = "published") -> dict[tuple[str, str], float]:
    """Return the means of a metric by row and data set."""
    keys = [key for key in results.values if (key[0], key[1], key[4]) == (table, protocol, metric)]
    return {(key[2], key[3]): fmean(results.values[key].values()) for key in keys}


def _lipschitz(results: Results, key: str, theorem: str) -> Verdict:
    """Judge a theorem: it holds if no slope found is above its constant (beyond rounding)."""
    found = _column(results, "theory-lipschitz", "ratio")
    ratios = {row: ratio for (row, name), ratio in found.items() if name == theorem}
    figures = f"steepest slope over the constant: at most {max(ratios.values()):.3f}" if ratios else ""
    slopes = _column(results, "theory-lipschitz", "steepest slope")
    rare, frequent = (slopes.get((f"F_1, positives = {share}", theorem)) for share in (0.002, 0.3))
    if rare and frequent:
        figures += f"; F1 of 1,024 rows is {rare / frequent:.1f} times as steep with 0.2 % positives as with 30 %"
    return judge_exactly(key, {row: ratio <= 1 + 1e-6 for row, ratio in ratios.items()}, figures)


def _limits(results: Results, k: int) -> Verdict:
    """Judge whether both ends are within 0.01 of 0 and 1 at every τ (k = 50), or at none (k = 1)."""
    reached = _column(results, "theory-surrogates", "τ of 9 with ends within 0.01")
    count = reached.get((f"k = {k}", "sigmoid step"))
    holds = {} if count is None else {f"k = {k}": count == (len(TAUS) if k == 50 else 0)}
    figures = "" if count is None else f"{count:.0f} of {len(TAUS)}"
    return judge_exactly(f"theory-limits-{k}", holds, figures)


def _consistent(results: Results, key: str, protocol: str) -> Verdict:
    """Judge whether gaps vanish: at the largest n they are at most a tenth of those at the smallest."""
    first, last = f"n = {SIZES[0]}", f"n = {SIZES[-1]}"
    gaps = _column(results, "theory-convergence", "gap", protocol)
    shares = {row: gaps[row, last] / gaps[row, first] for row, data in gaps if data == last and (row, first) in gaps}
    figures = f"at most {max(shares.values()):.2f}" if shares else ""
    trained = _column(results, "theory-trained", "f1 gap", "corrected")
    if trained and protocol == "corrected":
        low, high = min(trained.values()), max(trained.values())
        figures += f"; soft − hard F1 on test rows of trained networks from {low:+.3f} to {high:+.3f}"
    return judge_exactly(key, {row: share <= 0.1 for row, share in shares.items()}, figures)


def _lookup(results: Results, key: str, step: str) -> Verdict:
    """Judge whether a loss takes less time with the table than with the step, for every batch size."""
    keys = {name: ("theory-lookup", "published", step, name, "loss") for name in (f"batch {n}" for n in BATCHES)}
    found = {name: paired([1 - ratio for ratio in results.trials(*place)]) for name, place in keys.items()}
    kernel = _column(results, "theory-lookup", "our kernel")
    figures = "; ".join(
        f"{name}: {kernel[step, name]:.2f} of our closed form" for name in found if (step, name) in kernel
    )
    return judge(key, found, figures=f"time with the table, {figures}" if figures else "")


def _maxent(results: Results) -> Verdict:
    """Judge whether the converged regression violates no constraint by more than 10⁻⁶ per row."""
    found = _column(results, "lecture-maxent", "violation, log10")
    converged = {data: 10**value <= 1e-6 for (row, data), value in found.items() if row == "unregularised, converged"}
    worst: dict[str, float] = {}
    for (row, _), value in found.items():
        worst[row] = max(10**value, worst.get(row, 0.0))
    return judge_exactly("theory-maxent", converged, ", ".join(f"{row}: {value:.1e}" for row, value in worst.items()))


# Pictures.

INK = ("#1b5e9e", "#c2491d", "#2f7d4f", "#7a4fa3", "#8a6d1b", "#555555")


def draw_convergence(results: Results, file: Path) -> bool:
    """Draw how soft and hard metrics part or meet with growing n; return whether there was anything to draw."""
    if not _column(results, "theory-convergence", "gap"):
        return False
    figure = _figure(2, "Figure: mean distance of soft and hard metrics by the number of rows")
    titles = {"published": "as the theorems assume", "corrected": "both from the same scores"}
    for axes, (protocol, title) in zip(figure.axes, titles.items(), strict=True):
        gaps = _column(results, "theory-convergence", "gap", protocol)
        for row, colour in zip([*BINARY, "AUROC", "macro F_1"], INK, strict=True):
            y = [gaps.get((row, f"n = {n}"), float("nan")) for n in SIZES]
            axes.loglog(SIZES, y, marker="o", markersize=3, color=colour, label=row.replace("_1", "₁"))
        axes.set(title=title, xlabel="rows n", ylabel="|soft − hard|", ylim=(1e-5, 1))
    figure.axes[0].legend(fontsize=7, frameon=False)
    return _save(figure, file)


def _figure(panels: int, description: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * panels, 2.6), layout="constrained")
    for axes in np.ravel(figure.subplots(1, panels)):
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.set_label(description)
    return figure


def _save(figure: Any, path: Path) -> bool:
    """Write an SVG that is the same in every run; text stays text."""
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None, "Title": figure.get_label()})
    return True


def _draw_steps(steps: dict[str, Linear | Sigmoid], description: str) -> Any:
    """Return a figure of steps at three thresholds, and of their slopes at τ = 0.5."""
    figure = _figure(4, description)
    p = torch.linspace(0, 1, 201, dtype=torch.float64)
    for axes, tau in zip(figure.axes, (0.1, 0.5, 0.9), strict=False):
        for (name, step), colour in zip(steps.items(), INK, strict=False):
            axes.plot(p, step.step(p, tau), color=colour, label=name, linewidth=1.2)
        axes.set_title(f"τ = {tau}", fontsize=8)
        axes.set_xlabel("p", fontsize=8)
    for (name, step), colour in zip(steps.items(), INK, strict=False):
        figure.axes[3].plot(p, step.slope(p, 0.5), color=colour, label=name, linewidth=1.2)
    figure.axes[3].set_title("derivative, τ = 0.5", fontsize=8)
    figure.axes[3].set_xlabel("p", fontsize=8)
    figure.axes[0].legend(fontsize=7, frameon=False)
    return figure


def _draw_sigmoids() -> Any:
    steps: dict[str, Linear | Sigmoid] = {f"k = {k}": Sigmoid(float(k)) for k in KS}
    return _draw_steps(steps, "The sigmoid step by k and τ, and its derivative")


def _draw_ramps() -> Any:
    steps: dict[str, Linear | Sigmoid] = {f"δ = {delta:g}": Linear(delta) for delta in DELTAS}
    return _draw_steps(steps, "The linear step by δ and τ, and its derivative")


def _draw_regimes() -> Any:
    """Return sigmoidF1's Figure 2: the hard step, the unbounded line and sigmoids of the logit."""
    figure = _figure(1, "Thresholding of a logit u: step, unbounded line and sigmoids by β and η")
    (axes,) = figure.axes
    u = torch.linspace(-4, 4, 201, dtype=torch.float64)
    axes.plot(u, (u >= 0).double(), color=INK[0], label="step", linewidth=1.2)
    axes.plot(u, u, color=INK[1], label="linear, unbounded", linewidth=1.2)
    axes.plot(u, Identity()(u), color=INK[5], label="β = 1, η = 0", linewidth=1.2)
    for (beta, eta), colour in zip(((5.0, 0.0), (1.0, 2.0), (10.0, 1.0)), INK[2:5], strict=True):
        axes.plot(u, LogitSigmoid(beta, eta)(u), color=colour, label=f"β = {beta:g}, η = {eta:g}", linewidth=1.2)
    axes.set(ylim=(-0.5, 1.5), xlabel="u")
    axes.legend(fontsize=7, frameon=False)
    return figure


def _draw_surface() -> Any:
    """Return the lecture's picture: the harmonic mean over precision and recall, with F2 and F0.5 beside it."""
    figure = _figure(3, "F1, F2 and F0.5 over precision and recall")
    side = np.linspace(0.001, 1, 101)
    precision, recall = np.meshgrid(side, side)
    for axes, beta in zip(figure.axes, (1.0, 2.0, 0.5), strict=True):
        b = beta**2
        height = (1 + b) * precision * recall / (b * precision + recall)
        lines = axes.contour(precision, recall, height, levels=np.arange(1, 10) / 10, cmap="viridis", linewidths=1.2)
        axes.clabel(lines, fontsize=6)
        axes.set_title(f"F{beta:g}", fontsize=8)
        axes.set_xlabel("precision", fontsize=8)
        axes.set_ylabel("recall", fontsize=8)
        axes.set_aspect("equal")
    return figure


PICTURES = {
    "steps-sigmoid": lambda results, file: _save(_draw_sigmoids(), file),
    "steps-linear": lambda results, file: _save(_draw_ramps(), file),
    "steps-sigmoidf1": lambda results, file: _save(_draw_regimes(), file),
    "f1-surface": lambda results, file: _save(_draw_surface(), file),
    "convergence": draw_convergence,
}
CAPTIONS = {
    "steps-sigmoid": "The sigmoid step. What to see: with k = 1 it never comes near 0 or 1; with k = 50 its slope is 0 "
    "almost everywhere.",
    "steps-linear": "The linear step. What to see: it starts at 0 and ends at 1 for every τ; δ moves slope from the "
    "ramp to the tails.",
    "steps-sigmoidf1": "sigmoidF1's steps. What to see: the unbounded line leaves [0, 1], and a positive η moves the "
    "step to the left, so that more is predicted.",
    "f1-surface": "F1, F2 and F0.5. What to see: along an edge, where precision or recall is near 0, all of them are.",
    "convergence": "The gap between soft and hard metrics. What to see: it falls with n only if both have the same "
    "means (left); from the same scores it stays (right).",
}
