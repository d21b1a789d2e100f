"""The sections of the report, a file each, in the order of the page."""

from __future__ import annotations

from metricgrad.comparison.report.sections.classes import Classes
from metricgrad.comparison.report.sections.columns import Columns
from metricgrad.comparison.report.sections.curves import Curves
from metricgrad.comparison.report.sections.data import Data
from metricgrad.comparison.report.sections.decision import DecisionRule
from metricgrad.comparison.report.sections.evaluation import Evaluation, Metrics
from metricgrad.comparison.report.sections.importance import Importance
from metricgrad.comparison.report.sections.leaderboard import Leaderboard
from metricgrad.comparison.report.sections.learning import Learning
from metricgrad.comparison.report.sections.members import Members
from metricgrad.comparison.report.sections.mistakes import Mistakes
from metricgrad.comparison.report.sections.profit import Profit
from metricgrad.comparison.report.sections.protocol import Protocol
from metricgrad.comparison.report.sections.reproduce import Reproduce
from metricgrad.comparison.report.sections.runs import Boards, Importances, Options, Sides
from metricgrad.comparison.report.sections.scores import Scores
from metricgrad.comparison.report.sections.segments import Segments
from metricgrad.comparison.report.sections.threshold import Threshold
from metricgrad.comparison.report.sections.verdict import Verdict

SECTIONS = (
    Verdict(),
    Leaderboard(),
    Members(),
    Classes(),
    DecisionRule(),
    Threshold(),
    Profit(),
    Curves(),
    Scores(),
    Importance(),
    Segments(),
    Learning(),
    Mistakes(),
    Columns(),
    Data(),
    Protocol(),
    Reproduce(),
)
"""The report of ``compare``, from the top of the page to its end."""

EVALUATION = (
    Evaluation(),
    Metrics(),
    Classes(),
    DecisionRule(),
    Threshold(),
    Profit(),
    Curves(),
    Scores(),
    Segments(),
    Mistakes(),
    Columns(),
    Protocol(),
    Reproduce(),
)
"""The report of ``evaluate``."""

RUNS = (Sides(), Boards(), Importances(), Options())
"""The report of two runs."""
