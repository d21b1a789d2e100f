"""Work that may crash is done in a process of its own: native libraries, on files that anyone may have made.

This file is also the script of that process. It imports nothing of metricgrad, and neither does the work: a Python file
with a function ``work(limit, *words)``, which may read standard input and write to standard output. The work calls
``limit(size)`` with the size of the file before it reads any of it.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

MOST_BYTES = 2 << 30
"""The memory limit of the process, beyond what the imported library takes and 64 times the size of the file."""
MOST_CPU_SECONDS = 120
"""The limit of CPU time of the process, beyond a second for each megabyte of the file."""

NOT_FINISHED = "its library did not finish reading it"

_FAILED = 3  # the exit code if the work raises an exception
# Less address space that is reserved and never used, which would count against the limit of memory.
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "2"}


class Child:
    """A running process that does the work of a Python file; it imports its library while the caller goes on."""

    def __init__(self, file: str, *words: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop; a pipe could fill up)
        # -P: a module in the working directory must not be imported in place of the library.
        self.process = subprocess.Popen(  # noqa: S603 (our own file)
            [sys.executable, "-P", __file__, file, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_ENVIRONMENT},
        )
        self.stdin = cast("IO[bytes]", self.process.stdin)
        self.stdout = cast("IO[bytes]", self.process.stdout)

    def explain(self) -> str | None:
        """Wait for the end of the process, and return why it failed, None if it did not."""
        code = self.process.wait()
        if code < 0:
            name = signal.Signals(-code).name
            return NOT_FINISHED if name == "SIGXCPU" else f"it crashes its library ({name})"
        if code:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            return lines[-1][:200] if lines else f"exit code {code}"
        return None

    def stop(self) -> None:
        """End the process if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.stdin, self.stdout, self._errors):
            with suppress(BrokenPipeError):  # what was not written yet is of no use any more
                stream.close()


def find_free_memory() -> int | None:
    """Return the bytes of memory that are free, None on a system that does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) * 1024
    except (OSError, StopIteration):
        return None


# In the process


def _limit(size: int) -> None:
    """Limit memory and CPU time, since a forged file may claim any length."""
    try:
        import resource
    except ImportError:  # not on Windows
        return
    try:
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:  # not on Linux
        now = 16 << 30
    most = MOST_BYTES + 64 * size
    free = find_free_memory() or most
    mapped = size  # a file that is mapped into memory takes up address space, but none of the free memory
    for which, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, now + mapped + max(MOST_BYTES, min(most, free))),
        (resource.RLIMIT_CPU, MOST_CPU_SECONDS + size // 10**6),
    ):
        highest = resource.getrlimit(which)[1]
        resource.setrlimit(which, (limit if highest == resource.RLIM_INFINITY else min(limit, highest), highest))


def _import_file(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("work", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    try:
        _import_file(sys.argv[1]).work(_limit, *sys.argv[2:])
        code = 0
    except Exception as error:
        print(" ".join(f"{type(error).__name__}: {error}".split()), file=sys.stderr)
        code = _FAILED
    sys.stderr.flush()
    os._exit(code)  # at once: a damaged file may leave a library in a state in which it cannot end
