"""``mg.compare``: a comparison in Python."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from metricgrad import strict_json
from metricgrad.comparison import run_comparison
from metricgrad.comparison.contenders import CONTENDERS
from metricgrad.comparison.errors import INTERRUPTED, UserError, writing
from metricgrad.comparison.options import Options, choose_repeats
from metricgrad.comparison.python_errors import python_errors
from metricgrad.comparison.report.comparison_report import write_comparison_report
from metricgrad.comparison.run_folder import list_types
from metricgrad.comparison.study import Study
from metricgrad.comparison.tables.frames import to_table
from metricgrad.comparison.unit_files import name_file
from metricgrad.comparison.workers import count_cores
from metricgrad.core.costs import Cost
from metricgrad.core.metrics.scalars import is_number
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def compare(
    data: Any,
    target: str | Sequence[str],
    metric: str | Sequence[str] = "f1",
    *,
    average: str = "macro",
    beta: float | Mapping[Any, float] | None = None,
    alpha: float | Mapping[Any, float] | None = None,
    cost: Cost | str | None = None,
    subject_to: str | None = None,
    confidence: float | None = None,
    abstain: bool = False,
    abstain_label: str | int | None = None,
    task: str | None = None,
    positive: str | int | bool | None = None,
    drop: str | Sequence[str] | None = None,
    drop_unlabelled: bool = False,
    group: str | None = None,
    time: str | None = None,
    date_format: str | None = None,
    rows: int | None = None,
    repeats: int | None = None,
    seed: int = 0,
    contenders: str | Sequence[str] | None = None,
    extra_contenders: str | Sequence[str] | Mapping[str, Any] | None = None,
    quick: bool = False,
    budget: float | None = None,
    ship: str | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    out: str | os.PathLike[str] | None = None,
    force: bool = False,
    verbose: bool = False,
) -> Study:
    """Compare ways to train, recommend a model to ship, and fit it: ``metricgrad compare`` in Python.

    Names and defaults of the options are those of the command line, and so are the results.

    Parameters
    ----------
    data : str, path or DataFrame
        A file (CSV, JSON Lines, Parquet, Feather, Excel), or a frame of pandas, polars or pyarrow. A frame is kept in
        the run folder.
    target : str or list of str
        The column to predict; a list for a multi-label problem. A text is one name, also if it holds a comma.
    metric : str or list of str, default 'f1'
        "f1", "f2", "mcc", "package.module:function"; of several, the first is optimised and the others are reported.
    average : {'macro', 'micro', 'weighted', 'samples'}, default 'macro'
        The average over classes.
    beta, alpha : float or dict, optional
        Parameters of the metric, such as "f_beta" and "tversky": a number, or one for each class, ``{"dog": 0.25,
        "rest": 1}``.
    cost : Cost or str, optional
        What decisions cost, ``mg.Cost(fp=5, fn="amount")`` or "fp=5, fn=amount": numbers, or names of columns that have
        the cost of each row. What ships is then what saves most, and ``metric`` holds further metrics to show.
    subject_to : str, optional
        A constraint, such as "precision>=0.9".
    confidence : float, optional
        With a number such as 0.95, the constraint holds on new rows with at least that probability: a quarter of the
        rows is held out, and the rule of the shipped model is tuned on them.
    abstain : bool, default False
        Of several classes, predict the most likely one only where the class meets ``subject_to``, and leave the other
        rows undecided.
    abstain_label : str or int, optional
        What is predicted for an undecided row, no class; by default None, an empty cell in a file.
    task : {'binary', 'multiclass', 'multilabel'}, optional
        By default inferred from the target.
    positive : str, int or bool, optional
        The positive class of a binary target.
    drop : str or list of str, optional
        Feature columns to exclude.
    drop_unlabelled : bool, default False
        Of a target of separated labels, leave out the rows whose list is empty; by default they have no label.
    group : str, optional
        Rows with the same value in this column stay together.
    time : str, optional
        Train on the past of this column, evaluate on its future.
    date_format : str, optional
        How dates are written that could be read in two ways, such as "day/month/year".
    rows : int, optional
        Take a random sample of this many rows.
    repeats : int, optional
        The number of splits; 5, or 2 with ``quick``.
    seed : int, default 0
        Random seed for splits and training.
    contenders : str or list of str, optional
        The contenders to compare, instead of the default ones.
    extra_contenders : str, list of str or dict of str to estimator, optional
        Further contenders: names, such as "tabm", or classifiers of your own with ``predict_proba``, ``{"mine":
        pipeline}``. These get the columns of the data as they are; ``make_pipeline(mg.TableEncoder(), classifier)``
        encodes them.
    quick : bool, default False
        A first look: fewer contenders, repeats and epochs.
    budget : float, optional
        Minutes after which no further repeat is started.
    ship : str, optional
        The contender to ship, whatever is best; "NAME, fixed" for its fixed rule.
    jobs : int, optional
        The number of processes, by default one per core; with 1 everything runs in this process. No script needs
        ``if __name__ == "__main__"`` for them.
    cluster : str, optional
        The address of a Dask scheduler, whose workers are used instead.
    out : str or path, optional
        The run folder. By default it is temporary, and removed together with the ``Study``; ``Study.save`` copies it.
    force : bool, default False
        Replace an existing run folder.
    verbose : bool, default False
        Show profile and progress on stderr.

    Returns
    -------
    Study
        The leaderboard, the verdict, the model to ship and the report.

    Raises
    ------
    ValueError
        If an option, the data or the folder cannot be used; one line says what to do.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> frame = load_breast_cancer(as_frame=True).frame
    >>> study = compare(frame, "target", "mcc", contenders="logistic regression", quick=True, jobs=1)
    >>> study.verdict.ship in set(study.leaderboard["contender"])
    True
    >>> study.model.predict(frame.head(3))
    array([0, 0, 0])

    """
    given = {**locals(), "demo": False}
    with python_errors():
        own = _take_estimators(extra_contenders)
        given |= {name: _list_names(name, given[name]) for name in ("target", "metric", "drop", "contenders")}
        given["extra_contenders"] = () if own else _list_names("extra_contenders", given["extra_contenders"])
        given["own_contenders"] = tuple(own)
        given |= {name: _read_values(name, given[name]) for name in ("beta", "alpha")}
        given["cost"] = _read_cost(cost)
        given["positive"] = None if positive is None else str(positive)
        given["abstain_label"] = None if abstain_label is None else str(abstain_label)
        given["repeats"] = choose_repeats(repeats, quick)
        jobs = count_cores() if jobs is None else jobs
        _check_jobs(jobs)
        _check_budget(budget)
        with _open_data(data) as (path, keep):
            options = _make_options({**given, "data": path})
            place = Path(tempfile.mkdtemp(prefix="metricgrad-run-")) if out is None else Path(out)
            try:
                with _make_progress(verbose) as progress:
                    run_comparison.compare(
                        options,
                        place,
                        progress,
                        write_comparison_report,
                        jobs=jobs,
                        cluster=cluster,
                        budget=budget,
                        ship=ship,
                        force=force,
                        keep=keep,
                        own=own,
                    )
                # What this process made, it trusts.
                return Study(place, temporary=out is None, trusted=list_types(place) if own else ())
            except BaseException as error:
                if out is not None:
                    raise
                shutil.rmtree(place, ignore_errors=True)
                if isinstance(error, UserError) and error.code == INTERRUPTED:
                    raise KeyboardInterrupt("interrupted; with out= the run could be continued") from None
                raise


def _read_cost(cost: Cost | str | None) -> str | None:
    """Return costs as the command line takes them; arrays have no place in a run, which names their column."""
    if cost is None or isinstance(cost, str):
        return cost
    if not isinstance(cost, Cost):
        raise UserError(f"cost: expected mg.Cost(fp=..., fn=...) or a text, got {one_line(repr(cost), 100)}")
    return cost.to_text()


def _take_estimators(given: Any) -> dict[str, Any]:
    """Return the user's own estimators by name; none if the option holds names."""
    if not isinstance(given, Mapping):
        return {}
    files: dict[str, str] = {}
    for name, estimator in given.items():
        if not isinstance(name, str) or not name.strip() or name in CONTENDERS:
            raise UserError(f"extra_contenders: expected a name that no contender has, got {name!r}; choose another")
        if not hasattr(estimator, "fit") or not hasattr(estimator, "predict_proba"):
            raise UserError(
                f"extra_contenders: expected classifiers with predict_proba, got {type(estimator).__name__} as "
                f"{name!r}; scikit-learn's CalibratedClassifierCV adds it"
            )
        file = name_file(name, 0)
        if file in files:
            raise UserError(f"extra_contenders: {files[file]!r} and {name!r} differ in signs only; choose another name")
        files[file] = name
    return dict(given)


def _make_options(given: dict[str, Any]) -> Options:
    """Return the options of a run, of the right types."""
    options = {field.name: given[field.name] for field in fields(Options)}
    try:
        strict_json.check(options, Options, "options")
    except ValueError as error:
        raise UserError(str(error).removeprefix("options: ")) from error
    return Options(**options)


def _list_names(option: str, given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the names that an option holds; a text is one name, whatever is in it."""
    if given is None:
        return ()
    if isinstance(given, str) and "," in given and option not in ("target", "drop"):
        several = [part.strip() for part in given.split(",")]
        raise UserError(f"{option}: expected one name, or a list of names, got {given!r}; write {several}")
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or not all(isinstance(one, str) for one in given):
        raise UserError(f"{option}: expected a text or a list of texts, got {one_line(repr(given), 100)}")
    return tuple(given)


def _read_values(option: str, given: float | Mapping[Any, float] | None) -> float | dict[str, float] | None:
    """Return the values of a metric's parameter as options hold them: a number, or {class as text: number}."""
    each = given if isinstance(given, Mapping) else {"": given}
    if given is not None and not all(is_number(one) for one in each.values()):
        raise UserError(f"{option}: expected a number, or {{class: number}}, got {one_line(repr(given), 100)}")
    if isinstance(given, Mapping):
        return {str(name): float(value) for name, value in given.items()}
    return None if given is None else float(given)


def _check_jobs(jobs: Any) -> None:
    if not isinstance(jobs, int) or jobs < 1:
        raise UserError(f"jobs: expected a whole number of at least 1, got {jobs!r}")


def _check_budget(budget: Any) -> None:
    if budget is not None and not (isinstance(budget, int | float) and budget >= 0):
        raise UserError(f"budget: expected minutes, got {budget!r}")


@contextmanager
def _open_data(data: Any) -> Iterator[tuple[str, bool]]:
    """Give the path of the data, and whether to keep them in the run folder: a frame is written to a temporary file."""
    if isinstance(data, str | os.PathLike):
        yield os.fspath(data), False
        return
    table = to_table(data)
    with tempfile.TemporaryDirectory(prefix="metricgrad-") as folder:
        path = Path(folder) / "frame.parquet"
        with writing(path):
            pq.write_table(table, path)
        try:
            yield str(path), True
        except UserError as error:
            raise UserError(str(error).replace(str(path), "data"), error.code) from error


def _make_progress(verbose: bool) -> Any:
    from metricgrad.comparison.progress import LiveProgress, NoProgress

    return LiveProgress() if verbose else NoProgress()
