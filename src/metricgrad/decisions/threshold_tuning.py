"""Tuning: the decision rule that is best for a metric on given scores, and how certain it is."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor
from typing_extensions import TypeVar  # torch brings it; a plain TypeVar has no default before Python 3.13

from metricgrad.core.batch import check_task
from metricgrad.core.metrics.averages import check_labels
from metricgrad.core.metrics.constraints import parse
from metricgrad.core.objective import Objective
from metricgrad.core.option_hints import explain_unknown
from metricgrad.core.sparse import AnyBatch, as_scored_batch_or_sparse
from metricgrad.decisions.class_scores import ClassScores, check_can_reweight, check_prevalence
from metricgrad.decisions.problem import Problem
from metricgrad.decisions.rare_labels import FEWEST_TO_TUNE, ThresholdSource
from metricgrad.decisions.resampling import check_replicates

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from metricgrad.core.batch import Task
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average, Averaged, EmptyClasses
    from metricgrad.decisions.guarantees import ConfidenceOver, Guarantee
    from metricgrad.decisions.rules import Rule


@dataclass(frozen=True)
class TuningSpec:
    """A rule yet to be tuned: which metric is maximised, over which rules, under which constraints.

    ``bootstrap`` and ``compare_paired`` take it as a rule and tune it again in every replicate, since a rule that is
    evaluated on the data it was tuned on looks better than it is.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    shared : bool, default False
        Tune one threshold for all classes of a multi-label problem instead of one per class.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    subject_to : str, dict, Constraint or list of these, optional
        Constraints that the rule must meet, such as "precision >= 0.9" or {"precision": 0.9}; comma-separated for
        several. With a threshold per class, every class must meet them.
    confidence : float, optional
        With a number such as 0.95, the constraints hold on new rows with at least that probability over the rows that
        are tuned on, instead of on these rows alone. The rows must be independent, and not those of the training.
    confidence_over : {'all', 'each'}, default 'all'
        Of several classes: whether the confidence is that all of them meet the constraints, or that a class does.
    abstain : bool, default False
        For a multi-class problem with ``subject_to``: predict the class of the highest score only where the class meets
        the constraints, and leave the other rows undecided.
    abstain_label : int, default -1
        What the rule returns for undecided rows; no class index.
    rare_labels : {'pooled', 'own', 'fixed'}, default 'own'
        What becomes of a class that counts and has few positives or negatives. "own": nothing, it is tuned on its own
        data. "pooled": the labels with fewer than 50 share one threshold, the best for them together; offsets, where
        a class has fewer than 20, are all one multiple of −log(share of the class). Better on new data, as the
        estimators do it; one such label alone, and a binary problem, have nothing to share. "fixed": a label with
        fewer than 20 keeps ``default_threshold``; a multi-class problem with such a class the argmax. Under
        ``subject_to`` each class is tuned on its own data, so that each meets the constraints. ``origins`` and
        ``caution`` of the result say what was done.
    default_threshold : float, default 0.5
        Where ``rare_labels="fixed"`` leaves a class, on the scale of the scores: 0.5 for probabilities, 0 for logits
        and decision functions. With the default, scores outside [0, 1] are refused where it is needed.

    Examples
    --------
    >>> TuningSpec("f1", subject_to="precision >= 0.9").average
    'macro'

    """

    metric: str | Metric
    task: Task | None = None
    average: Average | None = "macro"
    shared: bool = False
    labels: Iterable[int] | None = None
    empty_classes: EmptyClasses = "count"
    subject_to: Any = None
    confidence: float | None = None
    rare_labels: ThresholdSource = "own"
    default_threshold: float = 0.5
    confidence_over: ConfidenceOver = "all"
    abstain: bool = False
    abstain_label: int = -1

    def problem(self, epsilon: float = 0.01) -> Problem:
        """Return the optimisation problem, for use within the library.

        Parameters
        ----------
        epsilon : float, default 0.01
            The plateau holds the thresholds whose value is within ``epsilon`` of the best.

        Returns
        -------
        Problem
            It finds the best rule of a batch.

        Raises
        ------
        ValueError
            If the options do not fit together.

        """
        objective = Objective(check_task(self.task), self.metric, self.average, self.labels, self.empty_classes)
        return Problem(
            objective=objective,
            shared=self.shared,
            constraints=parse(self.subject_to),
            confidence=self.confidence,
            epsilon=epsilon,
            rare_labels=self.rare_labels,
            default_threshold=self.default_threshold,
            confidence_over=self.confidence_over,
            abstain=self.abstain,
            abstain_label=self.abstain_label,
        )


Value = TypeVar("Value", default=Any)
"""What the value of a rule is: a float, or a list of one per class for ``average=None``."""
Numbers = TypeVar("Numbers", default=Any)
"""What is tuned: a threshold, one per class, or offsets, which may be none."""


@dataclass(frozen=True)
class Resampling:
    """How to resample rows: how often, from which seed, whole groups of them at a time."""

    replicates: int
    seed: int
    groups: Any = None


@dataclass(frozen=True, eq=False)
class TuningResult(Generic[Value, Numbers]):
    """A tuned rule, its value on the data it was tuned on, and how certain it is.

    ``tune_threshold`` and ``Evaluator.tune`` return it. ``interval`` and ``out_of_bag`` resample the rows and tune
    again when they are first read.

    Attributes
    ----------
    rule : Rule
        The best decision rule.
    value : float or list of float
        Its value on the data it was tuned on, one per class for ``average=None``.
    exact : bool
        True if no rule of its kind does better on these data; otherwise it is a local optimum.
    plateau : tuple, list of tuple or None
        From where to where thresholds around the best come within ``epsilon`` of its value: (low, high), one per class
        for a threshold per class.
    fewest : list of float
        For each decision, how many samples it had on its smaller side.
    error : float, list of float or None
        By how much a rule on the exact scores might be better, where only rounded ones were kept (``Evaluator.tune``);
        None if that is not known.
    origins : list of {'pooled', 'own', 'fixed'}
        For each decision, where its number comes from: shared by all that have too few samples, its own data, or the
        default rule.
    caution : str or None
        What to mind about the rule: which decisions had too few samples, and what became of them.
    guarantees : tuple of Guarantee
        Given a ``confidence``, what holds on new rows with it: each constraint, of each class.
    coverage : float
        The share of the rows that the rule decides; below 1 for a rule that abstains.

    Examples
    --------
    >>> tuning = tune_threshold("f1", [0.9, 0.8, 0.4, 0.3, 0.1], [1, 0, 1, 1, 0])
    >>> tuning.rule, tuning.exact
    (Threshold(threshold=0.2), True)

    """

    rule: Rule
    value: Value
    exact: bool
    plateau: Any
    fewest: list[float]
    origins: list[ThresholdSource]
    caution: str | None
    _problem: Problem = field(repr=False)
    _batch: AnyBatch = field(repr=False)
    _resampling: Resampling | None = field(repr=False)
    error: Any = 0.0
    guarantees: tuple[Guarantee, ...] = ()
    coverage: float = 1.0

    @property
    def threshold(self) -> Numbers:
        """The threshold: a number, or one per class; for a multi-class problem the offsets."""
        return self.rule.numbers  # type: ignore[no-any-return]

    @property
    def rare_labels(self) -> list[bool]:
        """Whether each decision has too few positives or negatives for a threshold of its own to be trusted."""
        return [few < FEWEST_TO_TUNE for few in self.fewest]

    @property
    def interval(self) -> Any:
        """The 95 % bootstrap interval of the threshold: (low, high), or one per class; None if the argmax is kept.

        Raises
        ------
        ValueError
            If the rows were not kept, as with ``Evaluator.tune``.

        """
        if self.threshold is None:
            return None
        thresholds = self._resampled[0].sort(0).values
        # Order statistics, since thresholds may be infinite and between ∞ and ∞ there is no interpolation.
        last = len(thresholds) - 1
        low = thresholds[round(0.025 * last)].tolist()
        high = thresholds[round(0.975 * last)].tolist()
        return (low, high) if thresholds.dim() == 1 else list(zip(low, high, strict=True))

    @property
    def out_of_bag(self) -> Any:
        """The mean value of rules tuned on resamples, on the rows left out: what to expect on new data.

        Raises
        ------
        ValueError
            If the rows were not kept, as with ``Evaluator.tune``.

        """
        return _as_python(self._resampled[1].nanmean(0))

    def resample(self) -> Iterator[tuple[Rule, Tensor]]:
        """Resample the rows and tune again: what ``interval`` and ``out_of_bag`` are computed from.

        Yields
        ------
        rule : Rule
            The best rule of a resample; one that predicts nothing where no rule meets the constraints.
        left_out : Tensor
            A mask of the rows that the resample left out.

        Raises
        ------
        ValueError
            If the rows were not kept, as with ``Evaluator.tune``.

        """
        how = self._resampling
        if how is None:
            raise ValueError(
                "interval, out_of_bag and resample: expected the rows to resample, got counts; use tune_threshold"
            )
        for rule, times in self._problem.tune_on_resamples(self._batch, how.replicates, how.seed, how.groups):
            yield rule, times == 0

    @cached_property
    def _resampled(self) -> tuple[Tensor, Tensor]:
        """The numbers of the rules tuned on resamples, and their values on the rows left out."""
        thresholds = []
        values = []
        for rule, left_out in self.resample():
            numbers = () if rule.numbers is None else rule.numbers
            thresholds.append(torch.tensor(numbers, dtype=torch.float64))
            rest = self._batch.take(left_out)
            value = self._problem.value(rest, rule)
            values.append(value if self._problem.can_evaluate(rest) else torch.full_like(value, torch.nan))
        return torch.stack(thresholds), torch.stack(values)

    @property
    def class_scores(self) -> ClassScores:
        """A bounded summary of the scores of each class: what ``at_prevalence`` needs, and files keep.

        Raises
        ------
        ValueError
            If the scores were sparse, or a class has no rows.

        """
        check_can_reweight(self._batch, self._problem.objective.task)
        return ClassScores.of(self._batch, self._problem.objective.task)  # type: ignore[arg-type]  # checked above

    def evaluate(self, rule: Rule) -> Value:
        """Evaluate another rule on the same rows, for example the one in use so far.

        Parameters
        ----------
        rule : Rule
            A decision rule for the same scores.

        Returns
        -------
        float or list of float
            Its value, as ``value`` is that of the tuned rule.

        Examples
        --------
        >>> tuning = tune_threshold("f1", [0.9, 0.8, 0.4, 0.3, 0.1], [1, 0, 1, 1, 0])
        >>> round(tuning.at_prevalence(0.2).evaluate(tuning.rule), 4)
        0.5

        """
        return _as_python(self._problem.value(self._batch, rule))  # type: ignore[no-any-return]

    def at_prevalence(self, prevalence: Any) -> TuningResult[Value, Numbers]:
        """Tune again for another base rate: on the same rows, weighted so that the classes have these shares.

        Parameters
        ----------
        prevalence : float or sequence of float
            The share of positives; of several classes the share of each; of several labels the share of positives of
            each.

        Returns
        -------
        TuningResult
            The best rule at this base rate, and its value there.

        Raises
        ------
        ValueError
            If it is no share, a class has no rows, or the scores were sparse.

        Examples
        --------
        >>> tuning = tune_threshold("f1", [0.9, 0.8, 0.7, 0.4, 0.3, 0.1], [1, 0, 1, 0, 1, 0])
        >>> tuning.threshold, round(tuning.at_prevalence(0.05).threshold, 4)
        (0.2, 0.85)

        """
        found = tune_at_prevalence(self._problem, self._batch, prevalence, self.fewest, self._resampling)
        # With rounded scores, how much a finer threshold might add is not known at the new base rate.
        return found if self.error == 0.0 else replace(found, exact=False, error=None)

    def __str__(self) -> str:
        tuned = any(origin != "fixed" for origin in self.origins)
        optimum = "exact" if self.exact else "local"
        how = f"where tuned ({optimum} optimum)" if tuned else "with the default rule"
        lines = [f"{self.rule!r}", f"{self._problem.objective.name} {_format_value(self.value)} {how}"]
        if isinstance(self.plateau, tuple) and tuned:
            low, high = self.plateau
            lines.append(f"within {self._problem.epsilon:g} of it from {low:.6g} to {high:.6g}")
        if self.error != 0.0:
            bound = "an unknown amount" if self.error is None else _format_value(self.error)
            lines.append(f"scores were rounded: a finer threshold is better by {bound} at most")
        if self.rule.abstains:
            lines.append(f"decides {100 * self.coverage:.0f} % of the rows")
        lines.extend(map(str, self.guarantees))
        if self.caution is not None:
            lines.append(f"caution: {self.caution}")
        return "\n".join(lines)


class TuningOptions(TypedDict, total=False):
    """The options of ``tune_threshold`` that do not change the types of its result."""

    labels: Iterable[int] | None
    empty_classes: EmptyClasses
    subject_to: Any
    confidence: float | None
    confidence_over: ConfidenceOver
    abstain: bool
    abstain_label: int
    weight: Any
    mask: Any
    ignore_index: int | None
    default_threshold: float
    prevalence: Any
    epsilon: float
    replicates: int
    seed: int
    groups: Any


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Literal["binary"] | None = None,
    average: Averaged = "macro",
    shared: bool = False,
    rare_labels: ThresholdSource = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult[float, float]: ...


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Literal["multilabel"],
    average: Averaged = "macro",
    shared: Literal[True],
    rare_labels: ThresholdSource = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult[float, float]: ...


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Literal["multilabel"],
    average: Averaged = "macro",
    shared: Literal[False] = False,
    rare_labels: ThresholdSource = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult[float, tuple[float, ...]]: ...


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Literal["multilabel"],
    average: None,
    shared: Literal[False] = False,
    rare_labels: ThresholdSource = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult[list[float], tuple[float, ...]]: ...


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Literal["multiclass"],
    average: Averaged = "macro",
    shared: bool = False,
    rare_labels: Literal["own", "pooled"] = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult[float, tuple[float, ...]]: ...


@overload
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Task | None,
    average: Average | None = "macro",
    shared: bool = False,
    rare_labels: ThresholdSource = "own",
    **options: Unpack[TuningOptions],
) -> TuningResult: ...


@explain_unknown
def tune_threshold(
    metric: str | Metric,
    scores: Any,
    targets: Any,
    *,
    task: Task | None = None,
    average: Average | None = "macro",
    shared: bool = False,
    labels: Iterable[int] | None = None,
    empty_classes: EmptyClasses = "count",
    subject_to: Any = None,
    confidence: float | None = None,
    confidence_over: ConfidenceOver = "all",
    abstain: bool = False,
    abstain_label: int = -1,
    weight: Any = None,
    mask: Any = None,
    ignore_index: int | None = None,
    rare_labels: ThresholdSource = "own",
    default_threshold: float = 0.5,
    prevalence: Any = None,
    epsilon: float = 0.01,
    replicates: int = 200,
    seed: int = 0,
    groups: Any = None,
) -> TuningResult:
    """Find the decision rule that maximises any metric on given scores, on the scores' own scale.

    "binary": the exact threshold. "multilabel": a threshold per class, or one for all (``shared=True``, exact for every
    average). Per class it is exact for "macro", "weighted" and None; for "micro" if the metric is a ratio of linear
    functions of the cells (F-beta, Jaccard, accuracy, kappa, ...), MCC or Fowlkes–Mallows; otherwise a local optimum.
    "multiclass": offsets added to log-probabilities (to the scores as they are, if rows are no distributions) before
    the argmax, a local optimum. ``exact`` of the result says which it is.

    Tune on data that the model was not trained on, and evaluate on other data again.

    Parameters
    ----------
    metric : str or callable
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    scores : Tensor, array-like or sparse matrix
        Scores on any scale, as torch, numpy, pandas or lists; higher means more likely positive. Shape as for ``task``.
        For "multilabel" also a scipy sparse matrix: a score that is not stored is 0, thresholds are above 0 and weights
        per row.
    targets : Tensor, array-like or sparse matrix
        The true labels, as torch, numpy, pandas, lists or scipy sparse matrix. Shape as for ``task``.
    task : {'binary', 'multilabel', 'multiclass'} or None, default None
        "binary": scores of any shape with targets of that shape. "multilabel": scores ``(N, K)`` or ``(N, K, ...)``
        with targets of that shape. "multiclass": the same scores with class indices ``(N,)`` or ``(N, ...)``, or soft
        labels of the shape of the scores. None is "binary" if the shapes leave no other reading, else an error.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    shared : bool, default False
        Tune one threshold for all classes of a multi-label problem instead of one per class.
    labels : iterable of int, optional
        The classes that count; leave a negative class out.
    empty_classes : {'count', 'skip'}, default 'count'
        What a class without positives does to the macro average: "count" (as in scikit-learn) or "skip".
    subject_to : str, dict, Constraint or list of these, optional
        Constraints that the rule must meet, such as "precision >= 0.9" or {"precision": 0.9}; comma-separated for
        several. With a threshold per class, every class must meet them.
    confidence : float, optional
        With a number such as 0.95, the constraints hold on new rows with at least that probability over the rows that
        are tuned on, instead of on these rows alone. The rows must be independent, and not those of the training.
    confidence_over : {'all', 'each'}, default 'all'
        Of several classes: whether the confidence is that all of them meet the constraints, or that a class does.
    abstain : bool, default False
        For a multi-class problem with ``subject_to``: predict the class of the highest score only where the class meets
        the constraints, and leave the other rows undecided.
    abstain_label : int, default -1
        What the rule returns for undecided rows; no class index.
    weight : array-like, optional
        Per sample or per element.
    mask : array-like of bool, optional
        True for what counts.
    ignore_index : int, optional
        Targets of this value do not count.
    rare_labels : {'pooled', 'own', 'fixed'}, default 'own'
        What becomes of a class that counts and has few positives or negatives. "own": nothing, it is tuned on its own
        data. "pooled": the labels with fewer than 50 share one threshold, the best for them together; offsets, where
        a class has fewer than 20, are all one multiple of −log(share of the class). Better on new data, as the
        estimators do it; one such label alone, and a binary problem, have nothing to share. "fixed": a label with
        fewer than 20 keeps ``default_threshold``; a multi-class problem with such a class the argmax. Under
        ``subject_to`` each class is tuned on its own data, so that each meets the constraints. ``origins`` and
        ``caution`` of the result say what was done.
    default_threshold : float, default 0.5
        Where ``rare_labels="fixed"`` leaves a class, on the scale of the scores: 0.5 for probabilities, 0 for logits
        and decision functions. With the default, scores outside [0, 1] are refused where it is needed.
    prevalence : float or sequence of float, optional
        The base rate where the rule is used, if it is another than that of these rows: the share of positives; of
        several classes the share of each; of several labels the share of positives of each. Rows are weighted so that
        the classes have these shares, in ``value`` and ``out_of_bag`` too. ``mg.estimate_prevalence`` finds it from
        rows without labels.
    epsilon : float, default 0.01
        The plateau holds the thresholds whose value is within ``epsilon`` of the best.
    replicates : int, default 200
        The number of bootstrap resamples behind ``interval`` and ``out_of_bag``.
    seed : int, default 0
        Random seed of the resamples.
    groups : array-like, optional
        The group of each row; rows of a group are drawn together in the resamples.

    Returns
    -------
    TuningResult
        The rule as ``rule``, its ``threshold``, its ``value`` on these data, whether it is ``exact``, and how certain
        it is.

    Raises
    ------
    ValueError
        If there are no samples, an option is unknown, or shapes do not fit ``task``.

    Examples
    --------
    >>> tuning = tune_threshold("f1", [0.9, 0.8, 0.4, 0.3, 0.1], [1, 0, 1, 1, 0])
    >>> tuning.threshold, round(tuning.value, 4)
    (0.2, 0.8571)

    """
    check_replicates(replicates)
    if not isinstance(metric, str) and not callable(metric):
        raise ValueError(
            f"metric: expected a name or a function first, as in tune_threshold('f1', scores, targets), got "
            f"{type(metric).__name__}"
        )
    if not epsilon >= 0:
        raise ValueError(f"epsilon: expected a number of at least 0, got {epsilon!r}")
    if confidence is not None and groups is not None:
        raise ValueError("groups: expected none with confidence=, since rows of a group are not independent")
    spec = TuningSpec(
        metric,
        task,
        average,
        shared,
        labels,
        empty_classes,
        subject_to,
        confidence,
        rare_labels,
        default_threshold,
        confidence_over,
        abstain,
        abstain_label,
    )
    problem = spec.problem(epsilon)
    batch = as_scored_batch_or_sparse(task, scores, targets, weight, mask, ignore_index).on_host()
    if not batch.rows:
        raise ValueError("scores: expected at least one sample to tune on, got none")
    batch = problem.objective.weigh(batch)
    check_labels(problem.objective.labels, batch.classes)
    sizes = problem.count_smaller_sides(batch).tolist()
    resampling = Resampling(replicates, seed, groups)
    if prevalence is not None:
        return tune_at_prevalence(problem, batch, prevalence, sizes, resampling)
    return _tune(problem, batch, sizes, resampling)


def tune_at_prevalence(
    problem: Problem, batch: AnyBatch, prevalence: Any, sizes: list[float], resampling: Resampling | None
) -> TuningResult:
    """Return the best rule of rows that are weighted to a base rate; ``sizes``: of ``Problem.count_smaller_sides``."""
    task = problem.objective.task
    shares = check_prevalence(prevalence, task, batch.classes)
    check_can_reweight(batch, task)
    return _tune(replace(problem, prevalence=shares), batch, sizes, resampling)


def _tune(problem: Problem, batch: AnyBatch, sizes: list[float], resampling: Resampling | None) -> TuningResult:
    """Return the best rule of a batch."""
    plan = problem.plan_by_sizes(sizes, batch.classes)
    solved = problem.solve(batch, plan)
    value = problem.value(batch, solved.rule)
    problem.objective.warn_if_undefined(value, of=())
    return TuningResult(
        rule=solved.rule,
        value=_as_python(value),
        exact=solved.exact,
        plateau=solved.plateau,
        fewest=sizes,
        origins=list(plan.sources),
        caution=plan.caution,
        _problem=problem,
        _batch=batch,
        _resampling=resampling,
        guarantees=problem.list_guarantees(batch, solved.rule),
        coverage=problem.measure_coverage(batch, solved.rule),
    )


def _as_python(value: Tensor) -> Any:
    """Return a number, or a list of them."""
    return value.item() if value.dim() == 0 else value.tolist()


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "[" + ", ".join(f"{one:.4f}" for one in value) + "]"
