"""Plan and run on one time axis, the search over time: pictures, and exact numbers."""

import json
import re
from functools import partial

import pytest
from matplotlib.figure import Figure

import orsched
from orsched.common.errors import InputError
from orsched.files import load_schedule, save_schedule
from orsched.instances.catalog import generate
from orsched.models.best_first import solve_best_first
from orsched.models.full_mip import solve_full_mip
from orsched.runner import RunSettings, plan_against_run, run
from orsched.solving.run_block import HistoryPoint, HistoryRecorder, history_of
from orsched.views import plan_and_run
from orsched.views.figures import draw_history, history_chart
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


@pytest.fixture(scope="module")
def instance():
    return generate("gsm8k", seed=0, requests=30, clients=4)


@pytest.fixture(scope="module")
def result(instance):
    return orsched.solve(instance, "hybrid", iterations=6)


def test_only_what_is_better_is_kept():
    recorder = HistoryRecorder()
    for moment in ((0.1, None, 5), (0.2, 9, 5), (0.3, 10, 4), (0.4, 8, 4), (0.5, 8, 7)):
        recorder.add(*moment)
    assert recorder.points == [(0.1, None, 5), (0.2, 9, 5), (0.4, 8, 5), (0.5, 8, 7)]
    largest = HistoryRecorder(largest=True)
    for moment in ((0.1, 0.5, 1.0), (0.2, 0.4, 0.9), (0.3, 0.6, None)):
        largest.add(*moment)
    assert largest.points == [(0.1, 0.5, 1.0), (0.2, 0.5, 0.9), (0.3, 0.6, 0.9)]


@pytest.mark.parametrize("method", ["fcfs", "hybrid", "windows", "exact", "hybrid@predicted"])
def test_a_result_has_its_search(method, instance):
    """INV: values fall, bounds rise, they never cross, and the last are those of the result."""
    case = generate("gsm8k", seed=0, requests=8, clients=3) if method == "exact" else instance
    found = orsched.solve(case, method, iterations=2, time_limit=600)
    history = found.history
    values = [point.value for point in history if point.value is not None]
    bounds = [point.bound for point in history if point.bound is not None]
    assert values == sorted(values, reverse=True)
    assert bounds == sorted(bounds)
    assert bounds[-1] <= values[-1] == found.makespan_ns
    assert bounds[-1] >= found.bound_ns
    seconds = [point.seconds for point in history]
    assert seconds == sorted(seconds)
    assert seconds[-1] <= found.runtimes["total"] + 1e-6


def test_of_another_objective(instance):
    found = orsched.solve(instance, "fcfs", objective="jct_mean")
    assert found.history[-1].value == pytest.approx(found.objective_value * 1e9)


def test_a_file_keeps_it(instance, result, tmp_path):
    path = tmp_path / "schedule.json"
    save_schedule(result.schedule, path)
    assert json.loads(path.read_text())["run"]["history"]["columns"] == list(HistoryPoint._fields)
    assert history_of(load_schedule(path)) == result.history
    assert len(result.history) >= 2
    assert orsched.check(instance, load_schedule(path)) == []


@pytest.mark.parametrize(
    "block",
    [None, 3, [], {}, {"rows": 3}, {"rows": [3]}, {"rows": [[1, 2]]}, {"rows": [["a", 1, 2]]},
     {"rows": [[1.0, True, 2]]}, {"rows": [[1.0, float("nan"), 2]]}],
)  # fmt: skip
def test_a_run_block_is_free(result, block):
    run = {**result.schedule.run, "history": block}
    assert history_of(result.schedule.replace(run=run)) == ()


@pytest.mark.parametrize("search", [partial(solve_full_mip, backend="cpsat"), solve_best_first])
def test_the_exact_searches_have_it_too(search):
    found = search(generate("gsm8k", seed=0, requests=8, clients=3), time_limit=600)
    assert found.history[-1].makespan_ns == found.makespan_ns
    assert found.history[-1].bound_ns <= found.bound_ns


def test_the_chart(instance, result):
    ax = history_chart(instance, result.schedule)
    lines = {line.get_gid(): line for line in ax.get_lines() if line.get_gid()}
    assert set(lines) == {"value-0", "bound-0"}
    assert lines["value-0"].get_ydata()[-1] == pytest.approx(result.makespan)
    assert lines["bound-0"].get_ydata()[-1] == pytest.approx(result.bound)
    assert result.plot("history").axes
    other = orsched.solve(instance, "hybrid", iterations=2)
    both = history_chart(instance, [result.schedule, other.schedule])
    assert len([line for line in both.get_lines() if line.get_gid()]) == 4
    assert orsched.compare(instance, ["fcfs", "hybrid"]).plot("history").axes
    assert draw_history([[(0.0, None, None)]], ["nothing"]).get_lines() == []


def test_without_a_history(instance, result):
    bare = result.schedule.replace(run={})
    with pytest.raises(InputError, match="no schedule says how its search went"):
        history_chart(instance, bare)
