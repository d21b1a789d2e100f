"""Random batches, degenerate ones above all: the loss must be finite, and equal what it should be.

A case is made from its number alone. Value and gradient must be finite and equal those of the plain autograd path in
float64, which is the same loss with its surrogate wrapped in a function, so that the kernel does not serve. How equal
follows from the case: the reference is computed again with memberships moved by their rounding, and what that changes
is allowed. One case in a hundred is also held against ``tests/support/reference.py``, which shares nothing with the
library.
"""

from __future__ import annotations

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics as M
from metricgrad import surrogates as s

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))
import reference

NAIVE_EVERY = 100
DEEP = 1e-28
"""Memberships times weights below this underflow in float32 arithmetic: there only finite results are asked for."""

Member = Callable[[Tensor], Tensor]


def _torch_metric(c: mg.Counts) -> Tensor:
    """Be a metric of more than arithmetic, which autograd differentiates."""
    return 1 - torch.exp(-3 * M.ratio(c.tp, c.predicted + c.positives))


ELEMENTWISE: list[Callable[[random.Random], Any]] = [
    lambda r: s.Linear(),
    lambda r: s.Linear(r.choice([0.0, 1e-3, 0.1, 0.3, 0.5]), r.choice([1.0, 0.5, 0.01])),
    lambda r: s.Sigmoid(r.choice([1.0, 10.0, 50.0, 1e3])),
    lambda r: s.LogitSigmoid(r.choice([0.1, 1.0, 20.0]), r.choice([0.0, 3.0, -2.0])),
    lambda r: s.Identity(),
    lambda r: s.UnitsVsZeros(r.choice([1.0, 5.0]), r.choice([0.0, 1.0])),
    lambda r: s.Unbounded(),
    lambda r: s.Hard(),
    lambda r: s.StraightThrough(r.choice([s.Linear(), s.Sigmoid(), s.LogitSigmoid()])),
    lambda r: s.Table(s.Linear(), r.choice([2, 3])),
]
ROWWISE: list[Callable[[random.Random], Any]] = [
    lambda r: s.TopTwo(),
    lambda r: s.TopTwo(r.choice([0.0, 0.1, 0.5]), r.choice([1.0, 0.3])),
    lambda r: s.Linear(),
    lambda r: s.Sigmoid(r.choice([10.0, 100.0])),
    lambda r: s.LogitSigmoid(r.choice([1.0, 10.0])),
    lambda r: s.Identity(),
    lambda r: s.Hard(),
    lambda r: s.StraightThrough(s.TopTwo()),
]
FLOAT64_ONLY = (s.Hard, s.StraightThrough, s.Table, s.Unbounded)
"""Surrogates whose value jumps, so that rounding decides, or grows without bound, so that it cancels."""

METRICS: list[Any] = [
    *(name for name in M.names() if name not in ("subset_accuracy", "quadratic_kappa")),
    *("f0.5", "f2", "f20"),
    partial(M.tversky, alpha=0.3, beta=0.7),
    partial(M.savings, fp=1.0, fn=30.0),
    partial(M.precision, empty=1.0),
    _torch_metric,
]
OF_MATRIX = ["accuracy", "balanced_accuracy", "g_mean", "mcc", "kappa", "quadratic_kappa"]

OTHERS: list[Callable[[], Any]] = [
    lambda: mg.HybridLoss("f1", task="multilabel"),
    lambda: mg.baselines.focal(task="multilabel"),
    lambda: mg.baselines.asymmetric(),
    lambda: mg.baselines.dice(per_image=True, task="multilabel"),
    lambda: mg.baselines.dice(smooth=1.0, task="multilabel"),
    lambda: mg.baselines.focal_tversky(task="multilabel"),
    lambda: mg.baselines.focal_tversky(gamma=0.5, task="multilabel"),
    lambda: mg.baselines.lovasz_hinge(task="multilabel"),
    lambda: mg.AUROCLoss(task="multilabel"),
    lambda: mg.AUROCLoss(curve="pr", task="multilabel"),
    lambda: mg.WMWLoss(task="multilabel"),
    lambda: mg.RecallAtPrecisionLoss(0.9, task="multilabel"),
    lambda: mg.RecallAtFPRLoss(0.1, task="multilabel"),
    lambda: mg.PrecisionAtKLoss(2, task="multilabel"),
    lambda: mg.PRBEPLoss(task="multilabel"),
    lambda: mg.EERLoss(task="multilabel"),
    lambda: mg.ConstrainedLoss("recall", "precision>=0.9", task="multilabel"),
]
"""The losses that are no metric of counts: finite results are asked for, and the value of float64."""


@dataclass
class Case:
    """One call of a loss."""

    loss: Any
    logits: Tensor
    targets: Tensor
    weight: Tensor | None
    mask: Tensor | None
    options: dict[str, Any]

    def __str__(self) -> str:
        given = [name for name in ("weight", "mask") if getattr(self, name) is not None]
        about = f"{self.logits.dtype}".removeprefix("torch.")
        return f"{self.loss} {tuple(self.logits.shape)} {about} {' '.join(given)}"


def make(number: int) -> Case:
    """Return the case of this number."""
    r, g = random.Random(f"batches {number}"), torch.Generator().manual_seed(number)  # noqa: S311
    return build(r, g, r.choice(["binary", "multilabel", "multilabel", "multiclass"]))


def build(r: random.Random, g: torch.Generator, task: str) -> Case:
    """Return a random case of a task."""
    rows = r.choice([0, 1, 2, 3, 5, 8, 16, 33, 70]) if r.random() < 0.999 else 1 << 18
    classes = 1 if task == "binary" else r.choice([1, 2, 3, 5, 8]) if rows < 100 else 3
    dtype = r.choices([torch.float32, torch.float64, torch.float16, torch.bfloat16], [6, 2, 1, 1])[0]
    shape = (rows, classes) if task != "binary" or r.random() < 0.3 else (rows,)
    z = _logits(r, g, (rows, classes)).to(dtype).view(shape)
    y = _targets(r, g, task, rows, classes)
    y = y.view(shape) if task == "binary" else y
    w = _weight(r, g, rows, classes if task == "multilabel" else 1)
    if w is not None and task == "binary":
        w = w.view(rows)
    mask = None if r.random() < 0.75 else _mask(r, g, w, rows, classes if task == "multilabel" else 1, task)
    options: dict[str, Any] = {"task": task}
    if r.random() < 0.1 and rows < 100 and task == "multilabel":
        return Case(r.choice(OTHERS)(), z, (y > 0.5).to(y.dtype), w, mask, options)
    options |= _options(r, task, classes)
    if r.random() < 0.1 and not (task == "multiclass" and y.dim() == 2):
        options["ignore_index"] = -7
        void = torch.rand(y.shape, generator=g) < r.choice([0.2, 1.0])
        y = y.masked_fill(void, -7)
    if mask is not None and rows and r.random() < 0.5:  # what is masked may be anything
        hidden = ~mask if mask.shape == z.shape else ~_columns(mask).expand(rows, classes).reshape(z.shape)
        z = z.masked_fill(hidden, r.choice([math.nan, math.inf]))
    return Case(mg.MetricLoss(**options), z, y, w, mask, options)


def _logits(r: random.Random, g: torch.Generator, shape: tuple[int, int]) -> Tensor:
    z = torch.randn(shape, generator=g)
    kind = r.randrange(10)
    if kind < 3:
        return z * r.choice([0.5, 2.0, 8.0])
    if kind < 5:
        return z * r.choice([1.0, 4.0]) + r.choice([-110, -87, -70, -60, -45, -14, 14, 25, 60])
    if kind == 5:
        return z * r.choice([30.0, 120.0, 1e4])
    if kind == 6:  # a few levels: ties
        return (z * 2).round() * r.choice([0.0, 1.0, 20.0])
    if kind == 7:  # one sample alive, the others saturated
        dead = torch.full(shape, r.choice([-120.0, -95.0, -60.0, 60.0])) + z
        dead[: r.randrange(1, 3)] = r.choice([-14.0, 0.0, 14.0])
        return dead
    if kind == 8:  # each class at a place of its own
        return z + torch.randint(-100, 100, (1, shape[1]), generator=g)
    return (torch.rand(shape, generator=g) * 240 - 120) * r.choice([1.0, 1e-40])


def _targets(r: random.Random, g: torch.Generator, task: str, rows: int, classes: int) -> Tensor:
    kind = r.randrange(8)
    if task == "multiclass" and kind < 6:
        y = torch.randint(0, classes, (rows,), generator=g)
        return y if kind < 3 else torch.zeros_like(y) if kind == 3 else (y * (torch.arange(rows) == 0))
    shape = (rows, classes)
    share = r.choice([0.5, 0.1, 0.9])
    y = (torch.rand(shape, generator=g) < share).float()
    if kind == 1:
        y = torch.zeros(shape)
    elif kind == 2:
        y = torch.ones(shape)
    elif kind == 3:
        y = torch.zeros(shape)
        y[:1] = 1
    elif kind == 4:
        y = torch.ones(shape)
        y[:1] = 0
    elif kind == 5:
        y = torch.rand(shape, generator=g)
    if task == "multiclass":  # soft labels of rows
        y = torch.rand(shape, generator=g) + 1e-3
        return (y / y.sum(1, keepdim=True)).clamp(max=1)
    return y.to(r.choice([torch.float32, torch.int64])) if kind != 5 else y


def _weight(r: random.Random, g: torch.Generator, rows: int, classes: int) -> Tensor | None:
    if r.random() < 0.5:
        return None
    shape = (rows, classes) if r.random() < 0.5 and classes > 1 else (rows,)
    w = torch.rand(shape, generator=g)
    kind = r.randrange(6)
    if kind == 1:
        w = torch.ones(shape)
    elif kind == 2:
        w = torch.zeros(shape)
    elif kind == 3:
        w = w * (torch.rand(shape, generator=g) < 0.3)
    elif kind == 4:
        w = w * r.choice([1e-40, 1e-30, 1e-12, 1e12, 1e30])
    elif kind == 5:
        w = 10 ** (w * 12 - 6)
    return w


def _mask(r: random.Random, g: torch.Generator, w: Tensor | None, rows: int, classes: int, task: str) -> Tensor:
    shape = (rows, classes) if r.random() < 0.5 and classes > 1 else (rows,)
    return torch.rand(shape, generator=g) < r.choice([0.0, 0.5, 0.9])


def _options(r: random.Random, task: str, classes: int) -> dict[str, Any]:
    options: dict[str, Any] = {"metric": r.choice(METRICS), "average": r.choice(["macro", "micro", "weighted", None])}
    if task == "binary":
        options["average"] = "macro"  # the others are of several classes
    if task == "multiclass":
        options["surrogate"] = r.choice(ROWWISE)(r)
        if r.random() < 0.4:
            options["metric"] = r.choice(OF_MATRIX)
    else:
        options["surrogate"] = r.choice(ELEMENTWISE)(r)
        if getattr(options["surrogate"], "takes_threshold", False) and r.random() < 0.3:
            options["threshold"] = r.choice([0.3, 0.9, 0.02, [0.2, 0.5, 0.8]])
        if isinstance(options["surrogate"], s.Unbounded) and options["metric"] is _torch_metric:
            options["metric"] = "f1"  # the exponential of what has no bound has none
    if task == "multilabel" and r.random() < 0.25:
        options["average"] = "samples"
        if r.random() < 0.2:
            options["metric"] = "subset_accuracy"
    of_matrix = task == "multiclass" and options["metric"] in OF_MATRIX
    if r.random() < 0.15 and classes > 1 and not of_matrix:
        options["labels"] = [k for k in range(classes) if k % 2 == 0]
    if r.random() < 0.3:
        options["empty_classes"] = "skip"
    return options


# What must hold


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    return check_case(number, make(number))


def check_case(number: int, case: Case) -> str | None:
    """Return the same of a case that is made already."""
    try:
        value, gradient = run(case.loss, case.logits, case)
    except Exception as error:
        return f"{type(error).__name__}: {error} | {case}"
    kind = case.logits.dtype
    if kind is torch.float16:  # where a gradient may be too large for the type, as it may be for any loss
        gradient = gradient.clamp(-torch.finfo(kind).max, torch.finfo(kind).max)
    unbounded = isinstance(case.options.get("surrogate"), s.Unbounded)
    if unbounded and bool((plain(case).gradient.abs() > 1e30).any()):
        return None  # its denominator all but vanishes, as its documentation says
    if not value.isfinite().all() or not gradient.isfinite().all():
        return f"not finite: {value.tolist()}, gradient {gradient.isfinite().all().item()} | {case}"
    if "surrogate" not in case.options:
        return _other(case, value)
    return _equal(number, case, value, gradient)


def run(loss: Any, logits: Tensor, case: Case, wide: bool = False) -> tuple[Tensor, Tensor]:
    """Return value and gradient of a loss; ``wide``: with the weights in float64."""
    z = logits.detach().clone().requires_grad_()
    w = case.weight.double() if wide and case.weight is not None else case.weight
    value = loss(z, case.targets, w, case.mask)
    value.sum().backward()
    assert z.grad is not None
    return value.detach(), z.grad


def _other(case: Case, value: Tensor) -> str | None:
    if case.logits.dtype is not torch.float32 or bool((case.logits.abs() > 20).any()):
        return None
    if case.weight is not None and bool((case.weight < 1e-20).any()):
        return None
    exact, _ = run(case.loss, case.logits.double(), case, wide=True)
    off = (value.double() - exact).abs().max().item()
    return None if off <= 2e-3 * max(1.0, exact.abs().max().item()) else f"value off by {off:.2g} | {case}"


@dataclass
class Plain:
    """The plain path in float64: value, gradient with respect to the logits, memberships and theirs."""

    value: Tensor
    gradient: Tensor
    members: list[Tensor]
    by_member: list[Tensor]


def plain(case: Case, members: Any = None, cells: Any = None) -> Plain:
    """Return the loss by differentiable operations alone.

    ``members``: by which share memberships are to be moved. ``cells``: what becomes of the statistic.
    """
    step, z = case.options["surrogate"], case.logits.detach().double().requires_grad_()
    thresholds = case.options.get("threshold", 0.5)
    kept: list[Tensor] = []

    def surrogate(flat: Tensor, threshold: float) -> Tensor:
        if case.options["task"] == "multiclass":
            m = step.rows(flat)
        elif step.takes_targets:
            m = step(flat, *_labels(case, flat))
        else:
            m = step(flat, threshold)
        m = m if members is None else m * (1 + members(m.detach()))
        m.retain_grad()
        kept.append(m)
        return m  # type: ignore[no-any-return]

    options = {key: value for key, value in case.options.items() if key not in ("surrogate", "threshold")}
    if cells is not None:
        options["metric"] = _after(cells, M.get(options["metric"]))
    several = thresholds if isinstance(thresholds, list) else [thresholds]
    losses = [mg.MetricLoss(surrogate=partial(surrogate, threshold=t), **options) for t in several]
    w = None if case.weight is None else case.weight.double()
    value = torch.stack([loss(z, case.targets, w, case.mask) for loss in losses]).mean(0)
    value.sum().backward()
    assert z.grad is not None
    slopes = [torch.zeros_like(m) if m.grad is None else m.grad for m in kept]
    return Plain(value.detach(), z.grad, [m.detach() for m in kept], slopes)


def _after(cells: Any, metric: Any) -> Any:
    """Return the metric of what ``cells`` makes of a statistic; of the kind that the metric takes."""
    if M.of_matrix(metric):

        def either(c: mg.Counts | mg.Confusion) -> Tensor:
            return metric(cells(c))  # type: ignore[no-any-return]

        return either

    def of_counts(c: mg.Counts) -> Tensor:
        return metric(cells(c))  # type: ignore[no-any-return]

    return of_counts


def _labels(case: Case, flat: Tensor) -> tuple[Tensor, Tensor]:
    y = case.targets.reshape(flat.shape).double()
    keep = torch.ones_like(y, dtype=torch.bool)
    if case.mask is not None:
        keep = keep & _columns(case.mask)
    if "ignore_index" in case.options:
        keep = keep & (y != case.options["ignore_index"])
    return y.where(keep, 0), keep


def _equal(number: int, case: Case, value: Tensor, gradient: Tensor) -> str | None:
    exact = plain(case)
    if number % NAIVE_EVERY == 0 and not _saturated(case, exact, 1e-12):
        naive = _naive(case)
        if naive is not None and not abs(naive - exact.value.item()) <= 1e-9:
            return f"plain path {exact.value.item()!r}, naive loops {naive!r} | {case}"
    kind = case.logits.dtype
    step = case.options["surrogate"]
    if kind is not torch.float64 and (isinstance(step, FLOAT64_ONLY) or _deep(case, exact)):
        return None
    eps = torch.finfo(torch.float64 if kind is torch.float64 else torch.float32).eps
    eps *= max(1.0, math.sqrt(len(case.logits)) / 16)  # the rounding of a sum of many
    finite = case.logits.detach().double().nan_to_num(0.0, 0.0, 0.0)
    largest = min(finite.abs().max().item(), 1e3) if finite.numel() else 0.0
    size = eps * (16 + 2 * getattr(step, "k", 1.0) + largest * (1 + _beta(step)))
    tight = 16 * eps, _gradient_tolerance(case, exact, eps)
    wrong = _differences(value, gradient, exact, *tight)
    if wrong is None:
        return None
    # Rounding alone may do more than that where a metric is ill-conditioned: let it.
    if case.options["metric"] == "worst_recall" or _saturated(case, exact, eps):
        # Rounding decides what FN or TN is, or which of two equal rates is the worse one: not a gradient to compare.
        tight = tight[0], torch.full_like(tight[1], math.inf)
    moved = [plain(case, **noise) for noise in _noises(size, number, case)]
    values = torch.stack([(m.value - exact.value).abs() for m in moved]).amax(0)
    gradients = torch.stack([(m.gradient - exact.gradient).abs() for m in moved]).amax(0)
    wrong = _differences(value, gradient, exact, tight[0] + 4 * values, tight[1] + 4 * gradients)
    return None if wrong is None else f"{wrong} | {case}"


def _differences(value: Tensor, gradient: Tensor, exact: Plain, by_value: Any, by_gradient: Tensor) -> str | None:
    """Return what differs by more than is allowed."""
    off = (value.double() - exact.value).abs()
    if bool((off > by_value).any()):
        return f"value {value.tolist()} is not {exact.value.tolist()}, allowed {torch.as_tensor(by_value).tolist()}"
    off = (gradient.double() - exact.gradient).abs()
    if bool((off > by_gradient).any()):
        i = int((off - by_gradient).argmax())
        got, wanted, most = (x.reshape(-1)[i].item() for x in (gradient, exact.gradient, by_gradient))
        return f"gradient {got:.6g} is not {wanted:.6g}, allowed {most:.2g}, element {i}"
    return None


def _columns(x: Tensor) -> Tensor:
    return x.unsqueeze(1) if x.dim() == 1 else x


def _beta(step: Any) -> float:
    return float(step.beta) if isinstance(step, s.LogitSigmoid) else 0.0


def _deep(case: Case, exact: Plain) -> bool:
    """Tell whether anything that is summed underflows in float32."""
    w = torch.ones(()) if case.weight is None else case.weight.double()
    sizes = [m.abs() * _columns(w) for m in exact.members] + [m.abs() for m in exact.members] + [w]
    return any(bool(((size > 0) & (size < DEEP)).any()) for size in sizes)


def _saturated(case: Case, exact: Plain, eps: float) -> bool:
    """Tell whether all of a class are predicted up to rounding, so that FN or TN is nothing but rounding."""
    w = torch.ones((), dtype=torch.float64) if case.weight is None else _columns(case.weight).double()
    for m in exact.members:
        y = case.targets.reshape(len(m), -1) if case.targets.numel() else m
        y = torch.nn.functional.one_hot(y[:, 0].clamp(min=0), m.shape[1]) if y.shape != m.shape else y
        for side in (y.double().clamp(0, 1) * w, (1 - y.double().clamp(0, 1)) * w):
            for axis in (0, 1) if case.options["average"] == "samples" else (0,):
                rest, margin = ((1 - m) * side).sum(axis), side.sum(axis)
                if bool((rest < 4000 * eps * margin).any()):
                    return True
            if case.options["average"] == "micro" and bool(((1 - m) * side).sum() < 4000 * eps * side.sum()):
                return True
    return False


def _noises(size: float, number: int, case: Case) -> Iterator[dict[str, Any]]:
    """Yield what rounding may do: to the memberships, and to the cells that they are summed into."""
    yield {"members": lambda m: torch.full_like(m, size)}
    yield {"members": lambda m: torch.full_like(m, -size)}
    if case.logits.dtype is not torch.float64:
        yield {"members": lambda m: M.ratio(m.float().double() - m, m)}
    r = random.Random(number)  # noqa: S311
    for signs in itertools.product((-1, 1), repeat=3):
        others = [r.choice([-1, 1]) for _ in range(61)]
        yield {"cells": partial(_moved, sizes=[size * sign for sign in (1, *signs, *others)])}


def _moved(c: Any, sizes: list[float]) -> Any:
    """Return cells off by their rounding: TP and FP by a share of their own, FN and TN of P and N."""
    if isinstance(c, mg.Confusion):
        d = c.matrix.shape[-1]
        return mg.Confusion(c.matrix * (1 + torch.tensor(sizes[: d * d], dtype=torch.float64).view(d, d)))
    tp, fp, fn, tn = sizes[:4]
    missed, passed = c.fn + fn * c.positives, c.tn + tn * c.negatives
    return mg.Counts(c.tp * (1 + tp), c.fp * (1 + fp), missed.clamp(min=0), passed.clamp(min=0))


def _gradient_tolerance(case: Case, exact: Plain, eps: float) -> Tensor:
    """Return by how much each element of the gradient may be off, the sums being exact."""
    allowed = 1e2 * eps * exact.gradient.abs()
    shape = exact.members[0].shape
    z = case.logits.detach().double().nan_to_num(0.0, 0.0, 0.0).reshape(shape)
    by_member = torch.stack(exact.by_member).abs().mean(0)
    steep, unsure = _slopes(case, z, eps)
    if case.options["task"] == "multiclass":
        # The gradient of a row is a difference: its rounding is that of the largest part.
        error = 64 * eps * steep * (by_member * torch.softmax(z, 1)).sum(1, keepdim=True)
        error = error + 64 * eps * steep * by_member.amax(1, keepdim=True) * eps
    else:
        # Near one, a probability is known to the rounding of one, and so is its slope.
        error = 32 * eps * steep * by_member * torch.sigmoid(z).where(z > 0, 0.0)
    error = error.expand(shape).masked_fill(unsure, math.inf)
    allowed = allowed + error.reshape(allowed.shape)
    if case.logits.dtype in (torch.float16, torch.bfloat16):
        allowed = allowed + torch.finfo(case.logits.dtype).eps * exact.gradient.abs() + 6e-8
    return allowed + 8 * eps * steep


def _slopes(case: Case, z: Tensor, eps: float) -> tuple[float, Tensor]:
    """Return the steepest slope of the surrogate, and where rounding decides on which side of a knot a logit falls."""
    step, near = case.options["surrogate"], 64 * eps
    unsure = torch.zeros_like(z, dtype=torch.bool)
    if case.options["task"] == "multiclass":
        p = torch.softmax(z, 1)
        if p.shape[1] < 2:
            return 1.0, unsure
        top = p.topk(min(3, p.shape[1]), 1).values
        tau = top[:, :2].mean(1, keepdim=True)
        width = getattr(step, "width", 1.0)
        knots = [tau * (1 - width / 2), tau * (1 + width / 2)]
        rows = ((top.diff(dim=1).abs() < near).any(1, keepdim=True)).expand_as(p)
        for knot in knots:
            rows = rows | ((p - knot).abs() < near).any(1, keepdim=True)
        steepest = getattr(step, "k", getattr(step, "beta", 1.0 / width)) * p.shape[1]
        return float(steepest) * 4, rows
    if isinstance(step, s.Linear):
        p = torch.sigmoid(z)
        thresholds = case.options.get("threshold", 0.5)
        steepest = 1.0
        for threshold in thresholds if isinstance(thresholds, list) else [thresholds]:
            low, high, *slopes = step.pieces(threshold)
            unsure = unsure | ((p - low).abs() < near) | ((p - high).abs() < near)
            steepest = max(steepest, *slopes)
        return steepest, unsure
    return float(getattr(step, "k", 1.0)) * (1 + _beta(step)) * getattr(step, "alpha", 1.0), unsure


# The naive loops


def _naive(case: Case) -> float | None:
    """Return the loss by the slow reference, or None where it does not reach."""
    o, step = case.options, case.options["surrogate"]
    name = o["metric"] if isinstance(o["metric"], str) else ""
    of_matrix = o["task"] == "multiclass" and name in OF_MATRIX
    metric = _naive_metric(name, of_matrix)
    plain_case = case.mask is None and "ignore_index" not in o and "threshold" not in o and o["average"] is not None
    if metric is None or not plain_case or len(case.logits) > 100:
        return None
    z = _columns(case.logits.detach()).double().numpy()
    member = _naive_members(z, step, case)
    if member is None:
        return None
    w = None if case.weight is None else _columns(case.weight).double().numpy()
    w = None if w is None else np.broadcast_to(w, z.shape)
    if o["task"] == "multiclass":
        if case.targets.dim() == 2:
            return None
        matrix = reference.confusion(member, case.targets.tolist(), None if w is None else w[:, 0])
        if of_matrix:
            return 1 - float(metric(matrix))
        cells = reference.one_vs_rest(matrix)
    else:
        y = case.targets.double().numpy().reshape(z.shape)
        if o["average"] == "samples":
            return None if "labels" in o else 1 - reference.samples(member, y, metric, w)
        cells = reference.counts(member, y, w)
    if o["average"] == "micro":
        return 1 - reference.micro(cells, metric, o.get("labels"))
    values = [metric(*(cells[c][k] for c in ("tp", "fp", "fn", "tn"))) for k in range(z.shape[1])]
    positives = [cells["tp"][k] + cells["fn"][k] for k in range(z.shape[1])]
    averaged = reference.average(values, positives, o["average"], o.get("labels"), o.get("empty_classes", "count"))
    return 1 - float(averaged)


def _naive_metric(name: str, of_matrix: bool) -> Any:
    if of_matrix:
        return getattr(reference, f"matrix_{name}", None)
    if name[:1] == "f" and name[1:].replace(".", "").isdigit():
        return partial(reference.f_beta, beta=float(name[1:]))
    return getattr(reference, name, None)


def _naive_members(z: Any, step: Any, case: Case) -> Any:
    if case.options["task"] == "multiclass":
        if z.shape[1] < 2 or type(step) not in (s.TopTwo, s.Identity):
            return None
        row = partial(reference.top_two_row, delta=step.delta, width=step.width) if type(step) is s.TopTwo else None
        return np.array([(row or reference.softmax)(line) for line in z]).reshape(z.shape)
    function: Callable[[float], float]
    if type(step) is s.Linear:
        function = lambda u: reference.linear_step(reference.sigmoid(u), 0.5, step.delta, step.width)  # noqa: E731
    elif type(step) is s.Sigmoid:
        function = lambda u: reference.sigmoid_step(reference.sigmoid(u), 0.5, step.k)  # noqa: E731
    elif type(step) is s.LogitSigmoid:
        function = lambda u: reference.logit_sigmoid(u, float(step.beta), float(step.eta))  # noqa: E731
    elif type(step) is s.Identity:
        function = reference.sigmoid
    else:
        return None
    return np.vectorize(function, otypes=[float])(z)


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
