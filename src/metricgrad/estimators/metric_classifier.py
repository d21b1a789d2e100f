"""``MetricClassifier``: networks trained and decided by the metric they are evaluated by. Needs the extra "sklearn"."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from metricgrad.core.batch import Batch, Task
from metricgrad.core.inputs import whole_number
from metricgrad.core.metrics.registry import count_values, get
from metricgrad.core.metrics.scalars import is_number
from metricgrad.decisions.default_rule import RARE_LABELS, default_rule, resolve_rule
from metricgrad.decisions.rules import Rule
from metricgrad.decisions.threshold_tuning import TuningResult, TuningSpec, tune_threshold
from metricgrad.estimators.fit_callbacks import CallbackSupportMixin, FitTask, Steps, with_callbacks
from metricgrad.estimators.labels import DecidesMixin, Labels, as_dense, as_vector
from metricgrad.estimators.preparation import choose_rule, compute_training_weight, make_labels, make_loss, yield_splits
from metricgrad.estimators.row_costs import find_fit_costs, has_cost_rule, tune_fitted_costs
from metricgrad.training.networks import Model, build_network
from metricgrad.training.tabm import MemberLoss, TabM
from metricgrad.training.training_loop import (
    Batches,
    Optimiser,
    TrainingData,
    TrainingSettings,
    apply_loss,
    compute_logits,
    one_thread,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from metricgrad.core.costs import Cost
    from metricgrad.core.metrics import Metric
    from metricgrad.core.metrics.averages import Average
    from metricgrad.training.training_loop import EpochRow


class MetricClassifier(DecidesMixin, CallbackSupportMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network trained on the metric it will be evaluated by, with a decision rule tuned for it.

    Takes binary, multi-class and multi-label (indicator) targets of any labels; dense or sparse features, frames too.

    Parameters
    ----------
    metric : str or callable, default 'f1'
        A name ("f1", "f0.5", "mcc", ...), "package.module:function", or a function of ``Counts`` (or ``Confusion``).
    metric_params : dict, optional
        Parameters of a metric given by name: {"beta": 2}, {"alpha": 0.3, "beta": 0.7}. For one value per class a
        sequence, or {"beta": {"dog": 0.25, "rest": 1}}, where "rest" stands for the classes that are not named.
    average : {'macro', 'micro', 'weighted', 'samples'} or None, default 'macro'
        How the values of the classes become one. None returns one per class. "samples" is the mean over rows, for
        multi-label problems.
    model : {'linear', 'mlp', 'mlp-large', 'tabm'}, sequence of int, nn.Module or callable, default (256,)
        A sequence gives the sizes of hidden layers; "linear" has none, "mlp" 32 and 16, "mlp-large" 512, 256 and 128;
        "tabm" is TabM [gorishniy2025], sixteen networks in one, slower and often better on tables (needs the extra
        "tabm"); a function takes (inputs, outputs) and returns a module; a module returns one logit per class (a single
        one for binary) and is copied.
    dropout : float, default 0.0
        Dropout after each hidden layer of the networks made here.
    loss : {'hybrid', 'metric', 'cross-entropy'} or nn.Module, default 'hybrid'
        "hybrid" is cross-entropy plus ``metric_weight`` × the metric loss; a module is copied.
    metric_weight : float, default 0.3
        The factor of the metric loss in the hybrid; it may exceed 1.
    surrogate : callable, optional
        The soft step of the metric loss, from ``mg.surrogates``; by default ``Linear``, or ``TopTwo`` for multi-class
        problems.
    warmup : int, default 0
        The number of epochs during which this factor grows from 0.
    rule : {'tuned', 'fixed'} or Rule, default 'tuned'
        "tuned" on data that the network was not trained on, as ``tune_threshold(rare_labels="pooled")`` does: labels
        with few positives share one threshold. "fixed" is 0.5, or the argmax. Or a rule of ``mg.decisions`` on
        probabilities.
    cv : int, splitter, iterable or None, default 5
        A number of folds (or a scikit-learn splitter, or pairs of train and test rows) trains one network per fold,
        without its rows: the rule is tuned on the scores of the rows left out (cross-fitted), and predictions are the
        mean of the networks. None trains one network with one validation split.
    validation_fraction : float, default 0.2
        The share of rows of the validation split when ``cv`` is None.
    monitor : {'loss', 'metric'}, default 'loss'
        What early stopping looks at: the loss, or the hard metric under the rule, on held-out rows.
    epochs : int, default 100
        The largest number of epochs.
    batch_size : int, optional
        By default 256, and for few rows an eighth of them, though not below 32.
    optimiser : {'adamw', 'adam', 'sgd'}, default 'adamw'
        The optimiser; "sgd" has a momentum of 0.9.
    learning_rate : float, default 0.003
        The learning rate.
    weight_decay : float, default 0.0001
        The weight decay.
    batches : {'stratified', 'shuffled'}, default 'stratified'
        "stratified" spreads every class (of multi-label data: rows with any label) evenly over the batches, since a
        batch without positives gives a metric no gradient; "shuffled" does not.
    weight_average : float, default 0.98
        The decay of an exponential moving average of the weights, which then is what is evaluated and kept, in [0, 1);
        0 for none.
    patience : int, default 15
        Stop after this many epochs without improvement.
    class_weight : dict, 'balanced' or None, default None
        {class: weight}, multiplies the sample weights in the loss, not in the metric. Class weights that you name say
        what to decide, and tuning would undo it: the rule then stays at 0.5, or the argmax.
    scale : bool, default True
        Standardise the features (scikit-learn's ``StandardScaler``).
    warm_start : bool, default False
        Continue from the weights of the last ``fit``.
    n_jobs : int, optional
        How many networks to train at once; one by default.
    random_state : int, RandomState instance or None, default None
        Random seed of splits, weights and batches; results are the same, bit for bit, whatever ``n_jobs``.
    verbose : bool, default False
        Show a progress bar (needs tqdm).

    Attributes
    ----------
    networks_ : list of nn.Module
        The trained networks.
    rule_ : Rule
        The decision rule.
    tuning_ : TuningResult or None
        How the rule was tuned; None if it was not.
    classes_ : ndarray
        The labels; of a multi-label problem their indices.
    scaler_ : StandardScaler or None
        The scaler of the features.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray
        The names of the features, if they were strings.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MetricClassifier("mcc", model="linear", cv=2, epochs=10, random_state=0).fit(X[100:], y[100:])
    >>> model.score(X[:100], y[:100]) > 0.8
    True

    """

    tuning_: TuningResult | None
    networks_: list[nn.Module]

    def __init__(
        self,
        metric: str | Metric = "f1",
        *,
        metric_params: Mapping[str, Any] | None = None,
        average: Average | None = "macro",
        model: Model = (256,),
        dropout: float = 0.0,
        loss: Literal["hybrid", "metric", "cross-entropy"] | nn.Module = "hybrid",
        metric_weight: float = 0.3,
        surrogate: Any = None,
        warmup: int = 0,
        rule: Literal["tuned", "fixed"] | Rule = "tuned",
        cv: Any = 5,
        validation_fraction: float = 0.2,
        monitor: Literal["loss", "metric"] = "loss",
        epochs: int = 100,
        batch_size: int | None = None,
        optimiser: Optimiser = "adamw",
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-4,
        batches: Batches = "stratified",
        weight_average: float = 0.98,
        patience: int = 15,
        class_weight: Any = None,
        scale: bool = True,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.metric_params = metric_params
        self.average = average
        self.model = model
        self.dropout = dropout
        self.loss = loss
        self.metric_weight = metric_weight
        self.surrogate = surrogate
        self.warmup = warmup
        self.rule = rule
        self.cv = cv
        self.validation_fraction = validation_fraction
        self.monitor = monitor
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimiser = optimiser
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batches = batches
        self.weight_average = weight_average
        self.patience = patience
        self.class_weight = class_weight
        self.scale = scale
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        tags.input_tags.sparse = True
        return tags

    # Fitting

    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None, costs: Cost | None = None) -> Self:
        """Train the networks and tune the rule.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``.
        y : array-like
            Labels ``(n,)`` of any type, or a multi-label indicator matrix ``(n, K)``.
        sample_weight : array-like, optional
            Per sample, ``(n,)``.
        costs : Cost, optional
            The costs of these rows, if ``metric`` is a ``Cost`` that differs by row and does not name columns of X.
            Models are trained for the mean costs, the rule decides by those of each row.

        Returns
        -------
        MetricClassifier
            Itself.

        """
        given = X
        X, y = validate_data(
            self, X, as_dense(y), accept_sparse="csr", multi_output=True, dtype=np.float64, ensure_min_samples=2
        )
        y = as_vector(y)
        self.labels_ = labels = make_labels(y)
        cost = find_fit_costs(self.metric, costs, given, len(y))
        if cost is not None:
            self.mean_cost_ = cost.mean()
        settings, objective = self._make_settings(len(y)), self._make_tuning_spec(labels.task)
        before = getattr(self, "networks_", []) if self.warm_start else []
        if not before or not hasattr(self, "scaler_"):
            self.scaler_ = (
                StandardScaler(with_mean=not hasattr(X, "toarray")).fit(X, sample_weight=sample_weight)
                if self.scale
                else None
            )
        self.classes_ = labels.classes
        data = self._make_data(X, y, sample_weight)
        weight = _to_tensor(compute_training_weight(labels, X, y, sample_weight, None))
        rule = choose_rule(self.rule, self.class_weight)
        if not before or not hasattr(self, "_seeds"):
            self._seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=2)
        seeds = self._seeds  # a warm start keeps its folds: no network may see the rows that evaluate it
        parts = list(yield_splits(labels, data.targets, self.cv, self.validation_fraction, int(seeds[0])))
        task = FitTask.begin_fit(self, X, y, len(parts), sequential=False)
        jobs = [
            delayed(_train_one)(
                self._make_network(data.features, rows, int(seeds[1]) + i, before[i : i + 1]),
                self._make_loss(labels.task, len(data)),
                data.take(rows),
                None if held is None else data.take(held),
                _HeldOutMonitor(objective, self.monitor, rule, labels, _take_rows(weight, held)),
                settings,
                int(seeds[1]) + i,
                f"network {i + 1} of {len(parts)}" if self.verbose else None,
                task.part("network", i, settings.epochs),
            )
            for i, (rows, held) in enumerate(parts)
        ]
        found = Parallel(n_jobs=self.n_jobs)(jobs)
        self.networks_ = [network for network, _ in found]
        self._histories = [history for _, history in found]
        self._set_rule(data, parts, objective, rule, weight, cost)
        task.end(lambda: vars(self))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Train the first network for one epoch on more rows; no rows are held out, so the rule stays as it is.

        Without a ``fit`` before, the rule is 0.5, or the argmax, and features are scaled by all rows so far. After a
        ``fit`` with several networks or a tuned rule the scaling stays, since these depend on it.

        Parameters
        ----------
        X : array-like, DataFrame or sparse matrix
            ``(n, features)``.
        y : array-like
            Labels ``(n,)`` of any type, or a multi-label indicator matrix ``(n, K)``.
        classes : array-like, optional
            All labels that will ever come; needed in the first call unless ``y`` has them all.
        sample_weight : array-like, optional
            Per sample, ``(n,)``.

        Returns
        -------
        MetricClassifier
            Itself.

        Raises
        ------
        ValueError
            If ``classes`` are not those of the first call, or a label is not among them.

        """
        first = not hasattr(self, "networks_")
        X, y = validate_data(
            self, X, as_dense(y), accept_sparse="csr", multi_output=True, dtype=np.float64, reset=first
        )
        y = as_vector(y)
        if first:
            self.labels_ = Labels(y, classes)
            self.classes_ = self.labels_.classes
            if len(self.classes_) < 2 and self.labels_.task != "multilabel":
                raise ValueError("classes: expected all labels that will come, in the first call of partial_fit")
            self.scaler_ = StandardScaler(with_mean=not hasattr(X, "toarray")) if self.scale else None
            seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
            self._histories, self._steps = [[]], seed
            self.rule_, self.tuning_ = default_rule(self.labels_.task), None
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes: expected those of the first call, {list(self.classes_)}, got {list(classes)}")
        if self.scaler_ is not None and (first or (self.tuning_ is None and len(self.networks_) == 1)):
            self.scaler_.partial_fit(X, sample_weight=sample_weight)
        data = self._make_data(X, y, sample_weight)
        if first:
            self.networks_ = [self._make_network(data.features, torch.arange(len(data)), self._steps, [])]
        settings = self._make_settings(len(data), epochs=1)
        self._steps = getattr(self, "_steps", 0) + 1
        loss = self._make_loss(self.labels_.task, len(data))
        with one_thread():
            self._histories[0] += train(self.networks_[0], loss, data, settings, seed=self._steps)
        return self

    def _make_settings(self, rows: int, epochs: int | None = None) -> TrainingSettings:
        whole_number("warmup", self.warmup, 0)
        if not (is_number(self.weight_average) and 0 <= self.weight_average < 1):
            raise ValueError(f"weight_average: expected a number in [0, 1), got {self.weight_average!r}")
        return TrainingSettings(
            self.epochs if epochs is None else epochs,
            self._batch_size(rows),
            self.optimiser,
            self.learning_rate,
            self.weight_decay,
            self.batches,
            self.weight_average,
            self.patience,
        )

    def _batch_size(self, rows: int) -> int:
        return min(256, max(32, rows // 8)) if self.batch_size is None else self.batch_size

    def _make_tuning_spec(self, task: Task) -> TuningSpec:
        if self.monitor not in ("metric", "loss"):
            raise ValueError(f"monitor: expected 'metric' or 'loss', got {self.monitor!r}")
        resolve_rule(self.rule, task)
        tuned = TuningSpec(self._metric, task, self.average, rare_labels=RARE_LABELS)
        tuned.problem()
        return tuned

    def _make_data(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        weight = compute_training_weight(self.labels_, X, y, sample_weight, self.class_weight)
        return TrainingData(self._features(X), self.labels_.encode(y), _to_tensor(weight))

    def _features(self, X: Any) -> Any:
        scaled = X if self.scaler_ is None else self.scaler_.transform(X)
        if hasattr(scaled, "toarray"):
            return scaled.astype(np.float32)
        return torch.from_numpy(np.array(scaled, dtype=np.float32))  # a copy: what was given may be read-only

    def _make_network(self, features: Any, rows: Tensor, seed: int, before: list[nn.Module]) -> nn.Module:
        """Return a copy of the network before, if there is one, or else a new one to be trained on ``rows``."""
        if before:
            return copy.deepcopy(before[0])
        labels = self.labels_
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = copy.deepcopy(
                build_network(self.model, features.shape[1], labels.outputs, self.dropout, labels.task)
            )
        if isinstance(network, TabM):
            network.fit_bins(features, rows)
        return network

    def _make_loss(self, task: Task, rows: int) -> nn.Module:
        steps = self.warmup * max(1, -(-rows // self._batch_size(rows)))
        options = {"metric_weight": self.metric_weight, "warmup": steps, "surrogate": self.surrogate}
        average = self.average or "macro"  # None has one value per class, of which training needs the mean
        if not (isinstance(self.model, str) and self.model == "tabm"):
            return make_loss(self.loss, self._metric, task=task, average=average, **options)
        # A metric or a surrogate of the user's own may hold a number for each label, not for each label of each member.
        of_any_class = isinstance(self._metric, str) and not count_values(get(self._metric))
        plain = isinstance(self.loss, str) and of_any_class and self.surrogate is None
        if plain and task == "binary":
            return MemberLoss(make_loss(self.loss, self._metric, task="multilabel", **options), at_once=True)
        at_once = plain and task == "multilabel" and average in ("macro", "weighted")
        return MemberLoss(make_loss(self.loss, self._metric, task=task, average=average, **options), at_once=at_once)

    def _set_rule(
        self,
        data: TrainingData,
        parts: list[Any],
        tuned: TuningSpec,
        rule: Any,
        weight: Tensor | None,
        cost: Cost | None,
    ) -> None:
        self.tuning_ = None
        self.rule_ = rule if isinstance(rule, Rule) else default_rule(self.labels_.task)
        if rule != "tuned" or parts[0][1] is None:
            return
        with one_thread():
            p = [
                self.labels_.probabilities(compute_logits(network, data.take(held).features))
                for network, (_, held) in zip(self.networks_, parts, strict=True)
            ]
        rows = torch.cat([held for _, held in parts])
        if cost is not None and has_cost_rule(cost, self.labels_.task):
            self.rule_, self.tuning_ = tune_fitted_costs(
                self.metric, cost.take(rows), torch.cat(p), data.targets[rows], _take_rows(weight, rows)
            )
            return
        how: dict[str, Any] = {
            "task": tuned.task,
            "average": tuned.average,
            "weight": _take_rows(weight, rows),
            "rare_labels": tuned.rare_labels,
        }
        self.tuning_ = tune_threshold(tuned.metric, torch.cat(p), data.targets[rows], **how)
        self.rule_ = self.tuning_.rule

    # Predicting

    def _scores(self, X: Any) -> Tensor:
        check_is_fitted(self, "networks_")
        return self._score_checked(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))

    def _score_checked(self, X: Any) -> Tensor:
        """Return the scores of rows that were checked, or made by an encoder."""
        features = self._features(X)
        with one_thread():
            each = [self.labels_.probabilities(compute_logits(network, features)) for network in self.networks_]
        return torch.stack(each).mean(0)

    @property
    def history_(self) -> Any:
        """The training history: a DataFrame with a row per network and epoch."""
        import pandas as pd

        check_is_fitted(self, "networks_")
        return pd.DataFrame([{"network": i} | row for i, rows in enumerate(self._histories) for row in rows])


class _HeldOutMonitor:
    """How good a network is on held-out rows: the hard metric under the rule, or minus the loss.

    ``weight``: of the held-out rows in the metric, without class weights: those say how to train, not how to evaluate.
    """

    def __init__(self, tuned: TuningSpec, monitor: str, rule: Any, labels: Labels, weight: Tensor | None) -> None:
        self.tuned = tuned
        self.monitor = monitor
        self.rule = rule
        self.labels = labels
        self.weight = None if weight is None else weight.unsqueeze(1)

    def values(self, network: nn.Module, held: TrainingData, loss: nn.Module) -> tuple[float, ...]:
        """Return what is monitored, and minus the loss to tell epochs of an equal hard metric apart."""
        z = compute_logits(network, held.features)
        with torch.no_grad():
            logits = z.squeeze(1) if self.labels.task == "binary" else z
            merit = -float(apply_loss(loss, logits, held.targets, held.weight))
        if self.monitor == "loss":
            return (merit,)
        p = self.labels.probabilities(z)
        y = held.targets.unsqueeze(1) if self.labels.task == "binary" else held.targets
        batch = Batch(p.unsqueeze(1) if p.dim() == 1 else p, y, self.weight, None)
        problem = self.tuned.problem()
        rule = self.rule if isinstance(self.rule, Rule) else default_rule(self.labels.task)
        if self.rule == "tuned" and self.labels.task != "multiclass":
            rule = problem.solve(batch).rule
        return float(problem.value(batch, rule).mean()), merit


def _to_tensor(weight: Any) -> Tensor | None:
    return None if weight is None else torch.as_tensor(weight, dtype=torch.float32)


def _take_rows(weight: Tensor | None, rows: Tensor | None) -> Tensor | None:
    return None if weight is None or rows is None else weight[rows]


def _train_one(
    network: nn.Module,
    loss: nn.Module,
    data: TrainingData,
    held: TrainingData | None,
    monitor: _HeldOutMonitor,
    settings: TrainingSettings,
    seed: int,
    title: str | None,
    task: FitTask,
) -> tuple[nn.Module, list[EpochRow]]:
    bar = None
    if title is not None:
        from tqdm.auto import tqdm

        bar = tqdm(total=settings.epochs, desc=title, leave=False)
    steps = Steps(task, "epoch")

    def end_epoch(model: nn.Module) -> bool:
        if bar is not None:
            bar.update()
        return steps.end(lambda: _describe_fitted(model, monitor))

    task.begin()
    with one_thread():
        history = train(
            network,
            loss,
            data,
            settings,
            None if held is None else lambda model: monitor.values(model, held, loss),
            seed,
            steps.begin,
            end_epoch,
        )
    if bar is not None:
        bar.close()
    task.end(lambda: _describe_fitted(network, monitor))  # the other networks are needed all the same
    return network, history


def _describe_fitted(network: nn.Module, monitor: _HeldOutMonitor) -> dict[str, Any]:
    """Return the attributes of an estimator of this network alone, with a rule that is not tuned, for callbacks."""
    rule = monitor.rule if isinstance(monitor.rule, Rule) else default_rule(monitor.labels.task)
    return {"networks_": [copy.deepcopy(network).eval()], "rule_": rule, "tuning_": None, "_histories": [[]]}
