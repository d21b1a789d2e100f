"""A payload of simulated scores, with the raw scores beside it: for the report's tests, its size and its picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from metricgrad.comparison.leaderboard import REFERENCES, Difference, LeaderboardRow
from metricgrad.comparison.report.histograms import bin_scores
from metricgrad.comparison.report.payload import Details, Payload
from metricgrad.comparison.report.sections.threshold import ClassCurve

NAMES = [
    ("hybrid loss", "network", 1.50),
    ("metric-boosted trees", "trees", 1.47),
    ("metric loss (sigmoidF1)", "network", 1.36),
    ("cross-entropy", "network", 1.30),
    ("plain trees", "trees", 1.29),
    ("class-weighted cross-entropy", "network", 1.26),
    ("focal loss", "network", 1.18),
    ("majority", "baseline", 0.0),
]


COLUMNS = ["tenure", "plan", "calls", "income", "region"]


@dataclass
class Example:
    """The payload and what it was counted from, by contender: ``(N, K)`` scores; and ``(N, K)`` targets."""

    payload: Payload
    scores: dict[str, Tensor]
    targets: Tensor


def simulate(rows: int = 4000, contenders: int = 8, classes: list[str] | None = None, seed: int = 0) -> Example:
    """Return a comparison that was never run: of one positive class, or of several labels."""
    names = classes or ["churned"]
    gen = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.12 / (1 + 0.35 * k) for k in range(len(names))])
    targets = (torch.rand(rows, len(names), generator=gen) < shares).double()
    field = NAMES[:contenders] + [(f"variant {i}", "network", 1.2 - 0.01 * i) for i in range(contenders - len(NAMES))]
    details: dict[str, Details] = {}
    board: list[LeaderboardRow] = []
    scores = {}
    for name, family, skill in field:
        noise = torch.randn(rows, len(names), generator=gen, dtype=torch.float64)
        scores[name] = torch.sigmoid(skill * 1.4 * (targets - 0.5) + (0.0 if skill == 0 else 0.9) * noise - 0.8)
        curves = [_curve(scores[name][:, k], targets[:, k], names[k]) for k in range(len(names))]
        fixed, tuned = _value(curves, 0.5), _value(curves, None)
        details[name] = _details(curves, name, skill, targets, scores[name])
        board += [_row(name, family, rule, value) for rule, value in (("fixed", fixed), ("tuned", tuned))]
    against = {_own(row): row["value"] or 0.0 for row in board if row["contender"] == "cross-entropy"}
    for row in board:
        for reference, value in against.items():
            if reference != _own(row):
                row["against"][reference] = _difference((row["value"] or 0.0) - value)
    board.sort(key=lambda row: -(row["value"] or 0.0))
    best = board[0]
    payload: Payload = {
        "version": "0.1.0",
        "created": "2026-01-31T12:00:00+00:00",
        "command": "metricgrad compare simulated.csv --target churned --metric f2",
        "verdict": {
            "headline": f"Ship the {best['contender']} with a tuned threshold: it finds more of what you look for.",
            "text": "Over cross-entropy with its threshold tuned the same way, F2 rises on every split, by more than "
            "they differ. Most of the gain is due to the threshold, which is far from one half.",
            "ship": best["contender"],
            "rule": best["rule"],
            "gain_is_real": True,
        },
        "data": {
            "file": "simulated.csv",
            "rows": rows,
            "task": "multilabel" if classes else "binary",
            "target": names if classes else ["churned"],
            "classes": names if classes else ["stayed", "churned"],
            "balance": targets.mean(0).tolist() if classes else [1 - targets.mean().item(), targets.mean().item()],
            "profile": [
                ("Columns", "14 numbers, 6 categories"),
                ("Missing", "2.1 % of cells, most in “income”"),
                ("Duplicates", "12 rows"),
            ],
            "warnings": ["Column “closed_on” tells the target nearly alone: is it known when you predict?"],
        },
        "metric": {"name": "f2", "average": "macro" if classes else None, "subject_to": None, "also": ["precision"]},
        "repeats": 5,
        "protocol": [
            "Five stratified splits; every contender sees the same rows and has the same budget.",
            "Rules are tuned on training rows only; all figures are of test rows.",
            "Intervals and p-values are those of a bootstrap of the test rows and of the variance over the splits.",
        ],
        "leaderboard": board,
        "members": [
            {"name": "hybrid loss", "weight": 0.62, "low": 0.48, "high": 0.71},
            {"name": "plain trees", "weight": 0.38, "low": 0.29, "high": 0.52},
        ],
        "left_out": [("Lovász hinge", "it has no use for a single label per row")],
        "details": details,
        "importance": [
            {"column": name, "drop": 0.09 * 0.6**i - 0.002, "low": 0.09 * 0.6**i - 0.02, "high": 0.09 * 0.6**i + 0.016}
            for i, name in enumerate(COLUMNS)
        ],
        "study": _study(len(names)),
        "reproduce": {
            "command": "metricgrad compare simulated.csv --target churned --metric f2 --seed 0",
            "seed": 0,
            "versions": {"metricgrad": "0.1.0", "torch": "2.13.0"},
            "machine": "2 cores, Linux",
        },
    }
    return Example(payload, scores, targets)


def _study(classes: int) -> dict[str, Any]:
    """Return what sections measure once, in plausible numbers."""
    rising = [[0.05 + 0.02 * i * (k + 1) / classes for i in range(8)] for k in range(classes)]
    few = [[0.1, 0.3 / (k + 1), 0.2] for k in range(classes)]
    plans = ["flat rate", "prepaid", "family"]
    numbers = [6.0 * i for i in range(8)]
    return {
        "dependence": [
            {
                "column": "tenure",
                "names": list(map(str, numbers)),
                "numbers": numbers,
                "scores": rising,
                "shares": rising,
            },
            {"column": "plan", "names": plans, "numbers": [], "scores": few, "shares": few},
        ],
        "segments": [
            {
                "column": name,
                "segments": [
                    {"name": f"{name} {i}", "rows": 400 - 30 * i, "value": value, "low": low, "high": high}
                    for i, (value, low, high) in enumerate(
                        [(0.4, 0.3, 0.5), (0.55, 0.45, 0.6), (0.7, None, None), (None, None, None)]
                    )
                ],
            }
            for name in COLUMNS
        ],
        "segments_all": 0.52,
        "columns": [
            {
                "column": f"{name} {i}" if i else name,
                "kind": "category" if name in ("plan", "region") else "number",
                "missing": 0.021 * i,
                "names": [f"{k} to {k + 1}" for k in range(10)],
                "shares": [0.02 * k + 0.01 for k in range(10)],
            }
            for i in range(3)
            for name in COLUMNS
        ],
        "columns_all": 15,
    }


def _curve(scores: Tensor, targets: Tensor, name: str) -> ClassCurve:
    rough = bin_scores(scores, targets)
    values = [_f2(rough["tp"][i], rough["fp"][i], rough["positives"]) for i in range(len(rough["grid"]))]
    best = max(values)
    cut = rough["grid"][values.index(best)]
    near = [c for c, value in zip(rough["grid"], values, strict=True) if value > best - 0.005]
    found = bin_scores(scores, targets, include=[cut])
    plateau = (min(near), max(near))
    return {"name": name, "threshold": cut, "ships": False, "plateau": plateau, "tabulated": {}, **found}


def _f2(tp: int, fp: int, positives: int) -> float:
    return 5 * tp / max(tp + fp + 4 * positives, 1)


def _value(curves: list[ClassCurve], cut: float | None) -> float:
    places = [(c, c["grid"].index(c["threshold"] if cut is None else cut)) for c in curves]  # type: ignore[arg-type]
    return sum(_f2(c["tp"][i], c["fp"][i], c["positives"]) for c, i in places) / len(places)


def _row(name: str, family: str, rule: str, value: float) -> LeaderboardRow:
    folds = [value + 0.011 * math.sin(1 + i * 2.4 + len(name)) for i in range(5)]
    return {
        "contender": name,
        "rule": rule,  # type: ignore[typeddict-item]
        "family": family,
        "value": value,
        "low": value - 0.014,
        "high": value + 0.014,
        "folds": folds,
        "against": {},
        "others": {"precision": value * 0.8},
        "seconds": 1.5 * len(name),
        "feasible": True,
        "held": 5,
    }


def _own(row: LeaderboardRow) -> str:
    """Return the name of this row among the references, or nothing."""
    return REFERENCES[row["rule"] == "tuned"] if row["contender"] == "cross-entropy" else ""


def _difference(gain: float) -> Difference:
    return {"difference": gain, "low": gain - 0.012, "high": gain + 0.012, "p": math.exp(-((gain / 0.008) ** 2))}


def _details(curves: list[ClassCurve], name: str, skill: float, targets: Tensor, scores: Tensor) -> Details:
    trees, per_class = "trees" in name, []
    for curve in curves:
        i = curve["grid"].index(curve["threshold"])  # type: ignore[arg-type]
        tp, fp, positives = curve["tp"][i], curve["fp"][i], curve["positives"]
        precision, recall = tp / max(tp + fp, 1), tp / max(positives, 1)
        f1 = 2 * tp / max(tp + fp + positives, 1)
        per_class.append(
            {"name": curve["name"], "precision": precision, "recall": recall, "f1": f1, "support": positives}
        )
    wrong = (scores[:, 0] - targets[:, 0]).abs().topk(min(20, len(scores))).indices.tolist()
    last = curves[0]["grid"].index(curves[0]["threshold"])  # type: ignore[arg-type]
    tp, fp = curves[0]["tp"][last], curves[0]["fp"][last]
    return {
        "classes": curves,
        "confusion": [[curves[0]["negatives"] - fp, fp], [curves[0]["positives"] - tp, tp]] if len(curves) == 1 else [],
        "per_class": per_class,
        "step": "round" if trees else "epoch",
        "history": [
            {
                "epoch": e,
                "loss": 1 - _learnt(e, skill),
                "soft": _learnt(e, skill) if "entropy" not in name and not trees else None,
                "hard": None if trees else _learnt(e, skill) - 0.05 * math.exp(-e / 8) + 0.012 * math.sin(e * 1.7),
            }
            for e in range(1, 31)
        ]
        if skill
        else [],
        "errors": [
            {
                "row": i + 1,
                "score": scores[i, 0].item(),
                "truth": curves[0]["name"] if targets[i, 0] else "stayed",
                "decided": "stayed" if targets[i, 0] else curves[0]["name"],
                "cells": [("tenure", f"{i % 71} months"), ("plan", "flat rate"), ("calls", str(i % 9))],
            }
            for i in wrong
        ],
    }


def _learnt(epoch: int, skill: float) -> float:
    return skill * 0.42 * (1 - math.exp(-epoch / 6))
