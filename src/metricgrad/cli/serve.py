"""``metricgrad serve``: the predictions of a run's model over HTTP."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from metricgrad.cli.arguments import AllowMissingOption, JsonOption, RunArgument  # noqa: TC001 (Typer reads the annotations)
from metricgrad.cli.json_output import print_json
from metricgrad.comparison.errors import WRONG_CALL, UserError

HOST = "127.0.0.1"
PORT = 8000
MOST_ROWS = 10_000
MOST_BYTES = 16 << 20


def serve(
    run: RunArgument,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on; 0.0.0.0 lets other machines in, who are not asked who they are."),
    ] = HOST,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = PORT,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, each with the model in memory.")] = 1,
    most_rows: Annotated[int, typer.Option("--max-rows", min=1, help="The most records in a request.")] = MOST_ROWS,
    most_bytes: Annotated[int, typer.Option("--max-bytes", min=1, help="The most bytes in a request.")] = MOST_BYTES,
    allow_missing: AllowMissingOption = False,
    dockerfile: Annotated[
        bool, typer.Option("--dockerfile", help="Write a Dockerfile into the run folder, and serve nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing Dockerfile.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve a run's model over HTTP.

    POST /predict takes one row or a list; GET /schema, /health, /metrics and /docs tell about the model and the server.
    """
    if dockerfile:
        from metricgrad.comparison import run_folder
        from metricgrad.integrations.serving.dockerfile import write_dockerfile

        if (host, port) != (HOST, PORT):
            raise UserError(
                "--dockerfile: expected neither --host nor --port with it, since the service in the container listens "
                f"on 0.0.0.0:{PORT}; choose a port by docker run -p PORT:{PORT}",
                WRONG_CALL,
            )
        run_folder.load(run)  # refuses what is no finished run
        chosen = [
            ("--workers", workers, 1),
            ("--max-rows", most_rows, MOST_ROWS),
            ("--max-bytes", most_bytes, MOST_BYTES),
        ]
        options = [text for name, value, usual in chosen if value != usual for text in (name, str(value))]
        if allow_missing:
            options.append("--allow-missing")
        path = write_dockerfile(run, options, force)
        if as_json:
            print_json({"run": str(run), "dockerfile": str(path)})
        else:
            print(path)
        return
    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise UserError("serve needs starlette and uvicorn: pip install 'metricgrad[serve]'", WRONG_CALL)
    from metricgrad.integrations.serving.server import serve as run_service

    def announce(address: str) -> None:
        if as_json:
            print_json({"run": str(run), "address": address})
        else:
            print(f"serving {run} on {address}")
        sys.stdout.flush()  # whoever started it may wait for this line

    run_service(
        run,
        host,
        port,
        workers=workers,
        most_rows=most_rows,
        most_bytes=most_bytes,
        allow_missing=allow_missing,
        announce=announce,
    )
