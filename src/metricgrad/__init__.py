"""metricgrad: train on the metric you will be judged on."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricgrad import baselines as baselines
    from metricgrad import boosting as boosting
    from metricgrad import curves as curves
    from metricgrad import decisions as decisions
    from metricgrad import metrics as metrics
    from metricgrad import plots as plots
    from metricgrad import presets as presets
    from metricgrad import samplers as samplers
    from metricgrad import surrogates as surrogates
    from metricgrad.accumulation import RunningLoss as RunningLoss
    from metricgrad.accumulation import exact_backward as exact_backward
    from metricgrad.adversarial import AdversarialLoss as AdversarialLoss
    from metricgrad.checks import reliability as reliability
    from metricgrad.checks import soft_hard_gap as soft_hard_gap
    from metricgrad.constrained import ConstrainedLoss as ConstrainedLoss
    from metricgrad.counts import Confusion as Confusion
    from metricgrad.counts import Counts as Counts
    from metricgrad.counts import Mean as Mean
    from metricgrad.counts import count as count
    from metricgrad.evaluation import Evaluator as Evaluator
    from metricgrad.evaluation import evaluate as evaluate
    from metricgrad.hybrid import HybridLoss as HybridLoss
    from metricgrad.intervals import Comparison as Comparison
    from metricgrad.intervals import Interval as Interval
    from metricgrad.intervals import bootstrap as bootstrap
    from metricgrad.intervals import compare_paired as compare_paired
    from metricgrad.losses import MetricLoss as MetricLoss
    from metricgrad.operating import EERLoss as EERLoss
    from metricgrad.operating import PRBEPLoss as PRBEPLoss
    from metricgrad.operating import PrecisionAtKLoss as PrecisionAtKLoss
    from metricgrad.operating import RecallAtFPRLoss as RecallAtFPRLoss
    from metricgrad.operating import RecallAtPrecisionLoss as RecallAtPrecisionLoss
    from metricgrad.ranking import AUROCLoss as AUROCLoss
    from metricgrad.ranking import WMWLoss as WMWLoss
    from metricgrad.structured import StructuredHingeLoss as StructuredHingeLoss
    from metricgrad.svmperf import LinearSVMPerf as LinearSVMPerf
    from metricgrad.training.checkpoints import Checkpoint as Checkpoint
    from metricgrad.tuning import tune_threshold as tune_threshold

    # What is in an extra may not be there to be read.
    ArrayBatches: Any
    MetricBoostingClassifier: Any
    MetricClassifier: Any
    ParquetBatches: Any
    ThresholdedClassifier: Any
    load: Any
    save: Any
    to_onnx: Any

__version__ = "0.1.0"

# Every public name and the module it is in, with the extra that brings what it needs beyond torch; a module is its own
# home. Imported when first asked for, so that the command line answers without waiting for torch.
_HOME = {
    "AUROCLoss": "ranking",
    "AdversarialLoss": "adversarial",
    "ArrayBatches": "streaming[streaming]",
    "Checkpoint": "training.checkpoints",
    "Comparison": "intervals",
    "Confusion": "counts",
    "ConstrainedLoss": "constrained",
    "Counts": "counts",
    "EERLoss": "operating",
    "Evaluator": "evaluation",
    "HybridLoss": "hybrid",
    "Interval": "intervals",
    "LinearSVMPerf": "svmperf",
    "Mean": "counts",
    "MetricBoostingClassifier": "boosted[boosting]",
    "MetricClassifier": "estimators[sklearn]",
    "MetricLoss": "losses",
    "PRBEPLoss": "operating",
    "ParquetBatches": "parquet[streaming]",
    "PrecisionAtKLoss": "operating",
    "RecallAtFPRLoss": "operating",
    "RecallAtPrecisionLoss": "operating",
    "RunningLoss": "accumulation",
    "StructuredHingeLoss": "structured",
    "ThresholdedClassifier": "thresholded[sklearn]",
    "WMWLoss": "ranking",
    "baselines": "baselines",
    "boosting": "boosting",
    "bootstrap": "intervals",
    "compare_paired": "intervals",
    "count": "counts",
    "curves": "curves",
    "decisions": "decisions",
    "evaluate": "evaluation",
    "exact_backward": "accumulation",
    "load": "persistence[persistence]",
    "metrics": "metrics",
    "plots": "plots",
    "presets": "presets",
    "reliability": "checks",
    "samplers": "samplers",
    "save": "persistence[persistence]",
    "soft_hard_gap": "checks",
    "surrogates": "surrogates",
    "to_onnx": "onnx_export[onnx]",
    "tune_threshold": "tuning",
}
# What the modules of an extra import.
_PACKAGES = {
    "boosting": ("sklearn",),
    "onnx": ("sklearn", "onnx"),
    "persistence": ("sklearn", "safetensors", "skops"),
    "sklearn": ("sklearn",),
    "streaming": ("numpy", "pyarrow"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for."""
    if name == "__all__":
        return [name for name in _HOME if _installed(name)]
    if name not in _HOME:
        raise AttributeError(f"module 'metricgrad' has no attribute {name!r}")
    module, extra = _home(name)
    try:
        found = importlib.import_module(f"metricgrad.{module}")
    except ModuleNotFoundError as error:
        if not extra:
            raise
        raise ImportError(f"{name} needs {error.name}: pip install 'metricgrad[{extra}]'") from error
    if module == name:
        return found
    value = getattr(found, name)
    if not extra:
        globals()[name] = value  # so that the next one finds it without asking
    return value


def __dir__() -> list[str]:
    """Return the public names, for completion: those whose extra is installed, as in ``__all__``."""
    return sorted({*globals(), *__getattr__("__all__")})


def _home(name: str) -> tuple[str, str]:
    """Return the module of a name, and the extra that it needs, if any."""
    module, _, extra = _HOME[name].rstrip("]").partition("[")
    return module, extra


def _installed(name: str) -> bool:
    """Tell whether what a name needs is installed, without importing it: ``from metricgrad import *`` must not fail."""
    return all(importlib.util.find_spec(package) for package in _PACKAGES.get(_home(name)[1], ()))
