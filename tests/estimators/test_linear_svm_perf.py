"""LinearSVMPerf reaches the optimum of SVMperf's program, and its constraints are the most violated ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.svm import LinearSVC
from torch import Tensor

import metricgrad as mg
from metricgrad import metrics
from metricgrad.estimators.linear_svm_perf import find_worst_of_size, find_worst_pairs


def draw(seed: int, n: int, features: int = 3, share: float = 0.4) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.rand(n, generator=g) < share
    y[0], y[1] = True, False
    x = torch.randn(n, features, generator=g, dtype=torch.float64)
    x[:, 0] += 1.5 * y
    return x, y.long()


def labellings(n: int) -> Tensor:
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=torch.float64)


def quadratic_program(losses: Tensor, planes: Tensor, price: float) -> tuple[Any, float]:
    """Minimise ½w² + price·ξ with ξ ≥ loss + plane·w for all planes, by a solver of others."""
    a, b = planes.numpy(), losses.numpy()
    found = minimize(
        lambda v: 0.5 * v[:-1] @ v[:-1] + price * v[-1],
        np.append(np.zeros(a.shape[1]), b.max()),
        jac=lambda v: np.append(v[:-1], price),
        constraints={
            "type": "ineq",
            "fun": lambda v: v[-1] - b - a @ v[:-1],
            "jac": lambda v: np.c_[-a, np.ones(len(a))],
        },
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return found.x[:-1], float(found.fun)


@pytest.mark.parametrize("metric", ["f1", "accuracy", "mcc", "g_mean"])
@pytest.mark.parametrize("price", [0.5, 20.0])
def test_it_solves_the_program_over_all_labellings(metric: str, price: float) -> None:
    x, y = draw(0, n=7)
    h, y0 = labellings(7), y.double()
    losses = 1 - metrics.get(metric)(mg.Counts(h @ y0, h @ (1 - y0), (1 - h) @ y0, (1 - h) @ (1 - y0)))
    w, objective = quadratic_program(losses, (h - y0) @ x / 7, price)
    model = mg.LinearSVMPerf(metric, C=price, bias=0.0, tol=1e-7).fit(x, y)
    assert model.objective_ == pytest.approx(objective, rel=1e-5)
    assert model.gap_ <= 1e-7
    np.testing.assert_allclose(model.coef_, w, atol=1e-2 * np.abs(w).max())


def test_how_the_price_of_others_compares() -> None:
    n, price = 6, 3.0
    x, y = draw(1, n)
    h, y0 = labellings(n), y.double()
    losses = 1 - metrics.f1(mg.Counts(h @ y0, h @ (1 - y0), (1 - h) @ y0, (1 - h) @ (1 - y0)))
    model = mg.LinearSVMPerf("f1", C=price, bias=0.0, tol=1e-8).fit(x, y)
    # The paper: labels ±1 and sums without 1/n.
    signs = (2 * h - 1) - (2 * y0 - 1)
    w, objective = quadratic_program(losses, signs @ x, price / (4 * n**2))
    np.testing.assert_allclose(model.coef_, 2 * n * w, atol=1e-3)
    assert model.objective_ == pytest.approx(4 * n**2 * objective, rel=1e-5)
    # The program: losses in percent, labels ±½·100/n.
    w, objective = quadratic_program(100 * losses, signs * (50 / n) @ x, price / 100)
    np.testing.assert_allclose(model.coef_, w, atol=1e-3)
    assert model.objective_ == pytest.approx(objective, rel=1e-5)


def test_of_accuracy_it_is_the_ordinary_svm() -> None:
    x, y = draw(2, n=120)
    model = mg.LinearSVMPerf("accuracy", C=24.0, bias=0.0, tol=1e-7).fit(x, y)
    peer = LinearSVC(loss="hinge", C=24.0 / 120, fit_intercept=False, tol=1e-9, max_iter=1_000_000).fit(x, y)
    np.testing.assert_allclose(model.coef_, peer.coef_[0], atol=2e-3)


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_pairs_are_the_mean_hinge_over_pairs(seed: int) -> None:
    x, y = draw(seed, n=40)
    z = x[:, 0].round() if seed == 3 else x[:, 0]
    labels = y == 1
    worst = find_worst_pairs(z, labels)
    leaf = z.clone().requires_grad_()
    hinge = torch.clamp(1 - leaf[labels][:, None] + leaf[~labels], min=0).mean()
    assert float(worst.loss + worst.slope @ z) == pytest.approx(float(hinge.detach()))
    if seed < 3:
        hinge.backward()
        torch.testing.assert_close(worst.slope, leaf.grad)


@pytest.mark.parametrize("size", [None, 1, 3, 6, 8])
def test_the_worst_of_a_size(size: int | None) -> None:
    x, y = draw(4, n=8)
    z, labels = x[:, 0], y == 1
    worst = find_worst_of_size(z, labels, size)
    k = int(y.sum()) if size is None else size
    h = labellings(8)
    h = h[h.sum(1) == k]
    expected = (1 - h @ y.double() / k + (h - y) @ z / 8).max()
    assert float(worst.loss + worst.slope @ z) == pytest.approx(float(expected))


@pytest.mark.parametrize("metric", ["auroc", "prbep", "precision@5", "f2", metrics.kappa])
def test_the_gap_bounds_the_objective(metric: Any) -> None:
    x, y = draw(5, n=60)
    loose, tight = (mg.LinearSVMPerf(metric, C=50.0, tol=tol).fit(x, y) for tol in (0.05, 1e-6))
    assert tight.gap_ <= 1e-6
    assert loose.gap_ <= 0.05
    assert tight.objective_ <= loose.objective_ + 1e-9
    assert loose.objective_ - tight.objective_ <= 50.0 * loose.gap_ + 1e-9


def test_the_metric_pays_on_rare_classes_that_overlap() -> None:
    scores: dict[str, list[float]] = {"accuracy": [], "f1": [], "auroc": []}
    for seed in (0, 1):
        g = torch.Generator().manual_seed(seed)
        y = (torch.rand(3000, generator=g) < 0.05).long()
        x = torch.randn(3000, 4, generator=g) + y[:, None]
        for metric, found in scores.items():
            model = mg.LinearSVMPerf(metric, C=1000.0).fit(x[:1500], y[:1500])
            if metric == "auroc":
                found.append(roc_auc_score(y[1500:], model.decision_function(x[1500:])))
            else:
                found.append(f1_score(y[1500:], model.predict(x[1500:])))
    assert sum(scores["f1"]) / 2 > sum(scores["accuracy"]) / 2 + 0.2
    assert min(scores["auroc"]) > 0.88  # 0.92 is the best there is


def test_the_bias_is_a_feature() -> None:
    x, y = draw(6, n=50)
    model = mg.LinearSVMPerf("f1", C=10.0, bias=2.0, tol=1e-6).fit(x, y)
    by_hand = mg.LinearSVMPerf("f1", C=10.0, bias=0.0, tol=1e-6).fit(torch.cat((x, torch.full((50, 1), 2.0)), 1), y)
    assert model.objective_ == by_hand.objective_
    assert model.intercept_ == pytest.approx(2.0 * float(by_hand.coef_[-1]))
    torch.testing.assert_close(model.decision_function(x), x @ model.coef_ + model.intercept_)


def test_arrays_of_all_kinds() -> None:
    x, y = draw(7, n=40)
    model = mg.LinearSVMPerf().fit(x, y)
    again = mg.LinearSVMPerf().fit(x.numpy(), y.numpy())
    torch.testing.assert_close(model.coef_, again.coef_)
    assert isinstance(model.predict(x), Tensor)
    assert isinstance(again.predict(x.numpy()), np.ndarray)
    np.testing.assert_array_equal(model.predict(x), again.predict(x.numpy()))
    np.testing.assert_array_equal(again.predict(x.numpy()), again.decision_function(x.tolist()) > 0)


def test_scikit_learn_can_clone_it() -> None:
    model = mg.LinearSVMPerf("f2", C=3.0)
    assert clone(model).get_params() == model.get_params()
    assert repr(model.set_params(tol=0.5)) == "LinearSVMPerf(metric='f2', C=3.0, bias=1.0, tol=0.5, max_iter=2000)"


def test_a_gap_that_is_not_reached_is_told() -> None:
    x, y = draw(8, n=60)
    with pytest.warns(UserWarning, match=r"LinearSVMPerf: gap .* after max_iter=2 planes, above tol=0.0001; raise max"):
        model = mg.LinearSVMPerf("f1", C=1000.0, max_iter=2).fit(x, y)
    assert model.gap_ > 1e-4
    assert model.n_iter_ == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C: expected a number above 0, got 0.0"),
        ({"tol": -1.0}, "tol: expected a number above 0"),
        ({"max_iter": 0}, "max_iter: expected a number above 0"),
        ({"metric": "quadratic_kappa"}, "metric: quadratic_kappa is of the d×d matrix"),
        ({"metric": "precision@"}, "metric: unknown name"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mg.LinearSVMPerf(**options)
    with pytest.raises(ValueError, match=message):
        mg.LinearSVMPerf().set_params(**options)


def test_bad_data_are_refused() -> None:
    x, y = draw(9, n=10)
    model = mg.LinearSVMPerf()
    with pytest.raises(ValueError, match="call fit first"):
        model.predict(x)
    for features, labels, message in (
        (x[:, 0], y, r"X: expected finite numbers \(n, features\), got shape \(10,\)"),
        (x * torch.nan, y, "X: expected finite numbers"),
        (x, y[1:], r"y: expected 10 labels 0 or 1, got shape \(9,\)"),
        (x, y + 1, "y: expected 10 labels 0 or 1"),
        (x, torch.ones(10), "y: expected both classes, got 10 positives of 10"),
    ):
        with pytest.raises(ValueError, match=message):
            model.fit(features, labels)
    with pytest.raises(ValueError, match="X: expected 3 features, got 2"):
        model.fit(x, y).predict(x[:, :2])
    with pytest.raises(ValueError, match="metric: precision@50 needs as many samples, got 10"):
        mg.LinearSVMPerf("precision@50").fit(x, y)
    with pytest.raises(ValueError, match="missing: expected one of metric, C"):
        model.set_params(missing=1)
