"""Static batches served slice by slice: SCLS, its ablation, and sequence-level scheduling."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.common.scalars import require_number, require_one_of, set_whole
from orsched.common.units import NS_PER_S
from orsched.data.step import Step, Wait, batch_rounds, evict, prefill_stage
from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.scls.offloading import RULES, Batcher, Offloader, SliceMemory, bilinear_of
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.heuristics.scls.offloading import SlicedBatch
    from orsched.simulator.policy import View


MILLION = 1_000_000


class Clock:
    """Moments at which the pool is fetched, the first at 0."""

    def __init__(self, least_ns: int, share: float, adaptive: bool) -> None:
        self.least_ns = least_ns
        self.share_ppm = round(share * MILLION)
        self.adaptive = adaptive
        self.interval_ns = least_ns  # T
        self.next_ns = 0  # the next moment

    def advance(self, loads_ns: Sequence[int]) -> None:
        """Set T to ``max(lambda min load, Gamma)`` after an offloading, and go on by it."""
        if self.adaptive:
            share = self.share_ppm * min(loads_ns) // MILLION
            self.interval_ns = max(share, self.least_ns)
        self.next_ns += self.interval_ns

    def skip_to(self, moment_ns: int) -> None:
        """Pass the moments at which the pool is empty: those before this one, at least one."""
        left = moment_ns - self.next_ns
        self.next_ns += max(1, -(-left // self.interval_ns)) * self.interval_ns


_CHOICES = {
    "batching": ("adaptive", "arrival"),
    "interval": ("adaptive", "fixed", "none"),
    "offloading": ("max_min", "round_robin"),
    "memory": RULES,
}


@dataclass(frozen=True)
class SliceParams:
    """The replaceable parts of SCLS; ``InputError`` for values out of range, or at odds.

    The defaults are SCLS for transformers (5.1), but for ``memory_share``, which is 0.9 there.

    Attributes:
        slice_tokens: S, most tokens that a request yields in one stay; None: the output limit,
            which makes it sequence-level scheduling.
        batching: adaptive (Algorithm 1) or arrival (in order of arrival).
        batch_size: most requests in a batch; None: as many as memory holds.
        interval: adaptive (eq. 12), fixed (every ``interval_s``) or none: requests go to the
            workers one by one, and each worker takes a batch whenever it is free.
        interval_s: Gamma, the (least) interval in seconds.
        interval_share: lambda, the share of the least load that is waited for.
        offloading: max_min (eq. 11) or round_robin.
        memory: worker (eq. 5-8 with the worker's memory model) or deepspeed (Algorithm 2, and
            never more than the worker holds).
        memory_share: zeta of eq. (9), the share of the memory that may be used; the paper has 0.9
            for transformers, whose memory fragments.
    """

    slice_tokens: int | None = 128
    batching: str = "adaptive"
    batch_size: int | None = None
    interval: str = "adaptive"
    interval_s: float = 6.0
    interval_share: float = 0.5
    offloading: str = "max_min"
    memory: str = "worker"
    memory_share: float = 1.0

    def __post_init__(self) -> None:
        set_whole(self, "slice_tokens", "batch_size", minimum=1, optional=True)
        for name, choices in _CHOICES.items():
            require_one_of(getattr(self, name), name, choices)
        for name, most in (("interval_s", 1e9), ("interval_share", 1), ("memory_share", 1)):
            require_number(getattr(self, name), name, 1e-6, most)
        if self.interval == "none" and (self.batching, self.offloading) != (
            "arrival",
            "round_robin",
        ):
            raise InputError(
                "without an interval, requests are offloaded before they are batched",
                field="interval",
                remedy="take batching=arrival and offloading=round_robin, or another interval",
            )


class SlicedPolicy(Policy):
    """Serve static batches for a slice each; those unfinished go back and are prefilled again.

    The pool is fetched at the moments of the clock, also while all workers are busy: a fetch that
    lies before the present event is made up for with the requests and loads of its time."""

    information = Information.NONE
    many_workers = True
    waits_for_workers = True
    chunks = True

    def __init__(self, params: SliceParams | None = None, name: str = "scls") -> None:
        self.params = SliceParams() if params is None else params
        self.name = name
        self.batches = 0  # batches that were served
        self.early_returns = 0  # batches that were all done before the slice was over

    def start(self, view: View) -> None:
        """Set the parts up for the workers at hand."""
        params, views = self.params, view.workers
        limit = view.output_limit_tokens
        tokens = limit if params.slice_tokens is None else min(params.slice_tokens, limit)
        self.rounds = tokens - (view.first_token == "prefill")
        costs = [bilinear_of(each.worker) for each in views]
        memory = SliceMemory(
            [each.worker for each in views], tokens, limit, params.memory, params.memory_share
        )
        self.batcher = Batcher(costs[0], memory, params.batch_size, params.batching == "adaptive")
        self.offloader = Offloader(views, costs, tokens, params.offloading == "max_min")
        self.clock = Clock(
            round(params.interval_s * NS_PER_S),
            params.interval_share,
            params.interval == "adaptive",
        )
        self.fetches = params.interval != "none"
        self.pool: list[int] = []
        self.lengths: list[int] = []
        self.times: list[int] = []
        self.lines: list[deque[tuple[int, int]]] = [deque() for _ in views]
        self.queues: list[deque[SlicedBatch]] = [deque() for _ in views]
        self.serving: list[SlicedBatch | None] = [None for _ in views]
        self.todo: list[list[int]] = [[] for _ in views]  # not yet prefilled
        self.began: list[int | None] = [None for _ in views]  # rounds when the slice began

    def on_arrival(self, view: View, request: int) -> None:
        """Put the request into the pool."""
        self._add(view, request, view.arrival_ns[request])

    def on_preempt(self, view: View, request: int) -> None:
        """Put the unfinished request back, longer by what it has yielded."""
        todo = self.todo[view.index]
        if request in todo:  # the worker was lost in the midst of its prefill
            self.todo[view.index] = [each for each in todo if each != request]
        self._add(view, request, view.now_ns)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Count the batch when the last of its requests leaves."""
        if not (view.running or self.todo[view.index]):
            began = self.began[view.index]
            self.batches += 1
            self.early_returns += began is None or view.rounds - began < self.rounds

    def counted(self) -> dict[str, int]:
        """Return the batches served, and how many of them returned before the slice was over."""
        return {"batches": self.batches, "early_returns": self.early_returns}

    def _add(self, view: View, request: int, moment_ns: int) -> None:
        length = view.to_prefill(request)
        if self.fetches:
            self.pool.append(request)
            self.lengths.append(length)
            self.times.append(moment_ns)
        else:
            self.lines[self.offloader.in_turn([request])].append((request, length))

    def decide(self, view: View) -> Step | Wait | None:
        """Go on with the batch on the worker, or take the next one, or wait for a fetch."""
        now = view.now_ns
        if self.fetches:
            self._fetch_before(now)
        if view.running or self.todo[view.index]:
            return self._go_on(view)
        self._complete(view)
        if self.fetches:
            self._fetch_before(now + 1)
        batch = self._next_batch(view.index)
        if batch is None:
            return Wait(self.clock.next_ns) if self.pool else None
        self.serving[view.index] = batch
        self.todo[view.index] = batch.requests
        return self._prefill(view)

    # -- serving --------------------------------------------------------------------------

    def _prefill(self, view: View) -> Step:
        """Return the next prefill stage of a batch; a cap on stages can make it take several."""
        todo, limit = self.todo[view.index], view.worker.prefill_limit
        if limit is None:
            self.todo[view.index] = []
            return prefill_stage(todo)
        count = longest = 0
        for request in todo:
            longest = max(longest, view.to_prefill(request))
            if count and (count + 1) * longest > limit:
                break
            count += 1
        if count == 1 and view.to_prefill(todo[0]) > limit:
            return Step(prefill=todo[:1], tokens=[limit], decode=())
        self.todo[view.index] = todo[count:]
        return prefill_stage(todo[:count])

    def _go_on(self, view: View) -> Step:
        """Return the rounds of a slice after the prefill, the eviction after the rounds."""
        index = view.index
        if self.todo[index]:
            return self._prefill(view)
        if self.began[index] is None:
            self.began[index] = view.rounds
            if self.rounds:
                return batch_rounds(self.rounds)
        self.batches += 1
        return evict(list(view.running))

    def _complete(self, view: View) -> None:
        """Take the batch that has left a worker off its load."""
        index = view.index
        batch = self.serving[index]
        if batch is not None:
            self.serving[index] = self.began[index] = None
            self.offloader.done(index, batch)

    def _next_batch(self, index: int) -> SlicedBatch | None:
        if self.fetches:
            return self.queues[index].popleft() if self.queues[index] else None
        line = self.lines[index]
        if not line:
            return None
        count, longest = self.batcher.front(length for _, length in line)
        requests = [request for request, _ in islice(line, count)]
        for _ in range(count):
            line.popleft()
        batch = self.batcher.price(requests, longest)
        self.offloader.loads_ns[index] += batch.serving_ns
        return batch

    # -- fetching -------------------------------------------------------------------------

    def _fetch_before(self, moment_ns: int) -> None:
        """Make all fetches that are due before a moment."""
        clock, times = self.clock, self.times
        while clock.next_ns < moment_ns:
            count = bisect_right(times, clock.next_ns)
            if count:
                self._fetch(count)
                clock.advance(self.offloader.loads_ns)
            else:
                clock.skip_to(min(times[0], moment_ns) if times else moment_ns)

    def _fetch(self, count: int) -> None:
        """Batch the first requests of the pool, and offload the batches."""
        batches = self.batcher.cut(self.pool[:count], self.lengths[:count])
        for column in (self.pool, self.lengths, self.times):
            del column[:count]
        for worker, batch in self.offloader.offload(batches):
            self.queues[worker].append(batch)


@dataclass(frozen=True)
class SequenceParams:
    """Parameters of sequence-level scheduling.

    Attributes:
        batch_size: requests in a batch; SCLS uses 16 for transformers, 12 for DeepSpeed.
    """

    batch_size: int = 16

    def __post_init__(self) -> None:
        SliceParams(batch_size=self.batch_size)


def _ablation() -> dict[str, dict[str, Any]]:
    so = {
        "batching": "arrival",
        "batch_size": 16,
        "interval": "none",
        "offloading": "round_robin",
    }
    pm = so | {"batching": "adaptive", "interval": "fixed"}
    ab = pm | {"batch_size": None}
    lb = ab | {"offloading": "max_min"}
    return {
        "SLS": so | {"slice_tokens": None},
        "SO": so,
        "PM": pm,
        "AB": ab,
        "LB": lb,
        "SCLS": lb | {"interval": "adaptive"},
    }


ABLATION: dict[str, dict[str, Any]] = _ablation()
"""What each strategy of SCLS, section 5.4, sets of ``SliceParams``: each adds one feature."""


def _sequence(
    instance: Instance, params: SequenceParams, information: Information, seed: int
) -> Policy:
    values = ABLATION["SLS"] | {"batch_size": params.batch_size}
    return SlicedPolicy(SliceParams(**values), "sls")


SLS = PolicyMethod(
    "sls",
    (Information.NONE,),
    "static batches of fixed size in order of arrival, served to the end (SCLS's baseline)",
    _sequence,
    SequenceParams,
    many_workers=True,
)


SCLS = PolicyMethod(
    "scls",
    (Information.NONE,),
    "static batches of least serving time, slice by slice, on the least loaded worker (SCLS)",
    lambda instance, params, information, seed: SlicedPolicy(params),
    SliceParams,
    many_workers=True,
    rounds_at_once=lambda params: params.slice_tokens,
)
