"""The requests on a worker: admission, prefill, decoding, pauses, evictions and finishes."""

from __future__ import annotations

from heapq import heappop, heappush
from operator import index as whole
from typing import TYPE_CHECKING

from orsched.common.errors import PolicyError
from orsched.common.units import NEVER
from orsched.costs import knows_cached
from orsched.data.schedule import DECODE, INVALID, PREFILL
from orsched.simulator.caches import PrefixStays, chunk_of
from orsched.simulator.recorder import StepRecorder
from orsched.simulator.run_state import DONE, SERVED, WAITING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.simulator.caches import Caches
    from orsched.simulator.policy import View
    from orsched.simulator.recorder import WorkRecorder
    from orsched.simulator.run_state import RunState

_REQUEST_BITS = 32
_REQUEST_MASK = 2**_REQUEST_BITS - 1


class RunningSet:
    """Who is on the worker, and in which part of a request's life: one whose prefill is not
    complete is in ``state.partial``, one that decodes in ``state.origin``, one that is done and
    held in ``state.held``, one that could decode but is left out in ``state.paused``. Finishes are
    packed as (round, request); those of requests that paused or left since are stale. ``cached``
    has the tokens of its request in the cache before each chunk of the last step that prefilled;
    empty where all are 0, or where the cost model is not told."""

    def __init__(
        self,
        instance: Instance,
        run_state: RunState,
        view: View,
        caches: Caches,
        work: WorkRecorder,
    ) -> None:
        self.run_state = run_state
        self.view = view
        self.state = view._state  # the executor writes what views show
        self.caches = caches
        self.steps = StepRecorder()
        self.work = work
        self.blocks = view._blocks
        clients = self.state.worker.clients
        self.free_heap = list(range(clients))
        self.in_heap = bytearray(b"\1") * clients
        self.finishes: list[int] = []
        self.stale = 0
        self.paused = self.state.paused
        self.fresh: list[int] = []  # decode from the next round on, without a row of work yet
        self.later_rows: dict[int, int] = {}  # first step of open decode rows that are not plain
        self.last_round_step = -1
        self.cached: Sequence[int] = ()
        self.tells_cached = knows_cached(self.state.worker.cost)
        self.prefix_stays = None if caches.shared is None else PrefixStays(self, caches.shared)

    # -- admission and prefill ------------------------------------------------------------

    def admit(self, step: Step, index: int) -> tuple[list[int], list[int]]:
        """Let requests process prompt tokens, on free clients if they are new. Returns the tokens
        of each, and the requests whose prefill this completes."""
        requests, partial = list(map(whole, step.prefill)), self.state.partial
        prompts, yielded, pages = self.run_state.prompts, self.run_state.yielded, self.caches.pages
        if self.prefix_stays is not None:
            new = self._new(requests)
            self._seat(new, step.clients)
            return self.prefix_stays.admit(step, new, index)
        self.cached = ()
        if step.tokens is None and not partial:  # whole prefills, all of them new
            self._seat(requests, step.clients, index)
            chunks = list(map(prompts.__getitem__, requests))
            if yielded:
                for place, request in enumerate(requests):
                    chunks[place] += yielded.get(request, 0)
            if pages is not None:
                for chunk in chunks:
                    pages.put(chunk)
            return chunks, requests
        self._seat(self._new(requests) if partial else requests, step.clients)
        if self.tells_cached and partial:
            self.cached = [partial.get(request, 0) for request in requests]
        asked, work, stays = step.tokens, self.work, self.run_state.stays
        if asked is not None and len(asked) != len(requests):
            raise PolicyError(f"{len(asked)} numbers of tokens for {len(requests)} requests")
        chunks, completed = [], []
        for place, request in enumerate(requests):
            done = partial.get(request, 0)
            left = prompts[request] + yielded.get(request, 0) - done
            chunk = left if asked is None else chunk_of(request, asked[place], left)
            chunks.append(chunk)
            if chunk == left:
                completed.append(request)
                if done:
                    del partial[request]
            else:
                partial[request] = done + chunk
            if pages is not None:
                if done:
                    pages.drop(done)
                pages.put(done + chunk)
            if work.prefill_step[request] < 0 and (not stays or request not in stays):
                work.prefill_step[request] = index
                work.prefill_tokens[request] = chunk
            else:
                self.add_row(request, PREFILL, index, index, chunk)
        return chunks, completed

    def _new(self, requests: list[int]) -> list[int]:
        """Return those that are not on the worker yet; the others must be in their prefill."""
        running, partial = self.state.running, self.state.partial
        if len(set(requests)) < len(requests):
            raise PolicyError("a request appears twice in one step")
        for request in requests:
            if request in running and request not in partial:
                raise PolicyError(f"the prefill of request {request} is complete")
        return [request for request in requests if request not in running]

    def _seat(
        self, requests: list[int], clients: Sequence[int] | None, step: int | None = None
    ) -> None:
        """Put new requests on clients, checking each; ``step`` is one that prefills them whole."""
        if clients is None:
            clients = self._lowest_free(len(requests))
        elif len(clients) != len(requests):
            raise PolicyError(f"{len(clients)} clients for {len(requests)} requests")
        else:
            clients = list(map(whole, clients))
        state, run_state, work, blocks = self.state, self.run_state, self.work, self.blocks
        status, taken, stays = run_state.status, state.client_request, run_state.stays
        n, index, future = len(status), state.index, run_state.next_arrival_ns < NEVER
        future |= run_state.follows
        for place, request in enumerate(requests):
            client = clients[place]
            if not 0 <= request < n:
                raise PolicyError(f"request {request} does not exist")
            if status[request]:
                raise PolicyError(f"request {request} was prefilled before")
            if future and run_state.arrivals[request] > state.now_ns:
                raise PolicyError(f"request {request} has not arrived")
            if not 0 <= client < len(taken) or taken[client] >= 0:
                raise PolicyError(f"client {client} does not exist or is busy")
            status[request] = SERVED
            taken[client] = request
            state.running[request] = client
            if blocks is not None:
                state.blocks_set_aside += blocks[request]
            if not stays or request not in stays:
                work.client[request] = client
                if index:
                    work.worker[request] = index
                if step is not None:
                    work.prefill_step[request] = step
            elif step is not None:
                tokens = run_state.prompts[request] + run_state.yielded.get(request, 0)
                work.add(index, request, client, PREFILL, step, step, tokens, stays[request])
        state.free_clients -= len(requests)

    def _lowest_free(self, count: int) -> list[int]:
        taken, heap, in_heap = self.state.client_request, self.free_heap, self.in_heap
        if count > self.state.free_clients:
            raise PolicyError(f"{count} requests for {self.state.free_clients} free clients")
        found: list[int] = []
        while count:
            client = heappop(heap)
            in_heap[client] = 0
            if taken[client] < 0:
                found.append(client)
                count -= 1
        return found

    def activate(self, completed: Sequence[int]) -> list[int]:
        """Let requests decode whose prefill is complete; return those that are done by it."""
        state, run_state, caches = self.state, self.run_state, self.caches
        first, yielded = run_state.first_from_prefill, run_state.yielded
        rounds, origins = state.rounds, state.origin
        done: list[int] = []
        for request in completed:
            tokens = yielded.pop(request, 0) + first if yielded else first
            origins[request] = origin = rounds - tokens
            output = run_state.outputs[request]
            if tokens < output:
                heappush(self.finishes, (origin + output) << _REQUEST_BITS | request)
                self.fresh.append(request)
            else:
                done.append(request)
            if caches.tracks:
                caches.grow(request, run_state.prompts[request] + tokens - first)
        if first and run_state.on_first_token is not None:
            for request in completed:
                if origins[request] == rounds - 1:
                    run_state.on_first_token(self.view, request)
        return done

    # -- rounds ---------------------------------------------------------------------------

    def choose(self, decode: Sequence[int] | None) -> None:
        """Let all requests whose prefill is complete decode, or these only."""
        if decode is None:
            if self.paused:
                for request in list(self.paused):
                    self._resume(request)
            return
        origin = self.state.origin
        wanted = dict.fromkeys(map(whole, decode))
        if len(wanted) < len(decode):
            raise PolicyError("a request appears twice in one step")
        for request in wanted:
            if request not in origin and request not in self.paused:
                raise PolicyError(
                    f"request {request} is not on the worker, or its prefill is not complete"
                )
        for request in [request for request in origin if request not in wanted]:
            self._pause(request)
        for request in wanted:
            if request in self.paused:
                self._resume(request)

    def _pause(self, request: int) -> None:
        self._stop_decoding(request)
        self.paused[request] = None
        self.caches.put(self.view.cached(request))

    def _resume(self, request: int) -> None:
        cached = self.view.cached(request)
        del self.paused[request]
        self._decode_on(request, cached)

    def _decode_on(self, request: int, cached: int) -> None:
        """Let a request decode from the next round on that has so many tokens in its cache."""
        state, run_state = self.state, self.run_state
        origin = state.origin[request] = state.rounds - run_state.yielded.pop(request, 0)
        heappush(self.finishes, (origin + run_state.outputs[request]) << _REQUEST_BITS | request)
        self.fresh.append(request)
        if self.caches.tracks:
            self.caches.grow(request, cached)

    def _stop_decoding(self, request: int) -> None:
        """Take a request that is not done out of the rounds; what it has yielded is kept."""
        state = self.state
        tokens = state.rounds - state.origin.pop(request)
        if tokens:
            self.run_state.yielded[request] = tokens
        self.stale += 1
        if self.caches.tracks:
            self.caches.stop(request)
        if request in self.fresh:
            self.fresh.remove(request)
        else:
            self._close_row(request)

    def next_finish(self) -> int:
        """Return the round after which the next request is done; some request decodes."""
        finishes = self.finishes
        while self.stale and finishes and self._is_stale(finishes[0]):
            heappop(finishes)
            self.stale -= 1
        return finishes[0] >> _REQUEST_BITS

    def _is_stale(self, key: int) -> bool:
        request = key & _REQUEST_MASK
        origin = self.state.origin.get(request)
        return origin is None or origin + self.run_state.outputs[request] != key >> _REQUEST_BITS

    def end_early(self, request: int, tokens: int) -> None:
        """Let a request that decodes be done with fewer tokens than were taken for granted."""
        heappush(self.finishes, (self.state.origin[request] + tokens) << _REQUEST_BITS | request)
        self.stale += 1

    def open_rows(self) -> None:
        """After a run of rounds: let those that are new in it have a row, and tell first tokens."""
        self.last_round_step = index = len(self.steps.end_ns) - 1
        fresh, stays = self.fresh, self.run_state.stays
        if not fresh:
            return
        self.fresh = []
        first_step = self.work.first_step
        for request in fresh:
            if first_step[request] < 0 and (not stays or request not in stays):
                first_step[request] = index
            else:
                self.later_rows[request] = index
        hook = self.run_state.on_first_token
        if hook is not None and not self.run_state.first_from_prefill:
            for request in fresh:
                if request not in self.later_rows or self._never_decoded(request, index):
                    hook(self.view, request)

    def _never_decoded(self, request: int, index: int) -> bool:
        """Whether a request had no token before the run of rounds that is the last step."""
        return self.state.origin[request] == self.state.rounds - self.steps.rounds[index]

    def take_finishes(self, hold: bool, done: Sequence[int] = ()) -> bool:
        """Let the requests go, or be held, that have all their tokens; say if there were any. Those
        that a prefill has now completed are ``done`` otherwise: what is left of them in the queue
        is from an earlier stay."""
        state, finishes = self.state, self.finishes
        border = (state.rounds + 1) << _REQUEST_BITS
        any_finished = False
        while finishes and finishes[0] < border:
            key = heappop(finishes)
            request = key & _REQUEST_MASK
            if self.stale and (request in done or self._is_stale(key)):
                self.stale -= 1
                continue
            any_finished = True
            if self.later_rows:
                self._close_row(request)
            else:
                self.work.last_step[request] = self.last_round_step
            if hold:
                state.held[request] = state.origin.pop(request)
                self.later_rows[request] = len(self.steps)
            else:
                del state.origin[request]
                self._finish(request)
        return any_finished

    # -- leaving --------------------------------------------------------------------------

    def free_blocks(self, done: Sequence[int], decoding: bool) -> None:
        """Free the shared blocks of all that are done now, before they go one by one. Those that a
        prefill has now completed are ``done``; ``decoding``: rounds have passed."""
        assert self.prefix_stays is not None
        border, some = (self.state.rounds + 1) << _REQUEST_BITS, list(done)
        popped = []
        while decoding and self.finishes and self.finishes[0] < border:
            popped.append(heappop(self.finishes))
            request = popped[-1] & _REQUEST_MASK
            if request not in some and not self._is_stale(popped[-1]):
                some.append(request)
        for key in popped:
            heappush(self.finishes, key)
        self.prefix_stays.free(some)

    def finish_at_once(self, requests: Sequence[int]) -> None:
        """Let requests go that are done by their prefill."""
        for request in requests:
            del self.state.origin[request]
            self._finish(request)

    def release_held(self) -> None:
        """Let the requests go that were held in a static batch, with their invalid tokens."""
        state = self.state
        if self.prefix_stays is not None:
            self.prefix_stays.free(state.held)
        for request in list(state.held):
            if self.later_rows[request] < len(self.steps):
                self._close_row(request, INVALID)
            else:
                del self.later_rows[request]
            del state.held[request]
            self._finish(request)

    def _finish(self, request: int) -> None:
        """Free the client, blocks and cache of a request that is done."""
        run_state = self.run_state
        if self.caches.tracks:
            self.caches.stop(request)
        client = self.leave(request, DONE)
        run_state.left -= 1
        if run_state.follows:
            run_state.finished(request, self.state.now_ns)
        if run_state.most is not None:
            run_state.ended.append(self.state.now_ns)
        if run_state.on_finish is not None:
            run_state.on_finish(self.view, request, client)

    def leave(self, request: int, status: int) -> int:
        """Free a request's client and the blocks that are set aside; return the client."""
        state = self.state
        self.run_state.status[request] = status
        client = state.running.pop(request)
        state.client_request[client] = -1
        state.free_clients += 1
        if not self.in_heap[client]:
            self.in_heap[client] = 1
            heappush(self.free_heap, client)
        if self.blocks is not None:
            state.blocks_set_aside -= self.blocks[request]
        return client

    def evict(self, requests: Sequence[int]) -> None:
        """Let requests lose their caches and wait again."""
        state, run_state = self.state, self.run_state
        for request in map(whole, requests):
            if self.prefix_stays is not None and self.prefix_stays.evict_left(request):
                continue
            if request not in state.running:
                raise PolicyError(f"request {request} is not on the worker: it cannot be evicted")
            if self.prefix_stays is not None:
                self.prefix_stays.evict(request, self.view.cached(request))
            if request in state.origin:
                self._stop_decoding(request)
            else:
                self.caches.drop(self.view.cached(request))
                state.partial.pop(request, None)
                self.paused.pop(request, None)
            self.leave(request, WAITING)
            run_state.stays[request] = run_state.stays.get(request, 0) + 1
            if run_state.on_preempt is not None:
                run_state.on_preempt(self.view, request)

    # -- rows of work ---------------------------------------------------------------------

    def _close_row(self, request: int, phase: int = DECODE) -> None:
        """End a request's row of rounds at the last step that had any."""
        first = self.later_rows.pop(request, None)
        if first is None:
            self.work.last_step[request] = self.last_round_step
        else:
            self.add_row(request, phase, first, self.last_round_step, 1)

    def add_row(self, request: int, phase: int, first: int, last: int, tokens: int) -> None:
        """Note a row of work."""
        state = self.state
        client, stay = state.running[request], self.run_state.stays.get(request, 0)
        self.work.add(state.index, request, client, phase, first, last, tokens, stay)
