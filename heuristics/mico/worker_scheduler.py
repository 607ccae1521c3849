"""One cloud: its waiting requests, and the steps of its worker (section 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.data.step import FINISH, Step, batch_rounds, decode_rounds, evict, prefill_stage
from orsched.heuristics.mico.batch import MicoBatch
from orsched.heuristics.mico.insertion import Insertion
from orsched.heuristics.mico.shares import places_of
from orsched.heuristics.mico.worker_queue import WorkerQueue

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from orsched.heuristics.mico.lengths import Lengths
    from orsched.heuristics.mico.params import MicoParams
    from orsched.simulator.policy import View

_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)
_BATCH = batch_rounds()


class WorkerScheduler:
    """Serves the requests that were dealt to one worker, at iteration level or batch by batch.

    Attributes:
        queue: those that wait.
        places: most requests at once.
    """

    def __init__(self, view: View, params: MicoParams, lengths: Lengths, random: Random) -> None:
        self.params = params
        self.lengths = lengths
        self.random = random
        self.places = places_of(view, params.batch_size)
        self.batch = MicoBatch(view, lengths)
        self.insertion = Insertion(view, params.insertion)
        self.queue = WorkerQueue()
        self.middles: dict[int, int] = {}  # of those that run, for the trade-off
        self.partial = -1  # whose prefill is longer than a step
        self.decide = self._iterate if params.batching == "iteration" else self._serve_batch

    def put(self, view: View, requests: Iterable[int]) -> None:
        """Let requests wait."""
        self.queue.extend([(self.rank(view, r), view.arrival_ns[r], r) for r in requests])

    def rank(self, view: View, request: int) -> int:
        """Return what comes before the time of arrival: the smallest goes first."""
        order = self.params.order
        if order == "arrival":
            return 0
        if order == "random":
            return self.random.getrandbits(62)
        if order == "short_prompt":
            return view.prompt_tokens[request]
        return -self.lengths.bucket(request)

    def leaves(self, request: int) -> None:
        """Record that a request has left the worker."""
        self.batch.release(request)
        self.middles.pop(request, None)
        if request == self.partial:
            self.partial = -1

    def put_back(self, view: View, request: int) -> None:
        """Queue an evicted request again."""
        self.leaves(request)
        self.batch.evicted.add(request)
        self.put(view, [request])

    def open_places(self, view: View) -> int:
        """Return how many waiting requests could start now."""
        if self.params.batching == "batch" and view.running:
            return 0
        return self.places - len(view.running)

    # -- steps ----------------------------------------------------------------------------

    def _iterate(self, view: View) -> Step | None:
        """Fill the places that are free, else decode until one is, or until an arrival."""
        step = self._pressing(view)
        if step is not None:
            return step
        free = self.places - len(view.running)
        if free and self.queue:
            taken = self._insertable(view, free)
            if taken:
                return self._insert(view, taken)
        if not view.running:
            return None
        return _UNTIL_EVENT if free and not self.queue else _UNTIL_FINISH

    def _serve_batch(self, view: View) -> Step | None:
        """Run the batch to its end, then take the next one."""
        step = self._pressing(view)
        if step is not None:
            return step
        if view.running:
            return _BATCH
        return self._insert(view, self._take(view, self.places)) if self.queue else None

    def _pressing(self, view: View) -> Step | None:
        """Return an eviction if memory is full, or the next part of a prefill."""
        if self.batch.paged:
            victims = self.batch.overflow(view)
            if victims:
                return evict(victims)
        if self.partial >= 0:
            return self._go_on(view)
        return None

    def _insertable(self, view: View, free: int) -> list[int]:
        """Take the requests that are inserted now, none if it is better to wait."""
        if self.params.trade_off and view.running:
            first = self.batch.to_prefill(self.queue.first())
            limit = self.batch.limit  # what would not go into the step is no part of the trade-off
            count = max(1, min(free, len(self.queue), limit // first))
            first = min(first, limit)
            prompts = [first] * count
            if not self.insertion.pays(view, prompts, self.middles):
                return []
        return self._take(view, free)

    def _take(self, view: View, free: int) -> list[int]:
        """Take waiting requests as far as they fit, in order."""
        queue, batch = self.queue, self.batch.open(free)
        if batch.paged:
            batch.see_pages()
        taken: list[int] = []
        prefills: list[int] = []
        admit = batch.admit
        while queue and len(taken) < free:
            request = queue.first()
            tokens = batch.to_prefill(request)
            if not admit(request, tokens):
                break
            prefills.append(tokens)
            taken.append(queue.pop())
        batch.taken = prefills
        if self.params.trade_off:
            self.middles |= {request: self.lengths.middle(request) for request in taken}
        return taken

    def _insert(self, view: View, taken: list[int]) -> Step:
        """Return the step that processes prompts: beside a round, or on its own."""
        if self.batch.taken[0] > self.batch.limit:
            self.partial = taken[0]
            return self._go_on(view)
        if not view.running:
            return prefill_stage(taken)
        if self.insertion.is_mixed(view, self.batch.taken):
            return Step(prefill=taken)
        return prefill_stage(taken)

    def _go_on(self, view: View) -> Step:
        """Return the next part of a prefill that is longer than a step."""
        request = self.partial
        left = view.to_prefill(request)
        chunk = min(self.batch.limit, left)
        others = len(view.running) > (request in view.running)
        mixed = others and self.insertion.is_mixed(view, [chunk])
        if not self.batch.holds_chunk(view, request, chunk, mixed):
            return evict([request])
        if chunk == left:
            self.partial = -1
        decode = None if mixed else ()
        return Step(prefill=[request], tokens=[chunk], decode=decode)
