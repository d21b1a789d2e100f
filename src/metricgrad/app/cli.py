"""The ``metricgrad`` command: its words, its JSON, its exit codes.

Only what parses the command line is imported here; a command imports what it needs when it runs, so that ``--help``
answers at once.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad import __version__
from metricgrad.app.errors import INTERRUPTED, WRITE, WRONG_CALL, UserError, one_line

if TYPE_CHECKING:
    from metricgrad.app.request import Options

BUG = 1

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train on the metric you will be judged on.",
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")]
Data = Annotated[str, typer.Argument(metavar="DATA", help="CSV (also gzip), Parquet or Feather.")]
Target = Annotated[str, typer.Option(help="The column to predict; several for multi-label, commas between.")]
Metric = Annotated[
    str, typer.Option(help='"f1", "f2", "mcc", "package.module:function"; the first of several decides.')
]
Average = Annotated[str, typer.Option(help="Over classes: macro, micro, weighted or samples.")]
SubjectTo = Annotated[str | None, typer.Option(help='A constraint, such as "precision>=0.9".')]
Task = Annotated[str | None, typer.Option(help="binary, multiclass or multilabel, if the data do not tell.")]
Positive = Annotated[str | None, typer.Option(help="The class that a binary metric looks for.")]
Drop = Annotated[str | None, typer.Option(help="Columns not to learn from, commas between.")]
Group = Annotated[str | None, typer.Option(help="Rows of equal value in this column stay together.")]
Time = Annotated[str | None, typer.Option(help="Train on the past of this column, judge on its future.")]
Rows = Annotated[int | None, typer.Option(min=1, help="Take a random sample of so many rows.")]
Seed = Annotated[int, typer.Option(min=0, help="Of splits and training.")]
Quick = Annotated[bool, typer.Option("--quick", help="A first look: fewer contenders, repeats and epochs.")]
Out = Annotated[Path | None, typer.Option(help="The run folder; by default a new one in the working directory.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a run folder that is there.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; by default one per core.")]
Budget = Annotated[float | None, typer.Option(min=0.0, help="Minutes after which no further repeat is started.")]


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


def _tell(document: Any, as_json: bool) -> bool:
    """Print a document if JSON was asked for, and tell whether it was."""
    if as_json:
        print(json.dumps(_finite(document), ensure_ascii=False, allow_nan=False))
    return as_json


def _finite(document: Any) -> Any:
    """Return a document with null in the place of what JSON cannot hold: infinite numbers and those of nothing."""
    if isinstance(document, dict):
        return {key: _finite(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


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


@app.command()
def compare(
    context: typer.Context,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="CSV (also gzip), Parquet or Feather.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict; several for multi-label.")] = None,
    metric: Metric = "f1",
    average: Average = "macro",
    subject_to: SubjectTo = None,
    task: Task = None,
    positive: Positive = None,
    drop: Drop = None,
    group: Group = None,
    time: Time = None,
    rows: Rows = None,
    repeats: Annotated[int | None, typer.Option(min=2, help="Splits; 5, or 2 with --quick.")] = None,
    seed: Seed = 0,
    only: Annotated[str | None, typer.Option(help="Contenders, commas between.")] = None,
    quick: Quick = False,
    budget: Budget = None,
    jobs: Jobs = None,
    out: Out = None,
    force: Force = False,
    resume: Annotated[Path | None, typer.Option(help="Go on with this run folder.")] = None,
    as_json: Json = False,
) -> None:
    """Compare ways to train on one protocol, say what to ship, and save it."""
    if resume is not None:
        _check_alone(context)
        _resume(resume, _jobs(jobs), budget, as_json)
        return
    if data is None or target is None:
        raise UserError(
            "compare: expected DATA and --target, or --resume RUN; see metricgrad compare --help", WRONG_CALL
        )
    from metricgrad.app.request import Options

    several = repeats if repeats is not None else 2 if quick else 5
    asked = Options(
        data, target, metric, average, subject_to, task, positive, drop, group, time, rows, several, seed, only, quick
    )
    _compare(asked, out, _jobs(jobs), budget, force, as_json)


def _check_alone(context: typer.Context) -> None:
    """Refuse options beside --resume that the run folder already holds."""
    allowed = {"resume", "jobs", "budget", "as_json"}
    given = [
        name
        for name in context.params
        if name not in allowed and getattr(context.get_parameter_source(name), "name", None) == "COMMANDLINE"
    ]
    if given:
        name = given[0].replace("_", "-")
        raise UserError(f"--resume: the run folder holds everything else, got also {name}; leave it out", WRONG_CALL)


def _compare(options: Options, out: Path | None, jobs: int, budget: float | None, force: bool, as_json: bool) -> None:
    from metricgrad.app import compare as command
    from metricgrad.app.display import Live, Silent

    _see_working_directory(options.metric)
    place = (
        out if out is not None else _fresh(f"{Path(options.data).name.split('.')[0]}-{options.metric.split(',')[0]}")
    )
    with Silent() if as_json else Live() as progress:
        found = command.compare(options, place, progress, jobs=jobs, budget=budget, force=force)
    _show(place, found, as_json)


def _resume(run: Path, jobs: int, budget: float | None, as_json: bool) -> None:
    from metricgrad.app import compare as command
    from metricgrad.app.display import Live, Silent
    from metricgrad.app.runs import manifest

    if manifest(run)["state"] == "finished":
        _info(run, as_json)
        return
    _see_working_directory(":")
    with Silent() if as_json else Live() as progress:
        found = command.resume(run, progress, jobs=jobs, budget=budget)
    _show(run, found, as_json)


def _show(place: Path, payload: Any, as_json: bool) -> None:
    summary = {key: value for key, value in payload.items() if key != "details"}
    if _tell({"run": str(place), **summary}, as_json):
        return
    from metricgrad.app.display import leaderboard, lines

    leaderboard(summary)
    print()
    lines([("model", f"metricgrad predict {place} DATA -o FILE"), ("report", str(place / "report.html"))])


@app.command()
def train(
    data: Data,
    target: Target,
    contender: Annotated[str, typer.Option(help="Which; metricgrad info lists them.")] = "hybrid",
    rule: Annotated[str, typer.Option(help="tuned or fixed.")] = "tuned",
    metric: Metric = "f1",
    average: Average = "macro",
    subject_to: SubjectTo = None,
    task: Task = None,
    positive: Positive = None,
    drop: Drop = None,
    group: Group = None,
    time: Time = None,
    rows: Rows = None,
    seed: Seed = 0,
    quick: Quick = False,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Train one contender on all rows, straight, and save it."""
    if rule not in ("tuned", "fixed"):
        raise UserError(f"--rule: expected tuned or fixed, got {rule!r}", WRONG_CALL)
    from metricgrad.app import train as command
    from metricgrad.app.display import Live, Silent, lines
    from metricgrad.app.request import Options

    _see_working_directory(metric)
    options = Options(
        data, target, metric, average, subject_to, task, positive, drop, group, time, rows, seed=seed, quick=quick
    )
    place = out if out is not None else _fresh(f"{Path(data).name.split('.')[0]}-{contender.replace(' ', '-')}")
    with Silent() if as_json else Live() as progress:
        found = command.train(options, contender, rule, place, progress, force=force)  # type: ignore[arg-type]
    if not _tell({"run": str(place), **found}, as_json):
        value = (
            f"{found['metric']} {found['value_there']:.3f} on {found['tuned_on']}, which chose the rule and flatter it"
        )
        lines([("rule", found["rule"]), ("value", value), ("model", f"metricgrad predict {place} DATA -o FILE")])


@app.command()
def demo(
    repeats: Annotated[int, typer.Option(min=2, help="Splits.")] = 5,
    quick: Quick = False,
    jobs: Jobs = None,
    out: Out = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare on a real data set that pip brings along, in about a minute."""
    from metricgrad.app.demo import options

    _compare(options(repeats, quick), out if out is not None else _fresh("demo"), _jobs(jobs), None, force, as_json)


Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of compare or train.")]


@app.command()
def predict(
    run: Run,
    data: Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write: .csv, .csv.gz, .parquet, .feather.")
    ],
    keep: Annotated[str | None, typer.Option("--id", help="Columns of the data to keep, commas between.")] = None,
    what: Annotated[str, typer.Option(help="labels, scores or both.")] = "both",
    jobs: Jobs = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a file of any size."""
    from metricgrad.app import predict as command
    from metricgrad.app.display import RowsDone, beware, lines

    names = [part.strip() for part in (keep or "").split(",") if part.strip()]
    with RowsDone(silent=as_json) as progress:
        found = command.predict(
            run, data, output, what=what, keep=names, force=force, jobs=_jobs(jobs), progress=progress
        )
    beware(found["warnings"])
    if not _tell(found, as_json):
        speed = f"{found['rows']} in {found['seconds']:.1f} s"
        shares = ", ".join(f"{name} {count}" for name, count in found["predicted"].items())
        lines([("rows", speed), ("predicted", shares), ("output", found["output"])])


@app.command()
def evaluate(
    run: Run,
    data: Data,
    metric: Annotated[
        str | None, typer.Option(help="Metrics, commas between; by default the run's and usual ones.")
    ] = None,
    rows: Rows = None,
    replicates: Annotated[int, typer.Option(min=10, help="Of the bootstrap.")] = 1000,
    confidence: Annotated[float, typer.Option(min=0.5, max=0.9999, help="Of the intervals.")] = 0.95,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Judge a run's model on new labelled data, and warn of drift."""
    from metricgrad.app.display import beware, lines
    from metricgrad.app.judge import judge

    _see_working_directory(metric or "")
    names = [part.strip() for part in (metric or "").split(",") if part.strip()]
    found = judge(run, data, names, rows=rows, replicates=replicates, confidence=confidence, seed=seed)
    beware(found["warnings"])
    if _tell(found, as_json):
        return
    intervals = [
        (name, f"{one['value']:.4f} ({one['low']:.4f} to {one['high']:.4f})") for name, one in found["metrics"].items()
    ]
    kept = [
        (one["constraint"], f"{'holds' if one['met'] else 'does not hold'}: {one['value']:.4f}")
        for one in found["constraints"]
    ]
    lines([("rows", str(found["rows"])), ("rule", found["rule"]), *intervals, *kept])
    print()
    lines(
        [
            (
                one["name"],
                f"precision {one['precision']:.3f}, recall {one['recall']:.3f}, f1 {one['f1']:.3f}, {one['rows']} rows",
            )
            for one in found["classes"]
        ]
    )


@app.command()
def tune(
    run: Run,
    data: Data,
    metric: Annotated[str | None, typer.Option(help="What to maximise; by default the run's metric.")] = None,
    average: Annotated[str | None, typer.Option(help="Over classes; by default the run's.")] = None,
    subject_to: SubjectTo = None,
    confidence: Annotated[
        float | None, typer.Option(min=0.5, max=0.9999, help="How sure the constraint must hold.")
    ] = None,
    rows: Rows = None,
    seed: Seed = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell.")] = False,
    as_json: Json = False,
) -> None:
    """Tune a run's decision rule on labelled data, without training again."""
    from metricgrad.app import retune as command
    from metricgrad.app.display import beware, lines

    _see_working_directory(metric or "")
    found = command.tune(
        run,
        data,
        metric,
        average=average,
        subject_to=subject_to,
        confidence=confidence,
        rows=rows,
        dry_run=dry_run,
        seed=seed,
    )
    beware(found["warnings"])
    if _tell(found, as_json):
        return
    old, new = found["old"], found["new"]
    lines(
        [
            ("before", f"{old['rule']}: {found['metric']} {old['value']:.4f} on these {found['rows']} rows"),
            ("after", f"{new['rule']}: {new['value']:.4f} there, {new['expected']:.4f} to be expected on others"),
            ("written", "yes, the rule before is kept as well" if found["written"] else "no, as asked"),
        ]
    )


@app.command()
def info(
    run: Annotated[Path | None, typer.Argument(help="A run folder; without one, versions and contenders.")] = None,
    as_json: Json = False,
) -> None:
    """Tell what a run folder holds, or what is installed."""
    if run is not None:
        _info(run, as_json)
        return
    from metricgrad.app.contenders import CONTENDERS
    from metricgrad.app.runs import environment

    found = environment()
    about = {name: contender.about for name, contender in CONTENDERS.items()}
    if not _tell({**found, "contenders": about}, as_json):
        from metricgrad.app.display import lines

        lines([*found["versions"].items(), ("machine", found["machine"])])
        print()
        lines(list(about.items()))


def _info(run: Path, as_json: bool) -> None:
    from metricgrad.app.runs import manifest, read_json

    about = manifest(run)
    finished = about["state"] == "finished"
    summary = read_json(run / "summary.json") if finished else {}
    units = len(list((run / "results").glob("*.json")))
    if _tell(
        {"run": str(run), "state": about["state"], "created": about["created"], "units": units, **summary}, as_json
    ):
        return
    from metricgrad.app.display import leaderboard, lines

    pairs: list[tuple[str, str]] = [
        (key, str(about[key])) for key in ("kind", "state", "created", "finished") if key in about
    ]
    pairs += [(key, str(value)) for key, value in read_json(run / "config.json").items() if value is not None]
    if not finished:
        pairs += [("units done", str(units)), ("go on", f"metricgrad compare --resume {run}")]
    lines(pairs)
    print()
    if "leaderboard" in summary:
        leaderboard(summary)
    elif summary:
        lines([(key, str(value)) for key, value in summary.items() if not isinstance(value, dict | list)])


def _jobs(jobs: int | None) -> int:
    return jobs if jobs is not None else len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _fresh(stem: str) -> Path:
    """Return a run folder in the working directory that is not there yet."""
    plain = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in stem)
    place, number = Path(f"metricgrad-run-{plain}"), 1
    while place.exists():
        number += 1
        place = Path(f"metricgrad-run-{plain}-{number}")
    return place


def _see_working_directory(metric: str) -> None:
    """Let "module:function" be found in the working directory, as ``python -m`` would, but after all else."""
    if ":" in metric and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
