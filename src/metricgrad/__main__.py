"""The ``metricgrad`` command."""

from __future__ import annotations

import argparse
import sys

from metricgrad import __version__


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 for a call that cannot be carried out."""
    parser = argparse.ArgumentParser(prog="metricgrad", description="Train on the metric you will be judged on.")
    parser.add_argument("--version", action="version", version=f"metricgrad {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="cross-entropy against the metric loss, on a real data set that pip brings")
    demo.add_argument("--seeds", type=_at_least_one, default=5, help="how many splits and initialisations (default 5)")
    demo.add_argument("--epochs", type=_at_least_one, default=60, help="passes over the training data (default 60)")
    options = parser.parse_args(argv)
    try:
        from metricgrad.app.demo import run
    except ModuleNotFoundError as error:
        print(f"metricgrad: {error.name} is missing; pip install 'metricgrad[app]'", file=sys.stderr)
        return 2
    run(seeds=options.seeds, epochs=options.epochs)
    return 0


def _at_least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
