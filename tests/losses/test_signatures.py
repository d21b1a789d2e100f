"""What an editor shows of a loss: named options, choices that complete, the defaults of ``MetricLoss``."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Literal, get_args, get_origin

import pytest
from torch import nn

import metricgrad as mg
from metricgrad.core.batch import Task
from metricgrad.core.metrics.averages import Average, EmptyClasses
from metricgrad.public_names import available

pytestmark = pytest.mark.quick

CHOICES = {"task": Task, "average": Average, "empty_classes": EmptyClasses}
LOSSES = {
    **{name: getattr(mg, name) for name in available() if name.endswith("Loss")},
    **{f"presets.{name}": getattr(mg.presets, name) for name in vars(mg.presets)["__all__"]},
    **{
        f"baselines.{name}": getattr(mg.baselines, name)
        for name in vars(mg.baselines)["__all__"]
        if name != "balanced_weights"
    },
}


def parameters(loss: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(loss).parameters)


@pytest.mark.parametrize("name", LOSSES)
def test_options_are_named(name: str) -> None:
    kinds = {p.kind for p in parameters(LOSSES[name]).values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds
    assert inspect.Parameter.VAR_POSITIONAL not in kinds


@pytest.mark.parametrize("name", LOSSES)
def test_choices_are_literal_types_and_defaults_are_among_them(name: str) -> None:
    found = {key: p for key, p in parameters(LOSSES[name]).items() if key in CHOICES}
    assert found or LOSSES[name] is mg.RunningLoss  # which takes a complete loss
    for key, parameter in found.items():
        assert get_origin(CHOICES[key]) is Literal
        assert parameter.annotation.removesuffix(" | None") == "".join(map(str.capitalize, key.split("_")))
        assert parameter.default in get_args(CHOICES[key]) or (key == "task" and parameter.default is None)


@pytest.mark.parametrize("name", LOSSES)
def test_options_of_metric_loss_have_its_defaults(name: str) -> None:
    defaults = {key: p.default for key, p in parameters(mg.MetricLoss).items() if key not in ("metric", "task")}
    own = {"presets.mfom_f1": "micro", "presets.mfom_detection_cost": "micro"}
    if name in own:
        defaults["average"] = own[name]
    if name in ("AUROCLoss", "baselines.tversky", "presets.soft_set"):  # and not everywhere by chance
        assert parameters(LOSSES[name]).keys() & defaults.keys()
    for key in parameters(LOSSES[name]).keys() & defaults.keys():
        assert parameters(LOSSES[name])[key].default == defaults[key], key


def described(loss: Callable[..., Any]) -> dict[str, list[str]]:
    """Return the sentences about each parameter in a docstring."""
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n---|\Z)", inspect.getdoc(loss) or "", re.DOTALL | re.MULTILINE
    )
    assert section is not None
    found = re.findall(r"^(\w+) : .*\n((?:    .*\n?)+)", section[1], re.MULTILINE)
    return {name: re.split(r"(?<=\.) ", " ".join(text.split())) for name, text in found}


@pytest.mark.parametrize("name", LOSSES)
def test_shared_options_are_described_in_the_words_of_metric_loss(name: str) -> None:
    """A loss that refuses a choice leaves its sentence out; nothing is worded in another way."""
    words, found = described(mg.MetricLoss), described(LOSSES[name])
    assert words.keys() == parameters(mg.MetricLoss).keys()
    assert found.keys() == parameters(LOSSES[name]).keys()
    # ConstrainedLoss takes one threshold only, cross_entropy one task only.
    own = {"metric", "surrogate", {"ConstrainedLoss": "threshold", "baselines.cross_entropy": "task"}.get(name)}
    if "lovasz" in name or name == "baselines.dice":  # which are of sets, not of averaged values
        own |= {"per_image", "task"}
    for key in (words.keys() & found.keys()) - own:
        assert set(found[key]) <= set(words[key]), key


@pytest.mark.parametrize("name", [name for name in LOSSES if name.startswith(("presets.", "baselines."))])
def test_every_option_reaches_the_loss(name: str) -> None:
    """An option that a function takes and does not hand on would be ignored in silence."""
    given = {"task": "multilabel", "average": "weighted", "labels": [0], "empty_classes": "skip", "ignore_index": -7}
    given |= {"process_group": "world", "reduction": "sum"}
    if name == "baselines.dice":
        del given["reduction"]  # of the samples, see per_image
    if name in ("presets.multiclass_f_beta", "baselines.cross_entropy", "baselines.lovasz_softmax"):
        given["task"] = "multiclass"
    taken = {key: value for key, value in given.items() if key in parameters(LOSSES[name])}
    first = [[[5.0], [2.0]]] if name == "baselines.logit_adjusted_cross_entropy" else []
    loss: Any = LOSSES[name](*first, **taken)
    assert isinstance(loss, nn.Module)
    for key, value in taken.items():
        held = loss.objective if key in ("labels", "empty_classes") else loss
        assert getattr(held, key) == (tuple(value) if isinstance(value, list) else value), key
    if "threshold" in parameters(LOSSES[name]):
        sharp = LOSSES[name](surrogate=mg.surrogates.Hard(), threshold=0.25, task="multilabel")
        assert sharp.thresholds == (0.25,)
        assert isinstance(sharp.surrogate, mg.surrogates.Hard)
