"""Outcomes: what one contender reached in one repeat, with its fixed and with its tuned rule."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pandas as pd

from metricgrad import strict_json
from metricgrad.decisions.rules import Rule  # noqa: TC001 (read at run time)
from metricgrad.storage.values import decode, encode
from metricgrad.strict_json import Name, Range

if TYPE_CHECKING:
    from collections.abc import Sequence

RuleKind = Literal["fixed", "tuned"]
"""How scores become decisions: at one half (or the largest score), or as tuned on training rows."""

RULE_KINDS: tuple[RuleKind, ...] = ("fixed", "tuned")


@dataclass(frozen=True)
class Decision:
    """A decision rule, and its value on the test rows.

    ``feasible``: whether the rule meets the constraint on the rows it was tuned on. ``met``: whether it does on the
    test rows. ``plateau``: the range of thresholds that are hardly worse. ``coverage``: the share of the test rows that
    the rule decides.
    """

    rule: Rule
    value: float
    others: dict[str, float | None]
    feasible: bool = True
    met: bool = True
    plateau: tuple[float, float] | list[tuple[float, float]] | None = None
    coverage: Annotated[float, Range(0, 1)] = 1.0


@dataclass(frozen=True)
class Outcome:
    """The result of one contender in one repeat.

    ``members``: the weights of the candidates whose scores it averages; a candidate that it was chosen from, but that
    has no part in it, has the weight 0. ``seconds``: of training all that have a weight.
    """

    contender: Name
    repeat: Annotated[int, Range(0, 10**6)]
    train_rows: Annotated[int, Range(1, 2**53)]
    test_rows: Annotated[int, Range(1, 2**53)]
    seconds: Annotated[float, Range(0, 10**9)]
    fixed: Decision
    tuned: Decision
    history: list[dict[str, float]]
    members: dict[Name, Annotated[float, Range(0, 1)]] = field(default_factory=dict)

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the candidates that have one."""
        return {name: weight for name, weight in self.members.items() if weight > 0}

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        plain = asdict(replace(self, fixed=None, tuned=None))  # type: ignore[arg-type]
        for name in ("fixed", "tuned"):
            decision = getattr(self, name)
            plain[name] = asdict(replace(decision, rule=None)) | {"rule": decision.rule}
        return encode(plain)  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Outcome:
        """Return the outcome that ``to_json`` wrote, or raise a ``ValueError``."""
        try:
            plain = decode(data)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"expected plain data, got {error}") from error
        strict_json.check(plain, cls, "outcome")
        if not math.isclose(sum(plain["members"].values()), 1, abs_tol=1e-6):
            raise ValueError("outcome: members: expected weights that sum to 1, got others")
        return cls(**plain | {name: Decision(**plain[name]) for name in ("fixed", "tuned")})


def tabulate_outcomes(outcomes: Sequence[Outcome], metric: str) -> pd.DataFrame:
    """Return a row per contender, repeat, rule and metric; ``metric``: the one that is optimised."""
    rows = []
    for outcome in outcomes:
        for kind in RULE_KINDS:
            decision: Decision = getattr(outcome, kind)
            values = {metric: decision.value, **decision.others}
            for name, value in values.items():
                rows.append(
                    {
                        "contender": outcome.contender,
                        "repeat": outcome.repeat,
                        "rule": kind,
                        "decision": repr(decision.rule),
                        "metric": name,
                        "value": value,
                        "feasible": decision.feasible,
                        "met": decision.met,
                        "seconds": outcome.seconds,
                        "train_rows": outcome.train_rows,
                        "test_rows": outcome.test_rows,
                    }
                )
    return pd.DataFrame(rows)
