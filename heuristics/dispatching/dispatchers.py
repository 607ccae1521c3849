"""Dispatchers: the worker that each arriving request is given to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, ClassVar

from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from collections.abc import Collection

    from orsched.data.memory import BlockMemory
    from orsched.simulator.policy import View

    Room = tuple[BlockMemory | None, int | None]


class Dispatcher(ABC):
    """Chooses a worker at each arrival; told of finishes, it can keep count of what is open.

    Attributes:
        room: the memory of each worker, and the most prompt tokens of its prefill step.
        away: the workers that are not there now: those that fail are told by ``lose``. A request
            for which one of them is chosen goes to the next worker that is there.
    """

    name: ClassVar[str]

    def start(self, view: View) -> None:
        """See the workers before the first arrival."""
        self.workers = len(view.workers)
        self.room: list[Room] = [(w.worker.memory, w.worker.prefill_limit) for w in view.workers]
        self.first = {room: self.room.index(room) for room in dict.fromkeys(self.room)}
        self.equal = len(self.first) == 1
        self.away: set[int] = set()

    def able(self, view: View, request: int) -> Collection[Room]:
        """Return the rooms that hold a request: those with as many blocks as are set aside for it.

        Of these, the ones that prefill its prompt in one step, if there are any.
        """
        if self.equal:
            return self.first
        prompt, views = view.prompt_tokens[request], view.workers
        held = [
            (memory, limit)
            for (memory, limit), index in self.first.items()
            if memory is None or views[index].blocks_of(request) <= memory.blocks
        ]
        return [room for room in held if room[1] is None or prompt <= room[1]] or held

    def holds(self, view: View, request: int, worker: int) -> bool:
        """Whether a worker is one of those that can hold a request."""
        return self.room[worker] in self.able(view, request)

    @abstractmethod
    def choose(self, view: View, request: int) -> int:
        """Return the index of the worker that gets an arriving request."""

    def lose(self, worker: int) -> None:
        """Take note of a worker that is gone; its requests have been dropped."""
        self.away.add(worker)

    def bring(self, worker: int) -> None:
        """Take note of a worker that has started or is repaired."""
        self.away.discard(worker)

    def drop(self, view: View, request: int, worker: int) -> None:  # noqa: B027
        """Take note of an unfinished request that its lost worker does not have any more."""

    def on_first_token(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a first token on the worker of the view."""

    def on_finish(self, view: View, request: int) -> None:  # noqa: B027
        """Take note of a finish on the worker of the view."""

    def moved(self, view: View, request: int, source: int, target: int) -> None:  # noqa: B027
        """Take note of a request that was stolen by another worker before it started."""


class RoundRobin(Dispatcher):
    """Each worker in turn (the baseline of SCLS and MICO), but those too small for the request."""

    name = "round_robin"

    def start(self, view: View) -> None:
        """Begin with the first worker."""
        super().start(view)
        self.next = 0

    def choose(self, view: View, request: int) -> int:
        """Return the next worker that can hold the request; one that is away if it has to be."""
        able, chosen = self.able(view, request), self.next
        for step in range(self.workers):
            index = (self.next + step) % self.workers
            if self.room[index] in able:
                chosen = index
                if index not in self.away:
                    break
        self.next = (chosen + 1) % self.workers
        return chosen


class FewestRequests(Dispatcher):
    """The worker with the fewest unfinished requests for each of its clients; ties go first."""

    name = "fewest_requests"

    def start(self, view: View) -> None:
        """Begin with nothing open."""
        super().start(view)
        self.open = [0] * self.workers
        self.loads = [0.0] * self.workers
        self.clients = [each.worker.clients for each in view.workers]
        rooms = list(self.first)
        self.kind = [rooms.index(room) for room in self.room]
        self.alike: list[list[int]] = [[] for _ in rooms]  # workers that can hold the same requests
        for index, kind in enumerate(self.kind):
            self.alike[kind].append(index)
        self.heaps: list[list[tuple[float, int]]] = [
            [(0.0, index) for index in indices] for indices in self.alike
        ]

    def choose(self, view: View, request: int) -> int:
        """Return the least loaded worker of those that can hold the request."""
        able = self.able(view, request)
        chosen = min(self._least(kind) for kind, room in enumerate(self.first) if room in able)[1]
        self._add(chosen, self._weight(view, request))
        return chosen

    def _least(self, kind: int) -> tuple[float, int]:
        """Return the least load of workers of a kind, and the first that has it."""
        heap, loads = self.heaps[kind], self.loads
        while heap[0][0] != loads[heap[0][1]]:
            heappop(heap)  # what was said of it before
        return heap[0]

    def _load(self, worker: int, load: float) -> None:
        """Set the load of a worker; what was said of it before stays in the heap a while."""
        self.loads[worker] = load
        kind = self.kind[worker]
        heap, alike = self.heaps[kind], self.alike[kind]
        heappush(heap, (load, worker))
        if len(heap) > 4 * len(alike) + 64:
            heap[:] = [(self.loads[index], index) for index in alike]
            heapify(heap)

    def on_finish(self, view: View, request: int) -> None:
        """Take the request off its worker."""
        self._add(view.index, -self._weight(view, request))

    def moved(self, view: View, request: int, source: int, target: int) -> None:
        """Count a stolen request for the worker that took it."""
        weight = self._weight(view, request)
        self._add(source, -weight)
        self._add(target, weight)

    def drop(self, view: View, request: int, worker: int) -> None:
        """Take a lost request off its worker."""
        self._add(worker, -self._weight(view, request))

    def lose(self, worker: int) -> None:
        """Choose another worker from now on."""
        super().lose(worker)
        self._load(worker, inf)

    def bring(self, worker: int) -> None:
        """Let the worker be chosen again."""
        super().bring(worker)
        self._add(worker, 0)

    def _add(self, worker: int, weight: int) -> None:
        self.open[worker] += weight
        if worker not in self.away:
            self._load(worker, self.open[worker] / self.clients[worker])

    def _weight(self, view: View, request: int) -> int:
        return 1


class LeastWork(FewestRequests):
    """The worker with the least open work in tokens for each of its clients.

    A request counts with its prompt and its predicted (clairvoyant: true) output tokens; without
    information on lengths with its prompt alone.
    """

    name = "least_work"

    def _weight(self, view: View, request: int) -> int:
        tokens = view.prompt_tokens[request]
        if isinstance(view, PredictedView):
            tokens += view.predicted_tokens[request]
        elif isinstance(view, ClairvoyantView):
            tokens += view.output_tokens[request]
        return tokens


class MostHits(FewestRequests):
    """The worker that has most of the prompt in its prefix cache, then the one least loaded.

    Most tokens that the request would find as it arrives; without prefix caches as
    ``fewest_requests``.
    """

    name = "prefix"

    def choose(self, view: View, request: int) -> int:
        """Return the worker with the most tokens of those that can hold the request."""
        able = self.able(view, request)
        best, chosen = (-inf, -inf), self.first[next(iter(able))]
        for index, each in enumerate(view.workers):
            if self.room[index] not in able:
                continue
            hit = 0 if each.prefixes is None else each.prefixes.hit_tokens(request)
            rank = (hit, -self.loads[index])
            if rank > best and index not in self.away:
                best, chosen = rank, index
        self._add(chosen, 1)
        return chosen
