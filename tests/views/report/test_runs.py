"""What reports, pictures and tables say of runs: nothing that only plans can claim."""

from __future__ import annotations

import re

import pytest

import orsched
from orsched.data.schedule import Steps
from orsched.metrics.summary import summarise
from orsched.views.comparison import labels, rows_of
from orsched.views.gantt import gantt
from orsched.views.html import write_report
from orsched.views.method_tables import latency_table, makespan_table, ranking_of
from tests.in_order import in_order

MEASURED = {"device": "d", "clock": "c"}
CLAIMS = ("it is the shortest among ", 'class="badge"')


@pytest.fixture(scope="module")
def instance():
    return orsched.load("two-by-two")


@pytest.fixture(scope="module")
def plan(instance):
    found = orsched.solve(instance, "exact").schedule
    assert found.makespan_ns == found.bound["value_ns"]
    return found


def run_of(plan, speed=1, **run):
    """Return a plan as a run on a worker so many times as fast as its model."""
    steps = plan.steps
    times = (steps.start_ns // speed, steps.end_ns // speed)
    trace = plan.replace(steps=in_order(Steps, steps.worker, steps.phase, *times, steps.rounds))
    return trace.replace(run={**MEASURED, **run}, results={})


def makespans(instance, schedules):
    rows = rows_of(instance, schedules)
    return makespan_table(rows, ranking_of(instance, rows), badged=True)


def page_of(instance, schedules, tmp_path):
    write_report(instance, schedules, tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_runs_are_never_the_shortest(instance, plan, tmp_path):
    page = page_of(instance, [plan, plan.replace(method="other")], tmp_path)
    assert all(claim in page for claim in CLAIMS)
    for speed in (1, 2):
        runs = [run_of(plan, speed), run_of(plan, speed)]
        page = page_of(instance, runs, tmp_path)
        assert not any(claim in page for claim in CLAIMS)
        assert ("the worker was faster than its model" in page) is (speed == 2)
        assert page.count("yes; times not checked") == 2
        assert 'data-field="gap" data-value="-' not in page
    slow = orsched.solve(instance, "fcfs", parameters={}).schedule
    table = makespans(instance, [run_of(plan, 2), plan, slow])
    badged = re.findall(r'<th scope="row">([^<]*) <span class="badge">', table)
    assert "exact, run" not in badged
    assert "exact" in badged


def test_an_invalid_schedule_is_not_the_shortest(instance, plan):
    steps = plan.steps
    halved = in_order(
        Steps, steps.worker, steps.phase, steps.start_ns // 2, steps.end_ns // 2, steps.rounds
    )
    table = makespans(instance, [plan, plan.replace(steps=halved)])
    assert "badge" not in table


def test_no_gap_below_the_bound(instance, plan):
    fast, slow = run_of(plan, 2), run_of(plan)
    assert summarise(instance, fast)["gap"] is None
    assert summarise(instance, slow)["gap"] == 0
    reported = fast.replace(results=summarise(instance, fast))
    assert orsched.check(instance, reported, times="measured") == []
    forged = reported.replace(results={**reported.results, "gap": -0.5})
    (found,) = orsched.check(instance, forged, times="measured")
    assert found.field == "results.gap"
    assert "Gap" not in forged._repr_html_()
    assert "measured" in forged._repr_html_()
    assert "Gap" in plan._repr_html_()


def test_the_title_of_a_chart_has_no_negative_gap(instance, plan):
    def facts(schedule):
        axes = gantt(instance, schedule)
        return next(t.get_text() for t in axes.texts if t.get_gid() == "facts")

    assert "gap 0.00 %" in facts(plan)
    assert "measured" not in facts(plan)
    assert "gap" not in facts(run_of(plan, 2))
    assert "measured" in facts(run_of(plan, 2))
    assert "partial run" in facts(run_of(plan, complete=False))


def test_a_part_of_a_run_says_so_and_has_no_latencies(instance, plan, tmp_path):
    steps, work, last = plan.steps, plan.work, len(plan.steps) - 1
    kept = work.last_step < last
    part = plan.replace(
        steps=in_order(Steps, *(getattr(steps, name)[:last] for name in vars(steps))),
        work=orsched.Work(**{name: column[kept] for name, column in vars(work).items()}),
        results={},
        run={**MEASURED, "complete": False},
    )
    page = page_of(instance, [plan, part], tmp_path)
    assert labels([part]) == ["exact, partial run"]
    count = len(instance) - len(set(work.request[~kept].tolist()))
    assert f"partial ({count} of {len(instance)} requests finished)" in page
    assert "Gap" not in part._repr_html_()
    (row,) = rows_of(instance, [part])
    assert row.results["gap"] is row.results["tokens_per_s"] is row.results["jct_ns"] is None
    assert "-1" not in latency_table([row], ranking_of(instance, [row]), badged=True)
