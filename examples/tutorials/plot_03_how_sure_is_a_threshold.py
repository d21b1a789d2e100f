"""
Pick the threshold, and know how sure it is
===========================================

:func:`metricgrad.tune_threshold` finds the best threshold for any metric exactly. How far to trust it is another
question: it was chosen on some rows, and other rows would have chosen another one.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import metricgrad as mg

# %%
# Tune on out-of-fold scores
# --------------------------
#
# Out-of-fold scores of a logistic regression: each row is scored by a model that did not see it, so that the threshold
# is tuned on scores like those of new rows.

features, target = load_breast_cancer(return_X_y=True)
malignant = 1 - target  # the class to be found
model = make_pipeline(StandardScaler(), LogisticRegression())
scores = cross_val_predict(model, features, malignant, method="predict_proba", cv=5)[:, 1]
tuning = mg.tune_threshold("f2", scores, malignant)
print(tuning)

# %%
# Plateau, interval, out of bag
# -----------------------------
#
# *plateau*: all thresholds from one end to the other are within 0.01 of the best value, so it does not matter which is
# taken. *interval*: where the best threshold of other rows would be, in 95 % of resamples. *out_of_bag*: what to expect
# on new rows; the value where the threshold was tuned is optimistic.

print("plateau     {:.3f} to {:.3f}".format(*tuning.plateau))
print("interval    {:.3f} to {:.3f}".format(*tuning.interval))
print(f"out of bag  {tuning.out_of_bag:.4f}, where tuned {tuning.value:.4f}")

# %%
# How many rows it takes
# ----------------------
#
# How many rows does a threshold need? The same problem with more and more of them, of which 10 % are positive. With
# eleven positives the interval is wide, and the value where the threshold was tuned flatters by far; a mark warns of
# it. With a thousand positives both are settled.

X, y = make_classification(22000, 10, weights=[0.9], class_sep=0.8, flip_y=0.05, random_state=0)
probabilities = LogisticRegression().fit(X[:2000], y[:2000]).predict_proba(X[2000:])[:, 1]
truth = y[2000:]
sizes = [100, 300, 1000, 3000, 10000]
found = [mg.tune_threshold("f1", probabilities[:n], truth[:n]) for n in sizes]
for n, one in zip(sizes, found, strict=True):
    positives = int(truth[:n].sum())
    print(
        f"{n:6d} rows, {positives:4d} positives: {one.threshold:.3f} ({one.interval[0]:.3f} to {one.interval[1]:.3f})",
        end="",
    )
    print(f"   F1 where tuned {one.value:.3f}, out of bag {one.out_of_bag:.3f}", "  !" if one.caution else "")

# %%
# The pictures
# ------------
#
# F2 of the first problem at every threshold, with the plateau:

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
mg.plots.metric_by_threshold("f2", scores, malignant, tuning=tuning, ax=ax)
plt.show()

# %%
# The interval of the threshold, by rows:

figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
thresholds = np.array([one.threshold for one in found])
low, high = np.array([one.interval for one in found]).T
ax.errorbar(
    sizes, thresholds, yerr=[np.maximum(thresholds - low, 0), np.maximum(high - thresholds, 0)], fmt="o", capsize=4
)
ax.set(xscale="log", xlabel="rows", ylabel="threshold, 95 % interval", ylim=(0, 1))
plt.show()
