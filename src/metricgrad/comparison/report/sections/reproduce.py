"""What it takes to run the same again: command, seed, versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricgrad.comparison.report.markup import make_definitions
from metricgrad.comparison.report.section import Section

if TYPE_CHECKING:
    from metricgrad.comparison.report.payload import Payload


class ReproduceSection(Section):
    """A list of pairs."""

    name = "reproduce"
    title = "Reproduce this run"
    folded = True

    def body(self, payload: Payload) -> str:
        run = payload["reproduce"]
        about = [("Command", run["command"]), ("Seed", str(run["seed"])), ("Machine", run["machine"])]
        return make_definitions([*about, *run["versions"].items()])
