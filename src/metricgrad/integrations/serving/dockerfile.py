"""A Dockerfile for a run folder: the service in a container, with the versions that are installed here."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import TYPE_CHECKING

from metricgrad import __version__
from metricgrad.comparison.errors import WRITE, UserError, writing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAME = "Dockerfile"

_PACKAGES = (
    *("torch", "numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "safetensors", "skops", "lightgbm"),
    *("xgboost-cpu", "xgboost", "starlette", "uvicorn"),
)
_TEXT = """\
# The model of this run as a service: docker build -t model . && docker run -p 8000:8000 model
FROM python:{python}-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
# The versions that the model was written with.
RUN pip install --no-cache-dir 'metricgrad[serve]=={version}' \\
{pins}
RUN useradd --uid 10001 --no-create-home model
# Neither the training data nor the report.
COPY --chown=root:root run.json /run-folder/
COPY --chown=root:root model /run-folder/model
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \\
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
CMD {command}
"""


_COMMAND = ("metricgrad", "serve", "/run-folder", "--host", "0.0.0.0", "--port", "8000")  # noqa: S104 (of a container)


def write_dockerfile(run: Path, options: Sequence[str] = (), force: bool = False) -> Path:
    """Write a Dockerfile into a run folder, and return its path; ``options``: further ones of the command."""
    path = run / NAME
    if path.exists() and not force:
        raise UserError(f"{path}: exists already; remove it, or use --force", WRITE)
    pins = [f"    {name}=={version}" for name in _PACKAGES if (version := _find_version(name)) is not None]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    with writing(path):
        command = json.dumps([*_COMMAND, *options])
        path.write_text(_TEXT.format(python=python, version=__version__, pins=" \\\n".join(pins), command=command))
    return path


def _find_version(name: str) -> str | None:
    """Return the version of an installed package, without the name of a local build; None if it is not installed."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None
