"""Every cost model in the simulator, judged by the checker's scalar formula."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from orsched.checker import check
from orsched.costs import (
    AffineCost,
    BilinearCost,
    LevelsCost,
    LinearCost,
    PoolingCost,
    RooflineCost,
)
from orsched.data.instance import Instance
from orsched.data.requests import Requests
from orsched.data.workers import Worker
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.simulator import simulate_policy
from tests.in_order import in_order

COSTS: list[Any] = [
    AffineCost(),
    LevelsCost(levels=((256, 60_000_000), (1024, 160_000_000)), round_fixed_ns=30_000_000),
    BilinearCost.from_ms((0.05, 1.0, 0.02, 20.0), (0.0000312345, 0.08, 0.00123456789, 25.0)),
    PoolingCost.from_ms(alpha=2e-6, beta=0.1, c=9.5, gamma=0.0031234567, delta=0.0112345678),
    in_order(RooflineCost, 400_000_123, 5_300_000_000_000, 2_640_000_000_007, 53_123_456, 600_123),
    in_order(
        LinearCost,
        9 * 10**12 + 1,
        21 * 10**9,
        10**6 + 7,
        7 * 10**12,
        14 * 10**9,
        52_345_678,
        10**12,
        10**8,
    ),
]


def instance(cost: Any, first_token: str) -> Instance:
    rng = random.Random(7)
    requests = Requests(
        prompt_tokens=[rng.randint(1, 300) for _ in range(40)],
        output_tokens=[rng.randint(1, 90) for _ in range(40)],
        arrival_ns=sorted(rng.randint(0, 2 * 10**9) for _ in range(40)),
    )
    worker = Worker(clients=6, cost=cost, prefill_cap_tokens=900)
    return Instance(requests=requests, workers=(worker,), first_token=first_token)


@pytest.mark.parametrize("first_token", ["decode", "prefill"])
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.model)
def test_the_simulated_times_are_those_of_the_scalar_formula(cost: Any, first_token: str) -> None:
    problem = instance(cost, first_token)
    schedule = simulate_policy(problem, FirstComeFirstServed()).schedule
    assert check(problem, schedule) == []
    # The same plan under other times is caught, so the check above looked at the times.
    other = instance(replace(cost, **_slower(cost)), first_token)
    assert check(other, replace(schedule, instance_sha256=other.sha256)) != []


def _slower(cost: Any) -> dict[str, int]:
    name = {
        "bilinear": "d4_fs",
        "pooling": "gamma_fs",
        "roofline": "weights_fs",
        "linear": "context_fs",
    }.get(cost.model, "round_fixed_ns")
    more = 10**12 if name == "weights_fs" else 10**6
    return {name: getattr(cost, name) + more}


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.model)
def test_scaling_multiplies_the_makespan(cost: Any) -> None:
    problem = instance(cost, "decode")
    requests = problem.requests
    scaled = Instance(
        requests=replace(requests, arrival_ns=requests.arrival_ns * 3),
        workers=(replace(problem.workers[0], cost=cost.scaled(3)),),
        first_token="decode",
    )
    once = simulate_policy(problem, FirstComeFirstServed()).schedule
    thrice = simulate_policy(scaled, FirstComeFirstServed()).schedule
    assert thrice.makespan_ns == 3 * once.makespan_ns > 0
