"""MC-SF: the shortest answer first while memory holds at every expected end (Jaillet et al.)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError, PolicyError
from orsched.common.scalars import require_number
from orsched.data.step import FINISH, Step, decode_rounds, evict, prefill_stage
from orsched.heuristics.batch_builder import UNLIMITED
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import ClairvoyantView, Information, Policy, PredictedView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.simulator.policy import View


_ROOM = 16  # caches for which there is room at first; it doubles


class FutureMemory:
    """Blocks that growing caches fill, at the rounds in which requests are expected to end.

    Rounds are counted from the start of the run. A cache has ``base + t`` tokens in round t, up to
    and including the round of its end, and is freed then. What all of them fill grows from one end
    to the next, so it is within the memory in every round if it is at every end. The caches are
    columns in the order of their ends, with what all fill at each of these, so that a question, an
    addition or a removal is a handful of operations on whole columns.
    """

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks, self.size = blocks, block_tokens
        self._end_of: dict[int, int] = {}  # request -> end
        self._requests: list[int] = []  # these three in the order of the ends
        self._ends: list[int] = []
        self._columns = np.zeros((3, _ROOM), np.int64)  # end, base, blocks filled at the end

    @property
    def first_end(self) -> int:
        """The first expected end; there is one."""
        return self._ends[0]

    def add(self, request: int, base: int, end: int, always: bool = True) -> bool:
        """Count a cache in, unless it does not fit and need not be; say whether it is in."""
        place = bisect_left(self._ends, end)
        own = self._filled_at(place, end) - (base + end) // -self.size
        filled = self._with(place, base)
        if not always and not self._within(own, filled):
            return False
        count = len(self._ends)
        if count == self._columns.shape[1]:
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        columns = self._columns
        if place < count:
            columns[:, place + 1 : count + 1] = columns[:, place:count]
            if self._ends[place] == end:  # of those that end with it
                columns[2, place + 1 : bisect_right(self._ends, end, place) + 1] = own
        columns[:, place] = end, base, own
        columns[2, :place] = filled
        self._ends.insert(place, end)
        self._requests.insert(place, request)
        self._end_of[request] = end
        return True

    def drop(self, request: int) -> None:
        """Count a cache out."""
        end = self._end_of.pop(request)
        place = self._requests.index(request, bisect_left(self._ends, end))
        columns, count = self._columns, len(self._ends)
        ends, _, filled = columns[:, : bisect_right(self._ends, end, place)]
        filled -= self._blocks(ends + columns[1, place])
        columns[:, place : count - 1] = columns[:, place + 1 : count]
        del self._ends[place], self._requests[place]

    def extend(self, moment: int) -> None:
        """Let those that were expected to end by a round, and have not, end in the next one."""
        late = bisect_right(self._ends, moment)
        ends, base, filled = self._columns[:, : len(self._ends)]
        self._end_of.update(dict.fromkeys(self._requests[:late], moment + 1))
        self._ends[:late] = [moment + 1] * late
        ends[:late] = moment + 1  # they stay before the others, whose ends are no earlier
        filled[: bisect_right(self._ends, moment + 1)] = self._blocks(base + (moment + 1)).sum()

    def _blocks(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the blocks of caches with so many tokens, rounded up."""
        return tokens if self.size == 1 else -(tokens // -self.size)

    def _filled_at(self, place: int, end: int) -> int:
        """Return the blocks that are filled in a round, before which that many caches end."""
        count = len(self._ends)
        if place == count:
            return 0
        if self._ends[place] == end:
            return int(self._columns[2, place])
        return int(self._blocks(self._columns[1, place:count] + end).sum())

    def _with(self, place: int, base: int) -> NDArray[np.int64]:
        """Return what is filled at the first so many ends with one more cache."""
        ends, _, filled = self._columns[:, :place]
        total: NDArray[np.int64] = filled + self._blocks(ends + base)
        return total

    def _within(self, own: int, filled: NDArray[np.int64]) -> bool:
        return own <= self.blocks and (not filled.size or int(filled.max()) <= self.blocks)


_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)
_ONE_ROUND = decode_rounds(1)


@dataclass(frozen=True)
class MarginParams:
    """Parameters of ``mc_sf``.

    Attributes:
        margin: share by which predicted lengths are increased (0.1: 10 %), rounded up, at most to
            the output limit; true lengths stay as they are.
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        require_number(self.margin, "margin", 0, 1000)


class ShortestThatFits(Policy):
    """Admits the fewest output tokens first, until the first that would not fit to the end.

    A request fits if the blocks of all that run and of those chosen before it, each as long as it
    is expected to be and no other request arriving, are within the memory at every expected end
    (Jaillet et al., arXiv 2502.07115, algorithm 1). Those admitted are prefilled at once, in
    stages within the prefill cap, and all decode together; nothing that runs makes way. The rule
    is asked again after every round, since a start that is one round later needs less beside
    those that end soon, unless the next request would not even fit for one round.

    Our reading, and choices where the paper is silent: ties go by arrival, then row; the first
    that does not fit is not passed over; a request that runs beyond its expected length is
    expected to end with its next token. Where the next round does not fit, the request that was
    admitted last is evicted; it keeps its tokens and is prefilled again with them. One that is
    expected not to fit is admitted alone. Memory that is set aside whole is counted as such. On a
    worker with clients the first that finds none ends the admission as well.
    """

    chunks = True
    name = "mc_sf"

    def __init__(self, params: MarginParams, information: Information) -> None:
        self.margin, self.information = params.margin, information
        self.heap: list[tuple[int, int, int]] = []  # length, arrival, request
        self.future: FutureMemory | None = None

    def length(self, view: View, request: int) -> int:
        """Return the true tokens, or the predicted ones with the margin, within the limit."""
        if isinstance(view, ClairvoyantView):
            return view.output_tokens[request]
        assert isinstance(view, PredictedView)
        predicted = view.predicted_tokens[request]
        return max(1, min(ceil(predicted * (1 + self.margin)), view.output_limit_tokens))

    def start(self, view: View) -> None:
        """Know the memory; raises ``InputError`` for a worker that pads."""
        worker = view.worker
        if worker.padding:
            raise InputError(
                f"{self.name} does not pad", field="padding", remedy="use static batching"
            )
        self.limit = worker.prefill_limit or UNLIMITED
        memory = worker.memory
        if memory is not None and memory.is_paged:
            self.future = FutureMemory(memory.blocks, memory.block_tokens)

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request."""
        heappush(self.heap, (self.length(view, request), view.arrival_ns[request], request))

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        if self.future is not None:
            self.future.drop(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        if self.future is not None:
            self.future.drop(request)
        self.on_arrival(view, request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.heap)

    def surrender(self) -> int:
        """Give up the request that is last."""
        last = max(self.heap)
        self.heap.remove(last)
        heapify(self.heap)
        return last[2]

    def decide(self, view: View) -> Step | None:
        """Return a prefill stage if someone is admitted, else rounds."""
        if view.prefilling:
            return self._chunk(view, next(iter(view.prefilling)))
        if self.future is not None and view.running:
            if (view.blocks_left(1) or 0) < 0:
                return self._evict(view)
            if self.future.first_end <= view.rounds:
                self.future.extend(view.rounds)
        stage = self._admit(view) if view.free_clients and self.heap else []
        if len(stage) == 1:
            return self._chunk(view, stage[0])
        if stage:
            return prefill_stage(stage)
        return self._rounds(view) if view.running else None

    def _chunk(self, view: View, request: int) -> Step:
        """Return a stage of one request: all that it has left, or what the cap allows."""
        left = view.to_prefill(request)
        tokens = None if left <= self.limit else [self.limit]
        return Step([request], tokens, None, ())

    def _admit(self, view: View) -> list[int]:
        """Return the requests of the next stage, no more than the cap holds."""
        stage: list[int] = []
        tokens, clients, blocks = self.limit, view.free_clients, view.blocks_free or 0
        while self.heap and len(stage) < clients:
            request = self.heap[0][2]
            tokens -= view.to_prefill(request)
            if stage and tokens < 0:
                break
            if self.future is not None:
                base, end = self._cache(view, request)
                if not self.future.add(request, base, end, not (stage or view.running)):
                    break
            elif view.worker.memory is not None:
                blocks -= view.blocks_of(request)
                if blocks < 0:
                    break
            stage.append(request)
            heappop(self.heap)
        return stage

    def _cache(self, view: View, request: int) -> tuple[int, int]:
        """Return base and expected end of the cache that a request would have, started now."""
        yielded = view.generated(request)
        left = max(self.length(view, request) - yielded, 1)
        if view.first_token == "prefill":
            left -= 1
        return view.to_prefill(request) - view.rounds, view.rounds + left

    def _evict(self, view: View) -> Step:
        """Return the eviction of one request; the next decision looks whether it is enough."""
        if len(view.running) == 1:
            raise PolicyError(
                f"request {next(iter(view.running))} does not fit into the worker's memory, even "
                "alone: give it more blocks"
            )
        return evict([next(reversed(view.running))])

    def _rounds(self, view: View) -> Step:
        """Return one round if the next request may fit after it, else as many as change nothing."""
        if not self.heap:
            return _UNTIL_EVENT
        if not view.free_clients:
            return _UNTIL_FINISH
        if self.future is None:
            return _UNTIL_EVENT
        request = self.heap[0][2]
        first = view.to_prefill(request) + (view.first_token != "prefill")
        free = view.blocks_left(1) or 0
        return _UNTIL_EVENT if first > free * self.future.size else _ONE_ROUND


MC_SF = PolicyMethod(
    "mc_sf",
    (Information.CLAIRVOYANT, Information.PREDICTED),
    "the shortest answer first while memory holds at every expected end (Jaillet et al.)",
    lambda instance, params, information, seed: ShortestThatFits(params, information),
    MarginParams,
)
