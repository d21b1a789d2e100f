"""
The ground it stands on: hidden units, softmax and entropy
==========================================================

Losses of metrics train the same networks as cross-entropy does. Four pictures of what those networks can do and why
their last layer is a softmax: a curve from ReLUs, units that never part, the distribution of the highest entropy, and
the moments that a fitted model meets. They follow lecture 5 of NPFL129, Charles University.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_iris
from torch import nn

# sphinx_gallery_thumbnail_number = 3

# %%
# A hidden layer of ReLUs draws any curve
# ---------------------------------------
#
# A continuous curve is close to a chain of straight lines, and a chain of k lines is a sum of k ReLUs: at every corner
# a new unit starts, and its weight is the change of slope there. No training is needed to write the network down. With
# twice the width the error is a quarter, as long as the curve has a second derivative.


def curve(x):
    return np.sin(6 * x) + 0.5 * np.cos(17 * x)


def build_chain(width):
    """Return corners, weights and offset of the network that meets the curve at ``width`` + 1 equidistant points."""
    corners = np.linspace(0, 1, width + 1)
    slopes = np.diff(curve(corners)) * width
    return corners[:-1], np.diff(slopes, prepend=0.0), curve(0.0)


def evaluate_chain(x, chain):
    corners, weights, offset = chain
    return offset + np.maximum(x[:, None] - corners, 0) @ weights


x = np.linspace(0, 1, 2001)
widths = [4, 8, 16, 32, 64, 128]
errors = [np.abs(evaluate_chain(x, build_chain(width)) - curve(x)).max() for width in widths]
# A chain of lines is off by at most h²/8 times the largest second derivative.
bounds = [(36 + 0.5 * 17**2) / 8 / width**2 for width in widths]
for width, error, bound in zip(widths, errors, bounds, strict=True):
    print(f"{width:4d} units: largest error {error:.5f}, at most {bound:.5f}")

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.plot(x, curve(x), color="black", label="curve")
for width in widths[:3]:
    left.plot(x, evaluate_chain(x, build_chain(width)), label=f"{width} units")
left.legend(frameon=False)
right.loglog(widths, errors, "o-", label="largest error")
right.loglog(widths, bounds, "--", color="grey", label="bound")
right.set(xlabel="width of the hidden layer")
right.legend(frameon=False)

# %%
# Why weights must not start at zero
# ----------------------------------
#
# With equal weights all hidden units compute the same, so they get the same gradient and stay the same: the layer is as
# wide as one unit, however long it trains. With zeros not even that one learns, since the weights before and after it
# hold each other at 0. Random weights start from different features, and gradient descent can improve each of them.


def train_units(start):
    """Train eight hidden units on the curve; return the losses and, after every step, how far the units are apart."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    if start != "random":
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.0 if start == "zeros" else 0.5)
    inputs, targets = (torch.tensor(v, dtype=torch.float32)[:, None] for v in (x[::20], curve(x[::20])))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses, spreads = [], []
    for _ in range(600):
        optimizer.zero_grad()
        loss = ((model(inputs) - targets) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        spreads.append(model[0].weight.std().item())
    return losses, spreads


figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
for start in ("zeros", "all 0.5", "random"):
    losses, spreads = train_units(start)
    print(f"{start:8s} loss {losses[-1]:.3f}, spread of the hidden units {spreads[-1]:.3f}")
    left.plot(losses, label=start)
    right.plot(spreads, label=start)
left.set(xlabel="step", ylabel="loss")
right.set(xlabel="step", ylabel="spread of the units' weights")
left.legend(title="weights start at", frameon=False)

# %%
# Softmax has the highest entropy of all that agree with the data
# ---------------------------------------------------------------
#
# Among the distributions p over classes with a given mean of some number f, which one assumes nothing else? Minimise
#
# .. math:: \sum_k p_k \log p_k - \lambda \Big(\sum_k p_k f_k - m\Big) - \beta \Big(\sum_k p_k - 1\Big).
#
# The derivative by :math:`p_k` is :math:`\log p_k + 1 - \lambda f_k - \beta`. It is 0 for :math:`p_k = e^{\lambda f_k}
# e^{\beta - 1}`, and the sum of 1 fixes the second factor: :math:`p = \mathrm{softmax}(\lambda f)`. Below are three
# classes with f = 0, 1, 2 and a mean of 1.4: of all distributions on that line the softmax has the most entropy, and
# there the derivative of the Lagrangian is 0.

f = np.array([0.0, 1.0, 2.0])
mean = 1.4


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


low, high = -20.0, 20.0
for _ in range(100):  # the mean rises with λ
    middle = (low + high) / 2
    low, high = (middle, high) if softmax(middle * f) @ f < mean else (low, middle)
multiplier = (low + high) / 2
best = softmax(multiplier * f)
# All distributions with that mean: a line, with p₀ free.
first = np.linspace(0.001, 0.299, 300)
line = np.stack([first, 2 - mean - 2 * first, mean - 1 + first])
entropies = -(line * np.log(line)).sum(0)
derivative = np.log(best) + 1 - multiplier * f
print(f"λ = {multiplier:.4f}, p = {best.round(4)}, entropy {-(best * np.log(best)).sum():.4f} ≥ {entropies.max():.4f}")
print(f"derivative of the Lagrangian without β, the same for all classes: {derivative.round(6)}")

figure, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot(first, entropies, color="black")
ax.plot(best[0], -(best * np.log(best)).sum(), "o", color="C1", label="softmax(λ f)")
ax.set(xlabel="p₀ of a distribution with mean 1.4", ylabel="entropy")
ax.legend(frameon=False)

# %%
# The moments that a fitted model meets
# -------------------------------------
#
# The same with features in the place of f: softmax regression has the highest entropy of all models whose expected
# features of every class, :math:`\sum_i \pi(x_i)_k x_i`, are those of the training data. So once its loss is at the
# minimum they agree; a model that is stopped early, or held back by a penalty, misses them, and that is how to see it.

features, classes = load_iris(return_X_y=True)
features = (features - features.mean(0)) / features.std(0)
features = torch.tensor(np.column_stack([features, np.ones(len(features))]))
targets = torch.tensor(classes)
observed = nn.functional.one_hot(targets).double().T @ features


def fit(penalty, steps):
    """Fit softmax regression and return the moments that it expects."""
    weights = torch.zeros(features.shape[1], 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(features @ weights, targets) + penalty * (weights**2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return (torch.softmax(features @ weights.detach(), 1).T @ features).ravel()


figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.axline((0, 0), slope=1, color="grey", linewidth=1)
for name, penalty, steps in (("converged", 0.0, 2000), ("penalised", 0.01, 2000), ("stopped after 3 steps", 0.0, 3)):
    expected = fit(penalty, steps)
    print(f"{name:22s} largest difference of a moment {(expected - observed.ravel()).abs().max():.1e}")
    ax.plot(observed.ravel(), expected, "o", alpha=0.7, label=name)
ax.set(xlabel="sum of a feature over a class, in the data", ylabel="the same, expected by the model")
ax.legend(frameon=False)
plt.show()
