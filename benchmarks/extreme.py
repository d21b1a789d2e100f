"""Extreme multi-label: 1e5 labels on 1e5 rows, from training to decisions, without a matrix of rows × labels.

    python benchmarks/extreme.py [--quick] [--json FILE]

Made-up data: a label has a few tokens of a vocabulary, a row has 10 labels by a power law and their tokens. A linear
head on a bag of tokens is trained with cross-entropy on the labels of each batch, then with macro-F1: each step takes
some labels with all rows, so that their counts are exact (a macro average is a mean over labels, so that some of them
give its gradient without bias), by ``exact_backward`` in micro-batches. The head's 50 best labels a row are kept as a
scipy sparse matrix, on which thresholds and the rule of k labels a row are tuned. Then the same decisions on 1e5 rows,
and ``choose_k_labels`` on sparse and on dense probabilities, beside xCOLUMNs if it is installed.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import metricgrad as mg
import timing
from metricgrad.decisions import TopK, choose_k_labels, tune_top_k
from timing import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WIDTH, TOKENS, PER_ROW, CANDIDATES, K = 64, 3, 10, 50, 10
MICRO, SOME = 8192, 1000
"""Rows of a micro-batch, and labels of a step with the metric loss."""
LABELS: Any = {"task": "multilabel"}


def peak() -> float:
    """Return the most memory that this process has had, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(name: str, run: Callable[[], Any], found: Row) -> Any:
    """Run, print and keep the seconds; return the result."""
    start = time.perf_counter()
    result = run()
    found[name] = time.perf_counter() - start
    print(f"{name:46}{found[name]:9.2f} s   peak {peak():.2f} GB", flush=True)
    return result


class Data:
    """Rows with ``PER_ROW`` labels each, by a power law, and the tokens of these."""

    def __init__(self, rows: int, labels: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        share = 1 / np.arange(1, labels + 1) ** 0.7
        drawn = rng.choice(labels, (rows, PER_ROW), p=share / share.sum())
        vocabulary = np.random.default_rng(0).integers(0, labels // 4, (labels, TOKENS))  # the same for all seeds
        self.tokens = torch.as_tensor(vocabulary[drawn].reshape(rows, -1))
        where = (np.repeat(np.arange(rows), PER_ROW), drawn.ravel())
        self.targets = sp.csr_matrix((np.ones(drawn.size, np.float32), where), shape=(rows, labels))
        self.targets.data[:] = 1

    def batches(self, features: Tensor, labels: np.ndarray[Any, Any]) -> Batches:
        """Return micro-batches of all rows and some labels."""
        return Batches(features, self.targets.tocsc()[:, labels].tocsr())


class Batches:
    """Micro-batches of features and dense targets of some labels; ``exact_backward`` reads them twice."""

    def __init__(self, features: Tensor, targets: Any) -> None:
        self.features, self.targets = features, targets

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self.features), MICRO):
            part = slice(start, start + MICRO)
            yield self.features[part], torch.as_tensor(self.targets[part].toarray())


class Head(nn.Module):
    """A linear layer, of which a call computes some labels."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(labels, WIDTH))
        self.bias = nn.Parameter(torch.full((labels, 1), -4.0))
        self.chosen = torch.arange(labels)

    def forward(self, features: Tensor) -> Tensor:
        """Return the logits of the labels chosen."""
        weight, bias = (F.embedding(self.chosen, x, sparse=True) for x in (self.weight, self.bias))
        return F.linear(features, weight, bias.squeeze(1))


def warm_start(data: Data, bag: nn.EmbeddingBag, head: Head, epochs: int) -> None:
    """Train with cross-entropy on the labels that occur in each batch: the others are its negatives."""
    optimiser = torch.optim.Adagrad([*bag.parameters(), *head.parameters()], lr=0.1)
    for epoch in range(epochs):
        for rows in torch.randperm(len(data.tokens), generator=torch.Generator().manual_seed(epoch)).split(512):
            y = data.targets[rows.numpy()]
            head.chosen = torch.as_tensor(np.unique(y.indices)).long()
            targets = torch.as_tensor(y[:, head.chosen.numpy()].toarray())
            optimiser.zero_grad()
            F.binary_cross_entropy_with_logits(head(bag(data.tokens[rows])), targets, reduction="sum").backward()
            optimiser.step()


def metric_steps(data: Data, features: Tensor, head: Head, steps: int) -> None:
    """Train with macro-F1: some labels a step, of which the counts over all rows are exact."""
    loss = mg.MetricLoss("f1", task="multilabel", surrogate=mg.surrogates.LogitSigmoid())
    optimiser = torch.optim.Adagrad(head.parameters(), lr=0.05)
    every = np.random.default_rng(0).permutation(head.weight.shape[0])
    for step in range(steps):
        labels = np.sort(np.take(every, range(step * SOME, (step + 1) * SOME), mode="wrap"))
        head.chosen = torch.as_tensor(labels)
        optimiser.zero_grad()
        mg.exact_backward(loss, head, data.batches(features, labels))
        optimiser.step()


def dense_step(data: Data, features: Tensor, head: Head) -> None:
    """Take one step of the same loss on all rows at once: the dense path."""
    labels = np.arange(SOME)
    head.chosen = torch.as_tensor(labels)
    targets = torch.as_tensor(data.targets[:, :SOME].toarray())
    mg.MetricLoss("f1", task="multilabel", surrogate=mg.surrogates.LogitSigmoid())(head(features), targets).backward()
    head.zero_grad()


@torch.no_grad()
def best_scores(data: Data, bag: nn.EmbeddingBag, head: Head) -> Any:
    """Return the probabilities of each row's best labels, sparse."""
    labels = head.weight.shape[0]
    parts = []
    for tokens in data.tokens.split(max(1, 2**25 // labels)):
        logits = F.linear(bag(tokens), head.weight, head.bias.squeeze(1))
        best, where = logits.topk(CANDIDATES, dim=1)
        ends = np.arange(len(tokens) + 1) * CANDIDATES
        order = where.argsort(1)
        entries = (best.gather(1, order).sigmoid().numpy().ravel(), where.gather(1, order).numpy().ravel(), ends)
        parts.append(sp.csr_matrix(entries, shape=(len(tokens), labels)))
    return sp.vstack(parts, format="csr")


def training(rows: int, labels: int, quick: bool) -> Row:
    """Train, tune and evaluate; return seconds, values and memory."""
    found: Row = {"rows": rows, "labels": labels}
    seconds: Row = {}
    torch.manual_seed(0)
    data, held, test = Data(rows, labels, 1), Data(rows // 10, labels, 2), Data(rows // 10, labels, 3)
    bag, head = nn.EmbeddingBag(labels // 4, WIDTH, mode="mean", sparse=True), Head(labels)
    start = peak()
    timed("cross-entropy, labels of the batch", lambda: warm_start(data, bag, head, 2 if quick else 4), seconds)
    values = {"cross-entropy": decisions(bag, head, held, test, seconds, "after cross-entropy")}
    with torch.no_grad():
        features = bag(data.tokens)
    steps = 3 if quick else 20
    timed("macro-F1, exact counts", lambda: metric_steps(data, features, head, steps), seconds)
    values["macro-F1"] = decisions(bag, head, held, test, seconds, "after macro-F1")
    found["memory_gb"] = {"before": start, "peak": peak(), "dense_logits": rows * labels * 4 / 2**30}
    few = Head(SOME)
    timed("one dense step of the same loss", lambda: dense_step(data, features, few), {})
    timed("again", lambda: dense_step(data, features, few), seconds)
    seconds["one dense step of the same loss"] = seconds.pop("again")
    found["ratio_to_dense"] = seconds["macro-F1, exact counts"] / steps / seconds["one dense step of the same loss"]
    print(f"a step with exact counts / a dense step, per element: {found['ratio_to_dense']:.2f}")
    return found | {"seconds": seconds, "values": values}


def decisions(bag: nn.EmbeddingBag, head: Head, held: Data, test: Data, seconds: Row, when: str) -> Row:
    """Tune on held-out rows and evaluate on others."""
    scores = timed(
        f"best {CANDIDATES} labels of 2 × 10 % rows, {when}", lambda: _scores(bag, head, held, test), seconds
    )
    tuned = mg.tune_threshold("f1", scores[0], held.targets, rare_labels="pooled", **LABELS).rule
    rules = {"top k": TopK(K), "pooled thresholds": tuned, "tune_top_k": tune_top_k("f1", scores[0], held.targets, K)}
    found = {
        name: mg.evaluate(scores[1], test.targets, "f1", rule=rule, empty_classes="skip", **LABELS)["f1"]
        for name, rule in rules.items()
    }
    found |= mg.evaluate(scores[1], test.targets, ["precision@1", "precision@5"], average="micro", **LABELS)
    print("   macro-F1 of labels that occur:", {name: round(value, 4) for name, value in found.items()})
    return found


def _scores(bag: nn.EmbeddingBag, head: Head, *sets: Data) -> list[Any]:
    return [best_scores(data, bag, head) for data in sets]


def at_scale(rows: int, labels: int) -> Row:
    """Return the seconds of every decision on sparse scores of ``CANDIDATES`` a row."""
    seconds: Row = {}
    rng = np.random.default_rng(0)
    y = Data(rows, labels, 4).targets
    share = 1 / np.arange(1, labels + 1) ** 0.7
    where = rng.choice(labels, (rows, CANDIDATES - PER_ROW), p=share / share.sum())
    noise = sp.csr_matrix(
        (rng.random(where.size, np.float32) ** 4, (np.repeat(np.arange(rows), where.shape[1]), where.ravel())),
        shape=(rows, labels),
    )
    guess = y.copy()
    guess.data = rng.random(len(guess.data), np.float32)
    s = noise.maximum(guess).tocsr()
    s.data = s.data.clip(1e-6, 1)
    print(f"\n{rows} rows × {labels} labels, {s.nnz / rows:.0f} scores and {y.nnz / rows:.0f} positives a row")
    timed("evaluate f1, precision@5", lambda: mg.evaluate(s, y, ["f1", "precision@5"], **LABELS), seconds)
    timed("evaluate f1, average='samples'", lambda: mg.evaluate(s, y, "f1", average="samples", **LABELS), seconds)
    timed("tune_threshold per label", lambda: mg.tune_threshold("f1", s, y, **LABELS), seconds)
    timed("tune_threshold shared", lambda: mg.tune_threshold("f1", s, y, shared=True, **LABELS), seconds)
    timed("tune_top_k", lambda: tune_top_k("f1", s, y, K), seconds)
    ours = timed("choose_k_labels, sparse", lambda: choose_k_labels("f1", s, K), seconds)
    values = {"choose_k_labels": expected_f1(s, ours), "top k": expected_f1(s, TopK(K)(s))}
    peer(s, seconds, values, "sparse")
    print("   expected macro-F1:", {name: round(value, 5) for name, value in values.items()})
    return {"rows": rows, "labels": labels, "stored": s.nnz, "seconds": seconds, "values": values, "peak_gb": peak()}


def dense_budget(rows: int, labels: int) -> Row:
    """Return the seconds of ``choose_k_labels`` on dense probabilities."""
    seconds: Row = {}
    g = torch.Generator().manual_seed(0)
    rarity = torch.arange(1, labels + 1).log()
    p = torch.sigmoid(1.5 * torch.randn(rows, labels, generator=g) - rarity).numpy()
    print(f"\n{rows} rows × {labels} labels, dense")
    ours = timed("choose_k_labels, dense", lambda: choose_k_labels("f1", p, K), seconds)
    values = {"choose_k_labels": expected_f1(p, ours), "top k": expected_f1(p, TopK(K)(p))}
    peer(p, seconds, values, "dense")
    print("   expected macro-F1:", {name: round(value, 5) for name, value in values.items()})
    return {"rows": rows, "labels": labels, "seconds": seconds, "values": values}


def peer(p: Any, seconds: Row, values: Row, kind: str) -> None:
    """Let xCOLUMNs do the same, if it is installed; its first call compiles and is not timed."""
    if importlib.util.find_spec("xcolumns") is None:
        return
    sys.modules["coverage"] = None  # type: ignore[assignment]  # its numba would import coverage.py of this folder
    from xcolumns.block_coordinate import predict_optimizing_macro_f1_score_using_bc as theirs

    theirs(p[:100], K, seed=0)
    values["xCOLUMNs"] = expected_f1(p, timed(f"xCOLUMNs, {kind}", lambda: theirs(p, K, seed=0), seconds))


def expected_f1(p: Any, decided: Any) -> float:
    """Return the macro-F1 of the expected counts."""
    if sp.issparse(p):
        decided = decided.astype(np.float64)
        tp, predicted, positives = (np.asarray(x.sum(0)).ravel() for x in (p.multiply(decided), decided, p))
    else:
        tp = np.einsum("ij,ij->j", p, decided.astype(p.dtype), dtype=np.float64)
        predicted, positives = decided.sum(0, dtype=np.float64), p.sum(0, dtype=np.float64)
    return float(np.mean(2 * tp / np.maximum(predicted + positives, 1e-12)))


def main() -> None:
    """Run everything."""
    options = timing.arguments(__doc__)
    torch.sparse.check_sparse_tensor_invariants.disable()  # as by default, but without a warning
    size = 4_000 if options.quick else 100_000
    found = {
        "machine": timing.machine(),
        "quick": options.quick,
        "training": training(size, size, options.quick),
        "sparse": at_scale(size, size),
        "dense": dense_budget(size, 100 if options.quick else 1000),
    }
    timing.write(found, options.json)


if __name__ == "__main__":
    main()
