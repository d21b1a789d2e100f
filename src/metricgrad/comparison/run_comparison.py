"""``metricgrad compare``: all contenders under one protocol, a verdict, and the model to ship."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.candidate_runs import ALL_ROWS, Failure, make_seed, run_candidates
from metricgrad.comparison.candidate_tasks import SplitTasks
from metricgrad.comparison.class_shifts import describe_absent, describe_moved
from metricgrad.comparison.contender_outcomes import OutcomeTask, find_outcome
from metricgrad.comparison.contenders import ENSEMBLE, REFERENCE, Contender, find_shortage
from metricgrad.comparison.errors import DATA, INTERRUPTED, NOTHING, RUN, WRONG_CALL, UserError
from metricgrad.comparison.importance import measure_importance
from metricgrad.comparison.leaderboard import rank_contenders, read_moved_scores, resample_outcomes
from metricgrad.comparison.model_card import write_card
from metricgrad.comparison.option_texts import as_text, write_toml
from metricgrad.comparison.options import (
    LEAST_REPEATS,
    Dataset,
    Options,
    choose_contenders,
    make_config,
    prepare_dataset,
    read_options,
)
from metricgrad.comparison.outcomes import tabulate_outcomes
from metricgrad.comparison.run_writer import INPUTS, RunWriter
from metricgrad.comparison.shipping import fit_shipped_model
from metricgrad.comparison.summaries import summarise_comparison
from metricgrad.comparison.verdict import Circumstances, check_ship, write_verdict
from metricgrad.comparison.workers import Shared, open_workers, run_tasks
from metricgrad.decisions.rare_labels import FEWEST_TO_TUNE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from metricgrad.comparison.candidate_runs import CandidateRun, CandidateTask
    from metricgrad.comparison.importance import ColumnImportance
    from metricgrad.comparison.outcomes import Outcome
    from metricgrad.comparison.shipped_model import ShippedModel
    from metricgrad.comparison.splits import Split
    from metricgrad.comparison.summaries import ComparisonSummary
    from metricgrad.comparison.workers import Workers

IF_WORKERS_ARE_LOST = "continue with --resume"
"""What an error about lost workers tells the user to do."""


class Progress(Protocol):
    """Receives progress updates."""

    def show_profile(self, lines: Sequence[tuple[str, str]], warnings: Sequence[str]) -> None:
        """Show a profile of the data and the warnings about it."""

    def start(self, total: int, done: int) -> None:
        """Start with the number of units in all, and of those that an earlier run has finished."""

    def finish_unit(self, run: CandidateRun | Failure) -> None:
        """Count one more unit as finished, or as failed."""

    def say(self, text: str) -> None:
        """Show a sentence."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A comparison before it runs: the data, the contenders, those left out with the reason, and the splits."""

    options: Options
    dataset: Dataset
    contenders: dict[str, Contender]
    left_out: list[tuple[str, str]]
    parts: list[Split]
    _tasks: dict[int, SplitTasks] = field(default_factory=dict)

    @classmethod
    def of(cls, options: Options, own: Mapping[str, Any] | None = None) -> Plan:
        """Read the data and make the plan; a comparison that cannot run is refused here, before anything is written.

        ``own``: estimators of the user's, by name.
        """
        dataset = prepare_dataset(options)
        contenders, left_out = choose_contenders(options, dataset.goal, own)
        parts = dataset.split(options)
        targets_of_parts = (dataset.targets, dataset.goal.task, dataset.schema.classes, parts)
        warnings = describe_absent(*targets_of_parts)
        if options.time is not None:
            warnings += describe_moved(*targets_of_parts, options.time)
        rarest = min(_count_rarest(dataset.targets[part.left_out], dataset.goal.classes) for part in parts)
        if rarest < FEWEST_TO_TUNE:
            what = "offset" if dataset.goal.task == "multiclass" else "threshold"
            warnings.append(f"a class has fewer than {FEWEST_TO_TUNE} rows to tune on: its {what} is not to be trusted")
        warnings += dataset.describe_left_out(parts)
        # These come first, since only the first warnings are printed, and there may be many about columns.
        dataset = replace(dataset, warnings=[*warnings, *dataset.warnings])
        return cls(options, dataset, contenders, left_out, parts)

    def make_tasks(self, run_writer: RunWriter, repeat: int) -> SplitTasks:
        """Return what is to be done in a repeat, or with ``ALL_ROWS`` for the model that is shipped."""
        if repeat in self._tasks:
            return self._tasks[repeat]
        split = self.dataset.split_all_rows(self.options) if repeat == ALL_ROWS else self.parts[repeat]
        random_state = make_seed(self.options.seed, repeat)
        self._tasks[repeat] = SplitTasks(
            self.dataset, self.contenders, split, repeat, random_state, self.options.quick, run_writer.temporary
        )
        return self._tasks[repeat]


@dataclass(frozen=True, eq=False)
class Compared:
    """A comparison whose outcomes and model are in the run folder: what its report is made of.

    ``importance``: of all columns that were measured; the summary holds the first ones.
    """

    plan: Plan
    run_writer: RunWriter
    outcomes: list[Outcome]
    model: ShippedModel
    importance: list[ColumnImportance]
    summary: ComparisonSummary


def _count_rarest(targets: np.ndarray, classes: int) -> int:
    """Return the smallest number of positives or negatives of any class."""
    counts = targets.sum(0) if targets.ndim == 2 else np.bincount(targets, minlength=classes)
    return int(np.minimum(counts, len(targets) - counts).min())


def compare(
    options: Options,
    out: Path,
    progress: Progress,
    write_report: Callable[[Compared], None],
    *,
    jobs: int = 1,
    cluster: str | None = None,
    budget: float | None = None,
    ship: str | None = None,
    force: bool = False,
    keep: bool = False,
    own: Mapping[str, Any] | None = None,
) -> ComparisonSummary:
    """Compare contenders, write a new run folder, and return its summary.

    ``write_report``: writes ``report.html`` into the run folder. ``jobs``: the number of processes. ``cluster``: the
    address of a Dask scheduler, whose workers run the units instead. ``budget``: in minutes. ``ship``: the contender to
    ship, whatever is best, with ", fixed" for its fixed rule. ``keep``: copy the data into the run folder, since they
    are in no file that stays. ``own``: estimators of the user's, by name.
    """
    plan = Plan.of(options, own)
    config = make_config(options, keep)
    check_ship(ship, list(plan.contenders))
    with (
        open_workers(jobs, cluster, IF_WORKERS_ARE_LOST) as workers,
        RunWriter.create(out, "compare", config, force) as run_writer,
    ):
        run_writer.reopen(ship=ship)
        run_writer.add_text("config.toml", write_toml("compare", config))
        if keep:
            run_writer.keep_data(Path(options.data))
            plan = replace(plan, options=replace(options, data=config["data"]))
        return _run(plan, run_writer, progress, write_report, workers, budget)


def resume(
    run: Path,
    progress: Progress,
    write_report: Callable[[Compared], None],
    *,
    metric: tuple[str, ...] | None = None,
    subject_to: str | None = None,
    repeats: int | None = None,
    ship: str | None = None,
    jobs: int = 1,
    cluster: str | None = None,
    budget: float | None = None,
) -> ComparisonSummary:
    """Continue a run that was stopped, or add to a finished one; finished units are not repeated.

    ``metric``, ``subject_to``: those of the run; they must be given again if they name code. ``repeats``: more than the
    run has. ``ship``, ``write_report``: as for ``compare``.
    """
    with RunWriter.resume(run) as run_writer:
        with runs.refuse_invalid(run):
            options, sha256 = read_options(run_writer.config)
        if options.own_contenders:
            names = ", ".join(options.own_contenders)
            raise UserError(f"{run}: {names} are estimators of your own, which no folder holds; compare again", RUN)
        options = replace(options, repeats=_choose_repeats(options, run_writer.manifest.get("repeats"), repeats))
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
        check_ship(ship, list(plan.contenders))
        with open_workers(jobs, cluster, IF_WORKERS_ARE_LOST) as workers:
            if repeats is not None:
                run_writer.reopen(repeats=repeats)
            return _run(plan, run_writer, progress, write_report, workers, budget, ship)


def _shorten(data: str) -> str:
    """Return the path of the data relative to the working directory, or its name alone if it is not below it."""
    path = Path(data)
    if not path.is_absolute():
        return data
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _choose_repeats(options: Options, added: int | None, wanted: int | None) -> int:
    """Return the number of repeats of a run that is resumed; ``added``: that of an earlier ``--resume``."""
    current = added or options.repeats
    if wanted is None or wanted == current:
        return current
    if options.time is not None:
        raise UserError(
            "--repeats: with --time another number of repeats changes all splits; start a new run", WRONG_CALL
        )
    if wanted < current:
        raise UserError(f"--repeats: expected at least {current}, as in the run, got {wanted}", WRONG_CALL)
    return wanted


def _run(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    write_report: Callable[[Compared], None],
    workers: Workers,
    budget: float | None,
    ship: str | None = None,
) -> ComparisonSummary:
    progress.show_profile(plan.dataset.profile, plan.dataset.warnings)
    run_writer.add_splits(plan.parts)
    try:
        compared = _compare_contenders(plan, run_writer, progress, workers, budget, ship)
        workers.executor.shutdown(wait=False)  # they end while the report is made
        write_report(compared)
    except KeyboardInterrupt as error:
        again = f"metricgrad compare --resume {shlex.quote(str(run_writer.path))}"
        raise UserError(f"interrupted; continue with: {again}", INTERRUPTED) from error
    finally:
        run_writer.temporary.clear()
    run_writer.add_json("summary.json", compared.summary)
    run_writer.add_text("model_card.md", write_card(compared.model, compared.summary))
    run_writer.finish(trust_own_types=bool(plan.options.own_contenders))
    return compared.summary


def _compare_contenders(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    workers: Workers,
    budget: float | None,
    ship: str | None,
) -> Compared:
    """Run what is unfinished, decide what to ship, and fit it on all rows."""
    options = plan.options
    dataset = plan.dataset
    outcomes, failed = _run_contenders(plan, run_writer, progress, workers, budget)
    read_scores = partial(read_moved_scores, run_writer, dataset, plan.parts)
    moves = resample_outcomes(dataset, plan.parts, outcomes, read_scores, options.seed)
    rows = rank_contenders(outcomes, moves, dataset.goal.metric, plan.contenders)
    if not any(row["feasible"] for row in rows):
        raise UserError(
            f"--subject-to: no contender can meet {options.subject_to!r} on the rows to tune on; relax it",
            NOTHING,
        )
    extensible = options.time is None
    about = Circumstances(
        dataset.metric_title, options.subject_to, len(plan.parts), extensible, options.abstain, options.confidence
    )
    verdict = write_verdict(rows, about, ship or run_writer.manifest.get("ship"), plan.contenders)
    run_writer.reopen(ship=ship)  # only now: a finished run stays one if nothing can be shipped
    run_writer.add_table("results.parquet", tabulate_outcomes(outcomes, dataset.goal.metric))
    progress.say(f"fitting {verdict['ship']} on all rows")
    all_rows = plan.make_tasks(run_writer, ALL_ROWS)
    model = fit_shipped_model(all_rows, verdict["ship"], verdict["rule"], workers, failed)
    run_writer.add_model(model)
    outcomes_of_shipped = [outcome for outcome in outcomes if outcome.contender == verdict["ship"]]
    importance = measure_importance(plan, run_writer, progress, workers, outcomes_of_shipped, verdict["rule"], model)
    plan = replace(plan, left_out=[*plan.left_out, *failed.items()])
    ship_of_user = run_writer.manifest.get("ship")
    summary = summarise_comparison(plan, outcomes, rows, verdict, model, importance, ship_of_user, budget)
    return Compared(plan, run_writer, outcomes, model, importance, summary)


def _run_contenders(
    plan: Plan, run_writer: RunWriter, progress: Progress, workers: Workers, budget: float | None
) -> tuple[list[Outcome], dict[str, str]]:
    """Run what is unfinished; return the outcomes of complete repeats, and failed contenders with the reason."""
    failed: dict[str, str] = {}
    repeats = _run_candidates(plan, run_writer, progress, workers, budget, failed)
    contenders = {name: contender for name, contender in plan.contenders.items() if name not in failed}
    if ENSEMBLE in contenders and (shortage := find_shortage(contenders.values())):
        failed[ENSEMBLE] = shortage
        del contenders[ENSEMBLE]
    saved = {(outcome.contender, outcome.repeat): outcome for outcome in run_writer.read_outcomes()}
    outcomes: dict[tuple[str, int], Outcome] = {}
    tasks = _yield_outcome_tasks(plan, run_writer, repeats, contenders, failed, saved, outcomes)
    with closing(run_tasks(workers, find_outcome, lambda: next(tasks, None))) as results:
        for task, result in results:
            if isinstance(result, Failure):
                _record_failure(result, failed)
            else:
                run_writer.add_outcome(result)
                outcomes[task.contender, task.repeat] = result
    complete = [name for name in contenders if name not in failed]
    return [outcomes[name, repeat] for name in complete for repeat in repeats], failed


def _record_failure(failure: Failure, failed: dict[str, str]) -> None:
    """Add a failure to those so far; a comparison cannot go on without its reference."""
    failed.setdefault(failure.contender, failure.why)
    if failure.contender == REFERENCE:
        raise UserError(f"{REFERENCE}, which the others are compared with, failed: {failure.why}", DATA)


def _run_candidates(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    workers: Workers,
    budget: float | None,
    failed: dict[str, str],
) -> list[int]:
    """Cross-fit the candidates that are not finished, as long as the budget lasts; return the complete repeats.

    ``failed``: gets the contenders that cannot be fitted, with the reason.
    """
    started: list[int] = []
    units = _yield_open_units(plan, run_writer, progress, budget, started, failed)
    with closing(run_candidates(units, workers)) as results:
        for _, result in results:
            if isinstance(result, Failure):
                progress.finish_unit(result)
                _record_failure(result, failed)
            else:
                run_writer.add_candidate(result)
                progress.finish_unit(result)
    return started


def _yield_open_units(
    plan: Plan,
    run_writer: RunWriter,
    progress: Progress,
    budget: float | None,
    started: list[int],
    failed: Collection[str],
) -> Iterator[CandidateTask]:
    """Yield the unfinished units, repeat by repeat, as long as the budget lasts; ``started`` gets the repeats."""
    repeats = len(plan.parts)
    beginning = time.monotonic()
    fitted_repeats = 0
    for repeat in range(repeats):
        minutes_spent = (time.monotonic() - beginning) / 60
        # The next repeat is expected to take as long as the mean of those so far.
        expected_minutes = minutes_spent + minutes_spent / max(fitted_repeats, 1)
        if budget is not None and repeat >= LEAST_REPEATS and expected_minutes > budget:
            progress.say(f"the budget of {budget:g} minutes allows {repeat} of {repeats} repeats")
            return
        tasks = plan.make_tasks(run_writer, repeat)
        names = [candidate.name for candidate in tasks.candidates]
        if repeat == 0:
            units = [(name, any_repeat) for name in names for any_repeat in range(repeats)]
            progress.start(len(units), sum(run_writer.has_candidate(*unit) for unit in units))
        started.append(repeat)
        unfinished = [name for name in names if not run_writer.has_candidate(name, repeat)]
        fitted_repeats += bool(unfinished)
        for task in tasks.yield_tasks(unfinished):
            if task.contender not in failed:
                yield task


def _yield_outcome_tasks(
    plan: Plan,
    run_writer: RunWriter,
    repeats: Sequence[int],
    contenders: Mapping[str, Contender],
    failed: Collection[str],
    saved: Mapping[tuple[str, int], Outcome],
    outcomes: dict[tuple[str, int], Outcome],
) -> Iterator[OutcomeTask]:
    """Yield the outcomes that are to be found; those that were saved of the same candidates go to ``outcomes``."""
    dataset = plan.dataset
    columns = dataset.goal.score_columns
    for repeat in repeats:
        tasks = plan.make_tasks(run_writer, repeat)
        left_out = tasks.split.left_out
        test = tasks.split.test
        targets = Shared.value(dataset.targets[left_out])
        test_targets = Shared.value(dataset.targets[test])
        for contender in contenders:
            names = tasks.list_candidates(contender, failed)
            before = saved.get((contender, repeat))
            if before is not None and list(before.members) == names:
                outcomes[contender, repeat] = before
                continue
            records = {name: run_writer.read_record(name, repeat) for name in names}
            out_of_fold = {name: run_writer.read_out_of_fold(name, repeat, len(left_out), columns) for name in names}
            scores = {name: run_writer.read_candidate_scores(name, repeat, len(test), columns) for name in names}
            yield OutcomeTask(
                contender=contender,
                repeat=repeat,
                goal=dataset.goal,
                also=tuple(dataset.also),
                seed=tasks.seeds.selection,
                train_rows=len(tasks.split.train),
                seconds={name: record.seconds for name, record in records.items()},
                histories={name: record.history for name, record in records.items()},
                out_of_fold=Shared.value(out_of_fold),
                targets=targets,
                scores=Shared.value(scores),
                test_targets=test_targets,
                costs=dataset.take_costs(left_out),
                test_costs=dataset.take_costs(test),
            )
