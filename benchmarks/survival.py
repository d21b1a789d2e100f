"""Which losses survive bad settings: runs that die, over learning rates, batches, rare positives and optimisers.

    python benchmarks/survival.py --data FOLDER --part choose | judge | few   [--contenders NAMES]
    python benchmarks/survival.py --summary

Needs the extra ``bench``; ``datasets.py`` says what the folder holds. Results are appended as they are made, and what
is there is not made again. One thread.

**The protocol**, written before any run:

- Sets: mammography without duplicates, adult (20,000 rows), creditcard (the subset). Positives, or negatives, are left
  out at random to reach a share of positives; 50 % of the rows are trained on, 20 % validate, 30 % test, with the share
  in each. Positives that were left out are test rows too, all positives weighted such that the share stays: test F1 of
  a dozen positives would be noise.
- The network has two layers of 32 units (ReLU), standardised features, default initialisation; 600 steps on shuffled
  batches, no schedule, no early stopping, no clipping: what is evaluated is the network after the last step.
- F1 on test rows at 0.5, and at the threshold that is best on the validation rows, found in the same way for all.
- A run is **dead** if its tuned F1 is below half of that of cross-entropy at the same setting and seed, and **dead at
  0.5** if its F1 at 0.5 is below half of that of cross-entropy *with a tuned threshold*.
- ``choose``: 16 settings on mammography and adult, seeds 0 and 1, with learning rates that ``judge`` does not have.
  Remedies are chosen on these alone, by the number of dead runs, then by the mean tuned F1.
- ``judge``: 40 settings, two optimisers × five learning rates × four batches, the pairs of set and share drawn once;
  seeds 100 to 102. creditcard is in no setting that chose. The claim: the default ``MetricLoss("f1")`` has no dead run,
  and where today's default (the soft set of the paper) is alive, the mean difference of tuned F1 to it has an interval
  (bootstrap of settings) above −0.01.
- ``few``: remedies for few positives. 0.5 % positives, batches of 64 and 256, Adam with learning rate 0.005, seeds 200
  to 204, all three sets; intervals of the mean difference to cross-entropy by a bootstrap of sets and seeds.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import metricgrad as mg
from datasets import load

RESULTS = Path(__file__).parent / "results" / "survival.csv"
SETTING_COLUMNS = ["set", "share", "batch", "optimiser", "rate"]
COLUMNS = ["part", *SETTING_COLUMNS, "seed", "contender", "tuned", "fixed", "median_positive_logit", "seconds"]
SETS = ("mammography", "adult", "creditcard-subset")
SHARES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.3)
STEPS = 600
MAX_ROWS = 20_000
UNITS = 32


class Setting(NamedTuple):
    """One way to train, beside loss and seed."""

    set: str
    share: float
    batch: int
    optimiser: str
    rate: float


class Rows(NamedTuple):
    """Rows of one part of a split."""

    features: Tensor
    targets: Tensor
    weight: Tensor


def list_settings(part: str) -> list[Setting]:
    """Return the settings of a part of the protocol."""
    if part == "few":
        return [Setting(name, 0.005, batch, "adam", 0.005) for name in SETS for batch in (64, 256)]
    if part == "judge":
        ways = list(itertools.product((64, 128, 256, 1024), ("sgd", "adam"), (0.001, 0.003, 0.01, 0.03, 0.1)))
        problems = list(itertools.product(SETS, SHARES))
    else:
        ways = list(itertools.product((64, 256), ("sgd", "adam"), (0.002, 0.02, 0.05, 0.08)))
        problems = list(itertools.product(SETS[:2], SHARES))
    random = np.random.default_rng(0)
    repeats = math.ceil(len(ways) / len(problems))
    order = np.concatenate([random.permutation(len(problems)) for _ in range(repeats)])
    settings = []
    for i, (batch, optimiser, rate) in zip(order, ways, strict=False):
        name, share = problems[i]
        settings.append(Setting(name, share, batch, optimiser, rate))
    return settings


SEEDS = {"choose": range(2), "judge": range(100, 103), "few": range(200, 205)}


@lru_cache
def load_numbers(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return features as numbers, without duplicate rows in mammography, and 0/1 targets."""
    features, targets = load(name, folder)
    if name == "adult":
        features = pd.get_dummies(features)
    numbers = np.asarray(features, dtype=float)
    if name == "mammography":
        _, first = np.unique(numbers, axis=0, return_index=True)
        numbers = numbers[first]
        targets = targets[first]
    return numbers, np.asarray(targets)


def split_rows(setting: Setting, seed: int, folder: Path) -> list[Rows]:
    """Return the rows to train on, to validate and to test, each with the share of positives of the setting."""
    features, targets = load_numbers(setting.set, folder)
    random = np.random.default_rng(seed)
    positives = random.permutation(np.flatnonzero(targets == 1))
    negatives = random.permutation(np.flatnonzero(targets == 0))
    ratio = setting.share / (1 - setting.share)
    kept_negatives = min(len(negatives), int(len(positives) / ratio), int(MAX_ROWS * (1 - setting.share)))
    kept_positives = round(kept_negatives * ratio)
    left_out = positives[kept_positives:]
    parts_of_positives = np.split(positives[:kept_positives], [kept_positives // 2, int(0.7 * kept_positives)])
    parts_of_negatives = np.split(negatives[:kept_negatives], [kept_negatives // 2, int(0.7 * kept_negatives)])
    parts_of_positives[2] = np.concatenate([parts_of_positives[2], left_out])
    trained = np.concatenate([parts_of_positives[0], parts_of_negatives[0]])
    mean = features[trained].mean(0)
    spread = features[trained].std(0)
    spread[spread == 0] = 1
    parts = []
    for some_positives, some_negatives in zip(parts_of_positives, parts_of_negatives, strict=True):
        rows = np.concatenate([some_positives, some_negatives])
        weight = np.ones(len(rows))
        weight[: len(some_positives)] = ratio * len(some_negatives) / len(some_positives)
        standardised = ((features[rows] - mean) / spread).clip(-10, 10)
        part = Rows(
            torch.tensor(standardised, dtype=torch.float32),
            torch.tensor(targets[rows], dtype=torch.float32),
            torch.tensor(weight),
        )
        parts.append(part)
    return parts


class StraightTail(nn.Module):
    """Soft F1 whose value is that of ``Linear``, but whose wrong samples far from 0.5 get the gradient of a line."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss."""
        positives = targets.sum()
        if positives == 0:
            return 0 * logits.sum()
        p = torch.sigmoid(logits.detach())
        missing_slope = (TAIL_SLOPE - 0.4 * p * (1 - p)).clamp_min(0)
        is_wrong = torch.where(targets == 1, p < 0.25, p > 0.75)
        tail = is_wrong * missing_slope * (logits - logits.detach())
        memberships = mg.surrogates.Linear()(logits) + tail
        tp = (memberships * targets).sum()
        return 1 - 2 * tp / (memberships.sum() + positives)


TAIL_SLOPE = 0.05

CONTENDERS: dict[str, Any] = {
    "cross-entropy": nn.BCEWithLogitsLoss,
    "soft set": lambda: mg.presets.soft_set("f1"),
    "metric": lambda: mg.MetricLoss("f1"),
    "hybrid": lambda: mg.HybridLoss("f1"),
    "straight tail": StraightTail,
    "running 0.9": lambda: mg.RunningLoss(mg.MetricLoss("f1"), 0.9),
    "running hybrid 0.9": lambda: mg.RunningLoss(mg.HybridLoss("f1"), 0.9),
    "cross-entropy, minimum positives": nn.BCEWithLogitsLoss,
    "metric, minimum positives": lambda: mg.MetricLoss("f1"),
    "hybrid, minimum positives": lambda: mg.HybridLoss("f1"),
}
PARTS = {
    "choose": ["cross-entropy", "soft set", "hybrid", "straight tail"],
    "judge": ["cross-entropy", "soft set", "hybrid", "straight tail"],
    "few": [name for name in CONTENDERS if name not in ("soft set", "straight tail")],
}


def draw_batches(targets: Tensor, batch: int, with_minimum: bool, seed: int) -> Any:
    """Yield the rows of each step: epochs of shuffled batches; with a minimum, an eighth of a batch is positive."""
    if with_minimum:
        sampler = mg.samplers.MinimumPositivesBatchSampler(targets.long(), batch, minimum=batch // 8, seed=seed)
    epoch = 0
    generator = torch.Generator().manual_seed(seed)
    while True:
        if with_minimum:
            sampler.set_epoch(epoch)
            yield from (torch.as_tensor(list(rows)) for rows in sampler)
        else:
            yield from torch.randperm(len(targets), generator=generator).split(min(batch, len(targets)))
        epoch += 1


def train(contender: str, setting: Setting, rows: Rows, seed: int) -> nn.Module:
    """Return the network after the last step."""
    torch.manual_seed(seed)
    columns = rows.features.shape[1]
    hidden = [nn.Linear(columns, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS), nn.ReLU()]
    model = nn.Sequential(*hidden, nn.Linear(UNITS, 1), nn.Flatten(0))
    loss = CONTENDERS[contender]()
    if setting.optimiser == "adam":
        optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), setting.rate)
    else:
        optimiser = torch.optim.SGD(model.parameters(), setting.rate, momentum=0.9)
    batches = draw_batches(rows.targets, setting.batch, contender.endswith("minimum positives"), seed)
    for batch in itertools.islice(batches, STEPS):
        optimiser.zero_grad()
        loss(model(rows.features[batch]), rows.targets[batch]).backward()
        optimiser.step()
    return model


def run(part: str, setting: Setting, seed: int, contender: str, folder: Path) -> list[Any]:
    """Return the line of one run."""
    trained, validation, test = split_rows(setting, seed, folder)
    start = time.process_time()
    model = train(contender, setting, trained, seed)
    seconds = time.process_time() - start
    with torch.no_grad():
        validation_logits = model(validation.features).double()
        test_logits = model(test.features).double()
    threshold = mg.tune_threshold("f1", validation_logits, validation.targets).threshold
    tuned, fixed = (
        mg.evaluate(test_logits, test.targets, "f1", threshold=at, weight=test.weight)["f1"] for at in (threshold, 0.0)
    )
    middle = test_logits[test.targets == 1].median().item()
    return [part, *setting, seed, contender, f"{tuned:.5f}", f"{fixed:.5f}", f"{middle:.2f}", f"{seconds:.2f}"]


def make_results(part: str, contenders: list[str], folder: Path, results: Path) -> None:
    """Make every result of a part that is not there yet."""
    if not results.exists():
        command = (
            f"# python benchmarks/survival.py --data FOLDER; metricgrad {mg.__version__}, torch {torch.__version__}"
        )
        results.write_text(f"{command}\n{','.join(COLUMNS)}\n")
    keys = COLUMNS[:8]
    done = set(pd.read_csv(results, comment="#")[keys].itertuples(index=False, name=None))
    for setting, seed, contender in itertools.product(list_settings(part), SEEDS[part], contenders):
        if (part, *setting, seed, contender) in done:
            continue
        line = run(part, setting, seed, contender, folder)
        with results.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(line)


def read_results(results: Path) -> pd.DataFrame:
    """Return the results, with a mark on the runs that are dead."""
    table = pd.read_csv(results, comment="#")
    setting = SETTING_COLUMNS
    reference = table[table.contender == "cross-entropy"].set_index(["part", *setting, "seed"]).tuned
    table = table.join(reference.rename("reference"), on=["part", *setting, "seed"])
    table["dead"] = table.tuned < table.reference / 2
    table["dead_fixed"] = table.fixed < table.reference / 2
    return table


def print_summary(results: Path) -> None:
    """Print, of each part, the dead runs of every contender and its mean F1, and the differences of the claims."""
    table = read_results(results)
    setting = SETTING_COLUMNS
    for part, rows in table.groupby("part"):
        print(f"\n{part}")
        by_contender = rows.groupby("contender", sort=False)
        columns = {"runs": ("tuned", "size"), "dead": ("dead", "sum"), "dead_at_half": ("dead_fixed", "sum")}
        means = {"tuned": ("tuned", "mean"), "at_half": ("fixed", "mean")}
        print(by_contender.agg(**columns, **means).round(3).to_string())
        other = "cross-entropy" if part == "few" else "soft set"
        clusters = ["set", "seed"] if part == "few" else setting
        print_differences(rows, other, clusters, setting)


def print_differences(rows: pd.DataFrame, other: str, clusters: list[str], setting: list[str]) -> None:
    """Print the mean difference of tuned F1 to that of another contender, where that one is alive, with intervals."""
    print(f"tuned F1 minus that of {other}, in its runs that are not dead")
    groups = [((), rows)] if other == "soft set" else list(rows.groupby("batch"))
    for batch, some in groups:
        for contender in some.contender.unique():
            level, mean, low, high = find_difference(some, contender, other, clusters, setting)
            print(f"  {batch!s:6}{contender:34}{level:.3f} {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


def find_difference(
    rows: pd.DataFrame, contender: str, other: str, clusters: list[str], setting: list[str]
) -> tuple[float, float, float, float]:
    """Return the tuned F1 where the other is alive, and its mean difference to the other's with a 95 % interval."""
    base = rows[(rows.contender == other) & ~rows.dead].set_index([*setting, "seed"]).tuned
    mine = rows[rows.contender == contender]
    joined = mine.join(base.rename("base"), on=[*setting, "seed"]).dropna(subset=["base"])
    difference = (joined.tuned - joined.base).groupby([joined[name] for name in clusters]).mean().to_numpy()
    random = np.random.default_rng(0)
    means = random.choice(difference, (10_000, len(difference))).mean(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(joined.tuned.mean()), float(difference.mean()), float(low), float(high)


def main() -> None:
    """Make the results of a part, or print the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--part", choices=list(SEEDS), default="judge")
    parser.add_argument("--contenders", type=lambda text: text.split(";"), help="separated by semicolons")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--summary", action="store_true", help="only print what is there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.summary:
        make_results(options.part, options.contenders or PARTS[options.part], options.data, options.results)
    print_summary(options.results)


if __name__ == "__main__":
    main()
