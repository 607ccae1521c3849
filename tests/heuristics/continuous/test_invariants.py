"""What holds for every batching mode, on random instances with any number of workers."""

import random

import pytest

from orsched import InputError, Instance, PolicyError, Requests, Worker
from tests.heuristics.building import built, require_sound, solved, steps_of
from tests.random_instances import random_batching_instance, unpadded

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
    return unpadded(instance) if name == "vllm" else instance


def whole_prompts_fit(instance, params):
    """Without chunks, what was yielded before a preemption is prefilled with the prompt at once."""
    if params.get("chunked_prefill", True) and params.get("mode") != "prefill_first":
        return True
    longest = int(instance.requests.prompt_tokens.max()) + instance.output_limit_tokens
    return all(w.prefill_limit is None or w.prefill_limit >= longest for w in instance.workers)


@pytest.mark.parametrize("known", ["clairvoyant", "none"])
@pytest.mark.parametrize("mode", MODES)
def test_every_schedule_is_right_comes_again_and_is_blind(mode, known):
    """Conservation of requests, tokens and blocks, clock, memory: the checker knows them all."""
    name, params = MODES[mode]
    if known == "none" and params.get("priority") == "length":
        params = params | {"priority": "arrival"}
    rng, seen = random.Random(mode), 0
    while seen < 40:
        instance = instance_of(rng, name)
        if not whole_prompts_fit(instance, params):
            continue
        seen += 1
        dispatch = {"dispatch": rng.choice(("round_robin", "least_work")), "steal": True}
        more = params | (dispatch if len(instance.workers) > 1 else {})
        require_sound(instance, lambda case, p=more: built(case, name, known, **p))


def test_an_idle_worker_of_dynamic_waits_no_longer_than_the_timeout():
    timeout = 20
    rng = random.Random(4)
    for _ in range(100):
        instance = instance_of(rng, "dynamic")
        if len(instance.workers) > 1:
            continue
        schedule = solved(instance, "dynamic", max_batch_size=3, batch_wait_timeout_s=timeout / 1e9)
        started = schedule.request_times(instance)["prefill_start_ns"].tolist()
        steps = steps_of(schedule, "start_ns", "end_ns")
        for arrival, start in zip(instance.requests.arrival_ns.tolist(), started, strict=True):
            due = arrival + timeout
            busy = sum(max(0, min(e, start) - max(s, due)) for s, e in steps)
            assert start <= due or busy == start - due


ONE = Instance(Requests([9], [1]), Worker(2), first_token="decode")
PADS = ONE.replace(workers=(Worker(2, padding=True),))
LENGTHS = {"policy": "priority", "priority": "length"}
SHORT = {"chunked_prefill": False, "max_num_batched_tokens": 8}


@pytest.mark.parametrize(
    ("instance", "params", "error", "words"),
    [
        (ONE, LENGTHS, InputError, "lengths are not known"),
        (PADS, {}, InputError, "does not pad"),
        (ONE, SHORT, PolicyError, "request 0 can never be admitted"),
    ],
    ids=["lengths without information", "a worker that pads", "more than a step takes"],
)
def test_what_cannot_be_served_is_named(instance, params, error, words):
    with pytest.raises(error, match=words):
        solved(instance, "vllm", **params)
