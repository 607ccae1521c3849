"""One policy, one worker, real time: the simulator's loop with a device in the place of the clock.

Rules, views and hooks are those of the simulator; only how long a step takes comes from the device.
The device goes on with a step while the policy decides what comes next: when a step begins, the
host waits for the one before it only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.errors import InputError
from orsched.runner.chunk import Chunk
from orsched.schedule import DECODE
from orsched.simulator.ledger import NEVER
from orsched.simulator.loop import _Loop as Loop
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.policy import Policy, View
    from orsched.runner.device import Device, Times
    from orsched.schedule import Schedule
    from orsched.step import Step, Wait

AT_ONCE = 8
"""Rounds that are begun together while requests are still to arrive."""


class Executed(NamedTuple):
    """What a run yields.

    Attributes:
        schedule: the timeline with the times of the device; no results and bound yet.
        planned_ns: what the cost model says of each step.
        decision_ns: wall-clock time of each call of ``decide``.
        tokens: what each request yielded (empty on a device that yields none).
    """

    schedule: Schedule
    planned_ns: IntColumn
    decision_ns: array[int]
    tokens: list[list[int]]


def execute_policy(
    instance: Instance,
    policy: Policy,
    device: Device,
    seed: int = 0,
    vocabulary: int = 2,
    observer: Callable[[View, Step], None] | None = None,
    deadline: Callable[[], None] | None = None,
) -> Executed:
    """Let a policy drive a device until every request is done.

    Each request yields as many tokens as the instance says. Its prompt is drawn at random.

    Args:
        instance: one worker, whose cost model says what was planned.
        policy: a fresh policy object.
        device: what executes.
        seed: of the prompts.
        vocabulary: prompts are of tokens below this.
        observer: called with the view and the step before each step is taken.
        deadline: called now and then; raises to stop the run.

    Raises:
        InputError: several workers.
        PolicyError: as ``simulate_policy``.
    """
    if len(instance.workers) > 1:
        raise InputError("a device is one worker", field="workers", remedy="take one of them")
    instance.require_feasible()
    loop = _LiveLoop(instance, policy, observer, deadline)
    worker = _LiveWorker(instance, loop, device, _Prompts(instance, seed, vocabulary))
    loop.workers = [worker]
    device.start()
    done = loop.run()
    worker.settle()
    steps = done.schedule.steps
    times = np.array(worker.times, np.int64).reshape(-1, 2)
    steps = replace(steps, start_ns=times[:, 0], end_ns=times[:, 1])
    planned = np.array(worker.planned, np.int64)
    tokens = [
        [token for part in parts for token in part.tolist()] for parts in worker.prompts.yielded
    ]
    return Executed(done.schedule.replace(steps=steps), planned, done.decision_ns, tokens)


class _Prompts:
    """Tokens of the requests: random prompts, then what they yielded before an eviction."""

    def __init__(self, instance: Instance, seed: int, vocabulary: int) -> None:
        self.sizes: list[int] = instance.requests.prompt_tokens.tolist()
        self.seed, self.vocabulary = seed, vocabulary
        self.yielded: list[list[Any]] = [[] for _ in self.sizes]

    def of(self, request: int) -> list[int]:
        """Return the prompt and all that was yielded."""
        stream = np.random.default_rng([self.seed, request])
        prompt: list[int] = stream.integers(self.vocabulary, size=self.sizes[request]).tolist()
        for part in self.yielded[request]:
            prompt += part.tolist()
        return prompt

    def length(self, request: int) -> int:
        """Return the number of these tokens."""
        return self.sizes[request] + sum(len(part) for part in self.yielded[request])


class _LiveLoop(Loop):
    """The simulator's loop for one worker, where waiting takes time."""

    def _wait_alone(self, wait: Wait | None) -> None:
        super()._wait_alone(wait)
        worker, ledger = self.workers[0], self.ledger
        assert isinstance(worker, _LiveWorker)
        worker.device.sleep_until(ledger.now_ns)
        ledger.now_ns = worker.state.now_ns = max(ledger.now_ns, worker.device.now_ns())


class _LiveWorker(WorkerRun):
    """Begins steps on a device; its times are asked for one step later."""

    def __init__(self, instance: Instance, loop: Loop, device: Device, prompts: _Prompts) -> None:
        super().__init__(instance, loop.ledger, loop.views[0], loop.work)
        self.device, self.prompts = device, prompts
        self.times: list[Times] = []
        self.planned: list[int] = []
        self.before: dict[int, int] = {}
        self.told = loop.ledger.on_finish
        loop.ledger.on_finish = self._on_finish

    def take(self, step: Step) -> bool:
        """Begin a step."""
        running = self.state.running
        for request in step.preempt:
            if request in running:
                self._release(request, running[request])
        partial = self.state.partial
        self.before = {request: partial.get(request, 0) for request in step.prefill}
        return super().take(step)

    def _plan_rounds(self) -> bool:
        """Begin few rounds at once while an arrival is to end them: when it comes is not known."""
        target = self.target
        if self.arrival < NEVER:
            self.target = min(target, self.state.rounds + AT_ONCE)
        try:
            return super()._plan_rounds()
        finally:
            self.target = target

    def _advance(self, duration: int, rounds: int, phase: int) -> None:
        """Begin on the device what the base class has made sure of."""
        state, running = self.state, self.state.running
        chunks = [] if phase == DECODE else [self._chunk(request) for request in self.before]
        active = [running[request] for request in state.origin] if phase != 0 else []
        active += [running[request] for request in state.held]
        super()._advance(duration, rounds, phase)
        self.device.begin(chunks, active, rounds, duration)
        self.planned.append(duration)
        if len(self.planned) - len(self.times) > 1:
            self.times.append(self.device.end())
        self.until_ns = max(state.now_ns, self.device.now_ns())

    def settle(self) -> None:
        """Wait for the steps that are still under way."""
        while len(self.times) < len(self.planned):
            self.times.append(self.device.end())

    def _chunk(self, request: int) -> Chunk:
        tokens, start = self.prompts.of(request), self.before[request]
        end = self.state.partial.get(request, len(tokens))
        slot = self.state.running[request]
        if end < len(tokens):
            return Chunk(slot, start, tokens[start:end], False)
        if self.first_from_prefill:
            return Chunk(slot, start, tokens[start:], True)
        return Chunk(slot, start, tokens[start:-1], False, tokens[-1])

    def _on_finish(self, view: View, request: int, client: int) -> None:
        self._release(request, client)
        if self.told is not None:
            self.told(view, request, client)

    def _release(self, request: int, client: int) -> None:
        found = self.device.release(client, self.prompts.length(request))
        if found is not None:
            self.prompts.yielded[request].append(found)
