"""Capacity of fleets that change: failures, autoscaling, and what they cost in worker hours."""

from dataclasses import replace

import pytest

import orsched
from orsched.data.autoscaling import Autoscaling
from orsched.planning.capacity import proof_violations
from orsched.planning.capacity.question import read_machines
from orsched.solving.scenario import copies, scenario
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


def test_a_split_is_that_of_simulate_and_no_cheaper_one_does(tmp_path):
    options = {"split": "free", "jobs": 1, "folder": tmp_path, "max_workers": 8, **LIMITS}
    quick, slow = (orsched.capacity(heavy(40), exhaustive=e, **options) for e in (False, True))
    assert slow.price <= quick.price == quick.workers == sum(quick.fleet.values())
    assert slow.lower_bound_price <= slow.price
    cheaper = [each.fleet for each in slow.curve if sum(each.fleet) < slow.workers]
    assert sorted(cheaper) == [(p, n - p) for n in range(2, slow.workers) for p in range(1, n)]
    split = f"{slow.fleet['prefill']}P{slow.fleet['decode']}D:free"
    case = scenario(heavy(40), workers=split)
    slo = orsched.SLO(ttft_s=LIMITS["slo_ttft"], tpot_s=LIMITS["slo_tpot"])
    run = orsched.simulate(case, "disaggregated", slo=slo)
    assert run.figures["slo_attainment"] == slow.estimate.attainment >= 0.9
    workers = [heavy().worker] * 2
    assert proof_violations(heavy(40), slow.certificate, workers) == []


def test_machines_of_a_mix_take_roles_and_those_with_a_role_keep_it():
    decode = replace(heavy(clients=8).worker, role="decode")
    machines = {"both": (heavy().worker, 1.0), "decode": (decode, 1.5)}
    kinds = read_machines(heavy(), machines, split=True)
    roles = [("both-prefill", "prefill"), ("both-decode", "decode"), ("decode", "decode")]
    assert [(each.name, each.worker.role) for each in kinds] == roles
    found = orsched.capacity(heavy(20), machines=machines, split="free", jobs=1, **LIMITS)
    assert found.price >= found.lower_bound_price
    assert found.fleet["both-prefill"] >= 1


def test_a_schedule_keeps_the_attainment_and_no_single_worker_less_does(tmp_path):
    """A crowd, then one request a second: the crowd's workers are not needed later on."""
    crowd = [k * 5 * 10**7 for k in range(40)] + [10**9 * k for k in range(3, 9)]
    requests = orsched.Requests([100] * 46, [20] * 46, arrival_ns=crowd)
    case = heavy().replace(requests=requests)
    found = orsched.capacity(case, jobs=1, folder=tmp_path, schedule="every=1", **LIMITS)
    plan, workers = found.schedule.to_dict(), found.schedule.workers
    assert (plan["peak"], len(workers), workers[-4:]) == (found.workers, 9, (1,) * 4)
    assert plan["worker_hours"] < found.estimate.worker_hours
    assert found.to_dict()["schedule"] == plan

    def attained(counts):
        rule = Autoscaling(startup_ns=0, interval_ns=10**9, schedule=counts)
        fleet = case.replace(workers=copies(case.worker, found.workers), autoscaling=rule)
        slo = orsched.SLO(ttft_s=LIMITS["slo_ttft"], tpot_s=LIMITS["slo_tpot"])
        return orsched.simulate(fleet, "vllm", slo=slo).figures["slo_attainment"]

    assert attained(workers) == plan["attainment"] >= 0.9
    fewer = [[*workers[:k], n - 1, *workers[k + 1 :]] for k, n in enumerate(workers) if n > 1]
    assert fewer
    assert max(map(attained, fewer)) < 0.9


@pytest.mark.parametrize(("given", "says"), [
    ({"schedule": "startup=3"}, "names no window"), ({"schedule": "every=0"}, "window"),
    ({"schedule": "every=1e-6"}, "at most 512"), ({"schedule": "every=1,hours=2"}, "hours"),
    ({"schedule": "every=1", "split": "free"}, "equal workers"),
    ({"schedule": "every=1", "autoscale": "min=1,startup=1"}, "no other rule"),
    ({"failures": "mtbf=0,mttr=1"}, "mtbf"), ({"autoscale": "min=1"}, "startup"),
    ({"split": "fast"}, "NAME=VALUE"), ({"split": "free", "policy": "gittins"}, "that do both"),
    ({"policy": "disaggregated"}, "different roles"),
    ({"split": "free", "failures": "mtbf=9,mttr=1"}, "come and go have no links"),
    ({"split": "free", "autoscale": "min=1,startup=1"}, "does not support links"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_before_anything_runs(given, says):
    assert says in str(refusal(orsched.capacity, heavy(5), jobs=1, **given, **LIMITS))
