"""Long seeded sweeps: bounds, certificates, methods, checker, simulator and both searches."""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import orsched
from orsched import AffineCost, Worker, summarise
from orsched.checker import check
from orsched.checker.certificates import certificate_violations
from orsched.models.bounds.bounds import improving_bounds, makespan_bound
from orsched.models.bounds.ordering import ordering_cannot_help
from orsched.simulator import simulate_policy
from tests.brute_force import optimum_ns
from tests.decoding import decoding
from tests.forged import leaves, with_leaf
from tests.in_order import in_order
from tests.models.cases import CHEAP_STAGES, LEVELS, proven, shuffled
from tests.oracle import oracle
from tests.random_instances import random_instance
from tests.simulator.policies import POLICIES

pytestmark = pytest.mark.full

SPECS = (
    "fcfs", "offline", "offline@predicted", "online", "online@predicted", "hybrid",
    "hybrid@predicted", "online+gate=idle_cost", "online+order=shortest", "hybrid+gate=waited_time",
    "hybrid+gate_factor=0", "hybrid+gate_factor=999999", "hybrid+steal=false+gate=prefill_first",
)  # fmt: skip
SEEDS = range(14)


@pytest.mark.parametrize("seed", SEEDS)
def test_bound_at_most_optimum_at_most_every_method(seed):
    """INV-10: under every cost model, with caps, memory, arrivals and wrong predictions."""
    rng = random.Random(seed)
    for _ in range(150):
        instance = random_instance(rng)
        optimum = optimum_ns(instance)
        assert proven(instance).value_ns <= optimum
        for spec in rng.sample(SPECS, 3):
            result = orsched.solve(instance, spec, iterations=2)
            assert result.makespan_ns >= optimum
        if ordering_cannot_help(instance) is not None:
            assert orsched.solve(instance, "fcfs").makespan_ns == optimum


@pytest.mark.parametrize("seed", SEEDS)
def test_no_changed_certificate_proves_too_much(seed):
    rng = random.Random(100 + seed)
    for _ in range(150):
        instance = random_instance(rng)
        document, optimum = makespan_bound(instance).to_dict(), optimum_ns(instance)
        for broken in _changed(document):
            assert broken["value_ns"] <= optimum or certificate_violations(instance, broken)


def _changed(document):
    """The document with one whole number changed, each of them, in several ways."""
    for path, value in leaves(document):
        for other in (value + 1, value - 1, 2 * value + 10**9) if isinstance(value, int) else ():
            broken = with_leaf(document, path, other)
            if path == ("value_ns",):
                broken["certificate"]["value_ns"] = other
            yield broken


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_and_units_change_no_bound(seed):
    """INV-16 and the order of rows, for bounds."""
    rng = random.Random(200 + seed)
    for _ in range(150):
        instance = random_instance(rng, most=12, longest=40)
        value = makespan_bound(instance).value_ns
        assert makespan_bound(shuffled(instance, rng)).value_ns == value
        if value < 2**40:
            worker = replace(instance.worker, cost=instance.worker.cost.scaled(3))
            late = instance.requests.replace(arrival_ns=instance.requests.arrival_ns * 3)
            scaled = instance.replace(workers=worker, requests=late)
            assert 3 * (value - 1) < makespan_bound(scaled).value_ns <= 3 * value


@pytest.mark.parametrize("seed", SEEDS)
def test_simulator_oracle_and_checker_agree(seed):
    """INV-13 and INV-15, every policy in turn."""
    rng = random.Random(300 + seed)
    for name in list(POLICIES) * 8:
        instance = random_instance(rng, most=12, longest=60)
        schedule = simulate_policy(instance, POLICIES[name]()).schedule
        expected = oracle(instance, POLICIES[name]())
        for one, other in ((schedule.steps, expected.steps), (schedule.work, expected.work)):
            for column in vars(one):
                assert np.array_equal(getattr(one, column), getattr(other, column)), name
        results = summarise(instance, schedule)
        assert check(instance, schedule.replace(results=results)) == []
        parts = [results["busy_client_ns"], *results["bubble_ns"].values()]
        assert min(parts) >= 0
        assert sum(parts) == instance.worker.clients * schedule.makespan_ns


def test_two_exhaustive_searches_agree():
    """Dijkstra over merged states against depth first over whole schedules."""
    rng, compared = random.Random(400), 0
    while compared < 1500:
        instance = random_instance(rng, most=4, longest=4)
        if int(instance.requests.output_tokens.sum()) <= 8:
            assert optimum_ns(instance) == _depth_first(instance)
            compared += 1


def _depth_first(instance):
    """Least makespan over every sequence of stages, rounds and waits; nothing is merged."""
    req, worker = instance.requests, instance.worker
    prompts, outputs = req.prompt_tokens.tolist(), req.output_tokens.tolist()
    arrivals, by_prefill = req.arrival_ns.tolist(), instance.first_token == "prefill"
    best = 2**63

    def blocks(rows):
        memory = worker.memory
        return sum(memory.blocks_held(prompts[r], outputs[r]) for r in rows) if memory else 0

    def fits(stage, running):
        tokens, limit = sum(prompts[r] for r in stage), worker.prefill_limit
        return (
            len(running) + len(stage) <= worker.clients
            and (limit is None or tokens <= limit)
            and (worker.memory is None or blocks([*running, *stage]) <= worker.memory.blocks)
        )

    def search(now, done):
        """``done``: tokens that each request has yielded, -1 before its prefill."""
        nonlocal best
        if now >= best:
            return
        if list(done) == outputs:
            best = now
            return
        waiting = [r for r, tokens in enumerate(done) if tokens < 0]
        running = [r for r, tokens in enumerate(done) if 0 <= tokens < outputs[r]]
        if running:
            contexts = [prompts[r] + done[r] + (not by_prefill) for r in running]
            took = worker.cost.round_ns(len(running), sum(contexts), max(contexts))
            search(now + took, [t + (r in running) for r, t in enumerate(done)])
        here = [r for r in waiting if arrivals[r] <= now]
        for size in range(1, len(here) + 1):
            for stage in filter(lambda s: fits(s, running), combinations(here, size)):
                took = worker.cost.prefill_ns([prompts[r] for r in stage])
                started = [int(by_prefill) if r in stage else t for r, t in enumerate(done)]
                search(now + took, started)
        later = [arrivals[r] for r in waiting if arrivals[r] > now]
        if later:
            search(min(later), done)

    search(0, [-1] * len(prompts))
    return best


@pytest.mark.parametrize("seed", SEEDS)
def test_long_requests_leave_no_more_than_the_optimum(seed):
    """INV-10 where most requests are equally long: the joint bound with a ``long`` length."""
    rng, used = random.Random(500 + seed), 0
    costs = (CHEAP_STAGES[0], in_order(AffineCost, 1, 0, 100, 0), LEVELS[3])
    for _ in range(60):
        long, n = rng.randint(4, 9), rng.randint(3, 6)
        outputs = [long if rng.random() < 0.55 else rng.randint(1, long + 2) for _ in range(n)]
        arrivals = [rng.randint(0, rng.choice((0, 0, 40))) for _ in range(n)]
        prompts = rng.choices(range(1, 5), k=n)
        worker = Worker(rng.randint(1, 3), rng.choice(costs))
        instance = decoding(prompts, outputs, worker, arrival_ns=arrivals)
        optimum = optimum_ns(instance)
        for bound in improving_bounds(instance, lambda: False):
            assert proven(instance, bound).value_ns <= optimum
            used += "long" in bound.certificate
    assert used
