"""Unit rounds: what is drawn, and that the model is that of the papers."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.costs.unit_rounds import ROUND_NS
from orsched.errors import InputError
from orsched.instances.catalog import generate
from orsched.instances.unit_rounds import unit_instance
from orsched.step import Step, decode_rounds, prefill_stage


class Starts(orsched.Policy):
    """Starts requests in given rounds."""

    name = "starts"

    def __init__(self, starts):
        self.starts = dict(enumerate(starts))

    def decide(self, view):
        due = [r for r, k in self.starts.items() if k * ROUND_NS <= view.now_ns]
        for request in due:
            del self.starts[request]
        if due:
            return prefill_stage(due)
        return decode_rounds(1) if view.running else None


def test_a_request_holds_s_plus_t_minus_k_tokens_and_ends_at_k_plus_o():
    """(2, 3) from 0 and (1, 2) from 1 hold 3, 4 + 2 and 5 + 3 tokens: 8 are needed, 7 too few."""
    schedule = orsched.simulate(unit_instance([2, 1], [3, 2], [0, 0], 8), Starts([0, 1])).schedule
    assert schedule.makespan_ns == 3 * ROUND_NS
    assert schedule.results["jct_ns"]["mean"] == 3 * ROUND_NS
    with pytest.raises(orsched.PolicyError, match="memory blocks"):
        orsched.simulate(unit_instance([2, 1], [3, 2], [0, 0], 7), Starts([0, 1]))


def test_a_round_takes_one_unit_whoever_takes_part():
    many = unit_instance([3] * 50, [1] * 50, [0] * 50, 200)
    assert orsched.simulate(many, Starts([0] * 50)).schedule.makespan_ns == ROUND_NS
    assert many.worker.cost.mixed_ns([3, 4], 7) == ROUND_NS
    assert isinstance(prefill_stage([0]), Step)


@pytest.mark.parametrize("online", [False, True])
def test_draws_are_those_of_the_paper(online):
    instances = [generate("unit-rounds", seed=seed, online=online) for seed in range(40)]
    for instance in instances:
        memory = instance.worker.memory.blocks
        req = instance.requests
        assert 30 <= memory <= 50
        assert req.prompt_tokens.min() >= 1
        assert req.prompt_tokens.max() <= 5
        assert (req.prompt_tokens + req.output_tokens).max() <= memory
        rounds = req.arrival_ns // ROUND_NS
        if online:
            assert rounds.min() >= 1
            assert rounds.max() <= 60
            assert (np.diff(rounds) >= 0).all()
        else:
            assert 40 <= len(instance) <= 60
            assert not rounds.any()
    assert {len(each) for each in instances} != {len(instances[0])}
    every = np.concatenate([each.requests.prompt_tokens for each in instances])
    assert set(every.tolist()) == {1, 2, 3, 4, 5}
    assert generate("unit-rounds", seed=7, online=online) == generate(
        "unit-rounds", seed=7, online=online
    )


def test_what_is_drawn_can_be_set():
    assert len(generate("unit-rounds", requests=7)) == 7
    assert generate("unit-rounds", memory_tokens=12).worker.memory.blocks == 12
    crowded = generate("unit-rounds", online=True, rate=5.0)
    assert len(crowded) > 120
    assert len(generate("unit-rounds", requests=0)) == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"online": 1}, "online"),
        ({"online": True, "requests": 5}, "requests"),
        ({"rate": 1.0}, "rate"),
        ({"online": True, "rate": -1}, "rate"),
        ({"memory_tokens": 5}, "memory_tokens"),
        ({"requests": -1}, "requests"),
    ],
)
def test_wrong_arguments_are_named(arguments, field):
    with pytest.raises(InputError) as caught:
        generate("unit-rounds", **arguments)
    assert caught.value.field == field


def test_a_request_that_does_not_fit_alone_is_named():
    with pytest.raises(InputError) as caught:
        unit_instance([2], [4], [0], 5)
    assert caught.value.field == "memory_tokens"
