"""The verdict: the best mean is shipped; beside it stands whether its gain over cross-entropy is proven.

It makes two claims, a gain over cross-entropy with its fixed rule and over cross-entropy tuned, with the p-values and
intervals of the leaderboard, which are adjusted for both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NotRequired, TypedDict

from metricgrad.comparison.contenders import CONTENDERS, REFERENCE
from metricgrad.comparison.errors import NOTHING, WRONG_CALL, UserError
from metricgrad.comparison.leaderboard import REFERENCES, Difference, LeaderboardRow
from metricgrad.comparison.outcomes import RULE_KINDS, RuleKind
from metricgrad.comparison.uncertainty import LEVEL
from metricgrad.messages import suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from metricgrad.comparison.contenders import Contender


class Claim(TypedDict):
    """What a verdict says about the gain of the shipped row over a reference."""

    difference: float
    low: float | None
    high: float | None
    p: float  # and the interval: those of ``LeaderboardRow["against"]``
    proven: bool
    repeats_needed: int | None  # about how many repeats would prove it


class VerdictSummary(TypedDict):
    """What to ship, and whether its gain is proven."""

    headline: str  # one short sentence, set in large type
    text: str  # two or three more
    notes: NotRequired[list[str]]  # those sentences of the text whose numbers are not in the claims or the leaderboard
    ship: str  # a contender
    rule: RuleKind
    gain_is_real: bool  # proven over the better of the two references
    claims: NotRequired[dict[str, Claim]]  # by REFERENCES, those that could be shipped as well
    chosen: NotRequired[bool]  # whether the user overruled the best mean


@dataclass(frozen=True)
class Circumstances:
    """What a verdict must mention.

    ``name``: of the metric, for people. ``subject_to``: the constraint. ``planned``: the repeats that were asked for.
    ``extensible``: whether more repeats can be added. ``abstain``: whether rows may be left undecided.
    ``confidence``: that of the shipped rule in its constraint.
    """

    name: str
    subject_to: str | None = None
    planned: int | None = None
    extensible: bool = True
    abstain: bool = False
    confidence: float | None = None


def write_verdict(
    rows: Sequence[LeaderboardRow],
    about: Circumstances,
    ship: str | None = None,
    contenders: Mapping[str, Contender] = CONTENDERS,
) -> VerdictSummary:
    """Return what to ship, and whether its gains over the references are proven.

    The best mean is shipped, among equals the simplest, or ``ship``: a contender, with ", fixed" for its fixed rule.
    Rows that do not meet the constraint are not shipped.
    """
    feasible = [row for row in rows if row["feasible"]]
    if not feasible:
        raise ValueError("rows: expected one that meets the constraint, got none")
    best = feasible[0]
    shipped = best if ship is None else _find_row(rows, ship, about)
    references = {
        reference: row
        for reference, rule in zip(REFERENCES, RULE_KINDS, strict=True)
        for row in feasible
        if (row["contender"], row["rule"]) == (REFERENCE, rule)
    }
    claims = _make_claims(shipped, references)
    # Of the two references, the better one is what has to be beaten.
    rival = max(references, key=lambda name: references[name]["value"] or 0.0) if references else None
    proven = rival is None or (rival in claims and claims[rival]["proven"])
    return {
        "headline": _write_headline(shipped, best, rival, proven, about),
        "text": _write_text(contenders, rows, shipped, claims, about),
        "notes": _write_notes(contenders, rows, shipped, claims, about),
        "ship": shipped["contender"],
        "rule": shipped["rule"],
        "gain_is_real": proven and shipped["contender"] != REFERENCE,
        "claims": claims,
        "chosen": shipped is not best,
    }


def split_ship(ship: str) -> tuple[str, str]:
    """Return the contender and the rule that ``--ship`` names.

    >>> split_ship("hybrid"), split_ship("xgboost, fixed")
    (('hybrid', 'tuned'), ('xgboost', 'fixed'))
    """
    name, _, rule = (part.strip() for part in ship.rpartition(","))
    if rule not in RULE_KINDS:
        name, rule = ship.strip(), "tuned"
    return name, rule


def check_ship(ship: str | None, names: Sequence[str]) -> None:
    """Raise unless the contender that ``--ship`` names is compared."""
    if ship is not None and split_ship(ship)[0] not in names:
        name = split_ship(ship)[0]
        raise UserError(f"--ship: expected a contender of this run, got {name!r}; {suggest(name, names)}", WRONG_CALL)


def _find_row(rows: Sequence[LeaderboardRow], ship: str, about: Circumstances) -> LeaderboardRow:
    check_ship(ship, [row["contender"] for row in rows])
    found = next(row for row in rows if (row["contender"], row["rule"]) == split_ship(ship))
    if not found["feasible"]:
        raise UserError(f"--ship: {_format_name(found)} cannot meet {about.subject_to!r}; choose another", NOTHING)
    return found


def _make_claims(shipped: LeaderboardRow, references: dict[str, LeaderboardRow]) -> dict[str, Claim]:
    """Return what is claimed of the shipped row: its difference to each reference that could be shipped as well."""
    gains = {name: shipped["against"][name] for name in REFERENCES if name in references and name in shipped["against"]}
    found: dict[str, Claim] = {}
    for name, gain in gains.items():
        proven = _is_proven(gain)
        needed = None if proven or gain["difference"] <= 0 else gain.get("repeats_needed")
        plain = {key: gain[key] for key in ("difference", "low", "high")}
        found[name] = {**plain, "p": _get_p(gain), "proven": proven, "repeats_needed": needed}  # type: ignore[typeddict-item]
    return found


def _is_proven(gain: Difference) -> bool:
    """Return whether a gain is proven; a loss never is one, however sure it is."""
    return gain["difference"] > 0 and _get_p(gain) < LEVEL


def _write_headline(
    shipped: LeaderboardRow, best: LeaderboardRow, rival: str | None, proven: bool, about: Circumstances
) -> str:
    if shipped is not best:
        why = f"chosen by --ship; the best value here is that of {_format_name(best)}"
    elif rival is None:
        why = "the best value here; cross-entropy cannot meet the constraint"
    elif shipped["contender"] == REFERENCE:
        why = "nothing here beats it"
    elif proven:
        why = f"its gain over {rival} is proven"
    else:
        why = f"the best value here, but its gain over {rival} is not proven"
    done = len(shipped["folds"])
    said = f"Ship {_format_name(shipped)}: {why}."
    if about.planned and done < about.planned:
        said += f" (The budget allowed {done} of {about.planned} repeats.)"
    return said


def _write_text(
    contenders: Mapping[str, Contender],
    rows: Sequence[LeaderboardRow],
    shipped: LeaderboardRow,
    claims: dict[str, Claim],
    about: Circumstances,
) -> str:
    spread = "" if shipped["low"] is None else f" (95 % interval {shipped['low']:.3f} to {shipped['high']:.3f})"
    sentences = [
        f"{about.name}: {shipped['value']:.3f}{spread}.",
        _describe_constraint(shipped, about),
        _describe_coverage(shipped, about),
        *(_describe_claim(name, claim, about) for name, claim in reversed(claims.items())),
        _describe_second(rows, shipped),
        _describe_loss_gain(contenders, rows, shipped),
    ]
    return " ".join(filter(None, sentences))


def _write_notes(
    contenders: Mapping[str, Contender],
    rows: Sequence[LeaderboardRow],
    shipped: LeaderboardRow,
    claims: dict[str, Claim],
    about: Circumstances,
) -> list[str]:
    """Return what the text says beyond the value and the claims, for a page that shows these as figures."""
    unproven: dict[str, list[str]] = {}
    for name, claim in reversed(claims.items()):
        if remedy := _describe_remedy(claim, about):
            unproven.setdefault(remedy, []).append(name)
    sentences = [
        _describe_constraint(shipped, about),
        _describe_coverage(shipped, about),
        *(f"The gain over {' and '.join(names)} is not proven: {remedy}." for remedy, names in unproven.items()),
        _describe_second(rows, shipped),
        _describe_loss_gain(contenders, rows, shipped),
    ]
    return [sentence for sentence in sentences if sentence]


def _describe_constraint(shipped: LeaderboardRow, about: Circumstances) -> str:
    if not about.subject_to:
        return ""
    held = f"{shipped['held']} of {len(shipped['folds'])} repeats"
    said = f"The constraint {about.subject_to} was met on the test rows in {held}."
    if about.confidence is not None:
        said += " There the rules are tuned without the confidence; the shipped one has it, and is stricter."
    return said


def _describe_coverage(shipped: LeaderboardRow, about: Circumstances) -> str:
    if not about.abstain:
        return ""
    return f"{100 * shipped.get('coverage', 1.0):.0f} % of the test rows were decided."


def _describe_second(rows: Sequence[LeaderboardRow], shipped: LeaderboardRow) -> str:
    """Describe what comes next if cross-entropy ships."""
    if shipped["contender"] != REFERENCE:
        return ""
    second = next((row for row in rows if row["feasible"] and row["contender"] != REFERENCE), None)
    return "" if second is None else f"Next is {_format_name(second)} with {second['value']:.3f}."


def _describe_claim(reference: str, claim: Claim, about: Circumstances) -> str:
    """Describe a gain: how large, whether it is proven, and otherwise what would settle it."""
    gain = f"Over {reference}: {claim['difference']:+.3f}{_format_interval(claim)}"
    p = format_p(claim["p"])
    if claim["proven"]:
        return f"{gain}, proven ({p})."
    if claim["difference"] <= 0:
        return f"{gain}, no gain."
    remedy = _describe_remedy(claim, about)
    return f"{gain}, not proven ({p}); {remedy}." if remedy else f"{gain}, not proven ({p})."


def _describe_remedy(claim: Claim, about: Circumstances) -> str:
    """Describe what would prove a gain that is not proven yet."""
    if claim["proven"] or claim["difference"] <= 0 or not about.extensible:
        return ""
    if claim["repeats_needed"] is None:
        return "it takes more rows, as more repeats would hardly prove it"
    how = f"--resume RUN --repeats {claim['repeats_needed']}"
    return f"about {claim['repeats_needed']} repeats would settle it ({how})"


def _describe_loss_gain(
    contenders: Mapping[str, Contender], rows: Sequence[LeaderboardRow], shipped: LeaderboardRow
) -> str:
    """Describe, if no network ships, what training networks on the metric gains."""
    trained = [
        row for row in rows if row["feasible"] and row["family"] == "network" and contenders[row["contender"]].on_metric
    ]
    if shipped["family"] == "network" or not trained:
        return ""
    gain = trained[0]["against"][REFERENCES[1]]
    word = "proven" if _is_proven(gain) else "not proven"
    return (
        f"Among networks, training on the metric ({_format_name(trained[0])}) gains "
        f"{gain['difference']:+.3f}{_format_interval(gain)} over {REFERENCES[1]}: {word}."
    )


def format_p(p: float) -> str:
    """Return a p-value for people, never 0.

    >>> format_p(0.0312), format_p(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _get_p(gain: Difference) -> float:
    return 1.0 if gain["p"] is None else gain["p"]


def _format_name(row: LeaderboardRow) -> str:
    return f"{row['contender']}, {row['rule']} rule"


def _format_interval(gain: Difference | Claim) -> str:
    return "" if gain["low"] is None else f" ({gain['low']:+.3f} to {gain['high']:+.3f})"
