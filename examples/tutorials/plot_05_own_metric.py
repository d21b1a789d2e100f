"""
A metric of your own, from three lines to a trained model
=========================================================

A metric is a function of the counts. Write it once: it is the loss, what the threshold is tuned for, and what is
reported.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

import metricgrad as mg

# %%
# Three lines
# -----------
#
# A call centre can call people who may leave. A call costs 1; who would leave and is called stays, which is worth 25.
# The value is the profit as a share of the best possible: 1 if exactly those who would leave are called, 0 if nobody
# is, negative if calls are wasted.


def profit(c):
    return mg.metrics.ratio(24 * c.tp - c.fp, 24 * c.positives)


# %%
# Train, tune and report
# ----------------------
#
# That is all. ``+ - * /``, :func:`metricgrad.metrics.ratio` (safe at 0/0) and :func:`metricgrad.metrics.root` are
# enough for the fast derivative; no registration, no gradient by hand.

X, y = make_classification(
    9000, 15, n_informative=6, n_clusters_per_class=3, weights=[0.85], class_sep=0.7, flip_y=0.05, random_state=3
)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=1 / 3, stratify=y, random_state=0)

models = {
    "cross-entropy, 0.5": mg.MetricClassifier(
        profit, loss="cross-entropy", rule="fixed", cv=None, epochs=40, random_state=0
    ),
    "cross-entropy, tuned for F1": mg.MetricClassifier("f1", loss="cross-entropy", cv=None, epochs=40, random_state=0),
    "cross-entropy, tuned for profit": mg.MetricClassifier(
        profit, loss="cross-entropy", cv=None, epochs=40, random_state=0
    ),
    "trained and tuned for profit": mg.MetricClassifier(profit, loss="hybrid", cv=None, epochs=40, random_state=0),
}
values = {}
for name, model in models.items():
    scores = model.fit(X_train, y_train).predict_scores(X_test)
    values[name] = mg.bootstrap(scores, y_test, profit, rule=model.rule_)["profit"]
    print(f"{name:32s} profit {values[name]}")

# %%
# What it is worth
# ----------------
#
# Tuning for the right metric is worth the most here: a threshold for F1 misses too many. Training on it as well adds a
# little, and the two intervals overlap. ``metricgrad compare`` finds out what each is worth on your data; it takes your
# metric as ``--metric my_module:profit``.

figure, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
for i, value in enumerate(values.values()):
    ax.plot([value.low, value.high], [i, i], color="grey")
    ax.plot(value.value, i, "o", color="C0")
ax.set_yticks(range(len(values)), list(values))
ax.invert_yaxis()
ax.set(xlabel="profit, share of the best (95 % interval)")
plt.show()
