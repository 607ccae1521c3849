"""Slices on continuous batching (SCLS, section 7): stays of bounded length, balanced memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from orsched.columns import whole_number
from orsched.errors import InputError
from orsched.heuristics.slices.iteration import require_no_padding
from orsched.heuristics.slices.offloading import able
from orsched.policy import Information, Policy
from orsched.step import FINISH, UNTIL_EVENT, Step

if TYPE_CHECKING:
    from orsched.policy import View


@dataclass(frozen=True)
class ContinuousParams:
    """Parameters of slices on continuous batching.

    Attributes:
        slice_tokens: S, most tokens that a request yields before its place is reconsidered.
        renew: whether a request whose slice is over stays where it is while nobody waits for that
            worker and the next slice fits; else it always goes back.
    """

    slice_tokens: int = 128
    renew: bool = True

    def __post_init__(self) -> None:
        value = whole_number(self.slice_tokens, "slice_tokens", minimum=1)
        object.__setattr__(self, "slice_tokens", value)
        if type(self.renew) is not bool:
            raise InputError("must be true or false", field="renew")


class _Line:
    """One worker's part: who waits for it, what is set aside, and when slices are over."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.queue: deque[int] = deque()
        self.blocks: dict[int, int] = {}  # set aside, of those on the worker
        self.used = 0
        self.promised = 0  # to those who wait
        self.ends: dict[int, int] = {}  # round after which the slice is over
        self.heap: list[tuple[int, int]] = []
        self.joining: list[int] = []  # prefill not complete, or not yet taken note of


class ContinuousSlices(Policy):
    """Continuous batching in which a stay is estimated for a slice, not for the output limit.

    Each request that arrives, or whose slice is over, goes to the worker with the most free memory,
    what is promised to those who wait there taken off. Memory is set aside up to the end of the
    slice, so that more requests fit than with the output limit, and never too many.
    """

    name = "scls_continuous"
    information = Information.NONE
    many_workers = True

    def __init__(self, params: ContinuousParams | None = None) -> None:
        self.params = ContinuousParams() if params is None else params

    def start(self, view: View) -> None:
        """Take note of the workers, none of which may pad."""
        for each in view.workers:
            require_no_padding(each)
        self.lines = [_Line(each) for each in view.workers]
        self.limit = view.output_limit_tokens
        self.tokens = min(self.params.slice_tokens, self.limit)
        self.rounds = self.tokens - (view.first_token == "prefill")

    # -- events ---------------------------------------------------------------------------

    def on_arrival(self, view: View, request: int) -> None:
        """Choose a worker."""
        self._assign(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Free what was set aside."""
        self._free(self.lines[view.index], request)

    def on_preempt(self, view: View, request: int) -> None:
        """Choose a worker for the rest; what was set aside is free already."""
        self._assign(request)

    def _free(self, line: _Line, request: int) -> None:
        line.used -= line.blocks.pop(request)
        line.ends.pop(request, None)
        if request in line.joining:
            line.joining.remove(request)

    def _assign(self, request: int) -> None:
        """Let a request wait for the worker with the most free memory, or the fewest requests."""
        indices = range(len(self.lines)) if len(self.lines) == 1 else self._able(request)
        line = max((self.lines[i] for i in indices), key=self._free_memory)
        line.queue.append(request)
        line.promised += self._needs(line, request, self.tokens)

    def _able(self, request: int) -> list[int]:
        return list(able([line.view for line in self.lines], request))

    def _free_memory(self, line: _Line) -> tuple[int, int]:
        memory = line.view.worker.memory
        blocks = 0 if memory is None else memory.blocks - line.used - line.promised
        return blocks, -len(line.queue) - len(line.view.running)

    def _needs(self, line: _Line, request: int, tokens: int) -> int:
        """Return the blocks of a request after so many tokens more, at most the output limit."""
        memory = line.view.worker.memory
        if memory is None:
            return 0
        if not memory.is_paged:
            return line.view.blocks_of(request)
        view = line.view
        now = view.prompt_tokens[request] + view.generated(request)
        most = min(now + tokens, view.prompt_tokens[request] + self.limit)
        return min(memory.blocks, -(-most // memory.block_tokens))

    # -- decisions ------------------------------------------------------------------------

    def decide(self, view: View) -> Step | None:
        """Evict those whose slice is over, let requests join, decode."""
        line = self.lines[view.index]
        self._begin_slices(line)
        over = self._over(line)
        if over:
            return Step(preempt=over, decode=())
        requests, chunks = self._join(line)
        if requests:
            return Step(prefill=requests, tokens=chunks, decode=None if line.ends else ())
        if not line.ends:
            return None
        until = FINISH if line.queue else UNTIL_EVENT
        return Step(rounds=self._next_end(line) - view.rounds, until=until)

    def _begin_slices(self, line: _Line) -> None:
        """Take note of the prefills that the last step completed."""
        view = line.view
        for request in [r for r in line.joining if not view.to_prefill(r)]:
            line.joining.remove(request)
            self._end_at(line, request, view.rounds + self.rounds)

    def _end_at(self, line: _Line, request: int, end: int) -> None:
        line.ends[request] = end
        heappush(line.heap, (end, request))

    def _next_end(self, line: _Line) -> int:
        """Return the round after which the next slice is over; some slice is on."""
        heap = line.heap
        while line.ends.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def _over(self, line: _Line) -> list[int]:
        """Return the requests that have to leave; others get another slice in place."""
        leaving: list[int] = []
        while line.ends and self._next_end(line) <= line.view.rounds:
            _, request = heappop(line.heap)
            del line.ends[request]
            if not (self.params.renew and not line.queue and self._renew(line, request)):
                self._free(line, request)
                leaving.append(request)
        return leaving

    def _renew(self, line: _Line, request: int) -> bool:
        memory = line.view.worker.memory
        needs = self._needs(line, request, self.tokens)
        more = needs - line.blocks[request]
        if memory is not None and line.used + more > memory.blocks:
            return False
        line.used += more
        line.blocks[request] = needs
        self._end_at(line, request, line.view.rounds + self.tokens)
        return True

    def _join(self, line: _Line) -> tuple[list[int], list[int]]:
        """Return the requests of the next prefill and the tokens of each."""
        view = line.view
        budget = view.worker.prefill_limit
        requests, chunks = list(line.joining), []
        for request in requests:
            left = view.to_prefill(request)
            chunks.append(left if budget is None else min(left, budget))
        room = view.free_clients
        while line.queue and room and self._fits(line, line.queue[0]):
            left = view.to_prefill(line.queue[0])
            if budget is not None and sum(chunks) + left > budget:
                if requests:
                    break
                left = budget
            request = line.queue.popleft()
            self._admit(line, request)
            requests.append(request)
            chunks.append(left)
            room -= 1
        return requests, chunks

    def _fits(self, line: _Line, request: int) -> bool:
        memory = line.view.worker.memory
        if memory is None or not line.blocks:
            return True
        return line.used + self._needs(line, request, self.tokens) <= memory.blocks

    def _admit(self, line: _Line, request: int) -> None:
        needs = self._needs(line, request, self.tokens)
        line.promised -= needs
        line.blocks[request] = needs
        line.used += needs
        line.joining.append(request)
