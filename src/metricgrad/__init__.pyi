# Every public name, once. Editors and type checkers read this list as it is; public_names.py reads it line by line, so
# that a name is imported when it is first asked for. A name that needs more than torch says which extra brings it.

# fmt: off
from metricgrad import baselines as baselines
from metricgrad import boosting as boosting
from metricgrad import curves as curves
from metricgrad import decisions as decisions
from metricgrad import keras as keras  # extra: keras
from metricgrad import metrics as metrics
from metricgrad import plots as plots
from metricgrad import presets as presets
from metricgrad import samplers as samplers
from metricgrad import surrogates as surrogates
from metricgrad.comparison.compare import compare as compare  # extra: app
from metricgrad.comparison.study import Study as Study  # extra: app
from metricgrad.comparison.study import load_run as load_run  # extra: app
from metricgrad.core.costs import Cost as Cost
from metricgrad.core.counts import Confusion as Confusion
from metricgrad.core.counts import Counts as Counts
from metricgrad.core.counts import Mean as Mean
from metricgrad.core.counts import count as count
from metricgrad.decisions.ensemble_selection import select_ensemble as select_ensemble
from metricgrad.decisions.prevalence import Prevalence as Prevalence
from metricgrad.decisions.prevalence import estimate_prevalence as estimate_prevalence
from metricgrad.decisions.threshold_tuning import tune_threshold as tune_threshold
from metricgrad.estimators.linear_svm_perf import LinearSVMPerf as LinearSVMPerf
from metricgrad.estimators.metric_boosting_classifier import MetricBoostingClassifier as MetricBoostingClassifier  # extra: boosting
from metricgrad.estimators.metric_classifier import MetricClassifier as MetricClassifier  # extra: sklearn
from metricgrad.estimators.metric_ensemble_classifier import MetricEnsembleClassifier as MetricEnsembleClassifier  # extra: sklearn
from metricgrad.estimators.scorers import scorer as scorer  # extra: sklearn
from metricgrad.estimators.table_encoder import TableEncoder as TableEncoder  # extra: app
from metricgrad.estimators.thresholded_classifier import ThresholdedClassifier as ThresholdedClassifier  # extra: sklearn
from metricgrad.evaluation.bootstrap import Comparison as Comparison
from metricgrad.evaluation.bootstrap import Interval as Interval
from metricgrad.evaluation.bootstrap import bootstrap as bootstrap
from metricgrad.evaluation.bootstrap import compare_paired as compare_paired
from metricgrad.evaluation.diagnostics import reliability as reliability
from metricgrad.evaluation.diagnostics import soft_hard_gap as soft_hard_gap
from metricgrad.evaluation.evaluator import Evaluator as Evaluator
from metricgrad.evaluation.evaluator import evaluate as evaluate
from metricgrad.evaluation.measured_cost import MeasuredCost as MeasuredCost
from metricgrad.evaluation.measured_cost import measure_cost as measure_cost
from metricgrad.evaluation.number_objects import number_objects as number_objects  # extra: sklearn
from metricgrad.evaluation.object_evaluator import ObjectEvaluator as ObjectEvaluator
from metricgrad.evaluation.object_evaluator import evaluate_objects as evaluate_objects
from metricgrad.losses.adversarial_loss import AdversarialLoss as AdversarialLoss
from metricgrad.losses.at_threshold import EERLoss as EERLoss
from metricgrad.losses.at_threshold import PRBEPLoss as PRBEPLoss
from metricgrad.losses.at_threshold import PrecisionAtKLoss as PrecisionAtKLoss
from metricgrad.losses.at_threshold import RecallAtFPRLoss as RecallAtFPRLoss
from metricgrad.losses.at_threshold import RecallAtPrecisionLoss as RecallAtPrecisionLoss
from metricgrad.losses.constrained_loss import ConstrainedLoss as ConstrainedLoss
from metricgrad.losses.exact_backward import exact_backward as exact_backward
from metricgrad.losses.hybrid_loss import HybridLoss as HybridLoss
from metricgrad.losses.metric_loss import MetricLoss as MetricLoss
from metricgrad.losses.ranking_losses import AUROCLoss as AUROCLoss
from metricgrad.losses.ranking_losses import WMWLoss as WMWLoss
from metricgrad.losses.running_loss import RunningLoss as RunningLoss
from metricgrad.losses.structured_hinge_loss import StructuredHingeLoss as StructuredHingeLoss
from metricgrad.storage.estimators import load as load  # extra: persistence
from metricgrad.storage.estimators import save as save  # extra: persistence
from metricgrad.storage.onnx import to_onnx as to_onnx  # extra: onnx
from metricgrad.storage.rules import load_rule as load_rule  # extra: persistence
from metricgrad.storage.rules import save_rule as save_rule  # extra: persistence
from metricgrad.training.array_batches import ArrayBatches as ArrayBatches  # extra: streaming
from metricgrad.training.checkpoints import Checkpoint as Checkpoint
from metricgrad.training.parquet_batches import ParquetBatches as ParquetBatches  # extra: streaming

__version__: str

def __dir__() -> list[str]: ...
