"""Every cost model in the simulator, judged by the checker's scalar formula."""

import random
from dataclasses import replace

import pytest

from orsched import AffineCost, Instance, Requests, Worker, check
from orsched.costs import BilinearCost, LevelsCost, LinearCost, PoolingCost, RooflineCost
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.in_order import in_order

LINEAR = (9 * 10**12 + 1, 21 * 10**9, 10**6 + 7, 7 * 10**12, 14 * 10**9, 52_345_678, 10**12, 10**8)
COSTS = [
    AffineCost(),
    LevelsCost(levels=((256, 60_000_000), (1024, 160_000_000)), round_fixed_ns=30_000_000),
    BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.0000312345, 0.08, 0.00123456789, 25.0)),
    PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=9.5, gamma=0.0031234567, delta=0.0112345678),
    in_order(RooflineCost, 400_000_123, 5_300_000_000_000, 2_640_000_000_007, 53_123_456, 600_123),
    in_order(LinearCost, *LINEAR),
]
SLOWER = {"bilinear": "d4_fs", "pooling": "gamma_fs", "roofline": "weights_fs"}
SLOWER["linear"] = "context_fs"


def instance(cost, first_token):
    rng = random.Random(7)
    prompts, outputs = ([rng.randint(1, most) for _ in range(40)] for most in (300, 90))
    arrivals = sorted(rng.randint(0, 2 * 10**9) for _ in range(40))
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
    return Instance(requests, Worker(6, cost, prefill_cap_tokens=900), first_token=first_token)


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.model)
def test_the_simulated_times_are_those_of_the_scalar_formula(cost, first_token):
    problem = instance(cost, first_token)
    schedule = simulate_policy(problem, FirstComeFirstServed()).schedule
    assert check(problem, schedule) == []
    # The same plan under other times is caught, so the check above looked at the times.
    other = instance(replace(cost, **_slower(cost)), first_token)
    assert check(other, replace(schedule, instance_sha256=other.sha256)) != []


def _slower(cost):
    name = SLOWER.get(cost.model, "round_fixed_ns")
    return {name: getattr(cost, name) + (10**12 if name == "weights_fs" else 10**6)}
