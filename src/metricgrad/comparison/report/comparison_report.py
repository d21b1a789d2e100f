"""The report of ``compare``: from what the comparison found to the page in the run folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from metricgrad.comparison.errors import writing
from metricgrad.comparison.leaderboard import read_moved_scores
from metricgrad.comparison.report import page
from metricgrad.comparison.report.formulas import add_formulas
from metricgrad.comparison.report.section_inputs import Predictions, ShippedModelInputs
from metricgrad.comparison.report.sections import SECTIONS
from metricgrad.estimators.columns.column import Column, describe_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.options import Dataset
    from metricgrad.comparison.outcomes import Outcome, RuleKind
    from metricgrad.comparison.report.payload import Details, Payload
    from metricgrad.comparison.run_comparison import Compared
    from metricgrad.comparison.shipped_model import ShippedModel


def write_comparison_report(compared: Compared) -> None:
    """Write ``report.html`` into the run folder."""
    payload = make_payload(compared)
    with writing(compared.run_writer.path):
        page.write(payload, compared.run_writer.path / "report.html")


def make_payload(compared: Compared) -> Payload:
    """Return what the report shows."""
    ship, kind = compared.summary["verdict"]["ship"], compared.summary["verdict"]["rule"]
    by_contender: dict[str, list[Outcome]] = {}
    for outcome in sorted(compared.outcomes, key=lambda outcome: outcome.repeat):
        by_contender.setdefault(outcome.contender, []).append(outcome)
    tested = predict_test_rows(compared, by_contender[ship], kind, compared.model)
    details = {}
    for name, outcomes in by_contender.items():
        details[name] = measure_details(tested if name == ship else predict_test_rows(compared, outcomes, "tuned"))
    study = _measure_study(compared, tested)
    payload = cast("Payload", {**compared.summary, "details": details, "study": study})
    add_formulas(payload)
    return payload


def predict_test_rows(
    compared: Compared, outcomes: Sequence[Outcome], kind: RuleKind, shipped: ShippedModel | None = None
) -> Predictions:
    """Return one contender's predictions on the test rows of all repeats, by its "fixed" or "tuned" rules.

    ``outcomes``: those of the contender. ``shipped``: the shipped model, if it is of this contender.
    """
    goal, table = compared.plan.dataset.goal, compared.plan.dataset.table
    decisions = [getattr(outcome, kind) for outcome in outcomes]
    rules = [decision.rule for decision in decisions]
    dataset, parts = compared.plan.dataset, compared.plan.parts
    scores = [read_moved_scores(compared.run_writer, dataset, parts, outcome) for outcome in outcomes]
    rows = [compared.plan.parts[outcome.repeat].test for outcome in outcomes]
    decided = [np.asarray(rule(some)).astype(int) for rule, some in zip(rules, scores, strict=True)]
    return Predictions(
        contender=outcomes[0].contender,
        goal=goal,
        table=table,
        rows=np.concatenate(rows),
        scores=np.concatenate(scores),
        targets=np.concatenate([table.targets[some] for some in rows]),
        decided=np.concatenate(decided),
        rules=rules,
        plateaus=[decision.plateau for decision in decisions],
        history=outcomes[0].history,
        shipped=None if shipped is None else shipped.rule,
        shipped_plateaus=() if shipped is None else shipped.describe()["plateaus"],
        costs=dataset.take_costs(np.concatenate(rows)),
        probabilities=None
        if dataset.costs is None
        else np.concatenate([compared.run_writer.read_outcome_scores(outcome, None) for outcome in outcomes]),
    )


def measure_details(predictions: Predictions) -> Details:
    """Return what the sections show of one contender."""
    return {key: value for section in SECTIONS for key, value in section.measure(predictions).items()}


def _measure_study(compared: Compared, tested: Predictions) -> dict[str, Any]:
    """Return what sections measure once; ``tested``: the test rows as the shipped kind of rule decides them."""
    dataset = compared.plan.dataset
    shipped = ShippedModelInputs(
        goal=dataset.goal,
        table=dataset.table,
        held=dataset.split_all_rows(compared.plan.options).left_out,
        score=compared.model.scores,
        rule=compared.model.rule,
        columns=dataset.schema.columns,
        others=_describe_others(dataset),
        important=[one["column"] for one in compared.importance],
        tested=tested,
    )
    return {key: value for section in SECTIONS for key, value in section.measure_study(shipped).items()}


def _describe_others(dataset: Dataset) -> list[Column]:
    """Return the columns that are no features, but have values that rows share."""
    found = (describe_column(name, dataset.table.frame[name]) for name in dataset.schema.dropped)
    return [column for column in found if isinstance(column, Column)]
