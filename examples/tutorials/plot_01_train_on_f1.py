"""
Train on F1 in plain PyTorch
============================

"""
