"""Time and memory of one loss step (forward + backward, float32) against torch's own cross-entropy, in one run.

    python benchmarks/loss_step.py [--quick] [--json FILE] [--only multiclass segmentation] [--cpu]

Needs the ``bench`` extra. All contenders get the same tensors and take turns, as ``timing`` tells. Targets are printed
beside what was measured; a missed one does not fail the run.
"""

from __future__ import annotations

import json
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

import timing
from metricgrad import MetricLoss
from metricgrad.surrogates import Identity, Linear, LogitSigmoid, Sigmoid
from timing import Loss, Row, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

Shape = tuple[int, ...]

TINY: list[Shape] = [(1024, 1), (256, 80)]
LARGE: list[Shape] = [(4096, 100), (1_000_000, 1), (50_000, 100)]
MULTICLASS: list[Shape] = [(32, 10), (256, 10), (256, 1000), (4096, 10), (4096, 1000)]
SEGMENTATION: list[Shape] = [(4, 21, 512, 512)]
SHAPES = {"binary": TINY + LARGE, "multiclass": MULTICLASS, "segmentation": SEGMENTATION}
GROWTH = [10**6, 10**7, 10**8]


# The papers' formulas in plain torch, written for speed: F1 from the overlap and the sizes, no pass that can be spared.


def plain_f1(member: Tensor, y: Tensor) -> Tensor:
    """Return 1 − macro F1 of memberships: 2·overlap / (predicted + true) of each class."""
    overlap = (member * y).sum(0)
    sizes = member.sum(0) + y.sum(0)
    return 1 - (2 * overlap / sizes).mean()


def plain_f1_of_indices(member: Tensor, y: Tensor) -> Tensor:
    """Return the same of class indices: memberships ``(N, K, ...)``, whose overlap is that at the true class."""
    classes = member.shape[1]
    positions = (0, *range(2, member.dim()))
    hits = member.gather(1, y.unsqueeze(1))
    overlap = member.new_zeros(classes).index_add(0, y.flatten(), hits.flatten())
    sizes = member.sum(positions) + y.flatten().bincount(minlength=classes)
    return 1 - (2 * overlap / sizes).mean()


def plain_f1_of_images(member: Tensor, y: Tensor) -> Tensor:
    """Return the mean of what each image alone has; empty classes of an image have no overlap."""
    images, classes = member.shape[:2]
    place = y.flatten(1) + classes * torch.arange(images).unsqueeze(1)
    hits = member.gather(1, y.unsqueeze(1))
    overlap = member.new_zeros(images * classes).index_add(0, place.flatten(), hits.flatten())
    sizes = member.flatten(2).sum(2).flatten() + place.flatten().bincount(minlength=images * classes)
    return 1 - (2 * overlap / sizes).mean()


def linear_step(p: Tensor, tau: Any, delta: float) -> Tensor:
    """Return the five-point linear step, eq. 5 of the binary paper; ``tau`` is a number or one per row."""
    half = torch.minimum(tau, 1 - tau) / 2 if isinstance(tau, Tensor) else min(tau, 1 - tau) / 2
    low = tau - half
    high = tau + half
    outer = delta / low
    ramp = (0.5 - delta) / half
    beyond = delta / (1 - high) - outer
    height: Tensor = outer * p + (ramp - outer) * (p.clamp(low, high) - low)
    if isinstance(beyond, Tensor) or beyond:
        height = height + beyond * (p - high).clamp_min(0)
    return height


def plain_logit_sigmoid(z: Tensor, y: Tensor) -> Tensor:
    """Return sigmoidF1 with β = 1, η = 0."""
    return plain_f1(torch.sigmoid(z), y)


def plain_sigmoid(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set F1 with the sigmoid step on probabilities, k = 10, τ = ½."""
    return plain_f1(torch.sigmoid(10 * (torch.sigmoid(z) - 0.5)), y)


def plain_linear(z: Tensor, y: Tensor) -> Tensor:
    """Return soft-set F1 with the linear step, δ = 0.1, τ = ½."""
    return plain_f1(linear_step(torch.sigmoid(z), 0.5, 0.1), y)


def plain_multiclass(z: Tensor, y: Tensor) -> Tensor:
    """Return macro F1 with the multi-class paper's step, midway between the two largest, δ = 0.2."""
    p = torch.softmax(z, 1)
    height = linear_step(p, p.topk(2, 1).values.mean(1, keepdim=True), 0.2)
    member = height / height.sum(1, keepdim=True)
    return plain_f1_of_indices(member, y)


def plain_soft_mcc(z: Tensor, y: Tensor) -> Tensor:
    """Return Gorodkin's correlation of the probabilities, from shares of samples: no d×d matrix."""
    p = torch.softmax(z, 1)
    correct = p.gather(1, y.unsqueeze(1)).mean()
    predicted = p.mean(0)
    true = y.bincount(minlength=z.shape[1]) / len(y)
    spread = (1 - predicted @ predicted) * (1 - true @ true)
    return 1 - (correct - true @ predicted) / spread.sqrt()


def smp_dice(z: Tensor, y: Tensor) -> Tensor:
    """Return the Dice loss of segmentation_models_pytorch 0.5, written out: the package needs torchvision."""
    p = z.log_softmax(1).exp().flatten(2)
    hot = F.one_hot(y.flatten(1), z.shape[1]).permute(0, 2, 1)
    overlap = torch.sum(p * hot, dim=(0, 2))
    sizes = torch.sum(p + hot, dim=(0, 2))
    dice = 2.0 * overlap / sizes.clamp_min(1e-7)
    return ((1.0 - dice) * (hot.sum((0, 2)) > 0)).mean()


# The contenders.


def contenders(kind: str) -> dict[str, Loss]:
    """Return torch's loss, which comes first and has the ratio 1, ours, and the plain formulas of the same names."""
    if kind == "multiclass":
        return {
            "torch cross-entropy": F.cross_entropy,
            "ours F1": MetricLoss("f1", task="multiclass"),
            "ours soft F1": MetricLoss("f1", task="multiclass", surrogate=Identity()),
            "ours accuracy (d×d)": MetricLoss("accuracy", task="multiclass"),
            "ours MCC": MetricLoss("mcc", task="multiclass"),
            "ours soft MCC": MetricLoss("mcc", task="multiclass", surrogate=Identity()),
            "plain F1": plain_multiclass,
            "plain soft F1": lambda z, y: plain_f1_of_indices(torch.softmax(z, 1), y),
            "plain soft MCC": plain_soft_mcc,
        }
    if kind == "segmentation":
        of_images: dict[str, Any] = {"task": "multiclass", "per_image": True}
        return {
            "torch cross-entropy": F.cross_entropy,
            "ours F1": MetricLoss("f1", task="multiclass"),
            "ours soft F1": MetricLoss("f1", task="multiclass", surrogate=Identity()),
            "ours F1, per image": MetricLoss("f1", **of_images),
            "ours soft F1, per image": MetricLoss("f1", **of_images, surrogate=Identity()),
            "plain soft F1": lambda z, y: plain_f1_of_indices(torch.softmax(z, 1), y),
            "plain soft F1, per image": lambda z, y: plain_f1_of_images(torch.softmax(z, 1), y),
            "MONAI DiceLoss": monai_dice_of_indices(),
            "smp DiceLoss, its formula": smp_dice,
        }
    return {
        "torch BCE": F.binary_cross_entropy_with_logits,
        "ours LogitSigmoid": MetricLoss("f1", task="multilabel", surrogate=LogitSigmoid()),
        "ours Sigmoid(k=10)": MetricLoss("f1", task="multilabel", surrogate=Sigmoid(k=10)),
        "ours Linear": MetricLoss("f1", task="multilabel", surrogate=Linear()),
        "plain LogitSigmoid": plain_logit_sigmoid,
        "plain Sigmoid(k=10)": plain_sigmoid,
        "plain Linear": plain_linear,
    }


def monai_dice() -> Loss:
    """Return MONAI's soft Dice over the whole batch, which is F1 with LogitSigmoid; it wants a spatial axis."""
    from monai.losses.dice import DiceLoss

    dice = DiceLoss(sigmoid=True, batch=True)
    return lambda z, y: dice(z.unsqueeze(2), y.unsqueeze(2))


def monai_dice_of_indices() -> Loss:
    """Return MONAI's soft Dice of several classes over the whole batch."""
    from monai.losses.dice import DiceLoss

    dice = DiceLoss(softmax=True, to_onehot_y=True, batch=True)
    return lambda z, y: dice(z, y.unsqueeze(1))


def torch_btg() -> Loss:
    """Return torch-btg's F1 for one class; it takes probabilities, and always averages over nine thresholds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its default arguments call the deprecated torch.range
        from torch_btg.loss import fb_loss
    loss = fb_loss(beta=1.0)

    def step(z: Tensor, y: Tensor) -> Tensor:
        with cuda_is_here():
            return loss(torch.sigmoid(z).squeeze(1), y.squeeze(1))[0]  # type: ignore[no-any-return]

    return step


@contextmanager
def cuda_is_here() -> Iterator[None]:
    """Make ``tensor.cuda()`` return the tensor itself, at about 1 µs: torch-btg calls it whatever the device."""
    name = "cuda"  # inherited by torch.Tensor, so that deleting the override brings it back
    setattr(torch.Tensor, name, lambda tensor: tensor)
    try:
        yield
    finally:
        delattr(torch.Tensor, name)


def data(kind: str, shape: Shape) -> tuple[Tensor, Tensor]:
    """Return logits and targets: 20 % positives, or class indices."""
    torch.manual_seed(0)
    z = torch.randn(shape).mul_(2.0).requires_grad_()
    if kind == "binary":
        return z, torch.rand(shape).lt_(0.2)
    samples, classes, *positions = shape
    return z, torch.randint(classes, (samples, *positions))


def time_shape(kind: str, shape: Shape, quick: bool, notes: list[str]) -> dict[str, Row]:
    """Time every contender at a shape, with its ratio to torch's loss."""
    z, y = data(kind, shape)
    losses = contenders(kind)
    reference = next(iter(losses))
    timing.check(losses, z, y)
    if kind == "binary":
        losses["MONAI DiceLoss"] = monai_dice()
    if shape == (1024, 1):  # it is binary, and takes seconds at a million logits
        try:
            btg = torch_btg()
            timing.step(btg, z, y)()
            losses["torch-btg (9 thresholds)"] = btg
        except Exception as error:  # whatever it is, the others can still be timed
            notes.append(f"torch-btg could not be run at {shape}: {type(error).__name__}: {error}")
    runs = {name: (timing.step(loss, z, y), z) for name, loss in losses.items()}
    rows = timing.race(runs | {"memory copy of the logits": (lambda: z.detach().clone(), z)}, quick)
    return {name: row | {"ratio": row["ms"] / rows[reference]["ms"]} for name, row in rows.items()}


def memory() -> Table:
    """Measure every contender in a process of its own."""
    table: Table = {}
    cases = [*(("binary", shape) for shape in LARGE), ("multiclass", MULTICLASS[-1]), ("segmentation", SEGMENTATION[0])]
    for kind, shape in cases:
        for name in contenders(kind):
            table.setdefault(str(shape), {})[name] = timing.alone(__file__, [kind, name, shape])
    return table


def targets(found: dict[str, Any]) -> list[Row]:
    """Return what was aimed at beside what was measured; a disturbed measurement meets and misses nothing."""
    wanted: list[tuple[str, float, float, bool]] = []
    for kind, shapes, limits in (
        ("binary", LARGE, {"ours LogitSigmoid": 0.6, "ours Linear": 0.9}),
        ("binary", TINY, {"ours LogitSigmoid": 2.0, "ours Sigmoid(k=10)": 2.0, "ours Linear": 2.0}),
        ("multiclass", MULTICLASS[:1], {"ours F1": 5.0, "ours soft F1": 5.0}),
        ("multiclass", MULTICLASS[1:2], {"ours F1": 4.0, "ours soft F1": 4.0}),
        ("multiclass", MULTICLASS[2:3], {"ours MCC": 6.0, "ours soft MCC": 6.0}),
        ("multiclass", MULTICLASS[-1:], {"ours F1": 3.0, "ours accuracy (d×d)": 3.0}),
        ("segmentation", SEGMENTATION, {"ours soft F1": 1.3, "ours F1": 2.0, "ours F1, per image": 2.0}),
    ):
        for shape in map(str, shapes):
            reference, *_ = rows = found[kind][shape]
            for name, most in limits.items():
                disturbed = rows[name]["disturbed"] or rows[reference]["disturbed"]
                wanted.append((f"{name} / {reference} at {shape}", rows[name]["ratio"], most, disturbed))
    for shape, rows in found["memory"].items():
        ours = {name: row["first"] for name, row in rows.items() if name.startswith("ours")}
        most = 3.2 if shape in map(str, SEGMENTATION) else 2.0
        wanted += [(f"{name}, memory / logits at {shape}", first, most, False) for name, first in ours.items()]
    for name, row in found["growth"].items():
        if name.startswith("ours"):
            wanted.append((f"{name}, slope of growth", row["slope"], 1.1, row["disturbed"]))
    return timing.marked(wanted)


def main() -> None:
    """Run everything, print it and write it down."""
    args = timing.arguments(__doc__, list(SHAPES))
    if args.memory:
        kind, name, shape = args.memory
        few_rows = (2, shape[1], *(8 for _ in shape[2:]))
        print(json.dumps(timing.peaks(contenders(kind)[name], data(kind, few_rows), *data(kind, tuple(shape)))))
        return
    notes: list[str] = []
    found: dict[str, Any] = {"machine": timing.machine("monai", "torch-btg"), "quick": args.quick}
    for kind in args.only or SHAPES:
        found[kind] = {str(shape): time_shape(kind, shape, args.quick, notes) for shape in SHAPES[kind]}
        title = f"{kind}: forward + backward, milliseconds and ratio to torch's loss; ~ while others used the machine"
        timing.show(title, found[kind], lambda row: f"{timing.ms(row)} {row['ratio']:7.2f}×")
    if args.only:
        timing.write(found, args.json)
        return
    found["memory"] = memory()
    title = "memory: peak of a step / bytes of the logits, gradient included; first (with kept buffers) and later steps"
    timing.show(title, found["memory"], lambda row: f"{row['first']:.2f}× {row['later']:7.2f}×")
    sizes = GROWTH[:-1] if args.quick else GROWTH
    losses = {name: contenders("binary")[name] for name in ("ours LogitSigmoid", "ours Linear")}
    found["growth"] = timing.growth(losses, {size: data("binary", (size, 1)) for size in sizes}, args.quick)
    timing.show_growth(found["growth"])
    found["targets"], found["notes"] = targets(found), notes
    timing.show_targets(found["targets"])
    print("\n".join(["", *notes]))
    timing.write(found, args.json)


if __name__ == "__main__":
    main()
