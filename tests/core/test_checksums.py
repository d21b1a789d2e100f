"""Checksums: the same numbers in the same order, of any type and layout, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metricgrad.core.checksums import checksum, mixing_numbers

pytestmark = pytest.mark.quick

TYPES = [torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16]
TYPES += [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn]


def numbers(dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    found = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0))
    return found.float().to(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(40,), (40, 3), (40, 8), (3, 5, 4100)])
def test_every_change_and_every_change_of_order_is_seen(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = numbers(dtype, shape)
    given = int(checksum(x))
    assert int(checksum(x.clone())) == given
    assert int(checksum(x.mT.contiguous().mT if x.dim() > 1 else x)) == given
    rows = torch.arange(len(x)).roll(1)
    assert int(checksum(x[rows])) != given
    changed = x.clone()
    changed[1] = torch.where(x[1].float() == 0, 1.0, 0.0).to(dtype) if not dtype.is_complex else 1 - x[1]
    assert int(checksum(changed)) != given
    if x.dim() == 2:
        assert int(checksum(x[:, torch.arange(x.shape[1]).roll(1)])) != given


def test_patterns_do_not_cancel() -> None:
    ones = torch.eye(12, dtype=torch.long)
    pairs = [ones[i] + ones[j] for i in range(12) for j in range(i)]
    assert len({int(checksum(pair)) for pair in pairs}) == len(pairs)
    assert len(set(mixing_numbers(100_000).tolist())) == 100_000


def test_nothing_one_number_and_nan() -> None:
    for x in (torch.zeros(0), torch.zeros(0, 3), torch.zeros(3, 0), torch.tensor(2.0), torch.tensor([torch.nan])):
        assert int(checksum(x)) == int(checksum(x.clone()))
    assert int(checksum(torch.tensor(2.0))) != int(checksum(torch.tensor(3.0)))
    assert not checksum(torch.ones(3, requires_grad=True)).requires_grad
