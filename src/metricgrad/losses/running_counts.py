"""``Memory``: sums over past batches, since a small batch holds too few samples of a rare class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.core.counts import Confusion, Counts, Statistic, wide

if TYPE_CHECKING:
    from collections.abc import Iterable


class Memory:
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
        return _statistic(self._hard)

    def add(self, soft: Statistic, hard: Statistic, rows: Tensor, length: int) -> tuple[Statistic, Statistic]:
        """Add a batch, and return both statistics with those of past batches added, of about ``length`` rows in all.

        The gradient is that of the sum as if all of it changed like the current batch: a memory does not shrink it.
        """
        now, now_hard = torch.stack(soft.cells()), torch.stack(hard.cells())
        fixed = wide(now.detach())
        past, past_hard, past_rows, recent = (
            torch.zeros_like(like) if kept is None else kept.to(like)
            for kept, like in (
                (self._soft, fixed),
                (self._hard, now_hard),
                (self._rows, rows),
                (self._recent, now_hard),
            )
        )
        keep = (1 - rows / length).clamp(min=0) if length else torch.zeros_like(rows)
        before = keep * past_rows
        all_soft, all_hard = keep * past + fixed, keep * past_hard + now_hard
        scale = torch.where(rows > 0, (before + rows) / rows.clamp(min=1), 1.0).to(now)
        moving = all_soft.to(now) + scale * (now - now.detach())
        # A batch that is not finite, whose step a GradScaler skips, is used alone and not remembered.
        finite = fixed.isfinite().all() & now_hard.isfinite().all()
        self._soft, self._hard = torch.where(finite, all_soft, past), torch.where(finite, all_hard, past_hard)
        self._rows = torch.where(finite, before + rows, past_rows)
        self._recent = torch.where(finite, recent + now_hard, recent)
        used = torch.where(finite, moving, now), torch.where(finite, all_hard, now_hard)
        return type(soft)(*used[0].unbind(0)), type(hard)(*used[1].unbind(0))

    def take_recent(self) -> Statistic | None:
        """Return the hard statistic since the last step, or the remembered one if that is of more."""
        recent, self._recent = self._recent, None
        if recent is not None and self._hard is not None and self._hard.sum() > recent.sum():
            return self.hard
        return _statistic(recent)

    def check_classes(self, hard: Statistic) -> None:
        """Raise if the number of classes differs from that of past batches."""
        past = self._recent if self._hard is None else self._hard
        if past is not None and (before := past.shape[-1]) != (now := hard.cells()[0].shape[-1]):
            raise ValueError(f"logits: expected the classes of before, {before}, got {now}; reset() forgets them")

    def state(self) -> dict[str, Any]:
        """Return the memory as plain lists of tensors, for ``state_dict``."""
        parts = zip(_PARTS, (self._recent, self._soft, self._hard), strict=True)
        cells = {name: [] if one is None else list(one.unbind(0)) for name, one in parts}
        return {**cells, "rows": 0.0 if self._rows is None else self._rows.item()}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Set the memory to what ``state`` returned."""
        self._recent, self._soft, self._hard = (_stacked(state.get(name, []), device) for name in _PARTS)
        self._rows = torch.tensor(float(state.get("rows", 0.0)), device=device)


_PARTS = ("seen", "soft", "hard")


def _stacked(cells: Iterable[Tensor], device: torch.device) -> Tensor | None:
    moved = [cell.to(device) for cell in cells]
    return torch.stack(moved) if moved else None


def _statistic(cells: Tensor | None) -> Statistic | None:
    """Return the statistic that has these cells."""
    if cells is None:
        return None
    return Confusion(cells[0]) if len(cells) == 1 else Counts(*cells.unbind(0))
