"""Cutting planes of a linear model, and the quadratic program over them."""

from __future__ import annotations

import torch
from torch import Tensor


class Planes:
    """The cutting planes found so far, and the best weights for them."""

    def __init__(self, features: int, total: float) -> None:
        # The plane of the true labelling, which costs nothing, makes the multipliers sum to C.
        self.slopes = torch.zeros(1, features, dtype=torch.float64)
        self.losses = torch.zeros(1, dtype=torch.float64)
        self.products = torch.zeros(1, 1, dtype=torch.float64)
        self.multipliers = torch.full((1,), total, dtype=torch.float64)
        self.value = 0.0

    def add(self, loss: float, slope: Tensor) -> Tensor:
        """Add a plane, solve the dual program, and return the weights."""
        self.slopes = torch.cat((self.slopes, slope.unsqueeze(0)))
        self.losses = torch.cat((self.losses, self.losses.new_tensor([loss])))
        column = self.slopes @ slope
        self.products = torch.cat((torch.cat((self.products, column[:-1, None]), 1), column[None]))
        self.multipliers = _dual(self.products, self.losses, torch.cat((self.multipliers, column.new_zeros(1))))
        w = -self.multipliers @ self.slopes
        self.value = max(self.value, float(self.multipliers @ self.losses - 0.5 * w @ w))
        return w


def _dual(products: Tensor, losses: Tensor, a: Tensor) -> Tensor:
    """Maximise losses·a − ½ aᵀ·products·a over a ≥ 0 of unchanged sum, by an active set that starts from ``a``."""
    total = a.sum()
    a = a / total
    products = products * total
    used = a > 0
    entered = -1
    for _ in range(10 * len(a)):
        a, used, level = _face(products, losses, a, used)
        if entered >= 0 and not used[entered]:
            break  # it was added only because of rounding
        slope = losses - products @ a
        entered = int(slope.masked_fill(used, -torch.inf).argmax())
        if used.all() or slope[entered] <= level + 1e-12 * losses.abs().max():
            break
        used[entered] = True
    a = a.clamp(min=0)  # rounding
    return a * (total / a.sum())


def _face(products: Tensor, losses: Tensor, a: Tensor, used: Tensor) -> tuple[Tensor, Tensor, float]:
    """Maximise over the multipliers in use, dropping those that would turn negative on the way."""
    while True:
        rows = used.nonzero().squeeze(1)
        m = len(rows)
        system = torch.ones(m + 1, m + 1, dtype=a.dtype)
        system[:m, :m] = products[rows][:, rows]
        system[:m, :m].diagonal().add_(1e-13 * float(products.diagonal().max()))  # planes may be linearly dependent
        system[m, m] = 0.0
        solution = torch.linalg.solve(system, torch.cat((losses[rows], a.new_ones(1))))
        here = a[rows]
        there = solution[:m]
        step, last = torch.where(there < 0, here / (here - there), 1.0).min(0)
        a = torch.zeros_like(a).index_copy_(0, rows, here + step * (there - here))
        if not (there < 0).any():
            return a, used, float(solution[m])
        a[rows[last]] = 0.0
        used = used.clone()
        used[rows[last]] = False
