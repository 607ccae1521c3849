"""A step while it is being planned: who is in it, and what it is taken to last."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

import numpy as np

from orsched.costs import mixed_ns
from orsched.data.step import Step, decode_rounds, evict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orsched.costs import CostModel
    from orsched.data.instance import Instance
    from orsched.simulator.policy import View


class Pool(Protocol):
    """Where bulk requests wait."""

    def __len__(self) -> int:
        """Return how many requests wait."""

    def add(self, request: int) -> None:
        """Take a request that has arrived."""

    def put_back(self, request: int) -> None:
        """Take a request that was preempted."""

    def take(self, request: int) -> None:
        """Let go of a request that is admitted."""

    def last(self) -> int:
        """Return the request that would be served last."""


class ArrivalPool:
    """First come first served; preempted requests go to the front, the last admitted first."""

    def __init__(self) -> None:
        self.requests: deque[int] = deque()

    def __len__(self) -> int:
        return len(self.requests)

    def add(self, request: int) -> None:
        """Append the request."""
        self.requests.append(request)

    def put_back(self, request: int) -> None:
        """Let the request be the next."""
        self.requests.appendleft(request)

    def take(self, request: int) -> None:
        """Let go of a request."""
        if self.requests[0] == request:
            self.requests.popleft()
        else:
            self.requests.remove(request)

    def first(self) -> int:
        """Return the request that is next."""
        return self.requests[0]

    def last(self) -> int:
        """Return the request that came last."""
        return self.requests[-1]


class PrefixGroups:
    """Groups of requests with the same chain of prefix identifiers, sorted by their chains: so a
    depth-first walk of the radix tree meets them, and groups that share a long prefix are
    neighbours. Requests without prefixes are one group, by arrival."""

    def __init__(self, instance: Instance) -> None:
        prefixes = instance.requests.prefixes
        self.ids = None if prefixes is None else prefixes.ids.astype(">i8")
        self.offsets = [] if prefixes is None else prefixes.offsets.tolist()
        self.known: dict[int, bytes] = {}  # last identifier -> chain
        self.chains: list[bytes] = []  # the chains with waiting requests, sorted
        self.groups: dict[bytes, deque[int]] = {}  # chain -> those that wait, preempted ones first
        self.waits = 0

    def __len__(self) -> int:
        return self.waits

    def chain(self, request: int) -> bytes:
        """Return the chain of a request; chains compare as their identifiers do."""
        if self.ids is None:
            return b""
        begin, end = self.offsets[request], self.offsets[request + 1]
        if begin == end:
            return b""
        last = int(self.ids[end - 1])
        if last not in self.known:
            self.known[last] = np.ascontiguousarray(self.ids[begin:end]).tobytes()
        return self.known[last]

    def _group(self, request: int) -> deque[int]:
        chain = self.chain(request)
        group = self.groups.get(chain)
        if group is None:
            group = self.groups[chain] = deque()
            insort(self.chains, chain)
        self.waits += 1
        return group

    def add(self, request: int) -> None:
        """Put the request behind those of its group."""
        self._group(request).append(request)

    def put_back(self, request: int) -> None:
        """Put the request before those of its group."""
        self._group(request).appendleft(request)

    def take(self, request: int) -> None:
        """Let go of a request."""
        chain = self.chain(request)
        group = self.groups[chain]
        if group[0] == request:
            group.popleft()
        else:
            group.remove(request)
        self.waits -= 1
        if not group:
            del self.groups[chain]
            del self.chains[bisect_left(self.chains, chain)]

    def last(self) -> int:
        """Return the last request of the last group."""
        return self.groups[self.chains[-1]][-1]

    def heads(self) -> Iterator[int]:
        """Yield the first request of each group, in the order of the walk."""
        for chain in self.chains:
            yield self.groups[chain][0]

    def next_after(self, chain: bytes) -> int:
        """Return the first request of the group of a chain, or of the next one in the walk."""
        place = bisect_left(self.chains, chain)
        return self.groups[self.chains[place % len(self.chains)]][0]


class StepTime(Protocol):
    """Gives the time of a step."""

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the nanoseconds of a step over prompt chunks beside a round; ``cached`` are the
        tokens in the cache before each chunk; empty: all 0."""


class MachineTime:
    """The cost model of the worker: exact in simulation."""

    def __init__(self, cost: CostModel) -> None:
        self.cost = cost

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the time of a step; 0 for one with nothing in it."""
        if not chunks and not active:
            return 0
        return mixed_ns(self.cost, chunks, active, context_sum, context_max, cached)


UNLIMITED = 2**62
_UNTIL_EVENT = decode_rounds()


class Draft:
    """Decoding requests and prompt chunks of the next step, with its time."""

    __slots__ = (
        "before", "chunks", "clients", "context_max", "context_sum", "decode", "due_ns",
        "prompt_tokens", "time", "tokens", "victims", "view",
    )  # fmt: skip

    def __init__(
        self, view: View, time: StepTime, tokens: int, victims: Sequence[int] = ()
    ) -> None:
        self.view = view
        self.time = time
        self.chunks: dict[int, int] = {}  # request -> prompt tokens, new requests among them
        self.before: dict[int, int] = {}  # request -> tokens that are cached before its chunk
        self.decode: dict[int, int] = {}  # requests that decode -> context in the round
        self.victims = list(victims)  # requests that are preempted
        self.tokens = tokens  # what is left of the token budget
        self.prompt_tokens = view.worker.prefill_limit or UNLIMITED  # left of the prefill cap
        self.clients = view.free_clients + len(victims)  # clients that are free
        self.context_sum = self.context_max = 0
        self.due_ns = UNLIMITED  # the earliest time at which a token of one of its requests is due

    def ns(self) -> int:
        """Return the time of the step."""
        return self.time.step_ns(
            list(self.chunks.values()), len(self.decode), self.context_sum, self.context_max,
            list(self.before.values()),
        )  # fmt: skip

    def ns_with_chunk(self, tokens: int, cached: int) -> int:
        """Return the time of the step with one more chunk, behind cached tokens."""
        return self.time.step_ns(
            [*self.chunks.values(), tokens], len(self.decode), self.context_sum, self.context_max,
            [*self.before.values(), cached],
        )  # fmt: skip

    def ns_with_decode(self, context: int) -> int:
        """Return the time of the step with one more request that decodes."""
        return self.time.step_ns(
            list(self.chunks.values()), len(self.decode) + 1, self.context_sum + context,
            max(self.context_max, context), list(self.before.values()),
        )  # fmt: skip

    def add_decode(self, request: int, context: int) -> None:
        """Let a request decode."""
        self.decode[request] = context
        self.context_sum += context
        if context > self.context_max:
            self.context_max = context
        self.tokens -= 1

    def add_chunk(self, request: int, tokens: int, cached: int) -> None:
        """Let a request process prompt tokens behind those that are cached."""
        self.chunks[request] = tokens
        self.before[request] = cached
        self.tokens -= tokens
        self.prompt_tokens -= tokens

    def shorten(self, request: int, tokens: int, cached: int) -> None:
        """Let a chunk have fewer tokens, since more are cached."""
        self.before[request] = cached
        less = self.chunks[request] - tokens
        self.chunks[request] = tokens
        self.tokens += less
        self.prompt_tokens += less

    def largest_chunk(self, most: int, limit_ns: int, cached: int) -> int:
        """Return how many of ``most`` prompt tokens behind ``cached`` ones keep to a limit."""
        most = min(most, self.tokens, self.prompt_tokens)
        if most <= 0:
            return 0
        if limit_ns >= UNLIMITED or self.ns_with_chunk(most, cached) <= limit_ns:
            return most
        low, high = 0, most
        while high - low > 1:
            middle = (low + high) // 2
            if self.ns_with_chunk(middle, cached) <= limit_ns:
                low = middle
            else:
                high = middle
        return low

    def step(self, may_last: bool) -> Step | None:
        """Return the step; rounds go on until something happens where ``may_last``."""
        view, victims = self.view, self.victims
        able = len(view.running) - len(view.prefilling)
        able -= sum(each not in view.prefilling for each in victims)
        decode = None if len(self.decode) == able else list(self.decode)
        if self.chunks:
            prefill, tokens = list(self.chunks), list(self.chunks.values())
            return Step(prefill, tokens, None, decode, preempt=victims)
        if not self.decode:
            return evict(victims) if victims else None
        if may_last and decode is None and not victims:
            return _UNTIL_EVENT
        return Step(decode=decode, preempt=victims)


class Room:
    """Blocks that are free while a step is planned, changed by what is planned: with ``whole``
    allocation a request takes all its blocks at its admission, with ``paged`` those that its tokens
    fill. Opened for each decision and closed after it: a trial of the prefix cache is undone then.
    ``size``: tokens of a block, 0 if not paged."""

    def __init__(self, view: View) -> None:
        memory = view.worker.memory
        self.view = view
        self.size = memory.block_tokens if memory is not None and memory.is_paged else 0
        self.blocks = UNLIMITED if memory is None else memory.blocks  # all blocks of the worker
        self.cache = view.prefixes
        self.trial = None if self.cache is None else self.cache.trial()
        unused = view.blocks_unused
        self.plain_free = UNLIMITED if unused is None else unused

    @property
    def free(self) -> int:
        """Return how many blocks are free."""
        return self.plain_free if self.trial is None else self.trial.free_blocks

    def close(self) -> None:
        """Undo the trial."""
        if self.trial is not None:
            self.trial.close()

    def peek(self, request: int) -> tuple[int, int]:
        """Return the tokens that a waiting request would find, and the free blocks they are in."""
        return (0, 0) if self.trial is None else self.trial.hit(request)

    def needed(self, request: int, hit: int, tokens: int) -> int:
        """Return the new blocks for so many computed tokens of a waiting request."""
        if not self.size:
            return self.view.blocks_of(request)
        return -(-(hit + tokens) // self.size) - hit // self.size

    def more(self, request: int, tokens: int) -> int:
        """Return the new blocks for further tokens of a running request."""
        if not self.size:
            return 0
        cached = self.view.cached(request)
        return -(-(cached + tokens) // self.size) + (-cached // self.size)

    def extend(self, request: int, tokens: int) -> bool:
        """Take the blocks for further tokens of a running request, if they are free."""
        new = self.more(request, tokens)
        if new > self.free:
            return False
        if self.trial is None:
            self.plain_free -= new
        elif request in self.view.prefilling:
            self.trial.extend(request, tokens)
        elif new:
            self.trial.grow(new)
        return True

    def admit(self, request: int, tokens: int) -> None:
        """Take the blocks of a waiting request for its first chunk."""
        if self.trial is None:
            self.plain_free -= self.needed(request, 0, tokens)
        else:
            self.trial.admit(request, tokens)

    def release(self, request: int) -> None:
        """Give back the blocks of a running request; before any are taken."""
        if self.trial is not None:
            self.trial.release(request)
        elif self.size:
            self.plain_free += -(-self.view.cached(request) // self.size)
        elif self.blocks < UNLIMITED:
            self.plain_free += self.view.blocks_of(request)

    def promised(self, prefills: Iterable[int], chunks: Mapping[int, int]) -> int:
        """Return the blocks that begun prefills will take beyond the chunks of this step."""
        left = self.view.to_prefill
        return sum(
            self.more(each, left(each)) - self.more(each, chunks.get(each, 0)) for each in prefills
        )
