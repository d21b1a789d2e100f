"""Every paper, and every table and figure that is reproduced, by name."""

from __future__ import annotations

import binary_soft_sets
import binary_steps
import encoder_time
import mfom
import multiclass_f_beta
import multilabel_decisions
import sigmoid_f1
import theory
from cells import Table

PAPERS = (binary_soft_sets, multiclass_f_beta, sigmoid_f1, mfom, theory)
"""The scripts, in the order of the page; each has ``TABLES`` and ``verdicts(results)``."""
MORE = (binary_steps, multilabel_decisions, encoder_time)
TABLES: dict[str, Table] = {name: table for paper in (*PAPERS, *MORE) for name, table in paper.TABLES.items()}
