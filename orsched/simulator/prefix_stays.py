"""Stays on a worker with a prefix cache: how they begin with hits, and in which order they end."""

from __future__ import annotations

from operator import index as whole
from typing import TYPE_CHECKING, Protocol

from orsched.common.errors import PolicyError
from orsched.data.schedule import PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orsched.data.step import Step
    from orsched.simulator.policy import View, WorkerState
    from orsched.simulator.recorder import StepRecorder, WorkRecorder
    from orsched.simulator.run_state import RunState
    from orsched.simulator.shared_pages import SharedPages


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
    """What a worker's set of requests does beyond counting blocks, where contents are kept.

    Attributes:
        found: request -> tokens that it found in the cache, of those that the last step admitted.
    """

    def __init__(self, running_set: Served, pages: SharedPages) -> None:
        self.running_set = running_set
        self.pages = pages
        self.found: dict[int, int] = {}

    def admit(self, step: Step, new: Sequence[int], index: int) -> tuple[list[int], list[int]]:
        """Let requests process prompt tokens; those that are new have their clients.

        Prefills that have begun take blocks first, in the order of admission, then new requests in
        the order of the step: each finds what was stored before it. Returns the tokens that each
        computes, in the order of the step, and the requests whose prefill this completes.
        """
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
            chunks[place] = self._go_on(request, None if asked is None else asked[place])
            self.running_set.add_row(request, PREFILL, index, index, chunks[place])
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
            pages.release(request, cached(request))

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
