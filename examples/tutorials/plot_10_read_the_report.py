"""
Reading the report
==================

``metricgrad compare`` trains every contender on the same splits and writes a report. This is what it says, and where
the numbers are if you want to draw them yourself.
"""

import contextlib
import json
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.datasets import make_classification

from metricgrad.__main__ import main

# %%
# The comparison
# --------------
#
# A table as one gets it: columns and a target, in a CSV file. On the command line this would be
# ``metricgrad compare customers.csv --target churned --quick``: a first look, with two folds and a third of the epochs.

X, y = make_classification(2500, 10, n_informative=5, weights=[0.9], class_sep=0.8, flip_y=0.02, random_state=0)
folder = Path(tempfile.mkdtemp())
table = pd.DataFrame(X, columns=[f"feature_{i}" for i in range(10)]).assign(churned=y)
table.to_csv(folder / "customers.csv", index=False)
with contextlib.chdir(folder):
    command = ["compare", "customers.csv", "--target", "churned", "--out", "run", "--quick", "--repeats", "4"]
    code = main([*command, "--contenders", "cross-entropy,hybrid,xgboost", "--jobs", "1"])

# %%
# The verdict
# -----------
#
# The verdict is the first thing to read: what to ship, and whether its gain over cross-entropy is more than chance.
# With few splits and few rows it seldom is, and then the simpler model is recommended.

summary = json.loads((folder / "run" / "summary.json").read_text())
print(summary["verdict"]["headline"])

# %%
# The leaderboard
# ---------------
#
# Every contender is cross-fitted on the training rows of a split: a model for each fold, fitted without it. The
# leaderboard has two rows for each contender: the fixed rule (0.5) and the rule tuned on the scores that these models
# gave to the rows they had not seen. Read down the tuned rows first: that is the fair comparison, since cross-entropy
# with a tuned threshold costs nothing.

results = pd.read_parquet(folder / "run" / "results.parquet")
print(results[results.metric == results.metric.iloc[0]].groupby(["contender", "rule"]).value.mean().unstack().round(3))

# %%
# The single splits
# -----------------
#
# The single splits say how much the mean is worth. Where the dots of two contenders overlap, the order of their
# means is chance. The page itself, ``run/report.html``, has these with intervals and p-values, a threshold to drag,
# precision and recall at each, and the rows that were mistaken with most confidence: see :doc:`/report`.

shown = results[results.metric == results.metric.iloc[0]]
figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
names = list(dict.fromkeys(shown.contender))
for i, name in enumerate(names):
    for rule, marker in (("fixed", "o"), ("tuned", "s")):
        values = shown[(shown.contender == name) & (shown.rule == rule)].value
        ax.plot(
            values,
            [i + (0.12 if rule == "tuned" else -0.12)] * len(values),
            marker,
            color="C0" if rule == "fixed" else "C1",
            label=rule if i == 0 else None,
        )
ax.set_yticks(range(len(names)), names)
ax.set(xlabel="F1 of each split, test rows")
ax.legend()
plt.show()
