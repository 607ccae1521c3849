"""One worker of a run: the simulator's, with a device that says how long its steps take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from orsched.common.columns import whole_number
from orsched.common.errors import InputError, OrschedError
from orsched.common.units import NEVER
from orsched.data.schedule import DECODE, PREFILL
from orsched.data.step import ARRIVAL, Step
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.runner.devices.device import VirtualDevice, WorkerLostError
from orsched.runner.worker.layout import Chunk
from orsched.simulator.changing_fleet import abort_step, evict_all
from orsched.simulator.policy import Information
from orsched.simulator.recorder import StepRecorder
from orsched.simulator.worker import WorkerRun

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.runner.devices.device import Device, Times
    from orsched.runner.loop.resume import Prompts
    from orsched.simulator.block_cache import BlockCache
    from orsched.simulator.loop import Loop
    from orsched.simulator.policy import Policy, View
    from orsched.simulator.run_state import RunState


Places = dict[int, tuple[int, int | None]]
"""Request -> client and cached tokens (None: all) of those that are to be brought back."""


def restoring_step(view: View, restoring: Places) -> Step | None:
    """Return the next prefill of those that are to be brought back, None if all are there.

    Each gets its client again, and prompt and yielded tokens are processed again: in several steps
    where the worker's cap asks for it. Who is brought back leaves ``restoring``.
    """
    batch = BatchBuilder(view, memory=False).open(len(restoring))
    chunks: dict[int, int] = {}
    clients: list[int] = []
    for request, (client, goal) in list(restoring.items()):
        left = view.to_prefill(request) if goal is None else goal - view.cached(request)
        chunk = left if chunks else min(left, batch.limit)
        if not batch.admit(request, chunk):
            break
        if request not in view.running:
            clients.append(client)
        chunks[request] = chunk
        if chunk < left:
            break
        del restoring[request]
    if not chunks:
        return None
    return Step(prefill=list(chunks), tokens=list(chunks.values()), clients=clients, decode=())


class PrefixReuse:
    """Follows the blocks of a worker's prefix cache: each has a row in the device's store.

    A block that others may hit is stored when it is full, one that only its own request can hit
    when that request is evicted.
    """

    def __init__(self, cache: BlockCache) -> None:
        self.cache = cache
        self.stored: dict[int, int] = {}  # running request -> its first blocks that are stored
        self.leaving: list[Chunk] = []

    def chunk(self, request: int, chunk: Chunk, found: int | None) -> Chunk:
        """Return a chunk of a prefill with what it loads and stores.

        ``found``: tokens that the request found in the cache; None if its prefill had begun.
        """
        table, size = self.cache.tables[request], self.cache.size
        loads: list[tuple[int, int]] = []
        if found is not None:
            self.stored[request] = found // size
            loads = list(enumerate(table[: found // size]))
        first = self.stored[request]
        last = min((chunk.start + len(chunk.tokens)) // size, self.cache.chains.shared[request])
        if last > first:
            self.stored[request] = last
        return chunk._replace(loads=loads, saves=[(k, table[k]) for k in range(first, last)])

    def leave(self, request: int, slot: int, cached: int) -> None:
        """Let the full blocks of a request be stored that is evicted from its slot."""
        table, first = self.cache.tables[request], self.stored[request]
        saves = [(k, table[k]) for k in range(first, cached // self.cache.size)]
        if saves:
            self.leaving.append(Chunk(slot, 0, (), False, saves=saves))

    def left(self) -> list[Chunk]:
        """Return what is to be stored of those that have left since the last step."""
        leaving, self.leaving = self.leaving, []
        return leaving

    def forget(self, request: int) -> None:
        """Take note that a request has left its slot."""
        self.stored.pop(request, None)


class CannotGoOnError(Exception):
    """After losses: a worker is lost again and again, or the policy does not know what to do."""


AT_ONCE = 8  # rounds that are begun together while something may end them


class MeasuredSteps(StepRecorder):
    """The steps of a worker with the times of its device."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[Times] = []  # when each step ran
        self.planned: list[int] = []  # what the cost model says of each

    def columns(self) -> dict[str, IntColumn]:
        """Return the columns of the steps but the worker's."""
        times = np.array(self.times, np.int64).reshape(-1, 2)
        return {**super().columns(), "start_ns": times[:, 0], "end_ns": times[:, 1]}


class LiveWorker(WorkerRun):
    """Begins steps on a device.

    A worker that looks ahead asks for the times of a step when the next one begins: the device goes
    on while the policy decides. Any other one is told of a step's effects when the device is done,
    and may be lost before.

    Attributes:
        awaited: whether the device is at something: a step, or a restart.
        reply, due_ns: what became of the step in progress, and when that was known.
        down: whether the worker was lost and is not back yet.
        losses: how often it was lost since a step was done.
        differences: how often it was lost in the run as its engine did not do as it was asked.
        stopping: whether no more rounds are begun.
        inner_border: whether the rounds in progress end where no request does, without an arrival.
        restoring: request -> client and tokens (None: all) of those that are to be brought back.
        reuse: which blocks are taken from and added to the device's store; None without one.
    """

    def __init__(
        self,
        instance: Instance,
        loop: Loop,
        index: int,
        device: Device,
        prompts: Prompts,
        looks_ahead: bool,
        ends: EndOfSequence | None,
    ) -> None:
        super().__init__(instance, loop.run_state, loop.views[index], loop.work)
        self.device, self.prompts, self.looks_ahead = device, prompts, looks_ahead
        self.steps = self.running_set.steps = self.measured = MeasuredSteps()
        self.before: dict[int, int] = {}
        self.awaited = self.down = self.stopping = self.inner_border = False
        self.reply: Times | WorkerLostError | None = None
        self.losses = self.differences = self.due_ns = 0
        self.at_once = AT_ONCE if ends is None else 1
        self.ends = ends
        self.restoring: Places = {}
        self.reuse = None if self.shared is None else PrefixReuse(self.shared.cache)

    # -- a step begins --------------------------------------------------------------------

    def take(self, step: Step) -> bool:
        """Begin a step."""
        running = self.state.running
        if self.shared is not None:
            self.shared.cache.undo()  # what the policy tried
        for request in step.preempt:
            if request in running:
                if self.reuse is not None:
                    self.reuse.leave(request, running[request], self.view.cached(request))
                self.release(request, running[request])
        partial, self.inner_border = self.state.partial, False
        self.before = {request: partial.get(request, 0) for request in step.prefill}
        return super().take(step)

    def _plan_rounds(self) -> bool:
        """Begin few rounds at once where an arrival or a loss may end them.

        With arrivals that concern some workers only, rounds reach to the next one of all.
        """
        if self.stopping:
            return False
        target, arrival = self.target, self.arrival
        shared = self.run_state.assigns and self.until & ARRIVAL
        if arrival < NEVER or not self.looks_ahead:
            self.target = min(target, self.state.rounds + self.at_once)
        if shared and arrival == NEVER:
            self.arrival = self.run_state.next_arrival_ns
        try:
            return super()._plan_rounds()
        finally:
            self.target, self.arrival = target, arrival
            self.inner_border = bool(shared) and self.count < self._rounds_left()

    def _rounds_left(self) -> int:
        """Return the rounds to the next event that is not an arrival."""
        left = min(self.target, self.running_set.next_finish()) - self.state.rounds
        pages = self.caches.pages
        return left if pages is None else pages.most_rounds(left)

    def _advance(self, duration: int, rounds: int, phase: int) -> None:
        """Begin on the device what the base class has made sure of."""
        state, running = self.state, self.state.running
        chunks = self._chunks(phase)
        active = [running[request] for request in state.origin] if phase != PREFILL else []
        active += [running[request] for request in state.held]
        super()._advance(duration, rounds, phase)
        self.measured.planned.append(duration)
        self.device.sleep_until(state.now_ns)
        if self.looks_ahead:
            try:
                self.device.begin(chunks, active, rounds, duration)
            except WorkerLostError as lost:
                self._require_no_reuse(lost)
                self.busy = True  # ``empty`` undoes the step
                raise CannotGoOnError(f"{self.worker.name} was lost: {lost.message}") from None
            if len(self.measured.planned) - len(self.measured.times) > 1:
                self.measured.times.append(self.device.end())
            self.until_ns = max(state.now_ns, self.device.now_ns())
            return
        self.reply, self.awaited = None, True
        try:
            self.device.begin(chunks, active, rounds, duration)
        except WorkerLostError as lost:
            self._require_no_reuse(lost)
            self.reply = lost

    def _require_no_reuse(self, lost: WorkerLostError) -> None:
        """End the run where the worker was lost with its prefix cache."""
        if self.shared is not None:
            said = f"{self.worker.name} was lost, and its prefix cache with it: {lost.message}"
            raise OrschedError(said) from None

    def _chunks(self, phase: int) -> list[Chunk]:
        """Return what the step prefills, and before it what requests that have left stored."""
        if self.reuse is None:
            return [] if phase == DECODE else [self._chunk(request) for request in self.before]
        chunks = self.reuse.left()
        if phase == DECODE:
            return chunks
        assert self.running_set.prefix_stays is not None
        found = self.running_set.prefix_stays.found
        self.before |= found
        for request in [*(each for each in self.before if each not in found), *found]:
            chunk = self._chunk(request, request in found)
            chunks.append(self.reuse.chunk(request, chunk, found.get(request)))
        return chunks

    def _chunk(self, request: int, hits: bool = False) -> Chunk:
        tokens, start = self.prompts.of(request), self.before[request]
        end = self.state.partial.get(request, len(tokens))
        slot = self.state.running[request]
        whole: list[int] = tokens if hits or not start else []
        if end < len(tokens):
            return Chunk(slot, start, tokens[start:end], False, whole=whole)
        if self.first_from_prefill:
            return Chunk(slot, start, tokens[start:], True, whole=whole)
        return Chunk(slot, start, tokens[start:-1], False, tokens[-1], whole=whole)

    def interrupt(self, moment_ns: int) -> bool:
        """End rounds that arrivals end with those that were begun; return whether they are over."""
        rounds_alone = self.busy and self.completed is None
        if not rounds_alone or not self.until & ARRIVAL or self.arrival < NEVER:
            return False
        self.arrival = moment_ns
        return not self.awaited and self.loss() is None

    # -- a step ends ----------------------------------------------------------------------

    def collect(self) -> None:
        """Take the device's reply, once it is done (or wait for it)."""
        self.awaited = False
        if self.reply is None:
            try:
                self.reply = self.device.end()
            except WorkerLostError as lost:
                self.reply = lost
        if not isinstance(self.reply, WorkerLostError):
            self.measured.times.append(self.reply)

    def complete(self) -> bool:
        """End the step in progress, and the requests that are done with it."""
        if self.ends is not None:
            self.ends.find(self)
        return super().complete()

    def settle(self) -> None:
        """Wait for the steps that are still under way, whose effects have been told."""
        begun = len(self.measured.planned) - self.busy
        while self.looks_ahead and len(self.measured.times) < begun:
            self.measured.times.append(self.device.end())

    def release(self, request: int, client: int) -> None:
        """Keep what a request has yielded that leaves its client."""
        if self.reuse is not None:
            self.reuse.forget(request)
        found = self.device.release(client, self.prompts.length(request))
        if found is not None:
            self.prompts.keep(request, found)

    # -- losses ---------------------------------------------------------------------------

    def places(self) -> Places:
        """Return client and cached tokens (None: all) by request, as after the step in progress.

        Those that are done and held are left out; those to be brought back come last.
        """
        state = self.state
        found: Places = {
            request: (client, state.partial.get(request))
            for request, client in state.running.items()
            if request not in state.held
        }
        return {**found, **self.restoring}

    def empty(self) -> list[int]:
        """Undo the step in progress, keep all yielded tokens, and free all clients.

        Returns the requests that lost a cache, the last admitted first.
        """
        state, new = self.state, list[int]()
        for request, client in state.running.items():
            if request not in state.held:  # others are released when they finish
                self.release(request, client)
        if self.busy:
            self.awaited = False
            self.measured.planned.pop()
            new = abort_step(self, self.before)
            if self.run_state.on_preempt is not None:
                for request in reversed(new):
                    self.run_state.on_preempt(self.view, request)
        return [*reversed(new), *evict_all(self)]

    def loss(self) -> WorkerLostError | None:
        """Return the loss that ended the step in progress, if one did."""
        return self.reply if self.busy and isinstance(self.reply, WorkerLostError) else None


def live(workers: Any) -> list[LiveWorker]:
    """Return workers as what they are in a run."""
    return cast("list[LiveWorker]", workers)


class EndOfSequence:
    """Which tokens end a request, and how long the requests have turned out.

    Attributes:
        outputs: tokens of each request: the most (None: the output limit), until it is known.
    """

    def __init__(
        self,
        tokens: int | Collection[int],
        instance: Instance,
        policy: Policy,
        devices: Sequence[Any],
        most: Sequence[int] | None = None,
    ) -> None:
        listed = [tokens] if isinstance(tokens, int) else list(tokens)
        self.tokens = frozenset(whole_number(token, "end_of_sequence") for token in listed)
        if policy.information == Information.CLAIRVOYANT:
            raise InputError(
                "lengths that only turn out in the run cannot be known before",
                field="end_of_sequence",
                remedy="take a policy with information none or predicted",
            )
        if any(type(device).yielded is VirtualDevice.yielded for device in devices):
            raise InputError(
                "a device that yields no tokens",
                field="end_of_sequence",
                remedy="leave end_of_sequence out, or take a device that yields tokens",
            )
        self.outputs = np.full(len(instance), instance.output_limit_tokens, np.int64)
        if most is not None:
            self.outputs[:] = most

    def open(self, instance: Instance) -> Instance:
        """Return the instance with lengths that say nothing."""
        return instance.replace(requests=instance.requests.replace(output_tokens=self.outputs))

    def watch(self, run_state: RunState) -> None:
        """Note that lengths change during the run."""
        run_state.outputs = memoryview(self.outputs)  # type: ignore[arg-type]

    def find(self, worker: LiveWorker) -> None:
        """Look at the last tokens of a step that is over, before its effects are told."""
        counts = _counts(worker)
        running, outputs = worker.state.running, self.outputs
        if not counts:
            return
        last = worker.device.yielded([running[request] for request in counts])[:, -1].tolist()
        for (request, count), token in zip(counts.items(), last, strict=True):
            if token in self.tokens and count < outputs[request]:
                outputs[request] = count
                if request in worker.state.origin:
                    worker.running_set.end_early(request, count)


def _counts(worker: LiveWorker) -> dict[int, int]:
    """Return request -> tokens after the step, of those that yield in it."""
    state, run_state = worker.state, worker.run_state
    after = state.rounds + worker.count
    counts = {request: after - origin for request, origin in state.origin.items()}
    if worker.completed is None:
        return counts
    counts = counts if worker.count else {}
    if worker.first_from_prefill:
        counts |= {request: run_state.yielded.get(request, 0) + 1 for request in worker.completed}
    return counts
