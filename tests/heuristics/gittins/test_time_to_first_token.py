"""The mode of the Gittins policy that respects a limit on TTFT: what it promises."""

from __future__ import annotations

import numpy as np
import pytest

import orsched
from orsched.costs import AffineCost
from orsched.heuristics.gittins.params import OVERTAKEN
from orsched.instances import predict
from orsched.simulator import simulate_policy
from tests.heuristics.gittins.drawn import KNOWN, policy_for
from tests.heuristics.gittins.test_by_hand import run, workers_of
from tests.in_order import in_order

every_information = pytest.mark.parametrize("known", KNOWN)
NS = 1e-9


def backlog(seed, workers=1, clients=6):
    """Requests of all sizes that come faster than they are served."""
    draws = np.random.default_rng(seed)
    prompts, outputs = draws.integers(1, 400, 80), draws.integers(1, 40, 80)
    arrivals = np.sort(draws.integers(0, 9_000, 80))
    requests = orsched.Requests(prompts, outputs, arrival_ns=arrivals)
    worker = orsched.Worker(clients, in_order(AffineCost, 10, 1, 10, 1))
    instance = orsched.Instance(requests, (worker,) * workers, "prefill")
    return predict(instance, "noise:sigma=0.5", seed)


def starts(instance, known, **params):
    schedule = simulate_policy(instance, policy_for(instance, known, **params)).schedule
    assert orsched.check(instance, schedule) == []
    return schedule.request_times(instance)["prefill_start_ns"]


def overtaken_by(instance, started):
    """The most by which a request came before one that started earlier, in nanoseconds."""
    arrival = instance.requests.arrival_ns
    order = np.argsort(started, kind="stable")
    earlier = [arrival[started < started[row]].max(initial=0) - arrival[row] for row in order]
    return max(earlier)


@every_information
def test_none_is_overtaken_by_one_that_comes_later_than_the_limit_says(known):
    """With the gate open on one worker only the index overtakes."""
    broken = 0
    for seed in range(12):
        instance = backlog(seed)
        kept = starts(instance, known, gate=1e9, ttft_s=500 * NS)
        assert overtaken_by(instance, kept) <= OVERTAKEN * 500, seed
        broken += overtaken_by(instance, starts(instance, known, gate=1e9)) > OVERTAKEN * 500
    assert broken > 6


@every_information
def test_with_a_limit_of_0_it_is_first_come_first_served(known):
    for seed in range(12):
        for workers in (1, 3):
            instance = backlog(seed, workers)
            assert overtaken_by(instance, starts(instance, known, ttft_s=0.0)) <= 0, seed


def test_who_has_waited_so_long_passes_the_gate():
    """Three decode twenty tokens each; the gate alone would let them end first."""
    prompts, outputs, arrivals = [1, 1, 1, 1000], [20, 20, 20, 1], [0, 0, 0, 100]
    closed = {"gate": 1e-6, "gate_aging": 0.0}
    schedule, _ = run(prompts, outputs, "clairvoyant", arrivals=arrivals, **closed)
    waited = first_start(schedule, 3) - 100
    schedule, _ = run(prompts, outputs, "clairvoyant", arrivals=arrivals, ttft_s=50 * NS, **closed)
    # The worker looks again after four rounds of 13 ns.
    assert 50 <= first_start(schedule, 3) - 100 <= 50 + 4 * 13 < waited


def first_start(schedule, request):
    work = schedule.work
    return int(schedule.steps.start_ns[work.first_step[work.request == request]].min())


def test_who_has_waited_so_long_takes_the_first_worker_that_is_free():
    """Two decode on one worker, one on the other: placing alone waits for that one."""
    prompts, outputs, arrivals = [1, 1, 1, 400], [60, 60, 60, 2], [0, 0, 0, 300]
    far, _ = run(prompts, outputs, "clairvoyant", 4, 2, arrivals)
    chosen = workers_of(far)
    few = [sum(chosen[r] == worker for r in range(3)) for worker in (0, 1)].index(1)
    assert chosen[3] == few
    schedule, _ = run(prompts, outputs, "clairvoyant", 4, 2, arrivals, ttft_s=0.0)
    assert first_start(schedule, 3) <= first_start(far, 3)


@every_information
def test_without_a_limit_nothing_changes_and_a_long_one_changes_nothing(known):
    for seed in range(6):
        instance = backlog(seed, workers=2)
        never = starts(instance, known, ttft_s=1e6)
        assert never.tolist() == starts(instance, known).tolist()
