"""Any instance: the checker accepts the schedules, and interactive requests come first."""

from __future__ import annotations

import random

import pytest

import orsched
from orsched.common.registry import resolve
from orsched.data.service_classes import ServiceClass
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance
from tests.simulator.prefix_workloads import prefix_instance

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


def cached(seed, eviction="lru"):
    """Return a random instance with few blocks and shared prefixes, and classes with limits."""
    instance = prefix_instance(seed, eviction=eviction)
    rng = random.Random(seed)
    limits = [rng.choice((None, 2_000, 20_000)) for _ in range(2)]
    classes = (
        ServiceClass("interactive", ttft_ns=limits[0], tpot_ns=limits[1], bulk=False),
        ServiceClass("batch"),
    )
    return instance.replace(classes=classes)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_the_checker_accepts_what_is_done_with_a_prefix_cache(method, seed):
    instance = cached(seed, ("lru", "task_aware")[seed % 2])
    name, parameters = method
    tokens = random.Random(seed).choice((3, 17, 2048))
    parameters = {**parameters, "max_num_batched_tokens": tokens}
    policy, _ = resolve("methods", name).build(instance, "none", parameters, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("seed", range(40))
def test_no_bulk_request_starts_while_an_interactive_one_waits(method, seed):
    instance = cached(seed)
    name, parameters = method
    policy, _ = resolve("methods", name).build(instance, "none", parameters, 0)
    bulk, arrivals = instance.bulk, instance.requests.arrival_ns.tolist()
    begun = set()

    def look(view, step):
        waiting = [
            row
            for row in range(len(instance))
            if arrivals[row] <= view.now_ns and not bulk[row] and row not in begun
        ]
        new = [row for row in step.prefill if row not in view.running]
        if any(bulk[row] for row in new):
            assert set(waiting) <= set(new)
        begun.update(new)
        for row in step.preempt:
            begun.discard(row)

    simulate_policy(instance, policy, look)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_same_instance_gives_the_same_schedule(method):
    instance = cached(7)
    name, parameters = method
    first, second = (
        simulate_policy(
            instance, resolve("methods", name).build(instance, "none", parameters, 0)[0]
        )
        for _ in range(2)
    )
    assert first.schedule == second.schedule


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_a_dispatcher_serves_several_workers(method, seed):
    instance = prefix_instance(seed, workers=3)
    name, parameters = method
    parameters = {**parameters, "dispatch": "prefix", "steal": True}
    policy, _ = resolve("methods", name).build(instance, "none", parameters, 0)
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    if parameters.get("configuration") == "echo":
        assert schedule.eviction == {"rule": "task_aware"}
