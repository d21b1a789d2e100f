"""Metric losses as objectives of XGBoost and LightGBM."""

from metricgrad.integrations.boosting.evaluation import eval_metric
from metricgrad.integrations.boosting.objectives import base_score, lightgbm_objective, xgboost_objective

__all__ = ["base_score", "eval_metric", "lightgbm_objective", "xgboost_objective"]
