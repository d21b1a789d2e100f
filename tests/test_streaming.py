"""Streams: every row once an epoch, on any number of processes and workers; the order follows from the seed."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
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
    with pytest.raises(ValueError, match="state: expected one taken with batches=6, as here, got batches=11"):
        make(folder, 20).load_state_dict(state)
    other = make(folder)
    other.load_state_dict(state)
    with pytest.raises(ValueError, match="workers: expected 0, as when the state was taken, got 2"):
        next(iter(other.loader(2)))
    with pytest.raises(ValueError, match="state: expected one of these very data, got one of others"):
        mg.ArrayBatches(torch.zeros(ROWS, 2), torch.zeros(ROWS), 10).load_state_dict(state)
    list(batches)
    make(folder, rank=0, world_size=2).load_state_dict(stream.state_dict())  # between epochs all is well


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
        (lambda: mg.ArrayBatches(x, y, 2.5), "batch_size: expected a whole number"),
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
