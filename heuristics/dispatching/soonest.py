"""The default dispatcher: the worker that is likely to be done with the request first."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING

from orsched.costs.equal import numbers_of_equal
from orsched.heuristics.dispatching.dispatchers import Dispatcher
from orsched.heuristics.gittins.prices import Prices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View

_FIRST_GUESS = 256
"""Output tokens of a request before any has finished, unless the limit is smaller."""
_LEARN_AGAIN = 1.25
"""By which factor more requests have finished when the estimates are worked out anew."""

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
        prompt = view.prompt_tokens[request]
        self.prompts += prompt
        self.arrived += 1
        if self.arrived == 1:
            self._learn()
        kinds = self.kinds
        if not self.equal:
            able = self.able(view, request)
            kinds = [kind for kind in kinds if self.room[kind.workers[0]] in able]
        best: Entry = (inf, 0, kinds[0].workers[0])  # all of them may be away
        for kind in kinds:
            time_ns, many, index = self._first(kind)
            best = min(best, (time_ns + kind.token_ns * prompt, many, index))
        self._put(best[2], request, prompt)
        return best[2]

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
        """Work out a worker's time anew; what was said of it before is void."""
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
    """Workers with the same clients, cost and memory: one estimate serves all of them.

    Attributes:
        token_ns: time of a prompt token.
        workers: their indices.
        heap: a time for each of them, and some that are void.
        room: how many requests one of them has clients and memory for.
    """

    def __init__(self, view: View, number: int) -> None:
        self.number = number
        self.worker = view.worker
        self.prices = Prices(view)
        self.token_ns = self.prices.token_ns
        self.workers: list[int] = []
        self.heap: list[Entry] = []
        self.times: dict[int, float] = {}

    def learn(self, prompt: float, output: float, limit: int) -> None:
        """Take mean lengths into account."""
        memory, room = self.worker.memory, float(self.worker.clients)
        if memory is not None:
            each = prompt + (output / 2 if memory.is_paged else limit)
            room = min(room, memory.tokens / max(each, 1.0))
        self.room = max(room, 1.0)
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


def _alike(views: Sequence[View]) -> list[tuple[object, ...]]:
    """Return for each worker what is the same for workers of one kind."""
    workers = [view.worker for view in views]
    costs = numbers_of_equal([worker.cost for worker in workers])
    return [
        (cost, worker.clients, worker.prefill_limit, worker.padding, worker.memory)
        for cost, worker in zip(costs, workers, strict=True)
    ]
