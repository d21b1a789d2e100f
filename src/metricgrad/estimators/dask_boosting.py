"""``MetricBoostingClassifier`` on Dask arrays and frames: the fit of one process, partition by partition.

The rows stay on the workers. What comes to the client is additive and small: the classes and how often each occurs, the
trees, and the tables of out-of-fold scores that the rule is tuned on.
"""

from __future__ import annotations

import copy
from fractions import Fraction
from functools import partial
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import dask
import distributed
import numpy as np
import torch
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.validation import _check_sample_weight, validate_data

from metricgrad.core.inputs import as_scored_batch
from metricgrad.core.metrics.scalars import is_whole
from metricgrad.decisions.default_rule import RARE_LABELS, default_rule, resolve_rule
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_threshold
from metricgrad.estimators.dask_partitions import find_blocks, know_categories, make_example, one_thread
from metricgrad.estimators.frame_categories import find_categories
from metricgrad.estimators.preparation import choose_rule, make_labels
from metricgrad.evaluation.score_tables import ScoreTables
from metricgrad.evaluation.sharded_tuning import tune_tables
from metricgrad.integrations.boosting import dask_training
from metricgrad.integrations.boosting.dask_training import PlacedRows
from metricgrad.integrations.boosting.libraries import BoostingRows
from metricgrad.integrations.boosting.objectives import start_from, sum_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from metricgrad.estimators.labels import Labels
    from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier

_EXACT_ROWS, _BITS = 50_000_000, 20
"""Beyond so many rows the scores that the rule is tuned on keep 20 significant bits, so that their table is bounded."""


class _Part(NamedTuple):
    """A partition: features as numbers, labels as they came, weights."""

    x: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[Any] | None


class _Look(NamedTuple):
    """What the client knows of a partition: distinct labels, how often each occurs, rows, and columns of labels."""

    values: NDArray[Any]
    counts: NDArray[np.int64]
    rows: int
    columns: int | None


class _Encoded(NamedTuple):
    """A partition to train on: its rows, which hand each was dealt to, and the weights that the rule is tuned with."""

    rows: BoostingRows
    hand: NDArray[np.int64]
    weight: NDArray[Any] | None


class PartitionSplit(NamedTuple):
    """How rows are split: into how many hands they are dealt, and which hands each model leaves out."""

    hands: int
    held_out: list[range]


def find_client() -> Any:
    """Return the client of the cluster that Dask collections are computed on."""
    try:
        return distributed.get_client()
    except ValueError as error:
        raise ValueError(
            "X: a Dask array or frame needs a cluster to fit on, got none; make a distributed.Client first"
        ) from error


def fit_on_dask(estimator: MetricBoostingClassifier, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit the trees and tune the rule, as ``MetricBoostingClassifier.fit`` does on one process."""
    e = estimator
    if e.backend_ != "xgboost":
        raise ValueError(
            f"backend: expected 'xgboost' for Dask input, got {e.backend_!r}, whose network losses cannot use"
        )
    fit = DaskFit(e, X, y, sample_weight)
    e.labels_ = fit.labels
    e.classes_ = fit.labels.classes
    task = fit.labels.task
    rule = resolve_rule(choose_rule(e.rule, e.class_weight), task)
    seeds = check_random_state(e.random_state).randint(np.iinfo(np.int32).max, size=2)
    wanted = e.cv is not None or rule is None or e.patience is not None
    split = fit.split(e.cv, e.validation_fraction) if wanted else None
    fit.encode(e.class_weight, split, int(seeds[0]))
    e.base_score_ = fit.start
    held_out = [None] if split is None else split.held_out
    e._keep([fit.train(e._plan(int(seeds[1])), e.n_estimators, rows) for rows in held_out])
    e.rule_ = rule or default_rule(task)
    e.tuning_ = None
    if rule is None and split is not None:
        e.tuning_ = fit.tune(split)
        e.rule_ = e.tuning_.rule


class DaskFit:
    """A fit in steps: it finds the labels, then ``split``, ``encode``, ``train`` for each model, and ``tune``."""

    def __init__(self, estimator: MetricBoostingClassifier, X: Any, y: Any, sample_weight: Any) -> None:
        self.estimator = estimator
        self.client = find_client()
        X = know_categories(X)
        estimator.categories_ = find_categories(make_example(X))
        validate_data(estimator, make_example(X), skip_check_array=True)
        self.features: int = estimator.n_features_in_
        columns = [find_blocks("X", X), find_blocks("y", y, X)]
        columns.append(
            [None] * len(columns[0]) if sample_weight is None else find_blocks("sample_weight", sample_weight, X)
        )
        if len({len(column) for column in columns}) > 1:
            raise ValueError(
                "y, sample_weight: expected the partitions of X, got "
                f"{', '.join(str(len(column)) for column in columns)} partitions; repartition them alike"
            )
        # A part of each task, since a task of its own would pull all partitions to one worker.
        read = dask.delayed(partial(_read_partition, _without_models(estimator)), traverse=False)
        self.parts = self.client.compute([read(*parts) for parts in zip(*columns, strict=True)])
        self.looks: list[_Look] = self.client.gather(self.client.map(_look_at_labels, self.parts, pure=False))
        self.weighted = sample_weight is not None
        self.labels = self._labels()

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(look.rows for look in self.looks)

    def _labels(self) -> Labels:
        looks = [look for look in self.looks if look.rows]
        if not looks:
            raise ValueError("X: expected at least two rows, got none")
        values = np.unique(np.concatenate([look.values for look in looks]))
        columns = looks[0].columns
        # The type of targets is that of their distinct values; in a matrix every column may have each.
        return make_labels(values if columns is None else np.repeat(values[:, None], columns, 1))

    def encode(self, class_weight: Any, split: PartitionSplit | None, seed: int) -> None:
        """Turn labels into targets and weights, deal the rows, and find where boosting starts."""
        labels = self.labels
        counts = self._class_counts()
        balance = _weigh_classes(labels, class_weight, counts.sum(0))
        first = np.cumsum(counts, 0) - counts  # how many rows of each class the partitions before have
        how = {"labels": labels, "balance": balance, "hands": split.hands if split else 1, "seed": seed}
        self.encoded = self.client.map(_encode_partition, self.parts, list(first), **how, pure=False)
        sums = self.client.gather(self.client.map(_sum_partition, self.encoded, labels=labels, pure=False))
        self.start = start_from(torch.stack(sums).sum(0), labels.task)

    def _class_counts(self) -> NDArray[np.int64]:
        """Return the rows of each class in each partition; the rows of multi-label problems are of one kind."""
        if self.labels.task == "multilabel":
            return np.array([[look.rows] for look in self.looks])
        table = np.zeros((len(self.looks), len(self.labels.classes)), np.int64)
        for row, look in zip(table, self.looks, strict=True):
            row[np.searchsorted(self.labels.classes, look.values)] = look.counts
        return table

    def split(self, cv: Any, validation_fraction: float) -> PartitionSplit | None:
        """Return how to split the rows; None where a class is too small."""
        rarest = int(self._class_counts().sum(0).min())
        if cv is None:
            if not 0 < validation_fraction < 1:
                raise ValueError(f"validation_fraction: expected a number in (0, 1), got {validation_fraction!r}")
            share = Fraction(validation_fraction).limit_denominator(100)
            share = min(max(share, Fraction(1, 100)), Fraction(99, 100))
            return PartitionSplit(share.denominator, [range(share.numerator)]) if rarest > 1 else None
        if not is_whole(cv) or isinstance(cv, bool) or cv < 2:
            raise ValueError(f"cv: expected a number of at least 2 or None for Dask input, got {cv!r}")
        folds = min(int(cv), rarest)
        return PartitionSplit(folds, [range(k, k + 1) for k in range(folds)]) if folds > 1 else None

    def train(self, plan: Any, rounds: int, held_out: range | None) -> Any:
        """Train a model on all rows but those of some hands."""
        if held_out is None:
            return dask_training.train(plan, rounds, self._place_rows(range(0), False))
        return dask_training.train(plan, rounds, self._place_rows(held_out, False), self._place_rows(held_out, True))

    def _place_rows(self, hands: range, within: bool) -> PlacedRows:
        chosen = self.client.map(_take_hands, self.encoded, hands=hands, within=within, start=self.start, pure=False)
        shape = self.labels.scores_shape(0)
        y = np.empty(0, np.int64) if self.labels.task == "multiclass" else np.empty(shape, np.float32)
        weight = np.empty(0) if self.weighted or self.estimator.class_weight is not None else None
        return PlacedRows(self.client, chosen, BoostingRows(np.empty((0, self.features)), y, weight, np.empty(shape)))

    def tune(self, split: PartitionSplit) -> TuningResult:
        """Tune the rule on the scores of the rows that each model was trained without."""
        e = self.estimator
        task = self.labels.task
        how: dict[str, Any] = {"task": task, "average": e.average, "rare_labels": RARE_LABELS}
        fitted = self.client.scatter(one_thread(e), broadcast=True, hash=False)
        scores = self.client.map(_score_partition, self.encoded, estimator=fitted, split=split, pure=False)
        if task == "multiclass" or e.average == "samples":
            p, y, w = zip(*self.client.gather(scores), strict=True)
            weight = torch.cat(w) if self.weighted else None
            return tune_threshold(e._metric, torch.cat(p), torch.cat(y), weight=weight, **how)
        bits = _BITS if self.rows > _EXACT_ROWS else None
        tables = self.client.map(_make_tables, scores, task=task, bits=bits, pure=False)
        while len(tables) > 1:  # where they are, two at a time
            pairs = zip(tables[::2], tables[1::2], strict=False)
            tables = [self.client.submit(add, *pair, pure=False) for pair in pairs] + tables[len(tables) & ~1 :]
        return tune_tables(TuningSpec(e._metric, **how).problem(), tables[0].result())


def deal(kinds: NDArray[np.int64], first: NDArray[np.int64], hands: int, seed: int) -> NDArray[np.int64]:
    """Return the hand that each row is dealt to, given its class and how many rows of each class came before.

    Of each class, every ``hands`` rows are dealt one to each hand, in an order shuffled by the seed: the hands have
    equal shares of all classes, and each partition can deal its own rows, wherever it is cut.
    """
    hand = np.zeros(len(kinds), np.int64)
    for k, before in enumerate(first.tolist()):
        mine = np.flatnonzero(kinds == k)
        hand[mine] = _deal_rows(before, len(mine), hands, seed * 1_000_003 + k)
    return hand


def _deal_rows(first: int, count: int, hands: int, key: int) -> NDArray[np.int64]:
    start = first // hands
    stop = -(-(first + count) // hands)
    x = np.arange(start * hands, stop * hands, dtype=np.uint64) + np.uint64(key * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # splitmix64
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    return x.reshape(-1, hands).argsort(1).reshape(-1)[first - start * hands :][:count]


# On the workers


def _read_partition(estimator: Any, x: Any, y: Any, weight: Any) -> _Part:
    found = estimator._numbers(x)
    labels = np.asarray(y)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    w = None if weight is None else np.asarray(weight, dtype=np.float64).reshape(-1)
    lengths = [len(column) for column in (found, labels, w) if column is not None]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"y, sample_weight: expected the rows of X in every partition, got {', '.join(map(str, lengths))} rows in "
            "one; repartition them alike"
        )
    if w is not None and len(w):
        w = _check_sample_weight(w, found, ensure_non_negative=True)
    return _Part(found, labels, w)


def _look_at_labels(part: _Part) -> _Look:
    values, counts = np.unique(part.y, return_counts=True)
    return _Look(values, counts, len(part.y), part.y.shape[1] if part.y.ndim == 2 else None)


def _encode_partition(
    part: _Part, first: NDArray[np.int64], labels: Labels, balance: Any, hands: int, seed: int
) -> _Encoded:
    several = labels.task == "multilabel"
    targets = labels.encode(part.y.reshape(-1, labels.outputs) if several else part.y)
    kinds = np.zeros(len(targets), int) if several else targets.long().numpy()
    hand = deal(kinds, first, hands, seed)
    weight = part.weight
    if balance is not None:
        weight = balance[kinds] if weight is None else weight * balance[kinds]
    return _Encoded(BoostingRows(part.x, targets.numpy(), weight, np.zeros(len(part.y))), hand, part.weight)


def _sum_partition(part: _Encoded, labels: Labels) -> Tensor:
    return sum_classes(part.rows.y, labels.task, len(labels.classes), part.rows.weight)


def _take_hands(part: _Encoded, hands: range, within: bool, start: Any) -> BoostingRows:
    which = np.flatnonzero(np.isin(part.hand, hands) == within)
    rows = part.rows.take(which)
    return BoostingRows(rows.x, rows.y, rows.weight, np.tile(start, (len(which),) + (1,) * np.ndim(start)))


def _score_partition(part: _Encoded, estimator: Any, split: PartitionSplit) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return scores, targets and weights of the rows that a model was trained without."""
    order = []
    p = []
    for model, hands in zip(estimator.boosters_, split.held_out, strict=True):
        order.append(np.flatnonzero(np.isin(part.hand, hands)))
        p.append(estimator._probabilities([model], part.rows.x[order[-1]]))
    rows = np.concatenate(order)
    weight = None if part.weight is None else torch.from_numpy(part.weight[rows])
    return torch.cat(p), torch.from_numpy(part.rows.y[rows]), weight


def _make_tables(scored: Any, task: Any, bits: int | None) -> ScoreTables:
    return ScoreTables.of(as_scored_batch(task, *scored), bits)


def _without_models(estimator: Any) -> Any:
    found = copy.copy(estimator)
    found.__dict__.pop("boosters_", None)
    return found


def _weigh_classes(labels: Labels, class_weight: Any, counts: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """Return the weight of each class."""
    if class_weight is None:
        return None
    if labels.task == "multilabel":
        raise ValueError("class_weight: expected None for multi-label targets; use sample_weight")
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(counts) * counts)  # type: ignore[no-any-return]
    return compute_class_weight(class_weight, classes=labels.classes, y=labels.classes)  # type: ignore[no-any-return]
