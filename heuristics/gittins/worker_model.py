"""Parameters of the Gittins policy, and a worker as it keeps it: requests, blocks, pace."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from heapq import heappop, heappush
from math import expm1, inf, log
from typing import TYPE_CHECKING, TypeAlias

from orsched.common.columns import whole_number
from orsched.common.scalars import require_number, require_one_of
from orsched.common.units import MAX_TOKENS, NS_PER_S, seconds_to_ns
from orsched.heuristics.gittins.lengths import Lengths, OwnLengths
from orsched.heuristics.prices import Pace, Prices

if TYPE_CHECKING:
    from orsched.simulator.policy import View


INDICES = ("gittins", "serpt")

_RANGES = {
    "aging": (0.0, 1e9),
    "gate": (1e-6, 1e9),
    "gate_aging": (0.0, 1e9),
    "window_s": (1e-3, 1e9),
    "reserve": (0.0, 1e3),
    "batch_weight": (1e-6, 1.0),
    "ttft_s": (0.0, 1e9),
    "boost_s": (1e-3, 1e9),
    "crowd": (1e-3, 1e9),
}
OPTIONAL = ("ttft_s", "boost_s", "crowd")  # None: what they are for does not happen

OVERTAKEN = 2.0  # by those that come within so many times ``ttft_s`` after it


LEAST_SHARE = 0.25  # of its prompt tokens a step keeps this share, however many decode


@dataclass(frozen=True)
class GittinsParams:
    """Parameters of ``gittins``; the defaults are one set for all workloads.

    Attributes:
        index: what a waiting request is ranked by: ``gittins`` (the least ratio of expected work
            to the chance of being done by it) or ``serpt`` (expected remaining work).
        aging: seconds of waiting that offset one second of additional work. 0 is first come first
            served; without limit the index alone decides, and a request may wait forever.
        max_num_batched_tokens: most prompt tokens of a step.
        gate: a prefill waits while it would delay expected finishes by more than this many times
            what its own request loses by a round of delay.
        gate_aging: how much the gate opens for each service time, at the present speed, that a
            request has waited.
        window_s: seconds over which a worker's time per round is averaged.
        reserve: share of the expected growth of the running caches that an admission leaves free.
        batch_weight: weight of a second of a batch request; one of an interactive request counts 1.
        ttft_s: a limit on TTFT in seconds. After this wait neither gate nor placing holds a request
            back, and no request that comes more than twice as long after it passes it. None: no
            limit, the least mean JCT.
        boost_s: scale of the boost in seconds, for the tail of the JCT: small requests move
            forward, large ones stay in the order of arrival. None: no boost.
        crowd: for the tail too: with more decoding requests than this, a step has fewer prompt
            tokens, down to a quarter. None: always the same number.

    Raises:
        InputError: a value is out of range.
    """

    index: str = "gittins"
    aging: float = 30.0
    max_num_batched_tokens: int = 2048
    gate: float = 3.0
    gate_aging: float = 6.0
    window_s: float = 20.0
    reserve: float = 0.5
    batch_weight: float = 1.0
    ttft_s: float | None = None
    boost_s: float | None = None
    crowd: float | None = None

    def __post_init__(self) -> None:
        require_one_of(self.index, "index", INDICES)
        whole_number(
            self.max_num_batched_tokens, "max_num_batched_tokens", minimum=1, maximum=MAX_TOKENS
        )
        for name, (least, most) in _RANGES.items():
            if getattr(self, name) is not None or name not in OPTIONAL:
                require_number(getattr(self, name), name, least, most)

    def prompt_tokens(self, decoding: int) -> int:
        """Return the most prompt tokens of a step beside so many decoding requests."""
        most = self.max_num_batched_tokens
        if self.crowd is None or decoding <= self.crowd:
            return most
        return max(1, int(most * max(LEAST_SHARE, self.crowd / decoding)))

    def later_ns(self, rank_ns: float) -> float:
        """Return how much later than its arrival a request's key is, by its index; of a limit on
        TTFT at most what that allows. With a boost (Yu and Scully 2024, with the index in the place
        of the size) it is negative: large requests have none, and among them the first to come is
        first."""
        rank_ns *= self.aging
        if self.boost_s is not None:
            span_ns = self.boost_s * NS_PER_S
            shrunk = -expm1(-max(rank_ns, 1.0) / span_ns)
            rank_ns = span_ns * log(shrunk) if shrunk > 0 else -inf
        patience_ns = self.patience_ns
        if patience_ns is None:
            return rank_ns
        # A boost is taken from the arrival, a wait added to it: neither beyond the limit.
        limit_ns = float(OVERTAKEN * patience_ns)
        return max(-limit_ns, min(rank_ns, limit_ns))

    @property
    def patience_ns(self) -> int | None:
        """The wait after which nothing holds a request back; None: without limit."""
        return None if self.ttft_s is None else seconds_to_ns(self.ttft_s, "ttft_s")


Waiting: TypeAlias = tuple[int, int, int, int, int, int, Lengths | OwnLengths]
"""A request that waits: key, row, size class, tokens to prefill, how many requests had come when it
came to wait, tokens that it has yielded, and its lengths or its group's. Key and row sort it."""


class WaitingRequests:
    """Waiting requests by key, in one heap for each doubling of the prompt. Keys never change while
    a request waits, so nothing is ever sorted again."""

    def __init__(self) -> None:
        self.heaps: dict[int, list[Waiting]] = {}
        self.heads: list[Waiting] = []  # the first of each class, in order; read-only elsewhere
        self.count = 0  # how many requests wait

    def __len__(self) -> int:
        return self.count

    def put(self, waiting: Waiting) -> None:
        """Queue a request."""
        self.count += 1
        heap = self.heaps.get(waiting[2])
        if not heap:
            self.heaps[waiting[2]] = [waiting]
            insort(self.heads, waiting)
            return
        first = heap[0]
        heappush(heap, waiting)
        if heap[0] is waiting:
            del self.heads[bisect_left(self.heads, first)]
            insort(self.heads, waiting)

    def pop(self, place: int) -> None:
        """Remove a head; the next of its class is at the same place or later."""
        heap = self.heaps[self.heads.pop(place)[2]]
        heappop(heap)
        self.count -= 1
        if heap:
            insort(self.heads, heap[0], place)


UNLIMITED = 2**62


class WorkerModel:
    """What the policy knows of one worker beside its view. ``seen`` is how many requests had come
    when it decided last, ``slept`` how many when it had nothing to do (-1: it has something),
    ``evicted`` the rounds at the last eviction (-1 before the first); ``spare`` blocks were free
    after its last decision; ``size`` is tokens of a block under paged memory, else 0."""

    __slots__ = (
        "clients", "cut", "evicted", "first", "has_memory", "most", "origin", "others", "pace",
        "prefill_limit", "prefills", "prices", "room", "seen", "size", "slept",
        "spare", "until_ns", "view",
    )  # fmt: skip

    def __init__(self, view: View, window_ns: float) -> None:
        self.view = view
        self.first = int(view.first_token == "prefill")
        self.clients = view.worker.clients  # how many clients the worker has
        self.others: list[WorkerModel] = []  # in any order; in a large fleet one of them
        memory = view.worker.memory
        self.prices = prices = Prices(view)
        self.pace = Pace(prices.round_ns + prices.client_ns, window_ns)
        self.cut: tuple[int, ...] = ()  # requests whose prefill the next step does not complete
        self.origin: dict[int, int] = {}  # request -> round its tokens count from, if it decodes
        self.until_ns = 0  # when it decides next at the latest, as far as that is known
        self.slept = self.seen = self.evicted = -1
        self.prefills = False  # its step has prompt tokens: an arrival does not end it
        self.room = UNLIMITED if memory is None else memory.blocks  # blocks in all
        self.spare, self.has_memory = self.room, memory is not None
        self.size = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.most = self.room * self.size  # tokens that paged memory holds in all, else 0
        self.prefill_limit = view.worker.prefill_limit or UNLIMITED

    def forget(self) -> None:
        """Begin again, with a worker that has lost all that it held."""
        self.cut, self.until_ns, self.prefills = (), 0, False
        self.slept = self.seen = self.evicted = -1
        self.origin.clear()
        self.spare = self.room

    def blocks(self, request: int, tokens: int) -> int:
        """Return the blocks that the prefill of a request of this many tokens takes."""
        if self.size:
            return -(-tokens // self.size)
        return self.view.blocks_of(request)

    def holds(self, request: int) -> bool:
        """Whether the worker can hold a request with what it has yielded and one token more."""
        return self.fits(
            request, self.view.prompt_tokens[request] + self.view.generated(request) + 1
        )

    def fits(self, request: int, tokens: int) -> bool:
        """Whether the worker can hold a request with this many tokens."""
        return tokens <= self.most if self.size else self.view.blocks_of(request) <= self.room

    def promised(self) -> int:
        """Return the blocks that the rest of the begun prefills will take."""
        size, view = self.size, self.view
        if not size or not view.prefilling:
            return 0
        return sum([-(-view.to_prefill(request) // size) for request in view.prefilling])

    def has_room(self, request: int, left: int) -> bool:
        """Whether there are the blocks for a prefill, as of the worker's last decision."""
        return self.blocks(request, left) + self.promised() <= self.spare

    def prompt_room(self) -> int:
        """Return the most prompt tokens that have room by their number alone, as of then."""
        if not self.size:
            return UNLIMITED
        return (self.spare - self.promised()) * self.size

    def growth(self, tokens: float) -> int:
        """Return the blocks that the running caches take if each grows by this many tokens."""
        if not self.size:
            return 0
        return int(tokens * len(self.view.running) / self.size)

    def prefill(self, chunks: dict[int, int], rounds: int) -> None:
        """Let prefills go on, and decode whose ends with the worker's round of this number."""
        view, origin, before, cut = self.view, self.origin, rounds - self.first, self.cut
        prompts, begun = view.prompt_tokens, view.prefilling
        for request, chunk in chunks.items():
            if cut and request in cut:
                continue
            # A chunk that is a whole prefill holds the prompt and all that was yielded before.
            tokens = view.generated(request) if request in begun else chunk - prompts[request]
            origin[request] = before - tokens

    def leave(self, request: int) -> int | None:
        """Forget a request; return the tokens that it has yielded if it decoded."""
        origin = self.origin.pop(request, None)
        return None if origin is None else self.view.rounds - origin


class GittinsBatch:
    """Prompt tokens and memory blocks that are given away one request after the other. ``reserved``
    are blocks that begun prefills and running caches are still to take; prompts up to ``room``
    tokens fit; whether longer ones do as well says ``has_room``."""

    __slots__ = ("blocks", "chunks", "clients", "reserved", "room", "tokens", "worker")

    def __init__(self, worker: WorkerModel, tokens: int, blocks: int, growth: float) -> None:
        self.worker = worker
        self.chunks: dict[int, int] = {}  # request -> prompt tokens of the step
        worker.cut = ()
        self.tokens = min(tokens, worker.prefill_limit)  # what is left of the token budget
        self.clients = worker.clients - len(worker.view.running)  # free clients that are left
        self.blocks = blocks  # blocks that are left
        self.reserved = worker.promised() + worker.growth(growth)
        self.room = (blocks - self.reserved) * worker.size if worker.has_memory else UNLIMITED

    def has_room(self, request: int, left: int) -> bool:
        """Whether the whole prefill of a request fits; alone, one may use all that there is."""
        if self.worker.blocks(request, left) + self.reserved <= self.blocks:
            return True
        return not (self.chunks or self.worker.view.running)

    def admit(self, request: int, left: int) -> None:
        """Admit a new request to the worker."""
        worker, size = self.worker, self.worker.size
        self.clients -= 1
        chunk = left if left < self.tokens else self.tokens
        if size:
            if chunk > self.blocks * size:
                chunk = self.blocks * size
            taken = -(-chunk // size)
            if chunk < left:
                self.reserved += -(-left // size) - taken
            self.blocks -= taken
            self.room = (self.blocks - self.reserved) * size
        elif worker.has_memory:
            self.blocks -= worker.blocks(request, left)
        if chunk < left:
            worker.cut = (*worker.cut, request)
        self.chunks[request] = chunk
        self.tokens -= chunk

    def go_on(self, request: int) -> None:
        """Give a begun prefill its next chunk, if there are blocks for one."""
        worker = self.worker
        left = worker.view.to_prefill(request)
        chunk = min(left, self.tokens)
        if worker.size:
            held = worker.view.cached(request)
            filled = -(-held // worker.size)
            chunk = min(chunk, (filled + self.blocks) * worker.size - held)
            taken = -(-(held + chunk) // worker.size) - filled
            self.blocks -= taken
            self.reserved -= taken
        if chunk < left:
            worker.cut = (*worker.cut, request)
        if chunk:
            self.chunks[request] = chunk
            self.tokens -= chunk
