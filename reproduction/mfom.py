"""MFoM, maximal figure of merit, for micro-F1 (Kukanov et al., 2020; here its appendix, which has no results).

g = σ(z); ψ_k = −g_k + ln of the mean of e^g over the labels of the other kind (eq. 39 to 43); l_k = σ(α ψ_k + β) is the
smooth error, and micro-F1 of the counts of 1 − l is maximised (eq. 26 to 33), after training with cross-entropy.

Two questions: is it better than cross-entropy in micro-F1 with equal budgets, and is its gradient (eq. 37 to 46) worth
writing out?
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch
from sklearn.metrics import roc_curve
from torch import Tensor, nn

import metricgrad as mg
from cells import Cell, Table
from metricgrad.surrogates import UnitsVsZeros
from multilabel import DATA, choose, load_split, scores_of
from sigmoid_f1 import STOPPED, Head, trained
from training import OPTIMIZERS, train
from verdicts import Difference, Results, Verdict, judge

# --- Micro-F1 with equal budgets -------------------------------------------------------------------------------------

SLOPES = (1.0, 5.0, 20.0)
"""Three candidates of every loss; those of MFoM and sigmoidF1 are slopes."""
ROWS = (
    "BCE",
    "BCE, then MFoM",
    "BCE, then MFoM, α and β learned",
    "BCE, then MFoM for EER",
    "MFoM alone",
    "BCE, then sigmoidF1",
    "sigmoidF1 alone",
)
"""A row with "then" trains half of the epochs with cross-entropy and half with the other loss."""


def losses_of(row: str, labels: int) -> list[nn.Module]:
    """Return the three candidates of a row, all for micro-F1 unless the row says otherwise."""
    if row == "BCE":
        return [mg.baselines.bce(positive_weight=weight, task="multilabel") for weight in (1.0, 2.0, 4.0)]
    if "sigmoidF1" in row:
        return [mg.presets.sigmoid_f1(slope, average="micro") for slope in SLOPES]
    if "EER" in row:
        return [mg.presets.mfom_eer(alpha=slope) for slope in SLOPES]
    return [mg.presets.mfom_f1(labels if "learned" in row else None, alpha=slope) for slope in SLOPES]


def run_micro_f1(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Return the figures of a row: F1 under all rules, mAP, and the equal error rate."""
    split = load_split(cell.data, folder, seed=cell.trial)
    losses = losses_of(cell.row, split.labels)
    heads = [trained(loss, split, cell.trial, STOPPED, warm_up="then" in cell.row) for loss in losses]
    candidates = [scores_of(head, split) for head in heads]
    eers = [(eer(s.validation, split.validation.y), eer(s.test, split.test.y)) for s in candidates]
    found = choose(candidates, split, average="micro")
    return {**found, "eer": min(eers)[1]}


def eer(scores: Tensor, y: Tensor) -> float:
    """Return the equal error rate, the mean over labels that have positives and negatives: where FPR crosses FNR."""
    found = []
    for s, t in zip(scores.T.numpy(), y.T.numpy(), strict=True):
        if 0 < t.sum() < len(t):
            fpr, tpr, _ = roc_curve(t, s, drop_intermediate=False)
            gap = fpr - (1 - tpr)
            i = int((gap >= 0).argmax())
            # Between the two points beside the crossing the curve is a straight line.
            share = -gap[i - 1] / (gap[i] - gap[i - 1])
            found.append(float(fpr[i - 1] + share * (fpr[i] - fpr[i - 1])))
    return sum(found) / len(found)


def _cells_of_1(protocol: str, trials: int) -> Iterable[Cell]:
    return [Cell(protocol, row, data, t) for t in range(trials) for data in DATA for row in ROWS]


# --- The optimizer ---------------------------------------------------------------------------------------------------

RATES = {"Adam": (3e-4, 1e-3, 3e-3), "RMSprop": (1e-4, 3e-4, 1e-3)}
"""Three learning rates of each adaptive method; plain SGD's gradients need larger ones."""
SGD_RATES = (0.1, 1.0, 10.0)
OPTIMIZED_DATA = ("emotions", "yeast", "scene", "cancerHallmarks")


def run_optimizer(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Fill a cell: MFoM after cross-entropy, by an optimizer; the rate with the highest validation micro-F1 counts.

    Cross-entropy comes first and by Adam in all rows, so that they differ in how MFoM itself is optimised.
    """
    split = load_split(cell.data, folder, seed=cell.trial)
    half = replace(STOPPED, epochs=STOPPED.epochs // 2)
    torch.manual_seed(cell.trial)
    start = Head(split)
    train(start, mg.baselines.bce(task="multilabel"), split.train, split.validation, half, cell.trial)
    if cell.row == "BCE alone":
        train(start, mg.baselines.bce(task="multilabel"), split.train, split.validation, half, cell.trial)
        return choose([scores_of(start, split)], split, average="micro")
    candidates = []
    for rate in RATES.get(cell.row, SGD_RATES):
        head = copy.deepcopy(start)
        schedule = replace(half, optimizer=cell.row, learning_rate=rate)
        train(head, mg.presets.mfom_f1(alpha=5.0), split.train, split.validation, schedule, cell.trial)
        candidates.append(scores_of(head, split))
    return choose(candidates, split, average="micro")


def _cells_of_optimizer(protocol: str, trials: int) -> Iterable[Cell]:
    rows = ("BCE alone", *OPTIMIZERS)
    return [Cell(protocol, row, data, t) for t in range(trials) for data in OPTIMIZED_DATA for row in rows]


# --- The gradient, written out, and its time -------------------------------------------------------------------------


def analytic_gradient(z: Tensor, y: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """Return ∂E/∂z of E = 1 − F̂₁ by equations 34 to 46, in the form that needs no M × M matrix.

    δ = A · Jᵀ(w₁ y − w₂ ȳ): each sample's Jacobian has two kinds of columns, those of labels that are on (they meet the
    zero models) and those that are off (they meet the unit models), so its product with a vector is two sums a row.
    """
    on, off, g, powers, alone, error = _smooth_error(z, y, alpha, beta)
    units, zeros = (on * powers).sum(1, keepdim=True), (off * powers).sum(1, keepdim=True)
    weights = _weights(error, y) * alpha * error * (1 - error)  # A (w₁ y − w₂ ȳ) ∂l/∂ψ, eq. 38
    rivals_of_off = torch.where(alone, 0.0, (weights * off).sum(1, keepdim=True) / units.clamp_min(1e-30))
    rivals_of_on = torch.where(alone, 0.0, (weights * on).sum(1, keepdim=True) / zeros.clamp_min(1e-30))
    return g * (1 - g) * (-weights + powers * (on * rivals_of_off + off * rivals_of_on))


def jacobian_gradient(z: Tensor, y: Tensor, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """Return the same with the Jacobian of every sample as the paper writes it, diag(g′) · G: N × M × M numbers."""
    on, off, g, powers, alone, error = _smooth_error(z, y, alpha, beta)
    units, zeros = (on * powers).sum(1, keepdim=True), (off * powers).sum(1, keepdim=True)
    G = powers.unsqueeze(2) * (
        on.unsqueeze(2) * off.unsqueeze(1) / units.clamp_min(1e-30).unsqueeze(2)
        + off.unsqueeze(2) * on.unsqueeze(1) / zeros.clamp_min(1e-30).unsqueeze(2)
    )
    G = torch.where(alone.unsqueeze(2), 0.0, G) - torch.eye(z.shape[1], dtype=z.dtype)
    weights = _weights(error, y) * alpha * error * (1 - error)
    return g * (1 - g) * (G @ weights.unsqueeze(2)).squeeze(2)


def _smooth_error(z: Tensor, y: Tensor, alpha: float, beta: float) -> tuple[Tensor, ...]:
    """Return what both forms need: labels on and off, g, e^g, rows without competitors, and the smooth error l."""
    on, off, g = y, 1 - y, z.sigmoid()
    powers = g.exp()
    units, zeros = on.sum(1, keepdim=True), off.sum(1, keepdim=True)
    # A row whose labels are all of one kind is 0/0 in the paper; as in the library, ψ = ½ − g there.
    alone = (units == 0) | (zeros == 0)
    u = ((on * powers).sum(1, keepdim=True) / units).masked_fill(alone, 1.0).log()
    v = ((off * powers).sum(1, keepdim=True) / zeros).masked_fill(alone, 1.0).log()
    psi = torch.where(alone, 0.5, off * u + on * v) - g
    return on, off, g, powers, alone, (alpha * psi + beta).sigmoid()


def _weights(error: Tensor, y: Tensor) -> Tensor:
    """Return A (w₁ y − w₂ ȳ) of equation 35."""
    tp, fp, positives = ((1 - error) * y).sum(), ((1 - error) * (1 - y)).sum(), y.sum()
    return 2 / (fp + tp + positives) ** 2 * ((positives + fp) * y - tp * (1 - y))


def autograd_gradient(z: Tensor, y: Tensor) -> Tensor:
    """Return the gradient by autograd through the plain equations."""
    z = z.detach().requires_grad_()
    member = UnitsVsZeros()(z, y)
    tp, fp = (member * y).sum(), (member * (1 - y)).sum()
    (1 - 2 * tp / (fp + tp + y.sum())).backward()
    assert z.grad is not None
    return z.grad


def kernel_gradient(z: Tensor, y: Tensor) -> Tensor:
    """Return the gradient by the library's loss, checks of its arguments included."""
    z = z.detach().requires_grad_()
    MICRO_F1(z, y).backward()
    assert z.grad is not None
    return z.grad


MICRO_F1 = mg.presets.mfom_f1()
GRADIENTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autograd": autograd_gradient,
    "metricgrad": kernel_gradient,
    "analytic, Jacobians": jacobian_gradient,
    "analytic": analytic_gradient,
}
SIZES = ("256 × 10", "256 × 100", "4096 × 10", "4096 × 100")
REPEATS = 15


def run_time(cell: Cell, folder: Path | None) -> dict[str, float]:
    """Return the CPU time of loss and gradient over that of autograd, and how far the gradient is from autograd's."""
    n, m = (int(part) for part in cell.data.split(" × "))
    generator = torch.Generator().manual_seed(cell.trial)
    z = torch.randn(n, m, generator=generator)
    y = (torch.rand(n, m, generator=generator) < 0.1).float()
    names = ("autograd", cell.row)
    times: dict[str, list[float]] = {name: [] for name in names}
    # The Jacobians of the largest size hold 41 million numbers: once is enough to see it.
    repeats = 2 if "Jacobians" in cell.row else REPEATS
    for repeat, name in itertools.product(range(repeats + 1), names):
        start = time.process_time()
        for _ in range(1 if n * m > 10_000 else 10):
            GRADIENTS[name](z, y)
        if repeat:  # the first is a warm-up
            times[name].append(time.process_time() - start)
    error = (GRADIENTS[cell.row](z, y) - autograd_gradient(z, y)).abs().max() / autograd_gradient(z, y).abs().max()
    ratios = [a / b for a, b in zip(times[cell.row], times["autograd"], strict=True)]
    return {"time": median(ratios), "largest error": error.item()}


def _cells_of_time(protocol: str, trials: int) -> Iterable[Cell]:
    rows = [row for row in GRADIENTS if row != "autograd"]
    return [Cell(protocol, row, size, t) for t in range(trials) for size in SIZES for row in rows]


TABLES = {
    "mfom-1": Table(
        "MFoM: micro-F1 with equal budgets, on six multi-label sets",
        _cells_of_1,
        run_micro_f1,
        trials=5,
        reduced="three candidates of every loss, at most 60 epochs; the text at hand has no results to compare with",
        protocols=("corrected",),
    ),
    "mfom-time": Table(
        "MFoM: the gradient of equations 37 to 46 written out, against autograd (= 1) and the library's loss",
        _cells_of_time,
        run_time,
        trials=3,
        reduced="made-up logits, one label in ten on, one CPU core",
        protocols=("corrected",),
    ),
}
TABLES["mfom-optimizer"] = Table(
    "MFoM after cross-entropy, by optimizer: adaptive learning rates against SGD",
    _cells_of_optimizer,
    run_optimizer,
    trials=3,
    reduced="α = 5; three learning rates of every optimizer; four sets",
    protocols=("corrected",),
)
SHOWN = {
    "mfom-optimizer": ("micro f1 @0.5", "micro f1 @tuned", "mAP"),
    "mfom-1": ("micro f1 @0.5", "micro f1 @shared", "micro f1 @tuned", "mAP", "eer"),
}
"""The metrics that the page shows, of tables that have more."""
BOX_PLOTS = {"mfom-1": "micro f1 @tuned"}
CAPTIONS = {"mfom-1": "What to see: with tuned thresholds hardly any row leaves the range of cross-entropy."}


def verdicts(results: Results) -> list[Verdict]:
    """Return the answers to our questions, and to the one sentence on results in the text at hand."""

    def differences(row: str, other: str, metric: str) -> dict[str, Difference | None]:
        return {d: results.difference("mfom-1", "corrected", row, other, d, metric) for d in DATA}

    def by_optimizer(row: str, other: str, metric: str) -> dict[str, Difference | None]:
        return {d: results.difference("mfom-optimizer", "corrected", row, other, d, metric) for d in OPTIMIZED_DATA}

    after = "BCE, then MFoM"
    return [
        judge("mfom-adaptive", by_optimizer("Adam", "BCE alone", "micro f1 @tuned")),
        judge("mfom-q-sgd", by_optimizer("Adam", "SGD with momentum", "micro f1 @0.5")),
        judge("mfom-q-fixed", differences(after, "BCE", "micro f1 @0.5")),
        judge("mfom-q-tuned", differences(after, "BCE", "micro f1 @tuned")),
        judge("mfom-q-sigmoidf1", differences(after, "BCE, then sigmoidF1", "micro f1 @tuned")),
        judge("mfom-q-warm-up", differences(after, "MFoM alone", "micro f1 @tuned")),
        judge("mfom-q-eer", differences("BCE", "BCE, then MFoM for EER", "eer")),
    ]
