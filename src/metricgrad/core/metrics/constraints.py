"""Constraints: a metric and the bound it must keep, as in "precision >= 0.9", and whether a model meets them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from metricgrad.core.metrics.registry import name_of
from metricgrad.core.metrics.scalars import is_number, is_whole
from metricgrad.core.metrics.signatures import Metric
from metricgrad.core.storable import Storable

BOUND_ROUNDING = 1e-9
"""By how much a value may fail its bound: a recall of 1 must meet "recall >= 1" in any order of summation."""


@dataclass(frozen=True)
class Constraint(Storable):
    """A bound on a metric: on its average, on each class, or on one class.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    bound : float
        The bound.
    sense : {'>=', '<='}, default '>='
        Whether the bound is the least or the largest value.
    over : 'each', int or None, default None
        "each": every class must meet the bound. A number: that class must. None: the average must.

    Raises
    ------
    ValueError
        If the bound is not a finite number, or ``sense`` or ``over`` is unknown.

    Examples
    --------
    >>> Constraint("recall", 0.8, over="each")
    Constraint(metric='recall', bound=0.8, sense='>=', over='each')
    """

    metric: str | Metric
    bound: float
    sense: str = ">="
    over: str | int | None = None

    def __post_init__(self) -> None:
        if not is_number(self.bound) or not math.isfinite(self.bound):
            raise ValueError(f"bound: expected a number, got {self.bound!r}")
        if self.sense not in (">=", "<="):
            raise ValueError(f"sense: expected '>=' or '<=', got {self.sense!r}")
        if not (self.over in (None, "each") or (is_whole(self.over) and int(self.over) >= 0)):
            raise ValueError(f"over: expected 'each', a class number or None, got {self.over!r}")
        # As Python's own numbers, so that the repr shows no numpy types.
        bound = self.bound if isinstance(self.bound, int) else float(self.bound)
        over = int(self.over) if is_whole(self.over) else self.over
        object.__setattr__(self, "bound", bound)
        object.__setattr__(self, "over", over)

    def __str__(self) -> str:
        return self.text(self.over)

    def text(self, over: str | int | None) -> str:
        """Return the constraint as text, for another choice of classes.

        Parameters
        ----------
        over : 'each', int or None
            The choice of classes.

        Returns
        -------
        str
            Such as "recall[each] >= 0.8".
        """
        name = self.metric if isinstance(self.metric, str) else name_of(self.metric)
        classes = "" if over is None else f"[{over}]"
        return f"{name}{classes} {self.sense} {self.bound}"

    def violation(self, value: Tensor) -> Tensor:
        """Return by how much a value fails the bound.

        Parameters
        ----------
        value : Tensor
            Values of the metric.

        Returns
        -------
        Tensor
            Of the same shape; negative is slack.
        """
        return self.bound - value if self.sense == ">=" else value - self.bound

    def met(self, value: float | Sequence[float] | Tensor) -> bool:
        """Return whether a value, or each of several values, meets the bound, up to rounding.

        Parameters
        ----------
        value : float, sequence of float or Tensor
            Values of the metric; NaN, as of 0/0, meets any bound.

        Returns
        -------
        bool
            Whether all meet it.

        Examples
        --------
        >>> Constraint("recall", 0.8).met([0.8, 0.9]), Constraint("recall", 0.8).met([0.7, 0.9])
        (True, False)
        """
        values = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
        return not bool((self.violation(values) > BOUND_ROUNDING).any())


@dataclass(frozen=True)
class ConstraintOutcome:
    """The result of one constraint, of one class if it is a bound on classes.

    Parameters
    ----------
    constraint : str
        The constraint as text, such as "precision >= 0.9".
    value : float
        The hard value of its metric; NaN where the metric is 0/0, which meets any bound.
    met : bool
        Whether the value meets the bound.
    """

    constraint: str
    value: float
    met: bool


@dataclass(frozen=True)
class Report:
    """The hard value of the objective and of every constraint; prints as a table.

    Parameters
    ----------
    objective : str
        The name of the metric that is maximised.
    value : float
        Its hard value.
    outcomes : tuple of ConstraintOutcome
        One per constraint, and per class where a constraint bounds each class.
    """

    objective: str
    value: float
    outcomes: tuple[ConstraintOutcome, ...]

    @property
    def met(self) -> bool:
        """Whether all constraints hold."""
        return all(outcome.met for outcome in self.outcomes)

    def __str__(self) -> str:
        rows = [(self.objective, self.value, "")]
        for outcome in self.outcomes:
            rows.append((outcome.constraint, outcome.value, "met" if outcome.met else "not met"))
        width = max(len(name) for name, _, _ in rows)
        lines = [f"{name:<{width}}  {value:.4f}  {word}" for name, value, word in rows]
        return "\n".join(line.rstrip() for line in lines)


_Bounds = str | Constraint | Mapping[str | Metric, float]
Constraints = _Bounds | Iterable[_Bounds]
"""What users give as constraints; see ``parse``."""


def parse(subject_to: Constraints | None) -> tuple[Constraint, ...]:
    """Return the constraints that a text or another description stands for.

    Parameters
    ----------
    subject_to : str, Constraint, mapping, iterable of these or None
        Bounds as text, "precision >= 0.9", "recall[each] >= 0.8" (every class), "recall[2] >= 0.8" (class 2), with ">="
        or "<=", comma-separated if several; ``{metric: least value}``; a ``Constraint``; or a list of these. None is
        none.

    Returns
    -------
    tuple of Constraint
        In the order given.

    Raises
    ------
    ValueError
        If a constraint cannot be read.

    Examples
    --------
    >>> [str(c) for c in parse("precision>=0.9, recall[each] >= .5")]
    ['precision >= 0.9', 'recall[each] >= 0.5']
    """
    if subject_to is None:
        return ()
    if isinstance(subject_to, Constraint):
        return (subject_to,)
    if isinstance(subject_to, str):
        return tuple(_read_constraint(part) for part in subject_to.split(","))
    if isinstance(subject_to, Mapping):
        return tuple(_make_least(metric, bound) for metric, bound in subject_to.items())
    if isinstance(subject_to, Iterable):
        return tuple(constraint for part in subject_to for constraint in parse(part))
    raise ValueError(f"subject_to: expected 'metric>=number' or {{metric: number}}, got {subject_to!r}")


def _make_least(metric: str | Metric, bound: float) -> Constraint:
    """Return the constraint that a metric is at least a number; a name may have brackets, as in text."""
    return _read_constraint(f"{metric}>={bound}") if isinstance(metric, str) else Constraint(metric, bound)


def _read_constraint(text: str) -> Constraint:
    match = re.fullmatch(r"\s*([\w.:]+)\s*(?:\[\s*(each|\d+)\s*\])?\s*([<>]=)\s*([-+.\de]+)\s*", text)
    try:
        if match:
            name, classes, sense, bound = match.groups()
            over = int(classes) if classes and classes != "each" else classes
            return Constraint(name, float(bound), sense, over)
    except ValueError:
        pass
    raise ValueError(
        f"subject_to: expected 'metric>=number', 'metric[each]>=number' or 'metric[class]>=number', got {text!r}"
    )
