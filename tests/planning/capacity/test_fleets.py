"""Capacity of fleets that change: failures, autoscaling, and what they cost in worker hours."""

import pytest

import orsched
from orsched.solving.scenario import copies
from tests.planning.capacity.test_capacity import LIMITS, heavy
from tests.refusals import refusal


def test_failures_ask_for_spare_workers_and_the_bound_still_holds():
    plain = orsched.capacity(heavy(40), jobs=1, **LIMITS)
    failing = orsched.capacity(
        heavy(40), jobs=1, failures="mtbf=2,mttr=1", replications=3, criterion="measured", **LIMITS
    )
    assert failing.workers > plain.workers
    assert plain.lower_bound_workers <= failing.lower_bound_workers <= failing.workers
    assert next(each.workers for each in failing.curve if each.suffices) == failing.workers


def test_autoscaling_counts_the_hours_that_workers_are_on():
    rule = "min=1,target=0.5,startup=0.05,interval=0.1,cooldown=0.2"
    found = orsched.capacity(heavy(40), jobs=1, autoscale=rule, **LIMITS)
    case = heavy(40)
    case = case.replace(workers=copies(case.worker, found.workers))
    run = orsched.simulate(case, "vllm", autoscale=rule)
    on = sum((row.end_ns or run.makespan_ns) - row.start_ns for row in run.schedule.on_times)
    assert found.to_dict()["worker_hours"] == pytest.approx(on / 3.6e12)
    assert found.estimate.worker_hours < found.workers * run.makespan / 3600


@pytest.mark.parametrize("given", [{"failures": "mtbf=0,mttr=1"}, {"autoscale": "min=1"}])
def test_wrong_laws_are_refused_before_anything_runs(given):
    assert refusal(orsched.capacity, heavy(5), jobs=1, **given, **LIMITS)
