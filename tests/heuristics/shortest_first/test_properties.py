"""What holds for shortest job first in every mode, on random instances."""

from __future__ import annotations

import random

import numpy as np
import pytest

import orsched
from orsched.common import registry
from orsched.heuristics.continuous import engine_steps
from orsched.instances import predict
from orsched.simulator import simulate_policy
from orsched.simulator.policy import Information
from tests.in_order import in_order
from tests.random_instances import random_batching_instance

CLASSES = {"ssjf": "predicted", "sjf": "clairvoyant", "fcfs_batched": "none"}
MODES = {
    "none": {"batching": "none"},
    "dynamic": {"batching": "dynamic", "max_batch_size": 3, "batch_wait_timeout_s": 2e-8},
    "continuous": {"batching": "continuous"},
    "continuous, 2": {"batching": "continuous", "max_batch_size": 2},
}
MORE = {
    "plain": {},
    "aging": {"aging_s": 1e-8},
    "latency": {"predictor_latency_s": 3e-8},
    "both": {"aging_s": 1e-9, "predictor_latency_s": 1e-8},
}


def instance_of(rng, mode, alone=False):
    """A random instance of one or of several workers that the mode serves."""
    while True:
        instance = random_batching_instance(rng)
        if alone and len(instance.workers) > 1:
            continue
        workers = [
            orsched.Worker(w.clients, w.cost, w.prefill_cap_tokens, w.memory, w.name,
                           padding=w.padding and not mode.startswith("continuous"))
            for w in instance.workers
        ]  # fmt: skip
        return instance.replace(workers=tuple(workers))


def run(instance, name, params):
    policy, _ = registry.resolve("methods", name).build(
        instance, Information(CLASSES[name]), params, 0
    )
    schedule = simulate_policy(instance, policy).schedule
    assert orsched.check(instance, schedule) == []
    return schedule


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("mode", MODES)
def test_every_schedule_is_right_and_comes_again(mode, more):
    """On any number of workers, under a dispatcher and with stealing."""
    rng = random.Random(f"{mode} {more}")
    for _ in range(25):
        instance = instance_of(rng, mode)
        dispatch = {"dispatch": rng.choice(("round_robin", "least_work")), "steal": True}
        shared = dispatch if len(instance.workers) > 1 else {}
        for name in ("ssjf", "sjf"):
            params = MODES[mode] | MORE[more] | shared
            schedule, again = (run(instance, name, params) for _ in range(2))
            assert (again.steps, again.work) == (schedule.steps, schedule.work)


@pytest.mark.parametrize("mode", MODES)
def test_who_runs_stays_unless_paged_memory_runs_out(mode):
    rng, seen = random.Random(mode), 0
    while seen < 40:
        instance = instance_of(rng, mode)
        if any(w.memory is not None and w.memory.is_paged for w in instance.workers):
            continue
        seen += 1
        schedule = run(instance, "sjf", MODES[mode])
        assert not schedule.work.stay.any()


@pytest.mark.parametrize("mode", MODES)
def test_equal_predictions_are_first_come_first_served(mode):
    rng = random.Random(mode)
    for _ in range(40):
        instance = instance_of(rng, mode, alone=True)
        same = np.full(len(instance), 7, np.int64)
        alike = instance.replace(requests=instance.requests.replace(predicted_tokens=same))
        ours, other = (run(alike, name, MODES[mode]) for name in ("ssjf", "fcfs_batched"))
        assert (ours.steps, ours.work) == (other.steps, other.work)


@pytest.mark.parametrize("mode", MODES)
def test_perfect_predictions_are_the_oracle(mode):
    rng = random.Random(mode)
    for _ in range(40):
        instance = predict(instance_of(rng, mode, alone=True), "oracle")
        if any(w.memory is not None for w in instance.workers):
            continue  # with true lengths the oracle also knows what memory will be needed
        ours, other = (run(instance, name, MODES[mode]) for name in ("ssjf", "sjf"))
        assert (ours.steps, ours.work) == (other.steps, other.work)


@pytest.mark.parametrize("mode", MODES)
def test_the_true_lengths_of_unfinished_requests_do_not_matter(mode):
    """Until the first finish, two instances that differ in true lengths alone run alike."""
    rng = random.Random(mode)
    for _ in range(40):
        instance = instance_of(rng, mode, alone=True)
        req = instance.requests
        longer = np.minimum(instance.output_limit_tokens, req.output_tokens + rng.randint(1, 5))
        other = instance.replace(requests=req.replace(output_tokens=longer))
        mine, theirs = (list(engine_steps(run(each, "ssjf", MODES[mode])))
                        for each in (instance, other))  # fmt: skip
        seen = {}
        for step, twin in zip(mine, theirs, strict=False):
            assert step.tokens == twin.tokens
            for request, tokens in step.tokens.items():
                seen[request] = seen.get(request, 0) + tokens
            least = req.prompt_tokens + req.output_tokens - (instance.first_token == "prefill")
            if any(tokens >= least[request] for request, tokens in seen.items()):
                break


@pytest.mark.parametrize("name", ["ssjf", "sjf"])
@pytest.mark.parametrize("batching", ["none", "continuous"])
def test_with_aging_nobody_starves(batching, name):
    """Of those that arrive after a request, only early ones start before it: L - 1 agings at most.

    So what it waits for is what had arrived by then, whatever comes later: the load here is far
    above what the worker can serve, all the time.
    """
    rng = np.random.default_rng(5)
    aging_ns, n = 40, 400
    outputs = rng.integers(1, 60, n)
    predicted = rng.integers(1, 60, n)
    arrivals = np.sort(rng.integers(0, 20_000, n))
    requests = orsched.Requests([1] * n, outputs, arrival_ns=arrivals, predicted_tokens=predicted)
    worker = orsched.Worker(2, in_order(orsched.AffineCost, 10, 1, 10, 1))
    instance = orsched.Instance(requests, worker, first_token="decode")
    known = {"ssjf": predicted, "sjf": outputs}[name]
    overtaken = {}
    for aging in (None, aging_ns / 1e9):
        schedule = run(instance, name, {"batching": batching, "aging_s": aging})
        starts = schedule.request_times(instance)["prefill_start_ns"]
        overtaken[aging] = 0
        for row in range(n):
            later = (arrivals > arrivals[row]) & (starts < starts[row])
            late = arrivals >= arrivals[row] + (known[row] - 1) * aging_ns
            overtaken[aging] += int((later & late).sum())
    assert overtaken[aging_ns / 1e9] == 0
    assert overtaken[None] > 1_000


def test_the_limit_of_a_batch_holds_and_is_used():
    rng = random.Random(3)
    for _ in range(40):
        instance = instance_of(rng, "continuous", alone=True)
        steps = list(engine_steps(run(instance, "sjf", MODES["continuous, 2"])))
        most = max(len(step.tokens) for step in steps)
        assert most <= 2
    requests = orsched.Requests([1] * 6, [4] * 6)
    instance = orsched.Instance(requests, orsched.Worker(6), first_token="decode")
    steps = engine_steps(run(instance, "sjf", MODES["continuous, 2"]))
    assert {len(step.tokens) for step in steps} == {2}


def test_nobody_starts_before_the_prediction():
    rng, latency = random.Random(9), 30
    for _ in range(60):
        mode = rng.choice(list(MODES))
        instance = instance_of(rng, mode)
        params = MODES[mode] | {"predictor_latency_s": latency / 1e9}
        starts = run(instance, "ssjf", params).request_times(instance)["prefill_start_ns"]
        assert (starts >= instance.requests.arrival_ns + latency).all()


def test_no_batching_takes_as_long_in_any_order():
    """A work-conserving server of one request: order moves the waits, not the makespan."""
    rng = random.Random(1)
    for _ in range(40):
        instance = instance_of(rng, "none", alone=True)
        ends = {run(instance, name, MODES["none"]).makespan_ns for name in CLASSES}
        assert len(ends) == 1
