"""All batching modes on any number of workers: the simulator against the naive one, and checks."""

from __future__ import annotations

import random
from collections import Counter
from itertools import groupby

import pytest

from orsched.checker import check
from orsched.common.errors import PolicyError
from orsched.metrics.summary import summarise
from orsched.simulator import simulate_policy
from tests.oracle import oracle
from tests.random_instances import random_batching_instance
from tests.simulator.batching_policies import BATCHING, wild
from tests.simulator.listening import columns, listening

every_policy = pytest.mark.parametrize("name", BATCHING)
few = range(40)
thousands = range(1000, 3000)


def drawn(name, seed, *sizes):
    return random_batching_instance(random.Random(f"{name} {seed}"), *sizes)


def in_order(heard):
    """The log with first tokens of one run of rounds by row: nothing says who of them is first."""
    result = []
    for kind, group in groupby(heard, key=lambda call: call[0]):
        calls = list(group)
        result += sorted(calls, key=lambda c: c[1]) if kind == "first token" else calls
    return result


def require_agreement(instance, make, where):
    fast, slow = listening(make()), listening(make())
    expected = oracle(instance, slow)
    schedule = simulate_policy(instance, fast).schedule
    for told, known in zip(in_order(fast.heard), in_order(slow.heard), strict=False):
        assert told == known, where
    assert len(fast.heard) == len(slow.heard), where
    assert columns(schedule.steps) == columns(expected.steps), where
    assert columns(schedule.work) == columns(expected.work), where
    assert schedule.information == expected.information
    assert schedule.instance_sha256 == expected.instance_sha256


@every_policy
def test_simulator_and_oracle_agree_on_batches(name):
    """INV-13: timeline, work, all that the policy was told, and its views at each decision."""
    for seed in few:
        require_agreement(drawn(name, seed), lambda s=seed: BATCHING[name](s), seed)


@pytest.mark.full
@every_policy
def test_simulator_and_oracle_agree_on_thousands_of_batches(name):
    """INV-13, on small instances and on some larger ones."""
    for seed in thousands:
        require_agreement(drawn(name, seed), lambda s=seed: BATCHING[name](s), seed)
    for seed in few:
        require_agreement(drawn(name, -seed, 30, 25), lambda s=seed: BATCHING[name](s), -seed)


def outcome(run, policy):
    """What became of a run: a schedule, or a refusal; and all decisions until then."""
    try:
        schedule = run(policy)
    except PolicyError:
        schedule = None
    decisions = [call for call in policy.heard if call[0] == "decide"]
    return schedule, decisions


def require_same_refusal(seed):
    """Simulator and oracle take the same steps of a policy that asks for anything."""
    instance = drawn("wild", seed)
    expected, known = outcome(lambda p: oracle(instance, p), listening(wild(seed)))
    found, told = outcome(lambda p: simulate_policy(instance, p).schedule, listening(wild(seed)))
    assert told == known, seed
    assert (found is None) == (expected is None), seed
    if found is not None:
        assert columns(found.steps) == columns(expected.steps), seed
        assert columns(found.work) == columns(expected.work), seed
    return found is None


def test_simulator_and_oracle_refuse_the_same_steps():
    """INV-1, INV-3, INV-6, INV-7: each refuses the first impossible step, and no possible one."""
    refused = [require_same_refusal(seed) for seed in range(300)]
    assert 30 < sum(refused) < 270


@pytest.mark.full
def test_simulator_and_oracle_refuse_the_same_of_thousands_of_steps():
    for seed in range(1000, 9000):
        require_same_refusal(seed)


@every_policy
def test_the_checker_accepts_every_batching_policy(name):
    """INV-1 to INV-7: what the simulator makes is valid, and the metrics are right."""
    for seed in few:
        instance = drawn(name, seed)
        schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        assert check(instance, schedule.replace(results=summarise(instance, schedule))) == [], seed


@pytest.mark.full
@every_policy
def test_the_checker_accepts_thousands_of_batches(name):
    for seed in thousands:
        instance = drawn(name, seed)
        schedule = simulate_policy(instance, BATCHING[name](seed)).schedule
        assert check(instance, schedule.replace(results=summarise(instance, schedule))) == [], seed


def test_the_random_policies_do_everything():
    """The tests above would prove little if the policies did not use what they are for."""
    seen = Counter()

    def observe(view, step):
        ready = sum(view.to_prefill(r) == 0 for r in view.running if r not in step.preempt)
        seen["held"] += step.hold
        seen["evicted"] += len(step.preempt)
        seen["evicted and prefilled at once"] += bool(set(step.preempt) & set(step.prefill))
        seen["partial"] += 0 < len(step.decode or ()) < ready
        seen["chosen clients"] += step.clients is not None

    for name, make in BATCHING.items():
        for seed in few:
            instance = drawn(name, seed)
            schedule = simulate_policy(instance, make(seed), observer=observe).schedule
            work, steps = schedule.work, schedule.steps
            seen["mixed"] += int((steps.phase == 2).sum())
            seen["invalid"] += int((work.phase == 2).sum())
            seen["later stays"] += int((work.stay > 0).sum())
            places = set(zip(work.request.tolist(), steps.worker[work.first_step], strict=True))
            seen["moved"] += len(places) - len(set(work.request.tolist()))
            for worker in instance.workers:
                seen[worker.cost.model] += 1
                seen["padding"] += worker.padding
                seen["none" if worker.memory is None else worker.memory.allocation] += 1
            seen[f"{len(instance.workers)} workers"] += 1
    assert min(seen.values()) >= 20, seen
    assert len(seen) == 22, seen
