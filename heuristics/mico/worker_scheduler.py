"""One cloud: its waiting requests, and the steps of its worker (section 3.4)."""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from orsched.costs import mixed_ns
from orsched.data.step import FINISH, Step, batch_rounds, decode_rounds, evict, prefill_stage
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.mico.distribution import places_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from random import Random

    from orsched.heuristics.mico.distribution import Lengths, MicoParams
    from orsched.simulator.policy import View


class MicoBatch(BatchBuilder):
    """Greedy batch size: requests are admitted while what they will hold at most fits.

    Under paged memory a request counts with its prompt and the longest answer of its bucket (on a
    padding worker all count with the longest of these); under ``whole`` memory with what is set
    aside. A request alone on the worker is admitted in any case. Answers longer than predicted can
    still overflow: ``overflow`` names the requests that leave then.
    """

    def __init__(self, view: View, lengths: Lengths) -> None:
        super().__init__(view)
        self.lengths = lengths
        self.expected: dict[int, int] = {}  # request -> tokens that its cache is to hold at most
        self.expected_blocks = 0
        self.taken: list[int] = []  # tokens to prefill of the requests of this batch
        self.evicted: set[int] = set()  # requests whose prefill is more than their prompt

    def see_pages(self) -> None:
        """Begin a batch, which is open, beside the present caches."""
        self.blocks = self.view.blocks_unused or 0
        if self.padding:
            self.longest_expected = max(self.expected.values(), default=0)
            held = (self.most_blocks - self.blocks) // self.present if self.present else 0
            self.longest_held = held * self.block_tokens  # rounded up to blocks

    def to_prefill(self, request: int) -> int:
        """Return the tokens to prefill of a request that waits."""
        view = self.view
        return view.to_prefill(request) if request in self.evicted else view.prompt_tokens[request]

    def reserve(self, request: int, tokens: int) -> bool:
        """Take the memory of a request if there is enough of it; return whether there is."""
        alone = not (self.present or self.count)
        if not self.paged:
            blocks = self.view.blocks_of(request)
            if blocks > self.blocks:
                return alone
            self.blocks -= blocks
            return True
        size = self.block_tokens
        end = max(self.view.prompt_tokens[request] + self.lengths.end(request), tokens + 1)
        blocks = -(-end // size)
        fits = self._padded_fits if self.padding else self._fits
        if not alone and not fits(end, blocks, tokens):
            return False
        self.expected[request] = end
        self.expected_blocks += blocks
        if self.padding:
            self.longest_expected = max(self.longest_expected, end)
            self.longest_held = max(self.longest_held, tokens)
        else:
            self.blocks -= -(-(tokens + 1) // size)
        return True

    def _fits(self, end: int, blocks: int, tokens: int) -> bool:
        """Whether memory holds the request to its end, and now beside a round of the others."""
        now = self.blocks - -(-(tokens + 1) // self.block_tokens)
        return self.expected_blocks + blocks <= self.most_blocks and now >= self.present

    def _padded_fits(self, end: int, blocks: int, tokens: int) -> bool:
        count = self.present + self.count + 1
        last = -(-max(self.longest_expected, end) // self.block_tokens)
        now = -(-(max(self.longest_held, tokens) + 1) // self.block_tokens)
        return count * max(last, now) <= self.most_blocks

    def release(self, request: int) -> None:
        """Forget a request that leaves the cloud."""
        end = self.expected.pop(request, 0)
        self.expected_blocks -= -(-end // self.block_tokens)

    def overflow(self, view: View) -> list[int]:
        """Return the requests to evict before another round fits: the last admitted first."""
        if not self.paged or (view.blocks_unused or 0) >= len(view.running):
            return []  # each cache takes one more block at most
        running = list(view.running)
        caches = [view.cached(request) + view.decodes(request) for request in running]
        victims = []
        while len(running) > 1 and self._needed(caches) > self.most_blocks:
            victims.append(running.pop())
            caches.pop()
        return victims

    def _needed(self, caches: list[int]) -> int:
        if self.padding:
            return len(caches) * -(-max(caches) // self.block_tokens)
        return sum(-(-tokens // self.block_tokens) for tokens in caches)

    def holds_chunk(self, view: View, request: int, chunk: int, mixed: bool) -> bool:
        """Whether the next tokens of a prefill fit, beside a round of the others if it is mixed."""
        if not self.paged or len(view.running) == 1:
            return True
        others = [other for other in view.running if other != request]
        caches = [view.cached(other) + (mixed and view.decodes(other)) for other in others]
        return self._needed([*caches, view.cached(request) + chunk]) <= self.most_blocks


class Insertion:
    """What it costs to process prompts while others run on a worker."""

    def __init__(self, view: View, how: str) -> None:
        self.how = how  # mixed, decoupled or cheaper
        self.cost = view.worker.cost
        self.padding = view.worker.padding

    def is_mixed(self, view: View, prompts: Sequence[int]) -> bool:
        """Whether the prompts are processed beside a round of the running requests."""
        if self.how != "cheaper":
            return self.how == "mixed"
        return self._beside_ns(view, prompts) <= self.cost.prefill_ns(self._padded(prompts))

    def extra_ns(self, view: View, prompts: Sequence[int]) -> int:
        """Return by how much the running requests are held up."""
        if self.is_mixed(view, prompts):
            return self._beside_ns(view, prompts)
        return self.cost.prefill_ns(self._padded(prompts))

    def pays(self, view: View, prompts: Sequence[int], middles: Mapping[int, int]) -> bool:
        """Whether to insert now rather than after the next finish, which then shares the work. Now:
        all that run are held up by the insertion. Later: the places rest until a request is done,
        as many rounds as the nearest predicted end is away (``middles``: request -> predicted
        output tokens). The smaller loss of time, summed over clients, is taken."""
        running = len(view.running)
        nearest = min(
            max(1, middles[request] - view.generated(request)) for request in view.running
        )
        resting = len(prompts) * nearest * self.cost.round_ns(running, *self._contexts(view))
        return resting >= running * self.extra_ns(view, prompts)

    def _beside_ns(self, view: View, prompts: Sequence[int]) -> int:
        """Return by how much a round takes longer with the prompts beside it."""
        active, contexts = len(view.running), self._contexts(view)
        mixed = mixed_ns(self.cost, self._padded(prompts), active, *contexts)
        return mixed - self.cost.round_ns(active, *contexts)

    def _contexts(self, view: View) -> tuple[int, int]:
        if not self.cost.context_matters:
            return 0, 0
        contexts = [view.cached(request) + 1 for request in view.running]
        longest = max(contexts)
        return (len(contexts) * longest if self.padding else sum(contexts)), longest

    def _padded(self, prompts: Sequence[int]) -> list[int]:
        return [max(prompts)] * len(prompts) if self.padding else list(prompts)


Key = tuple[int, int, int]  # rank, arrival and request


class WorkerQueue:
    """Smallest key first: a sorted queue, and a heap of those that belong in its middle. Requests
    that come in order, wave by wave, cost no more than the sorting of each wave."""

    def __init__(self) -> None:
        self.ordered: deque[Key] = deque()
        self.others: list[Key] = []

    def __len__(self) -> int:
        return len(self.ordered) + len(self.others)

    def extend(self, keys: Iterable[Key]) -> None:
        """Let requests wait."""
        ordered = sorted(keys)
        if not self.ordered or self.ordered[-1] < ordered[0]:
            self.ordered.extend(ordered)
            return
        for key in ordered:
            heappush(self.others, key)

    def first(self) -> int:
        """Return the request that is next."""
        others = self.others
        if others and (not self.ordered or others[0] < self.ordered[0]):
            return others[0][2]
        return self.ordered[0][2]

    def pop(self) -> int:
        """Remove and return the request that is next."""
        others = self.others
        if others and (not self.ordered or others[0] < self.ordered[0]):
            return heappop(others)[2]
        return self.ordered.popleft()[2]


_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)
_BATCH = batch_rounds()


class WorkerScheduler:
    """Serves the requests that were dealt to one worker, at iteration level or batch by batch."""

    def __init__(self, view: View, params: MicoParams, lengths: Lengths, random: Random) -> None:
        self.params = params
        self.lengths = lengths
        self.random = random
        self.places = places_of(view, params.batch_size)  # most requests at once
        self.batch = MicoBatch(view, lengths)
        self.insertion = Insertion(view, params.insertion)
        self.queue = WorkerQueue()  # those that wait
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
