"""The picture of plan and run: one time axis, an error for each stage, equal bytes."""

from __future__ import annotations

import pytest

import orsched
from orsched.common.errors import InputError
from orsched.runner import RunSettings, plan_against_run, run
from orsched.views.plan_and_run import draw_plan_and_run, save_plan_and_run
from tests.in_order import in_order


@pytest.fixture(scope="module")
def pair():
    done = run(orsched.load("with-arrivals"), "vllm", RunSettings("virtual"))
    steps = done.trace.steps
    slow = in_order(
        orsched.Steps, steps.worker, steps.phase, 3 * steps.start_ns, 3 * steps.end_ns, steps.rounds
    )
    return done.instance, done.plan, done.trace.replace(steps=slow, bound=None, results={})


def test_both_charts_and_the_errors_share_their_time(pair):
    from matplotlib.figure import Figure

    instance, plan, trace = pair
    above, below, errors = draw_plan_and_run(instance, plan, trace, Figure())
    assert above.get_xlim() == below.get_xlim() == errors.get_xlim()
    assert above.get_xlim()[1] >= trace.makespan_ns / 1e9
    drawn = sum(len(line.get_xdata()) for line in errors.lines if line.get_gid())
    assert drawn == len(plan_against_run(instance, plan, trace).stages.worker)
    ends = [axes.lines[-1].get_xdata()[0] for axes in (above, below)]
    assert ends == [plan.makespan_ns / 1e9, trace.makespan_ns / 1e9] or ends[0] < ends[1]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_equal_input_gives_equal_bytes(pair, tmp_path, suffix):
    for name in ("a", "b"):
        save_plan_and_run(*pair, tmp_path / f"{name}.{suffix}")
    written = (tmp_path / f"a.{suffix}").read_bytes()
    assert written == (tmp_path / f"b.{suffix}").read_bytes()
    assert len(written) > 5000


def test_other_suffixes_and_instances_are_refused(pair, tmp_path):
    instance, plan, trace = pair
    with pytest.raises(InputError, match="not a suffix"):
        save_plan_and_run(*pair, tmp_path / "a.txt")
    other = orsched.load("two-by-two")
    with pytest.raises(InputError, match="another instance"):
        save_plan_and_run(other, plan, trace, tmp_path / "a.png")
    assert instance.name == "with-arrivals"


def test_errors_beyond_the_border_stand_at_it_with_their_value(pair):
    from matplotlib.figure import Figure

    instance, plan, trace = pair
    steps = trace.steps
    end = steps.end_ns.copy()
    # One step takes a hundred times as long, and all after it begin that much later.
    took = int(end[3] - steps.start_ns[3])
    start = steps.start_ns.copy()
    start[4:] += 99 * took
    end[3:] += 99 * took
    late = trace.replace(
        steps=in_order(orsched.Steps, steps.worker, steps.phase, start, end, steps.rounds),
        results={},
    )
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
