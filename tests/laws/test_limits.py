"""Soft losses become hard: as the step sharpens, and (the papers' theorems) as the data grow."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Literal

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import Confusion, Counts
from metricgrad.surrogates import Annealed, Hard, Linear, LogitSigmoid, Sigmoid, TopTwo

if TYPE_CHECKING:
    from collections.abc import Callable

M = mg.metrics

SHARPER: dict[str, Callable[[float], mg.surrogates.Surrogate]] = {
    "Sigmoid": lambda s: Sigmoid(k=10 * s),
    "LogitSigmoid": lambda s: LogitSigmoid(beta=s),
    "Linear": lambda s: Linear(delta=0.1 / s, width=1 / s),
    "TopTwo": lambda s: TopTwo(delta=0.2 / s, width=1 / s),
}
OF_CELLS = sorted(set(M.names()) - {"quadratic_kappa", "subset_accuracy"})
OF_MATRIX = ["accuracy", "balanced_accuracy", "g_mean", "kappa", "mcc", "quadratic_kappa"]


def converges(metric: str, surrogate: str, data: tuple[Tensor, ...], **options: Any) -> None:
    """The distance to the hard loss falls, and to nothing."""
    hard = mg.MetricLoss(metric, surrogate=Hard(), **options)(*data)
    assert hard.isfinite().all()
    errors = []
    for sharpness in (1.0, 1e2, 1e7):
        loss = mg.MetricLoss(metric, surrogate=SHARPER[surrogate](sharpness), **options)
        errors.append(float((loss(*data) - hard).abs().max()))
    assert errors[0] > 1e-4, errors
    assert errors[1] < errors[0], errors
    assert errors[2] < 1e-6, errors


def multilabel_data(n: int = 12, classes: int = 7, thresholds: tuple[float, ...] = (0.5,)) -> tuple[Tensor, ...]:
    """Logits, labels and weights with a TP, FP, FN and TN in every row and column, so that nothing is 0/0.

    At 0/0 a metric jumps, and no surrogate has a limit. No probability is close to a threshold.
    """
    generator = torch.Generator().manual_seed(0)
    pattern = (torch.arange(n)[:, None] + torch.arange(classes)) % 4
    pattern = pattern[torch.randperm(n, generator=generator)][:, torch.randperm(classes, generator=generator)]
    decided, right = pattern % 2 == 1, pattern // 2 == 1
    far = 0.08 + 0.84 * torch.rand(n, classes, generator=generator, dtype=torch.float64)
    low, high = min(thresholds), max(thresholds)
    p = torch.where(decided, high + (1 - high) * far, low * (1 - far))
    y = torch.where(right, decided, ~decided)
    return torch.logit(p), y.long(), 0.5 + torch.rand(n, generator=generator, dtype=torch.float64)


def multiclass_data(d: int = 4) -> tuple[Tensor, ...]:
    """Every class is taken for every other one at least once."""
    generator = torch.Generator().manual_seed(1)
    pairs = torch.tensor(list(itertools.product(range(d), repeat=2)) * 2 + [(k, k) for k in range(d)] * 3)
    y, decided = pairs.T
    z = torch.randn(len(pairs), d, generator=generator, dtype=torch.float64).clamp(-1.5, 1.5)
    z.scatter_(1, decided[:, None], 2.5 + torch.rand(len(pairs), 1, generator=generator, dtype=torch.float64))
    return z, y, 0.5 + torch.rand(len(pairs), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("surrogate", ["Sigmoid", "LogitSigmoid", "Linear"])
@pytest.mark.parametrize("metric", OF_CELLS)
def test_sharp_binary_is_hard(metric: str, surrogate: str) -> None:
    converges(metric, surrogate, tuple(x[:, 0] if x.dim() > 1 else x for x in multilabel_data()))


@pytest.mark.parametrize("surrogate", ["Sigmoid", "LogitSigmoid", "Linear"])
@pytest.mark.parametrize("metric", OF_CELLS)
def test_sharp_multilabel_is_hard(metric: str, surrogate: str) -> None:
    for average in ("micro", "macro", "weighted", "samples", None):
        converges(metric, surrogate, multilabel_data(), task="multilabel", average=average)


@pytest.mark.parametrize("surrogate", ["Sigmoid", "LogitSigmoid", "Linear"])
def test_sharp_subset_accuracy_is_hard(surrogate: str) -> None:
    z, y, w = multilabel_data()
    y[::2] = (z[::2] > 0).long()  # half of the rows without an error
    hard = mg.MetricLoss("subset_accuracy", task="multilabel", average="samples", surrogate=Hard())(z, y, w)
    torch.testing.assert_close(hard, w[1::2].sum() / w.sum())
    converges("subset_accuracy", surrogate, (z, y, w), task="multilabel", average="samples")


@pytest.mark.parametrize("surrogate", SHARPER)
@pytest.mark.parametrize("metric", sorted({*OF_CELLS} - {*OF_MATRIX, "predicted_positive_rate"}))  # the mean is 1 / d
def test_sharp_multiclass_is_hard(metric: str, surrogate: str) -> None:
    for average in ("micro", "macro", "weighted", None):
        converges(metric, surrogate, multiclass_data(), task="multiclass", average=average)


@pytest.mark.parametrize("surrogate", SHARPER)
@pytest.mark.parametrize("metric", OF_MATRIX)
def test_sharp_multiclass_matrix_is_hard(metric: str, surrogate: str) -> None:
    converges(metric, surrogate, multiclass_data(), task="multiclass")


@pytest.mark.parametrize("thresholds", [(0.2,), (0.9,), (0.15, 0.5, 0.6)])
@pytest.mark.parametrize("surrogate", ["Sigmoid", "Linear"])
def test_sharp_step_is_hard_at_any_threshold(surrogate: str, thresholds: tuple[float, ...]) -> None:
    threshold: float | tuple[float, ...] = thresholds[0] if len(thresholds) == 1 else thresholds
    data = multilabel_data(thresholds=thresholds)
    for metric in ("f1", "mcc", "g_mean"):
        for average in ("micro", "macro", "samples", None):
            converges(metric, surrogate, data, task="multilabel", average=average, threshold=threshold)
    # Thresholds on either side of the probabilities: each its own decision.
    z = torch.logit(torch.tensor([0.05, 0.3, 0.55, 0.95, 0.3, 0.95], dtype=torch.float64))
    converges("f1", surrogate, (z, torch.tensor([0, 1, 0, 1, 0, 1])), threshold=threshold)


@pytest.mark.parametrize("shift", [-1.0, 0.7])
def test_sharp_logit_sigmoid_is_hard_at_its_shift(shift: float) -> None:
    """S(u; β, η) steps at −η, which is the threshold sigmoid(−η)."""
    threshold = float(torch.sigmoid(torch.tensor(-shift, dtype=torch.float64)))
    z, y, w = multilabel_data(thresholds=(threshold,))
    hard = mg.MetricLoss("f1", task="multilabel", surrogate=Hard(), threshold=threshold)(z, y, w)
    soft = mg.MetricLoss("f1", task="multilabel", surrogate=LogitSigmoid(beta=1e6, eta=shift))(z, y, w)
    torch.testing.assert_close(soft, hard)


@pytest.mark.parametrize("shape", ["linear", "cosine", "exponential"])
@pytest.mark.parametrize("surrogate", SHARPER)
def test_annealed_moves_from_start_to_end_and_stays(
    surrogate: str, shape: Literal["linear", "cosine", "exponential"]
) -> None:
    start, end = SHARPER[surrogate](1.0), SHARPER[surrogate](1e9)
    if surrogate == "LogitSigmoid":  # η = 0 has no ratio
        start, end = LogitSigmoid(beta=1.0, eta=0.1), LogitSigmoid(beta=1e9, eta=0.1)
    task: Any = "multiclass" if surrogate == "TopTwo" else "multilabel"
    data = multiclass_data() if surrogate == "TopTwo" else multilabel_data()
    annealed = Annealed(start, end, steps=4, shape=shape)
    loss = mg.MetricLoss("f1", task=task, surrogate=annealed)
    hard = mg.MetricLoss("f1", task=task, surrogate=Hard())(*data)
    values = []
    for _ in range(7):
        values.append(float(loss(*data)))
        annealed.step()
    assert values[0] == float(mg.MetricLoss("f1", task=task, surrogate=start)(*data))
    assert values[4] == values[5] == values[6] == float(mg.MetricLoss("f1", task=task, surrogate=end)(*data))
    assert annealed.current() == end
    gaps = [abs(value - float(hard)) for value in values]
    assert gaps[0] > 1e-3
    assert gaps[4] < 1e-7
    assert gaps[2] < gaps[0]


# ------------------------------------------------------------------------------------------ the theorems

REPLICATES = 100


def shrinks(soft: list[Tensor], hard: list[Tensor], sizes: list[int], limit: float) -> None:
    """Given values ``(REPLICATES,)`` at each size: they meet, at the rate of 1/√n, and in the limit."""
    gaps = [float((s - h).abs().mean()) for s, h in zip(soft, hard, strict=True)]
    for (small, large), (wide, narrow) in zip(itertools.pairwise(sizes), itertools.pairwise(gaps), strict=True):
        expected = (small / large) ** 0.5
        # The mean of 100 absolute normal numbers is known to about 8 %, a ratio of two to 11 %.
        assert expected / 1.5 < narrow / wide < 1.5 * expected
    for values in (soft, hard):
        for n, value in zip(sizes, values, strict=True):
            error = float(value.std()) / REPLICATES**0.5
            # F1 is biased at finite n, by something of the order 1/n.
            assert abs(float(value.mean()) - limit) < 4 * error + 2 / n


METRICS_IN_THE_LIMIT: dict[str, Callable[[float, float, float], float]] = {
    # Of u, v and r: the chance to call a positive and a negative one positive, and the share of positives.
    "f1": lambda u, v, r: 2 * r * u / (r + r * u + v - r * v),
    "accuracy": lambda u, v, r: r * u + (1 - r) * (1 - v),
    "jaccard": lambda u, v, r: r * u / (r + (1 - r) * v),
    "g_mean": lambda u, v, r: (u * (1 - v)) ** 0.5,
}


@pytest.mark.parametrize("metric", METRICS_IN_THE_LIMIT)
@pytest.mark.parametrize(("u", "v", "r"), [(0.8, 0.1, 0.3), (0.6, 0.3, 0.05)])
def test_binary_soft_and_hard_value_meet(metric: str, u: float, v: float, r: float) -> None:
    """[tsoi2022, sec. 4.2, eq. 9–12; supplement 1.2]: soft memberships are Beta, hard ones Bernoulli of equal mean."""
    generator = torch.Generator().manual_seed(2)
    sizes = [300, 3000, 12000]
    soft: list[Tensor] = []
    hard: list[Tensor] = []
    for n in sizes:
        y = (torch.arange(n) < r * n).double()[:, None]
        mean = u * y + v * (1 - y)
        # Concentration 2: wide Beta distributions, far from both the mean and the hard ones.
        shape = (REPLICATES, n, 1)
        a, b = (_gamma((2 * share).expand(shape), generator) for share in (mean, 1 - mean))
        bernoulli = (torch.rand(shape, generator=generator, dtype=torch.float64) < mean).double()
        for values, memberships in ((soft, a / (a + b)), (hard, bernoulli)):
            values.append(M.get(metric)(mg.count(memberships, y)).squeeze(-1))
    shrinks(soft, hard, sizes, METRICS_IN_THE_LIMIT[metric](u, v, r))


@pytest.mark.parametrize("beta", [0.5, 1.0, 3.0])
def test_multiclass_soft_and_hard_value_meet(beta: float) -> None:
    """[tsoi2024, sec. 5.2, eq. 7–14]: soft memberships are Dirichlet, hard ones Categorical of equal mean."""
    generator = torch.Generator().manual_seed(3)
    p = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.05, 0.15, 0.8]], dtype=torch.float64)
    q = torch.tensor([0.5, 0.4, 0.1], dtype=torch.float64)
    sizes = [300, 3000, 12000]
    soft: list[Tensor] = []
    hard: list[Tensor] = []
    for n in sizes:
        y = torch.repeat_interleave((q * n).round().long())
        gamma = _gamma((2 * p[y]).expand(REPLICATES, n, 3), generator)
        dirichlet = gamma / gamma.sum(-1, keepdim=True)
        drawn = torch.rand(REPLICATES, n, 1, generator=generator, dtype=torch.float64)
        first = (drawn > p[y].cumsum(-1)).sum(-1, keepdim=True).clamp_max(2)
        categorical = torch.zeros_like(dirichlet).scatter_(-1, first, 1.0)
        hot = torch.nn.functional.one_hot(y, 3).double()
        for values, memberships in ((soft, dirichlet), (hard, categorical)):
            counts: Counts = Confusion(hot.T @ memberships).counts()
            values.append(M.f_beta(counts, beta=beta).mean(-1))
    b = beta**2
    limit = ((1 + b) * p.diagonal() * q / (b * q + q @ p)).mean()  # eq. 10 and 14
    shrinks(soft, hard, sizes, float(limit))


def _gamma(shape: Tensor, generator: torch.Generator) -> Tensor:
    """Gamma numbers, whose shares are Beta and Dirichlet; with a generator of one's own, so that it repeats."""
    return torch._standard_gamma(shape, generator)
