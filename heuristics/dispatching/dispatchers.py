"""Dispatchers: the worker that each arriving request is given to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, ClassVar

from orsched.costs.exact import numbers_of_equal
from orsched.heuristics.forecast import known_lengths
from orsched.heuristics.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from orsched.data.memory import BlockMemory
    from orsched.simulator.policy import View

    Room = tuple[BlockMemory | None, int | None]


class Dispatcher(ABC):
    """Chooses a worker at each arrival; told of finishes, it can keep count of what is open.

    Attributes:
        room: the memory of each worker, and the most prompt tokens of its prefill step.
        away: the workers that are not there now: those that fail are told by ``lose``. A request
            for which one of them is chosen goes to the next available worker.
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
        """Return the rooms that hold a request: those with the blocks that are set aside for it,
        and of these the ones that prefill its prompt in one step, if there are any."""
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
    """The worker with the least open work in tokens for each of its clients. A request counts with
    its prompt and its predicted (clairvoyant: true) output tokens; blind with its prompt alone."""

    name = "least_work"

    def _weight(self, view: View, request: int) -> int:
        lengths = known_lengths(view)
        return view.prompt_tokens[request] + (0 if lengths is None else lengths[request])


class MostHits(FewestRequests):
    """The worker that has most of the prompt in its prefix cache as the request arrives, then the
    one least loaded; without prefix caches as ``fewest_requests``. Each open request of a worker
    takes ``load_weight`` tokens off what it has."""

    name = "prefix"
    load_weight = 0.0

    def choose(self, view: View, request: int) -> int:
        """Return the worker with the most tokens of those that can hold the request."""
        able = self.able(view, request)
        best, chosen = (-inf, -inf), self.first[next(iter(able))]
        for index, each in enumerate(view.workers):
            if self.room[index] not in able:
                continue
            hit = 0 if each.prefixes is None else each.prefixes.hit_tokens(request)
            rank = (hit - self.load_weight * self.open[index], -self.loads[index])
            if rank > best and index not in self.away:
                best, chosen = rank, index
        self._add(chosen, 1)
        return chosen


_FIRST_GUESS = 256  # output tokens before any request has finished, unless the limit is smaller
_LEARN_AGAIN = 1.25  # estimates are worked out again when so many times more have finished

Entry = tuple[float, int, int]
"""Time, open requests and index of a worker."""


class Soonest(Dispatcher):
    """The worker that is likely to be done with the request first, of equal ones the least loaded.

    The time of the prompts that wait there for their prefill and of the request's own; then a mean
    output at the pace of rounds with all that are open there, their prefills in between, and as
    many times longer as they are more than the worker's clients and memory hold. Every worker
    counts with its own cost model. No length is known: the mean output is that of the requests
    that have finished so far. A choice takes time by the kinds of workers, not by their number.
    """

    name = "soonest"

    def start(self, view: View) -> None:
        """Begin with nothing open."""
        super().start(view)
        self.kinds: list[_Kind] = []
        found: dict[tuple[object, ...], _Kind] = {}
        alike = _alike(view.workers)
        for each, key in zip(view.workers, alike, strict=True):
            if key not in found:
                found[key] = _Kind(each, len(found))
            found[key].workers.append(each.index)
        self.kinds = list(found.values())
        self.kind = [found[key] for key in alike]
        self.open = [0] * self.workers
        self.waiting_ns = [0.0] * self.workers
        self.loads = [0.0] * self.workers
        self.unstarted: dict[int, tuple[int, float]] = {}
        self.began: dict[int, tuple[int, int]] = {}  # request -> worker, round of its token 0
        self.prompts = self.arrived = self.outputs = self.finished = 0
        self.guess = min(_FIRST_GUESS, view.output_limit_tokens)
        self.limit = view.output_limit_tokens
        self.learn_at = 1.0
        self._learn()

    def choose(self, view: View, request: int) -> int:
        """Return the worker with the least time of those that can hold the request."""
        prompt, kinds = self._see(view, request), self.kinds
        if not self.equal:
            able = self.able(view, request)
            kinds = [kind for kind in kinds if self.room[kind.workers[0]] in able]
        best: Entry = (inf, 0, kinds[0].workers[0])  # all of them may be away
        for kind in kinds:
            time_ns, many, index = self._first(kind)
            best = min(best, (time_ns + kind.token_ns * prompt, many, index))
        self._put(best[2], request, prompt)
        return best[2]

    def _see(self, view: View, request: int) -> int:
        """Learn from an arriving prompt, and return its tokens."""
        prompt = view.prompt_tokens[request]
        self.prompts += prompt
        self.arrived += 1
        if self.arrived == 1:
            self._learn()
        return prompt

    def on_first_token(self, view: View, request: int) -> None:
        """Take the request's prompt off those that wait."""
        self._start(request)
        self.began[request] = (view.index, view.rounds - view.generated(request))

    def on_finish(self, view: View, request: int) -> None:
        """Take the request off its worker, and learn from its length."""
        self._start(request)
        worker, origin = self.began.pop(request, (-1, 0))
        if worker == view.index:
            self.outputs += view.rounds - origin
            self.finished += 1
        self.open[view.index] -= 1
        if self.finished >= self.learn_at:
            self.learn_at = self.finished * _LEARN_AGAIN
            self._learn()
        else:
            self._price(view.index)

    def moved(self, view: View, request: int, source: int, target: int) -> None:
        """Count a stolen request for the worker that took it."""
        self._start(request)
        self.open[source] -= 1
        self._price(source)
        self._put(target, request, view.prompt_tokens[request])

    def drop(self, view: View, request: int, worker: int) -> None:
        """Take a lost request off its worker."""
        self._start(request)
        self.began.pop(request, None)
        self.open[worker] -= 1
        self._price(worker)

    def lose(self, worker: int) -> None:
        """Choose another worker from now on."""
        super().lose(worker)
        self._price(worker)

    def bring(self, worker: int) -> None:
        """Let the worker be chosen again."""
        super().bring(worker)
        self._price(worker)

    def _put(self, worker: int, request: int, prompt: int) -> None:
        time_ns = self.kind[worker].token_ns * prompt
        self.unstarted[request] = (worker, time_ns)
        self.open[worker] += 1
        self.waiting_ns[worker] += time_ns
        self._price(worker)

    def _start(self, request: int) -> None:
        """Let a request's prompt wait no longer."""
        found = self.unstarted.pop(request, None)
        if found is not None:
            worker, time_ns = found
            self.waiting_ns[worker] -= time_ns
            self._price(worker)

    def _price(self, worker: int) -> None:
        """Work out a worker's time again; what was said of it before is void."""
        kind, many = self.kind[worker], self.open[worker]
        load = self.loads[worker] = self._load(worker)
        heappush(kind.heap, (load, many, worker))
        if len(kind.heap) > 4 * len(kind.workers) + 64:
            self._sort(kind)

    def _load(self, worker: int) -> float:
        """Return the time until a request without a prompt would be done."""
        if worker in self.away:
            return inf
        kind, many, waiting_ns = self.kind[worker], self.open[worker] + 1, self.waiting_ns[worker]
        serving_ns = kind.times.get(many) or kind.serving_ns(many)
        return serving_ns + waiting_ns if waiting_ns > 0 else serving_ns

    def _sort(self, kind: _Kind) -> None:
        kind.heap = [(self.loads[index], self.open[index], index) for index in kind.workers]
        heapify(kind.heap)

    def _first(self, kind: _Kind) -> Entry:
        """Return the worker of a kind with the least time."""
        while True:
            entry = kind.heap[0]
            if entry[0] == self.loads[entry[2]] and entry[1] == self.open[entry[2]]:
                return entry
            heappop(kind.heap)

    def _learn(self) -> None:
        """Work all times out with the mean lengths of the requests so far."""
        prompt = self.prompts / max(self.arrived, 1)
        output = self.outputs / self.finished if self.finished else float(self.guess)
        for kind in self.kinds:
            kind.learn(prompt, output, self.limit)
        self.loads = [self._load(worker) for worker in range(self.workers)]
        for kind in self.kinds:
            self._sort(kind)


class _Kind:
    """Workers with the same clients, cost and memory: one estimate serves all of them."""

    def __init__(self, view: View, number: int) -> None:
        self.number = number
        self.worker = view.worker
        self.prices = Prices(view)
        self.token_ns = self.prices.token_ns  # time of a prompt token
        self.workers: list[int] = []  # their indices
        self.heap: list[Entry] = []  # a time for each of them, and some that are void
        self.times: dict[int, float] = {}

    def learn(self, prompt: float, output: float, limit: int) -> None:
        memory, room = self.worker.memory, float(self.worker.clients)
        if memory is not None:
            each = prompt + (output / 2 if memory.is_paged else limit)
            room = min(room, memory.tokens / max(each, 1.0))
        self.room = max(room, 1.0)  # requests that one has clients and memory for
        self.prompt, self.output = prompt, output
        self.times.clear()

    def serving_ns(self, many: int) -> float:
        """Return the time in which one of so many requests is served, its own prefill apart."""
        found = self.times.get(many)
        if found is None:
            active = min(many, int(self.room))
            context = int(self.prompt + self.output / 2) + 1
            round_ns = self.worker.cost.round_ns(active, active * context, context)
            beside_ns = self.token_ns * self.prompt * active
            excess = max(1.0, many / self.room)
            found = self.times[many] = excess * (self.output * round_ns + beside_ns)
        return found


_AFFINE, _PENALTY_NS = 0.8, 5 * 10**9
"""Share of a prompt in a prefix cache that keeps a request there, and the TTFT that this may cost
(llm-d, prefix-cache-affinity-filter)."""


class Latency(Soonest):
    """The worker with the best predicted latencies of the request, as llm-d's router chooses.

    TTFT: the prompts that wait there, the request's own without what the worker's prefix cache
    holds, and the time until a client is free where more are open than the worker has room for.
    TPOT: a round of all that are open, and the prefills in between. Workers that keep the limits of
    the request's class go before those that do not, which go by their larger ratio of prediction to
    limit; among equals the time until the last token decides. Workers that have four fifths of
    the prompt in their caches go first, unless that costs 5 s of TTFT. It knows what ``soonest``
    knows, and prefix caches. A choice looks at every worker. llm-d learns to predict; here the cost
    model does, and nothing is drawn.
    """

    name = "latency"

    def choose(self, view: View, request: int) -> int:
        """Return the best worker of those that can hold the request."""
        prompt, able = self._see(view, request), self.able(view, request)
        own = view.classes[0 if view.service_class is None else view.service_class[request]]
        limits = (own.ttft_ns or inf, own.tpot_ns or inf)
        ranked = []
        for index, each in enumerate(view.workers):
            if self.room[index] in able and index not in self.away:
                left = prompt - (0 if each.prefixes is None else each.prefixes.hit_tokens(request))
                ttft_ns, tpot_ns = self.predicted_ns(index, left)
                worst = max(1.0, ttft_ns / limits[0], tpot_ns / limits[1])
                end_ns = ttft_ns + self.kind[index].output * tpot_ns
                ranked.append((worst, end_ns, index, ttft_ns, left))
        if not ranked:  # all of them are away
            ranked = [(0.0, 0.0, self.first[next(iter(able))], 0.0, prompt)]
        least_ns = min(each[3] for each in ranked)
        there = [each for each in ranked if prompt - each[4] >= _AFFINE * prompt]
        stays = there and min(there)[3] <= least_ns + _PENALTY_NS
        _, _, chosen, _, left = min(there if stays else ranked)
        self._put(chosen, request, left)
        return chosen

    def predicted_ns(self, worker: int, left: int) -> tuple[float, float]:
        """Return TTFT and TPOT on a worker that computes so many tokens of the prompt."""
        kind, many = self.kind[worker], self.open[worker] + 1
        serving_ns, excess = kind.serving_ns(many), max(1.0, many / kind.room)
        queue_ns = serving_ns * (1 - 1 / excess)
        tpot_ns = (serving_ns - queue_ns) / max(kind.output, 1.0)
        return self.waiting_ns[worker] + kind.token_ns * left + queue_ns, tpot_ns


def _alike(views: Sequence[View]) -> list[tuple[object, ...]]:
    """Return for each worker what is the same for workers of one kind."""
    workers = [view.worker for view in views]
    costs = numbers_of_equal([worker.cost for worker in workers])
    return [
        (cost, worker.clients, worker.prefill_limit, worker.padding, worker.memory)
        for cost, worker in zip(costs, workers, strict=True)
    ]


DEFAULT = "soonest"

DISPATCHERS: dict[str, type[Dispatcher]] = {
    kind.name: kind for kind in (Soonest, RoundRobin, FewestRequests, LeastWork, MostHits, Latency)
}
