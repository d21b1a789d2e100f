"""Does training on the metric find small things in large images? Nuclei of 464 microscope images, a small U-Net.

    python benchmarks/dense_maps.py --data FOLDER --choose      # learning rates and our default, on their own images
    python benchmarks/dense_maps.py --data FOLDER --judge       # the claims, on other images, once
    python benchmarks/dense_maps.py --summary                   # tables and claims from the results

Protocol, written before the first result
-----------------------------------------
*Targets* (``TARGETS``). "all" nuclei, 14 % of the pixels; "small" ones below 30 pixels, 1.4 %, larger ones are
background; "one in ten" nuclei, all others erased; and of the small ones so many that 1 %, 0.3 % and 0.1 % of the
pixels are foreground, the other small ones erased. An erased nucleus gets the values of the nearest background.

*Images.* 150 of them choose, 314 others judge; of each part about half trains, a fifth validates and the rest tests.

*Contenders* (``LOSSES``). Network, initial weights, batches (a random quarter, 64 × 64 pixels, of each of 8 images,
turned and mirrored), optimiser (Adam, cosine decay) and number of steps are the same; the loss differs, and its
learning rate, which ``--choose`` takes from ``RATES`` for each loss: the best mean of the tuned Dice per image on the
test part of the choosing images, two targets ("small", "small, 0.3 %"), one seed. The same results choose which of ours
are judged, and *our default for dense maps* among them (``FAMILIES``).

*Budgets.* 400 steps, and on the rare targets 1,600 for those in ``PATIENT``: does cross-entropy catch up with patience?

*Evaluation.* On the test images, at the threshold that is best for the evaluated metric on the validation images, for
every contender: mean Dice of the images with foreground; F1 of all pixels; F1 of objects (connected parts, matched at
an intersection over union above 0.5). Thresholds are searched where between a tenth and ten times the true share of
pixels is predicted, in 40 steps; for F1 of pixels exactly. Also Dice and F1 of pixels at 0.5. A run has *collapsed* if
its tuned F1 of pixels is below half of that of cross-entropy with the same target, seed and budget.

*Claims*, tested with Holm's correction, each on the mean over the five rare targets (all but "all") of the tuned Dice
per image, 1,600 steps, five seeds; images are resampled, each with its results of all seeds and both contenders:

1. our default − the better of cross-entropy and weighted cross-entropy (the better one on the validation images);
2. our default − Dice + cross-entropy as MONAI has it.

Everything else is description. Needs the extra ``bench``; ``datasets.py`` says what the folder holds.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from monai.losses.dice import DiceCELoss
from scipy import ndimage
from torch import Tensor, nn

import metricgrad as mg
from two_images import UNet

RESULTS = Path(__file__).parent / "results" / "dense_maps.csv"
COLUMNS = [
    "part",
    "target",
    "seed",
    "loss",
    "rate",
    "steps",
    "measure",
    "value",
    "at_half",
    "validation",
    "seconds",
    "images",
]

TARGETS = ("all", "small", "one in ten", "small, 1 %", "small, 0.3 %", "small, 0.1 %")
RARE = TARGETS[1:]
SMALL = 30
"""Pixels of a nucleus that is no longer small."""
CHOOSING_IMAGES = 150
TRAIN, VALIDATION = 0.5, 0.2
"""Shares of the images of a part; the rest tests."""

SEEDS = 5
STEPS = 400
PATIENT_STEPS = 1600
BATCH = 8
CROP = 64
RATES = (0.001, 0.004)
THRESHOLDS = 40

CROSS_ENTROPY = ("cross-entropy", "cross-entropy, positives × 10")
MONAI = "Dice + cross-entropy (MONAI)"
FAMILIES = (
    ("metric",),
    ("metric per image",),
    ("metric per object, full", "metric per object, shared"),
    ("hybrid, weight 0.3", "hybrid, weight 1"),
    ("hybrid per object, full", "hybrid per object, shared"),
)
"""Ours. Of each row the best is judged, and the best of all is our default for dense maps."""
CHOSEN = Path(__file__).parent / "results" / "dense_maps_chosen.json"
"""What ``--choose`` wrote: the learning rate of each loss that is judged, and our default."""
CLAIMS = Path(__file__).parent / "results" / "dense_maps_claims.csv"
"""What ``--claims`` wrote."""


class Weighted(nn.Module):
    """Cross-entropy with ten times the weight on positives."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss."""
        return nn.functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=torch.tensor(10.0))


class Monai(nn.Module):
    """MONAI's Dice + cross-entropy, with its defaults: Dice of each image."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = DiceCELoss(sigmoid=True)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss."""
        return self.loss(logits.unsqueeze(1), targets.unsqueeze(1))  # type: ignore[no-any-return]


LOSSES: dict[str, Any] = {
    "cross-entropy": nn.BCEWithLogitsLoss,
    "cross-entropy, positives × 10": Weighted,
    "focal": mg.baselines.focal,
    "Dice": mg.baselines.dice,
    MONAI: Monai,
    "Tversky 0.3, 0.7": partial(mg.baselines.tversky, alpha=0.3, beta=0.7),
    "Lovász": mg.baselines.lovasz_hinge,
    "metric": partial(mg.MetricLoss, "f1"),
    "metric per image": partial(mg.MetricLoss, "f1", per_image=True),
    "metric per object, full": partial(mg.MetricLoss, "f1", per_object="full"),
    "metric per object, shared": partial(mg.MetricLoss, "f1", per_object="shared"),
    "hybrid, weight 0.3": partial(mg.HybridLoss, "f1"),
    "hybrid, weight 1": partial(mg.HybridLoss, "f1", metric_weight=1.0),
    "hybrid per object, full": partial(mg.HybridLoss, "f1", metric_weight=1.0, per_object="full"),
    "hybrid per object, shared": partial(mg.HybridLoss, "f1", metric_weight=1.0, per_object="shared"),
}
PATIENT = (*CROSS_ENTROPY, MONAI, "metric")
"""Contenders that also get ``PATIENT_STEPS``; our default, if it is another one, too."""


class Maps(NamedTuple):
    """Images, standardised, ``(n, 128, 128)``, and the numbers of the objects to find in them, 0 for none."""

    images: Tensor
    instances: Tensor

    def take(self, index: Any) -> Maps:
        """Return some of the images."""
        return Maps(self.images[index], self.instances[index])


# The targets


@cache
def load_nuclei(folder: Path) -> tuple[Any, Any]:
    """Return images and maps of nuclei."""
    stored = np.load(folder / "nuclei" / "nuclei.npz")
    return stored["images"], stored["instances"].astype(np.int64)


@cache
def make_target(name: str, folder: Path) -> Maps:
    """Return images and the objects to find in them."""
    images, instances = load_nuclei(folder)
    random = np.random.default_rng(0)
    sizes = [np.bincount(numbers.ravel(), minlength=numbers.max() + 1) for numbers in instances]
    is_small = [count < SMALL for count in sizes]
    if name == "all":
        kept = [np.ones(len(count), bool) for count in sizes]
        erased = [np.zeros(len(count), bool) for count in sizes]
    elif name == "small":
        kept = is_small
        erased = [np.zeros(len(count), bool) for count in sizes]
    elif name == "one in ten":
        kept = [random.random(len(count)) < 0.1 for count in sizes]
        erased = [~keep for keep in kept]
    else:
        share = float(name.removeprefix("small, ").removesuffix(" %")) / 100
        small_pixels = sum(int(count[1:][small[1:]].sum()) for count, small in zip(sizes, is_small, strict=True))
        chance = share * instances.size / small_pixels
        kept = [small & (random.random(len(small)) < chance) for small in is_small]
        erased = [small & ~keep for small, keep in zip(is_small, kept, strict=True)]
    found_images = []
    found_instances = []
    for image, numbers, keep, erase in zip(images, instances, kept, erased, strict=True):
        erase[0] = False
        keep[0] = False
        found_images.append(erase_objects(image.astype(np.float32), numbers, erase[numbers]))
        found_instances.append(np.where(keep[numbers], numbers, 0))
    stacked = torch.as_tensor(np.stack(found_images))
    mean = stacked.mean((1, 2), keepdim=True)
    deviation = stacked.std((1, 2), keepdim=True)
    return Maps((stacked - mean) / deviation.clamp_min(1e-6), torch.as_tensor(np.stack(found_instances)))


def erase_objects(image: Any, numbers: Any, is_erased: Any) -> Any:
    """Return the image with the values of the nearest background where objects are erased, and one pixel around."""
    if not is_erased.any():
        return image
    around = ndimage.binary_dilation(is_erased)
    hole = is_erased | (around & (numbers == 0))
    is_background = (numbers == 0) & ~hole
    if not is_background.any():
        return image
    nearest = ndimage.distance_transform_edt(~is_background, return_distances=False, return_indices=True)
    return np.where(hole, image[tuple(nearest)], image)


def split_images(part: str, folder: Path) -> list[Any]:
    """Return the numbers of the images that train, validate and test, of the choosing or the judging part."""
    order = np.random.default_rng(1).permutation(len(load_nuclei(folder)[0]))
    own = order[:CHOOSING_IMAGES] if part == "choose" else order[CHOOSING_IMAGES:]
    edges = [round(TRAIN * len(own)), round((TRAIN + VALIDATION) * len(own))]
    return np.split(own, edges)


# Training


def train_network(loss: nn.Module, maps: Maps, rate: float, steps: int, seed: int) -> UNet:
    """Return a network after so many steps."""
    torch.manual_seed(seed)
    model = UNet()
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload] # faster on a CPU
    optimizer = torch.optim.Adam(model.parameters(), rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    takes_instances = getattr(getattr(loss, "metric_loss", loss), "per_object", None) is not None
    model.train()
    for batch in draw_batches(len(maps.images), steps, seed):
        images, instances = augment(maps.take(batch))
        logits = model(images)
        targets = (instances > 0).to(logits.dtype)
        optimizer.zero_grad()
        value = loss(logits, targets, instances=instances) if takes_instances else loss(logits, targets)
        value.backward()
        optimizer.step()
        schedule.step()
    return model


def augment(maps: Maps) -> Maps:
    """Return a random square of the images, turned and mirrored at random, the same way for all."""
    height, width = maps.images.shape[1:]
    top = int(torch.randint(height - CROP + 1, ()))
    left = int(torch.randint(width - CROP + 1, ()))
    turns = int(torch.randint(4, ()))
    mirrored_axes = [[], [1]][int(torch.randint(2, ()))]
    squares = [part[:, top : top + CROP, left : left + CROP] for part in maps]
    return Maps(*(square.rot90(turns, (1, 2)).flip(mirrored_axes) for square in squares))


def draw_batches(images: int, steps: int, seed: int) -> Any:
    """Yield the images of each step, epoch after epoch."""
    generator = torch.Generator().manual_seed(seed)
    waiting: list[Tensor] = []
    for _ in range(steps):
        if not waiting:
            waiting = list(torch.randperm(images, generator=generator).split(BATCH))
            waiting = [batch for batch in waiting if len(batch) == BATCH]
        yield waiting.pop()


@torch.no_grad()
def predict_logits(model: UNet, images: Tensor) -> Tensor:
    """Return the logits of images."""
    model.eval()
    return torch.cat([model(part) for part in images.split(BATCH)])


# Evaluation: of each image TP, predicted and true of pixels, and of objects


def count_pixels(logits: Tensor, instances: Tensor, threshold: float) -> Any:
    """Return true positives, predicted and true pixels of each image, ``(n, 3)``."""
    predicted = logits > threshold
    true = instances > 0
    cells = [(predicted & true), predicted, true]
    return torch.stack([cell.sum((1, 2)) for cell in cells], 1).numpy()


def count_objects(logits: Tensor, instances: Tensor, threshold: float) -> Any:
    """Return matched, predicted and true objects of each image, ``(n, 3)``."""
    rows = []
    for predicted, true in zip((logits > threshold).numpy(), instances.numpy(), strict=True):
        found, found_objects = ndimage.label(predicted)
        true_numbers, compact = np.unique(true, return_inverse=True)
        compact = compact.reshape(true.shape)
        if true_numbers[0] != 0:  # an image without background
            compact = compact + 1
        true_objects = int(compact.max())
        table = np.zeros((true_objects + 1, found_objects + 1))
        np.add.at(table, (compact.ravel(), found.ravel()), 1)
        union = table.sum(1, keepdims=True) + table.sum(0, keepdims=True) - table
        matched = int((table[1:, 1:] > 0.5 * union[1:, 1:]).sum())
        rows.append([matched, found_objects, true_objects])
    return np.array(rows)


def f1_of_counts(counts: Any) -> float:
    """Return F1 of the counts of all images together."""
    matched, predicted, true = counts.sum(0)
    return float(2 * matched / max(predicted + true, 1))


def dice_of_images(counts: Any) -> float:
    """Return the mean Dice of the images with foreground."""
    has_foreground = counts[:, 2] > 0
    tp, predicted, true = counts[has_foreground].T
    return float((2 * tp / (predicted + true)).mean())


MEASURES: dict[str, tuple[Any, Any]] = {
    "Dice per image": (count_pixels, dice_of_images),
    "F1 of pixels": (count_pixels, f1_of_counts),
    "F1 of objects": (count_objects, f1_of_counts),
}


def list_thresholds(logits: Tensor, instances: Tensor) -> list[float]:
    """Return thresholds at which between a tenth and ten times the true share of pixels is predicted."""
    share = (instances > 0).double().mean().item()
    shares = np.geomspace(share / 10, min(10 * share, 0.9), THRESHOLDS)
    ordered = logits.flatten().sort(descending=True).values
    places = [min(int(wanted * len(ordered)), len(ordered) - 1) for wanted in shares]
    return sorted({ordered[place].item() for place in places})


def tune(measure: str, logits: Tensor, instances: Tensor) -> tuple[float, float]:
    """Return the best threshold on validation images, and its value there."""
    count, value = MEASURES[measure]
    if measure == "F1 of pixels":
        tuned = mg.tune_threshold("f1", logits.flatten().double(), (instances > 0).flatten())
        return float(tuned.threshold), float(tuned.value)
    values = {threshold: value(count(logits, instances, threshold)) for threshold in list_thresholds(logits, instances)}
    best = max(values, key=lambda threshold: values[threshold])
    return best, values[best]


def run(part: str, target: str, seed: int, loss: str, rate: float, steps: int, folder: Path) -> list[list[Any]]:
    """Return the lines of one run: one for each measure."""
    maps = make_target(target, folder)
    train, validation, test = (maps.take(index) for index in split_images(part, folder))
    start = time.process_time()
    model = train_network(LOSSES[loss](), train, rate, steps, seed)
    seconds = time.process_time() - start
    held = predict_logits(model, validation.images)
    final = predict_logits(model, test.images)
    lines = []
    for measure, (count, value) in MEASURES.items():
        threshold, validation_value = tune(measure, held, validation.instances)
        counts = count(final, test.instances, threshold)
        at_half = value(count(final, test.instances, 0.0))
        figures = [f"{value(counts):.6f}", f"{at_half:.6f}", f"{validation_value:.6f}", f"{seconds:.1f}"]
        of_images = " ".join(f"{matched}/{predicted}" for matched, predicted, _ in counts)
        lines.append([part, target, seed, loss, rate, steps, measure, *figures, of_images])
    return lines


def list_runs(part: str) -> list[tuple[str, int, str, float, int]]:
    """Return target, seed, loss, learning rate and steps of the runs of a part."""
    if part == "choose":
        targets = ("small", "small, 0.3 %")
        return [
            (target, seed, loss, rate, STEPS)
            for seed in (100,)
            for target in targets
            for rate in RATES
            for loss in LOSSES
        ]
    chosen = json.loads(CHOSEN.read_text())
    rates = chosen["rates"]
    claimed = [*CROSS_ENTROPY, MONAI, chosen["default"]]
    others = [loss for loss in PATIENT if loss not in claimed]
    runs = []
    for losses in (claimed, others):  # first what the claims are about
        for seed in range(SEEDS):
            runs += [(target, seed, loss, rates[loss], PATIENT_STEPS) for target in RARE for loss in losses]
    for seed in range(SEEDS):
        runs += [(target, seed, loss, rate, STEPS) for target in TARGETS for loss, rate in rates.items()]
    return runs


def make_results(part: str, seeds: list[int], folder: Path, path: Path) -> None:
    """Make every result of a part that is not there yet, of all seeds or of some."""
    if not path.exists():
        path.write_text(",".join(COLUMNS) + "\n")
    keys = ["part", "target", "seed", "loss", "rate", "steps"]
    done = set(pd.read_csv(path)[keys].itertuples(index=False, name=None))
    for target, seed, loss, rate, steps in list_runs(part):
        if (part, target, seed, loss, rate, steps) in done or (seeds and seed not in seeds):
            continue
        lines = run(part, target, seed, loss, rate, steps, folder)
        with path.open("a", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
        for line in lines:
            print(*line[:-1], flush=True)


# Choosing


def choose(results: pd.DataFrame) -> dict[str, Any]:
    """Return the losses to judge, each with its best learning rate, our default, and the means that chose them."""
    of_choice = results[(results.part == "choose") & (results.measure == "Dice per image")]
    means = of_choice.groupby(["loss", "rate"]).value.mean()
    best_rates = {loss: float(means[loss].idxmax()) for loss in LOSSES}
    values = {loss: round(float(means[loss, rate]), 4) for loss, rate in best_rates.items()}
    ours = [max(family, key=lambda loss: values[loss]) for family in FAMILIES]
    variants = {loss for family in FAMILIES for loss in family}
    rates = {loss: rate for loss, rate in best_rates.items() if loss in ours or loss not in variants}
    return {"rates": rates, "default": max(ours, key=lambda loss: values[loss]), "means": values}


# The claims


def dice_by_image(results: pd.DataFrame, true: dict[str, Any], loss: str, steps: int) -> pd.DataFrame:
    """Return the Dice of every test image with foreground: columns target, seed, image, value."""
    chosen = results[(results.loss == loss) & (results.steps == steps) & (results.measure == "Dice per image")]
    rows = []
    for line in chosen.itertuples():
        pairs = [tuple(map(int, pair.split("/"))) for pair in line.images.split()]
        for image, ((tp, predicted), positives) in enumerate(zip(pairs, true[line.target], strict=True)):
            if positives:
                rows.append((line.target, line.seed, image, 2 * tp / (predicted + positives)))
    return pd.DataFrame(rows, columns=["target", "seed", "image", "value"])


def compare_by_image(
    ours: pd.DataFrame, theirs: pd.DataFrame, draws: int = 10_000
) -> tuple[float, float, float, float]:
    """Return the mean difference over targets, its 95 % interval and p-value; images are resampled with all seeds."""
    both = ours.merge(theirs, on=["target", "seed", "image"], suffixes=("", "_theirs"))
    both["difference"] = both.value - both.value_theirs
    by_image = both.groupby(["target", "image"]).difference.mean().unstack("target")
    table = by_image.to_numpy()
    estimate = np.nanmean(table, 0).mean()
    random = np.random.default_rng(0)
    index = random.integers(0, len(table), (draws, len(table)))
    means = np.array([np.nanmean(table[rows], 0).mean() for rows in index])
    low, high = np.quantile(means, [0.025, 0.975])
    tail = (np.sum(means <= 0) + 1) / (draws + 1)
    return float(estimate), float(low), float(high), float(min(1.0, 2 * min(tail, 1 - tail)))


def better_cross_entropy(judged: pd.DataFrame, steps: int) -> dict[tuple[str, int], str]:
    """Return, for each target and seed, the cross-entropy with the higher Dice on the validation images."""
    rows = judged[judged.loss.isin(CROSS_ENTROPY) & (judged.steps == steps) & (judged.measure == "Dice per image")]
    best = rows.loc[rows.groupby(["target", "seed"]).validation.idxmax()]
    return {(line.target, line.seed): line.loss for line in best.itertuples()}


def find_complete_runs(judged: pd.DataFrame, losses: list[str], steps: int) -> pd.DataFrame:
    """Return the lines of rare targets with so many steps, of the targets and seeds that all of the losses have."""
    lines = judged[judged.target.isin(RARE) & (judged.steps == steps)]
    of_losses = lines[lines.loss.isin(losses)]
    number = of_losses.groupby(["target", "seed"]).loss.transform("nunique")
    complete = set(of_losses[number == len(losses)][["target", "seed"]].itertuples(index=False, name=None))
    is_complete = [(row.target, row.seed) in complete for row in lines.itertuples()]
    return lines[is_complete]


def judge_claims(judged: pd.DataFrame, true: dict[str, Any], default: str) -> pd.DataFrame:
    """Return both claims, with Holm's correction of the p-values."""
    runs = find_complete_runs(judged, [*CROSS_ENTROPY, MONAI, default], PATIENT_STEPS)
    by_loss = {loss: dice_by_image(runs, true, loss, PATIENT_STEPS) for loss in (*CROSS_ENTROPY, MONAI, default)}
    chosen = better_cross_entropy(runs, PATIENT_STEPS)
    is_chosen = {
        loss: [chosen[row.target, row.seed] == loss for row in by_loss[loss].itertuples()] for loss in CROSS_ENTROPY
    }
    rivals = {
        "the better cross-entropy": pd.concat([by_loss[loss][is_chosen[loss]] for loss in CROSS_ENTROPY]),
        MONAI: by_loss[MONAI],
    }
    rows = []
    for rival, theirs in rivals.items():
        rows.append([default, rival, *compare_by_image(by_loss[default], theirs)])
    claims = pd.DataFrame(rows, columns=["ours", "rival", "mean", "low", "high", "p"]).sort_values("p", kind="stable")
    corrected = claims.p * np.arange(len(claims), 0, -1)
    claims["p"] = corrected.cummax().clip(upper=1.0)
    claims["seeds"] = runs.seed.nunique()
    claims["runs"] = len(runs[["target", "seed"]].drop_duplicates())
    return claims


def print_summary(path: Path) -> None:
    """Print the means of all contenders, and the claims."""
    results = pd.read_csv(path)
    judged = results[results.part == "judge"]
    pd.set_option("display.width", 200, "display.max_rows", 500)
    for part, rows in results.groupby("part"):
        for steps, of_steps in rows.groupby("steps"):
            table = of_steps.pivot_table(index="loss", columns=["measure", "target"], values="value")
            counts = of_steps.groupby("loss").seed.nunique()
            print(f"\n{part}, {steps} steps, tuned; seeds {counts.min()} to {counts.max()}")
            print(table.round(3).to_string())
    pixels = judged[judged.measure == "F1 of pixels"]
    reference = pixels[pixels.loss == "cross-entropy"].set_index(["target", "seed", "steps"]).value
    halves = [reference.get((row.target, row.seed, row.steps), math.nan) / 2 for row in pixels.itertuples()]
    print("\ncollapsed runs")
    print((pixels.value < halves).groupby([pixels.loss, pixels.steps]).agg(["sum", "count"]).to_string())
    if CLAIMS.exists():
        print(f"\nclaims\n{pd.read_csv(CLAIMS).to_string(index=False)}")


def write_claims(path: Path, folder: Path) -> None:
    """Test both claims on the results, and write what came of them."""
    results = pd.read_csv(path)
    test = split_images("judge", folder)[2]
    true = {target: (make_target(target, folder).instances[test] > 0).sum((1, 2)).tolist() for target in RARE}
    claims = judge_claims(results[results.part == "judge"], true, json.loads(CHOSEN.read_text())["default"])
    claims.round(5).to_csv(CLAIMS, index=False)
    print(claims.to_string(index=False))


def main() -> None:
    """Choose, judge or sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--choose", action="store_true", help="make the results that choose, and write what they chose")
    parser.add_argument("--judge", action="store_true", help="make the results that judge")
    parser.add_argument("--claims", action="store_true", help="test the claims on the results, and write them")
    parser.add_argument("--summary", action="store_true", help="print the tables and the claims")
    parser.add_argument("--seeds", type=int, nargs="*", help="only these, to share the work between processes")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if (options.choose or options.judge or options.claims) and options.data is None:
        parser.error("--data: expected the folder of data sets")
    if options.choose:
        make_results("choose", options.seeds, options.data, options.results)
        CHOSEN.write_text(json.dumps(choose(pd.read_csv(options.results)), indent=1, ensure_ascii=False) + "\n")
    if options.judge:
        make_results("judge", options.seeds, options.data, options.results)
    if options.claims:
        write_claims(options.results, options.data)
    if options.summary:
        print_summary(options.results)


if __name__ == "__main__":
    main()
