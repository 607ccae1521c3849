"""Any instance: the checker accepts the schedules, and interactive requests come first."""

import random

import pytest

from orsched import InfeasibleError, ServiceClass
from tests.heuristics.building import built, require_sound, solved
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


every_method = pytest.mark.parametrize(("name", "params"), METHODS, ids=str)


def with_limits(instance, rng, *limits):
    ttft, tpot = (rng.choice((None, *limits)) for _ in range(2))
    interactive = ServiceClass("interactive", ttft_ns=ttft, tpot_ns=tpot, bulk=False)
    return instance.replace(classes=(interactive, ServiceClass("batch")))


def drawn(seed):
    """Return a random instance with one worker that does not pad, and classes with limits."""
    rng = random.Random(seed)
    while True:
        instance = random_batching_instance(rng)
        worker = instance.workers[0]
        if worker.padding:
            continue
        classes = [rng.choice((0, 1)) for _ in range(len(instance))]
        requests = instance.requests.replace(service_class=classes)
        unit = 1 + worker.cost.prefill_ns([1]) + worker.cost.round_ns(1, 2, 2)
        instance = instance.replace(requests=requests, workers=(worker,))
        return with_limits(instance, rng, unit, 10 * unit)


def cached(seed, eviction="lru"):
    """Return a random instance with few blocks and shared prefixes, and classes with limits."""
    return with_limits(prefix_instance(seed, eviction=eviction), random.Random(seed), 2_000, 20_000)


@every_method
@pytest.mark.parametrize("seed", range(60))
def test_the_checker_accepts(name, params, seed):
    instance = drawn(seed)
    try:
        instance.require_feasible(True)
    except InfeasibleError:
        return
    solved(instance, name, **params)


@every_method
@pytest.mark.parametrize("seed", range(60))
def test_the_checker_accepts_what_is_done_with_a_prefix_cache(name, params, seed):
    instance = cached(seed, ("lru", "task_aware")[seed % 2])
    tokens = random.Random(seed).choice((3, 17, 2048))
    solved(instance, name, **params, max_num_batched_tokens=tokens)


@every_method
@pytest.mark.parametrize("seed", range(40))
def test_no_bulk_request_starts_while_an_interactive_one_waits(name, params, seed):
    instance = cached(seed)
    bulk, arrivals = instance.bulk, instance.requests.arrival_ns.tolist()
    begun = set()

    def look(view, step):
        there = {row for row in range(len(instance)) if arrivals[row] <= view.now_ns}
        waiting = {row for row in there - begun if not bulk[row]}
        new = {row for row in step.prefill if row not in view.running}
        assert waiting <= new or not any(bulk[row] for row in new)
        begun.update(new)
        begun.difference_update(step.preempt)

    solved(instance, name, observer=look, **params)


@every_method
def test_the_same_instance_gives_the_same_schedule(name, params):
    require_sound(cached(7), lambda case: built(case, name, **params))


@every_method
@pytest.mark.parametrize("seed", range(6))
def test_a_dispatcher_serves_several_workers(name, params, seed):
    instance = prefix_instance(seed, workers=3)
    schedule = solved(instance, name, **params, dispatch="prefix", steal=True)
    if params.get("configuration") == "echo":
        assert schedule.eviction == {"rule": "task_aware"}
