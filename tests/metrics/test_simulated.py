"""Reported numbers of simulated schedules of all batching modes, on any number of workers."""

from __future__ import annotations

import random

import pytest

from orsched.simulator import simulate_policy
from orsched.timeline import request_times
from tests.metrics.naive import Naive, require_reported
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING


def simulated(name, seeds):
    """Schedules of random policies of some kind for random instances.

    Not those in which a request changes workers between steps that take no time: the naive
    computation goes through the steps in their order, in which such steps stand by worker.
    """
    for seed in seeds:
        instance = random_batching_instance(random.Random(f"{name} {seed}"))
        schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        stays = Naive(instance, schedule).stays
        if all(
            stays[request, stay - 1][3] < first
            for (request, stay), (_, _, first, _) in stays.items()
            if stay
        ):
            yield instance, schedule


@pytest.mark.parametrize("name", BATCHING)
def test_simulated_schedules_report_what_is_defined_and_the_checker_agrees(name):
    cases = list(simulated(name, range(12)))
    assert len(cases) >= 9
    for instance, schedule in cases:
        require_reported(instance, schedule)
        times = request_times(instance, schedule)
        first, prefilled = Naive(instance, schedule).first_tokens()
        requests = range(len(instance))
        assert times["first_token_ns"].tolist() == [first[r] for r in requests]
        assert times["prefill_end_ns"].tolist() == [prefilled[r] for r in requests]


@pytest.mark.full
@pytest.mark.parametrize("name", BATCHING)
def test_many_more_simulated_schedules(name):
    cases = list(simulated(name, range(1000, 2000)))
    assert len(cases) >= 900
    for instance, schedule in cases:
        require_reported(instance, schedule)
