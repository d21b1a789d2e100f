"""The leaderboard: means over repeats, their intervals, and what to ship.

Repeats share rows, so their spread alone is too optimistic. Intervals and p-values are those of the corrected resampled
t-test [nadeau2003]: the variance over J repeats is multiplied by (1/J + test rows / training rows). The p-values that
decide the verdict are adjusted by Holm's method [holm1979].
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING

from scipy import stats

from metricgrad.app.contenders.table import CONTENDERS, REFERENCE
from metricgrad.app.report.payload import REFERENCES, Difference, Row, Rule, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.app.study.protocol import Outcome

LEVEL = 0.05
"""The level of the tests: a gain with a smaller p-value is called real."""

RULES: tuple[Rule, ...] = ("fixed", "tuned")


class Standing(Row):
    """A row of the leaderboard, with the fields that only the machine-readable output has."""

    held: int  # the number of repeats in which the constraint was met on the test rows


@dataclass(frozen=True)
class MeanEstimate:
    """A mean over repeats, its 95 % interval, and the two-sided p-value of the hypothesis that it is zero."""

    value: float
    low: float | None
    high: float | None
    p: float | None


def estimate_mean(values: Sequence[float], ratio: float) -> MeanEstimate:
    """Return the mean over repeats that share rows; ``ratio`` is test rows / training rows.

    >>> found = estimate_mean([0.02, 0.03, 0.01, 0.02], ratio=1 / 3)
    >>> f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}), p = {found.p:.3f}"
    '0.020 (0.000 to 0.040), p = 0.049'
    """
    mean, repeats = fmean(values), len(values)
    if repeats < 2:
        return MeanEstimate(mean, None, None, None)
    error = (variance(values) * (1 / repeats + ratio)) ** 0.5
    if error == 0:
        return MeanEstimate(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    half = float(stats.t.ppf(0.975, repeats - 1)) * error
    return MeanEstimate(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, repeats - 1)))


def adjust_by_holm(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple comparisons.

    >>> adjust_by_holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        worst = max(worst, min(1.0, p[i] * (len(p) - rank)))
        adjusted[i] = worst
    return adjusted


def rank_contenders(outcomes: Sequence[Outcome]) -> list[Standing]:
    """Return a row for each contender and rule, best first; the reference must be among the contenders.

    Rows that do not meet the constraint come last.
    """
    found = {name: sorted((o for o in outcomes if o.contender == name), key=lambda o: o.repeat) for name in CONTENDERS}
    found = {name: mine for name, mine in found.items() if mine}
    ratio = fmean(o.test_rows / o.train_rows for o in found[REFERENCE])
    values = {(name, rule): [getattr(o, rule).value for o in mine] for name, mine in found.items() for rule in RULES}
    rows: list[Standing] = []
    for (name, rule), mine in values.items():
        mean = estimate_mean(mine, ratio)
        decisions = [getattr(o, rule) for o in found[name]]
        against: dict[str, Difference] = {}
        for reference, other in zip(REFERENCES, RULES, strict=True):
            if (name, rule) != (REFERENCE, other):
                gain = estimate_mean([a - b for a, b in zip(mine, values[REFERENCE, other], strict=True)], ratio)
                against[reference] = {"difference": gain.value, "low": gain.low, "high": gain.high, "p": gain.p}
        others = {key: [d.others[key] for d in decisions] for key in decisions[0].others}
        rows.append(
            {
                "contender": name,
                "rule": rule,
                "family": CONTENDERS[name].family,
                "value": mean.value,
                "low": mean.low,
                "high": mean.high,
                "folds": mine,
                "against": against,
                "others": {key: fmean(each) for key, each in others.items() if None not in each},
                "seconds": sum(o.seconds for o in found[name]),
                "feasible": all(d.feasible for d in decisions),
                "held": sum(d.met for d in decisions),
            }
        )
    # The sort is stable: among equals the simpler contender, earlier in the table, and its fixed rule come first.
    return sorted(rows, key=lambda row: (not row["feasible"], -fmean(row["folds"])))


def write_verdict(rows: Sequence[Standing], metric: str) -> Verdict:
    """Return what to ship, and whether its gain over the reference is real.

    The best mean is shipped if it is significantly better than the better of the two references (p below 5 % after
    Holm's adjustment over all rows); otherwise that reference, for simplicity. Rows that do not meet the constraint
    are not shipped; if neither reference meets it, the best row is shipped.
    """
    feasible = [row for row in rows if row["feasible"]]
    if not feasible:
        raise ValueError("rows: expected one that meets the constraint, got none")
    best = feasible[0]
    references = [row for row in feasible if row["contender"] == REFERENCE]
    if not references:
        headline = (
            f"Ship {_format_name(best)}: {metric} {_format_value(best)}; cross-entropy cannot meet the constraint."
        )
        return _make_verdict(headline, [], best, True)
    rival = references[0]  # the better one comes first
    if best is rival:
        return _make_verdict(
            f"Ship {_format_name(best)}: nothing here beats it ({metric} {_format_value(best)}).",
            [_describe_runner_up(feasible)],
            best,
            False,
        )
    reference = REFERENCES[RULES.index(rival["rule"])]
    others = [row for row in feasible if row["contender"] != REFERENCE]
    gain = best["against"][reference]
    adjusted = dict(
        zip(map(id, others), adjust_by_holm([_get_p(row["against"][reference]) for row in others]), strict=True)
    )
    real = adjusted[id(best)] < LEVEL
    evidence = f"{gain['difference']:+.3f}{_format_interval(gain)}, adjusted p = {adjusted[id(best)]:.2g}"
    if real:
        headline = f"Ship {_format_name(best)}: its gain over {reference} is real."
        return _make_verdict(
            headline, [f"{metric} {_format_value(best)}: {evidence}.", _describe_loss_gain(feasible, best)], best, True
        )
    headline = f"Ship {_format_name(rival)}: no gain over it is proven."
    text = [f"{metric} {_format_value(rival)}; the best mean, {_format_name(best)}, is {evidence}."]
    return _make_verdict(headline, [*text, _describe_tuning_gain(rows, rival)], rival, False)


def _make_verdict(headline: str, text: list[str], row: Standing, real: bool) -> Verdict:
    return {
        "headline": headline,
        "text": " ".join(filter(None, text)),
        "ship": row["contender"],
        "rule": row["rule"],
        "gain_is_real": real,
    }


def _describe_runner_up(feasible: list[Standing]) -> str:
    second = next((row for row in feasible if row["contender"] != REFERENCE), None)
    return "" if second is None else f"Next is {_format_name(second)} with {_format_value(second)}."


def _describe_tuning_gain(rows: Sequence[Standing], rival: Standing) -> str:
    """Describe what tuning the threshold alone gains."""
    if rival["rule"] != "tuned":
        return ""
    gain = rival["against"][REFERENCES[0]]
    word = "real" if _get_p(gain) < LEVEL else "not proven either"
    return f"Tuning its threshold gains {gain['difference']:+.3f}{_format_interval(gain)} over 0.5, which is {word}."


def _describe_loss_gain(feasible: list[Standing], best: Standing) -> str:
    """Describe, if trees won, what training networks on the metric gains."""
    trained = [row for row in feasible if row["family"] == "network" and CONTENDERS[row["contender"]].on_metric]
    if best["family"] == "network" or not trained or REFERENCES[1] not in trained[0]["against"]:
        return ""
    gain = trained[0]["against"][REFERENCES[1]]
    word = "proven" if _get_p(gain) < LEVEL and gain["difference"] > 0 else "not proven"
    return (
        f"Among networks, training on the metric ({_format_name(trained[0])}) gains "
        f"{gain['difference']:+.3f}{_format_interval(gain)} over {REFERENCES[1]}: {word}."
    )


def _format_name(row: Row) -> str:
    return f"{row['contender']}, {row['rule']} rule"


def _format_value(row: Row) -> str:
    return f"{row['value']:.3f}" + ("" if row["low"] is None else f" ({row['low']:.3f} to {row['high']:.3f})")


def _format_interval(gain: Difference) -> str:
    return "" if gain["low"] is None else f" (95 % interval {gain['low']:+.3f} to {gain['high']:+.3f})"


def _get_p(gain: Difference) -> float:
    return 1.0 if gain["p"] is None else gain["p"]
