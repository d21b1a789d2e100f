"""The sections of the report, a file each, in the order of the page."""

from __future__ import annotations

from metricgrad.comparison.report.sections.classes import ClassesSection
from metricgrad.comparison.report.sections.columns import ColumnsSection, DriftSection
from metricgrad.comparison.report.sections.curves import CurvesSection
from metricgrad.comparison.report.sections.data import DataSection
from metricgrad.comparison.report.sections.decision import DecisionRuleSection
from metricgrad.comparison.report.sections.evaluation import EvaluationSection, MetricsSection
from metricgrad.comparison.report.sections.importance import ImportanceSection
from metricgrad.comparison.report.sections.leaderboard import LeaderboardSection
from metricgrad.comparison.report.sections.learning import LearningSection
from metricgrad.comparison.report.sections.members import MembersSection
from metricgrad.comparison.report.sections.mistakes import MistakesSection
from metricgrad.comparison.report.sections.money import MoneySection
from metricgrad.comparison.report.sections.profit import ProfitSection
from metricgrad.comparison.report.sections.protocol import ProtocolSection
from metricgrad.comparison.report.sections.reproduce import ReproduceSection
from metricgrad.comparison.report.sections.runs import BoardsSection, ImportancesSection, OptionsSection, SidesSection
from metricgrad.comparison.report.sections.scores import ScoresSection
from metricgrad.comparison.report.sections.segments import SegmentsSection
from metricgrad.comparison.report.sections.threshold import ThresholdSection
from metricgrad.comparison.report.sections.verdict import VerdictSection

SECTIONS = (
    VerdictSection(),
    MoneySection(),
    ClassesSection(),
    DecisionRuleSection(),
    ThresholdSection(),
    ProfitSection(),
    MistakesSection(),
    ImportanceSection(),
    SegmentsSection(),
    LeaderboardSection(),
    MembersSection(),
    CurvesSection(),
    ScoresSection(),
    LearningSection(),
    ColumnsSection(),
    DataSection(),
    ProtocolSection(),
    ReproduceSection(),
)
"""The report of ``compare``, from the top of the page to its end: what a reader decides by comes first."""

EVALUATION = (
    EvaluationSection(),
    MetricsSection(),
    MoneySection(),
    ClassesSection(),
    DecisionRuleSection(),
    ThresholdSection(),
    ProfitSection(),
    MistakesSection(),
    SegmentsSection(),
    DriftSection(),
    CurvesSection(),
    ScoresSection(),
    ProtocolSection(),
    ReproduceSection(),
)
"""The report of ``evaluate``."""

RUNS = (SidesSection(), BoardsSection(), ImportancesSection(), OptionsSection())
"""The report of two runs."""
