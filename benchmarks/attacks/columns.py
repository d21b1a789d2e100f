"""Binary batches of several columns: logits of any shape are one class, and equal the same logits in one column.

A case is a binary case of ``batches``, made from a number of its own and checked as there; its elements, laid out in
columns or in more axes, must give the same value and the same gradient, bit for bit.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from attacks import batches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


def check(number: int) -> str | None:
    """Return what is wrong with a case, or None."""
    r, g = random.Random(f"columns {number}"), torch.Generator().manual_seed(number)  # noqa: S311
    flat = batches.build(r, g, "binary")
    wrong = batches.check_case(number, flat)
    if wrong is not None:
        return wrong
    shape = _shape(r, flat.logits.numel())

    def laid_out(x: Tensor | None) -> Tensor | None:
        return None if x is None else x.reshape(shape)

    logits, targets = flat.logits.reshape(shape), flat.targets.reshape(shape)
    case = replace(flat, logits=logits, targets=targets, weight=laid_out(flat.weight), mask=laid_out(flat.mask))
    try:
        value, gradient = batches.run(case.loss, case.logits, case)
    except Exception as error:
        return f"{type(error).__name__}: {error} | {case}"
    expected, by_logit = batches.run(flat.loss, flat.logits, flat)
    if not torch.equal(value, expected):
        return f"value {value.tolist()} is not that of one column, {expected.tolist()} | {case}"
    if not torch.equal(gradient.reshape(-1), by_logit.reshape(-1)):
        return f"the gradient is not that of one column | {case}"
    return None


def _shape(r: random.Random, size: int) -> tuple[int, ...]:
    """Return a shape of so many elements with more than one axis, of several columns where that is possible."""
    columns = r.choice([k for k in (2, 3, 5, 7, 8, 10, 11, 16, 33, 35) if size % k == 0] or [1])
    return (size // columns, columns) if r.random() < 0.7 else (size // columns, columns, 1)


def check_all(numbers: Iterable[int]) -> dict[int, str]:
    """Return what is wrong, by the number of the case."""
    return {number: found for number in numbers if (found := check(number)) is not None}
