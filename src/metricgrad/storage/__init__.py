"""Estimators in folders without pickle, and as ONNX."""
