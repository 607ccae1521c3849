"""What holds for the Gittins policy on random workers, memories, arrivals and parameters."""

from __future__ import annotations

import random

import numpy as np
import pytest

import orsched
from orsched.simulator import simulate_policy
from tests.heuristics.gittins.drawn import KNOWN, drawn, policy_for
from tests.oracle import oracle
from tests.simulator.listening import columns

every_information = pytest.mark.parametrize("known", KNOWN)


def run(instance, known, seed):
    return simulate_policy(instance, policy_for(instance, known, seed)).schedule


def require_valid(known, seed):
    instance = drawn(seed)
    schedule = run(instance, known, seed)
    assert orsched.check(instance, schedule) == [], seed
    again = run(instance, known, seed)
    assert (again.steps, again.work) == (schedule.steps, schedule.work), seed
    expected = oracle(instance, policy_for(instance, known, seed))
    assert columns(schedule.steps) == columns(expected.steps), seed
    assert columns(schedule.work) == columns(expected.work), seed


@every_information
def test_schedules_are_valid_come_again_and_agree_with_the_naive_simulator(known):
    for seed in range(60):
        require_valid(known, seed)


@pytest.mark.full
@every_information
def test_thousands_of_schedules_are_valid(known):
    for seed in range(1000, 3000):
        require_valid(known, seed)


@pytest.mark.parametrize("known", ["none", "predicted"])
def test_what_unfinished_requests_will_yield_plays_no_part(known):
    """Up to the first finish the steps are the same, whatever the lengths beyond it."""
    for seed in range(40):
        instance = drawn(seed)
        rng = random.Random(seed)
        finish = run(instance, known, seed).request_times(instance)["finish_ns"]
        first = int(finish.min())
        outputs = instance.requests.output_tokens.copy()
        for row in np.flatnonzero(finish > first):
            outputs[row] = rng.randint(int(outputs[row]), instance.output_limit_tokens)
        changed = instance.replace(requests=instance.requests.replace(output_tokens=outputs))
        begun = [_before(run(each, known, seed), first) for each in (instance, changed)]
        assert begun[0] == begun[1], seed


def _before(schedule, moment):
    """Steps that begin before a moment, by start and kind; a run of rounds may end elsewhere."""
    steps = schedule.steps
    rows = zip(steps.start_ns.tolist(), steps.worker.tolist(), steps.phase.tolist(), strict=True)
    return [row for row in rows if row[0] < moment]


@every_information
def test_it_is_a_registered_method(known):
    instance = drawn(7)
    result = orsched.solve(instance, method="gittins", information=known, parameters={"aging": 2.0})
    assert result.schedule.information == known
    assert orsched.check(instance, result.schedule) == []
