"""
A precision that holds on new rows
==================================

"Of the customers we call, 70 % must be interested" is said about customers to come. A threshold that just reaches 70 %
on the rows at hand misses it on new ones about every second time. Here it is promised, with 90 % confidence, from a
table to a model that ships.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import metricgrad as mg

# %%
# A table
# -------
#
# Simulated, so that there are as many new rows as we like to see whether the promise holds.


def draw_customers(rows, seed):
    random = np.random.default_rng(seed)
    interested = random.random(rows) < 0.2
    return pd.DataFrame(
        {
            "visits": random.poisson(3 + 4 * interested),
            "months": random.normal(24 - 8 * interested, 8),
            "discount": random.normal(0.5 * interested, 1),
            "interested": interested.astype(int),
        }
    )


table = draw_customers(1500, seed=0)
new = draw_customers(100_000, seed=1)
columns = ["visits", "months", "discount"]

# %%
# The promise
# -----------
#
# ``guarantee_rows`` holds rows out for the rule: the classifier does not see them, so they are to it what new rows will
# be. The result says what is promised, and what to expect.

model = mg.ThresholdedClassifier(
    LogisticRegression(),
    "recall",
    subject_to="precision >= 0.7",
    confidence=0.9,
    guarantee_rows=0.4,
    random_state=0,
).fit(table[columns], table["interested"])
print(model.tuning_)

called = model.predict(new[columns])
print(f"true precision {new['interested'][called == 1].mean():.3f}")

# %%
# A capacity
# ----------
#
# If only one in twenty can be called, say so; constraints hold together, with the confidence.

fresh = draw_customers(1500, seed=2)
scores = model.estimator_.predict_proba(fresh[columns])[:, 1]
capacity = "precision >= 0.7, predicted_positive_rate <= 0.05"
both = mg.tune_threshold("recall", scores, fresh["interested"], subject_to=capacity, confidence=0.9)
print(both)

# %%
# Too few rows
# ------------
#
# Where the rows cannot prove it, the error says how many more it takes, or that more will not help.

for bound in ("precision >= 0.8", "precision >= 0.99"):
    try:
        mg.tune_threshold("recall", scores[:120], fresh["interested"][:120], subject_to=bound, confidence=0.99)
    except ValueError as error:
        print(error)

# %%
# Does it hold?
# -------------
#
# One table may be lucky. Of many, the share that misses 70 % must be at most 10 %; without a confidence it is about
# half. ``metricgrad compare customers.csv --target interested --subject-to "precision>=0.7" --confidence 0.9`` does the
# same with several models: :doc:`/decisions` has the method, its limits and what was measured.

true_precisions = {"on these rows": [], "with 90 % confidence": []}
for seed in range(40):
    drawn = draw_customers(1500, seed=100 + seed)
    for name, confidence in (("on these rows", None), ("with 90 % confidence", 0.9)):
        logistic = LogisticRegression().fit(drawn[columns][:900], drawn["interested"][:900])
        tuned = mg.ThresholdedClassifier(
            logistic, "recall", subject_to="precision >= 0.7", confidence=confidence, cv="prefit"
        ).fit(drawn[columns][900:], drawn["interested"][900:])
        called = tuned.predict(new[columns])
        true_precisions[name].append(new["interested"][called == 1].mean())

figure, ax = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
for place, (name, found) in enumerate(true_precisions.items()):
    ax.plot(found, np.full(len(found), place), "o", alpha=0.5)
    print(f"{name:22s} misses the bound in {np.mean(np.array(found) < 0.7):.0%} of the tables")
ax.axvline(0.7, color="grey", linestyle=":")
ax.set(yticks=[0, 1], yticklabels=list(true_precisions), ylim=(-0.5, 1.5), xlabel="true precision")
plt.show()
