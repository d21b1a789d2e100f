"""``metricgrad train``: one contender on all rows, without a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.comparison.candidate_runs import ALL_ROWS, make_seed
from metricgrad.comparison.candidate_tasks import SplitTasks
from metricgrad.comparison.contenders import CONTENDERS, ENSEMBLE
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.model_card import write_card
from metricgrad.comparison.option_texts import write_toml
from metricgrad.comparison.options import Options, make_config, prepare_dataset
from metricgrad.comparison.run_writer import RunWriter
from metricgrad.comparison.shipping import fit_shipped_model
from metricgrad.comparison.workers import open_workers
from metricgrad.messages import suggest

if TYPE_CHECKING:
    from metricgrad.comparison.outcomes import RuleKind
    from metricgrad.comparison.run_comparison import Progress


def train(
    options: Options,
    contender: str,
    rule: RuleKind,
    out: Path,
    progress: Progress,
    *,
    jobs: int = 1,
    force: bool = False,
    keep: bool = False,
) -> dict[str, Any]:
    """Fit a contender, write a run folder for ``predict``, and return its summary.

    ``jobs``: the number of processes. ``keep``: copy the data into the run folder, since no file of them stays.

    The reported value is that on the out-of-fold scores on which the rule was tuned: it is slightly optimistic.
    """
    if contender not in CONTENDERS:
        raise UserError(f"--contender: unknown {contender!r}; {suggest(contender, list(CONTENDERS))}", WRONG_CALL)
    dataset = prepare_dataset(options)
    obstacle = CONTENDERS[contender].find_obstacle(dataset.goal)
    if obstacle is not None:
        raise UserError(f"--contender {contender}: {obstacle}", WRONG_CALL)
    split = dataset.split_all_rows(options)
    dataset = replace(dataset, warnings=[*dataset.warnings, *dataset.describe_left_out([split])])
    progress.show_profile(dataset.profile, dataset.warnings)
    config = make_config(options, keep)
    with RunWriter.create(out, "train", config, force) as run_writer:
        run_writer.add_text("config.toml", write_toml("train", {**config, "contender": contender, "rule": rule}))
        if keep:
            run_writer.keep_data(Path(options.data))
        names = [contender] if contender != ENSEMBLE else [one.name for one in CONTENDERS.values() if one.member]
        able = {name: CONTENDERS[name] for name in names if CONTENDERS[name].find_obstacle(dataset.goal) is None}
        able = {name: one for name, one in able.items() if name == contender or not one.on_request}
        state = make_seed(options.seed, ALL_ROWS)
        tasks = SplitTasks(dataset, able, split, ALL_ROWS, state, options.quick, run_writer.temporary)
        with open_workers(jobs, None, "train again") as workers:
            try:
                model = fit_shipped_model(tasks, contender, rule, workers)
            finally:
                run_writer.temporary.clear()
        run_writer.add_model(model)
        summary = {
            "contender": contender,
            "rule": model.rule.describe(),
            **model.about,
            **({"members": model.members} if contender == ENSEMBLE else {}),
            "data": {"file": Path(options.data).name, "rows": len(dataset.targets), "task": dataset.goal.task},
            "profile": dataset.profile,
            "warnings": dataset.warnings,
        }
        run_writer.add_json("summary.json", summary)
        run_writer.add_text("model_card.md", write_card(model, summary))
        run_writer.finish()
    return summary
