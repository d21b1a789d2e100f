"""The service: an ASGI application of Starlette that answers with the predictions of a run's model."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import torch
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from metricgrad.comparison import run_folder
from metricgrad.comparison.shipped_classifier import ShippedClassifier
from metricgrad.integrations.serving.counters import Counters
from metricgrad.integrations.serving.json_schema import describe_record, describe_service
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    Handler = Callable[[Request], Awaitable[Response]]

SETTINGS = "METRICGRAD_SERVE"
"""The environment variable by which the command hands its settings to the processes that it starts."""

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>metricgrad serve</title>
<style>body{font:16px sans-serif;max-width:50em;margin:2em auto;padding:0 1em}pre{background:#eee;padding:1em;
overflow:auto}td,th{text-align:left;padding:.2em 1em .2em 0}</style>
<h1>metricgrad serve</h1><p>%(about)s</p>
<table>
<tr><th>POST /predict<td>one record, or a list of records
<tr><th>GET <a href="schema">/schema</a><td>JSON Schema of a record
<tr><th>GET <a href="openapi.json">/openapi.json</a><td>this service as OpenAPI
<tr><th>GET <a href="health">/health</a><td>whether it is ready
<tr><th>GET <a href="metrics">/metrics</a><td>counters for Prometheus
</table>
<h2>Record</h2><pre>%(record)s</pre></html>"""


@dataclass(frozen=True)
class ServiceSettings:
    """What the application is made of: a run, limits, and a folder for the counters of all processes."""

    run: str
    counters: str
    most_rows: int = 10_000
    most_bytes: int = 16 << 20
    allow_missing: bool = False

    def to_environment(self) -> None:
        """Put the settings into the environment, for processes that this one starts."""
        os.environ[SETTINGS] = json.dumps(asdict(self))

    @classmethod
    def from_environment(cls) -> ServiceSettings:
        """Return the settings that the command put there."""
        return cls(**json.loads(os.environ[SETTINGS]))


class Service:
    """The model of a run, its limits and its counters."""

    def __init__(self, settings: ServiceSettings) -> None:
        torch.set_num_threads(1)  # rows are few; several requests are for several processes
        model = run_folder.load(settings.run).model
        self.settings = settings
        self.classifier = ShippedClassifier(model, settings.allow_missing)
        self.schema = model.schema
        self.counters = Counters(Path(settings.counters), self.schema.classes, self.schema.inputs)
        self.description = describe_service(self.schema, self.classifier.describe(), self.classifier.rule_.abstains)
        self.turn = anyio.CapacityLimiter(1)  # predicting is work for the processor: more threads would only wait

    async def predict(self, request: Request) -> Response:
        """Answer with the prediction of a record, or a list of them."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise HTTPException(415, f"content-type: expected application/json, got {one_line(kind, 60)!r}")
        records = _parse(await self._read_body(request))
        several = isinstance(records, list)
        if several and len(records) > self.settings.most_rows:
            most = self.settings.most_rows
            raise HTTPException(413, f"data: expected at most {most} records, got {len(records)}; send them in parts")
        try:
            answers = await anyio.to_thread.run_sync(self.predict_records, records, limiter=self.turn)
        except (ValueError, TypeError) as error:  # what `predict` says of data that it cannot use
            raise HTTPException(422, one_line(error)) from error
        return JSONResponse(answers if several else answers[0])

    async def _read_body(self, request: Request) -> bytes:
        most = self.settings.most_bytes
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise HTTPException(413, f"body: expected at most {most} bytes, got more; send the records in parts")
        return bytes(body)

    def predict_records(self, records: Any) -> list[dict[str, Any]]:
        """Return the predictions of records, and count them."""
        if not isinstance(records, dict | list):
            raise ValueError(f"data: expected a record or a list of records, got {type(records).__name__}")
        scores, gaps = self.classifier.score_rows(records)
        codes = self.classifier.rule_.decide(scores)
        decided = codes.long().numpy()
        self.counters.count_rows(decided, gaps)
        numbers = scores.tolist()
        if self.schema.task == "binary":
            labels = self.classifier.labels_.decode(codes).tolist()
            return [{"prediction": label, "score": score} for label, score in zip(labels, numbers, strict=True)]
        names = self.schema.classes
        if self.schema.task == "multiclass":
            predictions = self.classifier.labels_.decode(codes, self.classifier.abstain_label).tolist()
        else:
            predictions = [[names[k] for k in np.flatnonzero(row)] for row in decided]
        return [
            {"prediction": prediction, "scores": dict(zip(names, row, strict=True))}
            for prediction, row in zip(predictions, numbers, strict=True)
        ]

    async def show_schema(self, request: Request) -> Response:
        """Answer with the JSON Schema of a record."""
        return JSONResponse(describe_record(self.schema))

    async def show_health(self, request: Request) -> Response:
        """Answer that the service is ready: it is reached only after the model was loaded."""
        return JSONResponse({"status": "ok", "model": self.classifier.describe()})

    async def show_metrics(self, request: Request) -> Response:
        """Answer with the counters of all processes."""
        return PlainTextResponse(self.counters.write_text(), media_type="text/plain; version=0.0.4")

    async def show_description(self, request: Request) -> Response:
        """Answer with the OpenAPI document."""
        return JSONResponse(self.description)

    async def show_page(self, request: Request) -> Response:
        """Answer with a page for people, which loads nothing from elsewhere."""
        record = json.dumps(describe_record(self.schema), indent=2, ensure_ascii=False)
        return HTMLResponse(_PAGE % {"about": escape(self.classifier.describe()), "record": escape(record)})

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Answer a request that no handler takes, of an unknown path or method, with one line of JSON."""
        if not isinstance(error, HTTPException):
            raise error
        self.counters.count_request(error.status_code, 0.0)
        return JSONResponse(
            {"error": f"{request.method} {request.url.path}: {error.detail}"}, error.status_code, error.headers
        )

    def counted(self, handler: Handler) -> Handler:
        """Return a handler whose requests are counted; what it raises becomes one line of JSON."""

        async def answer(request: Request) -> Response:
            start = time.perf_counter()
            status = 500
            try:
                response = await handler(request)
                status = response.status_code
                return response
            except HTTPException as error:
                status = error.status_code
                return JSONResponse({"error": error.detail}, status)
            finally:
                self.counters.count_request(status, time.perf_counter() - start)

        return answer


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_read_constant)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"body: expected JSON, got something else ({one_line(error, 120)})") from error


def _read_constant(word: str) -> float | None:
    """Return what NaN and Infinity are, which JSON has no words for, but Python writes."""
    return None if word == "NaN" else float(word)


def create_application(settings: ServiceSettings | None = None) -> Starlette:
    """Return the application; without settings, those of the environment."""
    service = Service(settings or ServiceSettings.from_environment())
    routes = [
        Route("/predict", service.counted(service.predict), methods=["POST"]),
        Route("/schema", service.counted(service.show_schema)),
        Route("/health", service.show_health),
        Route("/metrics", service.show_metrics),
        Route("/openapi.json", service.show_description),
        Route("/", service.show_page),
        Route("/docs", service.show_page),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: service.refuse})
