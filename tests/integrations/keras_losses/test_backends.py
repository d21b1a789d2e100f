"""The tests of this folder on every backend of Keras that is installed, each in a process of its own.

JAX has threads of its own and must not be in a process that forks, as the tests of data loaders do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOME = ["-k", "test_every_surrogate or test_float32_compiled or test_fit_learns or test_a_step_of_fit"]


@pytest.mark.parametrize(("backend", "chosen"), [("jax", []), ("tensorflow", SOME), ("torch", SOME)])
def test_on_each_backend(backend: str, chosen: list[str]) -> None:
    if "KERAS_TESTS" in os.environ:
        pytest.skip("this is such a process")
    pytest.importorskip("keras")
    if backend != "torch" and not _is_installed(backend):
        pytest.skip(f"{backend} is not installed")
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(Path(__file__).parent), *chosen],
        env={**os.environ, "KERAS_BACKEND": backend, "KERAS_TESTS": "1", "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]


def _is_installed(package: str) -> bool:
    """Return whether a package can be imported, without importing it."""
    return subprocess.run([sys.executable, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0
