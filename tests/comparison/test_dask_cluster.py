"""The application on a Dask cluster of real processes: the same results, whatever fails."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dask
import distributed
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import killed_worker
import metricgrad as mg
from metricgrad.cli.main import main
from metricgrad.comparison import candidate_runs, run_writer
from metricgrad.comparison import dask_cluster as places
from metricgrad.comparison.errors import UserError
from metricgrad.comparison.inference import parts, predict_folder
from metricgrad.comparison.inference.evaluate import evaluate_run
from metricgrad.comparison.inference.predict import predict
from metricgrad.comparison.workers import Shared, open_workers, run_tasks
from short_training import IN_ANOTHER_PROCESS, shorten_training
from tables import binary, multiclass, multilabel, written

LocalCluster: Any = distributed.LocalCluster  # its types are incomplete
Client: Any = distributed.Client
ASK = ["--target", "ripe", "--metric", "f1,auroc", "--repeats", "2", "--contenders", "majority,hybrid"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    # A task may kill two workers, not four: it takes seconds to start one again.
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as found,
    ):
        yield found


@pytest.fixture
def address(cluster: Any) -> str:
    return str(cluster.scheduler_address)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_training(monkeypatch)


@pytest.fixture
def data(tmp_path: Path, little: None) -> str:
    return written(binary(), tmp_path)


def results(run: Path) -> dict[str, Any]:
    """Return the scores of every unit, bit for bit, and the summary without times."""
    found = {path.name: path.read_bytes() for path in sorted((run / "candidates").glob("*.npy"))}
    summary = json.loads((run / "summary.json").read_bytes())
    for row in summary["leaderboard"]:
        row.pop("seconds")
    return found | {key: summary[key] for key in ("leaderboard", "verdict", "repeats", "left_out")}


@pytest.fixture
def one_process(data: str, tmp_path: Path) -> dict[str, Any]:
    assert main(["compare", data, *ASK, "--jobs", "1", "--out", str(tmp_path / "one")]) == 0
    return results(tmp_path / "one")


# compare


def test_two_and_three_workers_find_what_one_process_does(
    cluster: Any, address: str, data: str, tmp_path: Path, one_process: dict[str, Any]
) -> None:
    for number in (2, 3):
        cluster.scale(number)
        cluster.wait_for_workers(number)
        out = tmp_path / str(number)
        assert main(["compare", data, *ASK, "--cluster", address, "--out", str(out)]) == 0
        assert results(out) == one_process
        assert not list(out.glob("**/.*"))
    cluster.scale(2)


def test_the_ensemble_is_that_of_one_process(address: str, data: str, tmp_path: Path) -> None:
    ask = ["--target", "ripe", "--metric", "f1", "--repeats", "2"]
    ask += ["--contenders", "majority,logistic regression,hybrid,ensemble"]
    for name, where in (("one", ["--jobs", "1"]), ("cluster", ["--cluster", address])):
        assert main(["compare", data, *ask, *where, "--out", str(tmp_path / name)]) == 0
    found = results(tmp_path / "cluster")
    assert {row["contender"] for row in found["leaderboard"]} >= {"ensemble"}
    assert found == results(tmp_path / "one")


def test_a_killed_worker_costs_nothing(
    address: str, data: str, tmp_path: Path, one_process: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    added, add = list[tuple[str, int]](), run_writer.RunWriter.add_candidate

    def counted(self: run_writer.RunWriter, run: Any) -> None:
        added.append((run.candidate, run.repeat))
        add(self, run)

    monkeypatch.setattr(run_writer.RunWriter, "add_candidate", counted)
    monkeypatch.setattr(candidate_runs, "run_candidate", partial(killed_worker.run_candidate, tmp_path / "marker"))
    assert main(["compare", data, *ASK, "--cluster", address, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "marker").exists()
    assert len(added) == len(set(added)) == 6
    assert results(tmp_path / "run") == one_process


def test_a_unit_that_kills_its_workers_ends_the_run_which_can_be_resumed(
    address: str,
    data: str,
    tmp_path: Path,
    one_process: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = str(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(candidate_runs, "run_candidate", partial(killed_worker.run_candidate, None))
        capsys.readouterr()
        assert main(["compare", data, *ASK, "--cluster", address, "--out", out, "--json"]) == 4
    error = capsys.readouterr().err
    assert error == (
        "metricgrad: a process was killed, perhaps for lack of memory; continue with --resume and workers with more "
        "memory\n"
    )
    assert main(["compare", "--resume", out, "--cluster", address]) == 0
    assert results(tmp_path / "run") == one_process


@dataclass(frozen=True, eq=False)
class Task:
    marker: Path
    value: Any


def test_shared_data_are_sent_once_and_again_if_their_only_worker_is_lost(address: str, tmp_path: Path) -> None:
    loaded = 0

    def load() -> np.ndarray:
        nonlocal loaded
        loaded += 1
        return np.arange(3)

    shared = Shared(load)
    with open_workers(1, address, "again") as workers:
        # The task runs where its data are, and takes them along when it is killed.
        tasks = [Task(tmp_path / "marker", shared)]
        ((_, found),) = run_tasks(workers, killed_worker.double, lambda: tasks.pop() if tasks else None)
        assert (loaded, found.tolist()) == (2, [0, 2, 4])
        tasks = [Task(tmp_path / "marker", shared) for _ in range(5)]
        every = [
            found.tolist()
            for _, found in run_tasks(workers, killed_worker.double, lambda: tasks.pop() if tasks else None)
        ]
    assert every == [[0, 2, 4]] * 5
    assert loaded == 2


def run_all(workers: Any, function: Any, tasks: list[Task]) -> list[list[int]]:
    """Return the results, as lists; each worker may have all tasks at once."""
    waiting = list(tasks)
    found = run_tasks(workers, function, lambda: waiting.pop() if waiting else None, each=len(tasks))
    return [getattr(value, "value", value).tolist() for _, value in found]


def test_a_finished_result_is_lost_while_it_is_sent(address: str, tmp_path: Path) -> None:
    with open_workers(1, address, "again") as workers:
        for number in range(3):
            shared = Shared.value(np.arange(3))
            tasks = [Task(tmp_path / str(number), shared) for _ in range(4)]
            assert run_all(workers, killed_worker.double_and_lose, tasks) == [[0, 2, 4]] * 4
            assert (tmp_path / str(number)).exists()


def test_the_only_worker_is_lost_with_tasks_that_wait_and_data_and_results(tmp_path: Path) -> None:
    shared = Shared.value(np.arange(3))
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50) as one,
        open_workers(1, one.scheduler_address, "again") as workers,
    ):
        for function in (killed_worker.double, killed_worker.double_and_lose):
            tasks = [Task(tmp_path / function.__name__, shared) for _ in range(3)]
            assert run_all(workers, function, tasks) == [[0, 2, 4]] * 3
            assert (tmp_path / function.__name__).exists()


def test_large_data_travel_without_a_warning(address: str, tmp_path: Path) -> None:
    (tmp_path / "marker").touch()
    with open_workers(1, address, "again") as workers:
        tasks = [Task(tmp_path / "marker", Shared.value(np.ones(2_000_000))) for _ in range(2)]  # 16 MB each
        assert [sum(found) for found in run_all(workers, killed_worker.double, tasks)] == [4_000_000] * 2


def test_ctrl_c_and_resume(
    address: str,
    data: str,
    tmp_path: Path,
    one_process: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, add, count = tmp_path / "run", run_writer.RunWriter.add_candidate, 0

    def interrupted(self: run_writer.RunWriter, run: Any) -> None:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        add(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(run_writer.RunWriter, "add_candidate", interrupted)
        assert main(["compare", data, *ASK, "--cluster", address, "--out", str(out)]) == 130
    assert capsys.readouterr().err.endswith(f"interrupted; continue with: metricgrad compare --resume {out}\n")
    assert len(list((out / "candidates").glob("*.json"))) == 2
    assert main(["compare", "--resume", str(out), "--cluster", address]) == 0
    assert results(out) == one_process


KILLED = f"""
import os, signal, sys
{IN_ANOTHER_PROCESS}
from metricgrad.comparison import run_folder, run_writer
from metricgrad.cli.main import main
write, count = run_folder.write, 0
def killing(path, data):
    global count
    count += path.parent.name == "candidates" or path.suffix == ".parquet"
    if count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    write(path, data)
run_writer.write = run_folder.write = killing
main(sys.argv[1:])
"""


def test_the_caller_is_killed(address: str, data: str, tmp_path: Path, one_process: dict[str, Any]) -> None:
    out = tmp_path / "run"
    ask = [sys.executable, "-c", KILLED, "compare", data, *ASK, "--cluster", address, "--out", str(out)]
    assert subprocess.run(ask, capture_output=True).returncode == -signal.SIGKILL
    assert len(list((out / "candidates").glob("*.json"))) == 1  # a unit is three files, and the fourth killed
    assert main(["compare", "--resume", str(out), "--cluster", address]) == 0
    assert results(out) == one_process


def test_a_budget(address: str, data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = [*ASK, "--repeats", "4", "--budget", "0.00001", "--cluster", address]
    assert main(["compare", data, *ask, "--out", str(tmp_path / "run")]) == 0
    assert "the budget of 1e-05 minutes allows 2 of 4 repeats" in capsys.readouterr().err
    assert results(tmp_path / "run")["repeats"] == 2


# predict and evaluate

TABLES = {
    "binary": (binary, "ripe"),
    "multiclass": (multiclass, "kind"),
    "multilabel": (multilabel, "label 0,label 1,label 2"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    for task, (make, target) in TABLES.items():
        data = written(make(), folder, f"{task}.csv")
        words = ["train", data, "--target", target, "--contender", "logistic regression", "--quick"]
        assert main([*words, "--out", str(folder / task)]) == 0
    return {task: folder / task for task in TABLES}


def split(frame: pd.DataFrame, folder: Path, *edges: int) -> Path:
    """Write a frame in parts, which end at the given rows, one of them empty; and what is to be ignored."""
    folder.mkdir()
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for number, (start, end) in enumerate(zip((0, *edges), (*edges, len(frame)), strict=True)):
        pq.write_table(table.slice(start, end - start), folder / f"part-{number}.parquet")
    (folder / "_SUCCESS").touch()
    (folder / ".hidden.parquet").touch()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return five uneven parts, the second empty."""
    return split(binary(500, seed=1).assign(id=np.arange(500)), tmp_path / "parts", 300, 300, 301, 420)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def test_predictions_are_the_same_everywhere(
    trained: dict[str, Path], folder: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trained["binary"]
    one = predict(run, folder, tmp_path / "one", keep=["id"], jobs=1)
    assert (one["rows"], one["files"], one["skipped"]) == (500, 5, 0)
    pq.write_table(pa.Table.from_pandas(binary(500, seed=1).assign(id=np.arange(500))), tmp_path / "whole.parquet")
    whole = predict(run, tmp_path / "whole.parquet", tmp_path / "whole.out.parquet", keep=["id"])
    assert (whole["predicted"], whole["rows"]) == (one["predicted"], 500)
    frames = [pd.read_parquet(path) for path in sorted((tmp_path / "one").glob("*.parquet"))]
    assert [len(frame) for frame in frames] == [300, 0, 1, 119, 80]
    pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), pd.read_parquet(tmp_path / "whole.out.parquet"))
    assert len(pd.read_parquet(tmp_path / "one")) == 500  # readers of folders skip the records
    predict(run, folder, tmp_path / "two", keep=["id"], jobs=2)
    predict(run, folder, tmp_path / "cluster", keep=["id"], cluster=address)
    # The same for workers that do not see the files.
    stamp = parts._stamp
    monkeypatch.setattr(parts, "_stamp", lambda path: (*stamp(path)[:2], -1))
    predict(run, folder, tmp_path / "sent", keep=["id"], cluster=address)
    again = predict(run, folder, tmp_path / "sent", keep=["id"], cluster=address)
    assert again["skipped"] == 5
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "cluster") == contents(tmp_path / "sent")


def test_a_worker_is_killed_while_it_predicts(
    trained: dict[str, Path], folder: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    predict(trained["binary"], folder, tmp_path / "one", jobs=1)
    added, add = list[str](), predict_folder._Output.add

    def counted(self: Any, name: str, found: Any) -> None:
        added.append(name)
        add(self, name, found)

    monkeypatch.setattr(predict_folder._Output, "add", counted)
    killing = partial(killed_worker.predict_part, tmp_path / "marker")
    monkeypatch.setattr(predict_folder, "predict_part", killing)
    found = predict(trained["binary"], folder, tmp_path / "out", cluster=address)
    assert (tmp_path / "marker").exists()
    assert found["rows"] == 500
    assert sorted(added) == [f"part-{number}.parquet" for number in range(5)]
    assert contents(tmp_path / "out") == contents(tmp_path / "one")


def test_the_caller_is_killed_while_it_predicts(trained: dict[str, Path], folder: Path, tmp_path: Path) -> None:
    run, out = str(trained["binary"]), tmp_path / "out"
    ask = [sys.executable, "-c", KILLED, "predict", run, str(folder), "--jobs", "1", "-o", str(out)]
    assert subprocess.run(ask, capture_output=True).returncode == -signal.SIGKILL
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert len(times) == 3
    assert len(list((out / "_metricgrad").glob("*.json"))) == 4
    (out / ".metricgrad-part-4.parquet.0123456789abcdef").write_bytes(b"half")
    found = predict(run, folder, out, jobs=1)
    assert (found["rows"], found["skipped"]) == (500, 3)
    assert times == {name: (out / name).stat().st_mtime_ns for name in times}
    assert not list(out.glob(".*"))
    assert predict(run, folder, tmp_path / "whole", jobs=1)["predicted"] == found["predicted"]
    assert contents(tmp_path / "whole") == contents(out)


def test_only_what_is_proven_is_skipped(trained: dict[str, Path], folder: Path, tmp_path: Path) -> None:
    run, out = trained["binary"], tmp_path / "out"
    predict(run, folder, out, jobs=1)
    before = contents(out)
    assert predict(run, folder, out, jobs=1)["skipped"] == 5
    table = pq.read_table(folder / "part-4.parquet")
    pq.write_table(table.slice(0, 10), folder / "part-4.parquet")  # other data
    (out / "part-0.parquet").write_bytes(b"changed")
    (out / "part-1.parquet").unlink()
    (out / "_metricgrad" / "part-2.parquet.json").write_text("{}")
    found = predict(run, folder, out, jobs=1)
    assert (found["skipped"], found["rows"]) == (1, 430)
    assert {name for name, content in contents(out).items() if content != before[name]} == {"part-4.parquet"}
    # Nothing of others is replaced unasked.
    other = "holds 'part-0.parquet' of another model, other options or other data"
    with pytest.raises(UserError, match=other) as caught:
        predict(run, folder, out, what="scores", jobs=1)
    assert caught.value.code == 5
    assert predict(run, folder, out, what="scores", jobs=1, force=True)["skipped"] == 0
    assert pq.read_schema(out / "part-1.parquet").names == ["score"]
    (folder / "part-0.parquet").unlink()
    with pytest.raises(UserError, match=other):
        predict(run, folder, out, what="scores", jobs=1)
    (out / "mine.parquet").touch()
    for force in (False, True):
        with pytest.raises(UserError, match=r"holds 'mine.parquet', which predict did not write"):
            predict(run, folder, out, what="scores", jobs=1, force=force)
    for place in (folder.parent, tmp_path / "binary.csv"):
        (tmp_path / "binary.csv").touch()
        with pytest.raises(UserError, match="exists already, and predict did not write it"):
            predict(run, folder, place, jobs=1, force=True)
    with pytest.raises(UserError, match="expected a folder other than the data"):
        predict(run, folder, folder, jobs=1)


def test_bad_parts_are_named(
    trained: dict[str, Path], folder: Path, tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"expected a folder of files named \*.parquet, got none"):
        predict(trained["binary"], tmp_path / "empty", tmp_path / "out")
    (folder / "part-3.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"part-3.parquet: cannot be read"):
        predict(trained["binary"], folder, tmp_path / "out", cluster=address)
    pq.write_table(pa.table({"size": [1.0]}), folder / "part-3.parquet")
    with pytest.raises(UserError, match="expected the feature columns, of which 'weight', 'shape'"):
        evaluate_run(trained["binary"], folder, cluster=address)
    for command in (["predict", "-o", "out"], ["evaluate"]):
        assert main([*command, str(trained["binary"]), str(folder / "part-0.parquet"), "--cluster", address]) == 2
        assert capsys.readouterr().err.startswith("metricgrad: --cluster: expected a folder of Parquet files, got ")
    assert main(["evaluate", str(trained["binary"]), str(folder), "--rows", "5"]) == 2
    assert "--rows: expected none for a folder" in capsys.readouterr().err


@pytest.mark.parametrize("task", TABLES)
def test_a_folder_is_evaluated_as_one_file(trained: dict[str, Path], tmp_path: Path, task: str, address: str) -> None:
    frame = TABLES[task][0](500, seed=1)
    target = TABLES[task][1].split(",")[0]
    frame[target] = frame[target].astype(object).where(frame.index > 20)  # rows without a target do not count
    folder = split(frame, tmp_path / "parts", 10, 10, 260, 261)
    frame.to_parquet(tmp_path / "whole.parquet")
    names = ["f1", "recall", "auroc"] if task != "multiclass" else ["f1", "mcc"]
    whole = evaluate_run(trained[task], tmp_path / "whole.parquet", names, replicates=400).summary
    found = evaluate_run(trained[task], folder, names, replicates=400).summary
    assert evaluate_run(trained[task], folder, names, replicates=400, cluster=address).summary == found
    for key in ("rows", "classes", "constraints", "warnings", "rule", "average"):
        assert found[key] == whole[key]
    assert [one["psi"] for one in found["drift"]] == [one["psi"] for one in whole["drift"]]
    for name in names:
        one, other = found["metrics"][name], whole["metrics"][name]
        assert one["value"] == pytest.approx(other["value"], abs=1e-12)
        if name == "auroc" and task != "binary":
            assert one["low"] is one["high"] is None
        elif task == "multilabel" or name == "auroc":
            width = other["high"] - other["low"]
            assert abs(one["low"] - other["low"]) < 0.25 * width
            assert abs(one["high"] - other["high"]) < 0.25 * width
        else:
            assert one == other


@pytest.mark.parametrize(
    ("task", "names"),
    [("binary", ["f1", "log_loss"]), ("multiclass", ["brier_score", "auroc_ovo"]), ("multilabel", ["f1", "log_loss"])],
)
def test_metrics_of_the_scores_of_a_folder(
    trained: dict[str, Path], tmp_path: Path, task: str, names: list[str]
) -> None:
    frame = TABLES[task][0](500, seed=1)
    folder = split(frame, tmp_path / "parts", 10, 10, 260, 261)
    frame.to_parquet(tmp_path / "whole.parquet")
    whole = evaluate_run(trained[task], tmp_path / "whole.parquet", names, replicates=400).summary["metrics"]
    found = evaluate_run(trained[task], folder, names, replicates=400).summary["metrics"]
    for name in names:
        one, other = found[name], whole[name]
        # Scores in float32 depend in their last bit on how many rows are scored at once.
        assert one["value"] == pytest.approx(other["value"], abs=1e-7)
        if name == "auroc_ovo":
            assert one["low"] is one["high"] is None
        else:
            width = other["high"] - other["low"]
            assert abs(one["low"] - other["low"]) < 0.25 * width
            assert abs(one["high"] - other["high"]) < 0.25 * width


# Clusters that cannot be used


def refuse(address: str, data: str, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(["compare", data, *ASK, "--cluster", address, "--out", str(out)]) == 7
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert not out.exists()
    return error


def test_clusters_that_cannot_be_used(
    address: str, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "CONNECT_SECONDS", 0.5)
    for wrong in ("tcp://127.0.0.1:1", "fly://x", "127.0.0.1"):
        assert f"got {wrong!r}, which cannot be reached" in refuse(wrong, data, tmp_path / "run", capsys)
    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0", silence_logs=50
    ) as two:
        error = refuse(two.scheduler_address, data, tmp_path / "run", capsys)
        assert "expected workers of one thread, since torch has one random seed per process, got 2 threads" in error
        two.scale(0)
        two.sync(two._correct_state)  # until it is done
        error = refuse(two.scheduler_address, data, tmp_path / "run", capsys)
        assert "has no workers; start some: dask worker --nthreads 1" in error
    monkeypatch.setattr(places, "CONNECT_SECONDS", 10)
    with monkeypatch.context() as patch:
        patch.setattr(places, "_find_versions", lambda: {"torch": "9.9"})
        assert "expected torch 9.9 as here, got" in refuse(address, data, tmp_path / "run", capsys)
        patch.setattr(places, "_find_versions", lambda: {"no-such-library": "9.9"})
        assert "expected no-such-library 9.9 as here, got none at" in refuse(address, data, tmp_path / "run", capsys)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as one,
        open_workers(1, one.scheduler_address, "call again") as workers,
    ):
        monkeypatch.setattr(places, "NO_WORKER_SECONDS", 0.1)
        assert workers.count() == 1
        one.scale(0)
        one.sync(one._correct_state)
        with pytest.raises(UserError, match="--cluster: all workers are gone; start some, and call again"):
            workers.count()
    # Workers that join later are checked by their first task.
    monkeypatch.setattr(places, "__version__", "9.9")
    assert main(["compare", data, *ASK, "--cluster", address, "--out", str(tmp_path / "late")]) == 7
    assert "expected metricgrad 9.9 as here, got 0.1.0 at tcp://" in capsys.readouterr().err


def test_without_dask(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["compare", data, *ASK, "--cluster", "tcp://x:1", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == "metricgrad: --cluster: needs dask: pip install 'metricgrad[dask]'\n"


# Estimators


def test_estimators_under_joblib_equal_those_of_one_process(address: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    y = (X[:, 0] + rng.normal(size=300) > 1).astype(int)
    weight = rng.random(300)

    def fit() -> list[Any]:
        network = mg.MetricClassifier(epochs=3, dropout=0.2, random_state=7, n_jobs=2).fit(X, y, sample_weight=weight)
        inner = mg.MetricClassifier(epochs=2, cv=None, random_state=7)
        return [network, mg.ThresholdedClassifier(inner, "f1", n_jobs=2).fit(X, y)]

    with joblib.parallel_config("sequential"):
        alone = fit()
    with Client(address), joblib.parallel_config("dask"):
        together = fit()
    for one, two in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
        assert one.rule_ == two.rule_
    for one, two in zip(alone[0].networks_, together[0].networks_, strict=True):
        for name, value in one.state_dict().items():
            np.testing.assert_array_equal(value.numpy(), two.state_dict()[name].numpy())
