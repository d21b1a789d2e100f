"""Reports of finished runs: written again, of two runs side by side, and renewed after ``tune``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from metricgrad import __version__, strict_json
from metricgrad.atomic_files import write_file
from metricgrad.comparison import run_folder as runs
from metricgrad.comparison.errors import RUN, WRONG_CALL, UserError, writing
from metricgrad.comparison.option_texts import as_text
from metricgrad.comparison.report import page
from metricgrad.comparison.report.sections import RUNS
from metricgrad.comparison.summaries import read_summary
from metricgrad.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from metricgrad.comparison.report.payload import Payload
    from metricgrad.comparison.report.sections.runs import Side


def write_report(paths: Sequence[str | Path], output: Path, force: bool = False) -> dict[str, Any]:
    """Write the report of one run of ``compare`` again, or one of two runs side by side; return what was written."""
    page.check_output(output, force, "--output")
    if len(paths) not in (1, 2):
        raise UserError(f"report: expected one run folder, or two to compare, got {len(paths)}", WRONG_CALL)
    found = [_load_comparison(Path(path)) for path in paths]
    if len(found) == 1:
        data = runs.read_bytes(found[0].path / "report.html")
        if strict_json.sha256(data) != found[0].manifest["files"].get("report.html"):
            raise UserError(
                f"{found[0].path / 'report.html'} was changed since it was written (its sha256 differs); run again", RUN
            )
        with writing(output):
            write_file(output, data)
    else:
        with writing(output):
            page.write(_make_pair_payload(found), output, RUNS)
    return {"runs": [str(path) for path in paths], "output": str(output)}


def _load_comparison(path: Path) -> runs.Run:
    run = runs.load(path)
    if run.manifest["kind"] != "compare":
        raise UserError(
            f"{path}: expected a run of compare, which has a report, got one of {run.manifest['kind']}", RUN
        )
    return run


def _make_pair_payload(pair: Sequence[runs.Run]) -> Payload:
    """Return the payload of two runs."""
    sides = [_describe_side(run) for run in pair]
    first = sides[0]["summary"]
    names = [one_line(run.path.resolve().name, 60) for run in pair]
    if names[0] == names[1]:
        names = [f"{name} ({place})" for name, place in zip(names, ("first", "second"), strict=True)]
    for side, name in zip(sides, names, strict=True):
        side["name"] = name
    payload = {
        **first,
        "created": runs.now(),
        "version": __version__,
        "data": {**first["data"], "file": " and ".join(names), "classes": [], "balance": []},
        "protocol": [],
        "leaderboard": [],
        "details": {},
        "study": {},
        "runs": sides,
    }
    return cast("Payload", payload)


def _describe_side(run: runs.Run) -> Side:
    summary = read_summary(run)
    leaderboard = summary.pop("leaderboard")
    return {
        "name": "",
        "rule": run.model.rule.describe(),
        "summary": cast("Any", summary),
        "leaderboard": leaderboard,
        "config": {key: as_text(value) for key, value in run.config.items() if value not in (None, [])},
        "splits": run.manifest["files"].get("splits.npz", ""),
    }


def renew_report(run: runs.Run) -> list[str]:
    """Show the new rule in the report of a comparison; return a warning if that is not possible."""
    name = "report.html"
    if name not in run.manifest["files"]:
        return []
    try:
        data = (run.path / name).read_bytes()
        if strict_json.sha256(data) != run.manifest["files"][name]:
            raise ValueError("it was changed since it was written")
        payload = page.read(data.decode())
        page.replace_rule(payload, run.model.describe(), run.schema.classes)
        run.replace_file(name, page.render(payload).encode())
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:  # whatever is in the file
        return [f"{run.path / name} still shows the previous rule: {one_line(error, 200)}"]
    return []
