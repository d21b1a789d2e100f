"""Time of a boosting round with our objectives against the library's own logloss, in one run.

    python benchmarks/boosting.py [--quick] [--json FILE]

Needs the extra ``boosting``. One repetition is one round on a million rows of twenty features (a tenth of them with
--quick): histograms, trees of depth 6, as many threads as torch has, continued from repetition to repetition. Ratios
are ours / built in.
"""

from __future__ import annotations

from typing import Any

import lightgbm
import numpy as np
import torch
import xgboost

import timing
from metricgrad import AUROCLoss, HybridLoss, MetricLoss
from metricgrad.integrations.boosting.objectives import base_score, lightgbm_objective, xgboost_objective
from timing import Run

ROWS, FEATURES = 10**6, 20
LOSSES = {"F1": MetricLoss("f1"), "hybrid F1": HybridLoss("f1", metric_weight=1.0), "AUROC": AUROCLoss()}
BUILT_IN = "built-in logloss"


def data(rows: int) -> tuple[Any, Any]:
    """Return features and 0/1 labels, some 10 % positives."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, FEATURES), dtype=np.float32)
    score = x[:, :5].sum(1) + x[:, 5] * x[:, 6] + random.standard_normal(rows, dtype=np.float32)
    return x, (score > 3.5).astype(np.float32)


def xgboost_rounds(x: Any, y: Any) -> dict[str, Run]:
    """Return one round of XGBoost, with each objective."""
    common = {"max_depth": 6, "tree_method": "hist", "nthread": torch.get_num_threads()}
    own = common | {"base_score": base_score(y), "disable_default_eval_metric": True}
    built_in = common | {"objective": "binary:logistic"}

    def rounds(parameters: dict[str, Any], objective: Any) -> Run:
        matrix = xgboost.QuantileDMatrix(x, y)
        booster = xgboost.Booster(parameters, [matrix])
        return lambda: booster.update(matrix, booster.num_boosted_rounds(), objective)

    return {BUILT_IN: rounds(built_in, None)} | {n: rounds(own, xgboost_objective(loss)) for n, loss in LOSSES.items()}


def lightgbm_rounds(x: Any, y: Any) -> dict[str, Run]:
    """Return one round of LightGBM, with each objective."""
    common = {"max_depth": 6, "num_threads": torch.get_num_threads(), "verbosity": -1}
    start = np.full(len(y), base_score(y))

    def rounds(objective: Any) -> Run:
        set_up = lightgbm.Dataset(x, y, init_score=None if objective is None else start, free_raw_data=False)
        booster = lightgbm.Booster(common | {"objective": "binary" if objective is None else "none"}, set_up)
        return lambda: booster.update(fobj=objective)

    return {BUILT_IN: rounds(None)} | {name: rounds(lightgbm_objective(loss)) for name, loss in LOSSES.items()}


def main() -> None:
    """Run everything, print it and write it down."""
    args = timing.arguments(__doc__)
    found: dict[str, Any] = {"machine": timing.machine("lightgbm"), "xgboost": xgboost.__version__, "quick": args.quick}
    rows = ROWS // 10 if args.quick else ROWS
    x, y = data(rows)
    wanted, none = [], torch.zeros(())
    for library, prepare in (("XGBoost", xgboost_rounds), ("LightGBM", lightgbm_rounds)):
        table = timing.race({name: (run, none) for name, run in prepare(x, y).items()}, args.quick)
        print(f"\n{library} {'':17} milliseconds a round of {rows} rows, ours / built in")
        for name, row in table.items():
            row["ratio"] = row["ms"] / table[BUILT_IN]["ms"]
            print(f"{name:26}{timing.ms(row):>8} {row['ratio']:7.2f}")
        disturbed = any(row["disturbed"] for row in table.values())
        wanted += [(f"{library}, {name} / built-in", table[name]["ratio"], 1.5, disturbed) for name in list(LOSSES)[:2]]
        found[library] = table
    found["targets"] = timing.marked(wanted)
    timing.show_targets(found["targets"])
    timing.write(found, args.json)


if __name__ == "__main__":
    main()
