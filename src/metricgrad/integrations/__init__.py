"""Other libraries: XGBoost and LightGBM, Keras."""
