"""The method ``fleet``, beside a search over all steps, single workers and the bounds."""

import random
from dataclasses import replace

import numpy as np
import pytest

import orsched
from orsched import BlockMemory, Instance, Requests, Worker
from orsched.costs import AffineCost, RooflineCost
from orsched.heuristics.pang import PlannedMethod
from orsched.models.best_first import solve_best_first
from orsched.models.fleet import annealing_loops as plain
from orsched.models.fleet import exact
from orsched.models.fleet.method import assigned_by
from orsched.models.fleet.shares import Shares, alone, engine, joined
from tests.in_order import in_order
from tests.models.least_of_fleet import FleetSearch
from tests.refusals import refused

MS = 10**6
AFFINE = in_order(AffineCost, 9 * MS, 0, 10 * MS, 0)
ROOFLINE = RooflineCost.from_s(fixed=1e-3, weights=8e-3, token=1e-4, context=1e-7, attended=1e-8)
PAGED = BlockMemory(40, 16, "paged")


def fleet(n, workers, seed=0, cost=ROOFLINE, memory=None, late=False, unequal=False):
    """Requests of uneven lengths on workers with 4 clients, or 4, 5, ... where they are unequal."""
    rng = np.random.default_rng(seed)
    prompts, outputs = rng.integers(1, 60, n), np.exp(rng.normal(3.5, 0.5, n)).astype(int) + 1
    arrivals = rng.integers(0, 10**9, n) * late
    requests = Requests(prompts, outputs, arrival_ns=arrivals, predicted_tokens=outputs)
    many = tuple(Worker(4 + k * unequal, cost, None, memory, name=f"w{k}") for k in range(workers))
    return Instance(requests, many)


CASES = {
    "roofline": {},
    "memory": {"memory": PAGED},
    "arrivals": {"late": True},
    "unequal": {"unequal": True, "memory": PAGED, "late": True},
    "stages": {"cost": AFFINE},
    "stages, unequal": {"cost": AFFINE, "unequal": True},
    "one worker": {"workers": 1},
}


@pytest.mark.parametrize("case", CASES)
def test_it_ends_before_a_queue_in_the_order_of_arrival_and_after_the_bound(case):
    instance = fleet(**{"n": 30, "workers": 3, **CASES[case]})
    found = orsched.solve(instance, "fleet", iterations=4)
    assert found.schedule.bound["value_ns"] <= found.schedule.makespan_ns
    assert found.schedule.makespan_ns < orsched.simulate(instance, "vllm").schedule.makespan_ns
    assert found.gap < 0.25


def test_a_seed_gives_one_plan():
    instance = fleet(20, 2)
    one, other = (orsched.solve(instance, "fleet", iterations=3) for _ in range(2))
    assert one.schedule.bare() == other.schedule.bare()


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 200), marks=pytest.mark.full)])
def test_exact_proves_tiny_fleets(seeds):
    for seed in seeds:
        rng = random.Random(seed)
        n = rng.choice((2, 3, 3, 4))
        prompts, outputs = ([rng.randint(1, 3) for _ in range(n)] for _ in range(2))
        cost = in_order(AffineCost, *(rng.randint(0, 30) for _ in range(4)))
        first = Worker(rng.choice((1, 2)), cost, rng.choice((None, 4)), name="w0")
        other = replace(first, name="w1", clients=rng.choice((1, 2)))
        instance = Instance(Requests(prompts, outputs), (first, other))
        found = orsched.solve(instance, "exact")
        assert found.status == "optimal", seed
        assert found.schedule.makespan_ns == FleetSearch(instance, ()).least(), seed
        planned = orsched.solve(instance, "fleet", iterations=2, parameters={"below": "hybrid"})
        assert planned.schedule.makespan_ns >= found.schedule.makespan_ns, seed


def test_of_two_workers_one_serves_the_longest_request_and_the_other_the_rest():
    # A prefill yields the first token: 99 rounds of one beside 4 x (a prefill and 24 rounds).
    worker = Worker(1, AFFINE, name="w0")
    instance = Instance(Requests([1] * 5, [100, *[25] * 4]), (worker, replace(worker, name="w1")))
    found = orsched.solve(instance, "exact")
    ends = sorted(found.schedule.request_times(instance)["finish_ns"].tolist())
    assert ends[-2:] == [4 * (9 + 24 * 10) * MS, (9 + 99 * 10) * MS]


def test_a_plan_on_predicted_lengths_is_carried_out_on_the_true_ones():
    instance = fleet(50, 3)
    wrong = instance.requests.output_tokens[::-1]
    instance = instance.replace(requests=instance.requests.replace(predicted_tokens=wrong))
    found = orsched.solve(instance, "fleet@predicted", iterations=2)
    assert found.schedule.information == "predicted"
    assert any(note.startswith("planned on predicted lengths: ") for note in found.notes)
    assert (found.schedule.request_times(instance)["finish_ns"] > 0).all()
    exactly = instance.replace(
        requests=instance.requests.replace(predicted_tokens=instance.requests.output_tokens)
    )
    knows = orsched.solve(exactly, "fleet@predicted", iterations=2)
    assert knows.schedule.makespan_ns <= found.schedule.makespan_ns


@pytest.mark.parametrize(
    ("change", "parameters", "says"),
    [
        ({"workers": (Worker(4, AFFINE, padding=True, name="a"),) * 1}, {}, "padding"),
        ({}, {"below": "fcfs"}, "below"),
    ],
)
def test_what_it_does_not_plan_is_refused(change, parameters, says):
    instance = fleet(5, 2).replace(**change)
    refused(says, orsched.solve, instance, "fleet", parameters=parameters)


def test_prompts_over_a_cap_go_to_workers_that_hold_them_whole():
    workers = tuple(Worker(2, ROOFLINE, cap, name=f"w{cap}") for cap in (100, 500))
    instance = Instance(Requests([100, 30, 500, 400, 60], [2, 8, 3, 6, 9]), workers)
    found = orsched.solve(instance, "fleet", iterations=4, parameters={"below": "hybrid"})
    assert assigned_by(found.schedule, 5)[[2, 3]].tolist() == [1, 1]
    where = np.array([0, 0, 1, 1, 0])
    assert Shares(instance, chunks=False).takes(where)
    assert not Shares(instance, chunks=False).takes(1 - where)
    assert Shares(instance).takes(1 - where)


def test_prompts_over_all_caps_are_divided():
    instance = fleet(5, 2, cost=AFFINE)
    workers = tuple(replace(worker, prefill_cap_tokens=20) for worker in instance.workers)
    found = orsched.solve(instance.replace(workers=workers), "fleet", iterations=2)
    assert "as vllm" in found.notes[-1]


class NoFloor(AffineCost):
    """A cost model of a user who states no floor."""

    floor = None


def test_without_a_floor_it_refuses_and_auto_takes_a_policy():
    instance = fleet(5, 2, cost=in_order(NoFloor, 9 * MS, 0, 10 * MS, 0))
    refused("state a floor", orsched.solve, instance, "fleet")
    assert "auto picked fcfs" in " ".join(orsched.solve(instance, "auto").notes)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "choose fleet"),
        ({"cost": AFFINE, "memory": BlockMemory(10, 16, "paged")}, "choose fleet"),
        ({"cost": in_order(NoFloor, 9 * MS, 0, 10 * MS, 0)}, "choose vllm"),
    ],
)
def test_exact_says_what_serves_fleets_that_it_does_not_prove(change, says):
    refused(says, orsched.solve, fleet(5, 2, **change), "exact")


SEARCHED = Instance(
    Requests([2, 3, 1, 1], [2, 3, 2, 2]),
    tuple(Worker(2, in_order(AffineCost, 2, 20, 22, 6), name=name) for name in "ab"),
)
"""Bounds alone do not prove its best plan."""


@pytest.mark.parametrize("ended", ["too_large", "time_limit"])
def test_exact_proves_nothing_where_a_share_is_not_proven(monkeypatch, ended):
    # Each search ends with its best schedule, and a bound below that.
    def unproven(instance, seconds):
        found = solve_best_first(instance, seconds)
        return replace(found, bound_ns=found.bound_ns - 1, termination=ended)

    monkeypatch.setattr(exact, "solve_best_first", unproven)
    assert orsched.solve(SEARCHED, "exact").best_of is None


def test_exact_ends_within_a_gap():
    found = orsched.solve(fleet(6, 2, cost=AFFINE), "exact", gap=0.9)
    assert found.termination == "target_gap"


@pytest.mark.parametrize(("method", "at"), [("fleet", "hybrid"), ("exact", "best_first")])
def test_an_interrupt_that_an_inner_search_keeps_to_itself_ends_the_search(monkeypatch, method, at):
    calls = []

    def stopped(found):
        calls.append(found)
        interrupted = len(calls) > (2 if at == "hybrid" else 0)
        return type(found.termination)("interrupted") if interrupted else found.termination

    def hybrid(self, instance, run, serve=PlannedMethod.__call__):
        found = serve(self, instance, run)
        return found._replace(termination=stopped(found))

    def best_first(instance, seconds):
        found = solve_best_first(instance, seconds)
        return replace(found, termination=stopped(found))

    if at == "hybrid":
        monkeypatch.setattr(PlannedMethod, "__call__", hybrid)
    else:
        monkeypatch.setattr(exact, "solve_best_first", best_first)
    found = orsched.solve(SEARCHED if method == "exact" else fleet(6, 2, cost=AFFINE), method)
    assert found.termination == "interrupted"


@pytest.mark.parametrize("method", ["windows", "hybrid", "offline"])
def test_methods_for_one_worker_offer_it(method):
    refused("choose fleet", orsched.solve, fleet(5, 2), method)


def test_exact_offers_it_for_more_requests_than_it_proves():
    refused("choose fleet", orsched.solve, fleet(17, 2, cost=AFFINE), "exact")


@pytest.mark.parametrize("case", ["memory", "unequal", "stages, unequal"])
def test_sums_that_moves_keep_are_those_of_the_assignment(case):
    instance = fleet(**{"n": 40, "workers": 3, **CASES[case]})
    shares = Shares(instance)
    start = shares._loads(shares.blocks()[shares.order])
    best = start.where.copy()
    draws = np.random.default_rng(1).random((2_000, 4))
    base = float(start.ends.max())
    found = plain.anneal(shares.tables, start, best, draws, 0.1, base, base)
    fresh = shares._loads(start.where)
    for name in ("tokens", "held", "lines", "ends"):
        np.testing.assert_allclose(getattr(start, name), getattr(fresh, name), rtol=1e-9)
    assert (start.first == fresh.first).all()
    assert found < base
    assert float(shares._loads(best).ends.max()) == pytest.approx(found)


def test_the_compiled_moves_are_the_plain_ones():
    pytest.importorskip("numba")
    kernels = engine()
    kernels.wait()
    shares = Shares(fleet(60, 4, unequal=True, memory=PAGED))
    ends = []
    for module in (plain, kernels.module):
        loads = shares._loads(shares.blocks()[shares.order])
        best, base = loads.where.copy(), float(loads.ends.max())
        draws = np.random.default_rng(2).random((3_000, 4))
        ends.append((module.anneal(shares.tables, loads, best, draws, 0.01, base, base), *best))
    assert ends[0] == pytest.approx(ends[1])


def test_the_surrogate_is_no_more_than_the_simulation_of_each_worker():
    instance = fleet(80, 3)
    shares = Shares(instance)
    where = shares.blocks()
    for worker, end in enumerate(shares.ends(where).tolist()):
        part = alone(instance, worker, np.flatnonzero(where == worker))
        assert end <= orsched.simulate(part, "vllm").schedule.makespan_ns


def test_parts_join_to_the_schedule_that_all_workers_at_once_have():
    instance = fleet(30, 3, memory=PAGED, late=True)
    rows = [np.arange(30)[k::3] for k in range(3)]
    made = [orsched.simulate(alone(instance, k, own), "vllm") for k, own in enumerate(rows)]
    whole = joined(instance, [(k, rows[k], r.schedule) for k, r in enumerate(made)], "vllm")
    assert orsched.check(instance, whole) == []
    assert whole.makespan_ns == max(r.schedule.makespan_ns for r in made)


@pytest.mark.parametrize("cost", [in_order(AffineCost, *[0] * 4), in_order(RooflineCost, *[1] * 5)])
def test_steps_may_take_no_time(cost):
    found = orsched.solve(fleet(6, 2, cost=cost), "fleet", iterations=2)
    assert found.checked
    assert found.makespan_ns == 0
