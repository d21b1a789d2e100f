"""metricgrad: train on the metric you will be judged on."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from metricgrad import baselines, boosting, curves, decisions, metrics, plots, presets, samplers, surrogates
    from metricgrad.accumulation import RunningLoss, exact_backward
    from metricgrad.adversarial import AdversarialLoss
    from metricgrad.checks import reliability, soft_hard_gap
    from metricgrad.constrained import ConstrainedLoss
    from metricgrad.counts import Confusion, Counts, Mean, count
    from metricgrad.evaluation import Evaluator, evaluate
    from metricgrad.hybrid import HybridLoss
    from metricgrad.intervals import Comparison, Interval, bootstrap, compare_paired
    from metricgrad.losses import MetricLoss
    from metricgrad.operating import EERLoss, PRBEPLoss, PrecisionAtKLoss, RecallAtFPRLoss, RecallAtPrecisionLoss
    from metricgrad.ranking import AUROCLoss, WMWLoss
    from metricgrad.structured import StructuredHingeLoss
    from metricgrad.svmperf import LinearSVMPerf
    from metricgrad.training.checkpoints import Checkpoint
    from metricgrad.tuning import tune_threshold

__version__ = "0.1.0"

# Where each name is: imported when first asked for, so that the command line answers without waiting for torch.
_MODULES = ("baselines", "boosting", "curves", "decisions", "metrics", "plots", "presets", "samplers", "surrogates")
_HOME = {
    "AUROCLoss": "ranking",
    "AdversarialLoss": "adversarial",
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
    "MetricLoss": "losses",
    "PRBEPLoss": "operating",
    "PrecisionAtKLoss": "operating",
    "RecallAtFPRLoss": "operating",
    "RecallAtPrecisionLoss": "operating",
    "RunningLoss": "accumulation",
    "StructuredHingeLoss": "structured",
    "WMWLoss": "ranking",
    "bootstrap": "intervals",
    "compare_paired": "intervals",
    "count": "counts",
    "evaluate": "evaluation",
    "exact_backward": "accumulation",
    "reliability": "checks",
    "soft_hard_gap": "checks",
    "tune_threshold": "tuning",
}
# Of those that need more than torch also the extra that brings it.
_LAZY = {
    "MetricBoostingClassifier": ("boosted", "boosting"),
    "ArrayBatches": ("streaming", "streaming"),
    "MetricClassifier": ("estimators", "sklearn"),
    "ParquetBatches": ("parquet", "streaming"),
    "ThresholdedClassifier": ("thresholded", "sklearn"),
    "load": ("persistence", "persistence"),
    "save": ("persistence", "persistence"),
    "to_onnx": ("onnx_export", "onnx"),
}


def __getattr__(name: str) -> Any:
    """Import a name when it is asked for."""
    if name in _MODULES:
        return importlib.import_module(f"metricgrad.{name}")
    if name in _HOME:
        # Kept, so that the next one finds it without asking.
        found = globals()[name] = getattr(importlib.import_module(f"metricgrad.{_HOME[name]}"), name)
        return found
    if name not in _LAZY:
        raise AttributeError(f"module 'metricgrad' has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        return getattr(importlib.import_module(f"metricgrad.{module}"), name)
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs {error.name}: pip install 'metricgrad[{extra}]'") from error


__all__ = [
    "AUROCLoss",
    "AdversarialLoss",
    "Checkpoint",
    "Comparison",
    "Confusion",
    "ConstrainedLoss",
    "Counts",
    "EERLoss",
    "Evaluator",
    "HybridLoss",
    "Interval",
    "LinearSVMPerf",
    "Mean",
    "MetricLoss",
    "PRBEPLoss",
    "PrecisionAtKLoss",
    "RecallAtFPRLoss",
    "RecallAtPrecisionLoss",
    "RunningLoss",
    "StructuredHingeLoss",
    "WMWLoss",
    "baselines",
    "boosting",
    "bootstrap",
    "compare_paired",
    "count",
    "curves",
    "decisions",
    "evaluate",
    "exact_backward",
    "metrics",
    "plots",
    "presets",
    "reliability",
    "samplers",
    "soft_hard_gap",
    "surrogates",
    "tune_threshold",
]
