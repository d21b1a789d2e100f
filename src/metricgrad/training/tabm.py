"""TabM [gorishniy2025]: one network that holds many, its members, trained at once. Needs the extra "tabm".

While training it returns the logits of every member, ``(N, members, outputs)``, and ``MemberLoss`` takes the mean of
their losses; otherwise it returns those of the mean of their probabilities, ``(N, outputs)``, as any network does.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from metricgrad.training.training_loop import dense

if TYPE_CHECKING:
    from metricgrad.core.batch import Task

MEMBERS, BLOCKS, WIDTH = 16, 2, 64
"""Half the members and an eighth of the width that the package starts from: for tables that a CPU trains on."""
BINS, EMBEDDING, MOST_EMBEDDED = 32, 8, 64
"""The bins and the size of a feature's embedding, and up to how many features have one."""
_CHUNK = 2048  # rows at a time when predicting: every member has activations of its own


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
        if inputs <= MOST_EMBEDDED:
            with torch.device("cpu"):  # it looks at values, which the meta device does not have
                edges = [torch.linspace(-1, 1, BINS + 1) for _ in range(inputs)]
                self.embedding = PiecewiseLinearEmbeddings(edges, EMBEDDING, activation=False, version="B")
        plain = self.embedding is None
        self.backbone = tabm.MLPBackboneBatchEnsemble(
            d_in=inputs if plain else inputs * EMBEDDING,
            n_blocks=BLOCKS,
            d_block=WIDTH,
            dropout=dropout,
            activation="ReLU",
            k=MEMBERS,
            tabm_init=True,
            scaling_init="random-signs" if plain else "normal",
            start_scaling_init_chunks=None if plain else [EMBEDDING] * inputs,
        )
        self.output = tabm.LinearEnsemble(WIDTH, outputs, k=MEMBERS)

    @torch.no_grad()
    def fit_bins(self, features: Any, rows: Tensor, most: int = 100_000) -> None:
        """Put the edges of the bins at quantiles of these rows, ``most`` of them at the most, evenly chosen."""
        if self.embedding is None:
            return
        some = rows[_spread(len(rows), min(len(rows), most))]
        edges = _edges(dense(features[some.numpy()]))
        width = edges.diff()
        # The encoding is clamp((x − left) / width): as PiecewiseLinearEmbeddings keeps it.
        self.embedding.impl.weight.copy_(1 / width)
        self.embedding.impl.bias.copy_(-edges[:, :-1] / width)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits: of every member while training, otherwise of the mean of their probabilities."""
        if self.training:
            return self._members(features)
        return torch.cat([self._mean(self._members(part)) for part in features.split(_CHUNK)])

    def _members(self, features: Tensor) -> Tensor:
        x = features if self.embedding is None else self.embedding(features).flatten(1)
        members: Tensor = self.output(self.backbone(x.unsqueeze(1).expand(-1, self.backbone.k, -1)))
        return members

    def _mean(self, logits: Tensor) -> Tensor:
        if self.task == "multiclass":
            return logits.log_softmax(2).logsumexp(1) - math.log(logits.shape[1])
        sigmoid = nn.functional.logsigmoid
        return sigmoid(logits).logsumexp(1) - sigmoid(-logits).logsumexp(1)


class MemberLoss(nn.Module):
    """The mean of the members' losses, for logits ``(N, members, outputs)``; other logits are of one member.

    ``at_once``: ``loss`` is a multi-label one whose mean over labels is the mean over members, too: the labels of all
    members go into one call. That holds for cross-entropy and for a macro or weighted average of a metric, since the
    labels are the same for every member. Otherwise there is a call for each member.
    """

    def __init__(self, loss: nn.Module, at_once: bool) -> None:
        super().__init__()
        self.loss, self.at_once = loss, at_once

    def forward(
        self, logits: Tensor, targets: Tensor, weight: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        logits = logits.reshape(len(logits), -1, 1 if logits.dim() == 1 else logits.shape[-1])
        if self.at_once:
            repeated = [None if given is None else _repeated(given, logits) for given in (targets, weight, mask)]
            return self.loss(logits.flatten(1), *repeated)  # type: ignore[no-any-return]
        members = logits.squeeze(2) if logits.shape[2] == 1 and targets.dim() == 1 else logits
        return torch.stack([self.loss(member, targets, weight, mask) for member in members.unbind(1)]).mean(0)


def _repeated(given: Tensor, logits: Tensor) -> Tensor:
    """Return what is given for samples, or for samples and labels, for the labels of all members."""
    return given.reshape(len(logits), 1, -1).expand(logits.shape).flatten(1)


def _edges(features: Tensor) -> Tensor:
    """Return ``(features, BINS + 1)`` increasing edges at quantiles.

    A feature with too few different values gets the rest beyond its largest one, where no training row is: these bins
    stay as they begin, without effect.
    """
    rows = _spread(len(features), BINS + 1)
    edges = []
    for values in features.sort(0).values[rows].T:
        distinct = values.unique().double()
        last = distinct[-1]
        beyond = torch.arange(1, BINS + 2 - len(distinct)) * last.abs().clamp_min(1.0)
        edges.append(torch.cat([distinct, last + beyond]))
    return torch.stack(edges)


def _spread(rows: int, number: int) -> Tensor:
    """Return ``number`` of the row indices, evenly spread from the first to the last."""
    return torch.linspace(0, rows - 1, number, dtype=torch.float64).round().long()
