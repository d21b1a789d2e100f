"""``Cost``: what decisions cost, as one object: the cheapest decision of a row, a metric and, by it, a loss.

A row that is truly positive costs ``fn`` if it is missed and ``tp`` if it is found; a negative costs ``fp`` or ``tn``.
Only the differences depend on the decision: a missed positive costs fn − tp more than a right decision, a false alarm
fp − tn. Counts in which every row weighs its difference are the money that is lost and kept, so costs per row are
weights, and whatever is exact for weighted counts is exact for money.
"""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from metricgrad.core.batch import Batch
from metricgrad.core.counts import Confusion  # noqa: TC001 (a metric says by its annotation what it takes)
from metricgrad.core.inputs import as_tensor, as_type_of
from metricgrad.core.metrics import ratio, savings
from metricgrad.core.metrics.scalars import is_number

if TYPE_CHECKING:
    from metricgrad.core.metrics import Metric

CELLS = ("fp", "fn", "tp", "tn")
"""What each cell of the counts costs, in the order of the arguments of ``Cost``."""

Price = float | Tensor | str
"""What a cell costs: a number, one per row ``(N,)`` in float64, or the name of the column that has one per row."""


class Cost:
    """What decisions cost: the cheapest decision row by row, a metric, and a loss.

    Each of the four costs is a number, an array with one number per row, or the name of a column. Gains are negative
    costs. A row must not cost more if it is decided right: fp ≥ tn and fn ≥ tp.

    As a metric (``evaluate``, ``bootstrap``, ``tune_threshold``, the estimators, ``compare``) it is the *savings*: what
    decisions save, compared with the cheaper of predicting all rows and none, as a share of what perfect decisions
    would save. 1 is perfect, 0 no better than deciding all rows alike. ``MetricLoss(cost)`` is 1 − the savings of soft
    decisions, linear in the memberships and free of the unit of money.

    Parameters
    ----------
    fp : float, array-like or str, optional
        What a false positive costs: a false alarm.
    fn : float, array-like or str, optional
        What a false negative costs: a miss.
    tp : float, array-like or str, default 0.0
        What a true positive costs; negative for a gain.
    tn : float, array-like or str, default 0.0
        What a true negative costs; negative for a gain.
    matrix : array-like, optional
        The costs of several classes, ``(d, d)``, rows true and columns predicted, instead of the four.

    Raises
    ------
    ValueError
        If a cost is missing, not finite or lower than that of the right decision, if arrays differ in length, or if it
        never pays to predict a class.

    See Also
    --------
    measure_cost : Total, cost per row and savings with bootstrap intervals.
    metricgrad.metrics.savings : The metric of counts with constant costs.

    Notes
    -----
    Arrays belong to one set of rows. For others of the same rows there is ``take``; losses, estimators and scorers take
    the costs of the rows that they are given as ``costs=``.

    Where right decisions cost nothing, savings are those of the literature, 1 − cost / cost of the cheaper of all and
    none. Otherwise what cannot be avoided counts neither above nor below the line, so that gains can be given too.

    Examples
    --------
    A letter costs 5 and a customer who leaves what she would have paid:

    >>> cost = Cost(fp=5.0, fn=[100.0, 20.0, 30.0])
    >>> cost.decide([0.1, 0.1, 0.2])
    array([ True, False,  True])
    >>> cost.total([1, 0, 0], [True, False, True])
    5.0
    >>> cost.savings([1, 0, 0], [True, False, True])
    0.5

    Several classes, rows true and columns predicted:

    >>> Cost(matrix=[[0, 1, 1], [1, 0, 1], [50, 50, 0]]).decide([[0.9, 0.05, 0.05]])
    array([2])
    """

    def __init__(
        self,
        fp: float | Any = None,
        fn: float | Any = None,
        tp: float | Any = 0.0,
        tn: float | Any = 0.0,
        *,
        matrix: Any = None,
    ) -> None:
        self.matrix: Tensor | None = None
        if matrix is not None:
            if fp is not None or fn is not None or not (_is_zero(tp) and _is_zero(tn)):
                raise ValueError("matrix: expected no other cost beside it, got fp, fn, tp or tn too; leave them out")
            self.fp: Price = 0.0
            self.fn: Price = 0.0
            self.tp: Price = 0.0
            self.tn: Price = 0.0
            self.matrix = _read_matrix(matrix)
            return
        for name, given in (("fp", fp), ("fn", fn)):
            if given is None:
                raise ValueError(f"{name}: expected a cost, got None; Cost(fp=..., fn=...) needs both, or matrix=")
        self.fp = _read_price("fp", fp)
        self.fn = _read_price("fn", fn)
        self.tp = _read_price("tp", tp)
        self.tn = _read_price("tn", tn)
        self._check_lengths()
        if not self.columns:
            self._check_differences()

    # What it is made of

    @property
    def prices(self) -> dict[str, Price]:
        """What each cell costs, by name; of a matrix nothing."""
        return {} if self.matrix is not None else {name: getattr(self, name) for name in CELLS}

    @property
    def columns(self) -> list[str]:
        """The names of the columns that hold costs, each once."""
        return list(dict.fromkeys(price for price in self.prices.values() if isinstance(price, str)))

    @property
    def rows(self) -> int | None:
        """The number of rows that the arrays belong to; None if all costs are the same for every row."""
        lengths = [len(price) for price in self.prices.values() if isinstance(price, Tensor)]
        return lengths[0] if lengths else None

    @property
    def differs_by_row(self) -> bool:
        """Whether a cost is an array, or the name of a column."""
        return any(not isinstance(price, float) for price in self.prices.values())

    @property
    def shape(self) -> tuple[int]:
        """``(N,)`` for costs of N rows, by which scikit-learn's tools split them; otherwise there is none."""
        rows = self.rows
        if rows is None:
            raise AttributeError("shape: the costs are the same for every row")
        return (rows,)

    def __getitem__(self, index: Any) -> Self:
        return self.take(index[0] if isinstance(index, tuple) else index)

    def take(self, index: Any) -> Self:
        """Return the costs of some rows.

        Parameters
        ----------
        index : array-like of int or bool, or slice
            The rows.

        Returns
        -------
        Cost
            With the arrays of these rows; numbers stay as they are.

        Examples
        --------
        >>> Cost(fp=1.0, fn=[5.0, 7.0, 9.0]).take([0, 2])
        Cost(fp=1.0, fn=array of 2)
        """
        if self.rows is None:
            return self
        rows = index if isinstance(index, slice) else as_tensor("index", index)
        taken = copy.copy(self)  # without the checks: in some of the rows there may be nothing at stake
        for name, price in self.prices.items():
            if isinstance(price, Tensor):
                setattr(taken, name, price[rows])
        return taken

    def of_table(self, table: Any) -> Self:
        """Return the costs with the columns of a table in the place of their names.

        Parameters
        ----------
        table : DataFrame or mapping
            Has the columns, as numbers.

        Returns
        -------
        Cost
            With an array for each named column.

        Raises
        ------
        ValueError
            If a column is missing, or not of finite numbers.

        Examples
        --------
        >>> Cost(fp=1.0, fn="amount").of_table({"amount": [10.0, 20.0]})
        Cost(fp=1.0, fn=array of 2)
        """
        found = {}
        known = list(table.columns) if hasattr(table, "columns") else list(table)
        for name, price in self.prices.items():
            if isinstance(price, str):
                if price not in known:
                    raise ValueError(f"{name}: expected a column of the table, got {price!r}; it has {_join(known)}")
                found[name] = _read_price(f"{name}: column {price!r}", table[price])
            else:
                found[name] = price
        return type(self)(**found) if found else self

    def mean(self) -> Self:
        """Return the mean costs, the same for every row, for what has to do without the rows.

        Returns
        -------
        Cost
            Numbers only.

        Examples
        --------
        >>> Cost(fp=1.0, fn=[5.0, 7.0]).mean()
        Cost(fp=1.0, fn=6.0)
        """
        if self.rows is None:
            return self
        means = {
            name: price.mean().item() if isinstance(price, Tensor) else price for name, price in self.prices.items()
        }
        return type(self)(**means)

    def stakes(self, rows: int) -> tuple[Tensor, Tensor]:
        """Return what is at stake in each row: fn − tp if it is positive, fp − tn if it is negative.

        Parameters
        ----------
        rows : int
            How many rows there are; arrays must have as many.

        Returns
        -------
        tuple of Tensor
            Two of shape ``(rows,)`` in float64, or ``(1,)`` for costs that are the same for every row.

        Raises
        ------
        ValueError
            If the costs are of several classes, name columns, or belong to another number of rows.
        """
        self._check_rows(rows)
        missed = _as_row(self.fn) - _as_row(self.tp)
        alarmed = _as_row(self.fp) - _as_row(self.tn)
        missed, alarmed = torch.broadcast_tensors(missed, alarmed)
        return missed, alarmed

    def _check_rows(self, rows: int) -> None:
        if self.matrix is not None:
            raise ValueError("cost: expected fp and fn, for two classes, got a matrix of several")
        if self.columns:
            raise ValueError(
                f"cost: expected numbers or arrays, got the column {self.columns[0]!r}; pass cost.of_table(frame)"
            )
        if self.rows is not None and self.rows != rows:
            raise ValueError(
                f"cost: expected one number for each of {rows} rows, got {self.rows}; pass costs=cost.take(rows)"
            )

    # As a rule

    def adjust(self, probabilities: Any) -> Any:
        """Return probabilities moved so that 0.5 is where the two decisions cost the same, row by row.

        p becomes p·(fn − tp) / (p·(fn − tp) + (1 − p)·(fp − tn)); it is 0 where nothing is at stake.

        Parameters
        ----------
        probabilities : Tensor or array-like
            Of the positive class, ``(N,)``.

        Returns
        -------
        Tensor or ndarray
            ``(N,)``, torch for torch.

        Examples
        --------
        >>> Cost(fp=1.0, fn=9.0).adjust([0.1, 0.5])
        array([0.5, 0.9])
        """
        p = self._read_probabilities(probabilities)
        missed, alarmed = (stake.to(p.device) for stake in self.stakes(len(p)))
        if_missed = p * missed
        if_alarmed = (1 - p) * alarmed
        return as_type_of(probabilities, ratio(if_missed, if_missed + if_alarmed))

    def decide(self, probabilities: Any) -> Any:
        """Return the decision of least expected cost, row by row.

        Parameters
        ----------
        probabilities : Tensor or array-like
            Of the positive class, ``(N,)``; of each class, ``(N, d)``, for a matrix. Calibrated: a wrong probability is
            a wrong expected cost, see ``mg.reliability``.

        Returns
        -------
        Tensor or ndarray
            Bools ``(N,)``, True where predicting positive costs no more; class indices ``(N,)`` for a matrix.

        Raises
        ------
        ValueError
            If they are no probabilities, or the costs belong to another number of rows.

        Examples
        --------
        >>> Cost(fp=1.0, fn=9.0).decide([0.05, 0.1, 0.5])
        array([False,  True,  True])
        """
        if self.matrix is None:
            adjusted = as_tensor("probabilities", self.adjust(probabilities))
            return as_type_of(probabilities, adjusted >= 0.5)
        p = self._read_probabilities(probabilities)
        return as_type_of(probabilities, self.expect(p).argmin(1))

    def expect(self, probabilities: Any) -> Any:
        """Return the expected cost of each decision.

        Parameters
        ----------
        probabilities : Tensor or array-like
            As for ``decide``.

        Returns
        -------
        Tensor or ndarray
            ``(N, 2)``, of predicting negative and positive; ``(N, d)`` for a matrix.

        Examples
        --------
        >>> Cost(fp=1.0, fn=9.0).expect([0.5])
        array([[4.5, 0.5]])
        """
        p = self._read_probabilities(probabilities)
        if self.matrix is not None:
            return as_type_of(probabilities, p @ self.matrix.to(p))
        fp, fn, tp, tn = self._spread(len(p), p.device)
        if_negative = p * fn + (1 - p) * tn
        if_positive = p * tp + (1 - p) * fp
        return as_type_of(probabilities, torch.stack((if_negative, if_positive), 1))

    def _read_probabilities(self, given: Any) -> Tensor:
        p = as_tensor("probabilities", given).double()
        wanted = "(N,)" if self.matrix is None else f"(N, {len(self.matrix)})"
        if p.dim() != (1 if self.matrix is None else 2) or (self.matrix is not None and p.shape[1] != len(self.matrix)):
            hint = "; pass probabilities[:, 1]" if p.dim() == 2 and p.shape[1] == 2 and self.matrix is None else ""
            raise ValueError(f"probabilities: expected shape {wanted}, got {tuple(p.shape)}{hint}")
        if p.numel() and not bool(((p >= 0) & (p <= 1)).all()):
            raise ValueError(f"probabilities: expected numbers in [0, 1], got {_find_outside(p):g}; calibrate scores")
        return p

    # As a metric

    def of_rows(self, targets: Any, decisions: Any) -> Any:
        """Return what the decision about each row costs.

        Parameters
        ----------
        targets : array-like
            0 and 1, ``(N,)``; class indices for a matrix.
        decisions : array-like
            Bools, or 0 and 1, ``(N,)``; class indices for a matrix.

        Returns
        -------
        Tensor or ndarray
            ``(N,)`` in float64.

        Raises
        ------
        ValueError
            If shapes or values do not fit, or the costs belong to another number of rows.

        Examples
        --------
        >>> Cost(fp=1.0, fn=[9.0, 8.0]).of_rows([1, 0], [0, 1])
        array([9., 1.])
        """
        y, decided = self._read_labels(targets, decisions)
        return as_type_of(targets, self._of_rows(y, decided))

    def total(self, targets: Any, decisions: Any) -> float:
        """Return what all decisions cost together.

        Parameters
        ----------
        targets : array-like
            As for ``of_rows``.
        decisions : array-like
            As for ``of_rows``.

        Returns
        -------
        float
            The sum over the rows.

        Examples
        --------
        >>> Cost(fp=1.0, fn=[9.0, 8.0]).total([1, 0], [0, 1])
        10.0
        """
        y, decided = self._read_labels(targets, decisions)
        return self._of_rows(y, decided).sum().item()

    def per_row(self, targets: Any, decisions: Any) -> float:
        """Return what a decision costs on average.

        Parameters
        ----------
        targets : array-like
            As for ``of_rows``.
        decisions : array-like
            As for ``of_rows``.

        Returns
        -------
        float
            The mean over the rows.

        Examples
        --------
        >>> Cost(fp=1.0, fn=[9.0, 8.0]).per_row([1, 0], [0, 1])
        5.0
        """
        y, decided = self._read_labels(targets, decisions)
        return self._of_rows(y, decided).mean().item()

    def alike(self, targets: Any) -> list[float]:
        """Return what it costs to decide all rows alike, for each decision.

        Parameters
        ----------
        targets : array-like
            As for ``of_rows``.

        Returns
        -------
        list of float
            The total of predicting none, and of predicting all; for a matrix of predicting each class.

        Examples
        --------
        >>> Cost(fp=1.0, fn=9.0).alike([1, 0, 0])
        [9.0, 2.0]
        """
        y, _ = self._read_labels(targets, targets)
        classes = 2 if self.matrix is None else len(self.matrix)
        return [self._of_rows(y, torch.full_like(y, k)).sum().item() for k in range(classes)]

    def savings(self, targets: Any, decisions: Any) -> float:
        """Return the savings: the share of the avoidable cost that the decisions avoid.

        (cost of the cheaper of all and none − cost) / (cost of the cheaper of all and none − cost of perfect
        decisions); for several classes "all" and "none" are each class for all rows.

        Parameters
        ----------
        targets : array-like
            As for ``of_rows``.
        decisions : array-like
            As for ``of_rows``.

        Returns
        -------
        float
            At most 1; 0 where nothing can be saved.

        Examples
        --------
        >>> Cost(fp=1.0, fn=9.0).savings([1, 0, 0], [1, 1, 0])
        0.5
        """
        y, decided = self._read_labels(targets, decisions)
        cheaper = min(self.alike(y))
        perfect = self._of_rows(y, y).sum().item()
        paid = self._of_rows(y, decided).sum().item()
        return (cheaper - paid) / (cheaper - perfect) if cheaper > perfect else 0.0

    def _of_rows(self, y: Tensor, decided: Tensor) -> Tensor:
        if self.matrix is not None:
            return self.matrix.to(y.device)[y, decided]
        fp, fn, tp, tn = self._spread(len(y), y.device)
        return torch.where(y == 1, torch.where(decided == 1, tp, fn), torch.where(decided == 1, fp, tn))

    def _spread(self, rows: int, device: torch.device) -> tuple[Tensor, ...]:
        """Return the costs of each row, ``(rows,)``, in the order of ``CELLS``."""
        self._check_rows(rows)
        return tuple(_as_row(price).to(device).expand(rows) for price in self.prices.values())

    def _read_labels(self, targets: Any, decisions: Any) -> tuple[Tensor, Tensor]:
        found = []
        classes = 2 if self.matrix is None else len(self.matrix)
        for name, given in (("targets", targets), ("decisions", decisions)):
            labels = as_tensor(name, given)
            if labels.dim() != 1:
                raise ValueError(f"{name}: expected shape (N,), got {tuple(labels.shape)}")
            whole = labels.long()
            if labels.numel() and not bool(((whole == labels) & (whole >= 0) & (whole < classes)).all()):
                wanted = "0 and 1" if classes == 2 else f"class indices from 0 to {classes - 1}"
                raise ValueError(f"{name}: expected {wanted}, got other values; pass decisions, not scores")
            found.append(whole)
        y, decided = found
        if len(y) != len(decided):
            raise ValueError(f"decisions: expected one for each of {len(y)} targets, got {len(decided)}")
        return y, decided

    @property
    def __name__(self) -> str:
        return "savings"

    def as_metric(self) -> Metric:
        """Return the metric of counts, for use within the library.

        Returns
        -------
        callable
            A function of ``Counts``, of ``Confusion`` for a matrix.

        Raises
        ------
        ValueError
            If costs differ by row: these are a metric of counts in which rows weigh what is at stake in them.
        """
        if self.matrix is not None:
            return partial(savings_of_matrix, costs=self.matrix)
        if self.differs_by_row:
            raise ValueError(f"metric: expected costs that are the same for every row here, got {self!r}")
        missed, alarmed = self.stakes(0)
        return partial(savings, fp=alarmed.item(), fn=missed.item())

    def __call__(self, c: Any) -> Tensor:
        """Return the savings of counts, for costs that are the same for every row.

        Parameters
        ----------
        c : Counts or Confusion
            Cells of shape ``(..., K)``, or a matrix of shape ``(..., d, d)`` for costs of several classes.

        Returns
        -------
        Tensor
            One value per class, ``(..., K)``, or per matrix, ``(...)``.
        """
        return self.as_metric()(c)

    def weigh(self, batch: Batch) -> Batch:
        """Return rows of a binary problem with what is at stake in them as their weight, for use within the library.

        Parameters
        ----------
        batch : Batch
            Rows of one class.

        Returns
        -------
        Batch
            The same rows with other weights; of soft labels also with other targets, so that the positive part of a row
            weighs fn − tp and the negative part fp − tn.
        """
        missed, alarmed = (stake.to(batch.logits.device).unsqueeze(1) for stake in self.stakes(batch.rows))
        y = batch.targets.double()
        positive = y * missed
        stake = positive + (1 - y) * alarmed
        weight = stake if batch.weight is None else stake * batch.weight
        targets = ratio(positive, stake) if batch.targets.is_floating_point() else batch.targets
        if batch.targets.is_floating_point():
            targets = targets.to(batch.targets.dtype)
        return Batch(batch.logits, targets, weight.expand_as(y), batch.mask)

    # Checks and texts

    def _check_lengths(self) -> None:
        lengths = {name: len(price) for name, price in self.prices.items() if isinstance(price, Tensor)}
        if len(set(lengths.values())) > 1:
            each = ", ".join(f"{count} of {name}" for name, count in lengths.items())
            raise ValueError(f"cost: expected arrays of one length, a number for each row, got {each}")

    def _check_differences(self) -> None:
        """Refuse costs under which a wrong decision is cheaper than the right one, or nothing is at stake."""
        for wrong, right in (("fp", "tn"), ("fn", "tp")):
            difference = _as_row(getattr(self, wrong)) - _as_row(getattr(self, right))
            if bool((difference < 0).any()):
                row = int(difference.argmin())
                where = f" in row {row}" if len(difference) > 1 else ""
                raise ValueError(
                    f"{wrong}: expected at least {right}, since a wrong decision is no gain, got {wrong} − {right} = "
                    f"{difference[row]:g}{where}"
                )
            if difference.numel() and not bool((difference > 0).any()):
                never = "positive" if wrong == "fn" else "negative"
                raise ValueError(
                    f"{wrong}: expected more than {right}, got the same in every row; it never pays to predict {never}"
                )

    def to_text(self) -> str:
        """Return the costs as the command line takes them; an array is not text.

        Returns
        -------
        str
            Such as "fp=5, fn=amount".

        Raises
        ------
        ValueError
            If a cost is an array, or there is a matrix.

        Examples
        --------
        >>> Cost(fp=5.0, fn="amount").to_text()
        'fp=5, fn=amount'
        """
        if self.matrix is not None:
            raise ValueError(
                "cost: expected fp and fn here, got a matrix; estimators take it, MetricEnsembleClassifier(cost)"
            )
        if self.rows is not None:
            raise ValueError("cost: expected numbers and names of columns here, got an array; name its column")
        given = {name: price for name, price in self.prices.items() if name in ("fp", "fn") or not _is_zero(price)}
        return ", ".join(f"{name}={_price_text(price)}" for name, price in given.items())

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the costs that a text names, as the command line takes them.

        Parameters
        ----------
        text : str
            Such as "fp=5, fn=amount": numbers, or names of columns.

        Returns
        -------
        Cost
            With numbers and names.

        Raises
        ------
        ValueError
            If the text cannot be read.

        Examples
        --------
        >>> Cost.from_text("fp=5, fn=amount, tp=-2")
        Cost(fp=5.0, fn='amount', tp=-2.0)
        """
        given: dict[str, float | str] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in CELLS or not equals or not value or name in given:
                raise ValueError(f"cost: expected fp=..., fn=..., tp=... or tn=..., each once, got {part.strip()!r}")
            given[name] = _read_number(value)
        for name in ("fp", "fn"):
            if name not in given:
                raise ValueError(f"cost: expected both fp=... and fn=..., got {text!r}")
        return cls(**given)

    def __repr__(self) -> str:
        if self.matrix is not None:
            return f"Cost(matrix={self.matrix.tolist()})"
        given = {name: price for name, price in self.prices.items() if name in ("fp", "fn") or not _is_zero(price)}
        each = (f"{k}=array of {len(v)}" if isinstance(v, Tensor) else f"{k}={v!r}" for k, v in given.items())
        return f"Cost({', '.join(each)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cost):
            return NotImplemented
        pairs = [(self.matrix, other.matrix), *((getattr(self, name), getattr(other, name)) for name in CELLS)]
        return all(_are_equal(one, two) for one, two in pairs)

    def __hash__(self) -> int:
        return hash(tuple(price for price in self.prices.values() if not isinstance(price, Tensor)))


def savings_of_matrix(c: Confusion, costs: Tensor) -> Tensor:
    """Return the savings of a d×d matrix: the share of the avoidable cost that its decisions avoid."""
    counts = c.matrix
    if counts.shape[-1] != len(costs):
        raise ValueError(f"matrix: expected costs of {counts.shape[-1]} classes, got {len(costs)}")
    # What a decision costs more than the right one; the cheapest decision for all rows alike is what to compare with.
    above_right = (costs - costs.diagonal().unsqueeze(1)).to(counts)
    alike = (counts.sum(-1, keepdim=True) * above_right).sum(-2).amin(-1)
    paid = (counts * above_right).sum((-2, -1))
    return ratio(alike - paid, alike)


def find_row_costs(metric: object) -> Cost | None:
    """Return the costs of a metric that differ by row, None for any other metric."""
    return metric if isinstance(metric, Cost) and metric.differs_by_row else None


def _read_price(name: str, given: Any) -> Price:
    if isinstance(given, str):
        if not given:
            raise ValueError(f"{name}: expected a number, an array or the name of a column, got an empty text")
        return given
    if is_number(given):
        if not math.isfinite(given):
            raise ValueError(f"{name}: expected finite numbers, got {given}")
        return float(given)
    each = as_tensor(name, given).double()
    if each.dim() == 2 and each.shape[1] == 1:
        each = each.squeeze(1)
    if each.dim() > 1:
        raise ValueError(f"{name}: expected a number or one per row, (N,), got shape {tuple(each.shape)}")
    unknown = int((~each.isfinite()).sum())
    if unknown:
        raise ValueError(
            f"{name}: expected finite numbers, got {unknown} NaN or infinite; fill them in, or leave these rows out"
        )
    return each if each.dim() else each.item()


def _read_matrix(given: Any) -> Tensor:
    matrix = as_tensor("matrix", given).double()
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        raise ValueError(f"matrix: expected shape (d, d), rows true and columns predicted, got {tuple(matrix.shape)}")
    if not bool(matrix.isfinite().all()):
        raise ValueError(f"matrix: expected finite numbers, got {int((~matrix.isfinite()).sum())} NaN or infinite")
    above_right = matrix - matrix.diagonal().unsqueeze(1)
    if bool((above_right < 0).any()):
        true, predicted = divmod(int(above_right.argmin()), len(matrix))
        raise ValueError(
            f"matrix: expected no cost below that of the right decision, got {matrix[true, predicted]:g} for class "
            f"{true} predicted as {predicted} and {matrix[true, true]:g} for the right one"
        )
    for never in range(len(matrix)):
        for instead in range(len(matrix)):
            if never != instead and bool((matrix[:, instead] <= matrix[:, never]).all()):
                raise ValueError(
                    f"matrix: expected classes that pay, got column {never} nowhere below column {instead}; it never "
                    f"pays to predict class {never}"
                )
    return matrix


def _as_row(price: Price) -> Tensor:
    if isinstance(price, str):
        raise ValueError(f"cost: expected a number or an array, got the column {price!r}; pass cost.of_table(frame)")
    return price if isinstance(price, Tensor) else torch.tensor([price], dtype=torch.float64)


def _is_zero(price: Any) -> bool:
    return is_number(price) and bool(price == 0)


def _are_equal(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return torch.equal(one, two)
    return type(one) is type(two) and bool(one == two)


def _find_outside(p: Tensor) -> float:
    return p[~((p >= 0) & (p <= 1))][0].item()


def _read_number(text: str) -> float | str:
    """Return a number, or the name of a column."""
    try:
        return float(text)
    except ValueError:
        return text


def _price_text(price: Price) -> str:
    return price if isinstance(price, str) else repr(price).removesuffix(".0")


def _join(names: list[Any]) -> str:
    shown = ", ".join(str(name) for name in names[:8])
    return f"{shown}, ..." if len(names) > 8 else shown
