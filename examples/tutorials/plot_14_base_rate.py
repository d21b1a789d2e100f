"""
A base rate that moved
======================

A threshold is tuned where one row in ten is positive, and used where one in fifty is, or one in two. Without a single
new label the decision can follow: from a table to a rule that is right again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import metricgrad as mg

X, y = make_classification(
    30_000, 10, n_informative=5, n_clusters_per_class=2, weights=[0.7], class_sep=0.8, flip_y=0.02, random_state=3
)
generator = np.random.default_rng(0)


def draw(rows, rate, n):
    """Return n of these rows, of which a share is positive."""
    positives, negatives = (generator.permutation(rows[y[rows] == k]) for k in (1, 0))
    count = round(n * rate)
    return np.concatenate((positives[:count], negatives[: n - count]))


order = generator.permutation(len(y))
train = draw(order[:15_000], 0.1, 4000)
rest = order[15_000:]

# %%
# The decision as it was shipped
# ------------------------------
#
# The threshold is the best for F1 on out-of-fold scores at 10 % positives. These scores are all that is needed later.

model = mg.ThresholdedClassifier(LogisticRegression(), "f1", cv=5).fit(X[train], y[train])
scores = cross_val_predict(LogisticRegression(), X[train], y[train], cv=5, method="predict_proba")[:, 1]
print(model.tuning_)

# %%
# What it loses where the base rate is another
# --------------------------------------------
#
# The scores of each class are as before, but there are fewer or more positives. :func:`metricgrad.estimate_prevalence`
# finds how many from the scores alone; ``at_prevalence`` tunes for it. The labels of the new rows are used here only to
# see what came of it.

values = {"kept": [], "renewed": [], "best there is": []}
rates = [0.02, 0.1, 0.5]
for rate in rates:
    new = draw(rest, rate, 4000)
    new_scores = model.estimator_.predict_proba(X[new])[:, 1]
    found = mg.estimate_prevalence(scores, y[train], new_scores)
    renewed = model.tuning_.at_prevalence(found.value)
    rules = {"kept": model.rule_, "renewed": renewed.rule}
    rules["best there is"] = mg.tune_threshold("f1", new_scores, y[new]).rule
    for name, rule in rules.items():
        values[name].append(mg.evaluate(new_scores, y[new], "f1", rule=rule)["f1"])
    print(f"true rate {rate:.0%}, estimated {found}; threshold {model.rule_.threshold:.3f} -> {renewed.threshold:.3f}")

# %%
# Where it must not be used
# -------------------------
#
# If more than the base rate changed, no mixture of the two classes fits the new scores, and the estimate is refused:
# here one column is measured in another unit.

new = draw(rest, 0.1, 4000)
moved = X[new].copy()
moved[:, np.abs(model.estimator_.coef_[0]).argmax()] *= 3
try:
    new_scores = model.estimator_.predict_proba(moved)[:, 1]
    mg.estimate_prevalence(scores, y[train], new_scores)
except ValueError as error:
    print(error)

# %%
# Ship it
# -------
#
# The renewed rule takes the place of the old one, and is saved with the model: no pickle, no training. For a run of
# ``metricgrad compare`` the command ``metricgrad tune RUN --unlabelled new.csv`` does all of this.

model.rule_ = renewed.rule
print(model.predict(X[rest[:10]]))

# %%
# Seen together
# -------------

figure, ax = plt.subplots(figsize=(5.6, 3.4), layout="constrained")
for shift, (name, f1) in zip((-0.25, 0, 0.25), values.items(), strict=True):
    ax.bar(np.arange(len(rates)) + shift, f1, width=0.25, label=name)
ax.set_xticks(range(len(rates)), [f"{rate:.0%} positives" for rate in rates])
ax.set_ylabel("F1 on new rows")
ax.legend()
plt.show()
