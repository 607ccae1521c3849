"""The caches on a worker: contexts in a round, the blocks that they fill, stays with hits."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import index as whole
from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import PolicyError
from orsched.data.schedule import PREFILL
from orsched.simulator.paging import PaddedPages, Pages, SharedPages
from orsched.simulator.recorder import EARLY, LATE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.step import Step
    from orsched.simulator.block_cache import BlockCache
    from orsched.simulator.policy import View, WorkerState
    from orsched.simulator.recorder import StepRecorder, WorkRecorder
    from orsched.simulator.run_state import RunState


class Caches:
    """Sizes of caches, kept up to date only as far as cost and memory model ask for them. A cache
    that grows has ``base + rounds`` tokens, where the base is the request's prompt less the round
    from which its tokens count: so nothing changes from round to round."""

    def __init__(self, state: WorkerState, block_cache: BlockCache | None = None) -> None:
        worker, memory = state.worker, state.worker.memory
        self.state = state
        self.padding = worker.padding
        self.context_matters = worker.cost.context_matters
        self.blocks = 0 if memory is None else memory.blocks  # of the worker
        self.pages: Pages | PaddedPages | None = None  # the filled blocks under paged memory
        self.shared: SharedPages | None = None  # the same for a prefix cache
        if block_cache is not None:
            self.pages = self.shared = state.pages = SharedPages(block_cache)
        elif memory is not None and memory.is_paged:
            kind = PaddedPages if worker.padding else Pages
            self.pages = state.pages = kind(memory.blocks, memory.block_tokens)
        self.tracks = self.context_matters or self.pages is not None  # whether anything is kept
        self.base_sum = 0
        self.largest: list[tuple[int, int]] = []
        self.bases: dict[int, int] = {}

    def put(self, tokens: int) -> None:
        """Let a cache be there that does not grow."""
        if self.pages is not None:
            self.pages.put(tokens)

    def drop(self, tokens: int) -> None:
        """Free a cache that does not grow."""
        if self.pages is not None:
            self.pages.drop(tokens)

    def grow(self, request: int, tokens: int) -> None:
        """Let a request's cache of so many tokens, already in memory, grow from now on."""
        self.bases[request] = base = tokens - self.state.rounds
        if self.context_matters:
            self.base_sum += base
            heappush(self.largest, (-base, request))
        if self.pages is not None:
            self.pages.grow(base, request)

    def stop(self, request: int) -> None:
        """Free a cache that grows."""
        base = self.bases.pop(request)
        if self.context_matters:
            self.base_sum -= base
        if self.pages is not None:
            self.pages.stop(base, request)

    def contexts(self, active: int) -> tuple[int, int]:
        """Sum and maximum of the contexts in the next round, over the caches that grow."""
        if not self.context_matters:
            return 0, 0
        heap, bases = self.largest, self.bases
        while bases.get(heap[0][1]) != -heap[0][0]:
            heappop(heap)
        next_round = self.state.rounds + 1
        longest = next_round - heap[0][0]
        if self.padding:
            return active * longest, longest
        return self.base_sum + active * next_round, longest

    @property
    def held(self) -> int:
        """Blocks that caches fill now under paged memory."""
        return 0 if self.pages is None else self.pages.used

    def require_room(self, rounds: int) -> None:
        """Raise ``PolicyError`` unless memory holds the present caches after 0 or 1 rounds."""
        if not self.blocks:
            return
        pages, blocks = self.pages, self.blocks
        if pages is None:
            if self.state.blocks_set_aside > blocks:
                raise PolicyError(f"{self.state.blocks_set_aside} memory blocks of {blocks}")
        elif pages.used > blocks or pages.most_rounds(rounds) < rounds:
            more = " and a round more" if rounds else ""
            raise PolicyError(f"caches of {pages.used} memory blocks{more}, of {blocks}")


class Served(Protocol):
    """What is read and written of a worker's set of requests."""

    run_state: RunState
    view: View
    state: WorkerState
    steps: StepRecorder
    work: WorkRecorder
    cached: Sequence[int]
    tells_cached: bool

    def add_row(self, request: int, phase: int, first: int, last: int, tokens: int) -> None:
        """Note a row of work."""


class PrefixStays:
    """What a worker's set of requests does beyond counting blocks, where contents are kept."""

    def __init__(self, running_set: Served, pages: SharedPages) -> None:
        self.running_set = running_set
        self.pages = pages
        self.found: dict[int, int] = {}  # request -> hit tokens, of the last step's admissions
        # Request -> stay and place, of those that finished in the last step, planned ahead.
        self.left: dict[int, tuple[int, int]] = {}

    def admit(self, step: Step, new: Sequence[int], index: int) -> tuple[list[int], list[int]]:
        """Let requests process prompt tokens; those that are new have their clients. Prefills that
        have begun take blocks first, in the order of admission, then new requests in the order of
        the step: each finds what was stored before it. Returns the tokens that each computes, in
        the order of the step, and the requests whose prefill this completes."""
        requests, asked = list(map(whole, step.prefill)), step.tokens
        if asked is not None and len(asked) != len(requests):
            raise PolicyError(f"{len(asked)} numbers of tokens for {len(requests)} requests")
        places = {request: place for place, request in enumerate(requests)}
        partial = self.running_set.state.partial
        chunks = [0] * len(requests)
        self.found.clear()
        before = [partial.get(request, 0) for request in requests]
        for request in [each for each in partial if each in places]:
            place = places[request]
            self.pages.go_on_with_round(self.pages.places[request])
            chunks[place] = self._go_on(request, None if asked is None else asked[place])
            self.running_set.add_row(request, PREFILL, index, index, chunks[place])
        self.pages.go_on_with_round()
        for turn, request in enumerate(new):
            place = places[request]
            ask = None if asked is None else asked[place]
            chunks[place] = self._start(request, turn, ask, index)
            before[place] = self.found[request]
        if self.running_set.tells_cached:
            self.running_set.cached = before
        return chunks, [request for request in requests if request not in partial]

    def _go_on(self, request: int, asked: int | None) -> int:
        """Let a prefill that has begun go on; return its tokens."""
        running_set = self.running_set
        partial, run_state = running_set.state.partial, running_set.run_state
        done = partial[request]
        left = run_state.prompts[request] + run_state.yielded.get(request, 0) - done
        chunk = left if asked is None else chunk_of(request, asked, left)
        self.pages.extend(request, done, chunk)
        if chunk == left:
            del partial[request]
        else:
            partial[request] = done + chunk
        return chunk

    def _start(self, request: int, turn: int, asked: int | None, index: int) -> int:
        """Let a new request find what is stored, and compute some more; return those tokens."""
        running_set = self.running_set
        run_state, work = running_set.run_state, running_set.work
        due = run_state.prompts[request] + run_state.yielded.get(request, 0)
        hit = self.found[request] = self.pages.admit(request, due)
        left = due - hit
        # A policy that does not ask the cache may ask for tokens that are there: they are left out.
        chunk = left if asked is None else min(chunk_of(request, asked, due), left)
        self.pages.extend(request, hit, chunk)
        if chunk < left:
            running_set.state.partial[request] = hit + chunk
        stay = run_state.stays.get(request, 0)
        work.begin_stay(request, stay, hit, turn)
        if stay:
            running_set.add_row(request, PREFILL, index, index, chunk)
        else:
            work.prefill_step[request] = index
            work.prefill_tokens[request] = chunk
        return chunk

    def free(self, done: Iterable[int]) -> None:
        """Free the blocks of requests that are done, in the order of their admission."""
        cached, pages = self.running_set.view.cached, self.pages
        for request in sorted(done, key=pages.places.__getitem__):
            if pages.cache.ahead:
                stay = self.running_set.run_state.stays.get(request, 0)
                self.left[request] = (stay, pages.places[request])
            pages.release(request, cached(request))

    def begin_step(self, now_ns: int, step: Step) -> None:
        """Let what finished in the last step have its blocks again if a step was planned ahead;
        else they are free since then. Where no request begins, evictions go as blocks are
        wanted."""
        pages = self.pages
        pages.see(now_ns)
        if step.ahead:
            pages.hold_left()
        else:
            self.left.clear()
            pages.cache.left.clear()
        begun, gone = self.running_set.state.partial, step.preempt
        alone = all(each in begun and each not in gone for each in step.prefill)
        pages.cache.evict_one_by_one(alone)

    def evict_left(self, request: int) -> bool:
        """Free the blocks of a request that finished in the last step, if it has them still."""
        if request not in self.left:
            return False
        self._note_left(request, EARLY)
        self.pages.free_one_left(request)
        return True

    def evict_all_left(self) -> None:
        """Free what is left where a plan does nothing else: the next one knows all."""
        for request in list(self.left):
            self.evict_left(request)

    def end_step(self) -> None:
        """Note which requests had their blocks during a step, in spite of having finished."""
        for request in list(self.left):
            self._note_left(request, LATE)

    def _note_left(self, request: int, when: int) -> None:
        running_set, (stay, place) = self.running_set, self.left.pop(request)
        step, worker = len(running_set.steps), running_set.state.index
        running_set.work.end_stay(worker, request, stay, step, when - place)

    def evict(self, request: int, cached: int) -> None:
        """Free the blocks of a request that is evicted, and note when."""
        running_set, pages = self.running_set, self.pages
        place, state = pages.places[request], running_set.state
        yielded = running_set.view.generated(request)
        pages.release(request, cached, running_set.run_state.prompts[request] + yielded)
        stay = running_set.run_state.stays.get(request, 0)
        running_set.work.end_stay(state.index, request, stay, len(running_set.steps), place)


def chunk_of(request: int, tokens: int, left: int) -> int:
    """Return the tokens that a step asks for if they are within what is left of the prefill."""
    chunk = whole(tokens)
    if not 1 <= chunk <= left:
        raise PolicyError(f"{chunk} tokens of request {request}, which has {left} left to prefill")
    return chunk
