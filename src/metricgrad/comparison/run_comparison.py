"""``metricgrad compare``: all contenders under one protocol, a verdict, and the model to ship."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from metricgrad.comparison import reporting, unit_runner
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.class_shifts import describe_absent, describe_moved
from metricgrad.comparison.contenders.table import ENSEMBLE, REFERENCE
from metricgrad.comparison.ensemble import average_weights, run_ensembles
from metricgrad.comparison.errors import DATA, INTERRUPTED, NOTHING, RUN, WRONG_CALL, UserError, writing
from metricgrad.comparison.importance import measure_importance
from metricgrad.comparison.leaderboard import rank_contenders, resample_outcomes
from metricgrad.comparison.model_card import write_card
from metricgrad.comparison.option_texts import as_text, write_toml
from metricgrad.comparison.options import (
    LEAST_REPEATS,
    Dataset,
    Options,
    choose_contenders,
    choose_effort,
    make_config,
    prepare_dataset,
    read_options,
)
from metricgrad.comparison.report import page
from metricgrad.comparison.report.payload import summarise
from metricgrad.comparison.run_writer import INPUTS, Workspace
from metricgrad.comparison.shipping import fit_shipped_model, tune_on_repeats
from metricgrad.comparison.verdict import Circumstances, check_ship, write_verdict
from metricgrad.comparison.workers import Shared, open_workers
from metricgrad.decisions.rare_labels import FEWEST_TO_TUNE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from metricgrad.comparison.contenders.scorers import Effort
    from metricgrad.comparison.protocol import Outcome
    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.workers import Workers

AGAIN = "continue with --resume"
"""What to do after workers were lost."""


class Progress(Protocol):
    """Receives progress updates."""

    def show_profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show a profile of the data and the warnings about it."""

    def start(self, total: int, done: int) -> None:
        """Start with the number of units in all, and of those that an earlier run has finished."""

    def finish_unit(self, result: unit_runner.Result) -> None:
        """Count one more unit as finished, or as failed."""

    def say(self, text: str) -> None:
        """Show a sentence."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A comparison before it runs: the data, the contenders, those left out with the reason, and the splits."""

    options: Options
    dataset: Dataset
    names: list[str]
    left_out: list[tuple[str, str]]
    parts: list[Split]

    @property
    def fitted(self) -> list[str]:
        """The contenders that are fitted: all but the ensemble, which is made of their scores."""
        return [name for name in self.names if name != ENSEMBLE]

    @classmethod
    def of(cls, options: Options) -> Plan:
        """Read the data and make the plan; a comparison that cannot run is refused here, before anything is written."""
        dataset = prepare_dataset(options)
        names, left_out = choose_contenders(options, dataset.goal)
        parts = dataset.split(options.repeats, options.seed)
        about = (dataset.targets, dataset.goal.task, dataset.schema.classes, parts)
        more = [*describe_absent(*about), *([] if options.time is None else describe_moved(*about, options.time))]
        if min(_count_rarest(dataset.targets[part.held_out], dataset.goal.classes) for part in parts) < FEWEST_TO_TUNE:
            what = "offset" if dataset.goal.task == "multiclass" else "threshold"
            more.append(f"a class has fewer than {FEWEST_TO_TUNE} rows to tune on: its {what} is not to be trusted")
        more += dataset.describe_left_out(parts)
        # Only the first ones are printed, and those of the columns may be many.
        dataset = replace(dataset, warnings=[*more, *dataset.warnings])
        return cls(options, dataset, names, left_out, parts)

    @property
    def effort(self) -> Effort:
        """The training budget of each contender."""
        return choose_effort(self.options, self.dataset)


def _count_rarest(targets: np.ndarray, classes: int) -> int:
    """Return the smallest number of positives or negatives of any class."""
    counts = targets.sum(0) if targets.ndim == 2 else np.bincount(targets, minlength=classes)
    return int(np.minimum(counts, len(targets) - counts).min())


def compare(
    options: Options,
    out: Path,
    progress: Progress,
    *,
    jobs: int = 1,
    cluster: str | None = None,
    budget: float | None = None,
    ship: str | None = None,
    force: bool = False,
    keep: bool = False,
) -> Payload:
    """Compare contenders, write a new run folder, and return the report's payload.

    ``jobs``: the number of processes. ``cluster``: the address of a Dask scheduler, whose workers run the units
    instead. ``budget``: in minutes. ``ship``: the contender to ship, whatever is best, with ", fixed" for its fixed
    rule. ``keep``: copy the data into the run folder, since they are in no file that stays.
    """
    plan, config = Plan.of(options), make_config(options, keep)
    check_ship(ship, plan.names)
    with (
        open_workers(jobs, cluster, AGAIN) as workers,
        Workspace.create(out, "compare", config, force) as space,
    ):
        space.reopen(ship=ship)
        space.add_text("config.toml", write_toml("compare", config))
        if keep:
            space.keep_data(Path(options.data))
            plan = replace(plan, options=replace(options, data=config["data"]))
        return _run(plan, space, progress, workers, budget)


def resume(
    run: Path,
    progress: Progress,
    *,
    metric: tuple[str, ...] | None = None,
    subject_to: str | None = None,
    repeats: int | None = None,
    ship: str | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    budget: float | None = None,
) -> Payload:
    """Continue a run that was stopped, or add to a finished one; finished units are not repeated.

    ``metric``, ``subject_to``: those of the run; they must be given again if they name code. ``repeats``: more than the
    run has. ``ship``: as for ``compare``.
    """
    with Workspace.resume(run) as space:
        with runs.refuse_invalid(run):
            options, sha256 = read_options(space.config)
        options = replace(options, repeats=_choose_repeats(options, space.manifest.get("repeats"), repeats))
        for flag, written, typed in (
            ("--metric", as_text(options.metric), None if metric is None else as_text(metric)),
            ("--subject-to", options.subject_to, subject_to),
        ):
            if typed not in (None, written):
                raise UserError(f"{flag}: expected {written!r}, as in the run, got {typed!r}", WRONG_CALL)
            # Only code whose name was typed in this call is imported.
            runs.check_code_was_typed(written, re.split(r"[\s,<>=\[\]]+", typed or ""), flag)
        data = (run if options.data in INPUTS else Path()) / options.data
        if not data.is_file():
            raise UserError(f"{data}: the data of this run are missing; put them back", RUN)
        if runs.hash_file(data) != sha256:
            raise UserError(f"{data}: the data changed since the run began; start a new run", RUN)
        # The report shows the path of the data as people type it, not where they are on this machine.
        plan = replace(Plan.of(replace(options, data=str(data))), options=replace(options, data=_shorten(options.data)))
        check_ship(ship, plan.names)
        with open_workers(jobs, cluster, AGAIN) as workers:
            if repeats is not None:
                space.reopen(repeats=repeats)
            return _run(plan, space, progress, workers, budget, ship)


def _shorten(data: str) -> str:
    """Return the path of the data relative to the working directory, or its name alone if it is not below it."""
    path = Path(data)
    if not path.is_absolute():
        return data
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _choose_repeats(options: Options, added: int | None, wanted: int | None) -> int:
    """Return the number of repeats of a run that is resumed; ``added``: that of an earlier ``--resume``."""
    present = added or options.repeats
    if wanted is None or wanted == present:
        return present
    if options.time is not None:
        raise UserError(
            "--repeats: with --time another number of repeats changes all splits; start a new run", WRONG_CALL
        )
    if wanted < present:
        raise UserError(f"--repeats: expected at least {present}, as in the run, got {wanted}", WRONG_CALL)
    return wanted


def _run(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    workers: Workers,
    budget: float | None,
    ship: str | None = None,
) -> Payload:
    options, dataset = plan.options, plan.dataset
    progress.show_profile(dataset.profile, dataset.warnings)
    space.add_splits(plan.parts)
    try:
        outcomes, failed = _run_units(plan, space, progress, workers, budget)
        read_scores = partial(space.read_scores, classes=dataset.goal.score_columns)
        moves = resample_outcomes(dataset, plan.parts, outcomes, read_scores, options.seed)
        rows = rank_contenders(outcomes, moves, dataset.goal.metric)
        if not any(row["feasible"] for row in rows):
            raise UserError(
                f"--subject-to: no contender can meet {options.subject_to!r} on the held-out rows; relax it",
                NOTHING,
            )
        about = Circumstances(dataset.metric_title, options.subject_to, len(plan.parts), options.time is None)
        found = write_verdict(rows, about, ship or space.manifest.get("ship"))
        shipped = [o for o in outcomes if o.contender == found["ship"]]
        rule = tune_on_repeats(plan, space, shipped, found["rule"])
        space.reopen(ship=ship)  # only now: a finished run stays one if nothing can be shipped
        space.add_table("results.parquet", reporting.flatten(outcomes, dataset.goal.metric))
        progress.say(f"fitting {found['ship']} on all rows")
        weights = average_weights(shipped) if found["ship"] == ENSEMBLE else None
        model = fit_shipped_model(dataset, found["ship"], found["rule"], plan.effort, options.seed, weights, rule)
        space.add_model(model)
        importance = measure_importance(plan, space, progress, workers, shipped, found["rule"], model)
        workers.executor.shutdown(wait=False)  # they end while the report is made
        space.scratch.clear()
        payload = reporting.make_payload(
            replace(plan, left_out=[*plan.left_out, *failed]), space, outcomes, rows, found, model, importance, budget
        )
    except KeyboardInterrupt as error:
        again = f"metricgrad compare --resume {shlex.quote(str(space.path))}"
        raise UserError(f"interrupted; continue with: {again}", INTERRUPTED) from error
    with writing(space.path):
        page.write(payload, space.path / "report.html")
    space.add_json("summary.json", summarise(payload))
    space.add_text("model_card.md", write_card(model, summarise(payload)))
    space.finish()
    return payload


def _run_units(
    plan: Plan, space: Workspace, progress: Progress, workers: Workers, budget: float | None
) -> tuple[list[Outcome], list[tuple[str, str]]]:
    """Run the unfinished units; return the outcomes of complete repeats, and failed contenders with the reason."""
    done = {(o.contender, o.repeat): o for o in space.read_finished()}
    progress.start(len(plan.names) * len(plan.parts), len(done))
    failed: dict[str, str] = {}
    units = _yield_open_units(plan, space, progress, budget, done, failed)
    with closing(unit_runner.run_units(units, workers)) as results:
        for result in results:
            progress.finish_unit(result)
            if isinstance(result, unit_runner.Failure):
                failed.setdefault(result.contender, result.why)
                if result.contender == REFERENCE:
                    raise UserError(f"{REFERENCE}, which the others are compared with, failed: {result.why}", DATA)
            else:
                space.add_unit(*result)
                done[result.outcome.contender, result.outcome.repeat] = result.outcome
    able = [name for name in plan.fitted if name not in failed]
    complete = [repeat for repeat in range(len(plan.parts)) if all((name, repeat) in done for name in able)]
    outcomes = [done[name, repeat] for name in able for repeat in complete]
    if ENSEMBLE in plan.names:
        ensembles, why = run_ensembles(plan, space, progress, workers, outcomes, done)
        outcomes += ensembles
        failed |= {} if why is None else {ENSEMBLE: why}
    return outcomes, list(failed.items())


def _yield_open_units(
    plan: Plan,
    space: Workspace,
    progress: Progress,
    budget: float | None,
    done: Collection[tuple[str, int]],
    failed: Collection[str],
) -> Iterator[unit_runner.Unit]:
    """Yield the unfinished units, repeat by repeat, as long as the budget lasts."""
    dataset, started, repeats = plan.dataset, time.monotonic(), 0
    targets = space.scratch.share_array("targets.npy", dataset.targets)
    for repeat, part in enumerate(plan.parts):
        names = [name for name in plan.fitted if (name, repeat) not in done]
        if not names:
            continue
        spent = (time.monotonic() - started) / 60
        # The next repeat is expected to take as long as the mean of those so far.
        if budget is not None and repeat >= LEAST_REPEATS and spent + spent / max(repeats, 1) > budget:
            progress.say(f"the budget of {budget:g} minutes allows {repeat} of {len(plan.parts)} repeats")
            return
        repeats += 1
        space.scratch.encoders[repeat], encoded = dataset.encode(part.train)
        features = space.scratch.share_features(repeat, encoded)
        shared = (features, targets, Shared.value(part))
        common = (dataset.goal, tuple(dataset.also), plan.effort, plan.options.seed, *shared)
        yield from (unit_runner.Unit(name, repeat, *common) for name in names if name not in failed)
