"""One worker as the policy keeps it: requests that decode, blocks, pace."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

from orsched.heuristics.gittins.lengths import Lengths, OwnLengths
from orsched.heuristics.prices import Pace, Prices

if TYPE_CHECKING:
    from orsched.simulator.policy import View


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
