"""The public names, read from ``__init__.pyi``: where each one is, and which extra it needs beyond torch."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import pkgutil
from functools import cache
from typing import NamedTuple

PACKAGES = {
    "app": (
        "filelock",
        "lightgbm",
        "narwhals",
        "numpy",
        "pandas",
        "pyarrow",
        "safetensors",
        "scipy",
        "skops",
        "sklearn",
    ),
    "boosting": ("sklearn",),
    "keras": ("keras",),
    "onnx": ("sklearn", "onnx"),
    "persistence": ("sklearn", "safetensors", "skops"),
    "sklearn": ("sklearn",),
    "streaming": ("numpy", "pyarrow"),
}
"""What the modules of an extra import."""

ON_DEMAND = ("keras",)
"""Names that are not in ``__all__``: ``from metricgrad import *`` must not start a second framework."""


class Home(NamedTuple):
    """Where a public name is imported from, and the extra that this needs, or an empty text."""

    module: str
    extra: str


@cache
def homes() -> dict[str, Home]:
    """Return the home of every public name, whether its extra is installed or not."""
    found = {}
    for line in (pkgutil.get_data("metricgrad", "__init__.pyi") or b"").decode().splitlines():
        match line.split():
            case ["from", module, "import", name, "as", _]:
                found[name] = Home(module, "")
            case ["from", module, "import", name, "as", _, "#", "extra:", extra]:
                found[name] = Home(module, extra)
    return found


def available() -> list[str]:
    """Return the public names whose extras are installed, without importing any: this is ``metricgrad.__all__``."""
    packages = {name: PACKAGES.get(home.extra, ()) for name, home in homes().items() if name not in ON_DEMAND}
    return sorted(name for name, needed in packages.items() if all(map(importlib.util.find_spec, needed)))


INSTEAD = {
    "bceloss": "baselines.bce()",
    "bcewithlogitsloss": "baselines.bce()",
    "crossentropyloss": "baselines.cross_entropy()",
    "diceloss": "MetricLoss('f1') or mg.presets.soft_dice()",
    "f1loss": "MetricLoss('f1')",
    "fbetaloss": "MetricLoss('f2')",
    "focalloss": "baselines.focal()",
    "iouloss": "MetricLoss('jaccard')",
    "jaccardloss": "MetricLoss('jaccard')",
    "lovaszloss": "baselines.lovasz_softmax()",
    "mccloss": "MetricLoss('mcc')",
    "softdiceloss": "presets.soft_dice()",
    "tverskyloss": "baselines.tversky()",
}
"""What other libraries call a class, in lower case, and what it is here."""


def suggest(name: str) -> str:
    """Return what an unknown name may have meant, to append to a message."""
    if name.startswith("_"):
        return ""
    close = difflib.get_close_matches(name, homes(), n=1, cutoff=0.75)
    meant = INSTEAD.get(name.lower().replace("_", "")) or (close[0] if close else None)
    return "" if meant is None else f"; did you mean mg.{meant}?"


def load(name: str) -> object:
    """Import a public name, as ``from module import name`` does, or say which extra it needs."""
    home = homes()[name]
    try:
        if home.module == "metricgrad":  # a public module: asking the package for it would come back here
            return importlib.import_module(f"metricgrad.{name}")
        return getattr(importlib.__import__(home.module, fromlist=[name]), name)
    except ModuleNotFoundError as error:
        if not home.extra:
            raise
        raise ImportError(f"{name} needs {error.name}: pip install 'metricgrad[{home.extra}]'") from error
