"""Boxes: limits of a metric and its slopes hold at every point of every box."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics
from metricgrad.core.metrics import bounds

pytestmark = pytest.mark.quick

P, N = 5, 6
ARITHMETIC = [name for name in metrics.names() if name not in ("quadratic_kappa", "subset_accuracy")]


def plain_f1(c: Any) -> Any:
    return 2 * c.tp / (2 * c.tp + c.fp + c.fn)


def harmonic(c: Any) -> Any:
    return metrics.ratio(2 * metrics.precision(c) * metrics.recall(c), metrics.precision(c) + metrics.recall(c))


def odd(c: Any) -> Any:
    return 0.5 - c.fp * (c.tn - 2.0) / (3 - -c.tp) + 1 / (1 + c.total)


def information(c: Any) -> Any:
    return metrics.log(metrics.ratio(c.tp, c.predicted), empty=-2.0) - metrics.log(c.fp, empty=0.5)


def every_box() -> Tensor:
    ends = [
        (a, c, b, d)
        for a, c in itertools.combinations_with_replacement(range(P + 1), 2)
        for b, d in itertools.combinations_with_replacement(range(N + 1), 2)
    ]
    return torch.tensor(ends)


@pytest.mark.parametrize("metric", [*ARITHMETIC, plain_f1, harmonic, odd, information])
def test_limits_hold(metric: Any) -> None:
    metric = metrics.get(metric)
    tp = torch.arange(P + 1.0, dtype=torch.float64)[:, None].expand(P + 1, N + 1).clone().requires_grad_()
    fp = torch.arange(N + 1.0, dtype=torch.float64).expand(P + 1, N + 1).clone().requires_grad_()
    values = metric(mg.Counts(tp, fp, P - tp, N - fp))
    along_tp, along_fp = (
        torch.zeros_like(tp) if g is None else g for g in torch.autograd.grad(values.sum(), (tp, fp), allow_unused=True)
    )
    everywhere = every_box()
    span: Any = tuple(everywhere.double().unbind(1))
    found = bounds.limits(metric, span, float(P), float(N))
    least, *slopes = (x.expand(len(everywhere)) for x in (found.least, *found.along_tp, *found.along_fp))
    bounded = 0
    for i, (a, c, b, d) in enumerate(everywhere.tolist()):
        inside = slice(a, c + 1), slice(b, d + 1)
        true = values[inside].detach()
        if least[i].isfinite():
            assert least[i] <= true.min() + 1e-12
            bounded += 1
        if (a, b) == (c, d) and true.isfinite().all():
            assert float(least[i]) == pytest.approx(float(true), abs=1e-12)
        for given, low, high in ((along_tp, slopes[0], slopes[1]), (along_fp, slopes[2], slopes[3])):
            if low[i].isfinite() and high[i].isfinite():
                assert low[i] <= given[inside].min() + 1e-9
                assert high[i] >= given[inside].max() - 1e-9
    assert bounded > len(everywhere) / 2


@pytest.mark.parametrize("metric", [metrics.subset_accuracy, lambda c: c.tp.clamp(max=1), lambda c: c.tp == 1])
def test_what_is_not_arithmetic_is_told(metric: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        bounds.limits(metric, tuple(torch.ones(4, 1)), 2.0, 2.0)
