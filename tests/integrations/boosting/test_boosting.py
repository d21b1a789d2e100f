"""Objectives and evaluation functions of XGBoost and LightGBM, against plain formulas and the libraries themselves."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import lightgbm
import numpy as np
import pytest
import torch
import xgboost
from sklearn.metrics import f1_score, matthews_corrcoef
from torch import Tensor

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.boosting import base_score, eval_metric, lightgbm_objective, xgboost_objective
from metricgrad.integrations.boosting.objectives import LEAST_CURVATURE, Gradient

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
N, K = 400, 3
X = RNG.normal(size=(N, 6))
SIGNAL = X[:, :K] + X[:, 3:] ** 2 / 2 - 1.5
LABELS = (SIGNAL + RNG.normal(size=(N, K)) * 0.5 > 0.8).astype(np.float32)
Y = LABELS[:, 0].copy()
CLASSES = SIGNAL.argmax(1)
WEIGHT = RNG.integers(1, 4, N).astype(np.float32)
Z, ZK = (RNG.normal(size=shape).astype(np.float32) for shape in (N, (N, K)))
XGB = {"nthread": 1, "base_score": 0.0, "disable_default_eval_metric": True}
LGB = {"num_threads": 1, "verbosity": -1, "deterministic": True}


def sigmoid(z: Array) -> Array:
    return 1 / (1 + np.exp(-z.astype(np.float64)))


def soft_f1_gradient(z: Array, y: Array, w: Array) -> Array:
    """n times the gradient of 1 − F1 of sigmoid memberships, by the quotient rule."""
    p = sigmoid(z)
    tp, both = (w * y * p).sum(), (w * p).sum() + (w * y).sum()
    by_p = [-2 * (yi * both - tp) / both**2 for yi in y]
    return w.sum() * w * np.array(by_p) * p * (1 - p)  # type: ignore[no-any-return]


def soft_f1(**options: Any) -> mg.MetricLoss:
    return mg.MetricLoss("f1", surrogate=s.Identity(), **options)


# --- gradient and curvature


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_the_gradient_is_that_of_the_metric_times_n(weight: Array | None) -> None:
    gradient, curvature = xgboost_objective(soft_f1())(Y, Z, weight)
    expected = soft_f1_gradient(Z, Y, np.ones(N) if weight is None else weight)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(curvature, np.abs(expected) / 2, rtol=1e-4, atol=1e-6)
    assert gradient.dtype == curvature.dtype == np.float32


@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy_has_the_built_in_gradient(weight: Array | None) -> None:
    w = np.ones(N) if weight is None else weight
    binary, labels, classes = (
        mg.HybridLoss("f1", metric_weight=0.0, task=t) for t in ("binary", "multilabel", "multiclass")
    )
    softmax = np.exp(ZK) / np.exp(ZK).sum(1, keepdims=True)
    for loss, y, z, p in (
        (binary, Y, Z, sigmoid(Z)),
        (labels, LABELS, ZK, sigmoid(ZK)),
        (classes, CLASSES, ZK, softmax),
    ):
        target = np.eye(K)[y] if loss is classes else y
        expected = (w if z.ndim == 1 else w[:, None]) * (p - target)
        np.testing.assert_allclose(xgboost_objective(loss)(y, z, weight)[0], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("metric_weight", [0.0, 0.3])
@pytest.mark.parametrize("task", ["binary", "multilabel", "multiclass"])
def test_rows_that_are_kept_have_the_same_gradient(task: Any, metric_weight: float, weight: Array | None) -> None:
    y, shape = {"binary": (Y, Z.shape), "multilabel": (LABELS, ZK.shape), "multiclass": (CLASSES, ZK.shape)}[task]
    plain, kept = (Gradient(mg.HybridLoss("f1", metric_weight=metric_weight, task=task)) for _ in range(2))
    kept.keep_rows(y, weight)
    for scale in (0.01, 1.0, 30.0, 300.0):
        scores = np.random.default_rng(0).normal(size=shape, scale=scale).astype(np.float32)
        for found, wanted in zip(kept(None, scores), plain(y, scores, weight), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_targets_of_kept_rows_are_checked() -> None:
    objective = Gradient(mg.HybridLoss("f1", metric_weight=0.0))
    objective.keep_rows(Y * 3, None)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^targets: "):
            objective(None, Z)


def test_the_expected_curvature_of_cross_entropy_is_the_built_in_one() -> None:
    objective = xgboost_objective(mg.HybridLoss("f1", metric_weight=0.0))
    p, n = sigmoid(Z), np.full(N, 1.0)
    mean = p * objective(n, Z)[1] + (1 - p) * objective(0 * n, Z)[1]
    np.testing.assert_allclose(mean, p * (1 - p), rtol=1e-4)


def test_four_times_the_curvature_bounds_the_hessian_of_soft_f1() -> None:
    loss = soft_f1()
    for spread, shift, share in [
        (0.1, 0.0, 0.5),
        (1.0, -3.0, 0.05),
        (3.0, 0.0, 0.3),
        (1.0, 2.0, 0.9),
        (2.0, -1.0, 0.1),
    ]:
        g = torch.Generator().manual_seed(int(10 * spread))
        z = spread * torch.randn(60, generator=g, dtype=torch.float64) + shift
        y = (torch.rand(60, generator=g) < share).double()
        hessian = 60 * torch.autograd.functional.hessian(lambda x, y=y: loss(x, y), z)
        _, h = xgboost_objective(loss)(y.numpy(), z.numpy())
        slack = torch.linalg.eigvalsh(4 * torch.diag(torch.from_numpy(h).double()) - hessian).min()
        assert slack > -1e-6
        assert torch.linalg.eigvalsh(hessian).max() > 0.5 * h.min()  # the bound is no triviality


def test_vanished_gradients_leave_a_positive_curvature() -> None:
    gradient, curvature = xgboost_objective(mg.MetricLoss("f1"))(Y, np.where(Y > 0, 1e4, -1e4))
    assert (gradient == 0).all()
    assert (curvature == np.float32(LEAST_CURVATURE)).all()
    for y in (np.zeros(N), np.ones(N)):
        assert all(np.isfinite(part).all() for part in xgboost_objective(mg.HybridLoss("f1"))(y, Z))


def test_every_label_of_a_macro_average_is_boosted_as_if_alone() -> None:
    together, _ = xgboost_objective(mg.MetricLoss("f1", task="multilabel"))(LABELS, ZK, WEIGHT)
    alone = [xgboost_objective(mg.MetricLoss("f1"))(LABELS[:, k], ZK[:, k], WEIGHT)[0] for k in range(K)]
    np.testing.assert_allclose(together, np.stack(alone, 1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("loss", [mg.MetricLoss("mcc"), mg.HybridLoss("f1"), mg.AUROCLoss(), mg.WMWLoss()])
def test_a_weight_is_a_number_of_copies(loss: Any) -> None:
    copies = WEIGHT.astype(int)
    weighted, _ = xgboost_objective(loss)(Y, Z, WEIGHT)
    repeated, _ = xgboost_objective(loss)(np.repeat(Y, copies), np.repeat(Z, copies))
    first = np.cumsum(copies) - copies
    np.testing.assert_allclose(weighted, copies * repeated[first], rtol=1e-3, atol=1e-5)


# --- how the libraries call


def xgboost_data(y: Array, weight: Array | None, start: Array | None = None) -> Any:
    return xgboost.DMatrix(X, y, weight=weight, base_margin=start)


def lightgbm_data(y: Array, weight: Array | None, start: Array | None = None) -> Any:
    return lightgbm.Dataset(X, y, weight=weight, init_score=start, params=LGB).construct()


@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("data", [xgboost_data, lightgbm_data])
def test_data_and_arrays_are_understood_alike(data: Callable[..., Any], weight: Array | None) -> None:
    losses = mg.MetricLoss("f1"), mg.MetricLoss("f1", task="multiclass"), mg.MetricLoss("f1", task="multilabel")
    for loss, y, z in zip(losses, (Y, CLASSES, LABELS), (Z, ZK, ZK), strict=True):
        expected = xgboost_objective(loss)(y, z, weight)
        if data is xgboost_data or y.ndim == 1:
            found = xgboost_objective(loss)(z, data(y, weight))
        else:
            found = lightgbm_objective(loss, targets=y)(np.asfortranarray(z, np.float64), data(np.zeros(N), weight))
        assert found[0].shape == z.shape
        for mine, its in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, its, rtol=1e-5, atol=1e-7)  # sums in another order


def test_a_flat_matrix_of_labels_is_understood() -> None:
    class OldMatrix:
        def get_label(self) -> Array:
            return LABELS.ravel()

        def get_weight(self) -> Array:
            return np.empty(0)

    objective = xgboost_objective(mg.MetricLoss("f1", task="multilabel"))
    np.testing.assert_array_equal(objective(ZK, OldMatrix())[0], objective(LABELS, ZK)[0])


def boosted(library: str, loss: Any, task: str, rounds: int = 25, weight: Array | None = None) -> list[Array]:
    """Return the training logits before the first and after each round, from 0 on."""
    y, start = TARGETS[task], np.zeros(N if task == "binary" else (N, K), np.float32)
    seen = [start]

    def watch(scores: Array, *_: Any) -> Any:
        seen.append(scores.copy())
        return [] if library == "xgboost" else ("", 0.0, True)

    if library == "xgboost":
        data, more = xgboost_data(y, weight, start), {"num_class": K} if task == "multiclass" else {}
        watching: Any = {"evals": [(data, "")], "custom_metric": watch, "verbose_eval": False}
        xgboost.train(XGB | {"eta": 0.1} | more, data, rounds, obj=xgboost_objective(loss), **watching)
    else:
        several = task == "multilabel"
        data = lightgbm.Dataset(X, np.zeros(N) if several else y, weight=weight, init_score=start)
        objective = lightgbm_objective(loss, targets=y if several else None)
        parameters = LGB | {"num_class": 1 if task == "binary" else K, "objective": objective, "metric": "None"}
        lightgbm.train(parameters, data, rounds, valid_sets=[data], feval=watch)
    return seen


TARGETS = {"binary": Y, "multiclass": CLASSES, "multilabel": LABELS}
LOSSES: dict[str, tuple[str, Any]] = {
    "linear": ("binary", mg.MetricLoss("f1")),
    "identity": ("binary", soft_f1()),
    "mcc": ("binary", mg.MetricLoss("mcc", surrogate=s.LogitSigmoid())),
    "hybrid": ("binary", mg.HybridLoss("f1", metric_weight=1.0)),
    "auroc": ("binary", mg.AUROCLoss()),
    "wmw": ("binary", mg.WMWLoss()),
    "classes": ("multiclass", mg.HybridLoss("f1", metric_weight=1.0, task="multiclass")),
    "kappa": ("multiclass", mg.MetricLoss("kappa", task="multiclass", surrogate=s.Identity())),
    "labels": ("multilabel", mg.MetricLoss("f1", task="multilabel", average="micro")),
}


@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_round_lowers_the_loss(library: str, name: str) -> None:
    task, loss = LOSSES[name]
    y = torch.from_numpy(TARGETS[task])
    course = [loss(torch.from_numpy(z).double(), y).item() for z in boosted(library, loss, task)]
    assert len(course) == 26
    assert np.diff(course).max() <= 0  # WMW arrives at exactly 0
    assert course[-1] < 0.8 * course[0]


def test_without_the_factor_n_no_split_is_made() -> None:
    objective = xgboost_objective(mg.MetricLoss("f1"))

    def shrunk(scores: Array, data: Any) -> tuple[Array, Array]:
        gradient, curvature = objective(scores, data)
        return gradient / N, curvature / N

    sizes = [
        len(xgboost.train(XGB, xgboost_data(Y, None), 3, obj=fobj).trees_to_dataframe()) for fobj in (objective, shrunk)
    ]
    assert sizes[0] > 20
    assert sizes[1] == 3  # three roots


def test_weights_reach_the_trees() -> None:
    plain, weighted = (boosted("xgboost", mg.MetricLoss("f1"), "binary", 3, w)[-1] for w in (None, 1 + 20 * Y))
    assert weighted.mean() > plain.mean() + 0.02


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")  # by LightGBM 4.7, for what 4.6 has not
def test_the_scikit_learn_classes_take_them() -> None:
    loss = mg.HybridLoss("f1", metric_weight=1.0)
    ours: Any = xgboost.XGBClassifier(objective=xgboost_objective(loss), n_estimators=20, n_jobs=1)
    metric = eval_metric("f1", backend="lightgbm")
    theirs: Any = lightgbm.LGBMClassifier(objective=lightgbm_objective(loss), n_estimators=20, n_jobs=1, verbosity=-1)
    ours.set_params(eval_metric=eval_metric("f1"))
    for weight in (None, WEIGHT):
        ours.fit(X, Y, sample_weight=weight, eval_set=[(X, Y)], verbose=False)
        logits = ours.predict(X, output_margin=True)
        assert f1_score(Y, logits >= 0) > 0.8
        assert ours.evals_result()["validation_0"]["f1"][-1] == pytest.approx(f1_score(Y, logits >= 0), abs=1e-5)
        theirs.fit(X, Y, sample_weight=weight, eval_set=[(X, Y)], eval_metric=metric)
        logits = theirs.predict(X, raw_score=True)
        weighted = f1_score(Y, logits >= 0, sample_weight=weight)  # it knows its training data again
        assert theirs.evals_result_["training"]["f1"][-1] == pytest.approx(weighted)


def test_a_warm_up_and_an_annealed_step_move_on_every_round() -> None:
    step = s.Annealed(s.Linear(0.2, 1.0), s.Linear(0.01, 0.2), steps=10)
    loss = mg.HybridLoss(mg.MetricLoss("f1", surrogate=step), metric_weight=1.0, warmup=10)
    boosted_loss = pickle.loads(pickle.dumps(xgboost_objective(loss)))  # noqa: S301
    for _ in range(4):
        boosted_loss(Y, Z)
    assert boosted_loss.loss.current_metric_weight == pytest.approx(0.4)
    assert "position=4" in repr(boosted_loss.loss.metric_loss.surrogate) or int(boosted_loss.loss.position) == 4
    assert loss.current_metric_weight == 0.0


def test_a_plain_function_is_a_loss() -> None:
    def squared(z: Tensor, y: Tensor) -> Tensor:
        return (torch.sigmoid(z) - y).square().mean()

    p = sigmoid(Z)
    np.testing.assert_allclose(xgboost_objective(squared)(Y, Z)[0], 2 * (p - Y) * p * (1 - p), rtol=1e-4, atol=1e-6)


# --- evaluation and start


def test_evaluation_is_the_hard_metric() -> None:
    p = sigmoid(Z)
    for weight in (None, WEIGHT):
        assert eval_metric("f1")(Y, Z, weight) == pytest.approx(f1_score(Y, Z >= 0, sample_weight=weight))
        assert eval_metric("f1", scores="probabilities")(Y, p, weight) == eval_metric("f1")(Y, Z, weight)
        macro = f1_score(CLASSES, ZK.argmax(1), average="macro", sample_weight=weight)
        assert eval_metric("f1", task="multiclass")(CLASSES, ZK, weight) == pytest.approx(macro)
        micro = f1_score(LABELS, ZK >= 0, average="micro", sample_weight=weight)
        assert eval_metric("f1", task="multilabel", average="micro")(LABELS, ZK, weight) == pytest.approx(micro)
    assert eval_metric("mcc", task="multiclass")(CLASSES, ZK) == pytest.approx(matthews_corrcoef(CLASSES, ZK.argmax(1)))
    rule = mg.decisions.Threshold(0.3)
    assert eval_metric("f1", rule=rule)(Y, Z) == pytest.approx(f1_score(Y, p >= 0.3))
    best = max(f1_score(Y, p >= cut) for cut in p)
    assert eval_metric("f1", rule="tuned")(Y, Z) == pytest.approx(best)


def test_evaluation_has_the_form_its_library_takes() -> None:
    value = eval_metric("f2")(Y, Z)
    assert eval_metric("f2")(Z, xgboost_data(Y, None)) == ("f_beta(beta=2.0)", value)
    assert eval_metric("f2", backend="lightgbm")(Z, lightgbm_data(Y, None)) == ("f_beta(beta=2.0)", value, True)
    assert eval_metric("f2", backend="lightgbm")(Y, Z) == ("f_beta(beta=2.0)", value, True)
    labels = eval_metric("f1", backend="lightgbm", task="multilabel", targets=LABELS)
    assert labels(ZK, lightgbm_data(Y, None)) == ("macro_f1", eval_metric("f1", task="multilabel")(LABELS, ZK), True)
    assert "macro_f1" in repr(pickle.loads(pickle.dumps(labels)))  # noqa: S301


def test_early_stopping_maximises() -> None:
    course: Any = {}
    stop = xgboost.callback.EarlyStopping(rounds=5, maximize=True)
    train, held_out = (xgboost.DMatrix(X[part], Y[part]) for part in (slice(0, 200), slice(200, None)))
    metric: Any = eval_metric("f1")
    how: Any = {"obj": xgboost_objective(mg.MetricLoss("f1")), "custom_metric": metric, "evals_result": course}
    model = xgboost.train(XGB, train, 60, evals=[(held_out, "v")], callbacks=[stop], verbose_eval=False, **how)
    assert model.best_iteration == int(np.argmax(course["v"]["f1"]))
    assert len(course["v"]["f1"]) < 60


def test_the_start_is_the_prior() -> None:
    def odds(positive: Any, negative: Any) -> Any:
        return np.log((positive + 0.5) / (negative + 0.5))

    assert base_score(Y) == pytest.approx(odds(Y.sum(), N - Y.sum()))
    assert base_score(Y, weight=WEIGHT) == pytest.approx(odds((WEIGHT * Y).sum(), (WEIGHT * (1 - Y)).sum()))
    np.testing.assert_allclose(base_score(LABELS, task="multilabel"), odds(LABELS.sum(0), N - LABELS.sum(0)))
    shares = np.bincount(CLASSES, WEIGHT, 5) + 0.5
    found = base_score(CLASSES, task="multiclass", classes=5, weight=WEIGHT)
    np.testing.assert_allclose(found, np.log(shares / shares.sum()))
    assert np.isfinite(base_score(np.zeros(5)))
    assert base_score([1, 0, 0]) == base_score(torch.tensor([1, 0, 0]))


def test_a_base_margin_counts() -> None:
    seen: list[Array] = []
    inner = xgboost_objective(mg.MetricLoss("f1"))

    def objective(scores: Array, data: Any) -> Any:
        seen.append(scores)
        return inner(scores, data)

    xgboost.train(XGB, xgboost_data(Y, None, np.full(N, base_score(Y))), 1, obj=objective)
    np.testing.assert_allclose(seen[0], base_score(Y), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: xgboost_objective("f1"), "loss: expected a loss, called with"),  # type: ignore[arg-type]
        (
            lambda: xgboost_objective(mg.MetricLoss("f1", task="multilabel", average=None))(Y[:, None], Z[:, None]),
            r"loss: expected one number .* got \(1,\)",
        ),
        (lambda: xgboost_objective(mg.MetricLoss("f1"))(Y[:5], Z), r"targets: expected 400 classes or labels of shape"),
        (lambda: lightgbm_objective(soft_f1(), targets=LABELS)(Y, Z), r"got \(400, 3\); for several labels a row pass"),
        (
            lambda: eval_metric("f1", backend="catboost"),  # type: ignore[arg-type]
            "backend: expected 'xgboost' or 'lightgbm', got 'catboost'",
        ),
        (
            lambda: eval_metric("f1", rule=0.5),  # type: ignore[arg-type]
            "rule: expected 'tuned', 'fixed' or a rule of mg.decisions, got",
        ),
        (
            lambda: eval_metric("f1", scores="p"),  # type: ignore[arg-type]
            "scores: expected 'logits' or 'probabilities', got 'p'",
        ),
        (
            lambda: eval_metric("f1", average=None),  # type: ignore[arg-type]
            "average: expected 'micro', 'macro', 'weighted' or 'samples', got",
        ),
        (lambda: eval_metric("f1", task="many"), "task: expected one of"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_constrained_loss_sees_the_rows_of_its_round_alone() -> None:
    loss = mg.ConstrainedLoss("f1", "recall>=0.9")
    objective = xgboost_objective(loss)
    objective(Y, Z)
    got = objective(Y, -Z)[0]
    alone = mg.ConstrainedLoss("f1", "recall>=0.9")
    alone.step(torch.from_numpy(Z), torch.from_numpy(Y))
    np.testing.assert_array_equal(got, xgboost_objective(alone)(Y, -Z)[0])
    assert str(loss.report()) == str(loss.report(torch.from_numpy(-Z), torch.from_numpy(Y)))


# Distributed training; that of XGBoost: test_workers.py


@pytest.mark.parametrize("options", [{"num_machines": 2}, {"machines": "10.0.0.1:12400,10.0.0.2:12400"}])
def test_machines_of_lightgbm_are_refused(options: dict[str, Any]) -> None:
    data = lightgbm.Dataset(X, Y, params=LGB).construct()
    data.params = LGB | options
    message = r"^distributed boosting: expected one process, got LightGBM's (num_)?machines=.*; use XGBoost, .* process"
    objective, metric = lightgbm_objective(mg.MetricLoss("f1")), eval_metric("f1", backend="lightgbm")
    for hook in (objective, metric):
        with pytest.raises(ValueError, match=message):
            hook(Z, data)
    # The classes in the style of scikit-learn hand over the labels alone.
    with pytest.raises(ValueError, match=message):
        lightgbm.sklearn._ObjectiveFunctionWrapper(objective)(Z, data)
    with pytest.raises(ValueError, match=message):
        lightgbm.sklearn._EvalFunctionWrapper(metric)(Z, data)
    with pytest.raises(ValueError, match=message):
        mg.MetricBoostingClassifier(backend="lightgbm", backend_params=options, n_estimators=2).fit(X, Y)
    together = lightgbm_objective(mg.MetricLoss("f1", process_group="world"))
    with pytest.raises(ValueError, match=r"^process_group: torch\.distributed is not initialised"):
        together(Z, data)  # a loss of all processes is not refused for being one
    data.params = LGB | {"num_machines": 1}
    assert len(objective(Z, data)[0]) == N


def test_constant_features_get_one_line_from_lightgbm(capfd: pytest.CaptureFixture[str]) -> None:
    model = mg.MetricBoostingClassifier(backend="lightgbm", n_estimators=2, cv=2, random_state=0)
    with pytest.raises(ValueError, match=r"^X: expected at least one feature that varies, got constant columns alone"):
        model.fit(np.zeros((40, 2)), np.arange(40) % 2)
    capfd.readouterr()  # LightGBM prints its own line as well
