"""``metricgrad serve`` answers as ``predict`` does, refuses what it refuses, and survives whatever it is sent."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import metricgrad as mg
from metricgrad.cli.main import main
from tables import binary, multiclass, multilabel

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
jsonschema = pytest.importorskip("jsonschema")

from metricgrad.integrations.serving.application import Service, ServiceSettings, create_application  # noqa: E402

FAST: dict[str, Any] = {"contenders": "logistic regression", "repeats": 2, "jobs": 1}
LIMITS: dict[str, Any] = {"most_rows": 50, "most_bytes": 20_000}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> mg.Study:
    return mg.compare(binary(), "ripe", out=tmp_path_factory.mktemp("runs") / "run", **FAST)


@pytest.fixture(scope="module")
def port(study: mg.Study, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real server in a thread, on a free port."""
    application = create_application(
        ServiceSettings(str(study.path), str(tmp_path_factory.mktemp("counters")), **LIMITS)
    )
    config = uvicorn.Config(application, port=0, log_level="error", access_log=False)
    socket = config.bind_socket()
    socket.listen()  # so that requests wait until it is ready
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]})
    thread.start()
    yield socket.getsockname()[1]
    server.should_exit = True
    thread.join()
    socket.close()


def ask(port: int, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": kind})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_predictions_are_those_of_the_model(study: mg.Study, port: int) -> None:
    rows = binary(40, seed=1).drop(columns="ripe")
    status, body = ask(port, "POST", "/predict", rows.to_dict("records"))
    assert status == 200
    found = json.loads(body)
    assert [one["prediction"] for one in found] == study.model.predict(rows).tolist()
    assert [one["score"] for one in found] == study.model.predict_scores(rows).tolist()
    status, body = ask(port, "POST", "/predict", rows.iloc[3].to_dict())
    assert (status, json.loads(body)) == (200, found[3])


@pytest.mark.parametrize("data", [multiclass, multilabel])
def test_several_classes_and_labels(data: Any, tmp_path: Path) -> None:
    frame = data()
    target = ["label 0", "label 1", "label 2"] if data is multilabel else "kind"
    study = mg.compare(frame, target, out=tmp_path / "run", **FAST)
    (tmp_path / "counters").mkdir()
    service = Service(ServiceSettings(str(study.path), str(tmp_path / "counters")))
    rows = data(30, seed=1).drop(columns=target)
    found = service.predict_records(rows.to_dict("records"))
    scores = study.model.predict_scores(rows)
    predicted = study.model.predict(rows)
    names = study.model.model.schema.classes
    np.testing.assert_array_equal([list(one["scores"].values()) for one in found], scores)
    assert [list(one["scores"]) for one in found] == [list(names)] * 30
    expected = [[names[k] for k in np.flatnonzero(row)] for row in predicted] if data is multilabel else list(predicted)
    assert [one["prediction"] for one in found] == expected
    jsonschema.validate(found[0], service.description["components"]["schemas"]["prediction"])
    text = service.counters.write_text()
    total = sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("metricgrad_predicted_total"))
    assert total == (predicted.sum() if data is multilabel else 30)


GOOD = {"size": 0.3, "weight": 1.0, "shape": "flat", "farm": 3, "day": 100}
BAD: dict[str, tuple[Any, int, str]] = {
    "no JSON": (b"size=3", 400, "body: expected JSON, got something else"),
    "nothing": (b"", 400, "body: expected JSON"),
    "no UTF-8": (b'{"size": "\xff"}', 400, "body: expected JSON"),
    "too deep": (b"[" * 9000, 400, "body: expected JSON"),
    "a number": (3, 422, "data: expected a record or a list of records, got int"),
    "no records": ([], 422, "data: expected at least one record, got an empty list"),
    "numbers for records": ([1, 2], 422, "data: expected a list of records (dicts), got a int at 0"),
    "a list in a cell": (
        {**GOOD, "size": [1]},
        422,
        "data: column 'size': expected one value in each record, got a list",
    ),
    "a broken character": ({**GOOD, "shape": "\ud800"}, 422, "data: column 'shape': expected text, got a broken"),
    "a column too few": ({"size": 1, "weight": 2}, 422, "data: expected the feature columns, of which 'shape'"),
    "too many records": ([GOOD] * 51, 413, "data: expected at most 50 records, got 51; send them in parts"),
    "too many bytes": (b" " * 20_001, 413, "body: expected at most 20000 bytes, got more"),
    "numbers as never before": ([{**GOOD, "size": "1,5"}] * 50, 422, "data: expected columns as in training"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_get_one_line(case: str, port: int, study: mg.Study) -> None:
    body, status, message = BAD[case]
    found, answer = ask(port, "POST", "/predict", body)
    assert (found, list(json.loads(answer))) == (status, ["error"])
    assert json.loads(answer)["error"].startswith(message)
    if status == 422 and isinstance(body, dict):  # as in Python
        with pytest.raises(ValueError, match=re.escape(json.loads(answer)["error"])):
            study.model.predict(body)


def test_other_requests(port: int) -> None:
    assert ask(port, "POST", "/predict", GOOD, "text/csv")[0] == 415
    assert ask(port, "POST", "/predict", GOOD, "application/json; charset=utf-8")[0] == 200
    before = read_metrics(port)
    assert ask(port, "GET", "/predict") == (405, b'{"error":"GET /predict: Method Not Allowed"}')
    assert ask(port, "GET", "/nothing") == (404, b'{"error":"GET /nothing: Not Found"}')
    after = read_metrics(port)
    for status in (404, 405):
        name = f'metricgrad_requests_total{{status="{status}"}}'
        assert after[name] == before[name] + 1
    assert json.loads(ask(port, "GET", "/health")[1])["status"] == "ok"
    page = ask(port, "GET", "/docs")[1].decode()
    assert "logistic regression" in page
    assert "http" not in page.replace("https://json-schema.org", "")  # nothing from elsewhere


def test_schema_and_openapi(port: int) -> None:
    schema = json.loads(ask(port, "GET", "/schema")[1])
    jsonschema.Draft202012Validator.check_schema(schema)
    for record in binary(20, seed=2).drop(columns="ripe").to_dict("records"):
        jsonschema.validate(record, schema)
    with pytest.raises(jsonschema.ValidationError, match="'weight' is a required property"):
        jsonschema.validate({"size": 1, "shape": "flat", "farm": 1}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**GOOD, "size": [1]}, schema)
    document = json.loads(ask(port, "GET", "/openapi.json")[1])
    assert document["openapi"] == "3.1.0"
    assert {"/predict", "/schema", "/health", "/metrics"} == set(document["paths"])


def read_metrics(port: int) -> dict[str, float]:
    lines = ask(port, "GET", "/metrics")[1].decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics_count_requests_rows_and_cells(port: int) -> None:
    before = read_metrics(port)
    status, body = ask(port, "POST", "/predict", [GOOD, {**GOOD, "size": None}, {**GOOD, "shape": "square"}])
    assert status == 200
    assert ask(port, "POST", "/predict", [])[0] == 422
    after = read_metrics(port)
    gained = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert gained['metricgrad_requests_total{status="200"}'] == 1
    assert gained['metricgrad_requests_total{status="422"}'] == 1
    assert gained["metricgrad_rows_total"] == 3
    assert gained['metricgrad_missing_cells_total{column="size"}'] == 1
    assert gained['metricgrad_unknown_cells_total{column="shape"}'] == 1
    assert gained["metricgrad_request_seconds_count"] == 2
    predicted = [one["prediction"] for one in json.loads(body)]
    counted = {name: gained.get(f'metricgrad_predicted_total{{class="{name}"}}', 0) for name in ("yes", "no")}
    assert counted == {name: predicted.count(name) for name in ("yes", "no")}


def test_random_bodies_never_break_it(port: int) -> None:
    generator = np.random.default_rng(0)
    text = json.dumps([GOOD, {**GOOD, "shape": None}]).encode()
    values = [None, True, -1, 1e308, 10**30, "", "x" * 100, "\u0000", "1e5", [], {}, [[1]], {"a": 1}]
    statuses = set()
    for _ in range(150):
        if generator.random() < 0.5:
            damaged = bytearray(text)
            for place in generator.integers(0, len(text), generator.integers(1, 6)):
                damaged[place] = generator.integers(0, 256)
            body: Any = bytes(damaged)
        else:
            body = {name: values[generator.integers(len(values))] for name in GOOD if generator.random() < 0.9}
        statuses.add(ask(port, "POST", "/predict", body)[0])
    assert statuses <= {200, 400, 422}
    assert {400, 422} <= statuses
    assert ask(port, "POST", "/predict", GOOD)[0] == 200


def test_the_dockerfile_is_pinned_and_not_root(study: mg.Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(study.path), "--dockerfile"]) == 0
    path = Path(capsys.readouterr().out.strip())
    lines = path.read_text().splitlines()
    assert path == study.path / "Dockerfile"
    assert lines[1] == f"FROM python:{sys.version_info.major}.{sys.version_info.minor}-slim"
    assert "USER 10001" in lines
    assert any(line.startswith("HEALTHCHECK") for line in lines)
    assert f"    torch=={torch.__version__.partition('+')[0]} \\" in lines
    assert main(["serve", str(study.path), "--dockerfile"]) == 5
    assert "exists already" in capsys.readouterr().err
    assert main(["serve", str(study.path), "--dockerfile", "--force", "--max-rows", "50", "--allow-missing"]) == 0
    assert path.read_text().endswith('"--port", "8000", "--max-rows", "50", "--allow-missing"]\n')
    assert main(["serve", str(study.path), "--dockerfile", "--force", "--port", "9000"]) == 2
    assert "--dockerfile: expected neither --host nor --port with it" in capsys.readouterr().err
    assert mg.load_run(study.path).model.predict(GOOD).shape == (1,)
    copied = [line.split()[2] for line in lines if line.startswith("COPY")]
    assert copied == ["run.json", "model"], "no training data"
    path.unlink()


def test_the_files_in_the_image_are_enough(study: mg.Study, tmp_path: Path) -> None:
    image = tmp_path / "run-folder"
    image.mkdir()
    shutil.copy(study.path / "run.json", image)
    shutil.copytree(study.path / "model", image / "model")
    (tmp_path / "counters").mkdir()
    service = Service(ServiceSettings(str(image), str(tmp_path / "counters")))
    (found,) = service.predict_records([GOOD])
    assert found["score"] == study.model.predict_scores([GOOD]).item()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(tmp_path / "nothing")]) == 4
    assert "expected a run folder" in capsys.readouterr().err


def test_several_processes_answer_and_stop_when_told(study: mg.Study) -> None:
    command = [sys.executable, "-m", "metricgrad", "serve", str(study.path), "--port", "0", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        match = re.search(r"serving .* on http://127\.0\.0\.1:(\d+)$", process.stdout.readline().strip())
        assert match
        port = int(match[1])
        for _ in range(6):
            assert ask(port, "POST", "/predict", GOOD)[0] == 200
        assert read_metrics(port)["metricgrad_rows_total"] == 6  # of both processes
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
