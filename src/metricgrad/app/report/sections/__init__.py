"""The sections of the report, a file each, in the order of the page."""

from __future__ import annotations

from metricgrad.app.report.sections.classes import Classes
from metricgrad.app.report.sections.columns import Columns
from metricgrad.app.report.sections.curves import Curves
from metricgrad.app.report.sections.data import Data
from metricgrad.app.report.sections.decision import DecisionRule
from metricgrad.app.report.sections.evaluation import Evaluation, Metrics
from metricgrad.app.report.sections.importance import Importance
from metricgrad.app.report.sections.leaderboard import Leaderboard
from metricgrad.app.report.sections.learning import Learning
from metricgrad.app.report.sections.members import Members
from metricgrad.app.report.sections.mistakes import Mistakes
from metricgrad.app.report.sections.profit import Profit
from metricgrad.app.report.sections.protocol import Protocol
from metricgrad.app.report.sections.reproduce import Reproduce
from metricgrad.app.report.sections.runs import Boards, Importances, Options, Sides
from metricgrad.app.report.sections.scores import Scores
from metricgrad.app.report.sections.segments import Segments
from metricgrad.app.report.sections.threshold import Threshold
from metricgrad.app.report.sections.verdict import Verdict

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
