"""``RunningCounts``: sums over past batches, since a small batch holds too few samples of a rare class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, Statistic, wide

if TYPE_CHECKING:
    from collections.abc import Iterable


class RunningCounts:
    """Soft and hard statistics of past batches, older ones fading, and the hard ones since the last step.

    All of it is tensors, and what happens does not depend on their values, so that ``torch.compile`` can follow: the
    cells of a statistic are stacked along the first axis.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all batches."""
        self._soft: Tensor | None = None
        self._hard: Tensor | None = None
        self._rows: Tensor | None = None
        self._recent: Tensor | None = None

    @property
    def hard(self) -> Statistic | None:
        """The hard statistic of the remembered batches."""
        return _to_statistic(self._hard)

    def add(self, soft: Statistic, hard: Statistic, rows: Tensor, length: int) -> tuple[Statistic, Statistic]:
        """Add a batch, and return both statistics with those of past batches added, of about ``length`` rows in all.

        The gradient is that of the sum as if all of it changed like the current batch: past batches do not make it
        smaller.
        """
        soft_cells = torch.stack(soft.cells())
        hard_cells = torch.stack(hard.cells())
        fixed = wide(soft_cells.detach())
        past_soft = _past_or_zero(self._soft, fixed)
        past_hard = _past_or_zero(self._hard, hard_cells)
        past_rows = _past_or_zero(self._rows, rows)
        recent = _past_or_zero(self._recent, hard_cells)
        kept_share = (1 - rows / length).clamp(min=0) if length else torch.zeros_like(rows)
        kept_rows = kept_share * past_rows
        all_rows = kept_rows + rows
        all_soft = kept_share * past_soft + fixed
        all_hard = kept_share * past_hard + hard_cells
        scale = torch.where(rows > 0, all_rows / rows.clamp(min=1), 1.0).to(soft_cells)
        with_gradient = all_soft.to(soft_cells) + scale * (soft_cells - soft_cells.detach())
        # A batch that is not finite, whose step a GradScaler skips, is used alone and not remembered.
        is_finite = fixed.isfinite().all() & hard_cells.isfinite().all()
        self._soft = torch.where(is_finite, all_soft, past_soft)
        self._hard = torch.where(is_finite, all_hard, past_hard)
        self._rows = torch.where(is_finite, all_rows, past_rows)
        self._recent = torch.where(is_finite, recent + hard_cells, recent)
        used_soft = torch.where(is_finite, with_gradient, soft_cells)
        used_hard = torch.where(is_finite, all_hard, hard_cells)
        return type(soft)(*used_soft.unbind(0)), type(hard)(*used_hard.unbind(0))

    def take_recent(self) -> Statistic | None:
        """Return the hard statistic since the last step, or the remembered one if that covers more rows."""
        recent = self._recent
        self._recent = None
        if recent is not None and self._hard is not None and self._hard.sum() > recent.sum():
            return self.hard
        return _to_statistic(recent)

    def check_classes(self, hard: Statistic) -> None:
        """Raise if the number of classes differs from that of past batches."""
        past = self._recent if self._hard is None else self._hard
        classes = hard.cells()[0].shape[-1]
        if past is not None and past.shape[-1] != classes:
            raise ValueError(
                f"logits: expected the classes of before, {past.shape[-1]}, got {classes}; reset() forgets them"
            )

    def state(self) -> dict[str, Any]:
        """Return the memory as plain lists of tensors, for ``state_dict``."""
        return {
            "seen": _to_list(self._recent),
            "soft": _to_list(self._soft),
            "hard": _to_list(self._hard),
            "rows": 0.0 if self._rows is None else self._rows.item(),
        }

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Set the memory to what ``state`` returned."""
        self._recent = _from_list(state.get("seen", []), device)
        self._soft = _from_list(state.get("soft", []), device)
        self._hard = _from_list(state.get("hard", []), device)
        self._rows = torch.tensor(float(state.get("rows", 0.0)), device=device)


def _past_or_zero(past: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if past is None else past.to(like)


def _to_list(cells: Tensor | None) -> list[Tensor]:
    return [] if cells is None else list(cells.unbind(0))


def _from_list(cells: Iterable[Tensor], device: torch.device) -> Tensor | None:
    moved = [cell.to(device) for cell in cells]
    return torch.stack(moved) if moved else None


def _to_statistic(cells: Tensor | None) -> Statistic | None:
    """Return the statistic that has these cells."""
    if cells is None:
        return None
    return Confusion(cells[0]) if len(cells) == 1 else Counts(*cells.unbind(0))
