"""The policy behind Pang's methods: queues choose the next requests, a gate the moment."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import insort
from dataclasses import dataclass, fields
from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from orsched.common.errors import InputError
from orsched.common.scalars import is_number, require_bool, require_one_of
from orsched.data.step import Step, decode_rounds, prefill_stage
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.forecast import ArrivalRate, known_lengths
from orsched.heuristics.gates import (
    Gate,
    ListeningGate,
    Waiting,
    make_gate,
    name_of_gate,
    require_gate,
)
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from numpy.typing import NDArray


_BITS = 32
_MASK = (1 << _BITS) - 1


class Queues(Protocol):
    """Where requests wait. ``key`` orders a queue (smallest first), ``tokens`` weighs it."""

    queued: int
    """Requests that wait."""

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request, at a client where each has its own queue."""

    def fill(self, clients: Sequence[int], batch: BatchBuilder) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients in turn, and the clients that get one; ends
        at the first request that does not fit into the batch."""

    def servable(self, idle: Collection[int]) -> int:
        """Return how many of the idle clients could get a request now."""


class Offering(ABC):
    """Base of queues: they offer requests to clients, and a batch builder takes what fits."""

    @abstractmethod
    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the requests that these clients would get in turn. When the next one is asked for,
        the one before is taken: it leaves the queue, and its client is added to ``places``."""

    def fill(self, clients: Sequence[int], batch: BatchBuilder) -> tuple[list[int], list[int]]:
        """Remove and return requests for these clients in turn, and the clients that get one."""
        places: list[int] = []
        return batch.take_offered(self.offer(clients, places), len(clients)), places


class SharedQueue(Offering):
    """One queue for all clients."""

    def __init__(self, clients: int) -> None:
        self.heap: list[int] = []  # (key, request) in one integer
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request; the client does not matter."""
        heappush(self.heap, key << _BITS | request)
        self.queued += 1

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield the first requests of the queue, one a client."""
        heap = self.heap
        for client in clients:
            if not heap:
                break
            yield heap[0] & _MASK
            heappop(heap)
            self.queued -= 1
            places.append(client)

    def servable(self, idle: Collection[int]) -> int:
        """Return the smaller of idle clients and waiting requests."""
        return min(len(idle), self.queued)


class ClientQueues(Offering):
    """One queue a client; with ``steal`` an idle client whose own is empty takes the first request
    of the queue with the most remaining tokens (Pang, Algorithm 1)."""

    def __init__(self, clients: int, steal: bool) -> None:
        # Entries are (key, request, tokens) in one integer, which compares faster than a tuple.
        self.heaps: list[list[int]] = [[] for _ in range(clients)]
        self.steal = steal
        self.remaining = [0] * clients
        # Clients, largest first, by upper bounds of what remains: taking a request costs nothing
        # here. `listed` holds each client's bound in force; others are dropped when met.
        self.richest: list[tuple[int, int]] = []
        self.listed = [0] * clients
        self.queued = 0

    def add(self, request: int, client: int, key: int, tokens: int) -> None:
        """Queue a request at a client."""
        heappush(self.heaps[client], (key << _BITS | request) << _BITS | tokens)
        self.remaining[client] += tokens
        self.queued += 1
        if self.steal and self.remaining[client] > self.listed[client]:
            self.listed[client] = self.remaining[client]
            heappush(self.richest, (-self.remaining[client], client))

    def offer(self, clients: Sequence[int], places: list[int]) -> Iterator[int]:
        """Yield each client's own first request, else the one it steals."""
        heaps, remaining = self.heaps, self.remaining
        for client in clients:
            owner, heap = client, heaps[client]
            if not heap:
                if not self.queued:
                    break
                if not self.steal:
                    continue
                owner = self._richest()
                heap = heaps[owner]
            entry = heap[0]
            yield entry >> _BITS & _MASK
            heappop(heap)
            remaining[owner] -= entry & _MASK
            self.queued -= 1
            places.append(client)

    def servable(self, idle: Collection[int]) -> int:
        """Return how many of the idle clients could get a request now."""
        if self.steal:
            return min(len(idle), self.queued)
        heaps = self.heaps
        return sum(1 for client in idle if heaps[client])

    def _richest(self) -> int:
        """Return the client whose queue holds the most tokens; some queue is not empty."""
        richest, remaining, listed = self.richest, self.remaining, self.listed
        while True:
            negative, client = richest[0]
            left = remaining[client]
            if left + negative == 0:
                return client
            if negative + listed[client]:
                heappop(richest)
                continue
            listed[client] = left
            if left:
                heapreplace(richest, (-left, client))
            else:
                heappop(richest)


RULES = ("all", "latency")
"""``all``: every client of the worker; ``latency``: as many as ``ClientChoice`` says."""

_GROWTH = 1.5  # times of rounds are worked out again when so many times as many have ended


class ClientChoice:
    """Chooses how many clients b to use: the least t(b) (R / b + 1), with t(b) the time of a
    round of b and R the requests that wait or run. While arrivals are expected R is not known,
    and more than what has arrived: then it uses all. Contexts, where times depend on them, are
    those of a mean request in the middle of its answer, by the requests seen so far."""

    def __init__(self, view: View) -> None:
        self.arrivals = ArrivalRate()
        self.worker = view.worker
        self.came = self.prompts = self.ended = self.outputs = 0
        self.next = 1
        self.limit = view.output_limit_tokens
        self._counts = np.arange(1, view.worker.clients + 1, dtype=np.float64)
        self._times: NDArray[np.float64] | None = None
        self._kept = -1, 0

    def arrived(self, view: View, request: int) -> None:
        """Count a prompt."""
        self.arrivals.note(view.arrival_ns[request])
        self.came += 1
        self.prompts += view.prompt_tokens[request]

    def finished(self, tokens: int) -> None:
        """Count the tokens of a request that has ended."""
        self.ended += 1
        self.outputs += tokens
        if self.ended >= self.next:
            self.next = int(self.ended * _GROWTH) + 1
            if self.worker.cost.context_matters:
                self._times = None

    def most(self, view: View, requests: int) -> int:
        """Return how many clients to use with so many requests that wait or run, at least 1."""
        if self.arrivals.rate(view.now_ns) > 0:
            return len(self._counts)
        if self._kept[0] != requests:
            self._kept = requests, self._best(requests)
        return self._kept[1]

    def _best(self, requests: int) -> int:
        if self._times is None:
            self._times = self._rounds()
        count = min(max(1, requests), len(self._counts))
        times, counts = self._times[:count], self._counts[:count]
        value = times * (requests / counts + 1.0)
        # Of equal values the most clients, so that no request waits in vain.
        return count - int(np.argmin(value[::-1]))

    def _rounds(self) -> NDArray[np.float64]:
        """Return the time of a round with 1, 2, ... requests."""
        prompt = self.prompts / self.came if self.came else 0.0
        output = self.outputs / self.ended if self.ended else self.limit / 2
        context = max(1, round(prompt + output / 2))
        cost = self.worker.cost
        return np.array(
            [cost.round_ns(b, b * context, context) for b in range(1, len(self._counts) + 1)],
            dtype=np.float64,
        )


ASSIGNMENTS = ("shared", "round_robin", "packing")
ORDERS = ("arrival", "longest", "shortest")
PRIORITIES = ("none", "service_class")
_LEVEL = 1 << 40  # more than any place within a level

_DECODE = decode_rounds()
_ROUND = decode_rounds(1)


@dataclass(frozen=True)
class GatedParams:
    """Parameters of ``GatedPolicy``.

    Attributes:
        assignment: ``shared``: one queue; ``round_robin``: requests to clients in turn;
            ``packing``: makespan packing of the lengths (Pang (26)-(30)).
        order: within a queue: ``arrival``, or ``longest``/``shortest`` by N^p + N^d as far as
            known (Pang, Algorithm 1 sorts longest first).
        steal: whether idle clients take from other clients' queues (Algorithm 1).
        gate: ``prefill_first``, ``printed`` (Pang's eq. (43)), ``waited_time`` (Pang's words),
            ``idle_cost`` (derived for the middle of a run) or ``shadow_price`` (derived, knows the
            end and arrivals); or your own, as ``module:Class`` or, in Python, an object.
        gate_factor: multiplies the threshold of ``idle_cost``.
        use_clients: how many clients to use: ``all``, or, once no more arrivals are expected, as
            many as give those that wait and run the least mean JCT (``latency``).
        priority: what comes before the order within a queue: ``none``, or ``service_class``
            (interactive requests before batch ones).
    """

    assignment: str = "shared"
    order: str = "longest"
    steal: bool = True
    gate: str | Gate | type[Gate] = "idle_cost"
    gate_factor: float = 1.0
    priority: str = "none"
    use_clients: str = "all"

    def __post_init__(self) -> None:
        require_one_of(self.assignment, "assignment", ASSIGNMENTS)
        require_one_of(self.order, "order", ORDERS)
        require_one_of(self.priority, "priority", PRIORITIES)
        require_bool(self.steal, "steal")
        require_one_of(self.use_clients, "use_clients", RULES)
        if self.use_clients != "all" and not (self.steal or self.assignment == "shared"):
            raise InputError(
                "requests of clients that are not used would wait for them",
                field="use_clients",
                remedy="assignment=shared or steal=true",
            )
        if not is_number(self.gate_factor):
            raise InputError(
                f"{self.gate_factor!r} is not a number", field="gate_factor", remedy="give a number"
            )
        require_gate(self.gate)
        if self.gate == "idle_cost":
            make_gate(self.gate, self.gate_factor)

    def to_dict(self) -> dict[str, Any]:
        """Parameters as JSON values."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "gate": name_of_gate(self.gate)}


class GatedPolicy(Policy):
    """Give clients requests from queues; a gate stops decoding for a prefill (Pang's methods).

    Args:
        params: see ``GatedParams``.
        information: what it knows of output lengths (none: all count as the output limit).
        name: the name under which it reports.
        packing: client of each request, where a packing is known already.
        service_class: of each request, for the priority.
    """

    def __init__(
        self,
        params: GatedParams,
        information: Information,
        name: str = "gated",
        packing: Sequence[int] | None = None,
        service_class: Sequence[int] = (),
    ) -> None:
        if params.priority == "none":
            service_class = ()
        self.service_class = service_class
        self.packing = packing
        self.params = params
        self.information = information
        self.name = name

    def start(self, view: View) -> None:
        """Set up queues and gate; pack what is known."""
        clients = view.worker.clients
        self.prefill_limit = view.worker.prefill_limit
        self.batch = BatchBuilder(view)
        self.lengths: Sequence[int] | dict[int, int] | None = known_lengths(view)
        self.queues: Queues
        if self.params.assignment == "shared":
            self.queues = SharedQueue(clients)
        else:
            self.queues = ClientQueues(clients, self.params.steal)
        self.assignment: Sequence[int] = ()
        if self.params.assignment == "packing":
            self.assignment = self._pack(view) if self.packing is None else self.packing
        self.gate: Gate = self.make_gate()
        self.gate.start(view)
        self.listener = self.gate if isinstance(self.gate, ListeningGate) else None
        self.idle = list(range(clients))  # in order
        self.arrived = 0
        self.queued_tokens = 0
        self.choice = None if self.params.use_clients == "all" else ClientChoice(view)

    def make_gate(self) -> Gate:
        """Return a fresh gate for a run."""
        return make_gate(self.params.gate, self.params.gate_factor)

    def _pack(self, view: View) -> Sequence[int]:
        if self.lengths is None:
            raise InputError(
                "packing needs predicted or clairvoyant lengths",
                field="assignment",
                remedy="choose round_robin or shared",
            )
        from orsched.models.packing import pack

        return pack(list(self.lengths), view.worker.clients).uninterrupted().assignment

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        if self.choice is not None:
            self.choice.arrived(view, request)
        prompt = view.prompt_tokens[request]
        lengths = self.lengths
        tokens = prompt + (view.output_limit_tokens if lengths is None else lengths[request])
        order = self.params.order
        key = self.arrived if order == "arrival" else -tokens if order == "longest" else tokens
        if len(self.service_class):
            key += self.service_class[request] * _LEVEL
        client = self.assignment[request] if self.assignment else self.arrived % view.worker.clients
        self.arrived += 1
        self.queued_tokens += prompt
        self.queues.add(request, client, key, tokens)
        if self.listener is not None:
            self.listener.arrived(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Mark the client idle."""
        if self.choice is not None:
            self.choice.finished(view.generated(request))
        insort(self.idle, client)
        if self.listener is not None:
            self.listener.finished(view, request)

    def decide(self, view: View) -> Step | None:
        """Prefill when the gate opens, else decode until it may."""
        queues, idle = self.queues, self._usable(view)
        clients = queues.servable(idle) if queues.queued and idle else 0
        if not clients:
            return _DECODE if view.running else None
        rounds = 0
        if view.running:
            rounds = self.gate.rounds_to_wait(view, self._waiting(clients))
        if rounds == 0:
            stage, places = self._take(view, idle)
            if stage:
                self.gate.stage_taken(view)
                if self.listener is not None:
                    self.listener.started(view, stage)
                return prefill_stage(stage, places)
            return _DECODE if view.running else None
        return _ROUND if rounds == 1 else decode_rounds(rounds)

    def _waiting(self, clients: int) -> Waiting:
        """Describe the stage that would be taken, by the mean prompt of the queue."""
        queued, cap = self.queues.queued, self.prefill_limit
        tokens = -(-clients * self.queued_tokens // queued)
        if cap is not None and tokens >= cap:
            return Waiting(clients, cap, True, queued)
        return Waiting(clients, tokens, False, queued)

    def _usable(self, view: View) -> list[int]:
        """Return the idle clients that are to be used now."""
        choice, running = self.choice, len(view.running)
        if choice is None or not self.idle:
            return self.idle
        return self.idle[: max(0, choice.most(view, self.queues.queued + running) - running)]

    def _take(self, view: View, idle: list[int]) -> tuple[list[int], list[int]]:
        """Fill a stage over idle clients in order, until the next request does not fit."""
        stage, places = self.queues.fill(idle, self.batch)
        self.queued_tokens -= sum(map(view.prompt_tokens.__getitem__, stage))
        self._occupy(places)
        return stage, places

    def _occupy(self, clients: list[int]) -> None:
        """Take clients out of the idle ones."""
        idle, count = self.idle, len(clients)
        if idle[:count] == clients:
            del idle[:count]
        else:
            taken = set(clients)
            self.idle = [client for client in idle if client not in taken]
