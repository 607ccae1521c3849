"""Serving requests in a given order, whatever has become of the plan."""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from orsched.common.errors import PolicyError
from orsched.data.step import FINISH, Step, decode_rounds, evict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.simulator.policy import View

_UNLIMITED = 2**62
_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)


class InOrder:
    """One worker's requests: prefill first, in the order of a plan, else decode.

    Memory is set aside as the view says, under paged memory as well; what is longer than a stage
    may hold is prefilled in chunks. Where caches fill the memory nevertheless, the last admitted
    request is evicted.

    Args:
        stages: the step of the plan in which each request starts; below 0 for those that were on
            the worker before.
        whole: whether a stage of the plan waits until there are clients for all of it.
    """

    def __init__(self, stages: Sequence[int], whole: bool = False) -> None:
        self.stages, self.whole = stages, whole
        self.waiting: dict[int, list[int]] = {}

    def put(self, request: int) -> None:
        """Queue a request that has arrived; one that waits already stays where it is."""
        group = self.waiting.setdefault(self.stages[request], [])
        if request not in group:
            insort(group, request)

    def _remove(self, request: int) -> None:
        stage = self.stages[request]
        self.waiting[stage].remove(request)
        if not self.waiting[stage]:
            del self.waiting[stage]

    def surrender(self, view: View, most: int) -> list[int]:
        """Give up the first that wait and that another worker can hold, at most that many."""
        memory = view.worker.memory
        given: list[int] = []
        for request in [each for stage in sorted(self.waiting) for each in self.waiting[stage]]:
            too_long = memory is not None and view.blocks_of(request) > memory.blocks
            if too_long or len(given) >= most:
                break
            self._remove(request)
            given.append(request)
        return given

    def decide(self, view: View) -> Step | None:
        """Return the next step, None if there is no request."""
        begun = [request for request in view.running if view.to_prefill(request)]
        chunks = self._chunks(view, begun)
        if chunks:
            return Step(prefill=list(chunks), tokens=list(chunks.values()), decode=())
        if not view.running:
            return None
        if not begun and self._holds(view, dict.fromkeys(view.running, 1)):
            return _UNTIL_FINISH if self.waiting and not view.free_clients else _UNTIL_EVENT
        if len(view.running) == 1:
            raise PolicyError(f"request {next(iter(view.running))} does not fit into memory")
        return evict([next(reversed(view.running))])

    def _next(self, view: View) -> list[int]:
        """Return who may be admitted as far as there is memory."""
        free, found = view.free_clients, list[int]()
        for stage in sorted(self.waiting):
            if len(found) == free:
                break
            more = [*found, *self.waiting[stage]]
            if self.whole and len(more) > free and stage >= 0 and (found or view.running):
                break
            found = more[:free]
        return found

    def _chunks(self, view: View, begun: list[int]) -> dict[int, int]:
        """Return request -> tokens of the next prefill stage: what was begun, then what waits."""
        cap, padding = view.worker.prefill_limit, view.worker.padding
        left = _UNLIMITED if cap is None else cap
        chunks: dict[int, int] = {}
        longest = 0
        admitted: list[int] = []
        for request in [*begun, *self._next(view)]:
            due = view.to_prefill(request)
            longest = max(longest, due)
            used = longest * (len(chunks) + 1) if padding else sum(chunks.values()) + due
            if used > left and chunks:
                break
            if not self._holds(view, {**chunks, request: min(due, left)}):
                break
            if request not in view.running:
                if not self._has_room(view, [*admitted, request]):
                    break
                self._remove(request)
                admitted.append(request)
            chunks[request] = min(due, left)
            if used > left:
                break
        return chunks

    def _has_room(self, view: View, admitted: list[int]) -> bool:
        """Whether what is set aside for these fits beside what is; one alone may try."""
        free, memory = view.blocks_free, view.worker.memory
        if memory is None or free is None or (len(admitted) == 1 and not view.running):
            return True
        needed = [view.blocks_of(request) for request in admitted]
        if view.worker.padding and memory.is_paged:
            needed += [view.blocks_of(request) for request in view.running]
            return max(needed) * len(needed) <= memory.blocks
        return sum(needed) <= free

    def _holds(self, view: View, more: dict[int, int]) -> bool:
        """Whether paged memory holds all caches when some have grown by this many tokens."""
        memory = view.worker.memory
        if memory is None or not memory.is_paged:
            return True
        requests = view.running.keys() | more
        tokens = [view.cached(request) + more.get(request, 0) for request in requests]
        if view.worker.padding:
            tokens = [max(tokens)] * len(tokens)
        return sum(-(-each // memory.block_tokens) for each in tokens) <= memory.blocks
