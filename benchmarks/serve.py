"""``metricgrad serve``: latency, requests a second, memory after many requests, and what malformed bodies do.

    python benchmarks/serve.py --json benchmarks/results/serve.json

A run of ``compare`` on made-up rows is served by one process. Times are compared with ``study.model.predict`` of the
same rows in this process, a few requests and a few calls in turn; read the ratios. Claimed before the first run:

- every answer is that of ``predict``, and no malformed body gets a status of 500 or ends the service;
- a request of one row takes less than twice as long as ``predict`` of it, one of 1,000 rows less than 1.5 times;
- after all requests the service takes at most 10 % more memory than after the first thousand.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import metricgrad as mg
from timing import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 5


def make_rows(number: int, seed: int) -> pd.DataFrame:
    """Return rows of numbers, categories and dates, one in five positive."""
    rng = np.random.default_rng(seed)
    y = rng.random(number) < 0.2
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, number), unit="D")
    frame = pd.DataFrame(rng.normal(size=(number, 6)) + 0.8 * y[:, None], columns=[f"number {k}" for k in range(6)])
    return frame.assign(
        plan=rng.choice(["basic", "plus", "pro"], number),
        city=rng.choice([f"city {k}" for k in range(30)], number),
        since=days.strftime("%Y-%m-%d"),
        churned=np.where(y, "yes", "no"),
    )


class Client:
    """A connection that is kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def send(self, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body of the answer of /predict."""
        self._connection.request("POST", "/predict", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, answer.read()


@contextmanager
def serving(run: Path) -> Iterator[tuple[int, int]]:
    """Serve a run, and give the port and the id of the process."""
    command = [sys.executable, "-m", "metricgrad", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
        assert process.stdout is not None
        match = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert match, "the service did not start"
        try:
            yield int(match[1]), process.pid
        finally:
            process.terminate()


def find_memory(process: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def time_calls(call: Any, times: int) -> list[float]:
    """Return the milliseconds of each call."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        found.append(1e3 * (time.perf_counter() - start))
    return found


def measure_latency(model: Any, client: Client, rows: list[dict[str, Any]], times: int) -> dict[str, float]:
    """Return median milliseconds of a request and of ``predict``, taken in turn, and the ratio of each round."""
    body = json.dumps(rows).encode()
    status, answer = client.send(body)
    assert status == 200
    assert [one["prediction"] for one in json.loads(answer)] == model.predict(rows).tolist()
    ratios, requests, calls = [], [], []
    for _ in range(ROUNDS):
        request = time_calls(lambda: client.send(body), times)
        call = time_calls(lambda: model.predict(rows), times)
        ratios.append(statistics.median(request) / statistics.median(call))
        requests += request
        calls += call
    return {
        "rows": len(rows),
        "request_ms": statistics.median(requests),
        "request_ms_95": float(np.quantile(requests, 0.95)),
        "predict_ms": statistics.median(calls),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def measure_throughput(port: int, body: bytes, clients: int, requests: int) -> dict[str, float]:
    """Return how many requests of one row are answered in a second with several clients."""
    each = max(requests // clients, 1)

    def work(_: int) -> None:
        client = Client(port)
        for _ in range(each):
            assert client.send(body)[0] == 200

    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    return {"clients": clients, "requests": each * clients, "a_second": each * clients / (time.perf_counter() - start)}


def make_malformed(row: dict[str, Any], generator: np.random.Generator) -> bytes:
    """Return a damaged body: bytes changed, cut off, or values of other types."""
    text = json.dumps([row]).encode()
    kind = generator.integers(3)
    if kind == 0:
        damaged = bytearray(text)
        for place in generator.integers(0, len(text), generator.integers(1, 8)):
            damaged[place] = generator.integers(256)
        return bytes(damaged)
    if kind == 1:
        return text[: generator.integers(len(text))]
    values: list[Any] = [None, True, -1, 1e308, 10**40, "", "x" * 1000, "\ud800", "\0", [], {}, [[]], {"a": 1}]
    changed = {name: values[generator.integers(len(values))] for name in row if generator.random() < 0.9}
    return json.dumps(changed).encode()


def main() -> None:
    """Measure, print and, with --json, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="requests before memory is read again")
    parser.add_argument("--malformed", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=50, help="requests of each round of latency")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = make_rows(1000, 0)
        study = mg.compare(
            data, "churned", contenders="logistic regression", repeats=2, jobs=1, out=Path(folder) / "run"
        )
        found = measure(study, options)
    found["command"] = " ".join(["python", *sys.argv])
    found["machine"] = machine()
    found["load_average"] = os.getloadavg()[0]
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(study: mg.Study, options: argparse.Namespace) -> dict[str, Any]:
    """Return all that is measured of a service of a run."""
    rows = make_rows(1000, 1).drop(columns="churned").to_dict("records")
    model = study.model
    found: dict[str, Any] = {"model": model.describe()}
    with serving(study.path) as (port, process):
        client = Client(port)
        found["latency"] = [
            measure_latency(model, client, rows[:1], options.times),
            measure_latency(model, client, rows, max(options.times // 5, 1)),
        ]
        body = json.dumps(rows[0]).encode()
        for _ in range(1000):
            client.send(body)
        found["memory_mb_after_1000"] = find_memory(process)
        share = options.requests // 3
        found["throughput"] = [measure_throughput(port, body, clients, share) for clients in (1, 8, 64)]
        found["memory_mb_after_all"] = find_memory(process)
        found["requests"] = options.requests
        client = Client(port)  # the other was idle, and the service has closed it
        generator = np.random.default_rng(0)
        statuses: Counter[int] = Counter()
        for _ in range(options.malformed):
            statuses[client.send(make_malformed(rows[0], generator))[0]] += 1
        found["malformed"] = {str(status): number for status, number in sorted(statuses.items())}
        assert client.send(body)[0] == 200, "the service is gone"
    return found


if __name__ == "__main__":
    main()
