"""Run the service in one process or several, until it is told to stop."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.supervisors import Multiprocess

from metricgrad.comparison import run_folder
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.integrations.serving.application import ServiceSettings, create_application

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_FACTORY = "metricgrad.integrations.serving.application:create_application"
_SECONDS_TO_FINISH = 30
_SECONDS_TO_ANSWER = 60  # on a busy machine loading the model may take this long


def serve(
    run: Path,
    host: str,
    port: int,
    *,
    workers: int,
    most_rows: int,
    most_bytes: int,
    allow_missing: bool,
    announce: Callable[[str], None],
) -> None:
    """Serve the model of a run until the process gets SIGINT or SIGTERM; requests that it has are answered first.

    ``announce``: called with the address as soon as it listens.
    """
    with tempfile.TemporaryDirectory(prefix="metricgrad-serve-") as counters:
        settings = ServiceSettings(str(run), counters, most_rows, most_bytes, allow_missing)
        settings.to_environment()
        if workers > 1:
            # An unusable run fails here, instead of in worker processes, which uvicorn would start again and again.
            run_folder.load(run)
        application = create_application(settings) if workers == 1 else _FACTORY
        config = uvicorn.Config(
            application,
            host=host,
            port=port,
            workers=workers,
            factory=workers > 1,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_SECONDS_TO_FINISH,
            timeout_worker_healthcheck=_SECONDS_TO_ANSWER,
        )
        try:
            socket = config.bind_socket()
        except SystemExit:  # uvicorn's, after it has logged why
            raise UserError(f"--host, --port: cannot listen on {host}:{port}; choose another one", WRONG_CALL) from None
        socket.listen(config.backlog)  # from here on requests wait until the model is loaded
        announce(f"http://{host}:{socket.getsockname()[1]}")
        try:
            if workers == 1:
                uvicorn.Server(config).run(sockets=[socket])
            else:
                Multiprocess(config, sockets=[socket]).run()
        except KeyboardInterrupt:  # raised again by uvicorn after a clean stop
            pass
        finally:
            socket.close()
