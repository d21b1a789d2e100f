"""``to_onnx``: a fitted estimator as one ONNX file, from features or columns to labels. Needs the extra "onnx"."""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx
import onnxruntime
import pandas as pd
from onnx import TensorProto, helper
from sklearn.utils.validation import check_is_fitted

from metricgrad.atomic_files import write_file
from metricgrad.core.storable import KINDS
from metricgrad.decisions.rules import Rule
from metricgrad.estimators.labels import PredictsMixin
from metricgrad.storage.onnx_graph import OUTPUTS, Graph, name_input, onnx_type
from metricgrad.storage.onnx_models import EXPORTED, GivenRows, add_scores, find_columns

if TYPE_CHECKING:
    from metricgrad.estimators.columns.column import Column
    from metricgrad.estimators.labels import Labels

_ROWS_TO_CHECK = 6


def to_onnx(
    estimator: Any,
    file: str | Path,
    *,
    dtype: Literal["float32", "float64"] = "float32",
    overwrite: bool = False,
) -> Path:
    """Write a fitted model with its encoder and its decision rule into one ONNX file.

    An estimator that was fitted on an array has one input, "features" ``(rows, features)`` of ``dtype``. The model that
    ``compare`` ships, and whatever else has a ``TableEncoder``, has an input ``(rows, 1)`` for each column:

    ============= ============================ ==================
    column        type                         where it is missing
    ============= ============================ ==================
    number        ``dtype``                    NaN
    boolean       ``dtype``, 0 and 1           NaN
    date          float64, seconds since 1970  NaN
    category      text                         the empty text
    text          text                         the empty text
    ============= ============================ ==================

    Outputs are "scores", what ``predict_scores`` returns, and "labels", what ``predict`` returns, for any number of
    rows. The file is run on a few rows by ONNX Runtime before it is written.

    Parameters
    ----------
    estimator : classifier
        A fitted one of this library, such as ``study.model``.
    file : str or Path
        Where to write, in a folder that exists.
    dtype : {'float32', 'float64'}, default 'float32'
        The type of numbers in the inputs; take "float64" for features that are large compared with their spread, such
        as times in seconds.
    overwrite : bool, default False
        Replace a file that exists.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        If the estimator, a member, a column or the rule cannot be written, or the file exists.

    Examples
    --------
    >>> import tempfile
    >>> from metricgrad import MetricClassifier
    >>> model = MetricClassifier(epochs=1, random_state=0).fit([[0.0], [1.0], [2.0], [3.0]], ["no", "no", "yes", "yes"])
    >>> with tempfile.TemporaryDirectory() as place:
    ...     graph = onnx.load(to_onnx(model, f"{place}/model.onnx")).graph
    >>> [output.name for output in graph.output]
    ['scores', 'labels']

    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"dtype: expected 'float32' or 'float64', got {dtype!r}")
    scored_by = estimator._scored_by if isinstance(estimator, PredictsMixin) else estimator
    if type(scored_by) not in EXPORTED:
        names = ", ".join(kind.__name__ for kind in EXPORTED)
        raise ValueError(
            f"estimator: expected a {names} or the model of a run, got {type(estimator).__name__}; for others see "
            "skl2onnx"
        )
    check_is_fitted(estimator, "rule_")
    path = Path(file)
    if not path.parent.is_dir():
        raise ValueError(f"file: expected a place in a folder that exists, got {str(path)!r}")
    if path.exists() and not overwrite:
        raise ValueError(f"file: {str(path)!r} exists; choose another, or pass overwrite=True")
    columns = find_columns(scored_by)
    model = _make_model(estimator, scored_by, columns, Graph(dtype))
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString()
    _check_against_estimator(scored_by, columns, data, dtype)
    write_file(path, data)
    return path


def _make_model(estimator: Any, scored_by: Any, columns: tuple[Column, ...] | None, graph: Graph) -> Any:
    """Return the model; as the estimators do, it decides in float64."""
    labels = estimator.labels_
    scores = add_scores(graph, scored_by, GivenRows(graph, columns))
    graph.cast(scores, graph.dtype, OUTPUTS[0])
    kind = _add_rule(graph, estimator.rule_, scores, labels, getattr(estimator, "abstain_label", None))
    shape: list[Any] = ["rows", *labels.scores_shape(0)[1:]]
    outputs = [
        helper.make_tensor_value_info(OUTPUTS[0], onnx_type(graph.dtype), shape),
        helper.make_tensor_value_info(OUTPUTS[1], kind, shape if labels.task == "multilabel" else ["rows"]),
    ]
    model = graph.make_model(type(estimator).__name__, outputs)
    model.producer_name = "metricgrad"
    model.producer_version = version("metricgrad")
    notes = {"task": labels.task, "rule": repr(estimator.rule_), "classes": json.dumps(labels.classes.tolist())}
    names = getattr(estimator, "feature_names_in_", None)
    if columns is not None:
        notes["columns"] = json.dumps({column.name: column.kind for column in columns})
    elif names is not None:
        notes["features"] = json.dumps(list(names))
    helper.set_model_props(model, notes)
    return model


def _add_rule(graph: Graph, rule: Rule, p: str, labels: Labels, abstain_label: Any) -> int:
    """Add the output "labels" and return its type."""
    if labels.task not in rule.tasks or not _has_onnx(type(rule)):
        known = [kind for kind in KINDS.values() if issubclass(kind, Rule) and _has_onnx(kind)]
        *most, last = (kind.__name__ for kind in sorted(known, key=lambda kind: "multiclass" in kind.tasks))
        names = f"{', '.join(most)} or {last}"
        raise ValueError(
            f"rule_: expected a {names} that fits {labels.task}, got {type(rule).__name__}: {rule.describe()}"
        )
    index = rule.to_onnx(graph, p, len(labels.classes))
    if labels.task == "multilabel":
        graph.cast(index, np.int64, OUTPUTS[1])
        return TensorProto.INT64
    if labels.task == "binary":
        index = graph.cast(index, np.int64)
    classes = _convert_classes(labels.classes)
    if rule.abstains:
        undecided = graph.add("Less", index, graph.constant(0))
        index = graph.add("Where", undecided, graph.constant(len(classes)), index)
        classes = _append_undecided(classes, abstain_label)
    graph.add("Gather", graph.constant(classes), index, name=OUTPUTS[1])
    return onnx_type(classes.dtype)


def _has_onnx(kind: type[Rule]) -> bool:
    return kind.to_onnx is not Rule.to_onnx


def _convert_classes(classes: Any) -> Any:
    """Return the classes as a type that ONNX has."""
    if classes.dtype.kind in "bf":
        return classes
    if classes.dtype.kind in "iu":
        return classes.astype(np.int64)
    if all(isinstance(name, str) for name in classes):
        return classes.astype(object)
    raise ValueError(f"classes_: expected numbers, bools or texts, got {classes.tolist()}")


def _append_undecided(classes: Any, abstain_label: Any) -> Any:
    """Return the classes and what stands for a row left undecided: None is "", NaN or -1, since ONNX has no None."""
    instead_of_none = {"O": "", "f": np.nan, "i": -1}.get(classes.dtype.kind)
    label = instead_of_none if abstain_label is None else abstain_label
    fits = _convert_classes(np.array([label])).dtype == classes.dtype
    if not fits or label in classes.tolist():
        raise ValueError(
            f"abstain_label: expected one of the type of the classes {classes.tolist()} and none of them, "
            f"got {abstain_label!r}; ONNX has one type for all labels, and no None"
        )
    return np.append(classes, np.array([label], classes.dtype))


def _check_against_estimator(estimator: Any, columns: tuple[Column, ...] | None, data: bytes, dtype: str) -> None:
    """Refuse a graph that is not the estimator: a hook of the user's, say, is in the networks and not in it."""
    if columns is None:
        given, feeds = _make_matrix(estimator, dtype)
    else:
        given, feeds = _make_table(columns, dtype)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    (found,) = session.run([OUTPUTS[0]], {name: cells for name, cells in feeds.items() if name in wanted})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without feature names
        apart = np.abs(found - estimator._scores(given).numpy()).max()
    if not apart < 1e-5:
        raise ValueError(
            f"estimator: expected scores that follow from what was fitted, got some {apart:.2g} apart; remove hooks "
            "and methods of your own"
        )


def _make_matrix(estimator: Any, dtype: str) -> tuple[Any, dict[str, Any]]:
    """Return some rows for an estimator of numbers, and as the input of its graph."""
    x = np.random.default_rng(0).normal(size=(_ROWS_TO_CHECK, estimator.n_features_in_))
    scaler = getattr(estimator, "scaler_", None)
    if scaler is not None:
        x = scaler.inverse_transform(x)
    x = x.astype(dtype)
    return x, {"features": x}


def _make_table(columns: tuple[Column, ...], dtype: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Return some rows of a table, as a frame and as the inputs of a graph; the last one has gaps, as in training."""
    frame: dict[str, Any] = {}
    feeds: dict[str, Any] = {}
    for column in columns:
        if column.kind in ("category", "text"):
            texts = [*column.categories[: _ROWS_TO_CHECK - 2], "Never seen, ÄÖ 1"]
            texts = [texts[place % len(texts)] for place in range(_ROWS_TO_CHECK - 1)]
            frame[column.name] = pd.Series([*texts, None], dtype=object)
            cells = np.array([*texts, ""], dtype=object)
        else:
            levels = np.resize([*column.edges, column.mean], _ROWS_TO_CHECK)
            levels[-1] = np.nan if column.missing else column.mean
            cells = levels.astype(dtype)
            frame[column.name] = cells.astype(np.float64)
            if column.kind == "date":
                dates = pd.Timestamp("2000-01-01") + pd.to_timedelta(np.round(levels * 86_400), unit="s")
                frame[column.name] = dates
                cells = dates.to_numpy("datetime64[s]").astype(np.float64)
                cells[dates.isna()] = np.nan
        feeds[name_input(column.name)] = cells[:, None]
    return pd.DataFrame(frame), feeds
