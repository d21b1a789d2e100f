"""
Decide by what mistakes cost
============================

A shop writes to customers who may leave. A letter costs 5; a customer who leaves without one costs what she would have
spent. So there is no threshold that is right for all: a large customer is worth a letter at a small risk.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

import metricgrad as mg

# %%
# The data
# --------
#
# Made-up customers. The amount is a feature, and what is at stake.

rng = np.random.default_rng(0)
rows = 4000
frame = pd.DataFrame({"visits": rng.poisson(5, rows), "months": rng.integers(1, 60, rows)})
frame["amount"] = rng.lognormal(3.0, 1.0, rows).round(2)
risk = -1.0 - 0.25 * frame["visits"] + 0.01 * frame["months"] + rng.normal(0, 1, rows)
left = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(int)
train, test, left_train, left_test = train_test_split(frame, left, test_size=0.4, random_state=0)
print(f"{left.mean():.1%} leave, with {frame['amount'][left == 1].sum() / frame['amount'].sum():.1%} of the money")

# %%
# The cost, once
# --------------
#
# ``"amount"`` is the name of a column: costs differ by row.

cost = mg.Cost(fp=5, fn="amount")
model = mg.ThresholdedClassifier(HistGradientBoostingClassifier(max_depth=3, random_state=0), cost)
model.fit(train, left_train)
print(model.rule_.describe())

# %%
# What it is worth
# ----------------
#
# Against today's rule, 0.5 on the same scores, on customers that the model has not seen:

costs = cost.of_table(test)
scores = model.estimator_.predict_proba(test)[:, 1]
one_threshold = mg.ThresholdedClassifier(model.estimator, cost.of_table(train).mean()).fit(train, left_train)
ways = {
    "nobody gets a letter": np.zeros(len(test)),
    "everybody does": np.ones(len(test)),
    "from 0.5 on": scores >= 0.5,
    "the same for all": one_threshold.predict(test),
    "each by her amount": model.predict(test),
}
for name, decided in ways.items():
    print(f"{name:22s} {costs.total(left_test, decided):9.2f}  savings {costs.savings(left_test, decided):+.3f}")
print(mg.measure_cost(costs, left_test, ways["each by her amount"], against=ways["from 0.5 on"]))

# %%
# From a table to a shipped decision
# ----------------------------------
#
# ``compare`` does all of it: what ships is what saves most on test rows, and ``predict`` reads the amounts of the new
# customers. On the command line: ``metricgrad compare customers.csv --target left --cost "fp=5, fn=amount"``.

table = train.assign(left=left_train)
study = mg.compare(table, "left", cost=cost, contenders="logistic regression", quick=True, jobs=1)
print(study.verdict)
shipped = study.model.predict(test)
print(f"shipped: {costs.total(left_test, shipped):.2f}, savings {costs.savings(left_test, shipped):+.3f}")

# %%
# Where the letters go
# --------------------
#
# The rule is a line between risk and amount: the expected loss, risk times amount, against 5 for a letter to one who
# would have stayed.

decided = model.predict(test).astype(bool)
figure, axes = plt.subplots(figsize=(6, 3.6))
for chosen, colour, name in ((decided, "tab:red", "letter"), (~decided, "tab:grey", "none")):
    axes.scatter(scores[chosen], test["amount"][chosen], s=6, color=colour, label=name)
axes.set(xlabel="score", ylabel="amount", yscale="log")
axes.legend()
figure.tight_layout()
plt.show()
