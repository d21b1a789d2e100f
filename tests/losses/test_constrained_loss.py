"""ConstrainedLoss: its formula, that only step() moves multipliers, and that training meets what was asked for."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import metricgrad as mg
from metricgrad import surrogates as s
from metricgrad.core.metrics.constraints import Constraint, Report, parse

G = torch.Generator().manual_seed(2)
Z = torch.randn(40, generator=G, dtype=torch.float64)
Y = (torch.rand(40, generator=G) < 0.4).long()
ROWS = torch.randn(40, 3, generator=G, dtype=torch.float64)
INDEX = torch.randint(3, (40,), generator=G)
LABELS = (torch.rand(40, 3, generator=G) < 0.4).long()
WEIGHT = torch.rand(40, generator=G, dtype=torch.float64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("precision>=0.9", Constraint("precision", 0.9)),
        (" recall[each] >= 0.8 ", Constraint("recall", 0.8, over="each")),
        ("recall[ 2 ]>=.5", Constraint("recall", 0.5, over=2)),
        ("f0.5<=1", Constraint("f0.5", 1.0, "<=")),
        ("f1>=0.12345678901", Constraint("f1", 0.12345678901)),
        ("my.module:metric>=-2e-1", Constraint("my.module:metric", -0.2)),
    ],
)
def test_constraints_are_read_and_written(text: str, expected: Constraint) -> None:
    assert parse(text) == (expected,)
    assert parse(str(expected)) == (expected,)


def test_constraints_come_in_several_forms() -> None:
    expected = (Constraint("precision", 0.9), Constraint("recall", 0.2, over="each"))
    forms: list[Any] = [
        ["precision>=0.9", "recall[each]>=0.2"],
        {"precision": 0.9, "recall[each]": 0.2},
        expected,
    ]
    for form in forms:
        assert mg.ConstrainedLoss("f1", form).constraints == expected
    function: Any = {mg.metrics.recall: 0.5}
    assert mg.ConstrainedLoss("f1", function).constraints[0].metric is mg.metrics.recall
    assert mg.ConstrainedLoss("f1", "recall>=0.5").constraints == (Constraint("recall", 0.5),)


def linear(p: float) -> float:
    """The default surrogate at τ = ½, δ = 0.1."""
    if p < 0.25:
        return 0.4 * p
    return 1.6 * p - 0.3 if p <= 0.75 else 0.4 * p + 0.6


def factor(violation: float) -> float:
    return math.exp(2 * min(max(violation / 0.1, -1.0), 1.0))


def test_the_loss_is_its_formula() -> None:
    p = [1 / (1 + math.exp(-z)) for z in Z.tolist()]

    def values(m: list[float]) -> tuple[float, float]:
        tp = sum(a * y * w for a, y, w in zip(m, Y.tolist(), WEIGHT.tolist(), strict=True))
        predicted = sum(a * w for a, w in zip(m, WEIGHT.tolist(), strict=True))
        return tp / predicted, tp / sum(y * w for y, w in zip(Y.tolist(), WEIGHT.tolist(), strict=True))

    precision, recall = values([linear(q) for q in p])
    hard = values([float(q >= 0.5) for q in p])
    loss = mg.ConstrainedLoss("recall", "precision>=0.35", margin=0.02)
    assert abs(0.37 - hard[0]) < 0.1  # not clipped
    weight = factor(0.37 - hard[0])
    expected = (1 - recall + weight * (0.37 - precision)) / (1 + weight)
    assert loss(Z, Y, WEIGHT).item() == pytest.approx(expected)
    loss.step()
    moved = math.exp(0.2 * (0.37 - hard[0]) / 0.1)
    assert loss.multipliers.tolist() == pytest.approx([moved])
    weight *= moved
    expected = (1 - recall + weight * (0.37 - precision)) / (1 + weight)
    assert loss(Z, Y, WEIGHT).item() == pytest.approx(expected)


CASES: dict[str, tuple[dict[str, Any], Tensor, Tensor]] = {
    "binary": ({"maximise": "recall", "subject_to": ["precision>=0.9", "specificity<=0.3"]}, Z, Y),
    "sigmoid": ({"maximise": "f1", "subject_to": "mcc>=0.3", "surrogate": s.Sigmoid(5.0), "threshold": 0.3}, Z, Y),
    "labels": ({"maximise": "f1", "subject_to": ["recall[each]>=0.9", "precision[1]>=0.2"]}, ROWS, LABELS),
    "micro": ({"maximise": "f2", "subject_to": "precision>=0.4", "average": "micro"}, ROWS, LABELS),
    "classes": ({"maximise": "f1", "subject_to": "recall[each]>=0.5"}, ROWS, INDEX),
    "matrix": ({"maximise": "accuracy", "subject_to": ["recall[each]>=0.4", "kappa>=0.1", "f1>=0.3"]}, ROWS, INDEX),
}
TASKS: dict[str, Any] = {"labels": "multilabel", "micro": "multilabel", "classes": "multiclass", "matrix": "multiclass"}


def case(name: str, **more: Any) -> tuple[mg.ConstrainedLoss, Tensor, Tensor]:
    options, z, y = CASES[name]
    return mg.ConstrainedLoss(task=TASKS.get(name, "binary"), **options, **more), z, y


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_are_those_of_separate_metric_losses(name: str) -> None:
    loss, z, y = case(name, margin=0.0)
    options, task = CASES[name][0], TASKS.get(name, "binary")
    more = {key: value for key, value in options.items() if key not in ("maximise", "subject_to")}
    leaf = z.clone().requires_grad_()
    total, weights = mg.MetricLoss(options["maximise"], task=task, **more)(leaf, y), torch.ones((), dtype=z.dtype)
    for constraint in loss.constraints:
        own: dict[str, Any] = {"average": None} if constraint.over == "each" else more
        if isinstance(constraint.over, int):
            own = {"labels": [constraint.over]}
        soft = 1 - mg.MetricLoss(constraint.metric, task=task, **own)(leaf, y)
        hard = 1 - mg.MetricLoss(constraint.metric, task=task, **{**own, "surrogate": s.Hard()})(z, y)
        weight = torch.tensor([factor(v) for v in constraint.violation(hard).reshape(-1).tolist()], dtype=z.dtype)
        total = total + (weight * constraint.violation(soft).reshape(-1)).sum()
        weights = weights + weight.sum()
    (expected,) = torch.autograd.grad(total / weights, leaf)
    torch.testing.assert_close(loss(z, y), (total / weights).detach())
    (gradient,) = torch.autograd.grad(loss(leaf, y), leaf)
    torch.testing.assert_close(gradient, expected)


def test_memberships_are_computed_once() -> None:
    calls = []

    def surrogate(z: Tensor) -> Tensor:
        calls.append(1)
        return torch.sigmoid(z)

    mg.ConstrainedLoss("recall", ["precision>=0.9", "specificity>=0.5", "f2>=0.1"], surrogate=surrogate)(Z, Y)
    assert len(calls) == 1


@pytest.mark.parametrize("name", CASES)
def test_only_step_moves_multipliers_by_what_was_seen(name: str) -> None:
    loss, z, y = case(name)
    first = loss(z, y)
    before = loss.multipliers.clone()
    assert (before == 1).all()
    torch.testing.assert_close(loss(z, y), first)
    loss.eval()
    loss(z[:5], y[:5])  # not training: not seen
    loss.train()
    loss.step()
    batches, whole = case(name)[0], case(name)[0]
    for part in (slice(0, 7), slice(7, 40)):
        batches(z[part], y[part])
    batches.step()
    whole.step(z, y)
    for other in (batches, whole):
        torch.testing.assert_close(other.multipliers, loss.multipliers)
    assert (loss.multipliers != 1).any()
    with pytest.raises(ValueError, match="step: nothing was seen since the last one"):
        loss.step()


def test_multipliers_rise_when_violated_fall_with_slack_and_are_capped() -> None:
    loss = mg.ConstrainedLoss("recall", ["precision>=2", "recall>=-1"], cap=50.0)
    for _ in range(60):
        value = loss(Z, Y)
        loss.step()
        assert value.isfinite()
    assert loss.multipliers.tolist() == pytest.approx([50.0, 1 / 50])  # infeasible, and no bound at all
    leaf = Z.clone().requires_grad_()
    value = loss(leaf, Y)
    value.backward()
    assert leaf.grad is not None
    assert leaf.grad.isfinite().all()
    assert (leaf.grad != 0).any()
    precision, recall = (1 - mg.MetricLoss(name)(Z, Y).item() for name in ("precision", "recall"))
    slack = math.exp(-2) / 50
    expected = 1 - recall + 50 * (2.01 - precision) + slack * (-0.99 - recall)
    assert value.item() == pytest.approx(expected / (1 + 50 + slack))
    with pytest.raises(ValueError, match=r"targets: expected a torch\.Tensor"):
        loss.step(Z)


def test_what_is_undefined_meets_its_bound() -> None:
    silent = torch.full((4,), -3.0)
    loss = mg.ConstrainedLoss("recall", "precision>=0.9")
    loss(silent, torch.tensor([1, 0, 0, 0]))
    loss.step()
    assert loss.multipliers.item() == pytest.approx(math.exp(-0.2))
    report = loss.report(silent, torch.tensor([1, 0, 0, 0]))
    assert report.met
    assert math.isnan(report.outcomes[0].value)
    each = mg.ConstrainedLoss("accuracy", "recall[each]>=0.5", task="multiclass")
    each.step(ROWS[:4], torch.tensor([0, 0, 1, 1]))  # nothing of class 2
    assert each.multipliers[2].item() == pytest.approx(math.exp(-0.2))
    several = mg.ConstrainedLoss("f1", "precision>=0.9", task="multilabel")
    assert not several.report(torch.full((4, 2), -3.0), torch.ones(4, 2)).met  # an average counts it as 0


@pytest.mark.parametrize("name", CASES)
def test_it_survives_saving_copying_and_printing(name: str) -> None:
    loss, z, y = case(name)
    loss(z, y)
    loss.step()
    fresh = case(name)[0]
    fresh.load_state_dict(loss.state_dict())
    for twin in (fresh, pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss)):  # noqa: S301
        torch.testing.assert_close(twin.multipliers, loss.multipliers)
        torch.testing.assert_close(twin(z, y), loss(z, y))
        assert repr(twin) == repr(loss)
    assert f"subject_to='{', '.join(map(str, loss.constraints))}'" in repr(loss)


def test_the_report_tells_value_bound_and_class() -> None:
    loss = mg.ConstrainedLoss("accuracy", ["recall[each]>=0.5", "precision[1]<=0.9"], task="multiclass")
    z = torch.eye(3)[[0, 0, 1, 2, 0, 1]]
    report = loss.report(z, torch.tensor([0, 0, 1, 1, 2, 2]))
    assert isinstance(report, Report)
    assert not report.met
    assert str(report).splitlines() == [
        "accuracy             0.5000",
        "recall[0] >= 0.5     1.0000  met",
        "recall[1] >= 0.5     0.5000  met",
        "recall[2] >= 0.5     0.0000  not met",
        "precision[1] <= 0.9  0.5000  met",
    ]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_any_batch_is_finite(name: str, dtype: torch.dtype) -> None:
    loss, z, y = case(name)
    masks = {"mask": torch.zeros(40) > 0}
    batches: list[tuple[Tensor, Tensor, dict[str, Any]]] = [
        (1e4 * z.sign(), y, {}),
        (z, torch.zeros_like(y), {}),
        (z, torch.ones_like(y), {}),
        (z, y, masks),
        (z[:0], y[:0], {}),
    ]
    for logits, targets, options in batches:
        leaf = logits.to(dtype).detach().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
            value = loss(leaf, targets, **options)
        value.backward()
        loss.step()
        assert value.isfinite()
        assert leaf.grad is not None
        assert leaf.grad.isfinite().all()
        if options or not len(logits):
            assert (leaf.grad == 0).all()
        assert loss.multipliers.isfinite().all()


# ------------------------------------------------------------------------------------------------ its memory


def test_the_value_is_that_of_the_present_and_the_remembered_batches() -> None:
    loss = mg.ConstrainedLoss("recall", "precision>=0.35", memory=40)
    first, second = slice(0, 30), slice(30, 40)
    loss(Z[first], Y[first])
    leaf = Z[second].clone().requires_grad_()
    value = loss(leaf, Y[second])
    value.backward()
    # 10 of 40 rows are new, so the older ones count 3/4: the same as weights.
    weight = torch.cat((torch.full((30,), 0.75), torch.ones(10))).double()
    alone = mg.ConstrainedLoss("recall", "precision>=0.35", memory=0)
    whole = Z.clone().requires_grad_()
    expected = alone(whole, Y, weight)
    expected.backward()
    assert value.item() == pytest.approx(expected.item())
    assert whole.grad is not None
    torch.testing.assert_close(leaf.grad, whole.grad[second] * (22.5 + 10) / 10)
    assert str(loss.report()) == str(alone.report(Z, Y, weight))
    assert loss.met == loss.report().met


def test_a_batch_as_large_as_the_memory_stands_alone() -> None:
    loss, alone = (mg.ConstrainedLoss("f1", "recall>=0.5", memory=memory) for memory in (20, 0))
    for rows in (slice(0, 20), slice(20, 40)):
        torch.testing.assert_close(loss(Z[rows], Y[rows]), alone(Z[rows], Y[rows]), rtol=0, atol=0)


@pytest.mark.parametrize("task", [None, "multilabel"])
def test_a_compiled_loss_remembers_and_steps_as_the_plain_one(task: Any) -> None:
    torch.compiler.reset()
    g = torch.Generator().manual_seed(2)
    how: dict[str, Any] = {"task": task, "memory": 40}
    plain, loss = (mg.ConstrainedLoss("recall", "precision[each] >= 0.9", **how) for _ in range(2))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for _ in range(4):
        shape = (16, 3) if task else (16,)
        z, y = torch.randn(shape, generator=g), torch.randint(0, 2, shape, generator=g)
        leaf, its = (z.clone().requires_grad_() for _ in range(2))
        value, expected = compiled(leaf, y), plain(its, y)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(torch.autograd.grad(value, leaf), torch.autograd.grad(expected, its))
    for one in (plain, loss):
        one.step()
    torch.testing.assert_close(loss.multipliers, plain.multipliers)
    assert str(loss.report()) == str(plain.report())
    assert loss.get_extra_state()["rows"] == plain.get_extra_state()["rows"] > 16


def test_a_loss_that_is_transformed_is_not_remembered() -> None:
    loss = mg.ConstrainedLoss("recall", "precision >= 0.9")
    torch.func.grad(loss)(torch.tensor([1.0, -1.0]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match=r"^step: nothing was seen"):
        loss.step()


def test_evaluation_neither_uses_nor_changes_the_memory() -> None:
    loss = mg.ConstrainedLoss("f1", "recall>=0.5")
    loss(Z[:9], Y[:9])
    before = str(loss.report())
    loss.eval()
    torch.testing.assert_close(loss(Z[9:], Y[9:]), mg.ConstrainedLoss("f1", "recall>=0.5")(Z[9:], Y[9:]))
    assert str(loss.report()) == before
    loss.reset()
    with pytest.raises(ValueError, match="report: expected logits and targets, or a loss that was called in training"):
        loss.report()


def test_a_batch_that_is_not_finite_is_not_remembered() -> None:
    loss = mg.ConstrainedLoss("f1", "recall>=0.5")
    loss(Z[:9], Y[:9])
    before = str(loss.report())
    assert loss(Z[9:] * math.nan, Y[9:]).isnan()
    assert str(loss.report()) == before
    assert loss(Z[9:], Y[9:]).isfinite()
    loss.step()
    assert loss.multipliers.isfinite().all()
    other = mg.ConstrainedLoss("f1", "recall>=0.5")
    for rows in (slice(0, 9), slice(9, 40)):
        other(Z[rows], Y[rows])
    other.step()
    assert torch.equal(loss.multipliers, other.multipliers)


def test_steps_that_are_closer_than_the_memory_is_long_go_by_the_memory() -> None:
    loss, other = (mg.ConstrainedLoss("f1", "recall>=0.5") for _ in range(2))
    loss(Z[:30], Y[:30])
    other(Z[:30], Y[:30])
    loss.step()
    before = loss.multipliers.clone()
    loss(Z[30:], Y[30:])
    other(Z[30:], Y[30:])
    violation = 0.51 - other.report().outcomes[0].value
    loss.step()
    torch.testing.assert_close(
        loss.multipliers, before * math.exp(0.2 * min(max(violation / 0.1, -1.0), 1.0)), check_dtype=False
    )


@pytest.mark.parametrize("name", CASES)
def test_the_memory_is_saved(name: str) -> None:
    loss, z, y = case(name)
    loss(z[:20], y[:20])
    fresh = case(name)[0]
    fresh.load_state_dict(loss.state_dict())
    torch.testing.assert_close(fresh(z[20:], y[20:]), loss(z[20:], y[20:]), rtol=0, atol=0)
    assert str(fresh.report()) == str(loss.report())
    fresh.step()
    loss.step()
    assert torch.equal(fresh.multipliers, loss.multipliers)
    older = {**loss.state_dict(), "_extra_state": list(loss.hard.counts(z, y).cells())}
    fresh.load_state_dict(older)  # of a version without a memory
    fresh.step()


# ------------------------------------------------------------------------------------------------ it works


@pytest.mark.parametrize(("maximise", "bound"), [("specificity", "recall>=0.95"), ("balanced_accuracy", "recall<=0.5")])
def test_bounds_are_met_where_a_batch_holds_one_positive(maximise: str, bound: str) -> None:
    g = torch.Generator().manual_seed(2)
    y = (torch.rand(10_000, generator=g) < 0.01).long()
    x = torch.randn(10_000, 4, generator=g) + y[:, None] * torch.tensor([1.8, 1.5, 0.8, 0.0])
    loss = mg.ConstrainedLoss(maximise, bound)
    report = train(loss, x, y[:, None], 1, epochs=20, size=128)
    assert report.met, str(report)
    assert loss.met
    assert report.value > (0.85 if maximise == "specificity" else 0.72)


def train(loss: mg.ConstrainedLoss, x: Tensor, y: Tensor, outputs: int, epochs: int = 50, size: int = 512) -> Report:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Linear(32, outputs))
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(size):
            optimiser.zero_grad()
            loss(model(x[rows]), y[rows]).backward()
            optimiser.step()
        schedule.step()
        loss.step()
    with torch.no_grad():
        return loss.report(model(x), y)


def assert_met(report: Report, bound: float) -> None:
    for outcome in report.outcomes:
        assert outcome.value >= bound - 0.01, str(report)


def imbalanced(seed: int) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(3000, generator=g) < 0.1).long()
    shift = torch.tensor([1.8, 1.5, 0.8, 0.0])
    return torch.randn(3000, 4, generator=g) + y[:, None] * shift, y[:, None]


def test_recall_at_a_precision_and_precision_at_a_recall() -> None:
    x, y = imbalanced(0)
    report = train(mg.ConstrainedLoss("recall", {"precision": 0.9}), x, y, 1)
    assert_met(report, 0.9)
    assert report.value > 0.45  # cross-entropy with its cut tuned on the same data reaches 0.50
    other = train(mg.ConstrainedLoss("precision", "recall>=0.9"), x, y, 1)
    assert_met(other, 0.9)
    assert other.value > 0.5  # as does this one, 0.50


def test_accuracy_with_a_least_recall_of_every_class() -> None:
    g = torch.Generator().manual_seed(0)
    y = torch.multinomial(torch.tensor([0.8, 0.15, 0.05]), 3000, True, generator=g)
    x = torch.randn(3000, 2, generator=g) + torch.tensor([[0.0, 0.0], [2.6, 0.0], [0.0, 2.6]])[y]
    report = train(mg.ConstrainedLoss("accuracy", "recall[each]>=0.8", task="multiclass"), x, y, 3)
    assert_met(report, 0.8)
    assert report.value > 0.86  # 0.91 without the bounds, the rarest class's recall then being 0.6


# ------------------------------------------------------------------------------------------------ bad input


def changed_classes() -> None:
    loss = mg.ConstrainedLoss("f1", "recall[each]>=0.9", task="multilabel")
    loss(ROWS, LABELS)
    loss(ROWS[:, :2], LABELS[:, :2])


BAD: list[tuple[Callable[[], Any], str]] = [
    (lambda: parse("precision>0.9"), r"subject_to: expected 'metric>=number'.* got 'precision>0.9'"),
    (lambda: parse("precision>=high"), "got 'precision>=high'"),
    (lambda: parse("precision[all]>=0.9"), r"got 'precision\[all\]>=0.9'"),
    (lambda: parse("precision>=1e"), "got 'precision>=1e'"),
    (changed_classes, "logits: expected the classes of before, 3, got 2; reset"),
    (lambda: mg.ConstrainedLoss("recall", []), "subject_to: expected at least one constraint"),
    (lambda: mg.ConstrainedLoss("recall", {"precision": math.nan}), "subject_to: expected"),
    (lambda: mg.ConstrainedLoss("recall", "precison>=0.9"), "metric: unknown name 'precison'; did you mean"),
    (lambda: mg.ConstrainedLoss("recal", "precision>=0.9"), "metric: unknown name 'recal'"),
    (lambda: Constraint("recall", math.inf), "bound: expected a number, got inf"),
    (lambda: Constraint("recall", 0.5, ">"), "sense: expected '>=' or '<=', got '>'"),
    (lambda: Constraint("recall", 0.5, over=-1), "over: expected 'each', a class number or None, got -1"),
    (lambda: mg.ConstrainedLoss("f1", "recall>=0.9", rate=0.0), "rate: expected a positive number, got 0.0"),
    (lambda: mg.ConstrainedLoss("f1", "recall>=0.9", cap=1.0), "cap: expected a number above 1, got 1.0"),
    (lambda: mg.ConstrainedLoss("f1", "recall>=0.9", memory=-1), "memory: expected a whole number of at least 0"),
    (lambda: mg.ConstrainedLoss("f1", "recall>=0.9", margin=-0.1), "margin: expected a number of at least 0"),
    (
        lambda: mg.ConstrainedLoss("f1", "recall>=0.9", task="multilabel", average=None),
        r"average: expected 'macro', 'micro' or 'weighted', got None; .*'metric\[each\]>=number'",
    ),
    (lambda: mg.ConstrainedLoss("f1", "recall>=0.9", threshold=[0.2, 0.5]), "threshold: expected one number"),  # type: ignore[arg-type]
    (
        lambda: mg.ConstrainedLoss("f1", "accuracy[each]>=0.9", task="multiclass"),
        r"subject_to: accuracy is of the whole d×d matrix and has no classes, got accuracy\[each\] >= 0.9",
    ),
    (
        lambda: mg.ConstrainedLoss("f1", "recall[3]>=0.9", task="multiclass")(ROWS, INDEX),
        "labels: expected class indices below 3, got 3",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_one_answer_to_whether_a_bound_is_met() -> None:
    at_least, at_most = Constraint("recall", 0.8), Constraint("recall", 0.3, "<=")
    assert at_least.met(0.8)
    assert at_least.met(0.8 - 1e-10), "which is rounding"
    assert not at_least.met(0.79)
    assert at_least.met(torch.tensor([0.8, 0.9]))
    assert not at_least.met([0.9, 0.7])
    assert at_most.met([0.1, 0.3])
    assert not at_most.met(0.4)
    assert at_least.met(float("nan")), "0/0 meets any bound"
