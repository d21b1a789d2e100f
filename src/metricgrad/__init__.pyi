# Every public name, once. Editors and type checkers read this list as it is; public_names.py reads it line by line, so
# that a name is imported when it is first asked for. A name that needs more than torch says which extra brings it.

from metricgrad import boosting as boosting
from metricgrad import curves as curves
from metricgrad import decisions as decisions
from metricgrad import keras as keras  # extra: keras
from metricgrad import metrics as metrics
from metricgrad import plots as plots
from metricgrad import presets as presets
from metricgrad import samplers as samplers
from metricgrad import surrogates as surrogates
from metricgrad.app.api.compare import compare as compare  # extra: app
from metricgrad.app.api.study import Study as Study  # extra: app
from metricgrad.app.api.study import load_run as load_run  # extra: app
from metricgrad.counts import Confusion as Confusion
from metricgrad.counts import Counts as Counts
from metricgrad.counts import Mean as Mean
from metricgrad.counts import count as count
from metricgrad.data.arrays import ArrayBatches as ArrayBatches  # extra: streaming
from metricgrad.data.parquet import ParquetBatches as ParquetBatches  # extra: streaming
from metricgrad.decisions.tuning import tune_threshold as tune_threshold
from metricgrad.estimators.ensemble import MetricEnsembleClassifier as MetricEnsembleClassifier  # extra: sklearn
from metricgrad.estimators.linear_svm import LinearSVMPerf as LinearSVMPerf
from metricgrad.estimators.network import MetricClassifier as MetricClassifier  # extra: sklearn
from metricgrad.estimators.selection import select_ensemble as select_ensemble
from metricgrad.estimators.thresholded import ThresholdedClassifier as ThresholdedClassifier  # extra: sklearn
from metricgrad.estimators.trees import MetricBoostingClassifier as MetricBoostingClassifier  # extra: boosting
from metricgrad.evaluation.bootstrap import Comparison as Comparison
from metricgrad.evaluation.bootstrap import Interval as Interval
from metricgrad.evaluation.bootstrap import bootstrap as bootstrap
from metricgrad.evaluation.bootstrap import compare_paired as compare_paired
from metricgrad.evaluation.diagnostics import reliability as reliability
from metricgrad.evaluation.diagnostics import soft_hard_gap as soft_hard_gap
from metricgrad.evaluation.evaluator import Evaluator as Evaluator
from metricgrad.evaluation.evaluator import evaluate as evaluate
from metricgrad.losses import baselines as baselines
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
from metricgrad.losses.running import RunningLoss as RunningLoss
from metricgrad.storage.estimators import load as load  # extra: persistence
from metricgrad.storage.estimators import save as save  # extra: persistence
from metricgrad.storage.onnx import to_onnx as to_onnx  # extra: onnx
from metricgrad.training.checkpoints import Checkpoint as Checkpoint

__version__: str

def __dir__() -> list[str]: ...
