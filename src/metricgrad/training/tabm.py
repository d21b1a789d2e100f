"""TabM [gorishniy2025]: one network that holds many, its members, trained at once. Needs the extra "tabm".

While training it returns the logits of every member, ``(N, members, outputs)``, and ``MemberLoss`` takes the mean of
their losses; otherwise it returns those of the mean of their probabilities, ``(N, outputs)``, as any network does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.training.training_loop import to_dense

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

MEMBERS = 16
BLOCKS = 2
WIDTH = 64
"""Half the members and an eighth of the width that the package starts from: for tables that a CPU trains on."""
BINS = 32
EMBEDDING = 8
MAX_EMBEDDED_FEATURES = 64
"""The bins and the size of a feature's embedding, and up to how many features have one."""
_ROWS_AT_A_TIME = 2048  # when predicting: every member has activations of its own


class TabM(nn.Module):
    """The network, with piecewise-linear embeddings of the features unless there are many [gorishniy2022].

    Shapes depend on the arguments alone, so that a saved network can be rebuilt: ``fit_bins`` moves edges and does not
    change their number.
    """

    def __init__(self, inputs: int, outputs: int, dropout: float, task: Task) -> None:
        super().__init__()
        try:
            import tabm
            from rtdl_num_embeddings import PiecewiseLinearEmbeddings
        except ImportError as error:
            raise ImportError(f"model='tabm' needs {error.name}: pip install 'metricgrad[tabm]'") from error
        self.task = task
        self.embedding: Any = None
        if inputs <= MAX_EMBEDDED_FEATURES:
            with torch.device("cpu"):  # it looks at values, which the meta device does not have
                edges = [torch.linspace(-1, 1, BINS + 1) for _ in range(inputs)]
                self.embedding = PiecewiseLinearEmbeddings(edges, EMBEDDING, activation=False, version="B")
        is_plain = self.embedding is None
        self.backbone = tabm.MLPBackboneBatchEnsemble(
            d_in=inputs if is_plain else inputs * EMBEDDING,
            n_blocks=BLOCKS,
            d_block=WIDTH,
            dropout=dropout,
            activation="ReLU",
            k=MEMBERS,
            tabm_init=True,
            scaling_init="random-signs" if is_plain else "normal",
            start_scaling_init_chunks=None if is_plain else [EMBEDDING] * inputs,
        )
        self.output = tabm.LinearEnsemble(WIDTH, outputs, k=MEMBERS)

    @torch.no_grad()
    def fit_bins(self, features: Any, rows: Tensor, most: int = 100_000) -> None:
        """Put the edges of the bins at quantiles of these rows, ``most`` of them at the most, evenly chosen."""
        if self.embedding is None:
            return
        chosen = rows[_spread_rows(len(rows), min(len(rows), most))]
        edges = _find_edges(to_dense(features[chosen.numpy()]))
        width = edges.diff()
        # The encoding is clamp((x − left) / width): as PiecewiseLinearEmbeddings keeps it.
        self.embedding.impl.weight.copy_(1 / width)
        self.embedding.impl.bias.copy_(-edges[:, :-1] / width)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits: of every member while training, otherwise of the mean of their probabilities."""
        if self.training:
            return self._compute_member_logits(features)
        parts = features.split(_ROWS_AT_A_TIME)
        return torch.cat([self._average_members(self._compute_member_logits(part)) for part in parts])

    def _compute_member_logits(self, features: Tensor) -> Tensor:
        x = features if self.embedding is None else self.embedding(features).flatten(1)
        for_each_member = x.unsqueeze(1).expand(-1, self.backbone.k, -1)
        logits: Tensor = self.output(self.backbone(for_each_member))
        return logits

    def _average_members(self, logits: Tensor) -> Tensor:
        """Return the logits of the mean of the members' probabilities."""
        if self.task == "multiclass":
            return logits.log_softmax(2).logsumexp(1) - math.log(logits.shape[1])
        log_positive = nn.functional.logsigmoid(logits).logsumexp(1)
        log_negative = nn.functional.logsigmoid(-logits).logsumexp(1)
        return log_positive - log_negative


class MemberLoss(nn.Module):
    """The mean of the members' losses, for logits ``(N, members, outputs)``; other logits are of one member.

    ``at_once``: ``loss`` is a multi-label one whose mean over labels is the mean over members, too: the labels of all
    members go into one call. That holds for cross-entropy and for a macro or weighted average of a metric, since the
    labels are the same for every member. Otherwise there is a call for each member.
    """

    def __init__(self, loss: nn.Module, at_once: bool) -> None:
        super().__init__()
        self.loss = loss
        self.at_once = at_once

    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        outputs = 1 if logits.dim() == 1 else logits.shape[-1]
        logits = logits.reshape(len(logits), -1, outputs)
        if self.at_once:
            repeated = [
                None if given is None else _repeat_for_members(given, logits) for given in (targets, weight, mask)
            ]
            return self.loss(logits.flatten(1), *repeated)  # type: ignore[no-any-return]
        members = logits.squeeze(2) if outputs == 1 and targets.dim() == 1 else logits
        losses = [self.loss(member, targets, weight, mask) for member in members.unbind(1)]
        return torch.stack(losses).mean(0)


def _repeat_for_members(given: Tensor, logits: Tensor) -> Tensor:
    """Return what is given for samples, or for samples and labels, for the labels of all members."""
    return given.reshape(len(logits), 1, -1).expand(logits.shape).flatten(1)


def _find_edges(features: Tensor) -> Tensor:
    """Return ``(features, BINS + 1)`` increasing edges at quantiles.

    A feature with too few different values gets the rest beyond its largest one, where no training row is: these bins
    stay as they begin, without effect.
    """
    rows = _spread_rows(len(features), BINS + 1)
    edges = []
    for values in features.sort(0).values[rows].T:
        distinct = values.unique().double()
        last = distinct[-1]
        missing = BINS + 1 - len(distinct)
        steps_beyond = torch.arange(1, missing + 1) * last.abs().clamp_min(1.0)
        edges.append(torch.cat([distinct, last + steps_beyond]))
    return torch.stack(edges)


def _spread_rows(rows: int, number: int) -> Tensor:
    """Return ``number`` of the row indices, evenly spread from the first to the last."""
    return torch.linspace(0, rows - 1, number, dtype=torch.float64).round().long()
