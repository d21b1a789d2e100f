"""Every paper, and every table and figure that is reproduced, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import binary_soft_sets
import binary_steps
import binary_verdicts
import encoder_time
import mfom
import multiclass_f_beta
import multilabel_decisions
import multilabel_verdicts
import sigmoid_f1
import soft_hard_bound
import theory
from cells import Table
from claims import load_claims
from verdicts import Results, Verdict


@dataclass(frozen=True)
class Paper:
    """A paper: its place on the pages, the scripts of its tables and pictures, and what judges its claims.

    A script has ``TABLES``, and may have

    * ``SHOWN``: by table, the metrics that are shown, of a table that has more;
    * ``BOX_PLOTS``: by table, the metric whose distribution over trials is drawn;
    * ``PICTURES``: by name, what draws a file from the results, ``draw(results, file) -> bool``;
    * ``CAPTIONS``: by name of a picture, what to see in it.
    """

    page: str
    name: str
    citation: str
    scripts: tuple[ModuleType, ...]
    judge: Callable[[Results], list[Verdict]]

    @property
    def tables(self) -> dict[str, Table]:
        """The tables of all scripts."""
        return self.merged("TABLES")

    def merged(self, name: str) -> dict[str, Any]:
        """Return what the scripts have under a name, together."""
        return {key: value for script in self.scripts for key, value in getattr(script, name, {}).items()}

    def verdicts(self, results: Results) -> list[Verdict]:
        """Return the verdicts in the order of ``claims.csv``."""
        order = list(load_claims())
        return sorted(self.judge(results), key=lambda verdict: order.index(verdict.claim.key))


PAPERS = (
    Paper(
        "binary",
        "Binary soft sets",
        "Tsoi, Candon, Li, Milkessa, Vázquez: Bridging the Gap: Unifying the Training and Evaluation of Neural Network "
        "Binary Classifiers, 2022",
        (binary_soft_sets, binary_steps),
        binary_verdicts.verdicts,
    ),
    Paper(
        "multiclass",
        "Multi-class F_β",
        "Tsoi, Li, Lee, Vázquez: Aligning Multiclass Neural Network Classifier Criterion with Task Performance via "
        "F_β-Score, 2024",
        (multiclass_f_beta,),
        multiclass_f_beta.verdicts,
    ),
    Paper(
        "multilabel",
        "sigmoidF1",
        "Bénédict, Koops, Odijk, de Rijke: sigmoidF1: A Smooth F1 Score Surrogate Loss for Multilabel Classification, "
        "TMLR 2022",
        (sigmoid_f1, multilabel_decisions, encoder_time),
        multilabel_verdicts.verdicts,
    ),
    Paper(
        "mfom",
        "MFoM",
        "Kukanov et al.: maximal figure of merit for micro-F1, 2020 (its appendix, which has no results)",
        (mfom,),
        mfom.verdicts,
    ),
    Paper(
        "theory",
        "Theory and lecture",
        "The theorems of the papers above, and Libovický, Straka: NPFL129, lecture 5, 2024",
        (theory, soft_hard_bound),
        lambda results: [*theory.verdicts(results), soft_hard_bound.judge_bound(results)],
    ),
)
"""The papers, in the order of the pages."""
TABLES: dict[str, Table] = {name: table for paper in PAPERS for name, table in paper.tables.items()}
