"""Slices on continuous batching (SCLS, section 7): stays of bounded length, balanced memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from orsched.common.errors import InputError
from orsched.common.scalars import require_one_of, set_whole
from orsched.data.step import FINISH, FOREVER, UNTIL_EVENT, Step, decode_rounds
from orsched.heuristics.batch_builder import BatchBuilder
from orsched.heuristics.pang import FirstComeFirstServed
from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.scls.offloading import able
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from orsched.simulator.policy import View


@dataclass(frozen=True)
class IterationParams:
    """Parameters of the iteration-level baseline.

    Attributes:
        parallel: most requests that a worker serves at once; None: its clients.
    """

    parallel: int | None = None

    def __post_init__(self) -> None:
        set_whole(self, "parallel", minimum=1, optional=True)


class IterationLevel(FirstComeFirstServed):
    """Let requests join and leave between rounds, in order of arrival (ILS of SCLS: Orca, FastGen).

    What joins is prefilled beside a round of those that decode. Memory is set aside for the output
    limit of each request, under paged memory as well: no request is ever evicted."""

    name = "ils"
    information = Information.NONE

    def __init__(self, params: IterationParams | None = None) -> None:
        super().__init__()
        self.parallel = (IterationParams() if params is None else params).parallel

    def start(self, view: View) -> None:
        """Refuse a worker that pads."""
        require_no_padding(view)
        self.batch: BatchBuilder = BatchBuilder(view)

    def decide(self, view: View) -> Step | None:
        """Let requests join if there is room, else decode until there may be."""
        if view.prefilling:
            return self.batch.next_part(None)
        stage = self._joining(view) if self.queue else []
        if stage:
            return self.batch.prefill(stage, None if view.running else ())
        if view.running:
            return decode_rounds(until=FINISH if self.queue else UNTIL_EVENT)
        return None

    def _joining(self, view: View) -> list[int]:
        clients = view.free_clients
        if self.parallel is not None:
            clients = min(clients, self.parallel - len(view.running))
        stage = self.batch.take(self.queue, clients)
        if not stage and not view.running:
            stage = [self.queue.popleft()]  # alone, it may use all that there is
        return stage


def require_no_padding(view: View) -> None:
    """Raise ``InputError`` for a worker whose engine pads: it is one for static batches."""
    if view.worker.padding:
        raise InputError(
            f"{view.worker.name} pads its batches",
            field="padding",
            remedy="take static batches (sls, scls), or a worker with padding=False",
        )


RENEWALS = ("fits", "idle", "never")


@dataclass(frozen=True)
class ContinuousParams:
    """Parameters of slices on continuous batching.

    Attributes:
        slice_tokens: S, most tokens that a request yields before its place is reconsidered.
        renew: when a request whose slice is over gets another one where it is, and keeps its cache:
            fits (if memory holds the next slice), idle (if, besides, no request waits for that
            worker) or never.
    """

    slice_tokens: int = 128
    renew: str = "fits"

    def __post_init__(self) -> None:
        set_whole(self, "slice_tokens", minimum=1)
        require_one_of(self.renew, "renew", RENEWALS)


class _WorkerQueue:
    """One worker's part: its queue, what is set aside, and when slices are over."""

    def __init__(self, view: View) -> None:
        self.view = view
        memory = view.worker.memory
        self.memory = memory
        self.blocks = 0 if memory is None else memory.blocks
        self.block_tokens = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.queue: deque[tuple[int, int, int]] = deque()  # request, its needs, tokens to prefill
        self.needs: dict[int, int] = {}  # set aside, of those on the worker
        self.used = 0
        self.ends: dict[int, int] = {}  # round after which the slice is over
        self.heap: list[tuple[int, int]] = []
        self.joining: list[int] = []  # prefill not complete, or not yet recorded


class ContinuousSlices(Policy):
    """Continuous batching in which a stay is estimated for a slice, not for the output limit.

    Each request that arrives, or whose slice is over, goes to the worker with the most free memory
    (without a memory model the fewest requests), less what is promised to those that wait there.
    Memory is set aside up to the end of the slice: more requests fit so, and never too many.
    """

    name = "scls_continuous"
    information = Information.NONE
    many_workers = True
    waits_for_workers = True
    assigns = True
    chunks = True

    def __init__(self, params: ContinuousParams | None = None) -> None:
        self.params = ContinuousParams() if params is None else params

    def start(self, view: View) -> None:
        """Record the workers, none of which may pad."""
        for each in view.workers:
            require_no_padding(each)
        self.lines = [_WorkerQueue(each) for each in view.workers]
        self.loads = [-line.blocks for line in self.lines]  # set aside and promised, less the room
        self.alike = len({line.memory for line in self.lines}) == 1
        self.roused: set[int] = set()  # idle workers that evicted requests were given to
        self.limit = view.output_limit_tokens
        self.tokens = min(self.params.slice_tokens, self.limit)
        self.rounds = self.tokens - (view.first_token == "prefill")

    # -- events ---------------------------------------------------------------------------

    def on_arrival(self, view: View, request: int) -> int:
        """Choose a worker."""
        return self._assign(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Free what was set aside."""
        self._free(self.lines[view.index], request)

    def on_preempt(self, view: View, request: int) -> None:
        """Choose a worker for the rest; what was set aside is free, unless the worker was lost."""
        line = self.lines[view.index]
        if request in line.needs:
            self._free(line, request)
        index = self._assign(view, request)
        if not self.lines[index].needs:
            self.roused.add(index)

    def idle_may_act(self) -> bool:
        """Whether an evicted request waits for an idle worker; the only one gets all arrivals."""
        return len(self.lines) == 1 or bool(self.roused)

    def _free(self, line: _WorkerQueue, request: int) -> None:
        needs = line.needs.pop(request)
        line.used -= needs
        self.loads[line.view.index] -= needs
        line.ends.pop(request, None)
        if request in line.joining:
            line.joining.remove(request)

    def _assign(self, view: View, request: int) -> int:
        """Queue a request at the least loaded worker that can hold it; return that one."""
        loads = self.loads
        if self.alike:
            index = loads.index(min(loads))
        else:
            able_ones = able([line.view for line in self.lines], request)
            index = min(able_ones, key=loads.__getitem__)
        line = self.lines[index]
        left = view.to_prefill(request)
        needs = self._needs(line, request, left)
        line.queue.append((request, needs, left))
        loads[index] += needs
        return index

    def _needs(self, line: _WorkerQueue, request: int, tokens: int) -> int:
        """Return the blocks of a request of these tokens at its slice's end, 1 without memory."""
        size = line.block_tokens
        if not size:
            return 1 if line.memory is None else line.view.blocks_of(request)
        most, limit = tokens + self.tokens, line.view.prompt_tokens[request] + self.limit
        needs = -(-(most if most < limit else limit) // size)
        return needs if needs < line.blocks else line.blocks

    # -- decisions ------------------------------------------------------------------------

    def decide(self, view: View) -> Step | None:
        """Evict those whose slice is over, let requests join, decode."""
        line = self.lines[view.index]
        self.roused.discard(view.index)
        if line.joining:
            self._begin_slices(line)
        if line.heap and line.heap[0][0] <= view.rounds:
            over = self._over(line)
            if over:
                return Step(preempt=over, decode=())
        if line.joining or (line.queue and self._first_fits(line)):
            requests, chunks = self._join(line)
            if requests:
                return Step(prefill=requests, tokens=chunks, decode=None if line.ends else ())
        if not line.ends:
            return None
        until = FINISH if line.queue else UNTIL_EVENT
        return Step(rounds=self._next_end(line) - view.rounds, until=until)

    def _begin_slices(self, line: _WorkerQueue) -> None:
        """Record the prefills that the last step completed."""
        view, joining = line.view, line.joining
        end, line.joining = view.rounds + self.rounds, []
        for request in joining:
            if view.to_prefill(request):
                line.joining.append(request)
            else:
                line.ends[request] = end
                heappush(line.heap, (end, request))

    def _next_end(self, line: _WorkerQueue) -> int:
        """Return the round after which the next slice is over; some slice is on."""
        heap = line.heap
        while line.ends.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0]

    def _over(self, line: _WorkerQueue) -> list[int]:
        """Return the requests that have to leave; others get another slice in place."""
        heap, ends, now = line.heap, line.ends, line.view.rounds
        leaving: list[int] = []
        may_stay = self._may_stay(line)
        while heap and heap[0][0] <= now:
            end, request = heappop(heap)
            if ends.get(request) != end:
                continue  # it is done
            del ends[request]
            if may_stay and self._renew(line, request):
                ends[request] = later = now + self.tokens
                heappush(heap, (later, request))
            else:
                self._free(line, request)
                leaving.append(request)
        return leaving

    def _may_stay(self, line: _WorkerQueue) -> bool:
        renew = self.params.renew
        return renew == "fits" or (renew == "idle" and not line.queue)

    def _renew(self, line: _WorkerQueue, request: int) -> bool:
        """Set the memory of another slice aside if there is so much."""
        view = line.view
        tokens = view.prompt_tokens[request] + view.generated(request)
        needs = self._needs(line, request, tokens)
        more = needs - line.needs[request]
        if line.memory is not None and line.used + more > line.blocks:
            return False
        line.used += more
        self.loads[view.index] += more
        line.needs[request] = needs
        return True

    def _first_fits(self, line: _WorkerQueue) -> bool:
        """Whether there are a client and memory for the first that waits; alone, any one fits."""
        if not line.needs:
            return True
        if line.memory is not None and line.used + line.queue[0][1] > line.blocks:
            return False
        return line.view.free_clients > 0

    def _join(self, line: _WorkerQueue) -> tuple[list[int], list[int]]:
        """Return the requests of the next prefill and the tokens of each."""
        view, queue = line.view, line.queue
        cap = view.worker.prefill_limit
        budget = FOREVER if cap is None else cap
        requests = list(line.joining)
        chunks = [min(view.to_prefill(request), budget) for request in requests]
        budget -= sum(chunks)
        room = view.free_clients
        while queue and room and budget > 0 and self._first_fits(line):
            request, needs, left = queue[0]
            if left > budget:
                if requests:
                    break
                left = budget
            queue.popleft()
            line.needs[request] = needs
            line.used += needs
            line.joining.append(request)
            requests.append(request)
            chunks.append(left)
            budget -= left
            room -= 1
        return requests, chunks


ILS = PolicyMethod(
    "ils",
    (Information.NONE,),
    "continuous batching that sets memory aside for the output limit (SCLS's baseline)",
    lambda instance, params, information, seed: IterationLevel(params),
    IterationParams,
    dispatch="round_robin",
)


SCLS_CONTINUOUS = PolicyMethod(
    "scls_continuous",
    (Information.NONE,),
    "continuous batching in slices, on the worker with the most free memory (SCLS, section 7)",
    lambda instance, params, information, seed: ContinuousSlices(params),
    ContinuousParams,
    many_workers=True,
    rounds_at_once=lambda params: params.slice_tokens,
)
