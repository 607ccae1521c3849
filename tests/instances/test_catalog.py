"""Shipped instances by name, and the small ones' optima by brute force."""

from __future__ import annotations

import sys
from functools import cache
from itertools import combinations

import pytest

from orsched.common.errors import InputError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import GENERATORS, KNOWN_OPTIMA, SMALL, generate, load_named, names
from orsched.simulator import simulate_policy


def exhaustive_makespan_ns(instance):
    """Least makespan over all schedules of stages and rounds, by plain enumeration.

    Shares nothing with the simulator: a state is (time, waiting rows, remaining rounds of the
    running rows); a move is a prefill stage, one round, or idling until the next arrival.
    """
    worker, req = instance.worker, instance.requests
    prompts, arrivals = req.prompt_tokens.tolist(), req.arrival_ns.tolist()
    outputs, needed = req.output_tokens.tolist(), instance.rounds_needed.tolist()
    blocks = [0] * len(req)
    if worker.memory is not None:
        blocks = [worker.memory.blocks_held(p, d) for p, d in zip(prompts, outputs, strict=True)]

    def fits(rows):
        cap = worker.prefill_limit
        if cap is not None and sum(prompts[r] for r in rows) > cap:
            return False
        return len(rows) <= worker.clients

    @cache
    def best(now, waiting, running):
        if not waiting and not running:
            return now
        options = []
        if running:
            contexts = [prompts[r] + needed[r] - left + 1 for r, left in running]
            end = now + worker.cost.round_ns(len(running), sum(contexts), max(contexts))
            options.append(best(end, waiting, tuple((r, n - 1) for r, n in running if n > 1)))
        here = [r for r in waiting if arrivals[r] <= now]
        held = sum(blocks[r] for r, _ in running)
        for size in range(1, len(here) + 1):
            for rows in combinations(here, size):
                total = held + sum(blocks[r] for r in rows)
                if worker.memory is not None and total > worker.memory.blocks:
                    continue
                if not fits(rows) or len(rows) + len(running) > worker.clients:
                    continue
                end = now + worker.cost.prefill_ns([prompts[r] for r in rows])
                left = tuple(r for r in waiting if r not in rows)
                new = tuple((r, needed[r]) for r in rows if needed[r])
                options.append(best(end, left, tuple(sorted(running + new))))
        later = [arrivals[r] for r in waiting if arrivals[r] > now]
        if later:
            options.append(best(min(later), waiting, running))
        return min(options, default=sys.maxsize)

    return best(0, tuple(range(len(req))), ())


@pytest.mark.parametrize("name", SMALL)
def test_known_optimum_is_the_exhaustive_one(name):
    assert exhaustive_makespan_ns(load_named(name)) == KNOWN_OPTIMA[name].makespan_ns


@pytest.mark.parametrize("name", SMALL)
def test_no_schedule_of_the_simulator_is_below_the_optimum(name):
    schedule = simulate_policy(load_named(name), FirstComeFirstServed()).schedule
    assert schedule.makespan_ns >= KNOWN_OPTIMA[name].makespan_ns


def test_every_small_instance_has_its_optimum_and_reason():
    assert set(KNOWN_OPTIMA) == set(SMALL)
    for name, optimum in KNOWN_OPTIMA.items():
        assert load_named(name).name == name
        assert load_named(name).description == optimum.why
        assert len(optimum.why) > 40


def test_first_come_first_served_is_not_optimal_where_there_is_something_to_decide():
    missed = set()
    for name in SMALL:
        schedule = simulate_policy(load_named(name), FirstComeFirstServed()).schedule
        if schedule.makespan_ns > KNOWN_OPTIMA[name].makespan_ns:
            missed.add(name)
    assert {"two-by-two", "gate", "with-arrivals"} <= missed
    assert not missed & {"one-request", "two-on-one-client", "all-fit", "memory-bound"}


@pytest.mark.parametrize("name", names())
def test_every_named_instance_loads_feasible_and_explains_itself(name):
    instance = load_named(name)
    instance.require_feasible()
    assert instance.name == name
    assert instance.description
    assert instance.source
    assert instance.licence
    assert instance.requests.predicted_tokens is not None


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="did you mean pang-100x20") as caught:
        load_named("pang-100x200")
    assert "gsm8k-llama65b" in str(caught.value)
    with pytest.raises(InputError, match="generator"):
        generate("nothing")


def test_generators_take_the_arguments_of_their_functions():
    assert len(generate("gsm8k", seed=3, requests=10)) == 10
    assert generate("pang-case", seed=1).name == "pang-case-1"
    assert len(generate("peers", requests=5)) == 5
    assert len(generate("uniform", requests=5, clients=2)) == 5
    assert set(GENERATORS) == {"gsm8k", "pang-case", "peers", "sources", "uniform"}
    with pytest.raises(InputError, match="generator gsm8k has no argument 'sedd'") as caught:
        generate("gsm8k", sedd=3)
    assert str(caught.value.remedy).startswith("did you mean seed? known arguments: seed, ")
    with pytest.raises(InputError, match="clients"):
        generate("uniform")
