"""``metricgrad train``: one contender on all rows, without a comparison."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.comparison.contenders.scorers import Ensemble
from metricgrad.comparison.contenders.table import CONTENDERS
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.model_card import write_card
from metricgrad.comparison.option_texts import write_toml
from metricgrad.comparison.options import Options, choose_effort, make_config, prepare_dataset
from metricgrad.comparison.run_writer import Workspace
from metricgrad.comparison.shipping import fit_shipped_model
from metricgrad.messages import suggest

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Rule
    from metricgrad.comparison.run_comparison import Progress
    from metricgrad.comparison.shipped_model import Model


def train(
    options: Options,
    contender: str,
    rule: Rule,
    out: Path,
    progress: Progress,
    *,
    force: bool = False,
    keep: bool = False,
) -> dict[str, Any]:
    """Fit a contender, write a run folder for ``predict``, and return its summary.

    ``keep``: copy the data into the run folder, since they are in no file that stays.

    The reported value is that on the held-out rows, on which training stopped and the rule was tuned: it is optimistic.
    """
    if contender not in CONTENDERS:
        raise UserError(f"--contender: unknown {contender!r}; {suggest(contender, list(CONTENDERS))}", WRONG_CALL)
    dataset = prepare_dataset(options)
    obstacle = CONTENDERS[contender].obstacle(dataset.goal)
    if obstacle is not None:
        raise UserError(f"--contender {contender}: {obstacle}", WRONG_CALL)
    split = dataset.split_all_rows(options.seed)
    dataset = replace(dataset, warnings=[*dataset.warnings, *dataset.describe_left_out([split])])
    progress.show_profile(dataset.profile, dataset.warnings)
    config = make_config(options, keep)
    with Workspace.create(out, "train", config, force) as space:
        space.add_text("config.toml", write_toml("train", {**config, "contender": contender, "rule": rule}))
        if keep:
            space.keep_data(Path(options.data))
        model = fit_shipped_model(dataset, contender, rule, choose_effort(options, dataset), options.seed)
        space.add_model(model)
        summary = {
            "contender": contender,
            "rule": model.rule.describe(),
            **model.about,
            **({"members": members} if (members := _list_members(model)) else {}),
            "data": {"file": Path(options.data).name, "rows": len(dataset.targets), "task": dataset.goal.task},
            "profile": dataset.profile,
            "warnings": dataset.warnings,
        }
        space.add_json("summary.json", summary)
        space.add_text("model_card.md", write_card(model, summary))
        space.finish()
    return summary


def _list_members(model: Model) -> dict[str, float]:
    """Return the members of an ensemble with their weights."""
    scorer = model.scorer
    return {member.name: member.weight for member in scorer.members} if isinstance(scorer, Ensemble) else {}
