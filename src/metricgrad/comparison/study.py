"""``mg.Study``: a finished comparison in Python; ``mg.load_run`` opens one."""

from __future__ import annotations

import shutil
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad import atomic_files
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import RUN, UserError, writing
from metricgrad.comparison.leaderboard import REFERENCES
from metricgrad.comparison.python_errors import python_errors
from metricgrad.comparison.run_writer import RUN_FILES
from metricgrad.comparison.shipped_classifier import ShippedClassifier
from metricgrad.comparison.study_html import render_study
from metricgrad.comparison.summaries import read_summary
from metricgrad.messages import one_line

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    import pandas as pd

    from metricgrad.comparison.run_folder import Run


def load_run(path: str | os.PathLike[str], *, trusted: Sequence[str] = ()) -> Study:
    """Open the run folder of ``mg.compare``, ``metricgrad compare`` or ``metricgrad demo`` again.

    Nothing in it is unpickled, and the hash of every file is verified before it is read.

    Parameters
    ----------
    path : str or path
        The folder of a finished run.
    trusted : sequence of str, default ()
        Names of types to trust in a model of your own that was shipped, besides those that skops trusts.

    Returns
    -------
    Study
        As ``mg.compare`` returned it.

    Raises
    ------
    ValueError
        If the run is not finished, is not a comparison, or was damaged.

    """
    return Study(Path(path), trusted=trusted)


class Study:
    """A finished comparison: what ``mg.compare`` and ``mg.load_run`` return.

    Parameters
    ----------
    path : Path
        The run folder.
    temporary : bool, default False
        Whether to remove the folder when nobody holds the study any more.
    trusted : sequence of str, default ()
        Names of types to trust in a model of your own.

    Attributes
    ----------
    path : Path
        The run folder.
    summary : dict
        The contents of ``summary.json``: all that the comparison found.

    """

    def __init__(self, path: Path, temporary: bool = False, trusted: Sequence[str] = ()) -> None:
        self.path = path.absolute()  # the working directory may change
        with python_errors():
            self._run: Run = runs.load(self.path)
            self._run.trusted = trusted
            if self._run.manifest["kind"] != "compare":
                raise UserError(
                    f"{path}: expected a run of compare or demo, got one of {self._run.manifest['kind']}; "
                    "use metricgrad predict",
                    RUN,
                )
            self.summary: dict[str, Any] = read_summary(self._run)
        if temporary:
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    @cached_property
    def leaderboard(self) -> pd.DataFrame:
        """A row for each contender and rule, best first.

        "value" is the mean of the metric over the repeats, "low" and "high" its interval; "gain" is the difference to
        tuned cross-entropy, with its interval and p-value, both adjusted for two references as in the verdict; other
        metrics have their names.
        """
        import pandas as pd

        nothing = {"difference": None, "low": None, "high": None, "p": None}
        verdict = self.summary["verdict"]
        found = []
        for row in self.summary["leaderboard"]:
            gain = row["against"].get(REFERENCES[1], nothing)
            found.append(
                {
                    **{name: row[name] for name in ("contender", "rule", "family", "value", "low", "high")},
                    "gain": gain["difference"],
                    "gain_low": gain["low"],
                    "gain_high": gain["high"],
                    "p": gain["p"],
                    **{name: row["others"].get(name) for name in self.summary["metric"]["also"]},
                    **{name: row[name] for name in ("feasible", "held", "seconds")},
                    "ships": (row["contender"], row["rule"]) == (verdict["ship"], verdict["rule"]),
                }
            )
        texts = ("contender", "rule", "family", "feasible", "held", "ships")
        frame = pd.DataFrame(found)
        return frame.astype({name: float for name in frame.columns if name not in texts})

    @property
    def verdict(self) -> Verdict:
        """What to ship, and whether its gain is proven."""
        return Verdict(self.summary["verdict"])

    @cached_property
    def model(self) -> ShippedClassifier:
        """The model to ship: a fitted scikit-learn classifier of data frames, with its decision rule."""
        with python_errors():
            return ShippedClassifier(self._run.model)

    def report(self, path: str | os.PathLike[str]) -> Path:
        """Write the report, one HTML file that needs nothing else; an existing file is replaced.

        Parameters
        ----------
        path : str or path
            The file to write.

        Returns
        -------
        Path
            Where it was written.

        """
        place = Path(path)
        with python_errors():
            page = self._run.read_file("report.html")
            with writing(place):
                atomic_files.write_file(place, page)
        return place

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Copy the run folder, whole or not at all, for ``mg.load_run`` and the command line.

        Parameters
        ----------
        path : str or path
            A new folder, in one that exists.

        Returns
        -------
        Path
            Where it was written.

        Raises
        ------
        ValueError
            If the path exists, or cannot be written to.

        """
        place = Path(path)
        fresh = atomic_files.make_temporary_path(place)
        with python_errors():
            if place.exists():
                raise UserError(f"{place}: exists already; choose another path", RUN)
            with writing(place):
                try:
                    fresh.mkdir()
                    for one in sorted(self.path.iterdir()):
                        if one.name in RUN_FILES - {"lock"}:
                            (shutil.copytree if one.is_dir() else shutil.copyfile)(one, fresh / one.name)
                    fresh.rename(place)
                finally:
                    shutil.rmtree(fresh, ignore_errors=True)
        return place

    def __repr__(self) -> str:
        data = self.summary["data"]
        metric = self.summary["metric"]
        rows = self.summary["leaderboard"]
        about = (
            f"{', '.join(data['target'])} in {data['file']}, {data['rows']} rows; {metric['name']}, "
            f"{len({row['contender'] for row in rows})} contenders, {self.summary['repeats']} repeats"
        )
        return f"<Study of {one_line(about, 300)}\n {one_line(self.verdict['headline'])}\n run folder: {self.path}>"

    def _repr_html_(self) -> str:
        return render_study(self.summary, self.path)


class Verdict(dict[str, Any]):
    """The verdict of a comparison: the fields of ``summary["verdict"]``, also as attributes; ``print`` shows the text.

    >>> verdict = Verdict(headline="Ship hybrid.", text="It is better.", ship="hybrid", gain_is_real=True)
    >>> print(verdict)
    Ship hybrid.
    It is better.
    >>> verdict.ship, verdict.proven
    ('hybrid', True)
    """

    @property
    def proven(self) -> bool:
        """Whether a gain over the reference is proven."""
        return bool(self["gain_is_real"])

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"a verdict has no {name!r}, but {', '.join(self)} and proven")
        return self[name]

    def __str__(self) -> str:
        return f"{one_line(self['headline'])}\n{one_line(self['text'])}".strip()
