"""The losses where Keras uses them: model.fit, compiled steps, mixed precision, masks, saved models; the metric."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad import surrogates as s

if "KERAS_TESTS" not in os.environ:
    pytest.skip("started by test_backends, in a process of its own", allow_module_level=True)
keras = pytest.importorskip("keras")
import metricgrad.keras as mk  # noqa: E402
from keras_gradients import value_and_gradient  # noqa: E402

ROOT = Path(__file__).parents[3]
# Keras makes arrays in a way that numpy 2 will no longer allow.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture(autouse=True)
def _seeds() -> None:
    keras.utils.set_random_seed(0)


def rows(n: int = 512) -> tuple[Any, Any]:
    """Return features and three labels that follow from them."""
    make = np.random.default_rng(0)
    x = make.normal(size=(n, 6)).astype(np.float32)
    return x, (x[:, :3] + x[:, 3:] > 1.5).astype(np.float32)


def network(outputs: int = 3) -> Any:
    return keras.Sequential([keras.Input((6,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(outputs)])


def test_fit_learns_and_its_metric_is_that_of_all_rows() -> None:
    x, y = rows()
    weight = np.linspace(0.5, 1.5, len(x)).astype(np.float32)
    model = network()
    model.compile(
        optimizer=keras.optimizers.Adam(0.02),
        loss=mk.sigmoid_f1(),
        metrics=[mk.ExactMetric("f1", task="multilabel")],
        weighted_metrics=[mk.ExactMetric("mcc", task="multilabel", average="micro", name="weighted_mcc")],
    )
    before = model.evaluate(x, y, sample_weight=weight, batch_size=100, verbose=0, return_dict=True)
    model.fit(x, y, sample_weight=weight, epochs=8, batch_size=64, verbose=0)
    after = model.evaluate(x, y, sample_weight=weight, batch_size=100, verbose=0, return_dict=True)
    assert after["f1"] > max(0.8, before["f1"])
    p = torch.sigmoid(torch.tensor(model.predict(x, verbose=0)))
    hard = mg.evaluate(p, y, "f1", task="multilabel")
    assert after["f1"] == pytest.approx(hard["f1"], abs=1e-6)
    weighted = mg.evaluate(p, y, "mcc", task="multilabel", average="micro", weight=weight)
    assert after["weighted_mcc"] == pytest.approx(weighted["mcc"], abs=1e-6)


def test_a_step_of_fit_is_the_step_of_torch() -> None:
    """A linear layer from zero, one step of SGD: weights of samples reach the counts, and nothing scales the loss."""
    x, y = rows(64)
    weight = np.where(y[:, 0] > 0, 3.0, 0.5).astype(np.float32)
    layer = keras.layers.Dense(3, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((6,)), layer])
    model.compile(optimizer=keras.optimizers.SGD(1.0), loss=mk.HybridLoss("f1", task="multilabel"))
    model.fit(x, y, sample_weight=weight, epochs=1, batch_size=64, verbose=0, shuffle=False)
    kernel = torch.zeros(6, 3, requires_grad=True)
    loss = mg.HybridLoss("f1", task="multilabel")(torch.tensor(x) @ kernel, torch.tensor(y), torch.tensor(weight))
    (gradient,) = torch.autograd.grad(loss, kernel)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(layer.kernel), -gradient, atol=1e-6)


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_counts_in_float32(policy: str) -> None:
    """3000 halves beside 1096: a sum in bfloat16 stops growing at 256."""
    kind = policy.removeprefix("mixed_")
    loss = mk.MetricLoss("precision", dtype=kind)(np.arange(4096) < 3000, keras.ops.cast(np.zeros(4096), kind))
    assert keras.backend.standardize_dtype(loss.dtype) == "float32"
    assert float(loss) == pytest.approx(1 - 3000 / 4096, abs=1e-6)
    x, y = rows(256)
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(3, dtype=policy)])
    model.compile(optimizer=keras.optimizers.Adam(0.1), loss=mk.MetricLoss("f1", task="multilabel"))
    history = model.fit(x, y, epochs=4, batch_size=64, verbose=0).history["loss"]
    assert 0 < history[-1] < history[0] < 1


def test_the_mask_of_a_layer_counts() -> None:
    z = keras.ops.convert_to_tensor(np.array([[2.0, -1.0, 50.0], [1.0, -3.0, -50.0]], np.float32))
    y = np.array([[1, 0, 0], [0, 1, 1]])
    inner = np.array([[True, True, False], [True, True, False]])
    wanted = mk.MetricLoss("f1", task="binary")(y[:, :2], z[:, :2])
    assert float(mk.MetricLoss("f1", task="binary")(y, z, mask=inner)) == pytest.approx(float(wanted))
    masked = keras.layers.Masking(-1.0)(keras.ops.convert_to_tensor(np.array([[[1.0], [2.0], [-1.0]]], np.float32)))
    alone = mk.MetricLoss("f1", task="binary")(np.array([[1, 0]]), np.array([[1.0, 2.0]], np.float32))
    assert float(mk.MetricLoss("f1", task="binary")(np.array([[1, 0, 1]]), masked)) == pytest.approx(float(alone))


@pytest.mark.parametrize(
    "loss",
    [
        mk.MetricLoss("f0.5", task="multilabel", surrogate=s.StraightThrough(s.Sigmoid(k=5.0)), threshold=[0.3, 0.6]),
        mk.HybridLoss(mg.metrics.mcc, metric_weight=0.7, task="multilabel", average="micro", labels=[0, 2]),
        mk.sigmoid_f1(beta=2.0, surrogate=s.LogitSigmoid(torch.tensor([1.0, 2.0, 3.0]))),
        mk.multiclass_f_beta([0.5, 1.0, 2.0]),
    ],
    ids=lambda loss: loss.name,
)
def test_a_saved_loss_is_the_same(loss: Any) -> None:
    text = json.dumps(keras.saving.serialize_keras_object(loss))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    x, y = rows(32)
    y = y.argmax(1) if "multiclass" in loss.name else y
    assert type(again) is type(loss)
    assert float(again(y, x[:, :3])) == float(loss(y, x[:, :3]))


def test_a_saved_model_evaluates_the_same(tmp_path: Path) -> None:
    x, y = rows(64)
    model = network()
    model.compile(loss=mk.soft_set(task="multilabel"), metrics=[mk.ExactMetric("mcc", task="multilabel")])
    model.fit(x, y, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.evaluate(x, y, verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))


@keras.saving.register_keras_serializable(package="tests")  # type: ignore[untyped-decorator]
def own_metric(c: mg.Counts) -> Any:
    return mg.metrics.ratio(c.tp, c.tp + c.fp + c.fn + 1.0)


def test_a_file_names_no_code_that_keras_does_not_know() -> None:
    again = mk.MetricLoss.from_config(mk.MetricLoss(own_metric).get_config())
    assert again._torch.metric is own_metric
    with pytest.raises(ValueError, match="metric: expected a function that Keras can save, got <function"):
        mk.MetricLoss(lambda c: c.tp).get_config()
    with pytest.raises(ValueError, match="metric: expected the name of a metric, got 'os:system'; a file cannot name"):
        mk.MetricLoss.from_config({"metric": "os:system"})


@pytest.mark.parametrize(
    ("metric", "task", "options"),
    [
        ("f1", "binary", {"threshold": 0.3}),
        ("mcc", "multilabel", {"threshold": [0.2, 0.5, 0.7], "average": None}),
        ("f1", "multilabel", {"average": "samples"}),
        ("f1", "multilabel", {"labels": [0, 2], "average": "weighted"}),
        ("kappa", "multiclass", {}),
        ("f1", "multiclass", {"average": "micro", "ignore_index": 2}),
    ],
)
def test_the_metric_of_a_stream_is_that_of_the_whole(metric: str, task: Any, options: dict[str, Any]) -> None:
    make = torch.Generator().manual_seed(3)
    z = torch.randn((60,) if task == "binary" else (60, 3), generator=make)
    y = torch.randint(0, 3, (60,), generator=make) if task == "multiclass" else (z + torch.randn(z.shape) > 0).long()
    w = torch.rand(60, generator=make)
    exact = mk.ExactMetric(metric, task=task, **options)
    for _ in range(2):  # the second time after a reset
        exact.reset_state()
        for part in torch.arange(60).split(25):
            exact.update_state(y[part].numpy(), z[part].numpy(), w[part].numpy())
    p = z.softmax(1) if task == "multiclass" else z.sigmoid()
    wanted = mg.evaluate(p, y, metric, task=task, weight=w, **options)[metric]
    np.testing.assert_allclose(keras.ops.convert_to_numpy(exact.result()), wanted, rtol=1e-5)
    again = mk.ExactMetric.from_config(exact.get_config())
    again.update_state(y.numpy(), z.numpy(), w.numpy())
    np.testing.assert_allclose(keras.ops.convert_to_numpy(again.result()), wanted, rtol=1e-5)


def test_the_metric_counts_beyond_float32() -> None:
    exact = mk.ExactMetric("precision")
    exact.update_state([1], [9.0], [2.0**25])
    for _ in range(64):
        exact.update_state([0], [9.0], [1.0])  # a float32 of 2^25 does not grow by 1
    assert float(exact._total[1, 0]) == 64
    for _ in range(64):
        exact.update_state([1], [9.0], [1.0])
    assert float(exact._total[0, 0]) == 2.0**25
    assert float(exact._rest[0, 0]) == 64


def test_under_a_compiled_step_with_weights() -> None:
    x, y = rows(32)
    weight = np.linspace(0, 1, 32).astype(np.float32)
    loss = mk.HybridLoss("jaccard", task="multilabel", average="samples")
    plain, fast = (value_and_gradient(lambda z: loss(y, z, weight), x[:, :3], how) for how in (False, True))
    for a, b in zip(plain, fast, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_metricgrad_alone_imports_no_keras() -> None:
    code = "import sys, metricgrad; metricgrad.MetricLoss; dir(metricgrad); print('keras' in sys.modules)"
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout == "False\n"
    assert mg.keras is mk
