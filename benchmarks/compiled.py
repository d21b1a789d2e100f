"""What ``torch.compile`` of the kernel's two chunk functions would gain: a step of the loss with and without it.

    python benchmarks/compiled.py [--quick] [--cpu] [--json FILE]

Needs a C++ compiler. The two functions, logits to sums and sums' gradient to that of the logits, are compiled for each
shape and put behind a node of the same kind: sums, the metric's derivative, gradient, all in forward. They are written
in plain operations, which the compiler fuses, and take no weights and no mask: less work than the kernel's, but the
link is computed twice, so that a version which keeps it might gain a little more. Shapes and contenders are those of
``loss_step``; read the ratios.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

import timing
from loss_step import LARGE, TINY, Shape, contenders, data
from metricgrad.core.objective import Objective
from metricgrad.surrogates import Linear, Sigmoid
from timing import Loss, Row, Table


def logit_sigmoid(p: Tensor) -> tuple[Tensor, Tensor]:
    """Return memberships and their derivative with respect to the probability."""
    return p, torch.ones_like(p)


def sigmoid(p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same for ``Sigmoid(k=10)``."""
    height = Sigmoid(k=10).step(p, 0.5)
    return height, 10 * height * (1 - height)


def linear(p: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same for ``Linear()``."""
    return Linear().step(p, 0.5), Linear().slope(p, 0.5)


STEPS: dict[str, Any] = {"LogitSigmoid": logit_sigmoid, "Sigmoid(k=10)": sigmoid, "Linear": linear}


def compiled_loss(step: Any) -> Loss:
    """Return macro F1 as a node around two compiled functions."""
    objective = Objective("multilabel", "f1")

    def sums(z: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        member, _ = step(torch.sigmoid(z))
        positives = y.sum(0)
        tp = (member * y).sum(0)
        return tp, (member * (1 - y)).sum(0), positives, len(y) - positives

    def spread(z: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        p = torch.sigmoid(z)
        _, slope = step(p)
        gradient: Tensor = torch.lerp(b, a, y) * slope * p * (1 - p)
        return gradient

    first, second = (torch.compile(function, dynamic=False) for function in (sums, spread))

    class Node(torch.autograd.Function):
        """The loss, its gradient computed with it."""

        @staticmethod
        def forward(ctx: Any, z: Tensor, y: Tensor) -> Tensor:
            """Return the loss."""
            z = z.detach()
            loss, (a, b) = objective.differentiate(tuple(cell.reshape(-1) for cell in first(z, y)))
            a, b = (torch.as_tensor(x, dtype=z.dtype).expand(z.shape[1]) for x in (a, b))
            ctx.gradient = second(z, y, a, b)
            return loss

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
            """Return the gradient; of a loss that is not scaled."""
            return ctx.gradient, None

    return lambda z, y: Node.apply(z, y)  # type: ignore[no-untyped-call]


def time_shape(shape: Shape, quick: bool) -> dict[str, Row]:
    """Time the kernel and the compiled functions, with the seconds that compiling took."""
    z, y = data("binary", shape)
    ours = contenders("binary")
    runs: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, step in STEPS.items():
        loss = compiled_loss(step)
        start = time.perf_counter()
        timing.step(loss, z, y)()
        seconds[name] = time.perf_counter() - start
        timing.check({f"plain {name}": loss, f"ours {name}": ours[f"ours {name}"]}, z, y)
        runs[f"ours {name}"] = timing.step(ours[f"ours {name}"], z, y), z
        runs[f"compiled {name}"] = timing.step(loss, z, y), z
    rows = timing.race(runs, quick)
    for name, took in seconds.items():
        row = rows[f"compiled {name}"]
        row |= {"ratio": row["ms"] / rows[f"ours {name}"]["ms"], "seconds": took}
    return rows


def main() -> None:
    """Measure, print and write."""
    options = timing.arguments(__doc__)
    found: dict[str, Any] = {"machine": timing.machine(), "quick": options.quick}
    table: Table = {}
    for shape in TINY + LARGE:
        torch.compiler.reset()
        table[str(shape)] = rows = time_shape(shape, options.quick)
        print(shape, {name: f"{row['ratio']:.2f}" for name, row in rows.items() if "ratio" in row}, flush=True)
    found["step"] = table
    timing.show(
        "a step: milliseconds; compiled / kernel, and seconds to compile",
        table,
        lambda row: timing.ms(row) + (f" {row['ratio']:.2f}× {row['seconds']:.0f}s" if "ratio" in row else ""),
    )
    timing.write(found, options.json)


if __name__ == "__main__":
    main()
