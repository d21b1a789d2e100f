"""``Memory``: sums over past batches, since a small batch holds too few samples of a rare class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from metricgrad.counts import Confusion, Counts, Statistic, wide

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Memory:
    """Soft and hard statistics of past batches, older ones fading, and the hard ones since the last step."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all batches."""
        self.soft: Statistic | None = None
        self.hard: Statistic | None = None
        self.rows = 0.0
        self.recent: Statistic | None = None

    def add(self, soft: Statistic, hard: Statistic, rows: float, length: int) -> tuple[Statistic, Statistic]:
        """Add a batch, and return both statistics with those of past batches added, of about ``length`` rows in all.

        The gradient is that of the sum as if all of it changed like the current batch: a memory does not shrink it.
        """
        if not all(cell.isfinite().all() for cell in (*soft.cells(), *hard.cells())):
            return soft, hard  # a step that a GradScaler skips is not remembered
        self.recent = hard if self.recent is None else self.recent + hard
        fixed = soft.map(lambda cell: wide(cell.detach()))
        keep = max(0.0, 1 - rows / length) if length else 0.0
        if self.soft is None or self.hard is None or not keep:
            self.soft, self.hard, self.rows = fixed, hard, rows
            return soft, hard
        past, before = self.soft.map(lambda cell: keep * cell), keep * self.rows
        scale = (before + rows) / rows if rows else 1.0
        cells = zip(soft.cells(), past.cells(), strict=True)
        moving = [(wide(now.detach()) + old).to(now) + scale * (now - now.detach()) for now, old in cells]
        self.soft, self.hard = past + fixed, self.hard.map(lambda cell: keep * cell) + hard
        self.rows = before + rows
        return type(soft)(*moving), self.hard

    def take_recent(self) -> Statistic | None:
        """Return the hard statistic since the last step, or the remembered one if that is of more."""
        recent, self.recent = self.recent, None
        if recent is not None and self.hard is not None and _weight(self.hard) > _weight(recent):
            return self.hard
        return recent

    def check_classes(self, hard: Statistic) -> None:
        """Raise if the number of classes differs from that of past batches."""
        past = self.recent if self.hard is None else self.hard
        if past is not None and (before := past.cells()[0].shape[-1]) != (now := hard.cells()[0].shape[-1]):
            raise ValueError(f"logits: expected the classes of before, {before}, got {now}; reset() forgets them")

    def state(self) -> dict[str, Any]:
        """Return the memory as plain lists of tensors, for ``state_dict``."""
        found = {"seen": self.recent, "soft": self.soft, "hard": self.hard}
        cells = {name: [] if one is None else list(one.cells()) for name, one in found.items()}
        return {**cells, "rows": self.rows}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Set the memory to what ``state`` returned."""
        self.recent, soft, hard = (_statistic(state.get(name, []), device) for name in ("seen", "soft", "hard"))
        self.soft, self.hard, self.rows = soft, hard, float(state.get("rows", 0.0))


def _statistic(cells: list[Tensor], device: torch.device) -> Statistic | None:
    """Return the statistic that has these cells."""
    moved = [cell.to(device) for cell in cells]
    return (Confusion(*moved) if len(moved) == 1 else Counts(*moved)) if moved else None


def _weight(statistic: Statistic) -> float:
    """Return the total weight of a statistic."""
    return float(sum(cell.sum() for cell in statistic.cells()))
