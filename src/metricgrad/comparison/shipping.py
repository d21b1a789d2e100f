"""The model to ship: a contender cross-fitted on all rows in the same way as in the repeats.

Its rule is tuned on the out-of-fold scores of all rows, each scored by a model that was not trained on it.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from metricgrad.comparison import protocol
from metricgrad.comparison.candidate_runs import CandidateRun, Failure, run_candidates
from metricgrad.comparison.contender_outcomes import weigh_candidates
from metricgrad.comparison.errors import DATA, NOTHING, UserError
from metricgrad.comparison.plateaus import list_plateaus
from metricgrad.comparison.protocol import name_class
from metricgrad.comparison.shipped_model import ShippedModel
from metricgrad.comparison.trained_rows import TrainedRows
from metricgrad.core.inputs import as_scored_batch
from metricgrad.decisions.class_scores import ClassScores
from metricgrad.decisions.problem import InfeasibleError
from metricgrad.estimators.cross_fitting import Member
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier
from metricgrad.training.training_loop import one_thread

if TYPE_CHECKING:
    from collections.abc import Collection

    from metricgrad.comparison.candidate_tasks import SplitTasks
    from metricgrad.comparison.goal import Goal
    from metricgrad.comparison.options import Dataset, GuaranteeRows
    from metricgrad.comparison.outcomes import Decision
    from metricgrad.comparison.workers import Workers


def fit_shipped_model(
    tasks: SplitTasks, contender: str, kind: str, workers: Workers, failed: Collection[str] = ()
) -> ShippedModel:
    """Fit a contender on all rows, and return it with its rule.

    ``tasks``: of the split of all rows. ``kind``: of the rule, "fixed" or "tuned". ``failed``: contenders
    that could not be fitted in the repeats, which an ensemble does without.
    """
    dataset = tasks.dataset
    goal = dataset.goal
    runs = _run_all(tasks, tasks.list_candidates(contender, failed), workers)
    targets = dataset.targets[tasks.split.left_out]
    out_of_fold = {name: run.out_of_fold for name, run in runs.items()}
    with one_thread():
        costs = dataset.take_costs(tasks.split.left_out)
        weights, mean = weigh_candidates(contender, goal, out_of_fold, targets, tasks.seeds.selection, costs)
        moved = dataset.move_scores(mean, tasks.split.left_out)
        decision = protocol.make_rules(goal, moved, targets, costs)[kind]
    tuned_on = f"the out-of-fold scores of {len(targets)} rows"
    if not decision.feasible:
        raise UserError(f"--subject-to: {contender} cannot meet {goal.subject_to!r} on {tuned_on}; relax it", NOTHING)
    about = {
        **goal.describe(),
        "kind": kind,
        "tuned_on": tuned_on,
        "value_there": decision.value,
        "plateaus": list_plateaus(decision.plateau, goal.score_columns or 1),
        **({"coverage": decision.coverage} if goal.abstain else {}),
    }
    estimator = _assemble(dataset, tasks, weights, runs, decision)
    train = tasks.split.train
    trained_rows = TrainedRows.of(dataset.features.iloc[train], dataset.targets[train])
    class_scores = ClassScores.of(as_scored_batch(goal.task, mean, targets), goal.task)
    model = ShippedModel(dataset.schema, estimator, contender, decision.rule, about, trained_rows, class_scores)
    if dataset.guarantee is not None:
        _tune_on_guarantee_rows(model, goal, dataset.guarantee)
    return model


def _tune_on_guarantee_rows(model: ShippedModel, goal: Goal, held_out: GuaranteeRows) -> None:
    """Give the model the rule that is best on rows held out for it, with what it guarantees on new rows."""
    scores = model.scores(held_out.frame)
    try:
        tuning = protocol.tune_rule(goal, scores, held_out.targets, confidence=held_out.confidence)
    except InfeasibleError as error:
        text = name_class(str(error), model.schema).replace("subject_to:", "--subject-to:")
        rows = f"the {len(held_out.targets)} rows held out for the guarantee, a quarter of all"
        raise UserError(f"{text} (these are {rows})", NOTHING) from error
    model.rule = tuning.rule
    model.estimator.rule_ = tuning.rule
    model.about |= {
        "kind": "tuned",
        "tuned_on": f"{len(held_out.targets)} rows held out for the guarantee",
        "value_there": tuning.value,
        "plateaus": list_plateaus(tuning.plateau, goal.score_columns or 1),
        "guarantees": [one.describe(model.schema.short_names) for one in tuning.guarantees],
        **({"coverage": tuning.coverage} if goal.abstain else {}),
    }


def _run_all(tasks: SplitTasks, wanted: list[str], workers: Workers) -> dict[str, CandidateRun]:
    """Cross-fit candidates on all rows."""
    found: dict[str, CandidateRun] = {}
    with closing(run_candidates(tasks.yield_tasks(wanted), workers)) as results:
        for _, result in results:
            if isinstance(result, Failure):
                raise UserError(f"{result.contender} cannot be fitted on all rows: {result.why}", DATA)
            found[result.candidate] = result
    return {name: found[name] for name in wanted}


def _assemble(
    dataset: Dataset,
    tasks: SplitTasks,
    weights: dict[str, float],
    runs: dict[str, CandidateRun],
    decision: Decision,
) -> MetricEnsembleClassifier:
    """Return the estimator that ``MetricEnsembleClassifier.fit`` would be with these candidates and folds."""
    goal = dataset.goal
    model = MetricEnsembleClassifier(
        goal.metric,
        average=goal.average,
        subject_to=goal.subject_to,
        abstain=goal.abstain,
        abstain_label=goal.abstain_label,
        cv=len(tasks.split.folds),
        random_state=tasks.random_state,
    )
    views = {candidate.name: candidate.view for candidate in tasks.candidates}
    model.labels_ = goal.labels
    model.classes_ = model.labels_.classes
    model.encoder_ = tasks.encoder
    model.feature_names_in_ = np.asarray(dataset.schema.inputs, dtype=object)
    model.n_features_in_ = len(dataset.schema.inputs)
    model.weights_ = weights
    model.select_by_ = None
    model.tuning_, model.rule_ = None, decision.rule
    model.members_ = [Member(name, weight, views[name], runs[name].models) for name, weight in weights.items()]
    model._candidates_table = [
        {"name": name, "weight": weights.get(name, 0.0), "value": float("nan"), "seconds": run.seconds}
        for name, run in runs.items()
    ]
    return model
