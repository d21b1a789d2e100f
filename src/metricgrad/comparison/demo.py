"""``metricgrad demo``: compare on a real data set that is installed with the extra ``demo``.

The Yeast genes of Elisseeff and Weston (2001), 2417 of them, 103 measurements, 14 functional groups: multi-label, most
groups rare, as shipped inside the package ``river``.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from metricgrad.comparison.contenders import CONTENDERS
from metricgrad.comparison.errors import WRONG_CALL, UserError
from metricgrad.comparison.options import Options

GROUPS = 14


def make_options(repeats: int = 5, quick: bool = False) -> Options:
    """Return the options of the demo."""
    try:
        package = importlib.resources.files("river")
    except ModuleNotFoundError as error:
        raise UserError("demo: needs river, for its data: pip install 'metricgrad[demo]'", WRONG_CALL) from error
    data = Path(str(package / "datasets" / "yeast.csv.gz"))
    target = tuple(f"Class{k}" for k in range(1, GROUPS + 1))
    # All contenders would take too long for a demo.
    contenders = () if quick else tuple(one.name for one in CONTENDERS.values() if one.demo)
    metric = ("f1", "average_precision")
    return Options(str(data), target, metric=metric, repeats=repeats, contenders=contenders, quick=quick, demo=True)
