"""Devices for tests: a language model that is a formula, in virtual time, lost at chosen steps."""

from collections import deque

import numpy as np

from orsched.runner.devices.device import VirtualDevice, WorkerLostError
from orsched.runner.loop.live import execute_policy
from orsched.runner.loop.resume import random_prompt

VOCABULARY = 97
REASONS = ("died", "hung", "out_of_memory", "failed")


def next_token(tokens):
    """Return the token that follows: every token before it matters, and their order."""
    found = len(tokens)
    for token in tokens:
        found = (31 * found + token) % 10007
    return found % VOCABULARY


def reference(instance, seed=0, ends=()):
    """Return what each request yields if nothing disturbs it, up to its length or to an end."""
    requests, found = instance.requests, []
    rows = zip(requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    for request, (prompt, output) in enumerate(rows):
        tokens = random_prompt(seed, request, prompt, VOCABULARY)
        for _ in range(output):
            tokens.append(next_token(tokens))
            if tokens[-1] in ends:
                break
        found.append(tokens[prompt:])
    return found


class FormulaDevice(VirtualDevice):
    """Yields tokens by a formula at a step's ``end``; ``fails(number)``: where it loses one."""

    def __init__(self, fails=lambda number: None, restart_ns=0):
        super().__init__()
        self.fails, self.restart_ns = fails, restart_ns
        self.number = 0
        self.caches = {}
        self.kept = {}
        self.begun = deque()
        self.is_lost = False

    def begin(self, chunks, active, rounds, planned_ns):
        assert not self.is_lost
        for chunk in chunks:
            assert chunk.start == len(self.cached(chunk.slot))
        self.number += 1
        fails = self.fails(self.number)
        if fails == "begin":
            self._lose()
        super().begin(chunks, active, rounds, planned_ns)
        self.begun.append((fails, list(chunks), list(active), rounds))

    def cached(self, slot):
        return self.caches.get(slot, [])

    def end(self):
        fails, chunks, active, rounds = self.begun.popleft()
        times = super().end()
        if fails:
            self.free_ns = (times.start_ns + times.end_ns) // 2
            self._lose()
        for _ in range(rounds):
            for slot in active:
                self.caches[slot].append(next_token(self.caches[slot]))
        for chunk in chunks:
            tokens = self.caches.setdefault(chunk.slot, [])
            tokens += [*chunk.tokens, *([] if chunk.feeds is None else [chunk.feeds])]
            if chunk.yields:
                tokens.append(next_token(tokens))
        return times

    def yielded(self, slots, tokens=1):
        return np.array([self.caches[slot][-tokens:] for slot in slots])

    def _lose(self):
        self.is_lost = True
        self.ends.clear()
        self.begun.clear()
        self.kept = self.caches
        self.caches = {}
        raise WorkerLostError(REASONS[self.number % len(REASONS)], f"at step {self.number}")

    def restart(self):
        assert self.is_lost
        self.is_lost = False
        self.free_ns += self.restart_ns

    def release(self, slot, prompt_tokens):
        caches = self.kept if self.is_lost else self.caches
        return caches.pop(slot, [])[prompt_tokens:]


def played(instance, policy, devices=None, **more):
    """Run a policy on devices that yield tokens by the formula, one a worker."""
    devices = devices or [FormulaDevice() for _ in instance.workers]
    return execute_policy(instance, policy, devices, vocabulary=VOCABULARY, **more)


def lost_at(step, restart_ns=0):
    return FormulaDevice(lambda number: "end" if number == step else None, restart_ns)
