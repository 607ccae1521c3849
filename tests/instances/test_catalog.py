"""Shipped instances by name, and the small ones' optima by brute force."""

import pytest

from orsched.common.errors import InputError
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.instances.catalog import GENERATORS, KNOWN_OPTIMA, SMALL, generate, load_named, names
from orsched.simulator import simulate_policy
from tests.brute_force import optimum_ns
from tests.refusals import refusal


@pytest.mark.parametrize("name", SMALL)
def test_every_small_instance_has_its_optimum_and_reason(name):
    instance, known = load_named(name), KNOWN_OPTIMA[name]
    assert optimum_ns(instance) == known.makespan_ns
    assert (instance.name, instance.description) == (name, known.why)
    assert len(known.why) > 40


def test_first_come_first_served_is_not_optimal_where_there_is_something_to_decide():
    assert set(KNOWN_OPTIMA) == set(SMALL)
    missed = set()
    for name in SMALL:
        schedule = simulate_policy(load_named(name), FirstComeFirstServed()).schedule
        assert schedule.makespan_ns >= KNOWN_OPTIMA[name].makespan_ns
        if schedule.makespan_ns > KNOWN_OPTIMA[name].makespan_ns:
            missed.add(name)
    assert {"two-by-two", "gate", "with-arrivals"} <= missed
    assert not missed & {"one-request", "two-on-one-client", "all-fit", "memory-bound"}


@pytest.mark.parametrize("name", names())
def test_every_named_instance_loads_feasible_and_explains_itself(name):
    instance = load_named(name)
    instance.require_feasible()
    assert instance.name == name
    assert all((instance.description, instance.source, instance.licence))
    assert instance.requests.predicted_tokens is not None


def test_unknown_names_and_arguments_list_the_known_ones():
    with pytest.raises(InputError, match="did you mean pang-100x20") as caught:
        load_named("pang-100x200")
    assert "gsm8k-llama65b" in str(caught.value)
    assert "generator" in str(refusal(generate, "nothing"))
    assert len(generate("gsm8k", seed=3, requests=10)) == 10
    assert generate("pang-case", seed=1).name == "pang-case-1"
    assert len(generate("peers", requests=5)) == 5
    assert len(generate("uniform", requests=5, clients=2)) == 5
    assert set(GENERATORS) == {
        *("chats", "gsm8k", "pang-case", "peers", "rollouts", "sources", "tool-rollouts"),
        "uniform",
    }
    with pytest.raises(InputError, match="generator gsm8k has no argument 'sedd'") as caught:
        generate("gsm8k", sedd=3)
    assert str(caught.value.remedy).startswith("did you mean seed? known arguments: seed, ")
    assert "clients" in str(refusal(generate, "uniform"))
