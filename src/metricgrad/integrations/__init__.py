"""Other libraries: XGBoost and LightGBM, Keras, MLflow, and HTTP."""
