"""A device holds in its store what the prefix cache says, however requests come, go and share."""

from dataclasses import replace

import numpy as np
import pytest

from orsched import Instance, Prefixes, Requests, Worker, check
from orsched.runner.devices.device import VirtualDevice
from orsched.runner.execution import run
from orsched.runner.loop.following import FollowSchedule
from orsched.runner.loop.resume import Prompts
from orsched.runner.worker.torch_worker import in_waves
from orsched.runner.worker_pool import RunSettings
from orsched.simulator import simulate_policy
from tests.refusals import refused
from tests.runner.loop.fake_device import VOCABULARY, next_token, played
from tests.simulator.prefix_workloads import prefix_instance, prefix_params, prefix_policy


class TextDevice(VirtualDevice):
    """Keeps the tokens behind each block of its slots and its store, and compares at each use."""

    def __init__(self, size):
        super().__init__()
        self.size, self.loaded, self.left = size, 0, 0
        self.slots: dict[int, list[int]] = {}
        self.store: dict[int, tuple[int, ...]] = {}
        self.next: dict[int, int] = {}  # what a slot has yielded last, and processes next

    def begin(self, chunks, active, rounds, planned_ns):
        for chunk in chunks:
            if chunk.only_saves:
                self.left += 1
                self.save(chunk)
        for wave in in_waves([chunk for chunk in chunks if not chunk.only_saves]):
            for chunk in wave:
                self.load(chunk)
            for chunk in wave:
                text = self.slots.setdefault(chunk.slot, [])
                del text[chunk.start :]
                assert len(text) == chunk.start
                text.extend(chunk.tokens)
                self.save(chunk)
                if chunk.yields:
                    self.next[chunk.slot] = next_token(text)
        for slot in active:
            for _ in range(rounds):
                self.slots[slot].append(self.next[slot])
                self.next[slot] = next_token(self.slots[slot])
        super().begin(chunks, active, rounds, planned_ns)

    def release(self, slot, prompt_tokens):
        yielded = self.slots[slot][prompt_tokens:]  # which stay there until they are overwritten
        return [*yielded, self.next.pop(slot)] if slot in self.next else []

    def load(self, chunk):
        if chunk.loads:
            self.slots[chunk.slot] = []
        for block, row in chunk.loads:
            text = self.store[row]
            assert len(text) == (block + 1) * self.size
            assert list(text[: block * self.size]) == self.slots[chunk.slot]
            self.slots[chunk.slot] = list(text)
            self.loaded += 1

    def save(self, chunk):
        for block, row in chunk.saves:
            text = self.slots[chunk.slot][: (block + 1) * self.size]
            assert len(text) == (block + 1) * self.size
            self.store[row] = tuple(text)


def policy_of(instance, seed):
    return prefix_policy(instance, prefix_params(seed, instance.worker.clients))


def yielding(seed):
    return prefix_instance(seed).replace(first_token="prefill")


def loads_what_it_stands_for(seed):
    """Each block that is loaded holds the prefix that it stands for; returns the device."""
    instance = yielding(seed)
    device = TextDevice(instance.worker.memory.block_tokens)
    done = played(instance, policy_of(instance, seed), device, seed=3)
    assert check(instance, done.schedule) == []
    assert device.loaded * device.size == int(done.schedule.work.hit.sum())
    return device


@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 400), marks=pytest.mark.full)])
def test_each_block_that_is_loaded_holds_the_prefix_that_it_stands_for(seeds):
    devices = [loads_what_it_stands_for(seed) for seed in seeds]
    assert sum(device.loaded for device in devices) > 40
    assert sum(device.left for device in devices) > 2


@pytest.mark.parametrize("seed", range(12))
def test_a_plan_with_hits_is_followed_step_by_step(seed):
    instance = yielding(seed)
    plan = simulate_policy(instance, policy_of(instance, seed)).schedule
    device = TextDevice(instance.worker.memory.block_tokens)
    done = played(instance, FollowSchedule(instance, plan), device)
    assert (done.schedule.work, done.schedule.eviction) == (plan.work, plan.eviction)


def test_equal_identifiers_are_equal_tokens_and_others_are_not():
    prefixes = Prefixes([0, 3, 6, 7, 7], [4, 5, 6, 4, 5, 7, 9], 8)
    requests = Requests([20, 24, 8, 30], [1] * 4, prefixes=prefixes)
    instance = Instance(requests, Worker(4), first_token="decode")
    prompts, others = (Prompts(instance, seed, VOCABULARY) for seed in (0, 1))
    first, second, third, last = (prompts.of(request) for request in range(4))
    assert [len(text) for text in (first, second, third, last)] == [20, 24, 8, 30]
    assert first[:16] == second[:16]
    assert first[16:] != second[16:20]
    assert len({tuple(text[:8]) for text in (first, third, last)}) == 3
    assert first != others.of(0)


def test_what_a_torch_worker_cannot_keep_is_refused_with_a_remedy():
    pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    instance = prefix_instance(1).replace(first_token="decode")
    assert refused("first token", run, instance, "vllm", RunSettings()).field == "first_token"
    elsewhere = yielding(1), "vllm", RunSettings(place="process")
    assert refused("in this process", run, *elsewhere).field == "place"


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in (5, 6))]
)
def test_tokens_are_those_of_a_worker_that_reuses_nothing(seed):
    torch = pytest.importorskip("torch", reason="the extra 'runner' is not installed")
    pytest.importorskip("transformers", reason="the extra 'runner' is not installed")
    torch.set_num_threads(1)
    instance = yielding(seed)
    settings = RunSettings(dtype="float64", device="cpu", threads=1)
    reusing = run(instance, "vllm", settings, seed=7)
    worker = instance.worker
    plenty = replace(worker, memory=replace(worker.memory, blocks=10_000, prefix_cache=None))
    without = run(instance.replace(workers=(plenty,)), "vllm", settings, seed=7)
    assert reusing.violations == []
    assert np.sum(reusing.trace.work.hit) > 0
    assert reusing.tokens == without.tokens
