"""The event-driven simulator: runs a policy on an instance, from event to event.

Between two events every running request yields one token a round, so a whole run of rounds is
one entry of the timeline. Truth (output lengths) lives here; policies see ``View`` only.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from operator import index as whole
from time import perf_counter_ns
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.errors import PolicyError
from orsched.policy import Information, Policy, View, WorkerState
from orsched.schedule import DECODE, PREFILL, Schedule, Steps, Work
from orsched.step import ARRIVAL, FINISH, Step, require_step
from orsched.units import MAX_TIME_NS
from orsched.views import blocks_set_aside, build_view

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.columns import IntColumn
    from orsched.instance import Instance

NEVER = 2**62
_REQUEST_BITS = 32
_REQUEST_MASK = 2**_REQUEST_BITS - 1


class Simulated(NamedTuple):
    """What a simulation yields.

    Attributes:
        schedule: the timeline, without results and bound.
        decision_ns: wall-clock time of each call of ``decide``.
    """

    schedule: Schedule
    decision_ns: array[int]


def simulate_policy(
    instance: Instance,
    policy: Policy,
    observer: Callable[[View, Step], None] | None = None,
    deadline: Callable[[], None] | None = None,
) -> Simulated:
    """Run a policy on an instance with one worker and return its schedule.

    Args:
        instance: the problem.
        policy: a fresh policy object.
        observer: called with the view and the step before each step is taken.
        deadline: called now and then; raises to stop the run.

    Raises:
        InfeasibleError: no schedule exists, or none without knowing the lengths, since the memory
            does not hold a request of the output limit.
        InputError: the policy needs predictions that the instance does not have.
        PolicyError: the policy asked for an impossible step, or left requests unserved.
    """
    instance.require_feasible()
    return _Simulation(instance, policy).run(observer, deadline)


class _Simulation:
    """One run: the executor's side of the policy contract."""

    def __init__(self, instance: Instance, policy: Policy) -> None:
        self.instance = instance
        self.policy = policy
        self.worker = instance.worker
        self.cost = self.worker.cost
        self.state = WorkerState(self.worker, instance.first_token, instance.output_limit_tokens)
        self.information = _information_of(policy)  # read once: it is what the view grants
        self.view, self.hidden = build_view(instance, self.state, self.information)
        n = len(instance)
        self.memory = self.worker.memory
        self.blocks: list[int] = []
        if self.memory is not None:
            sighted = self.information is Information.CLAIRVOYANT
            self.blocks = blocks_set_aside(instance, self.memory, sighted).tolist()
        self.prompts: list[int] = instance.requests.prompt_tokens.tolist()
        self.needed: list[int] = instance.rounds_needed.tolist()
        self.started = bytearray(n)
        self.left = n
        # Truth about the future: arrivals in order, finishes as packed (round, request).
        order = np.lexsort((np.arange(n), instance.requests.arrival_ns))
        self.arrival_order: list[int] = order.tolist()
        self.arrival_times: list[int] = instance.requests.arrival_ns[order].tolist()
        self.next_arrival = 0
        self.finishes: list[int] = []
        self.free_heap = list(range(self.worker.clients))
        self.in_heap = bytearray(b"\1") * self.worker.clients
        self.fresh: list[int] = []  # prefilled, not yet in a decode step
        self.base_sum = 0  # sum over active requests of prompt - start round
        self.base_heap: list[tuple[int, int]] = []
        # The timeline.
        self.end_ns = array("q")
        self.rounds = array("q")
        self.waits: list[tuple[int, int]] = []  # step before which the worker waited, till when
        self.client = array("q", [-1]) * n
        self.prefill_step = array("q", [-1]) * n
        self.first_step = array("q", [-1]) * n
        self.last_step = array("q", [-1]) * n
        # What every step asks for, looked up once.
        hooks = _overridden(policy)
        self.on_arrival = policy.on_arrival if "on_arrival" in hooks else None
        self.on_first_token = policy.on_first_token if "on_first_token" in hooks else None
        self.on_finish = policy.on_finish if "on_finish" in hooks else None
        self.prefill_limit = self.worker.prefill_limit
        self.context_matters = self.cost.context_matters
        self.first_from_prefill = instance.first_token == "prefill"
        self.deadline: Callable[[], None] | None = None

    def run(
        self,
        observer: Callable[[View, Step], None] | None,
        deadline: Callable[[], None] | None,
    ) -> Simulated:
        policy, view = self.policy, self.view
        decide, clock = policy.decide, perf_counter_ns
        decision_ns = array("q")
        self.deadline = deadline
        policy.start(view)
        self._deliver_arrivals()
        step: Step | None = None
        try:
            while self.left:
                before = clock()
                step = decide(view)
                decision_ns.append(clock() - before)
                if step is None:
                    self._wait()
                    continue
                if observer is not None:
                    observer(view, step)
                if deadline is not None and not len(decision_ns) & 255:
                    deadline()
                if step.prefill:
                    self._prefill(step)
                else:
                    self._decode(step)
                if self.next_arrival < len(self.arrival_times):
                    self._deliver_arrivals()
        except PolicyError as error:
            raise PolicyError(f"{self._moment()}: {error}") from None
        except (TypeError, ValueError, AttributeError, OverflowError):
            self._blame(step)
            raise
        self._check_empty()
        return Simulated(self._schedule(), decision_ns)

    def _moment(self) -> str:
        """Say whose step failed, and when."""
        return f"policy {self.policy.name}, step {len(self.end_ns)} at {self.state.now_ns} ns"

    def _blame(self, step: Step | None) -> None:
        """Raise ``PolicyError`` if a step was malformed: that is why taking it failed."""
        try:
            if step is not None:
                require_step(step)
        except PolicyError as error:
            raise PolicyError(f"{self._moment()}: {error}") from None

    # -- arrivals -------------------------------------------------------------------------

    def _deliver_arrivals(self) -> None:
        now, times, order = self.state.now_ns, self.arrival_times, self.arrival_order
        hook = self.on_arrival
        hidden = self.hidden
        i, n = self.next_arrival, len(times)
        while i < n and times[i] <= now:
            request = order[i]
            i += 1
            self.next_arrival = i
            if not i & 4095 and self.deadline is not None:
                self.deadline()
            for live, truth in hidden:
                live[request] = truth[request]
            if hook is not None:
                hook(self.view, request)

    def _wait(self) -> None:
        if self.next_arrival >= len(self.arrival_times):
            raise PolicyError(
                f"it waits, but {self.left} requests are unfinished and none will arrive"
            )
        self.state.now_ns = self.arrival_times[self.next_arrival]
        self.waits.append((len(self.end_ns), self.state.now_ns))
        self._deliver_arrivals()

    # -- prefill --------------------------------------------------------------------------

    def _prefill(self, step: Step) -> None:
        if step.tokens is not None or step.decode != () or step.preempt or step.hold:
            raise PolicyError(
                "this simulator takes prefill stages over whole prompts and decode stages over "
                "all running requests (PD competition), on one worker"
            )
        requests = step.prefill
        clients = self._lowest_free(len(requests)) if step.clients is None else step.clients
        if len(clients) != len(requests):
            raise PolicyError(f"{len(clients)} clients for {len(requests)} requests")
        prompts = self._admit(requests, clients)
        if self.prefill_limit is not None and sum(prompts) > self.prefill_limit:
            raise PolicyError(
                f"a prefill stage of {sum(prompts)} tokens exceeds the cap {self.prefill_limit}"
            )
        self._advance(self.cost.prefill_ns(prompts), 1)
        if self.first_from_prefill:
            self._first_tokens(requests)
            for request in requests:
                if self.needed[request] == 0:
                    self._finish(request)

    def _lowest_free(self, count: int) -> list[int]:
        """Return the lowest free clients."""
        taken, heap, in_heap = self.state.client_request, self.free_heap, self.in_heap
        if count > self.state.free_clients:
            raise PolicyError(f"{count} requests for {self.state.free_clients} free clients")
        found: list[int] = []
        while len(found) < count:
            client = heappop(heap)
            in_heap[client] = 0
            if taken[client] < 0:
                found.append(client)
        return found

    def _admit(self, requests: Sequence[int], clients: Sequence[int]) -> list[int]:
        """Put requests on clients, checking each; return their prompt tokens."""
        state, started, lengths = self.state, self.started, self.prompts
        index, rounds, n = len(self.end_ns), state.rounds, len(lengths)
        future = self.next_arrival < n
        prompts = []
        for request, client in zip(map(whole, requests), map(whole, clients), strict=True):
            if not 0 <= request < n:
                raise PolicyError(f"request {request} does not exist")
            if started[request]:
                raise PolicyError(f"request {request} was prefilled before")
            if future and self.instance.requests.arrival_ns[request] > state.now_ns:
                raise PolicyError(f"request {request} has not arrived")
            if not 0 <= client < len(state.client_request) or state.client_request[client] >= 0:
                raise PolicyError(f"client {client} does not exist or is busy")
            started[request] = 1
            state.client_request[client] = request
            state.running[request] = client
            state.start_round[request] = rounds
            self.client[request] = client
            self.prefill_step[request] = index
            prompts.append(lengths[request])
            if self.needed[request]:
                self.fresh.append(request)
                heappush(self.finishes, (rounds + self.needed[request]) << _REQUEST_BITS | request)
            if self.context_matters:
                base = lengths[request] - rounds
                self.base_sum += base
                heappush(self.base_heap, (-base, request))
            if self.memory is not None:
                state.blocks_used += self.blocks[request]
        state.free_clients -= len(requests)
        if self.memory is not None and state.blocks_used > self.memory.blocks:
            raise PolicyError(f"{state.blocks_used} memory blocks of {self.memory.blocks}")
        return prompts

    # -- decode ---------------------------------------------------------------------------

    def _decode(self, step: Step) -> None:
        state = self.state
        if step.decode is not None or step.preempt or step.hold:
            require_step(step)
            if step.decode == ():
                raise PolicyError("a prefill stage without a request")
            raise PolicyError(
                "this simulator decodes all running requests in a decode stage, on one worker"
            )
        if not state.running:
            raise PolicyError("a decode stage without a running request")
        if step.rounds < 1:
            raise PolicyError(f"a decode stage of {step.rounds} rounds")
        target = state.rounds + whole(step.rounds)
        arrival = NEVER
        if step.until & ARRIVAL and self.next_arrival < len(self.arrival_times):
            arrival = self.arrival_times[self.next_arrival]
        while True:
            finished = self._run_rounds(target, arrival)
            if finished and step.until & FINISH:
                return
            if state.rounds >= target or state.now_ns >= arrival or not state.running:
                return

    def _run_rounds(self, target: int, arrival: int) -> bool:
        """Take rounds until the target, the next finish or the arrival; say if any finished."""
        state, finishes = self.state, self.finishes
        before, active = state.rounds, len(state.running)
        next_finish = finishes[0] >> _REQUEST_BITS
        end = next_finish if next_finish < target else target
        context_sum, context_max = self._contexts() if self.context_matters else (0, 0)
        count = end - before
        duration = self.cost.rounds_ns(count, active, context_sum, context_max)
        if state.now_ns + duration > arrival:
            count = self._rounds_to(arrival - state.now_ns, count, active, context_sum, context_max)
            duration = self.cost.rounds_ns(count, active, context_sum, context_max)
        index = len(self.end_ns)
        self._advance(duration, count)
        state.rounds = now = before + count
        fresh = self.fresh
        if fresh:
            for request in fresh:
                self.first_step[request] = index
            self.fresh = []
            if not self.first_from_prefill:
                self._first_tokens(fresh)
        if next_finish != now:
            return False
        border = (now + 1) << _REQUEST_BITS
        while finishes and finishes[0] < border:
            request = heappop(finishes) & _REQUEST_MASK
            self.last_step[request] = index
            self._finish(request)
        return True

    def _rounds_to(
        self, time_left: int, most: int, active: int, context_sum: int, context_max: int
    ) -> int:
        """Fewest rounds, at least 1, whose run ends at the arrival or after it."""
        low, high = 1, most
        rounds_ns = self.cost.rounds_ns
        if not self.context_matters:
            one = rounds_ns(1, active, 0, 0)
            return most if one == 0 else min(most, max(1, -(-time_left // one)))
        while low < high:
            middle = (low + high) // 2
            if rounds_ns(middle, active, context_sum, context_max) >= time_left:
                high = middle
            else:
                low = middle + 1
        return low

    def _contexts(self) -> tuple[int, int]:
        """Sum and maximum of the contexts in the next round, over the running requests."""
        running, heap = self.state.running, self.base_heap
        while heap[0][1] not in running:
            heappop(heap)
        next_round = self.state.rounds + 1
        return self.base_sum + len(running) * next_round, next_round - heap[0][0]

    # -- common ---------------------------------------------------------------------------

    def _advance(self, duration: int, rounds: int) -> None:
        """Let a step pass, and record its end; it starts where the last one ended."""
        now = self.state.now_ns = self.state.now_ns + duration
        if now > MAX_TIME_NS:
            raise PolicyError("the schedule runs past 2**62 ns")
        self.end_ns.append(now)
        self.rounds.append(rounds)

    def _first_tokens(self, requests: Sequence[int]) -> None:
        hook = self.on_first_token
        if hook is not None:
            for request in requests:
                hook(self.view, request)

    def _finish(self, request: int) -> None:
        state = self.state
        client = state.running.pop(request)
        start = state.start_round.pop(request)
        state.client_request[client] = -1
        state.free_clients += 1
        if not self.in_heap[client]:
            self.in_heap[client] = 1
            heappush(self.free_heap, client)
        if self.memory is not None:
            state.blocks_used -= self.blocks[request]
        if self.context_matters:
            self.base_sum -= self.prompts[request] - start
        self.left -= 1
        if self.on_finish is not None:
            self.on_finish(self.view, request, client)

    def _check_empty(self) -> None:
        state = self.state
        if state.running or state.blocks_used or state.free_clients != self.worker.clients:
            raise PolicyError("requests, clients or memory blocks are left over: a bug in orsched")

    def _schedule(self) -> Schedule:
        ends = np.array(self.end_ns, np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1]
        for index, moment in self.waits:
            starts[index] = moment
        phase = np.full(len(ends), DECODE, np.int64)
        phase[np.array(self.prefill_step, np.int64)] = PREFILL
        rounds = np.array(self.rounds, np.int64)
        steps = Steps(np.zeros_like(ends), phase, starts, ends, rounds)
        return Schedule(
            instance_sha256=self.instance.sha256,
            steps=steps,
            work=self._work(),
            method=self.policy.name,
            information=self.information.value,
            instance_name=self.instance.name,
        )

    def _work(self) -> Work:
        """One prefill row and, unless the prefill yields all, one decode row a request."""
        n = len(self.prompts)
        first = np.array(self.first_step, np.int64)
        two_rows = np.stack([np.ones(n, bool), first >= 0], axis=1)
        prefill = np.array(self.prefill_step, np.int64)

        def interleave(of_prefill: IntColumn, of_decode: IntColumn) -> IntColumn:
            kept: IntColumn = np.stack([of_prefill, of_decode], axis=1)[two_rows]
            return kept

        rows = np.arange(n)
        client = np.array(self.client, np.int64)
        zeros = np.zeros(n, np.int64)
        return Work(
            request=interleave(rows, rows),
            client=interleave(client, client),
            phase=interleave(zeros + PREFILL, zeros + DECODE),
            first_step=interleave(prefill, first),
            last_step=interleave(prefill, np.array(self.last_step, np.int64)),
            tokens=interleave(self.instance.requests.prompt_tokens, zeros + 1),
        )


def _information_of(policy: Policy) -> Information:
    """Return the information that a policy declares, as text or as a member."""
    try:
        return Information(policy.information)
    except ValueError:
        raise PolicyError(
            f"policy {policy.name} declares the information {policy.information!r}: "
            f"one of {', '.join(Information)} is needed"
        ) from None


def _overridden(policy: Policy) -> frozenset[str]:
    """Names of the hooks that a policy's class defines; the others are not called."""
    names = ("on_arrival", "on_first_token", "on_finish", "on_preempt")
    return frozenset(n for n in names if getattr(type(policy), n) is not getattr(Policy, n))
