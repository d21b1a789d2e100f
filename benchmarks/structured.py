"""Time of the losses over labellings against a sort, the plain search and the authors' package, in one run.

    python benchmarks/structured.py [--quick] [--json FILE]

Forward + backward; contenders take turns as in ``loss_step.py``. One thread, since ap-perf has one. The package
ap-perf (``pip install ap-perf==0.1.1``) and scikit-learn are compared with where they are installed.
"""

from __future__ import annotations

import time
import warnings
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

import metricgrad as mg
from metricgrad.losses.adversarial_loss import compute_payoffs
from metricgrad.losses.worst_labelling import Ranking
from metricgrad.losses.zero_sum_game import Game
from timing import Loss, Run, Table, arguments, machine, race, show, step, write

SIZES = [1_000, 10_000, 100_000]
SHARES = [0.05, 0.5]
GAMES = [20, 100, 400]
SCORES = {"z": 1.0, "5z": 5.0, "n·z": None}
"""The paper's package has no 1/n: its scores z are n·z here, where few labels are in doubt; with z and 5z many are."""


def data(n: int, share: float, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return logits, higher for positives, and labels."""
    torch.manual_seed(n)
    y = (torch.rand(n) < share).float()
    return (torch.randn(n) + 2 * y - 1).mul_(scale).requires_grad_(), y


def every_pair(z: Tensor, y: Tensor) -> Tensor:
    """Return the hinge of F1 as SVMperf finds it: looking at all pairs of counts."""
    ranking = Ranking(z.detach(), y == 1)
    hits, alarms = ranking.gains
    a, b = torch.arange(len(hits)).unsqueeze(1), torch.arange(len(alarms))
    values = 1 - 2 * a / (a + b + len(hits) - 1) + hits.unsqueeze(1) + alarms
    best = int(values.argmax())
    a0, b0 = best // len(alarms), best % len(alarms)
    loss = 1 - 2 * a0 / (a0 + b0 + len(hits) - 1)
    return loss + (ranking.slope(a0, b0).to(z.dtype) * z).sum()


def hinges(quick: bool) -> Table:
    """Time the structured hinge, with ratios to a sort of the scores."""
    table: Table = {}
    for n in SIZES:
        for share in SHARES:
            z, y = data(n, share)
            losses: dict[str, Loss] = {
                "ours F1": mg.StructuredHingeLoss("f1"),
                "ours MCC": mg.StructuredHingeLoss("mcc"),
            }
            if n <= 10_000:
                losses["every pair of counts, F1"] = every_pair
                assert torch.isclose(every_pair(z, y), losses["ours F1"](z, y), rtol=1e-5)
            runs: dict[str, tuple[Run, Tensor]] = {"torch.sort": (partial(torch.sort, z.detach()), z)}
            runs["torch BCE"] = step(torch.nn.functional.binary_cross_entropy_with_logits, z, y), z
            rows = race(runs | {name: (step(loss, z, y), z) for name, loss in losses.items()}, quick)
            sort = rows["torch.sort"]["ms"]
            table[f"{n:.0e}, {share:.0%}"] = {name: row | {"ratio": row["ms"] / sort} for name, row in rows.items()}
    return table


def guaranteed(strategy: Tensor, z: Tensor) -> float:
    """Return what marginals ``(n, n)`` (sample by size from 1 on) of the adversary guarantee in the game of F1."""
    n = len(z)
    alpha, gamma, _ = compute_payoffs(mg.metrics.f1, n)
    chances = strategy.sum(0) / torch.arange(1, n + 1)
    strategy, chances = (part / chances.sum().clamp(min=1) for part in (strategy, chances))  # they may exceed 1 a bit
    chances = torch.cat(((1 - chances.sum()).unsqueeze(0), chances))
    game = Game(z / n, alpha[..., 0], gamma[..., 0])
    game.group = torch.arange(n)
    answers = game.best_values(strategy @ gamma[:, 1:, 0].T, alpha[..., 0] @ chances)
    return float(1 + strategy.sum(1) @ z / n - answers.max())


def package() -> Any:
    """Return ap-perf's F1, or None."""
    if find_spec("ap_perf") is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ap_perf.common_metrics import f1_score
    return f1_score


def games(quick: bool, notes: list[str]) -> Table:
    """Time the adversarial loss, with ratios to ap-perf, and tell how far each stays below the true value."""
    theirs = package()
    if theirs is None:
        notes.append("ap-perf is not installed: nothing to compare the adversarial loss with")
    table: Table = {}
    for name, scale in SCORES.items():
        for n in GAMES[:2] if quick else GAMES:
            z, y = data(n, 0.2, n if scale is None else scale)
            best = mg.AdversarialLoss("f1", tol=1e-4)
            value = float(best(z.detach().double(), y)) + float(z.detach().double() @ y.double()) / n
            rows: dict[str, dict[str, Any]] = {}
            runs: dict[str, tuple[Run, Tensor]] = {}
            for tol in (1e-2, 1e-3):
                loss = mg.AdversarialLoss("f1", tol=tol)
                runs[f"ours, tol={tol:g}"] = step(loss, z, y), z
                loss(z, y)
                rows[f"ours, tol={tol:g}"] = {"gap": loss.gap}
            if theirs is not None:
                score, labels = (z.detach().double() / n).numpy(), y.double().numpy()
                runs["ap-perf"] = partial(theirs.objective, score, labels), z
                solve = theirs._PerformanceMetric__solve_admm_q
                strategy, _ = solve(score[:, None].repeat(n, 1), labels)
                found = torch.as_tensor(strategy)
                rows["ap-perf"] = {"gap": value - guaranteed(found, z.detach().double())}
            timed = race(runs, True) if n < 400 else {key: once(run) for key, (run, _) in runs.items()}
            peer = timed["ap-perf" if theirs is not None else "ours, tol=0.01"]["ms"]
            table[f"{name}, n={n}"] = {key: rows[key] | row | {"ratio": peer / row["ms"]} for key, row in timed.items()}
    return table


def once(run: Run) -> dict[str, Any]:
    """Time something slow, twice."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - start))
    return {"ms": min(times), "disturbed": False}


def machines(notes: list[str]) -> Table:
    """Time the training of a linear SVM, with ratios to scikit-learn's (LIBLINEAR's) for the error rate."""
    table: Table = {}
    for n in (2_000, 20_000):
        torch.manual_seed(0)
        y = (torch.rand(n) < 0.1).long()
        x = torch.randn(n, 20, dtype=torch.float64) + 0.5 * y.unsqueeze(1)
        runs: dict[str, Run] = {
            f"LinearSVMPerf {metric}": partial(mg.LinearSVMPerf(metric, C=100.0).fit, x, y)
            for metric in ("accuracy", "f1", "mcc", "auroc")
        }
        if find_spec("sklearn") is None:
            notes.append("scikit-learn is not installed: nothing to compare LinearSVMPerf with")
        else:
            from sklearn.svm import LinearSVC

            peer = LinearSVC(loss="hinge", C=100.0 / n, fit_intercept=False, max_iter=100_000)
            runs = {"scikit-learn LinearSVC": partial(peer.fit, x.numpy(), y.numpy())} | runs
        rows = {name: once(run) for name, run in runs.items()}
        first = next(iter(rows.values()))["ms"]
        table[f"n={n}, 20 features"] = {name: row | {"ratio": row["ms"] / first} for name, row in rows.items()}
    return table


def main() -> None:
    """Run everything, print it and write it down."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    notes: list[str] = []
    packages = ["ap-perf"] if find_spec("ap_perf") else []
    found: dict[str, Any] = {"machine": machine(*packages), "quick": args.quick}
    found["hinge"] = hinges(args.quick)
    title = "structured hinge: forward + backward, milliseconds and ratio to torch.sort; n, share of positives"
    show(title, found["hinge"], lambda row: f"{'~' if row['disturbed'] else ''}{row['ms']:.3g} {row['ratio']:6.1f}×")
    found["game"] = games(args.quick, notes)
    title = (
        "adversarial F1: milliseconds, times as fast as ap-perf, and distance below the true value (proven or known)"
    )
    show(title, found["game"], lambda row: f"{row['ms']:.3g} {row['ratio']:.1f}× {row['gap']:.1g}")
    found["svm"] = machines(notes)
    show("linear SVM: milliseconds and ratio", found["svm"], lambda row: f"{row['ms']:.4g} {row['ratio']:.2f}×")
    found["notes"] = notes
    print("\n".join(["", *notes]))
    write(found, args.json)


if __name__ == "__main__":
    main()
