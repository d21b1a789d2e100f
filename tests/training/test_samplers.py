"""Samplers: each keeps its promise, for any data; processes share batches; an epoch can be repeated and resumed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from metricgrad.training.samplers import (
    ClassBalancedBatchSampler,
    MinimumPositivesBatchSampler,
    OversamplingSampler,
    StratifiedBatchSampler,
    epoch_generator,
)

pytestmark = pytest.mark.quick

G = torch.Generator().manual_seed(3)
BINARY = (torch.rand(203, generator=G) < 0.07).long()
CLASSES = torch.multinomial(torch.tensor([0.7, 0.2, 0.07, 0.03]), 203, True, generator=G)
LABELS = (torch.rand(203, 5, generator=G) < torch.tensor([0.01, 0.05, 0.1, 0.3, 0.6])).long()
LABELS[0, 0] = 1

Make = Callable[..., Any]
BATCHES: dict[str, Make] = {
    "stratified": lambda **o: StratifiedBatchSampler(CLASSES, 20, **o),
    "stratified labels": lambda **o: StratifiedBatchSampler(LABELS, 20, **o),
    "dropped": lambda **o: StratifiedBatchSampler(BINARY, 20, drop_last=True, **o),
    "balanced": lambda **o: ClassBalancedBatchSampler(CLASSES, 20, **o),
    "minimum": lambda **o: MinimumPositivesBatchSampler(BINARY, 20, 3, **o),
    "minimum of classes": lambda **o: MinimumPositivesBatchSampler(CLASSES, 20, 2, **o),
    "minimum of labels": lambda **o: MinimumPositivesBatchSampler(LABELS, 20, 2, **o),
}
ALL: dict[str, Make] = {**BATCHES, "oversampled": lambda **o: OversamplingSampler(CLASSES, **o)}

targets_and_size = st.tuples(
    st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 20), st.integers(0, 2**31 - 1)
)


def shares(batch: list[int], classes: list[int]) -> Counter[int]:
    return Counter(classes[i] for i in batch)


@given(targets_and_size)
@settings(deadline=None, max_examples=60)
def test_stratified_batches_have_every_sample_once_and_the_proportions(case: tuple[list[int], int, int]) -> None:
    classes, size, seed = case
    batches = list(StratifiedBatchSampler(classes, size, seed=seed))
    assert sorted(itertools.chain(*batches)) == list(range(len(classes)))
    assert max(map(len, batches)) <= size
    assert max(map(len, batches)) - min(map(len, batches)) <= 1
    for k, total in Counter(classes).items():
        for batch in batches:
            assert shares(batch, classes)[k] in (total // len(batches), -(-total // len(batches)))


@given(targets_and_size)
@settings(deadline=None, max_examples=60)
def test_dropping_keeps_full_batches_and_the_proportions(case: tuple[list[int], int, int]) -> None:
    classes, size, seed = case
    size = min(size, len(classes))
    sampler = StratifiedBatchSampler(classes, size, drop_last=True, seed=seed)
    batches = list(sampler)
    assert len(batches) == len(sampler) == len(classes) // size
    assert all(len(batch) == size for batch in batches)
    flat = list(itertools.chain(*batches))
    assert len(set(flat)) == len(flat)
    for k, total in Counter(classes).items():
        assert abs(shares(flat, classes)[k] - total * len(flat) / len(classes)) < 1


@given(targets_and_size)
@settings(deadline=None, max_examples=60)
def test_balanced_batches_have_equal_shares_and_repeat_fairly(case: tuple[list[int], int, int]) -> None:
    classes, size, seed = case
    batches = list(ClassBalancedBatchSampler(classes, size, seed=seed))
    kinds = set(classes)
    assert all(len(batch) == size for batch in batches)
    for batch in batches:
        counts = shares(batch, classes)
        assert all(counts[k] in (size // len(kinds), -(-size // len(kinds))) for k in kinds)
    times = Counter(itertools.chain(*batches))
    for k in kinds:
        own = [times[i] for i, c in enumerate(classes) if c == k]
        assert max(own) - min(own) <= 1


@given(targets_and_size, st.integers(1, 3))
@settings(deadline=None, max_examples=60)
def test_every_batch_has_the_minimum_of_every_class(case: tuple[list[int], int, int], minimum: int) -> None:
    classes, size, seed = case
    classes = [*classes, 2]  # not 0/1 alone
    size += minimum * 5
    batches = list(MinimumPositivesBatchSampler(classes, size, minimum, seed=seed))
    assert max(map(len, batches)) <= size
    assert set(itertools.chain(*batches)) == set(range(len(classes)))
    for batch in batches:
        assert min(shares(batch, classes)[k] for k in set(classes)) >= minimum


@pytest.mark.parametrize("minimum", [1, 2, 5])
def test_every_batch_has_the_minimum_of_positives_and_negatives_come_once(minimum: int) -> None:
    batches = list(MinimumPositivesBatchSampler(BINARY, 16, minimum))
    positives = {i for i in range(203) if BINARY[i]}
    times = Counter(itertools.chain(*batches))
    assert set(times) == set(range(203))
    assert all(times[i] == 1 for i in range(203) if i not in positives)
    assert min(sum(i in positives for i in batch) for batch in batches) >= minimum
    assert max(map(len, batches)) <= 16


def test_enough_positives_are_not_repeated() -> None:
    y = [0, 1] * 50
    batches = list(MinimumPositivesBatchSampler(y, 10, 4))
    assert sorted(itertools.chain(*batches)) == list(range(100))


def test_every_batch_has_the_minimum_of_every_label_that_exists() -> None:
    labels = torch.cat((LABELS, torch.zeros(203, 1, dtype=torch.long)), 1)  # and one that does not
    for minimum in (1, 3):
        sampler = MinimumPositivesBatchSampler(labels, 24, minimum)
        for _ in range(3):  # epochs
            batches = list(sampler)
            assert len(batches) == len(sampler)
            assert max(map(len, batches)) <= 24
            assert all((LABELS[batch].sum(0) >= minimum).all() for batch in batches)
            times = Counter(itertools.chain(*batches))
            assert set(times) == set(range(203))
            assert all(times[i] == 1 for i in range(203) if not LABELS[i].any())


def test_labels_are_stratified_by_combination_and_the_rarest_label_exactly() -> None:
    batches = list(StratifiedBatchSampler(LABELS, 20))
    assert sorted(itertools.chain(*batches)) == list(range(203))
    combinations = [tuple(row) for row in LABELS.tolist()]
    for combination, total in Counter(combinations).items():
        for batch in batches:
            here = sum(combinations[i] == combination for i in batch)
            assert here in (total // len(batches), -(-total // len(batches)))
    many = (torch.rand(1000, 6, generator=G) < torch.tensor([0.5, 0.1, 0.6, 0.3, 0.4, 0.2])).long()
    counts = [int(many[batch, 1].sum()) for batch in StratifiedBatchSampler(many, 50)]
    assert max(counts) - min(counts) <= 1


def test_it_is_left_to_chance_which_batch_is_larger() -> None:
    for sampler in (StratifiedBatchSampler([0] * 5, 3), MinimumPositivesBatchSampler([1] * 5, 3)):
        assert {len(next(iter(sampler))) for sampler.epoch in range(20)} == {2, 3}


def test_an_added_sample_counts_for_all_its_labels() -> None:
    """Two samples have both labels, three the second alone: what is added for the first is enough for the second."""
    labels = torch.zeros(40, 2, dtype=torch.long)
    labels[:2], labels[2:5, 1] = 1, 1
    sampler = MinimumPositivesBatchSampler(labels, 6)
    assert len(list(itertools.chain(*sampler))) == 40 + len(sampler) - 2


def test_more_than_63_labels_keep_their_combinations_apart() -> None:
    labels = torch.eye(100, dtype=torch.long).repeat(4, 1)
    for batch in StratifiedBatchSampler(labels, 100):
        assert (labels[batch].sum(0) == 1).all()


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.01])
def test_oversampling_reaches_the_ratio_and_repeats_fairly(ratio: float) -> None:
    times = Counter(OversamplingSampler(CLASSES, ratio))
    assert set(times) == set(range(203))
    sizes = Counter(CLASSES.tolist())
    for k, size in sizes.items():
        own = [times[i] for i in range(203) if CLASSES[i] == k]
        assert sum(own) == max(size, round(ratio * max(sizes.values())))
        assert max(own) - min(own) <= 1


def test_oversampling_gives_the_papers_table_10() -> None:
    sampler = OversamplingSampler([0] * 2142 + [1] * 930)
    assert len(sampler) == len(list(sampler)) == 4284


# ------------------------------------------------------------------------------------------------ epochs, processes


@pytest.mark.parametrize("name", ALL)
def test_seed_and_epoch_decide_and_nothing_else(name: str) -> None:
    make = ALL[name]
    torch.manual_seed(1)
    first, again, other = make(seed=4), make(seed=4), make(seed=5)
    epochs = [list(first) for _ in range(3)]
    torch.manual_seed(2)
    assert [list(again) for _ in range(3)] == epochs
    assert epochs[0] != epochs[1] != epochs[2]
    assert [list(other) for _ in range(3)] != epochs
    again.set_epoch(1)
    assert list(again) == epochs[1]
    assert place(make(seed=5).state_dict()) == (5, 0, 0)
    late = make(seed=5)
    late.set_epoch(1)
    assert list(late) not in epochs  # seed 5's epochs are not seed 4's, moved
    assert all(len(epoch) == len(first) for epoch in epochs)


@pytest.mark.parametrize("name", ALL)
def test_resumes_in_the_middle_of_an_epoch(name: str) -> None:
    make = ALL[name]
    straight = make(seed=9)
    expected = [list(straight), list(straight)]
    stopped = make(seed=9)
    stopped.set_epoch(1)
    seen = list(itertools.islice(iter(stopped), 4))
    state = stopped.state_dict()
    assert place(state) == (9, 1, 4)
    resumed = make()
    resumed.load_state_dict(state)
    resumed.set_epoch(1)  # as a training loop does
    assert seen + list(resumed) == expected[1]
    assert resumed.epoch == 2
    assert len(list(resumed)) == len(straight)
    assert list(stopped) == expected[1]  # an iteration that was broken off starts again


def place(state: dict[str, Any]) -> tuple[int, int, int]:
    return state["seed"], state["epoch"], state["position"]


OTHERS: dict[str, tuple[Make, str]] = {
    "another sampler": (lambda: ClassBalancedBatchSampler(CLASSES, 20), "kind='ClassBalancedBatchSampler'"),
    "another batch size": (lambda: StratifiedBatchSampler(CLASSES, 10), "batch_size=10, as here, got batch_size=20"),
    "drop_last": (lambda: StratifiedBatchSampler(CLASSES, 20, drop_last=True), "batches=10, as here, got batches=11"),
    "another order": (lambda: StratifiedBatchSampler(CLASSES.flip(0), 20), "of these very data, got one of others"),
    "one class changed": (lambda: StratifiedBatchSampler(one_changed(), 20), "of these very data, got one of others"),
}


def one_changed() -> torch.Tensor:
    found = CLASSES.clone()
    found[7] = (found[7] + 1) % 4
    return found


@pytest.mark.parametrize("name", OTHERS)
def test_a_state_of_something_else_is_refused(name: str) -> None:
    sampler, (make, message) = StratifiedBatchSampler(CLASSES, 20), OTHERS[name]
    for state in (sampler.state_dict(), {**sampler.state_dict(), "position": 3}):
        with pytest.raises(ValueError, match=f"^state: .*{message}") as caught:
            make().load_state_dict(state)
        assert "\n" not in str(caught.value)
    StratifiedBatchSampler(CLASSES, 20, rank=1, world_size=2).load_state_dict({**sampler.state_dict(), "position": 3})


def test_a_state_depends_on_every_setting() -> None:
    drop = [StratifiedBatchSampler(CLASSES[:200], 20, drop_last=drop) for drop in (False, True)]
    least = [MinimumPositivesBatchSampler(BINARY, 40, minimum) for minimum in (1, 2)]
    ratios = [OversamplingSampler(CLASSES, ratio) for ratio in (1.0, 0.5)]
    for (here, there), name in ((drop, "drop_last"), (least, "minimum|batches"), (ratios, "ratio")):
        with pytest.raises(ValueError, match=rf"^state: expected one taken with ({name})=.*, as here, got"):
            here.load_state_dict(there.state_dict())
    half = OversamplingSampler(CLASSES, rank=0, world_size=2)
    half.load_state_dict(OversamplingSampler(CLASSES).state_dict())  # between epochs
    with pytest.raises(ValueError, match="state: expected one taken with world_size=2, as here, got world_size=1"):
        half.load_state_dict({**OversamplingSampler(CLASSES).state_dict(), "position": 1})


def test_what_is_no_state_is_refused_in_one_line() -> None:
    sampler = StratifiedBatchSampler(CLASSES, 20)
    good = sampler.state_dict()
    bad: list[tuple[Any, str]] = [
        (3, "state: expected one by state_dict.* of StratifiedBatchSampler, got int"),
        (
            {"seed": 0, "epoch": 0, "position": 0},
            r"got one without \['batch_size', 'batches', 'data', 'drop_last', 'kin",
        ),
        ({**good, "position": -1}, r"state\['position'\]: expected a whole number of at least 0, got -1"),
        ({**good, "position": 12}, r"state\['position'\]: expected a whole number of at most 11, got 12"),
        ({**good, "epoch": 2**70}, r"state\['epoch'\]: expected a whole number of at most 16777216, got"),
        ({**good, "epoch": "2"}, r"state\['epoch'\]: expected a whole number of at least 0, got '2'"),
        ({**good, "seed": 1.5}, r"state\['seed'\]: expected a whole number of at least 0, got 1.5"),
    ]
    for state, message in bad:
        with pytest.raises(ValueError, match=message):
            sampler.load_state_dict(state)
    assert sampler.state_dict() == good


@pytest.mark.parametrize("name", ALL)
def test_a_bookmark_brings_the_same_iteration_once_more(name: str) -> None:
    sampler = ALL[name](seed=3)
    back = sampler.bookmark()
    first = list(sampler)
    back()
    assert list(sampler) == first
    assert list(sampler) != first
    sampler.load_state_dict({**sampler.state_dict(), "position": 2})
    back = sampler.bookmark()
    rest = list(sampler)
    assert len(rest) == len(first) - 2
    back()
    assert list(sampler) == rest


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_each_batch(name: str, world: int) -> None:
    make = BATCHES[name]
    whole = list(make(seed=2))
    parts = [list(make(seed=2, rank=rank, world_size=world)) for rank in range(world)]
    assert all(len(part) == len(whole) for part in parts)
    for batch, *shared in zip(whole, *parts, strict=True):
        assert sorted(itertools.chain(*shared)) == sorted(batch)
        assert max(map(len, shared)) - min(map(len, shared)) <= 1
        assert all(shared)
        if name in ("stratified", "balanced"):  # a part is as stratified as the whole
            for k in range(4):
                counts = [int((CLASSES[part] == k).sum()) for part in shared]
                assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("targets", [BINARY, CLASSES])
def test_every_process_sees_every_class_in_every_batch_of_every_epoch(targets: torch.Tensor) -> None:
    samplers = [MinimumPositivesBatchSampler(targets, 40, 4, rank=rank, world_size=4) for rank in range(4)]
    seen: Counter[int] = Counter()
    for epoch in (0, 3):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        for parts in zip(*samplers, strict=True):  # as many batches everywhere
            assert len(set(map(len, parts))) <= 2
            assert all({*targets[part].tolist()} == {*targets.tolist()} for part in parts)
            seen.update(set(itertools.chain(*parts)))
    assert len(seen) == len(targets)


def test_processes_share_an_oversampled_epoch_evenly() -> None:
    whole = list(OversamplingSampler(CLASSES))
    parts = [list(OversamplingSampler(CLASSES, rank=rank, world_size=3)) for rank in range(3)]
    assert len({len(part) for part in parts}) == 1
    spare = Counter(itertools.chain(*parts)) - Counter(whole)
    assert sum(spare.values()) == 3 * len(parts[0]) - len(whole) < 3
    assert not Counter(whole) - Counter(itertools.chain(*parts))


def test_rank_and_world_size_are_those_of_the_running_processes(tmp_path: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        sampler = StratifiedBatchSampler(BINARY, 20)
        assert (sampler.rank, sampler.world_size) == (0, 1)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("name", ALL)
def test_a_data_loader_takes_it(name: str) -> None:
    data, make = TensorDataset(torch.arange(203)), ALL[name]
    given, expected = make(), list(make())
    if name == "oversampled":
        loader = DataLoader(data, sampler=given, batch_size=32, num_workers=0)
        assert torch.cat([x for (x,) in loader]).tolist() == expected
    else:
        loader = DataLoader(data, batch_sampler=given, num_workers=0)
        assert len(loader) == len(expected)
        assert [x.tolist() for (x,) in loader] == expected


def test_targets_come_as_they_are() -> None:
    expected = list(StratifiedBatchSampler(BINARY, 20))
    for targets in (BINARY.tolist(), BINARY.numpy(), BINARY.bool(), BINARY.double(), BINARY.numpy().astype(np.int8)):
        assert list(StratifiedBatchSampler(targets, 20)) == expected
    labels = list(MinimumPositivesBatchSampler(LABELS, 20))
    for targets in (LABELS.tolist(), LABELS.numpy(), LABELS.bool(), LABELS.float()):
        assert list(MinimumPositivesBatchSampler(targets, 20)) == labels


BAD: list[tuple[Make, str]] = [
    (lambda: StratifiedBatchSampler("yes", 4), "targets: expected numbers"),
    (lambda: StratifiedBatchSampler([], 4), r"targets: expected \(N,\) classes or \(N, K\) labels, at least one"),
    (lambda: StratifiedBatchSampler([0.5, 1.0], 4), "targets: expected class indices, got other numbers"),
    (lambda: StratifiedBatchSampler([-1, 1], 4), "targets: expected class indices"),
    (lambda: StratifiedBatchSampler([float("nan")], 4), "targets: expected class indices"),
    (lambda: StratifiedBatchSampler([[0, 2]], 4), "targets: expected 0 or 1, got other numbers"),
    (lambda: ClassBalancedBatchSampler([[0, 1]], 4), r"targets: expected \(N,\) classes, .* got shape \(1, 2\)"),
    (lambda: OversamplingSampler([[0, 1]]), r"targets: expected \(N,\) classes"),
    (lambda: MinimumPositivesBatchSampler([0, 0], 4), "targets: expected positives, got none"),
    (lambda: StratifiedBatchSampler([0, 1], 0), "batch_size: expected a whole number of at least 1, got 0"),
    (lambda: StratifiedBatchSampler([0, 1], 2.0), "batch_size: expected a whole number of at least 1, got 2.0"),  # type: ignore[arg-type]
    (lambda: StratifiedBatchSampler([0, 1], 4, drop_last=True), "batch_size: expected at most the 2 samples"),
    (lambda: StratifiedBatchSampler([0, 1], 1, rank=0, world_size=2), "a sample for each of 2 processes"),
    (lambda: StratifiedBatchSampler([0, 1], 2, rank=2, world_size=2), "rank: expected 0 to world_size - 1 = 1, got 2"),
    (lambda: StratifiedBatchSampler([0, 1], 2, rank=0), "rank and world_size: expected both or none, got 0 and None"),
    (lambda: StratifiedBatchSampler([0, 1], 2, seed=-1), "seed: expected a whole number of at least 0, got -1"),
    (
        lambda: StratifiedBatchSampler([0, 1], 2, seed=2**70),
        "seed: expected a whole number of at most 9223372036854775807",
    ),
    (lambda: StratifiedBatchSampler([0, 1], 2).set_epoch(2**70), "epoch: expected a whole number of at most 16777216"),
    (lambda: MinimumPositivesBatchSampler([0, 1], 2, 0), "minimum: expected a whole number of at least 1, got 0"),
    (lambda: MinimumPositivesBatchSampler(LABELS, 3, 2), "batch_size: expected room for 2 positives of each of 5"),
    (lambda: ClassBalancedBatchSampler([0, 1], 2, batches=0), "batches: expected a whole number of at least 1"),
    (lambda: OversamplingSampler([0, 1], 0.0), r"ratio: expected a number in \(0, 1\], got 0.0"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_gets_one_line(call: Make, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_seed_of_an_epoch_stays_as_it_was() -> None:
    """A run that goes on after an upgrade sees the same order."""
    found = [epoch_generator(*place).initial_seed() for place in ((0, 0), (0, 1), (1, 0), (7, 3))]
    assert found == [398764591, 1478610112, 2135392491, 1956722279]
