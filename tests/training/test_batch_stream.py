"""Streams: every row once an epoch, on any number of processes and workers; the order follows from the seed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

# A machine may have fewer cores than the workers here.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")

ROWS = 103
Make = Callable[..., Any]


def columns(rows: int = ROWS) -> dict[str, Any]:
    """The first feature is the row's number, from which all else follows."""
    n = np.arange(rows)
    return {"a": n, "b": (n * 0.5).astype(np.float32), "c": n % 3 == 0, "y": n % 2, "w": n / 7}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three Parquet files of uneven row groups, and the same as .npy."""
    table, start = pa.table(columns()), 0
    for name, rows, group in (("1", 40, 7), ("2", 1, 1), ("3", 62, 25)):
        pq.write_table(table.slice(start, rows), tmp_path / f"{name}.parquet", row_group_size=group)
        start += rows
    given = columns()
    np.save(tmp_path / "x.npy", np.stack([given[name] for name in "abc"], 1).astype(np.float32))
    np.save(tmp_path / "y.npy", given["y"])
    np.save(tmp_path / "w.npy", given["w"].astype(np.float32))
    return tmp_path


def parquet(folder: Path, batch_size: int = 10, **options: Any) -> Any:
    options = {"weight": "w", "buffer": 20, **options}
    return mg.ParquetBatches(folder, ["a", "b", "c"], "y", batch_size, **options)


def arrays(folder: Path, batch_size: int = 10, **options: Any) -> Any:
    options = {"weight": folder / "w.npy", "buffer": 20, **options}
    return mg.ArrayBatches(folder / "x.npy", str(folder / "y.npy"), batch_size, **options)


KINDS = pytest.mark.parametrize("make", [parquet, arrays])


def numbers(batches: Any) -> list[list[int]]:
    """The rows of each batch, after a look at whether they are whole."""
    found = []
    for x, y, w in batches:
        n = x[:, 0]
        assert x.dtype == w.dtype == torch.float32
        assert y.dtype == torch.int64
        torch.testing.assert_close(x, torch.stack((n, n / 2, (n % 3 == 0).float()), 1))
        assert torch.equal(y, n.long() % 2)
        torch.testing.assert_close(w, n / 7)
        found.append(n.long().tolist())
    return found


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


@KINDS
def test_every_row_once_in_order_or_shuffled(make: Make, folder: Path) -> None:
    in_order = make(folder, shuffle=False)
    assert len(in_order) == 11
    batches = numbers(in_order)
    assert flat(batches) == list(range(ROWS))
    assert {len(batch) for batch in batches} == {9, 10}
    stream = make(folder)
    first, second = numbers(stream), numbers(stream)
    for epoch in (first, second):
        assert [len(batch) for batch in epoch] == [len(batch) for batch in batches]
        assert sorted(flat(epoch)) == list(range(ROWS))
        assert flat(epoch) != sorted(flat(epoch))
    assert first != second
    stream.set_epoch(0)
    assert numbers(stream) == first
    assert numbers(make(folder, seed=1)) != first
    assert numbers(make(folder)) == first
    assert numbers(pickle.loads(pickle.dumps(make(folder)))) == first  # noqa: S301


@KINDS
def test_rows_of_different_blocks_mix_within_the_buffer(make: Make, folder: Path) -> None:
    batches = numbers(make(folder, buffer=ROWS))
    assert all(max(batch) - min(batch) > 30 for batch in batches)
    inversions = np.mean(np.diff(flat(batches)) < 0)
    assert 0.3 < inversions < 0.7
    assert sorted(flat(numbers(make(folder, buffer=1)))) == list(range(ROWS))


@KINDS
@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_processes_share_an_epoch_in_equally_many_batches(
    make: Make, folder: Path, processes: int, shuffle: bool
) -> None:
    for size in (10, 51, ROWS, 1000):
        shares = [numbers(make(folder, size, shuffle=shuffle, rank=r, world_size=processes)) for r in range(processes)]
        assert {len(share) for share in shares} == {-(-ROWS // size)}
        assert sorted(row for share in shares for row in flat(share)) == list(range(ROWS))
        for together in zip(*shares, strict=True):
            assert 0 < sum(map(len, together)) <= size + processes
            assert max(map(len, together)) - min(map(len, together)) <= 1


@KINDS
def test_workers_share_what_a_process_reads(make: Make, folder: Path) -> None:
    for workers in (3,):
        stream = make(folder, rank=1, world_size=2)
        mine = sorted(flat(numbers(make(folder, rank=1, world_size=2))))
        loader = stream.loader(workers)
        assert len(loader) == len(stream) == 11
        first, second = numbers(loader), numbers(loader)
        assert len(first) == len(second) == 11
        assert sorted(flat(first)) == mine
        assert first != second
        assert stream.state_dict()["epoch"] == 2
    assert numbers(make(folder).loader(1)) == numbers(make(folder).loader()) == numbers(make(folder))
    # More workers than batches: some have nothing to do.
    assert sorted(flat(numbers(make(folder, 60).loader(3)))) == list(range(ROWS))


@KINDS
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_where_it_was(make: Make, folder: Path, workers: int) -> None:
    whole = make(folder)
    epochs = [numbers(whole.loader(workers)) for _ in range(2)]
    for stop in (1, 4, 11):
        stream = make(folder)
        batches = iter(stream.loader(workers))
        seen = numbers(next(batches) for _ in range(stop))
        state = stream.state_dict()
        again = make(folder)
        again.load_state_dict(state)
        assert seen + numbers(again.loader(workers)) == epochs[0]
        assert numbers(again.loader(workers)) == epochs[1]


@KINDS
def test_a_state_of_something_else_is_refused(make: Make, folder: Path) -> None:
    stream = make(folder)
    batches = iter(stream)
    next(batches)
    state = stream.state_dict()
    with pytest.raises(ValueError, match="state: expected one taken with world_size=2, as here, got world_size=1"):
        make(folder, rank=0, world_size=2).load_state_dict(state)
    settings: list[tuple[dict[str, Any], str]] = [
        ({"batch_size": 20}, "batch_size=20, as here, got batch_size=10"),
        ({"buffer": 21}, "buffer=21, as here, got buffer=20"),
        ({"shuffle": False}, "shuffle=False, as here, got shuffle=True"),
    ]
    for options, message in settings:
        with pytest.raises(ValueError, match=f"state: expected one taken with {message}"):
            make(folder, **options).load_state_dict(state)
    with pytest.raises(ValueError, match="state: expected one of these very data, got one of others"):
        make(folder, weight=None).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state: expected one by state_dict.* got one without \['batch_size'"):
        make(folder).load_state_dict({"seed": 0, "epoch": 0, "position": 1})
    other = make(folder)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="workers: expected 0, as when the state was taken, got 2"):
        next(iter(other.loader(2)))
    with pytest.raises(ValueError, match=r"state: expected one (of these very data|taken with kind='ArrayBatches')"):
        mg.ArrayBatches(torch.zeros(ROWS, 2), torch.zeros(ROWS), 10, buffer=20).load_state_dict(state)
    list(batches)
    make(folder, rank=0, world_size=2).load_state_dict(stream.state_dict())  # between epochs all is well


def test_a_state_of_other_arrays_columns_or_files_is_refused(folder: Path) -> None:
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    state = mg.ArrayBatches(x, y, 10).state_dict()
    changed = x.copy()
    changed[50, 1] += 1
    for arrays in ((changed, y), (x[::-1], y), (x, 1 - y), (x.astype(np.float64), y), (x[:, :2], y)):
        with pytest.raises(ValueError, match="state: expected one of these very data, got one of others"):
            mg.ArrayBatches(*arrays, 10).load_state_dict(state)
    for same in ((x.copy(), y), (torch.from_numpy(x), torch.from_numpy(y)), (folder / "x.npy", folder / "y.npy")):
        mg.ArrayBatches(same[0], same[1], 10).load_state_dict(state)

    state = parquet(folder).state_dict()
    for features, target, weight in (("ab", "y", "w"), ("bac", "y", "w"), ("abc", ["y"], "w"), ("abc", "c", "w")):
        other = mg.ParquetBatches(folder, list(features), target, 10, weight=weight, buffer=20)
        with pytest.raises(ValueError, match="state: expected one of these very data, got one of others"):
            other.load_state_dict(state)
    for path in folder.glob("*.parquet"):  # as on another machine
        path.write_bytes(path.read_bytes())
        os.utime(path, (0, 0))
    parquet(folder).load_state_dict(state)
    table = pq.read_table(folder / "1.parquet")
    pq.write_table(table.take(list(range(39, -1, -1))), folder / "1.parquet", row_group_size=7)
    with pytest.raises(ValueError, match="state: expected one of these very data, got one of others"):
        parquet(folder).load_state_dict(state)


@KINDS
@pytest.mark.parametrize("workers", [0, 2])
def test_a_bookmark_brings_the_same_epoch_once_more(make: Make, folder: Path, workers: int) -> None:
    stream = make(folder)
    loader = stream.loader(workers)
    numbers(loader)
    back = stream.bookmark()
    second = numbers(loader)
    back()
    assert numbers(loader) == second
    assert numbers(loader) != second


def test_workers_that_would_repeat_an_epoch_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="persistent_workers: expected False, got True"):
        parquet(folder).loader(2, persistent_workers=True)


def test_arrays_of_every_kind_give_the_same(folder: Path) -> None:
    x, y = np.load(folder / "x.npy"), np.load(folder / "y.npy")
    expected = [[part.tolist() for part in batch] for batch in mg.ArrayBatches(x, y, 10, buffer=20)]
    for kind in (torch.from_numpy, np.asfortranarray, lambda a: np.flip(np.flip(a, 0).copy(), 0)):
        got = mg.ArrayBatches(kind(x), kind(y), 10, buffer=20)
        assert [[part.tolist() for part in batch] for batch in got] == expected
    mapped = np.load(folder / "x.npy", mmap_mode="r")
    got = mg.ArrayBatches(mapped, y, 10, buffer=20)
    assert [[part.tolist() for part in batch] for batch in got] == expected


def test_parquet_targets_and_embeddings(tmp_path: Path) -> None:
    n = np.arange(6)
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(12.0)), 2)
    table = pa.table({"e": embedding, "a": n, "p": n / 10, "q": n % 2 == 0})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    (x, y), _ = mg.ParquetBatches(tmp_path / "t.parquet", ["e", "a"], ["p", "q"], 4, shuffle=False)
    assert x.tolist() == [[0, 1, 0], [2, 3, 1], [4, 5, 2]]
    torch.testing.assert_close(y, torch.tensor([[0.0, 1], [0.1, 0], [0.2, 1]]))
    (x, y), *_ = mg.ParquetBatches([tmp_path / "t.parquet"], "e", "q", 2, shuffle=False)
    assert x.tolist() == [[0, 1], [2, 3]]
    assert y.tolist() == [1, 0]


def test_files_without_rows_are_skipped(folder: Path) -> None:
    expected = numbers(parquet(folder))
    nothing = pa.table({"a": pa.nulls(0), "other": pa.array([], pa.string())})  # as Spark and Dask write them
    pq.write_table(nothing, folder / "0.parquet")
    with pq.ParquetWriter(folder / "2b.parquet", nothing.schema) as writer:
        writer.write_table(nothing, row_group_size=1)
    with pq.ParquetWriter(folder / "4.parquet", pa.table(columns()).schema):
        pass
    assert pq.read_metadata(folder / "4.parquet").num_row_groups == 0
    stream = parquet(folder)
    assert numbers(stream) == expected
    assert [path.name for path in stream.paths] == ["1.parquet", "2.parquet", "3.parquet"]


def written(folder: Path, *tables: dict[str, Any]) -> Path:
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(pa.table(table), folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("order", [1, -1])
def test_types_are_those_of_all_files(tmp_path: Path, order: int) -> None:
    whole: dict[str, Any] = {"a": [1, 2], "y": [0, 1], "w": [1, 2]}
    broken: dict[str, Any] = {"a": [1.5, 2.5], "y": [0.0, 0.5], "w": [0.5, 1.0]}
    folder = written(tmp_path / "mixed", *[whole, broken][::order])
    batches = list(mg.ParquetBatches(folder, "a", "y", 1, weight="w", buffer=1, shuffle=False))
    assert [[part.dtype for part in batch] for batch in batches] == [[torch.float32] * 3] * 4
    assert sorted(torch.cat([y for _, y, _ in batches]).tolist()) == [0, 0, 0.5, 1]
    folder = written(tmp_path / "whole", whole, {**whole, "y": [True, False], "w": pa.array([3, 4], pa.uint8())})
    for _, y, w in mg.ParquetBatches(folder, "a", "y", 1, weight="w", buffer=1):
        assert y.dtype == w.dtype == torch.int64


def test_numbers_of_every_type(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "half": pa.array(np.array([0.5, 1.5, -2.0], np.float16)),
        "decimal": pa.array([Decimal("0.25"), Decimal("1.50"), Decimal("-3.75")]),
        "dictionary": pa.array([7, 8, 7]).dictionary_encode(),
        "floats": pa.array([0.5, 2.5, 0.5]).dictionary_encode(),
        "unsigned": pa.array([0, 2**63 - 1, 5], pa.uint64()),
        "small": pa.array([-1, 0, 1], pa.int8()),
        "lists": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype=np.float16)), 2),
    }
    folder = written(tmp_path / "types", given)
    expected = [[0.5, 0.25, 7, 0.5, -1, 0, 1], [1.5, 1.5, 8, 2.5, 0, 2, 3], [-2, -3.75, 7, 0.5, 1, 4, 5]]
    names = ["half", "decimal", "dictionary", "floats", "small", "lists"]
    ((x, y),) = mg.ParquetBatches(folder, names, "unsigned", 3, shuffle=False)
    assert x.tolist() == expected
    assert y.tolist() == [0, 2**63 - 1, 5]
    ((_, y),) = mg.ParquetBatches(folder, names, ["dictionary", "small"], 3, shuffle=False)
    assert y.dtype == torch.int64
    ((_, y),) = mg.ParquetBatches(folder, names, "decimal", 3, shuffle=False)
    assert y.tolist() == [0.25, 1.5, -3.75]


def test_an_evaluator_judges_a_stream(folder: Path) -> None:
    given = columns()
    score = (given["a"] * 37 % 101) / 101
    evaluator = mg.Evaluator(["f1", "auroc"])
    for x, y, w in parquet(folder, shuffle=False):
        evaluator.update((x[:, 0] * 37 % 101) / 101, y, w)
    expected = mg.evaluate(score, given["y"], ["f1", "auroc"], weight=given["w"].astype(np.float32))
    assert evaluator.compute() == pytest.approx(expected)


# Bad input


def test_bad_parquet_is_refused_in_one_line(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    bad = {"a": [1.0, None], "t": ["x", "y"], "y": [0, 1], "l": [[1.0], [2.0, 3.0]]}
    pq.write_table(pa.table(bad), other / "bad.parquet")
    empty = tmp_path_factory.mktemp("empty")
    pq.write_table(pa.table(columns()).slice(0, 0), empty / "none.parquet")
    (tmp_path_factory.mktemp("text") / "text.parquet").write_text("no Parquet")
    text = next(tmp_path_factory.getbasetemp().glob("text*/text.parquet"))
    nothing = tmp_path_factory.mktemp("nothing")
    cases: list[tuple[Any, str]] = [
        (lambda: mg.ParquetBatches(folder, ["a", "z"], "y", 4), "features: no column 'z' in 1.parquet; it has a, b"),
        (lambda: mg.ParquetBatches(folder, "a", "z", 4), "target: no column 'z'"),
        (lambda: mg.ParquetBatches(folder, "a", "y", 4, weight="v"), "weight: no column 'v'"),
        (lambda: mg.ParquetBatches(folder, [], "y", 4), "features: expected at least one column, got none"),
        (lambda: mg.ParquetBatches(other, "t", "y", 2), "features: expected numbers in column 't' of bad.parquet"),
        (lambda: mg.ParquetBatches(other, "l", "y", 2), "features: expected numbers in column 'l' of bad.parquet"),
        (lambda: mg.ParquetBatches(other, "y", "t", 2), "target: expected numbers in column 't'"),
        (lambda: list(mg.ParquetBatches(other, "a", "y", 2)), "features: expected no nulls in column 'a' .* got 1;"),
        (lambda: list(mg.ParquetBatches(other, "y", "a", 2)), "target: expected no nulls in column 'a'"),
        (lambda: mg.ParquetBatches(empty, "a", "y", 2), "paths: expected at least one row, got none in 1 files"),
        (lambda: mg.ParquetBatches(nothing, "a", "y", 2), "paths: expected Parquet files or a folder of some"),
        (lambda: mg.ParquetBatches([], "a", "y", 2), "paths: expected Parquet files or a folder of some"),
        (lambda: mg.ParquetBatches(text, "a", "y", 2), "paths: expected a Parquet file, got '.*text.parquet'"),
        (lambda: mg.ParquetBatches(folder / "no", "a", "y", 2), "paths: expected a file that can be read"),
        (lambda: mg.ParquetBatches(folder, "a", "y", 0), "batch_size: expected a whole number of at least 1, got 0"),
        (lambda: mg.ParquetBatches(folder, "a", "y", 2, buffer=0), "buffer: expected a whole number of at least 1"),
        (
            lambda: mg.ParquetBatches(folder, "a", "y", 1, rank=0, world_size=2),
            "batch_size: expected batches with a row for each of 2 processes, got 103 batches of 103 rows",
        ),
        (lambda: mg.ParquetBatches(folder, "a", "y", 2, rank=2, world_size=2), "rank: expected 0 to world_size - 1"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_columns_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    def lists(width: int) -> Any:
        return pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2.0 * width)), width)

    y = [0, 1]
    cases: list[tuple[list[dict[str, Any]], str]] = [
        (
            [{"a": lists(2), "y": y}, {"a": lists(3), "y": y}],
            "features: expected 2 numbers a row in column 'a' of 1.parquet, as in 0.parquet, got 3; write all",
        ),
        (
            [{"a": [[1.0], [2.0, 3.0]], "y": y}],
            "column 'a' of 0.parquet, got list<.*; for features, write lists of one",
        ),
        ([{"a": lists(2), "y": lists(2)}], "target: expected numbers in column 'y' of 0.parquet, got fixed_size_list"),
        ([{"a": y, "y": y}, {"a": pa.nulls(2), "y": y}], "'a' of 1.parquet, got null; fill it, or leave the file out"),
        ([{"a": ["x", "y"], "y": y}], "features: expected numbers in column 'a' of 0.parquet, got string; encode it"),
        ([{"a": pa.array(["x", "y"]).dictionary_encode(), "y": y}], "column 'a' of 0.parquet, got string; encode it"),
        (
            [{"a": y, "y": pa.array([2**64 - 1, 0], pa.uint64())}],
            "target: expected .* below 2.*63 in column 'y' of 0.par",
        ),
        (
            [{"a": y, "y": y}, {"a": y, "y": pa.array([2**64 - 1, 0], pa.uint64())}],
            "got 18446744073709551615; renumber",
        ),
        ([{"a": [1e300, 0.0], "y": y}], "features: expected numbers that float32 can hold in column 'a' of 0.parquet"),
        ([{"a": y, "y": [2**24 + 1, 0]}, {"a": y, "y": [0.5, 1]}], "2.*24 in column 'y' of 0.parquet, .* got 16777217"),
        ([{"a": y, "y": [2.0**24 + 1, 0]}], "target: expected whole numbers up to 2.*24 in column 'y' of 0.parquet"),
        ([{"a": pa.array([1, None]).dictionary_encode(), "y": y}], "features: expected no nulls in column 'a'"),
    ]
    for number, (tables, message) in enumerate(cases):
        folder = written(tmp_path / str(number), *tables)
        with pytest.raises(ValueError, match=message) as caught:
            list(mg.ParquetBatches(folder, "a", "y", 2))
        assert "\n" not in str(caught.value)
    twice = pa.table([pa.array(y), pa.array(y), pa.array(y)], names=["a", "a", "y"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(ValueError, match=r"features: two columns 'a' in twice\.parquet; it has a, a, y"):
        mg.ParquetBatches(tmp_path / "twice.parquet", "a", "y", 2)


def test_bad_arrays_are_refused_in_one_line(folder: Path) -> None:
    x, y = np.zeros((4, 2)), np.zeros(4)
    np.save(folder / "objects.npy", np.array([{}, "a"], dtype=object))
    (folder / "text.npy").write_text("no array")
    cases: list[tuple[Any, str]] = [
        (lambda: mg.ArrayBatches(x, y[:3], 2), "features, targets and weight: expected a row per sample each, got"),
        (lambda: mg.ArrayBatches(x[:0], y[:0], 2), "features: expected at least one row, got none"),
        (lambda: mg.ArrayBatches(np.array(["a", "b"]), y[:2], 2), "features: expected numbers"),
        (lambda: mg.ArrayBatches(folder / "objects.npy", y[:2], 2), "features: expected a .npy file of numbers"),
        (lambda: mg.ArrayBatches(folder / "text.npy", y[:2], 2), "features: expected a .npy file of numbers"),
        (lambda: mg.ArrayBatches(folder / "no.npy", y[:2], 2), "features: expected a file that can be read"),
        (lambda: mg.ArrayBatches(x, y, 2.5), "batch_size: expected a whole number"),  # type: ignore[arg-type]
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


@KINDS
def test_a_file_that_changed_is_refused(make: Make, folder: Path) -> None:
    stream = make(folder)
    for path in (folder / "1.parquet", folder / "x.npy"):
        found = path.stat()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 10**9))
    with pytest.raises(ValueError, match="was changed since the stream was made; make a new one"):
        list(stream)


def test_a_damaged_file_is_refused(folder: Path) -> None:
    path = folder / "1.parquet"
    data = bytearray(path.read_bytes())
    data[4:200] = b"\xff" * 196
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"paths: row group \d of '.*1\.parquet' cannot be read; is it damaged\?"):
        list(mg.ParquetBatches(folder, "a", "y", 10))
