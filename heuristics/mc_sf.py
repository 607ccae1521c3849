"""MC-SF: the shortest answer first while memory holds at every expected end (Jaillet et al.)."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil
from typing import TYPE_CHECKING

from orsched.common.errors import InputError, PolicyError
from orsched.common.scalars import require_number
from orsched.data.step import FINISH, Step, decode_rounds, evict, prefill_stage
from orsched.heuristics.batch_builder import UNLIMITED
from orsched.heuristics.future_memory import FutureMemory
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import ClairvoyantView, Information, Policy, PredictedView

if TYPE_CHECKING:
    from orsched.simulator.policy import View

_UNTIL_EVENT = decode_rounds()
_UNTIL_FINISH = decode_rounds(until=FINISH)
_ONE_ROUND = decode_rounds(1)


@dataclass(frozen=True)
class MarginParams:
    """Parameters of ``mc_sf``.

    Attributes:
        margin: predicted lengths count as so much longer, 0.1 for 10 %, rounded up, at most as the
            output limit; true lengths count as they are.
    """

    margin: float = 0.0

    def __post_init__(self) -> None:
        require_number(self.margin, "margin", 0, 1000)


class ShortestThatFits(Policy):
    """Admits the fewest output tokens first, until the first that would not fit to the end.

    A request fits if the blocks of all that run and of those chosen before it, each as long as it
    is expected to be and nobody else coming, are within the memory at every expected end (Jaillet
    et al., arXiv 2502.07115, algorithm 1). Those admitted are prefilled at once, in
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

    # -- events ---------------------------------------------------------------------------

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

    # -- decisions ------------------------------------------------------------------------

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
