"""TabM: the loss is the mean of the members' losses, the prediction the mean of their probabilities."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from rtdl_num_embeddings import PiecewiseLinearEncoding, compute_bins
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification, make_multilabel_classification
from torch import Tensor, nn

import metricgrad as mg
from metricgrad.estimators.preparation import make_loss
from metricgrad.training import tabm

QUICK: dict[str, Any] = {"model": "tabm", "epochs": 3, "cv": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MEMBERS", 3), ("WIDTH", 8), ("BINS", 6), ("EMBEDDING", 2)):
        monkeypatch.setattr(tabm, name, value)


def problem(task: str, rows: int = 240) -> tuple[Any, Any]:
    if task == "binary":
        X, y = make_classification(rows, 6, n_informative=4, weights=[0.7], random_state=0)
        return X, np.where(y == 1, "ill", "well")
    if task == "multiclass":
        return load_iris(return_X_y=True)  # type: ignore[no-any-return]
    return make_multilabel_classification(rows, 5, n_classes=3, random_state=0)  # type: ignore[no-any-return]


def bins_of(model: Any) -> list[Tensor]:
    return [network.embedding.impl.weight.clone() for network in model.networks_]


def batch(task: str, rows: int = 40, members: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    outputs = 1 if task == "binary" else 4
    logits = torch.randn(rows, members, outputs, dtype=torch.float64)
    targets = {
        "binary": torch.randint(2, (rows,)).double(),
        "multiclass": torch.randint(4, (rows,)),
        "multilabel": torch.randint(2, (rows, 4)).double(),
    }[task]
    return logits, targets, torch.rand(rows, dtype=torch.float64)


@pytest.mark.parametrize("loss", ["hybrid", "metric", "cross-entropy"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("task", "average"),
    [
        ("binary", "macro"),
        ("multiclass", "macro"),
        ("multiclass", "micro"),
        ("multilabel", "macro"),
        ("multilabel", "weighted"),
        ("multilabel", "micro"),
        ("multilabel", "samples"),
    ],
)
def test_the_loss_is_the_mean_of_the_members_losses(task: Any, average: Any, weighted: bool, loss: Any) -> None:
    logits, targets, weight = batch(task)
    w = weight if weighted else None
    model = mg.MetricClassifier("f1", average=average, loss=loss, metric_weight=0.7, model="tabm")
    plain = make_loss(loss, "f1", metric_weight=0.7, task=task, average=average)
    found, wanted = (logits.clone().requires_grad_() for _ in range(2))
    value = model._make_loss(task, 1000)(found, targets, w)
    each = [plain(z.squeeze(1) if task == "binary" else z, targets, w) for z in wanted.unbind(1)]
    mean = torch.stack(each).mean()
    torch.testing.assert_close(value, mean)
    value.backward()
    mean.backward()
    torch.testing.assert_close(found.grad, wanted.grad)
    # Logits of the mean, on which early stopping looks, are those of a single member.
    one = logits[:, 0, 0] if task == "binary" else logits[:, 0]
    torch.testing.assert_close(model._make_loss(task, 1000)(one, targets, w), plain(one, targets, w))


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_members_share_one_call_and_a_mask(task: Any) -> None:
    logits, targets, weight = batch(task)
    mask = torch.rand(targets.shape) < 0.7
    calls = []
    inner = mg.HybridLoss("f1", task="multilabel")
    inner.register_forward_hook(lambda module, given, out: calls.append(given[0].shape))
    value = tabm.MemberLoss(inner, at_once=True)(logits, targets, weight, mask)
    assert calls == [(40, logits[0].numel())]
    plain = mg.HybridLoss("f1", task=task)
    each = [plain(z.squeeze(1) if task == "binary" else z, targets, weight, mask) for z in logits.unbind(1)]
    torch.testing.assert_close(value, torch.stack(each).mean())


@pytest.mark.parametrize("options", [{"metric": mg.metrics.f1}, {"loss": nn.BCEWithLogitsLoss()}])
def test_what_is_the_users_own_is_called_for_each_member(options: dict[str, Any]) -> None:
    model = mg.MetricClassifier(**{"model": "tabm"} | options)
    loss: Any = model._make_loss("binary", 100)
    assert not loss.at_once
    logits, targets, _ = batch("binary")
    assert loss.loss(logits[:, 0, 0], targets) > 0


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_the_prediction_is_the_mean_of_the_members_probabilities(task: str) -> None:
    X, y = problem(task)
    model = mg.MetricClassifier("f1", **QUICK).fit(X, y)
    assert model.score(X, y) > 0.2
    x = model._features(X)
    p = []
    for network in model.networks_:
        with torch.no_grad():
            z = network._compute_member_logits(x).double()  # type: ignore[operator]
        p.append((z.softmax(2) if task == "multiclass" else z.sigmoid()).mean(1))
    wanted = torch.stack(p).mean(0)
    assert wanted.std() > 0
    np.testing.assert_allclose(model.predict_scores(X), wanted.squeeze(1) if task == "binary" else wanted, atol=1e-6)


def test_it_learns_what_a_bin_holds() -> None:
    """Positive in a narrow band of a feature, which a linear model cannot find."""
    X = np.random.default_rng(0).normal(size=(2000, 3))
    y = (np.abs(X[:, 0]) < 0.3).astype(int)
    model = mg.MetricClassifier("f1", model="tabm", epochs=40, cv=None, random_state=0).fit(X[500:], y[500:])
    assert ((model.predict(X[:500]) == y[:500]).mean()) > 0.9


def test_bins_are_quantiles_of_the_training_rows_alone() -> None:
    X = torch.randn(2 * 61, 3, generator=torch.Generator().manual_seed(0))
    rows = torch.arange(0, 122, 2)
    changed = X.clone()
    changed[1::2] *= 100
    networks = [tabm.TabM(3, 1, 0.0, "binary") for _ in range(2)]
    for network, features in zip(networks, (X, changed), strict=True):
        network.fit_bins(features, rows)
    encoded = [network.embedding.impl(X) for network in networks]
    assert torch.equal(*encoded)
    wanted = PiecewiseLinearEncoding(compute_bins(X[rows], tabm.BINS))
    torch.testing.assert_close(encoded[0].flatten(1), wanted(X), atol=1e-4, rtol=1e-4)


def test_few_different_values_leave_bins_without_effect() -> None:
    X = torch.tensor([[0.0, 7.0, 1e9], [1.0, 7.0, 1e9], [0.0, 7.0, 2e9], [1.0, 7.0, 2e9]])
    network = tabm.TabM(3, 1, 0.0, "binary")
    network.fit_bins(X.repeat(5, 1), torch.arange(20))
    encoded = network.embedding.impl(X)
    assert encoded.isfinite().all()
    assert (encoded[:, 1].abs() < 1e-6).all()
    torch.testing.assert_close(encoded[:, 0, 0], X[:, 0])
    assert (encoded[:, 0, 1:] == 0).all()


def test_many_features_have_no_embeddings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tabm, "MAX_EMBEDDED_FEATURES", 4)
    X, y = problem("binary")
    model = mg.MetricClassifier("f1", **QUICK).fit(X, y)
    assert all(network.embedding is None for network in model.networks_)
    assert model.score(X, y) > 0.5


def test_sparse_and_dense_jobs_pickle_and_clone_agree() -> None:
    X, y = problem("binary")
    X[np.abs(X) < 0.5] = 0
    model = mg.MetricClassifier("f1", scale=False, **QUICK).fit(X, y)
    wanted = model.predict_scores(X)
    again = clone(model).set_params(n_jobs=2).fit(X, y)
    assert np.array_equal(again.predict_scores(X), wanted)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_scores(X), wanted)  # noqa: S301
    sparse = clone(model).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.predict_scores(sp.csr_matrix(X)), wanted, atol=1e-6)


def test_partial_fit_and_warm_start_go_on() -> None:
    X, y = problem("binary")
    model = mg.MetricClassifier("f1", model="tabm", random_state=0)
    for _ in range(3):
        model.partial_fit(X, y)
    losses = model.history_.loss
    assert losses.iloc[-1] < losses.iloc[0]
    warm = mg.MetricClassifier("f1", warm_start=True, **QUICK).fit(X, y)
    bins = bins_of(warm)
    first = warm.history_.loss.iloc[0]
    warm.fit(X, y)
    assert warm.history_.loss.iloc[0] < first
    assert all(map(torch.equal, bins, bins_of(warm)))


@pytest.mark.parametrize("task", ["binary", "multiclass", "multilabel"])
def test_saved_without_pickle(task: str, tmp_path: Path) -> None:
    X, y = problem(task)
    model = mg.MetricClassifier("f1", **QUICK).fit(X, y)
    outside = torch.random.get_rng_state()
    again: Any = mg.load(mg.save(model, tmp_path / "model"))
    assert torch.equal(outside, torch.random.get_rng_state())
    assert np.array_equal(again.predict_scores(X), model.predict_scores(X))
    assert np.array_equal(again.predict(X), model.predict(X))
    assert all(map(torch.equal, bins_of(model), bins_of(again)))
    assert again.partial_fit(X, y).predict(X).shape == y.shape


@pytest.mark.parametrize("package", ["tabm", "rtdl_num_embeddings"])
def test_a_missing_package_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"model='tabm' needs {package}: pip install 'metricgrad\[tabm\]'"):
        mg.MetricClassifier("f1", **QUICK).fit(*problem("binary"))
