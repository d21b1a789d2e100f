"""The ``metricgrad`` command."""

from __future__ import annotations

import sys


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code; docs/application.md lists the codes."""
    try:
        from metricgrad.cli.main import main as run
    except ModuleNotFoundError as error:
        print(f"metricgrad: {error.name} is missing; pip install 'metricgrad[app]'", file=sys.stderr)
        return 2
    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
