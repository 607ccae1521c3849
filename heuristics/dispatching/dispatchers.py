"""Dispatchers: the worker that each arriving request is given to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, ClassVar

from orsched.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from orsched.policy import View
    from orsched.workers import Worker


class Dispatcher(ABC):
    """Chooses a worker at each arrival; told of finishes, it can keep count of what is open.

    Attributes:
        away: the workers that are not there now: those that fail are told by ``lose``. A request
            for which one of them is chosen goes to the next worker that is there.
    """

    name: ClassVar[str]

    def start(self, view: View) -> None:
        """See the workers before the first arrival."""
        self.workers = len(view.workers)
        self.room = [_room(each.worker) for each in view.workers]
        self.equal = len(set(self.room)) == 1
        self.away: set[int] = set()

    def holds(self, view: View, request: int, worker: int) -> bool:
        """Whether a worker can hold a request, whatever of its length is not known."""
        if self.equal:
            return True
        prompt, (tokens, stage) = view.prompt_tokens[request], self.room[worker]
        output = view.output_limit_tokens
        if isinstance(view, ClairvoyantView):
            output = view.output_tokens[request]
        return prompt <= stage and prompt + output <= tokens

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
        """Return the next worker that can hold the request."""
        for _ in range(self.workers):
            if self.next not in self.away and self.holds(view, request, self.next):
                break
            self.next = (self.next + 1) % self.workers
        chosen = self.next
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
        by_room: dict[tuple[float, float], list[int]] = {}
        for index, room in enumerate(self.room):
            by_room.setdefault(room, []).append(index)
        self.alike = list(by_room.values())  # workers that can hold the same requests
        self.kind = [list(by_room).index(room) for room in self.room]
        self.heaps: list[list[tuple[float, int]]] = [
            [(0.0, index) for index in indices] for indices in self.alike
        ]

    def choose(self, view: View, request: int) -> int:
        """Return the least loaded worker of those that can hold the request."""
        kinds = range(len(self.alike))
        if not self.equal:
            able = [kind for kind in kinds if self.holds(view, request, self.alike[kind][0])]
            load, chosen = min(self._least(kind) for kind in able or kinds)
            if load == inf:  # those that could hold it are away
                chosen = 0
        else:
            chosen = self._least(0)[1]
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
        able = [self.holds(view, request, index) for index in range(self.workers)]
        best, chosen = (-inf, -inf), 0
        for index, each in enumerate(view.workers):
            hit = 0 if each.prefixes is None else each.prefixes.hit_tokens(request)
            rank = (hit, -self.loads[index])
            if rank > best and index not in self.away and (able[index] or not any(able)):
                best, chosen = rank, index
        self._add(chosen, 1)
        return chosen


def _room(worker: Worker) -> tuple[float, float]:
    """Return the most tokens of a request and of a prompt that a worker takes."""
    memory, limit = worker.memory, worker.prefill_limit
    tokens = inf if memory is None else memory.tokens
    return tokens, inf if limit is None else limit
