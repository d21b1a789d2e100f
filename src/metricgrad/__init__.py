"""metricgrad: train on the metric you will be judged on."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricgrad import boosting as boosting
    from metricgrad import curves as curves
    from metricgrad import decisions as decisions
    from metricgrad import metrics as metrics
    from metricgrad import plots as plots
    from metricgrad import presets as presets
    from metricgrad import samplers as samplers
    from metricgrad import surrogates as surrogates
    from metricgrad.counts import Confusion as Confusion
    from metricgrad.counts import Counts as Counts
    from metricgrad.counts import Mean as Mean
    from metricgrad.counts import count as count
    from metricgrad.data.arrays import ArrayBatches as ArrayBatches
    from metricgrad.data.parquet import ParquetBatches as ParquetBatches
    from metricgrad.decisions.tuning import tune_threshold as tune_threshold
    from metricgrad.estimators.linear_svm import LinearSVMPerf as LinearSVMPerf
    from metricgrad.estimators.network import MetricClassifier as MetricClassifier
    from metricgrad.estimators.thresholded import ThresholdedClassifier as ThresholdedClassifier
    from metricgrad.estimators.trees import MetricBoostingClassifier as MetricBoostingClassifier
    from metricgrad.evaluation.bootstrap import Comparison as Comparison
    from metricgrad.evaluation.bootstrap import Interval as Interval
    from metricgrad.evaluation.bootstrap import bootstrap as bootstrap
    from metricgrad.evaluation.bootstrap import compare_paired as compare_paired
    from metricgrad.evaluation.diagnostics import reliability as reliability
    from metricgrad.evaluation.diagnostics import soft_hard_gap as soft_hard_gap
    from metricgrad.evaluation.evaluator import Evaluator as Evaluator
    from metricgrad.evaluation.evaluator import evaluate as evaluate
    from metricgrad.losses import baselines as baselines
    from metricgrad.losses.accumulation import RunningLoss as RunningLoss
    from metricgrad.losses.accumulation import exact_backward as exact_backward
    from metricgrad.losses.adversarial import AdversarialLoss as AdversarialLoss
    from metricgrad.losses.at_threshold import EERLoss as EERLoss
    from metricgrad.losses.at_threshold import PRBEPLoss as PRBEPLoss
    from metricgrad.losses.at_threshold import PrecisionAtKLoss as PrecisionAtKLoss
    from metricgrad.losses.at_threshold import RecallAtFPRLoss as RecallAtFPRLoss
    from metricgrad.losses.at_threshold import RecallAtPrecisionLoss as RecallAtPrecisionLoss
    from metricgrad.losses.constrained import ConstrainedLoss as ConstrainedLoss
    from metricgrad.losses.hybrid import HybridLoss as HybridLoss
    from metricgrad.losses.labelling import StructuredHingeLoss as StructuredHingeLoss
    from metricgrad.losses.metric import MetricLoss as MetricLoss
    from metricgrad.losses.ranking import AUROCLoss as AUROCLoss
    from metricgrad.losses.ranking import WMWLoss as WMWLoss
    from metricgrad.storage.estimators import load as load
    from metricgrad.storage.estimators import save as save
    from metricgrad.storage.onnx import to_onnx as to_onnx
    from metricgrad.training.checkpoints import Checkpoint as Checkpoint

__version__ = "0.1.0"

# Every public name and the module it is in, with the extra that brings what it needs beyond torch; a module is its own
# home. Imported when first asked for, so that the command line answers without waiting for torch.
_HOME = {
    "AUROCLoss": "losses.ranking",
    "AdversarialLoss": "losses.adversarial",
    "ArrayBatches": "data.arrays[streaming]",
    "Checkpoint": "training.checkpoints",
    "Comparison": "evaluation.bootstrap",
    "Confusion": "counts",
    "ConstrainedLoss": "losses.constrained",
    "Counts": "counts",
    "EERLoss": "losses.at_threshold",
    "Evaluator": "evaluation.evaluator",
    "HybridLoss": "losses.hybrid",
    "Interval": "evaluation.bootstrap",
    "LinearSVMPerf": "estimators.linear_svm",
    "Mean": "counts",
    "MetricBoostingClassifier": "estimators.trees[boosting]",
    "MetricClassifier": "estimators.network[sklearn]",
    "MetricLoss": "losses.metric",
    "PRBEPLoss": "losses.at_threshold",
    "ParquetBatches": "data.parquet[streaming]",
    "PrecisionAtKLoss": "losses.at_threshold",
    "RecallAtFPRLoss": "losses.at_threshold",
    "RecallAtPrecisionLoss": "losses.at_threshold",
    "RunningLoss": "losses.accumulation",
    "StructuredHingeLoss": "losses.labelling",
    "ThresholdedClassifier": "estimators.thresholded[sklearn]",
    "WMWLoss": "losses.ranking",
    "baselines": "losses.baselines",
    "boosting": "boosting",
    "bootstrap": "evaluation.bootstrap",
    "compare_paired": "evaluation.bootstrap",
    "count": "counts",
    "curves": "curves",
    "decisions": "decisions",
    "evaluate": "evaluation.evaluator",
    "exact_backward": "losses.accumulation",
    "load": "storage.estimators[persistence]",
    "metrics": "metrics",
    "plots": "plots",
    "presets": "presets",
    "reliability": "evaluation.diagnostics",
    "samplers": "samplers",
    "save": "storage.estimators[persistence]",
    "soft_hard_gap": "evaluation.diagnostics",
    "surrogates": "surrogates",
    "to_onnx": "storage.onnx[onnx]",
    "tune_threshold": "decisions.tuning",
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
    # A public module, or what a module holds under that name; curves.curves must not hide curves.
    value = found if module == name else getattr(found, name, found)
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
