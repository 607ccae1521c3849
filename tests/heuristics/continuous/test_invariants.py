"""What holds for every batching mode, on random instances with any number of workers."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest

import orsched
from orsched import Information, InputError, PolicyError
from orsched.common import registry
from orsched.data.schedule import INVALID
from orsched.heuristics.continuous import ContinuousParams, engine_steps
from orsched.simulator import simulate_policy
from tests.random_instances import random_batching_instance

CONTINUOUS = {
    "mixed": {},
    "small budget": {"max_num_batched_tokens": 7},
    "threshold": {"long_prefill_token_threshold": 3, "reserve_full_prompt": False},
    "whole prompts": {"chunked_prefill": False},
    "decode_first": {"mode": "decode_first", "max_num_batched_tokens": 5},
    "prefill_first": {"mode": "prefill_first"},
    "watermark": {"watermark_blocks": 1},
    "priority": {"policy": "priority", "priority": "length", "max_num_batched_tokens": 9},
    "aging": {"policy": "priority", "priority": "service_class", "aging_s": 1e-8},
}
MODES = {f"vllm, {name}": ("vllm", values) for name, values in CONTINUOUS.items()} | {
    "static": ("static", {"batch_size": 3}),
    "static, by length": ("static", {"policy": "priority", "priority": "length"}),
    "dynamic": ("dynamic", {"max_batch_size": 4, "batch_wait_timeout_s": 2e-8}),
    "dynamic, aging": ("dynamic", {"policy": "priority", "priority": "length", "aging_s": 1e-9}),
    "one_at_a_time": ("one_at_a_time", {}),
}


def instance_of(rng, name):
    """A random instance that the mode serves: each worker holds every request alone."""
    instance = random_batching_instance(rng)
    workers = [
        orsched.Worker(w.clients, w.cost, w.prefill_cap_tokens, w.memory, w.name,
                       padding=w.padding and name != "vllm")
        for w in instance.workers
    ]  # fmt: skip
    return instance.replace(workers=tuple(workers))


def run(instance, name, params, information="clairvoyant", observer=None):
    method = registry.resolve("methods", name)
    policy, _ = method.build(instance, Information(information), params, 0)
    return simulate_policy(instance, policy, observer).schedule


def whole_prompts_fit(instance, params):
    """Without chunks, what was yielded before a preemption is prefilled with the prompt at once."""
    if params.get("chunked_prefill", True) and params.get("mode") != "prefill_first":
        return True
    longest = int(instance.requests.prompt_tokens.max()) + instance.output_limit_tokens
    return all(w.prefill_limit is None or w.prefill_limit >= longest for w in instance.workers)


@pytest.mark.parametrize("mode", MODES)
def test_every_schedule_is_right(mode):
    """Conservation of requests, tokens and blocks, clock, memory: the checker knows them all."""
    name, params = MODES[mode]
    rng, seen = random.Random(mode), 0
    while seen < 40:
        instance = instance_of(rng, name)
        if not whole_prompts_fit(instance, params):
            continue
        seen += 1
        dispatch = {"dispatch": rng.choice(("round_robin", "least_work")), "steal": True}
        more = dispatch if len(instance.workers) > 1 else {}
        schedule = run(instance, name, params | more)
        assert orsched.check(instance, schedule) == []
        again = run(instance, name, params | more)
        assert (again.steps, again.work) == (schedule.steps, schedule.work)


@pytest.mark.parametrize("mode", MODES)
def test_true_lengths_of_unfinished_requests_do_not_matter_to_the_blind(mode):
    """Until the first finish, two instances that differ in output lengths run alike."""
    name, params = MODES[mode]
    if params.get("priority") == "length":
        params = params | {"priority": "arrival"}
    rng, seen = random.Random(mode), 0
    while seen < 30:
        instance = instance_of(rng, name)
        if len(instance.workers) > 1 or not whole_prompts_fit(instance, params):
            continue
        seen += 1
        limit = instance.output_limit_tokens
        longer = np.minimum(limit, instance.requests.output_tokens + rng.randint(1, 5))
        req = instance.requests
        other = instance.replace(
            requests=orsched.Requests(req.prompt_tokens, longer, arrival_ns=req.arrival_ns,
                                      service_class=req.service_class)
        )  # fmt: skip
        border = _first_finish_ns(run(instance, name, params, "none"))
        ours, theirs = (
            [step for step in engine_steps(run(each, name, params, "none"))
             if step.start_ns < border]
            for each in (instance, other)
        )  # fmt: skip
        shorter = min(len(ours), len(theirs))
        runs = [[s.tokens for s in steps[:shorter]] for steps in (ours, theirs)]
        assert runs[0] == runs[1]


def _first_finish_ns(schedule):
    """When the first request yields its last token."""
    work, last = schedule.work, {}
    rows = zip(work.request.tolist(), work.phase.tolist(), work.last_step.tolist(), strict=True)
    for request, phase, step in rows:
        if phase != INVALID:
            last[request] = step
    return int(schedule.steps.end_ns[min(last.values())])


def test_a_worker_with_waiting_requests_is_never_idle():
    """Promised by vllm, static and one_at_a_time; dynamic idles until its timeout at most."""
    for name in ("vllm", "static", "one_at_a_time"):
        rng = random.Random(name)
        for _ in range(40):
            instance = instance_of(rng, name)
            if len(instance.workers) > 1:
                continue
            schedule = run(instance, name, {}, "none")
            starts, ends = schedule.steps.start_ns, schedule.steps.end_ns
            arrivals = set(instance.requests.arrival_ns.tolist())
            gaps = [(e, s) for e, s in zip([0, *ends[:-1]], starts, strict=True) if s > e]
            assert all(int(s) in arrivals for _, s in gaps)
            finish = schedule.request_times(instance)["finish_ns"]
            for end, start in gaps:
                waiting = (instance.requests.arrival_ns < start) & (finish > end)
                assert not waiting.any()


def test_an_idle_worker_of_dynamic_waits_no_longer_than_the_timeout():
    timeout = 20
    rng = random.Random(4)
    for _ in range(100):
        instance = instance_of(rng, "dynamic")
        if len(instance.workers) > 1:
            continue
        params = {"max_batch_size": 3, "batch_wait_timeout_s": timeout / 1e9}
        schedule = run(instance, "dynamic", params, "none")
        started = schedule.request_times(instance)["prefill_start_ns"].tolist()
        steps = list(
            zip(schedule.steps.start_ns.tolist(), schedule.steps.end_ns.tolist(), strict=True)
        )
        for arrival, start in zip(instance.requests.arrival_ns.tolist(), started, strict=True):
            due = arrival + timeout
            busy = sum(max(0, min(e, start) - max(s, due)) for s, e in steps)
            assert start <= due or busy == start - due


def test_lengths_need_information():
    instance = random_batching_instance(random.Random(1))
    with pytest.raises(InputError, match="lengths are not known"):
        run(instance, "vllm", {"policy": "priority", "priority": "length"}, "none")


def test_a_worker_that_pads_is_refused():
    worker = orsched.Worker(2, padding=True)
    instance = orsched.Instance(orsched.Requests([1], [1]), worker, first_token="decode")
    with pytest.raises(InputError, match="does not pad"):
        run(instance, "vllm", {}, "none")


def test_what_can_never_be_admitted_is_named():
    instance = orsched.Instance(orsched.Requests([9], [1]), orsched.Worker(2), first_token="decode")
    with pytest.raises(PolicyError, match="request 0 can never be admitted"):
        run(instance, "vllm", {"chunked_prefill": False, "max_num_batched_tokens": 8})


@pytest.mark.parametrize(
    "values",
    [
        {"policy": "sjf"},
        {"priority": "size"},
        {"aging_s": -1.0},
        {"mode": "v0"},
        {"chunked_prefill": 1},
        {"max_num_batched_tokens": 0},
        {"long_prefill_token_threshold": -1},
        {"watermark_blocks": 1.5},
    ],
)
def test_wrong_parameters_are_named(values):
    assert set(values) < {field.name for field in fields(ContinuousParams)}
    with pytest.raises(InputError) as caught:
        ContinuousParams(**values)
    assert next(iter(values)) in str(caught.value)
