"""Plan and run: a picture on one time axis, and exact numbers in the report."""

import json
import re

import pytest
from matplotlib.figure import Figure

import orsched
from orsched.common.errors import InputError
from orsched.runner import RunSettings, plan_against_run, run
from orsched.views import plan_and_run
from orsched.views.html import write_report
from orsched.views.plan_and_run import draw_plan_and_run, pairs_of, section
from orsched.views.report_tables import labels, rows_of
from tests.views.samples import slower, timed


@pytest.fixture(scope="module")
def pair():
    done = run(orsched.load("with-arrivals"), "vllm", RunSettings("virtual"))
    return done.instance, done.plan, slower(done.trace, 3)


def test_both_charts_and_the_errors_share_their_time(pair):
    instance, plan, trace = pair
    above, below, errors = draw_plan_and_run(instance, plan, trace, Figure())
    assert above.get_xlim() == below.get_xlim() == errors.get_xlim()
    assert above.get_xlim()[1] >= trace.makespan_ns / 1e9
    drawn = sum(len(line.get_xdata()) for line in errors.lines if line.get_gid())
    assert drawn == len(plan_against_run(instance, plan, trace).stages.worker)
    ends = [axes.lines[-1].get_xdata()[0] for axes in (above, below)]
    assert ends == [plan.makespan_ns / 1e9, trace.makespan_ns / 1e9] or ends[0] < ends[1]


def test_other_instances_are_refused(pair, tmp_path):
    with pytest.raises(InputError, match="another instance"):
        plan_and_run.save_plan_and_run(orsched.load("two-by-two"), *pair[1:], tmp_path / "a.png")


def test_errors_beyond_the_border_stand_at_it_with_their_value(pair):
    instance, plan, trace = pair
    start, end = trace.steps.start_ns.copy(), trace.steps.end_ns.copy()
    # One step takes a hundred times as long, and all after it begin that much later.
    more = 99 * int(end[3] - start[3])
    start[4:] += more
    end[3:] += more
    late = timed(trace, start, end)
    *_, errors = draw_plan_and_run(instance, plan, late, Figure())
    _, most = errors.get_ylim()
    words = [text.get_text() for text in errors.texts if text.get_gid() == "outlier-value"]
    against = plan_against_run(instance, plan, late)
    worst = max((against.stages.took_ns - against.planned_ns) / against.planned_ns.clip(1), key=abs)
    assert worst > most
    assert f"{100 * worst:+,.0f} %" in words
    for line in errors.lines:
        if str(line.get_gid()).startswith("errors-"):
            assert abs(line.get_ydata()).max(initial=0) <= most
        if str(line.get_gid()).startswith("outliers-"):
            assert set(abs(line.get_ydata())) == {most}


@pytest.fixture(scope="module")
def ran():
    return run(orsched.load("with-arrivals"), "fcfs", RunSettings("virtual"))


def page_of(tmp_path, ran, *schedules):
    write_report(ran.instance, list(schedules), tmp_path / "a.html")
    return (tmp_path / "a.html").read_text(encoding="utf-8")


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
    (data,) = plan_and_run.pair_data([pair])
    assert sum(data["took"]) == pair.against.phases[-1].took_ns
    page = page_of(tmp_path, ran, ran.plan, trace)
    assert found in page
    embedded = re.search(r'id="orsched-data">(.*?)</script>', page, re.S).group(1)
    assert json.loads(embedded)["pairs"] == [data]
    assert "plan-run-0" in page
    assert page_of(tmp_path, ran, ran.plan, trace) == page


def test_a_run_alone_is_held_against_the_cost_model(ran):
    (pair,) = pairs_of(ran.instance, rows_of(ran.instance, [ran.trace]))
    assert pair.plan is None
    assert pair.against.parts["decisions"] == 0


def test_plans_alone_have_no_section(ran, tmp_path):
    rows = rows_of(ran.instance, [ran.plan, ran.plan])
    assert pairs_of(ran.instance, rows) == []
    assert section([], rows) == ""
    page = page_of(tmp_path, ran, ran.plan)
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
