"""Boosting on real worker processes of a Dask cluster, one of them without positives, one without rows: gradients,
metrics, trees and rules are those of one process."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import distributed
import lightgbm
import numpy as np
import pandas as pd
import pytest
import torch
import xgboost
from xgboost import dask as xgboost_dask

import metricgrad as mg
from metricgrad.boosting import base_score, eval_metric, xgboost_objective
from metricgrad.estimators import dask_boosting
from metricgrad.estimators.dask_boosting import deal
from metricgrad.integrations.boosting.dask_training import PlacedRows

Array = np.ndarray[Any, Any]
N, K = 600, 3
# The first rows of the data, 200 of them, have no positives; uneven, and some workers have nothing.
SHARDS = {"two": [0, 200, N], "three": [0, 200, 200, N]}


def make() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (N, 5)).astype(float)
    signal = x @ [1.0, -1.0, 0.5, 0.0, 0.3] + rng.normal(size=N)
    order = np.argsort(signal > np.quantile(signal, 0.75), kind="stable")
    order = np.r_[order[:200], rng.permutation(order[200:])]
    x, signal = x[order], signal[order]
    binary = (signal > np.quantile(signal, 0.75)).astype(int)
    x[rng.random(x.shape) < 0.1] = np.nan
    return {
        "x": x,
        "binary": binary,
        "multiclass": np.digitize(signal, np.quantile(signal, [0.4, 0.8])),
        "multilabel": np.stack([binary, signal > np.median(signal), x[:, 3] > 3], 1).astype(int),
        "weight": rng.integers(1, 4, N).astype(float),
        "binary scores": rng.normal(size=N).astype(np.float32),
        "multiclass scores": rng.normal(size=(N, K)).astype(np.float32),
        "multilabel scores": rng.normal(size=(N, K)).astype(np.float32),
    }


DATA = make()


def squared(z: torch.Tensor, y: torch.Tensor, weight: torch.Tensor | None = None) -> torch.Tensor:
    """A loss that knows nothing of workers."""
    w = torch.ones_like(z) if weight is None else weight
    return (w * (z.sigmoid() - y) ** 2).sum() / w.sum()


LOSSES: dict[str, tuple[str, Callable[[], Any]]] = {
    "f1": ("binary", lambda: mg.MetricLoss("f1")),
    "hybrid": ("binary", lambda: mg.HybridLoss("mcc", warmup=3)),
    "constrained": ("binary", lambda: mg.ConstrainedLoss("f1", "recall>=0.9")),
    "running": ("binary", lambda: mg.RunningLoss(mg.MetricLoss("f1"))),
    "auroc": ("binary", mg.AUROCLoss),
    "wmw": ("binary", mg.WMWLoss),
    "hinge": ("binary", lambda: mg.StructuredHingeLoss("f1")),
    "own": ("binary", lambda: squared),
    "multiclass": ("multiclass", lambda: mg.HybridLoss("f1", task="multiclass")),
    "kappa": ("multiclass", lambda: mg.MetricLoss("kappa", task="multiclass")),
    "multilabel": ("multilabel", lambda: mg.HybridLoss("f1", task="multilabel")),
    "samples": ("multilabel", lambda: mg.MetricLoss("f1", task="multilabel", average="samples")),
    "many thresholds": (
        "multilabel",
        lambda: mg.MetricLoss("f1", task="multilabel", threshold=[k / 20 for k in range(1, 20)]),
    ),
}
TASKS = ("binary", "multiclass", "multilabel")


def computed(rows: slice) -> dict[str, Any]:
    """Return gradients in three rounds, metrics and starts of some rows, of which XGBoost knows no shape if there are
    none."""
    found: dict[str, Any] = {}
    size = len(range(*rows.indices(N)))

    def given(name: str) -> Array:
        return DATA[name][rows] if size else np.empty(0, np.float32)

    for weight in (None, given("weight") if size else None):
        kind = "plain" if weight is None and not found else "weighted"
        for name, (task, loss) in LOSSES.items():
            objective = xgboost_objective(loss())
            y, z = given(task), given(f"{task} scores")
            rounds = [objective(y, z * factor, weight)[0] for factor in (1, 0.5, 2)]
            found[f"{name} {kind}"] = np.stack(rounds, 1)
        for task in TASKS:
            y, z = given(task), given(f"{task} scores")
            for rule in ("fixed", "tuned"):
                found[f"{task} {rule} {kind}"] = eval_metric("f1", task=task, rule=rule)(y, z, weight)  # type: ignore[arg-type]
    for task in TASKS:
        y = DATA[task][rows]
        found[f"start {task}"] = base_score(y, task=task, weight=DATA["weight"][rows])  # type: ignore[arg-type]
    return found


def one_fails(rows: slice) -> list[str]:
    """Return what workers are told when the labels of one are wrong, before, in and after sums."""
    told = []
    rank = xgboost.collective.get_rank()

    def late(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = mg.MetricLoss("f1")(z, y)
        if rank == 0:
            raise RuntimeError("late\nin two lines")
        return value

    y, z = DATA["binary"][rows].copy(), DATA["binary scores"][rows]
    bad = np.full(len(y), 7) if rank == 0 else y
    shape = z[:, None].repeat(2 + rank, 1)
    calls: list[Callable[[], Any]] = [
        lambda: xgboost_objective(mg.HybridLoss("f1"))(bad, z),
        lambda: xgboost_objective(mg.WMWLoss())(bad, z),
        lambda: xgboost_objective(late)(y, z),
        lambda: eval_metric("f1")(bad, z),
        lambda: xgboost_objective(mg.MetricLoss("f1", task="multilabel"))(shape > 0, shape),
    ]
    for call in calls:
        try:
            call()
        except ValueError as error:
            told.append(str(error))
    assert np.isfinite(xgboost_objective(mg.MetricLoss("f1"))(y, z)[0]).all()  # and they are in step again
    return told


def split_columns(rows: slice) -> list[str]:
    """Return what workers are told that share out the columns and not the rows."""
    rank = xgboost.collective.get_rank()
    columns = DATA["x"][:, :2] if rank == 0 else DATA["x"][:, 2:]
    data = xgboost.DMatrix(columns, DATA["binary"], data_split_mode=xgboost.core.DataSplitMode.COL)
    z, told = DATA["binary scores"], []
    for call in (xgboost_objective(mg.MetricLoss("f1")), eval_metric("f1")):
        try:
            call(z, data)
        except ValueError as error:
            told.append(str(error))
    return told


def in_collective(function: Callable[[slice], Any], cuts: list[int], where: dict[str, Any]) -> tuple[int, Any]:
    """Call a function with the rows of this worker's rank."""
    with xgboost.collective.CommunicatorContext(**where):
        rank = xgboost.collective.get_rank()
        return rank, function(slice(cuts[rank], cuts[rank + 1]))


class Cluster:
    """A cluster, and rows on workers of our choice."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.workers = sorted(client.scheduler_info()["workers"])
        self.kept: list[Any] = []

    def run(self, function: Callable[[slice], Any], shards: str) -> list[Any]:
        """Return a function's results on each worker of a communicator, by rank."""
        cuts = SHARDS[shards]
        tracker = xgboost.tracker.RabitTracker(host_ip="127.0.0.1", n_workers=len(cuts) - 1, timeout=60)
        tracker.start()
        where = {"dmlc_communicator": "rabit", **tracker.worker_args()}
        run = [
            self.client.submit(in_collective, function, cuts, where, workers=[worker], pure=False)
            for worker in self.workers[: len(cuts) - 1]
        ]
        found = dict(self.client.gather(run))
        tracker.free()
        return [found[rank] for rank in range(len(cuts) - 1)]

    def parts(self, x: Any, shards: str) -> list[Any]:
        """Return the rows of each shard, each on a worker."""
        cuts = SHARDS[shards]
        pieces = [x[start:stop] for start, stop in pairwise(cuts)]
        found = [
            self.client.scatter(piece, workers=[worker], hash=False)
            for piece, worker in zip(pieces, self.workers, strict=False)
        ]
        self.kept += found
        return found

    def array(self, x: Array, shards: str) -> Any:
        parts = map(dask.delayed, self.parts(x, shards))
        blocks = [da.from_delayed(part, (np.nan, *x.shape[1:]), x.dtype) for part in parts]
        return da.concatenate(blocks, allow_unknown_chunksizes=True)

    def frame(self, x: Any, shards: str) -> Any:
        return dd.from_delayed(self.parts(x, shards), meta=x.iloc[:0], verify_meta=False).persist()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Rows stay where they were put.
    with (
        dask.config.set({"distributed.scheduler.work-stealing": False, "dataframe.convert-string": False}),
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0", host="127.0.0.1"
        ) as local,
        distributed.Client(local) as client,
    ):
        yield Cluster(client)


# Objectives and metrics


@pytest.fixture(scope="module")
def results(cluster: Cluster) -> dict[str, list[dict[str, Any]]]:
    return {shards: cluster.run(computed, shards) for shards in SHARDS}


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    return computed(slice(None))


@pytest.mark.parametrize("kind", ["plain", "weighted"])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("shards", SHARDS)
def test_workers_have_the_gradient_of_all_rows(
    results: dict[str, Any], expected: dict[str, Any], shards: str, name: str, kind: str
) -> None:
    got = np.concatenate([result[f"{name} {kind}"] for result in results[shards]])
    np.testing.assert_allclose(got, expected[f"{name} {kind}"], rtol=1e-5, atol=2e-6)
    alone = computed_alone(name, kind)
    means_of_rows = ("own", "samples")  # which are the same in any parts
    assert name in means_of_rows or not np.allclose(alone, expected[f"{name} {kind}"], rtol=1e-2, atol=1e-3)


def computed_alone(name: str, kind: str) -> Array:
    """Return the gradients of shards each by itself, which are others."""
    task, loss = LOSSES[name]
    found = []
    for rows in (slice(0, 200), slice(200, None)):
        objective, y, z = xgboost_objective(loss()), DATA[task][rows], DATA[f"{task} scores"][rows]
        weight = DATA["weight"][rows] if kind == "weighted" else None
        found.append(np.stack([objective(y, z * factor, weight)[0] for factor in (1, 0.5, 2)], 1))
    return np.concatenate(found)


@pytest.mark.parametrize("shards", SHARDS)
def test_workers_evaluate_and_start_on_all_rows(results: dict[str, Any], expected: dict[str, Any], shards: str) -> None:
    names = [name for name in expected if name.split()[0] in TASKS and name.split()[-1] in ("plain", "weighted")]
    names = [name for name in names if np.ndim(expected[name]) == 0] + [f"start {task}" for task in TASKS]
    assert len(names) == 15
    for result in results[shards]:
        for name in names:
            np.testing.assert_allclose(result[name], expected[name], rtol=0, atol=1e-9, err_msg=name)


def test_a_worker_that_fails_tells_the_others(cluster: Cluster) -> None:
    told = cluster.run(one_fails, "two")
    assert told[0][:4] == told[1][:4]
    wrong = r"^worker 0 of 2: targets: expected values in \[0, 1\], got 7; they look like class indices"
    assert all(re.match(wrong, told[0][i]) for i in (0, 1, 3)), told[0]
    assert told[0][2] == "worker 0 of 2: late"
    for rank in range(2):
        assert told[rank][4].startswith("distributed boosting: expected the same classes on all workers, got")
        assert "\n" not in "".join(told[rank])


def test_workers_that_share_out_the_columns_are_refused(cluster: Cluster) -> None:
    why = (
        "distributed boosting: expected rows shared out to the workers, got a DMatrix of data_split_mode COL, whose "
        "rows are on all of them; split it by rows"
    )
    assert cluster.run(split_columns, "two") == [[why, why]] * 2


# Trees


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("shards", SHARDS)
def test_trees_are_those_of_one_process(cluster: Cluster, shards: str, task: str) -> None:
    loss = mg.HybridLoss("f1", metric_weight=1.0, task=task)  # type: ignore[arg-type]
    parameters = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": True, "max_depth": 4}
    if task == "multiclass":
        parameters["num_class"] = K
    x, y, w = DATA["x"], DATA[task], DATA["weight"]
    whole = xgboost.DMatrix(x, y, weight=w)
    metric = eval_metric("f1", task=task)  # type: ignore[arg-type]
    history: dict[str, Any] = {}
    how: dict[str, Any] = {"custom_metric": metric, "verbose_eval": False}
    one = xgboost.train(
        parameters,
        whole,
        8,
        obj=xgboost_objective(copy.deepcopy(loss)),
        evals=[(whole, "rows")],
        evals_result=history,
        **how,
    )
    pieces = (cluster.array(column, shards) for column in (x, y, w))
    data = xgboost_dask.DaskDMatrix(cluster.client, next(pieces), next(pieces), weight=next(pieces))
    assert len(data.worker_map) == len(SHARDS[shards]) - 1
    found = xgboost_dask.train(
        cluster.client, parameters, data, 8, obj=xgboost_objective(loss), evals=[(data, "rows")], **how
    )
    got, expected = (model.predict(whole, output_margin=True) for model in (found["booster"], one))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)
    assert np.std(got) > 0.1
    np.testing.assert_allclose(found["history"]["rows"][metric.__name__], history["rows"][metric.__name__], atol=1e-9)


# The estimator


def dealt(y: Array, folds: int, seed: int) -> list[tuple[Array, Array]]:
    """Return the folds of Dask input as pairs of rows, for one process."""
    kinds = np.zeros(N, int) if y.ndim == 2 else np.unique(y, return_inverse=True)[1]
    first = int(np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=2)[0])
    hand = deal(kinds, np.zeros(kinds.max() + 1, int), folds, first)
    return [(np.flatnonzero(hand != k), np.flatnonzero(hand == k)) for k in range(folds)]


def check_equal(found: mg.MetricBoostingClassifier, one: mg.MetricBoostingClassifier, x: Any) -> None:
    np.testing.assert_allclose(found.predict_scores(x), one.predict_scores(x), rtol=0, atol=3e-6)
    np.testing.assert_allclose(found.history_["loss"], one.history_["loss"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.history_["metric"], one.history_["metric"], rtol=0, atol=1e-9)
    assert found.n_estimators_ == one.n_estimators_
    np.testing.assert_allclose(found.base_score_, one.base_score_)
    assert type(found.rule_) is type(one.rule_)
    if found.tuning_ is not None and one.tuning_ is not None:
        assert found.tuning_.value == pytest.approx(one.tuning_.value, abs=1e-9)
    np.testing.assert_array_equal(found.predict(x), one.predict(x))


OPTIONS: dict[str, Any] = {"n_estimators": 8, "random_state": 3, "n_jobs": 1, "max_depth": 4, "learning_rate": 0.3}


def test_frames_with_categories_missing_values_and_weights(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, matrix = set(), PlacedRows.matrix

    def watched(*given: Any) -> Any:
        found = matrix(*given)
        used.add(len(found.worker_map))
        return found

    monkeypatch.setattr(PlacedRows, "matrix", watched)
    x = pd.DataFrame(DATA["x"], columns=list("abcde"))
    x["e"] = pd.Categorical(x["e"].map(dict(enumerate("zyxwvu"))))
    y = np.where(DATA["binary"], "yes", "no")
    weight = pd.Series(DATA["weight"])
    model = mg.MetricBoostingClassifier("mcc", cv=3, **OPTIONS)
    whole = cluster.frame(x, "three")
    model.fit(whole, cluster.frame(pd.Series(y), "three"), cluster.frame(weight, "three"))
    one = mg.MetricBoostingClassifier("mcc", cv=dealt(y, 3, 3), **OPTIONS).fit(x, y, weight)
    check_equal(model, one, x)
    np.testing.assert_allclose(model.rule_.numbers, one.rule_.numbers, atol=1e-6)
    assert used == {3}  # the rows stayed where they were
    assert model.categories_ == {4: sorted("zyxwvu")}
    assert model.feature_names_in_.tolist() == list("abcde")
    # Predictions of Dask input are Dask arrays, computed when asked for.
    for method in ("predict", "predict_scores", "predict_proba"):
        lazy = getattr(model, method)(whole)
        assert isinstance(lazy, da.Array)
        now = lazy.compute()
        then = getattr(model, method)(x)
        assert (now == then).all() if method == "predict" else np.allclose(now, then, rtol=0, atol=1e-12)
        assert now.dtype == lazy.dtype
        assert now.shape[1:] == lazy.shape[1:]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(whole.rename(columns={"a": "b", "b": "a"}))
    # It is an ordinary estimator now.
    mg.save(model, tmp_path / "model")
    np.testing.assert_array_equal(mg.load(tmp_path / "model").predict(x), model.predict(x))
    assert all(booster.attr("metricgrad_history") is None for booster in model.boosters_)


def test_unknown_categories_become_known(cluster: Cluster) -> None:
    x = pd.DataFrame({"a": DATA["x"][:, 0], "kind": pd.Categorical(np.where(DATA["binary"], "p", "n"))})
    whole = cluster.frame(x, "two")
    whole["kind"] = whole["kind"].cat.as_unknown()
    options = OPTIONS | {"n_estimators": 2}
    model = mg.MetricBoostingClassifier(cv=None, rule="fixed", **options)
    model.fit(whole, cluster.frame(pd.Series(DATA["binary"]), "two"))
    assert model.categories_ == {1: ["n", "p"]}
    assert len(model.history_) == 0
    assert model.tuning_ is None
    assert (model.predict_scores(x)[DATA["binary"] == 1] > model.predict_scores(x)[DATA["binary"] == 0].max()).all()


@pytest.mark.parametrize(
    ("task", "average"), [("multiclass", "macro"), ("multilabel", "micro"), ("multilabel", "samples")]
)
def test_arrays_of_several_classes(cluster: Cluster, task: str, average: Any) -> None:
    x, y, weight = DATA["x"], DATA[task], None if average == "macro" else DATA["weight"]
    options = OPTIONS | {"average": average}
    placed = None if weight is None else cluster.array(weight, "three")
    model = mg.MetricBoostingClassifier(cv=2, **options).fit(
        cluster.array(x, "three"), cluster.array(y, "three"), placed
    )
    one = mg.MetricBoostingClassifier(cv=dealt(y, 2, 3), **options).fit(x, y, weight)
    check_equal(model, one, x)
    lazy = model.predict(cluster.array(x, "two"))
    np.testing.assert_array_equal(lazy.compute(), one.predict(x))
    assert model.predict_proba(da.from_array(x[:7], chunks=(3, 2))).chunks == ((3, 3, 1), (K,))


def test_many_rows_are_tuned_on_rounded_scores(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_boosting, "_EXACT_ROWS", N - 1)
    monkeypatch.setattr(dask_boosting, "_BITS", 4)
    x, y = DATA["x"], DATA["binary"]
    model = mg.MetricBoostingClassifier(cv=2, **OPTIONS).fit(cluster.array(x, "three"), cluster.array(y, "three"))
    one = mg.MetricBoostingClassifier(cv=dealt(y, 2, 3), **OPTIONS).fit(x, y)
    assert model.tuning_ is not None
    assert one.tuning_ is not None
    assert model.tuning_.error > 0
    assert model.tuning_.value <= one.tuning_.value <= model.tuning_.value + model.tuning_.error


@pytest.mark.parametrize("monitor", ["loss", "metric"])
def test_early_stopping_on_a_validation_split(cluster: Cluster, monitor: Any) -> None:
    x, y = DATA["x"], DATA["binary"]
    options = OPTIONS | {"n_estimators": 40, "patience": 2, "monitor": monitor, "class_weight": "balanced"}
    model = mg.MetricBoostingClassifier(cv=None, validation_fraction=0.25, **options)
    model.fit(cluster.array(x, "two"), cluster.array(y, "two"))
    one = mg.MetricBoostingClassifier(cv=dealt(y, 4, 3)[:1], **options).fit(x, y)
    check_equal(model, one, x)
    assert model.n_estimators_[0] < 40


def test_an_error_on_one_worker_reaches_the_user(cluster: Cluster) -> None:
    x = DATA["x"].copy()
    x[-1, 0] = np.inf
    model = mg.MetricBoostingClassifier(**OPTIONS)
    with pytest.raises(ValueError, match="Input X contains infinity"):
        model.fit(cluster.array(x, "two"), cluster.array(DATA["binary"], "two"))
    y = DATA["binary"].astype(float)
    y[-1] = 7
    pieces = [cluster.array(column, "two") for column in (DATA["x"], y)]
    data = xgboost_dask.DaskDMatrix(cluster.client, *pieces)
    with pytest.raises(ValueError, match=r"^worker [01] of 2: targets: expected values in \[0, 1\]"):
        xgboost_dask.train(cluster.client, {}, data, 2, obj=xgboost_objective(mg.HybridLoss("f1")))


def test_bad_dask_input_gets_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = da.from_array(DATA["x"], chunks=(150, 5)), da.from_array(DATA["binary"], chunks=150)
    frame = dd.from_pandas(pd.DataFrame(DATA["x"]), npartitions=2)
    model = mg.MetricBoostingClassifier

    def refuse(message: str, options: dict[str, Any], *data: Any) -> None:
        with pytest.raises(ValueError, match=message) as error:
            model(**options).fit(*data)
        assert "\n" not in str(error.value)

    refuse("^backend: expected 'xgboost' for Dask input, got 'lightgbm'", {"backend": "lightgbm"}, x, y)
    refuse("^cv: expected a number of at least 2 or None for Dask input", {"cv": [([0], [1])]}, x, y)
    refuse("^y: expected a Dask array or frame like X, got ndarray", {}, x, DATA["binary"])
    refuse("^y, sample_weight: expected the partitions of X, got 2, 4, 2 partitions", {}, frame, y)
    ragged = da.from_array(DATA["binary"], chunks=400)
    refuse("^y, sample_weight: expected the rows of X in every partition, got 300, [24]00 rows", {}, frame, ragged)
    refuse("^y: expected at least two classes, got one class", {}, x, da.zeros_like(y))
    refuse("^class_weight: expected None for multi-label", {"class_weight": "balanced"}, x, x > 2)

    def nobody() -> None:
        raise ValueError("No global client found")

    monkeypatch.setattr(distributed, "get_client", nobody)
    refuse("^X: a Dask array or frame needs a cluster to fit on, got none; make a distributed.Client first", {}, x, y)


def test_arrays_are_cut_as_those_of_the_features(cluster: Cluster) -> None:
    x, y = da.from_array(DATA["x"], chunks=(150, 2)), da.from_array(DATA["binary"], chunks=400)
    model = mg.MetricBoostingClassifier(cv=2, rule="fixed", **OPTIONS | {"n_estimators": 2}).fit(x, y)
    one = mg.MetricBoostingClassifier(cv=dealt(DATA["binary"], 2, 3), rule="fixed", **OPTIONS | {"n_estimators": 2})
    check_equal(model, one.fit(DATA["x"], DATA["binary"]), DATA["x"])


@pytest.mark.filterwarnings("ignore:Parameter n_jobs will be ignored:UserWarning")
def test_lightgbm_on_dask_is_refused_in_one_line(cluster: Cluster) -> None:
    x, y = (cluster.array(DATA[name], "two") for name in ("x", "binary"))
    objective = mg.boosting.lightgbm_objective(mg.MetricLoss("f1"))
    model = lightgbm.DaskLGBMClassifier(objective=objective, n_estimators=2)
    with pytest.raises(
        ValueError, match=r"^distributed boosting: expected one process, got LightGBM's .*; use XGBoost"
    ):
        model.fit(x, y)


def test_hands_are_dealt_alike_wherever_the_rows_are_cut() -> None:
    kinds = np.random.default_rng(0).integers(0, 3, 1000)
    whole = deal(kinds, np.zeros(3, int), 7, 5)
    for cut in (1, 10, 333, 999):
        first = np.bincount(kinds[:cut], minlength=3)
        parts = [deal(kinds[:cut], np.zeros(3, int), 7, 5), deal(kinds[cut:], first, 7, 5)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    for k in range(3):
        counts = np.bincount(whole[kinds == k], minlength=7)
        assert np.ptp(counts) <= 1
    assert (deal(kinds, np.zeros(3, int), 7, 6) != whole).mean() > 0.5
    orders = whole[kinds == 0][:140].reshape(-1, 7)
    assert len(np.unique(orders, axis=0)) > 15  # shuffled anew for each hand around
