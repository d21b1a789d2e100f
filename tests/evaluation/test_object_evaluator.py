"""Objects: matches against a slow reference and torchmetrics, masks, classes, sums and bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchmetrics.functional.detection import panoptic_quality

import metricgrad as mg


def make_maps(seed: int, images: int = 4, size: int = 24) -> tuple[Tensor, Tensor]:
    """Return maps of predicted and true objects: rectangles, moved a little, some left out, some invented."""
    random = np.random.default_rng(seed)
    true = np.zeros((images, size, size), dtype=np.int64)
    found = np.zeros_like(true)
    for image in range(images):
        for number in range(1, random.integers(1, 7)):
            row, column = random.integers(0, size - 6, 2)
            height, width = random.integers(2, 6, 2)
            shift, other_shift = random.integers(-1, 2, 2)
            if random.random() < 0.8:
                true[image, row : row + height, column : column + width] = number
            if random.random() < 0.8:
                top = max(row + shift, 0)
                left = max(column + other_shift, 0)
                found[image, top : top + height, left : left + width] = 10 * number
    return torch.as_tensor(found), torch.as_tensor(true)


def reference_counts(found: Tensor, true: Tensor, iou: float) -> tuple[int, int, int, float]:
    """Return matched, wrong, missed and the sum of overlaps, by a loop over all pairs."""
    matched = wrong = missed = 0
    overlap = 0.0
    for found_map, true_map in zip(found, true, strict=True):
        found_numbers = [number for number in found_map.unique().tolist() if number]
        true_numbers = [number for number in true_map.unique().tolist() if number]
        used = set()
        for number in true_numbers:
            best = 0.0
            for other in found_numbers:
                both = ((true_map == number) & (found_map == other)).sum().item()
                either = ((true_map == number) | (found_map == other)).sum().item()
                if both / either > max(iou, best):
                    best = both / either
                    used.add(other)
            matched += best > 0
            overlap += best
        missed += len(true_numbers)
        wrong += len(found_numbers) - len(used)
    return matched, wrong, missed - matched, overlap


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("iou", [0.5, 0.75])
def test_values_of_a_loop_over_pairs(seed: int, iou: float) -> None:
    found, true = make_maps(seed)
    matched, wrong, missed, overlap = reference_counts(found, true, iou)
    values = mg.evaluate_objects(found, true, ["f1", "precision", "recall", "jaccard", "panoptic_quality"], iou=iou)
    assert values["f1"] == pytest.approx(2 * matched / (2 * matched + wrong + missed))
    assert values["precision"] == pytest.approx(matched / max(matched + wrong, 1))
    assert values["recall"] == pytest.approx(matched / (matched + missed))
    assert values["jaccard"] == pytest.approx(matched / (matched + wrong + missed))
    assert values["panoptic_quality"] == pytest.approx(overlap / (matched + wrong / 2 + missed / 2))


@pytest.mark.parametrize("seed", range(5))
def test_values_of_torchmetrics(seed: int) -> None:
    found, true = make_maps(seed)
    found_pairs = torch.stack(((found > 0).long(), found), -1)  # category and number
    true_pairs = torch.stack(((true > 0).long(), true), -1)
    options: dict[str, Any] = {"things": {1}, "stuffs": {0}, "return_sq_and_rq": True, "return_per_class": True}
    quality, segmentation, recognition = panoptic_quality(found_pairs, true_pairs, **options)[0].tolist()
    values = mg.evaluate_objects(found, true, ["panoptic_quality", "segmentation_quality", "f1"])
    assert values["panoptic_quality"] == pytest.approx(quality, abs=1e-6)
    assert values["segmentation_quality"] == pytest.approx(segmentation, abs=1e-6)
    assert values["f1"] == pytest.approx(recognition, abs=1e-6)


def test_the_limit_itself_is_no_match() -> None:
    true = torch.tensor([[[1, 1, 1, 0]]])
    half = torch.tensor([[[1, 1, 1, 1], [0, 0, 1, 1]]])
    found = torch.tensor([[[0, 1, 1, 1]]])  # 2 of 4 positions
    assert mg.evaluate_objects(found, true, "recall")["recall"] == 0
    assert mg.evaluate_objects(true, true, "recall", iou=0.99)["recall"] == 1
    assert mg.evaluate_objects(half[:, :1], true, "recall", iou=0.74)["recall"] == 1


def test_masks_are_numbered() -> None:
    masks = torch.tensor([[[True, False, True], [False, True, False]]])
    assert mg.number_objects(masks).max() == 3
    assert mg.number_objects(masks, connectivity=2).max() == 1
    assert mg.evaluate_objects(masks, masks, "f1", connectivity=2)["f1"] == 1
    assert mg.number_objects(masks.numpy()).tolist() == [[[1, 0, 2], [0, 3, 0]]]
    of_classes = torch.stack((masks, ~masks), 1)
    numbered = mg.number_objects(of_classes, task="multilabel")
    assert torch.equal(numbered[:, 0], mg.number_objects(masks))
    assert torch.equal(numbered[:, 1], mg.number_objects(~masks))


def test_what_is_masked_does_not_count() -> None:
    true = torch.tensor([[[1, 1, 0, 0, 0, 2]]])
    found = torch.tensor([[[1, 1, 0, 5, 5, 0]]])
    everything = mg.evaluate_objects(found, true, ["precision", "recall"])
    assert everything == {"precision": 0.5, "recall": 0.5}
    mask = torch.tensor([[[True, True, True, False, False, False]]])
    assert mg.evaluate_objects(found, true, ["precision", "recall"], mask=mask) == {"precision": 1.0, "recall": 1.0}
    # Half of a wrong object is inside: it counts.
    mask = torch.tensor([[[True, True, True, True, False, False]]])
    assert mg.evaluate_objects(found, true, "precision", mask=mask)["precision"] == 0.5


def test_classes_and_averages() -> None:
    found, true = make_maps(1)
    found_of_classes = torch.stack((found, torch.zeros_like(found), found), 1)
    true_of_classes = torch.stack((true, torch.zeros_like(true), torch.zeros_like(true)), 1)
    alone = mg.evaluate_objects(found, true, "f1")["f1"]

    def f1(**options: Any) -> Any:
        return mg.evaluate_objects(found_of_classes, true_of_classes, "f1", task="multilabel", **options)["f1"]

    assert f1(average=None) == pytest.approx([alone, 0.0, 0.0])
    assert f1() == pytest.approx(alone / 3)
    assert f1(empty_classes="skip") == pytest.approx(alone)
    assert f1(average="weighted") == pytest.approx(alone)
    matched, wrong, missed, _ = reference_counts(found, true, 0.5)
    wrong_in_all = wrong + matched + wrong
    assert f1(average="micro") == pytest.approx(2 * matched / (2 * matched + wrong_in_all + missed))


def test_evaluators_add() -> None:
    found, true = make_maps(2)
    whole = mg.evaluate_objects(found, true)
    one = mg.ObjectEvaluator().update(found[:1], true[:1])
    two = mg.ObjectEvaluator().update(found[1:3], true[1:3]).update(found[3:], true[3:])
    assert (one + two).compute() == pytest.approx(whole)
    assert (one + mg.ObjectEvaluator()).compute() == one.compute()
    one.reset()
    with pytest.raises(ValueError, match="compute: expected at least one update"):
        one.compute()


def test_three_dimensions_and_no_objects() -> None:
    maps = torch.zeros(1, 3, 3, 3, dtype=torch.int64)
    assert mg.evaluate_objects(maps, maps)["f1"] == 0
    maps[0, 1, 1] = 4
    assert mg.evaluate_objects(maps, maps)["panoptic_quality"] == 1


def test_bad_input() -> None:
    maps = torch.zeros(1, 4, 4, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"metrics: mcc.* depends on true negatives"):
        mg.ObjectEvaluator("mcc")
    with pytest.raises(ValueError, match=r"iou: expected a number in \[0.5, 1\)"):
        mg.ObjectEvaluator(iou=0.3)
    with pytest.raises(ValueError, match="average: expected 'macro', 'micro', 'weighted' or None"):
        mg.ObjectEvaluator(average="samples")
    with pytest.raises(ValueError, match="task: expected 'binary' or 'multilabel'"):
        mg.ObjectEvaluator(task="multiclass")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="predicted: expected numbers of objects or a mask of bool"):
        mg.evaluate_objects(maps.float(), maps)
    with pytest.raises(ValueError, match="instances: expected the shape of predicted"):
        mg.evaluate_objects(maps, maps[:, :2])
    with pytest.raises(ValueError, match="predicted: expected maps of objects"):
        mg.evaluate_objects(maps[0, 0], maps[0, 0])
    with pytest.raises(ValueError, match="mask: expected bool of shape"):
        mg.evaluate_objects(maps, maps, mask=maps)
    with pytest.raises(ValueError, match="masks: expected bool"):
        mg.number_objects(maps)
    with pytest.raises(ValueError, match="connectivity: expected 1 to 2"):
        mg.number_objects(maps > 0, connectivity=3)
