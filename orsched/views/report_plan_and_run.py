"""Plan against run as a section of the report: tables, and the data of a chart of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.calibration.plan_errors import plan_against_run
from orsched.views.comparison import cell, table, text
from orsched.views.style import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.calibration.plan_errors import PlanAgainstRun
    from orsched.data.instance import Instance
    from orsched.views.comparison import Row

MAX_STAGES = 6_000
"""Most stages whose errors are in the page."""


class Pair(NamedTuple):
    """A run of the report and its plan.

    Attributes:
        run, plan: their numbers among the schedules; None: the cost model alone is the plan.
        against: the one held against the other.
    """

    run: int
    plan: int | None
    against: PlanAgainstRun


def pairs_of(instance: Instance, rows: Sequence[Row]) -> list[Pair]:
    """Return each measured schedule with the planned one of the same method, else the first."""
    planned = [k for k, row in enumerate(rows) if not row.schedule.is_measured]
    found = []
    for k, row in enumerate(rows):
        # the contents of an invalid schedule's stages are undefined
        if not row.schedule.is_measured or row.violations or row.schedule.is_partial:
            continue
        own = [p for p in planned if rows[p].schedule.method == row.schedule.method] or planned
        sound = [p for p in own if not rows[p].violations]
        plan = sound[0] if sound else None
        schedule = None if plan is None else rows[plan].schedule
        found.append(Pair(k, plan, plan_against_run(instance, schedule, row.schedule)))
    return found


def section(pairs: Sequence[Pair], rows: Sequence[Row]) -> str:
    """Return the section, or nothing where nothing was measured."""
    if not pairs:
        return ""
    parts = []
    for number, pair in enumerate(pairs):
        label = text(rows[pair.run].label)
        parts.append(
            f"<h3>{label}</h3>\n<p>{_verdict(pair)}</p>\n"
            f'<div class="gantt" id="plan-run-{number}" role="group" '
            f'aria-label="Plan and run of {label} on one time axis"></div>\n'
            f"{_phases(pair, number)}\n{_terms(pair, number)}\n"
        )
    return f"<section><h2>Plan against run</h2>\n{''.join(parts)}</section>\n"


def _verdict(pair: Pair) -> str:
    against = pair.against
    parts = ", ".join(f"{k} {_signed(v)}" for k, v in against.parts.items() if v)
    said = (
        f"The run took {seconds(against.run_makespan_ns)}, "
        f"{'the cost model says' if pair.plan is None else 'planned were'} "
        f"{seconds(against.plan_makespan_ns)} ({_percent(against.makespan_error)})"
        f"{': ' + parts if parts else ''}. "
    )
    if pair.plan is not None:
        count = len(against.stages.worker)
        said += f"{against.followed:,} of {count:,} stages are the plan\u2019s. "
    worst = against.worst_term
    if worst is not None:
        said += (
            f"The error is mostly of {worst.phase}; its term <em>{worst.term}</em> alone, with "
            f"{_coefficient(worst.alone_ns)} instead of {_coefficient(worst.planned_ns)}, "
            f"explains {_percent(worst.explains, sign=False)} of it (of the squares). "
        )
    if against.refit_error is not None:
        said += (
            f"Of the {text(against.cost['model'])} model fitted to this run "
            f"{_percent(against.refit_error)} are left."
        )
    return said


def _phases(pair: Pair, number: int) -> str:
    heads = [
        "Phase", "Stages", "Rounds", "Plan", "Run", "of it gaps", "Error",
        "Error of a stage: mean", "p95", "worst",
    ]  # fmt: skip
    body = []
    for row in pair.against.phases:
        cells = [f'<th scope="row">{row.phase}</th>']
        for name in ("stages", "rounds"):
            value = getattr(row, name)
            cells.append(cell(f"{value:,}", field=name, value=value))
        for name in ("planned_ns", "took_ns", "gap_ns"):
            value = getattr(row, name)
            cells.append(cell(seconds(value), field=name[:-3], ns=value))
        for name in ("error", "mean", "p95", "worst"):
            value = getattr(row, name)
            shown = _percent(value, sign=name == "error")
            cells.append(cell(shown, field=name, value=value))
        body.append(f"<tr>{''.join(cells)}</tr>")
    return table(f"plan-phases-{number}", "Times by phase; a gap counts to the stage after it",
                  heads, body)  # fmt: skip


def _terms(pair: Pair, number: int) -> str:
    heads = ["Phase", "Term", "Plan", "Run", "Adds up to", "Alone", "Explains"]
    body = [
        f'<tr><th scope="row">{term.phase}</th><td class="word">{term.term}</td>'
        + cell(_coefficient(term.planned_ns), field="plan", ns=term.planned_ns)
        + cell(_coefficient(term.measured_ns), field="run", ns=term.measured_ns)
        + cell(_signed(term.error_ns), field="error", ns=term.error_ns)
        + cell(_coefficient(term.alone_ns), field="alone", ns=term.alone_ns)
        + cell(_percent(term.explains, sign=False), field="explains", value=term.explains)
        + "</tr>"
        for term in pair.against.terms
    ]
    caption = (
        "Terms of the cost model: a step or round, a prompt token, a request, a token of context"
    )
    return table(f"plan-terms-{number}", caption, heads, body)


def pair_data(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """Return what the charts of plan and run need: the errors of the stages, in per mille."""
    found = []
    for pair in pairs:
        against = pair.against
        rows = against.stage_rows()[:MAX_STAGES]
        found.append(
            {
                "run": pair.run,
                "plan": pair.plan,
                "start": [row["start_ns"] for row in rows],
                "end": [row["end_ns"] for row in rows],
                "phase": [row["phase"] for row in rows],
                "planned": [row["planned_ns"] for row in rows],
                "took": [row["took_ns"] for row in rows],
            }
        )
    return found


def _signed(ns: int) -> str:
    return f"{ns / 1e9:+,.3f} s"


def _coefficient(ns: float) -> str:
    return f"{ns / 1000:,.3f} µs"


def _percent(value: float | None, *, sign: bool = True) -> str:
    if value is None:
        return "–"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"
