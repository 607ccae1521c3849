"""Plan against run in the report: exact numbers, only where something was measured."""

from __future__ import annotations

import json
import re

import pytest

import orsched
from orsched.runner import RunSettings, run
from orsched.views.comparison import labels, rows_of
from orsched.views.html import write_report
from orsched.views.report_plan_and_run import pair_data, pairs_of, section
from tests.in_order import in_order

VIRTUAL = RunSettings("virtual")


@pytest.fixture(scope="module")
def ran():
    return run(orsched.load("with-arrivals"), "fcfs", VIRTUAL)


def slower(trace):
    """Every step takes twice as long."""
    steps = trace.steps
    twice = in_order(
        orsched.Steps, steps.worker, steps.phase, 2 * steps.start_ns, 2 * steps.end_ns, steps.rounds
    )
    return trace.replace(steps=twice, bound=None, results={})


def test_a_run_stands_beside_its_plan(ran, tmp_path):
    trace = slower(ran.trace)
    rows = rows_of(ran.instance, [ran.plan, trace])
    (pair,) = pairs_of(ran.instance, rows)
    assert (pair.plan, pair.run) == (0, 1)
    assert pair.against.run_makespan_ns == 2 * pair.against.plan_makespan_ns
    found = section([pair], rows)
    (planned, *_), (took, *_) = (
        re.findall(rf'data-field="{name}" data-ns="(\d+)"', found) for name in ("planned", "took")
    )
    first = pair.against.phases[0]
    assert (int(planned), int(took)) == (first.planned_ns, first.took_ns)
    (data,) = pair_data([pair])
    assert sum(data["took"]) == pair.against.phases[-1].took_ns
    write_report(ran.instance, [ran.plan, trace], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert found in page
    embedded = re.search(r'id="orsched-data">(.*?)</script>', page, re.S).group(1)
    assert json.loads(embedded)["pairs"] == [data]
    assert "plan-run-0" in page
    write_report(ran.instance, [ran.plan, trace], tmp_path / "b.html")
    assert (tmp_path / "b.html").read_bytes() == (tmp_path / "a.html").read_bytes()


def test_a_run_alone_is_held_against_the_cost_model(ran):
    (pair,) = pairs_of(ran.instance, rows_of(ran.instance, [ran.trace]))
    assert pair.plan is None
    assert pair.against.parts["decisions"] == 0


def test_plans_alone_have_no_section(ran, tmp_path):
    rows = rows_of(ran.instance, [ran.plan, ran.plan])
    assert pairs_of(ran.instance, rows) == []
    assert section([], rows) == ""
    write_report(ran.instance, [ran.plan], tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Plan against run" not in page
    assert '"pairs"' not in page


def test_the_plan_of_the_same_method_is_chosen(ran):
    other = ran.plan.replace(method="other")
    rows = rows_of(ran.instance, [other, ran.plan, ran.trace])
    assert pairs_of(ran.instance, rows)[0].plan == 1
    assert pairs_of(ran.instance, rows[::2])[0].plan == 0
    assert labels([other, ran.plan, ran.trace]) == ["other", "fcfs", "fcfs, run"]


def test_runs_that_are_not_valid_or_not_complete_are_left_out(ran):
    broken = ran.trace.replace(instance_sha256="0" * 64)
    partial = ran.trace.replace(run={**ran.trace.run, "complete": False}, results={}, bound=None)
    assert pairs_of(ran.instance, rows_of(ran.instance, [broken, partial])) == []
