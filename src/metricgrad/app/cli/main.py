"""The ``metricgrad`` command: its words, and how what goes wrong becomes one line and an exit code.

Only what parses the command line is imported before a command runs; a command imports what it needs itself, so that
``--help`` answers at once.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from metricgrad import __version__
from metricgrad.app.cli.apply import convert, evaluate, predict, tune
from metricgrad.app.cli.create import compare, demo, train
from metricgrad.app.cli.output import info
from metricgrad.app.errors import INTERRUPTED, WRITE, WRONG_CALL, UserError, one_line

BUG = 1

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train on the metric you will be judged on.",
)
# In the order in which --help lists them.
for command in (compare, train, demo, predict, evaluate, tune, info, convert):
    app.command()(command)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code; whatever goes wrong is told here, in one line."""
    words = sys.argv[1:] if argv is None else argv
    try:
        found = app(args=words, prog_name="metricgrad", standalone_mode=False)
        sys.stdout.flush()
        if found == INTERRUPTED:  # Typer makes Ctrl-C into a code without a word
            raise KeyboardInterrupt
        return found if isinstance(found, int) else 0
    except UserError as error:
        return _fail(str(error), error.code, words)
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:
        return _fail(error.format_message() + _usage(error), WRONG_CALL, words)
    except (typer.Abort, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED, words)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 (nobody listens; Python would complain at exit)
        return 0
    except OSError as error:
        return _fail(
            f"{error.filename or 'a file'}: {error.strerror or error}; check the place and its space", WRITE, words
        )
    except ModuleNotFoundError as error:
        return _fail(f"{error.name} is missing; pip install 'metricgrad[app]'", WRONG_CALL, words)
    except Exception as error:
        if os.environ.get("METRICGRAD_DEBUG"):
            raise
        what = f"{type(error).__name__}: {error}"
        return _fail(f"{what} (not expected; METRICGRAD_DEBUG=1 shows where)", BUG, words)


def _fail(message: str, code: int, words: list[str]) -> int:
    line = one_line(message)
    print(f"metricgrad: {line}", file=sys.stderr)
    if "--json" in words:
        print(json.dumps({"error": {"code": code, "message": line}}, ensure_ascii=False))
    return code


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    return "" if context is None else f"; see {context.command_path} --help"


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Tell the version.")] = False,
) -> None:
    if version:
        print(f"metricgrad {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(WRONG_CALL)
