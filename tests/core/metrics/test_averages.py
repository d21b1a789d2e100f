"""The weights of classes in averages."""

from __future__ import annotations

import pytest
import torch

from metricgrad.core.metrics.averages import class_weights, mean_over_classes

pytestmark = pytest.mark.quick


def test_a_class_without_positives_weighs_nothing_where_it_is_skipped() -> None:
    positives = torch.tensor([2.0, 0.0, 3.0, 0.0])
    assert class_weights("macro", positives, None, "skip").tolist() == [0.5, 0.0, 0.5, 0.0]
    assert class_weights("macro", positives, (0, 1), "skip").tolist() == [1.0, 0.0, 0.0, 0.0]
    assert class_weights("macro", positives, None, "count").tolist() == [0.25] * 4
    assert class_weights("weighted", positives).tolist() == pytest.approx([0.4, 0.0, 0.6, 0.0])
    values = torch.tensor([0.5, torch.nan, 1.0, torch.nan])
    assert mean_over_classes(values, class_weights("macro", positives, None, "skip")).item() == 0.75
