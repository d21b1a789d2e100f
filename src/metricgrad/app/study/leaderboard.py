"""The leaderboard: means over repeats, how sure they are, and what to ship.

Repeats share rows, so their spread alone flatters. Intervals and p-values are those of the corrected resampled t-test
[nadeau2003]: the variance of J repeats counts (1/J + test rows / training rows) times. Of the p-values against one
reference those that decide are adjusted by Holm's method [holm1979].
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

SURE = 0.05
"""The level of the tests: a gain is called real below it."""

RULES: tuple[Rule, ...] = ("fixed", "tuned")


class Standing(Row):
    """A row of the leaderboard with what only the machine-readable output has."""

    held: int  # in how many repeats the constraint held on test rows


@dataclass(frozen=True)
class Mean:
    """A mean over repeats with its 95 % interval, and the two-sided p-value that it is zero."""

    value: float
    low: float | None
    high: float | None
    p: float | None


def corrected(values: Sequence[float], ratio: float) -> Mean:
    """Return the mean of repeats that share rows; ``ratio`` is that of test to training rows.

    >>> found = corrected([0.02, 0.03, 0.01, 0.02], ratio=1 / 3)
    >>> f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f}), p = {found.p:.3f}"
    '0.020 (0.000 to 0.040), p = 0.049'
    """
    mean, repeats = fmean(values), len(values)
    if repeats < 2:
        return Mean(mean, None, None, None)
    error = (variance(values) * (1 / repeats + ratio)) ** 0.5
    if error == 0:
        return Mean(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    half = float(stats.t.ppf(0.975, repeats - 1)) * error
    return Mean(mean, mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, repeats - 1)))


def holm(p: Sequence[float]) -> list[float]:
    """Return p-values adjusted for being several.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, worst = [0.0] * len(p), 0.0
    for rank, i in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        worst = max(worst, min(1.0, p[i] * (len(p) - rank)))
        adjusted[i] = worst
    return adjusted


def board(outcomes: Sequence[Outcome]) -> list[Standing]:
    """Return a row for each contender and rule, the best first; the reference must be among the contenders.

    Rows that cannot meet the constraint come last.
    """
    found = {name: sorted((o for o in outcomes if o.contender == name), key=lambda o: o.repeat) for name in CONTENDERS}
    found = {name: mine for name, mine in found.items() if mine}
    ratio = fmean(o.test_rows / o.train_rows for o in found[REFERENCE])
    values = {(name, rule): [getattr(o, rule).value for o in mine] for name, mine in found.items() for rule in RULES}
    rows: list[Standing] = []
    for (name, rule), mine in values.items():
        mean = corrected(mine, ratio)
        decisions = [getattr(o, rule) for o in found[name]]
        against: dict[str, Difference] = {}
        for reference, other in zip(REFERENCES, RULES, strict=True):
            if (name, rule) != (REFERENCE, other):
                gap = corrected([a - b for a, b in zip(mine, values[REFERENCE, other], strict=True)], ratio)
                against[reference] = {"difference": gap.value, "low": gap.low, "high": gap.high, "p": gap.p}
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
                "held": sum(d.held for d in decisions),
            }
        )
    # A stable sort: of equals the one that is simpler, named earlier in the table, with the fixed rule first.
    return sorted(rows, key=lambda row: (not row["feasible"], -fmean(row["folds"])))


def verdict(rows: Sequence[Standing], metric: str) -> Verdict:
    """Say what to ship, and whether its gain over cross-entropy with a tuned cut is real.

    The best mean is shipped if it is surely better than the better of the two references (p below 5 % after Holm's
    adjustment over all rows); otherwise that reference, for simplicity. Rows that cannot meet the constraint are not
    shipped; if the references cannot, the best is.
    """
    able = [row for row in rows if row["feasible"]]
    if not able:
        raise ValueError("rows: expected one that meets the constraint, got none")
    best = able[0]
    references = [row for row in able if row["contender"] == REFERENCE]
    if not references:
        headline = f"Ship {_name(best)}: {metric} {_value(best)}; cross-entropy cannot meet the constraint."
        return _verdict(headline, [], best, True)
    rival = references[0]  # the better one comes first
    if best is rival:
        return _verdict(
            f"Ship {_name(best)}: nothing here beats it ({metric} {_value(best)}).", [_runner_up(able)], best, False
        )
    reference = REFERENCES[RULES.index(rival["rule"])]
    others = [row for row in able if row["contender"] != REFERENCE]
    gap = best["against"][reference]
    adjusted = dict(zip(map(id, others), holm([_p(row["against"][reference]) for row in others]), strict=True))
    real = adjusted[id(best)] < SURE
    sure = f"{gap['difference']:+.3f}{_range(gap)}, adjusted p = {adjusted[id(best)]:.2g}"
    if real:
        headline = f"Ship {_name(best)}: its gain over {reference} is real."
        return _verdict(headline, [f"{metric} {_value(best)}: {sure}.", _loss_alone(able, best)], best, True)
    headline = f"Ship {_name(rival)}: no gain over it is proven."
    text = [f"{metric} {_value(rival)}; the best mean, {_name(best)}, is {sure}."]
    return _verdict(headline, [*text, _tuning_alone(rows, rival)], rival, False)


def _verdict(headline: str, text: list[str], row: Standing, real: bool) -> Verdict:
    return {
        "headline": headline,
        "text": " ".join(filter(None, text)),
        "ship": row["contender"],
        "rule": row["rule"],
        "gain_is_real": real,
    }


def _runner_up(able: list[Standing]) -> str:
    second = next((row for row in able if row["contender"] != REFERENCE), None)
    return "" if second is None else f"Next is {_name(second)} with {_value(second)}."


def _tuning_alone(rows: Sequence[Standing], rival: Standing) -> str:
    """Return what tuning the cut alone is worth."""
    if rival["rule"] != "tuned":
        return ""
    gap = rival["against"][REFERENCES[0]]
    word = "real" if _p(gap) < SURE else "not proven either"
    return f"Tuning its cut gains {gap['difference']:+.3f}{_range(gap)} over 0.5, which is {word}."


def _loss_alone(able: list[Standing], best: Standing) -> str:
    """Return, if trees won, what training networks on the metric is worth."""
    trained = [row for row in able if row["family"] == "network" and CONTENDERS[row["contender"]].on_metric]
    if best["family"] == "network" or not trained or REFERENCES[1] not in trained[0]["against"]:
        return ""
    gap = trained[0]["against"][REFERENCES[1]]
    word = "proven" if _p(gap) < SURE and gap["difference"] > 0 else "not proven"
    return (
        f"Among networks, training on the metric ({_name(trained[0])}) makes {gap['difference']:+.3f}{_range(gap)} "
        f"against {REFERENCES[1]}: {word}."
    )


def _name(row: Row) -> str:
    return f"{row['contender']}, {row['rule']} rule"


def _value(row: Row) -> str:
    return f"{row['value']:.3f}" + ("" if row["low"] is None else f" ({row['low']:.3f} to {row['high']:.3f})")


def _range(gap: Difference) -> str:
    return "" if gap["low"] is None else f" (95 % interval {gap['low']:+.3f} to {gap['high']:+.3f})"


def _p(gap: Difference) -> float:
    return 1.0 if gap["p"] is None else gap["p"]
