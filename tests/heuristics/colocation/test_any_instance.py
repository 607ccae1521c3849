"""Any instance: the checker accepts the schedules, and interactive requests come first."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.registry import resolve
from orsched.service_classes import ServiceClass
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance

METHODS = (
    ("echo", {"configuration": "bs"}),
    ("echo", {"configuration": "bs+e"}),
    ("echo", {"configuration": "bs+e+s", "buckets": 2}),
    ("echo", {"configuration": "echo", "estimator": "machine", "candidates": 2}),
    ("hygen", {}),
    ("conserve", {"safepoint_s": 0.001}),
    ("slack", {"idle_step_s": 0.001}),
    ("slack", {"order": "tree", "quantile": 0.5}),
)


def drawn(seed):
    """Return a random instance with one worker that does not pad, and classes with limits."""
    rng = random.Random(seed)
    while True:
        instance = random_batching_instance(rng)
        worker = instance.workers[0]
        if worker.padding:
            continue
        requests = instance.requests.replace(
            service_class=[rng.choice((0, 1)) for _ in range(len(instance))]
        )
        unit = 1 + worker.cost.prefill_ns([1]) + worker.cost.round_ns(1, 2, 2)
        limits = [rng.choice((None, unit, 10 * unit)) for _ in range(2)]
        classes = (
            ServiceClass("interactive", ttft_ns=limits[0], tpot_ns=limits[1], bulk=False),
            ServiceClass("batch"),
        )
        return instance.replace(requests=requests, workers=(worker,), classes=classes)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_the_checker_accepts(method, seed):
    instance = drawn(seed)
    name, parameters = method
    try:
        instance.require_feasible(True)
    except orsched.InfeasibleError:
        return
    policy, _ = resolve("methods", name).build(instance, "none", parameters, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
