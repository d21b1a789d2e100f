"""The ``metricgrad`` command: its subcommands, and how every error becomes one line and an exit code.

Each subcommand imports what it needs when it runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from metricgrad import __version__
from metricgrad.cli.compare import compare
from metricgrad.cli.demo import demo
from metricgrad.cli.evaluate import evaluate
from metricgrad.cli.info import info
from metricgrad.cli.predict import predict
from metricgrad.cli.report import report
from metricgrad.cli.serve import serve
from metricgrad.cli.train import train
from metricgrad.cli.tune import tune
from metricgrad.comparison.errors import INTERRUPTED, WRITE, WRONG_CALL, UserError
from metricgrad.messages import one_line

BUG = 1

app = typer.Typer(
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train on the metric you will be evaluated on.",
)
# --help lists them in this order.
for command in (compare, train, demo, predict, serve, evaluate, tune, report, info):
    app.command()(command)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; every error is printed here, as one line."""
    words = sys.argv[1:] if argv is None else argv
    _replace_closed_streams()
    try:
        found = app(args=words, prog_name="metricgrad", standalone_mode=False)
        sys.stdout.flush()
        if found == INTERRUPTED:  # Typer turns Ctrl-C into this code and prints nothing
            raise KeyboardInterrupt
        return found if isinstance(found, int) else 0
    except typer.Exit as error:
        return error.exit_code
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (the reader is gone; Python would complain at exit)
        return 0
    except (Exception, KeyboardInterrupt) as error:
        message, code = _explain(error)
        if code == BUG and os.environ.get("METRICGRAD_DEBUG"):
            raise
        _print_error(message, code, as_json="--json" in words)
        return code


def _replace_closed_streams() -> None:
    """Let what is printed go nowhere if the caller closed standard output or standard error."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (until the process ends)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (the same)


def _explain(error: BaseException) -> tuple[str, int]:
    """Return the message of an error and its exit code."""
    if isinstance(error, UserError):
        return str(error), error.code
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        hint = "" if context is None else f"; see {context.command_path} --help"
        return error.format_message().rstrip(".") + hint, WRONG_CALL
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return "interrupted", INTERRUPTED
    if isinstance(error, OSError):
        where, why = error.filename or "a file", error.strerror or error
        return f"{where}: {why}; check the path and its permissions", WRITE
    if isinstance(error, ModuleNotFoundError):
        return f"{error.name} is missing; pip install 'metricgrad[app]'", WRONG_CALL
    return f"{type(error).__name__}: {error} (unexpected; METRICGRAD_DEBUG=1 shows the traceback)", BUG


def _print_error(message: str, code: int, as_json: bool) -> None:
    line = one_line(message)
    print(f"metricgrad: {line}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": {"code": code, "message": line}}, ensure_ascii=False))


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        print(f"metricgrad {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(WRONG_CALL)
