"""Bounds that know which workers prefill and which decode."""

from __future__ import annotations

import copy

import pytest

import orsched
from orsched import InputError, Instance, Link, Requests, Worker, attainment_bound, summarise
from orsched.checker.certificates import bound_violations, certificate_violations
from orsched.models.bounds.bounds import bound, bound_for
from orsched.simulator import simulate_policy
from tests.pools import pool_instance, pool_policy
from tests.simulator.test_pools import Cost


@pytest.mark.parametrize("rule", ["prefill", "decode"])
@pytest.mark.parametrize("seed", range(40))
def test_bounds_hold_for_pools(seed, rule):
    """INV-10: no schedule is shorter than the bound for what it does."""
    instance = pool_instance(seed, rule)
    schedule = simulate_policy(instance, pool_policy(seed)).schedule
    found = bound_for(instance, schedule, bound(instance))
    assert 0 < found.value_ns <= schedule.makespan_ns
    assert certificate_violations(instance, found.to_dict()) == []


def apart(requests, link, prefill=1, decode=1):
    pools = [Worker(4, Cost(), role="prefill")] * prefill + [
        Worker(4, Cost(), role="decode")
    ] * decode
    return Instance(requests, tuple(pools), first_token="prefill", link=link)


@pytest.mark.parametrize(
    ("requests", "link", "binding", "value"),
    [
        # alone: 10 tokens of 10 ns, a link of 50 + 10 x 7, two rounds of 100
        (Requests([10], [3]), Link(ns_per_token=7, latency_ns=50), "path_ns", 100 + 120 + 200),
        # four prefills of 1,000 ns
        (Requests([100] * 4, [2] * 4), Link(), "prefill_ns", 4000),
        # the first prefill, then eight transfers of 1,000
        (Requests([10] * 8, [2] * 8), Link(ns_per_token=100), "link_ns", 100 + 8000),
        # the first cache, then 8 x 50 rounds on four clients
        (Requests([10] * 8, [51] * 8), Link(), "decode_ns", 100 + 10_000),
    ],
)
def test_each_part_binds_somewhere(requests, link, binding, value):
    """The parts of the bound by hand, and their largest is the bound."""
    found = bound(apart(requests, link))
    assert found.certificate[binding] == value
    assert found.value_ns >= value


def test_more_workers_of_a_pool_share_its_work():
    requests = Requests([100] * 4, [2] * 4)
    one, two = (bound(apart(requests, Link(), prefill=n)).certificate for n in (1, 2))
    assert two["prefill_ns"] * 2 == one["prefill_ns"]


def test_the_whole_of_both_pools_binds_on_one_device():
    """Two roles of one device share its time."""
    instance = apart(Requests([100] * 4, [101] * 4), Link())
    shared = tuple(Worker(4, Cost(), role=worker.role, device="gpu") for worker in instance.workers)
    assert (
        bound(instance).certificate["all_ns"] * 2
        == bound(instance.replace(workers=shared)).certificate["all_ns"]
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_forged_certificates_are_refused(seed):
    """No number of a certificate can be another one, and no other bound stands in its place."""
    instance = pool_instance(seed)
    found = bound(instance).to_dict()
    assert found["name"] == "pools"
    for name in ("prefill_ns", "decode_ns", "all_ns", "link_ns", "path_ns", "value_ns"):
        for change in (1, -1):
            wrong = copy.deepcopy(found)
            wrong["certificate"][name] += change
            if name == "value_ns":
                wrong["value_ns"] += change
            assert certificate_violations(instance, wrong)
    fewer = copy.deepcopy(found)
    fewer["certificate"]["workers"].pop()
    assert certificate_violations(instance, fewer)
    plain = Instance(instance.requests, (Worker(4),), first_token="decode")
    assert certificate_violations(plain, found)
    assert certificate_violations(instance, bound(plain).to_dict())


@pytest.mark.parametrize("objective", ["mean_jct", "mean_ttft"])
@pytest.mark.parametrize("seed", range(30))
def test_bounds_on_means_hold_for_pools(seed, objective):
    """INV-10: no schedule has a smaller mean than requests that are alone with their transfers."""
    instance = pool_instance(seed, ("prefill", "decode")[seed % 2])
    schedule = simulate_policy(instance, pool_policy(seed)).schedule
    found = bound_for(instance, schedule, bound(instance, objective), objective=objective)
    results = summarise(instance, schedule)
    assert found.name == "alone"
    assert 0 < found.value_ns <= results[f"{objective.removeprefix('mean_')}_ns"]["mean"]
    assert bound_violations(instance, found.to_dict(), objective) == []
    wrong = copy.deepcopy(found.to_dict())
    wrong["certificate"]["sum_ns"] += len(instance)
    wrong["certificate"]["value_ns"] += 1
    wrong["value_ns"] += 1
    assert bound_violations(instance, wrong, objective)


def test_a_mean_by_hand():
    """Prefill of 10 tokens, a transfer of 50 + 10 x 7, two rounds; the first token before it."""
    instance = apart(Requests([10], [3]), Link(ns_per_token=7, latency_ns=50))
    assert bound(instance, "mean_jct").value_ns == 100 + 120 + 200
    assert bound(instance, "mean_ttft").value_ns == 100
    late = instance.replace(first_token="decode")
    assert bound(late, "mean_ttft").value_ns == 100 + 120 + 100


def test_bounds_on_attainment_refuse_links():
    instance = pool_instance(1).with_classes("interactive:ttft=1")
    with pytest.raises(InputError, match="know of no links"):
        attainment_bound(instance)


def test_solve_checks_and_bounds():
    """A result of ``solve`` is checked, and its gap is that to the bound of its pools."""
    result = orsched.solve(pool_instance(4), "disaggregated")
    assert result.schedule.bound["name"] == "pools"
    assert result.gap is not None
    assert result.schedule.results["transfers"]["count"] == len(result.schedule.transfers)
