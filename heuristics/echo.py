"""Echo: bulk requests chosen by benefit per time, memory kept free for interactive ones."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from orsched.calibration.fit import fit
from orsched.calibration.measurements import DECODE, MIXED, PREFILL, Measurements
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_number, require_one_of
from orsched.common.units import MAX_TOKENS, NS_PER_S
from orsched.costs import mixed_ns
from orsched.data.memory import TASK_AWARE
from orsched.heuristics.colocation.draft import UNLIMITED, ArrivalPool, PrefixGroups
from orsched.heuristics.colocation.policy import (
    IN_RANGE,
    Colocation,
    ColocationParams,
    require_seconds,
)
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.costs import CostModel
    from orsched.costs.pooling import PoolingCost
    from orsched.data.instance import Instance
    from orsched.heuristics.colocation.draft import Draft, Room, StepTime
    from orsched.simulator.policy import View


CONFIGURATIONS = ("bs", "bs-e", "bs-e-s", "echo")
ESTIMATORS = ("pooling", "machine")


@dataclass(frozen=True)
class EchoParams(ColocationParams):
    """Parameters of ``echo``.

    Attributes:
        configuration: ``bs``: vLLM's priority scheduling, bulk requests in the order of arrival, no
            regard to limits; ``bs-e``: a step with bulk work keeps to the SLO of the iteration by
            the time estimator; ``bs-e-s``: Echo's scheduler chooses the bulk requests; ``echo``:
            its KV manager as well (task-aware eviction, the threshold).
        estimator: ``pooling``: eq. (6)-(8), fitted to micro-benchmarks on the worker's cost model;
            ``machine``: the cost model itself, an estimator without error.
        buckets: number of buckets of the bulk pool, by quantiles of the prompt lengths (the paper
            says "coarsely", by the length distribution).
        candidates: most bulk requests that are tried for each admission; the paper tries all. They
            are the first of each prefix group of a bucket, in the order of the radix tree's walk
            from the last one admitted: requests of one group differ by their own tokens only.
        hit_benefit: what a cached prompt token counts in the benefit, where a computed one counts
            1 (b is not specified in the paper).
        margin: share of the SLO of the iteration that is kept free for errors of the estimator.
        window_s: seconds of the past that the memory forecast uses (an hour in the paper).
        sigmas: deviations above the mean that interactive requests are expected to need (2).
    """

    configuration: str = "echo"
    estimator: str = "pooling"
    buckets: int = 4
    candidates: int = 64
    hit_benefit: float = 1.0
    margin: float = 0.0
    window_s: float = 3600.0
    sigmas: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.configuration, "configuration", CONFIGURATIONS)
        require_one_of(self.estimator, "estimator", ESTIMATORS)
        for name in ("buckets", "candidates"):
            whole_number(getattr(self, name), name, minimum=1, maximum=MAX_TOKENS)
        require_number(self.hit_benefit, "hit_benefit", 0, 1, remedy=IN_RANGE)
        require_number(self.margin, "margin", 0, 1, remedy=IN_RANGE)
        require_number(self.sigmas, "sigmas", 0, 100.0, remedy=IN_RANGE)
        require_seconds(self.window_s, "window_s")
        if not self.window_s:
            raise InputError("must be more than 0", field="window_s")


ROUND_SIZES = (1, 4, 16, 64)  # requests in a measured round, as far as the worker has clients

MOST_LENGTHS = 12


def micro_benchmarks(cost: CostModel, clients: int, longest: int) -> Measurements:
    """Return the steps that the time estimator is fitted to, measured on a cost model.

    Echo says no more than that micro-benchmarks were run: here single prompts of lengths that
    double up to ``longest``, rounds of 1 to 64 (at most ``clients``) equal contexts of these
    lengths and rounds of which one context is the longest, and each chunk of at most 2,048 tokens
    beside each of these rounds.
    """
    longest = max(1, longest)
    lengths = [longest]
    while lengths[0] > 32 and len(lengths) < MOST_LENGTHS:
        lengths.insert(0, lengths[0] // 2)
    rounds = [
        (count, total, most)
        for count in ROUND_SIZES
        if count <= clients
        for length in lengths
        for total, most in ((count * length, length), ((count - 1) * length + longest, longest))
    ]
    rows: list[tuple[str, int, int, int, int, int, int]] = [
        (PREFILL, 1, max(1, cost.prefill_ns([x])), x, x, 0, 0) for x in lengths
    ]
    rows += [(DECODE, n, max(1, cost.round_ns(n, s, m)), 0, 0, s, m) for n, s, m in rounds]
    rows += [
        (MIXED, n, max(1, mixed_ns(cost, [x], n, s, m)), x, x, s, m)
        for n, s, m in rounds
        for x in lengths
        if x <= 2048
    ]
    columns: Sequence[Sequence[int]] = list(zip(*(row[1:] for row in rows), strict=True))
    return Measurements([row[0] for row in rows], *columns)


def fitted_time(cost: CostModel, clients: int, longest: int) -> PoolingCost:
    """Return eq. (6)-(8) fitted to micro-benchmarks on a cost model."""
    rows = micro_benchmarks(cost, clients, longest)
    return cast("PoolingCost", fit("pooling", rows, holdout=0.0).cost)


class PoolingTime:
    """Eq. (6)-(8) as the time of a step."""

    def __init__(self, cost: PoolingCost) -> None:
        self.cost = cost

    def step_ns(
        self,
        chunks: Sequence[int],
        active: int,
        context_sum: int,
        context_max: int,
        cached: Sequence[int] = (),
    ) -> int:
        """Return the estimated time of a step, 0 for an empty one; ``cached`` is not in eq. (6)."""
        if not chunks and not active:
            return 0
        return self.cost.mixed_ns(chunks, active, context_sum, context_max)


class MemoryForecast:
    """Memory of interactive requests to come: mu + k sigma (``sigmas`` is k) over the past
    ``window_s`` (5.3). Mean and deviation are over time: what was seen at one moment holds until
    the next. Before anything was seen the forecast is 0."""

    def __init__(self, window_s: float, sigmas: float) -> None:
        self.window_ns = round(window_s * NS_PER_S)
        self.sigmas = sigmas
        self.seen: deque[tuple[int, int]] = deque()  # from when, how much
        self.weight = self.sum = self.squares = 0

    def see(self, now_ns: int, blocks: int) -> None:
        """Take note of the memory at a moment, not before those of earlier calls."""
        seen = self.seen
        if seen and seen[-1][1] != blocks:
            self._add(seen[-1], now_ns)
        if not seen or seen[-1][1] != blocks:
            seen.append((now_ns, blocks))
        while len(seen) > 1 and seen[1][0] <= now_ns - self.window_ns:
            self._add(seen.popleft(), seen[0][0], -1)

    def _add(self, span: tuple[int, int], end_ns: int, sign: int = 1) -> None:
        length, value = sign * (end_ns - span[0]), span[1]
        self.weight += length
        self.sum += length * value
        self.squares += length * value * value

    def beyond(self, view: View, bulk: Sequence[bool], size: int) -> int:
        """See what interactive requests hold now; return the blocks expected beyond that."""
        held = sum(-(-view.cached(each) // size) for each in view.running if not bulk[each])
        self.see(view.now_ns, held)
        return max(0, self.blocks(view.now_ns) - held)

    def blocks(self, now_ns: int) -> int:
        """Return mu + k sigma, rounded up to whole blocks."""
        if not self.seen:
            return 0
        since, value = self.seen[-1]
        last = now_ns - since
        weight = self.weight + last
        if weight <= 0:
            return value
        mean = (self.sum + last * value) / weight
        variance = (self.squares + last * value * value) / weight - mean * mean
        return math.ceil(mean + self.sigmas * math.sqrt(max(0.0, variance)) - 1e-9)


class Buckets:
    """Bulk requests by quantiles of their prompt lengths, in each by the prefixes they share. The
    bounds are the quantiles of all bulk requests of the instance (submitted in advance; prompts
    only, no output length)."""

    def __init__(self, instance: Instance, count: int) -> None:
        prompts = instance.requests.prompt_tokens
        self.prompts: list[int] = prompts.tolist()
        bulk = prompts[instance.bulk]
        shares = np.arange(1, count) / count
        self.bounds: list[float] = (
            np.unique(np.quantile(bulk, shares)).tolist() if len(bulk) else []
        )
        self.trees = [PrefixGroups(instance) for _ in range(len(self.bounds) + 1)]
        self.last_chain = [b""] * len(self.trees)
        self.waits = 0

    def __len__(self) -> int:
        return self.waits

    def bucket(self, request: int) -> int:
        """Return the place of the bucket of a request."""
        return bisect_left(self.bounds, self.prompts[request])

    def add(self, request: int) -> None:
        """Take a request that has arrived."""
        self.trees[self.bucket(request)].add(request)
        self.waits += 1

    def put_back(self, request: int) -> None:
        """Take a request that was preempted."""
        self.trees[self.bucket(request)].put_back(request)
        self.waits += 1

    def take(self, request: int) -> None:
        """Let go of a request; the walk of its bucket goes on from there."""
        place = self.bucket(request)
        self.trees[place].take(request)
        self.last_chain[place] = self.trees[place].chain(request)
        self.waits -= 1

    def last(self) -> int:
        """Return the last request of the fullest bucket."""
        return max(self.trees, key=len).last()

    def candidates(self, most: int) -> Iterator[int]:
        """Yield the first requests of the groups, bucket by bucket, each from where it was: at most
        so many in all, from every bucket the same number as far as it has them."""
        trees = [each for each in range(len(self.trees)) if len(self.trees[each])]
        for place in trees:
            groups = self.trees[place]
            chains = groups.chains
            begin = bisect_left(chains, self.last_chain[place])
            for step in range(min(len(chains), -(-most // len(trees)))):
                yield groups.groups[chains[(begin + step) % len(chains)]][0]


LEAST_LONGEST = 1024  # micro-benchmarks go up to the longest prompt, but at least so far


class Echo(Colocation):
    """Echo (Wang et al., arXiv 2504.03651) in one of its four configurations.

    The iteration's SLO is the least time to the due token of any interactive request in it
    (5.1). Without the scheduler (S) bulk requests are first come first served; with it the best of
    the candidates of all buckets is taken by (benefit - punishment) / time of the whole step: eq.
    (4). The one of the running bulk requests without which (4) is largest is preempted. With the KV
    manager (M) the worker evicts blocks by Echo's priorities, and bulk requests join only as long
    as the blocks that interactive ones are expected to need beyond those they have stay free.

    The punishment, eq. (2), of an admission are the tokens of cached blocks that waiting candidates
    would find and that have to go, if whatever else is in the free blocks goes first.
    """

    def __init__(self, instance: Instance, params: EchoParams) -> None:
        self.own = params
        parts = params.configuration.split("-")
        self.estimates = params.configuration != "bs"
        self.chooses = "s" in parts or params.configuration == "echo"
        self.manages = params.configuration == "echo"
        pool = Buckets(instance, params.buckets) if self.chooses else ArrivalPool()
        super().__init__(f"echo-{params.configuration}", instance, params, pool)
        self.limited = self.estimates
        self.longest = int(instance.requests.prompt_tokens.max(initial=1))
        self.forecast = MemoryForecast(params.window_s, params.sigmas)
        self.held_back = 0
        if self.manages:
            self.eviction = TASK_AWARE

    def step_time(self, view: View) -> StepTime:
        """Return the time estimator; the cost model itself where nothing can be fitted."""
        worker = view.worker
        if not self.estimates or self.own.estimator == "machine":
            return super().step_time(view)
        longest = min(worker.prefill_limit or UNLIMITED, max(self.longest, LEAST_LONGEST))
        try:
            return PoolingTime(fitted_time(worker.cost, worker.clients, longest))
        except InputError:  # too few lengths fit into a step, or none takes time
            return super().step_time(view)

    def bulk_limit_ns(self, view: View, draft: Draft) -> int:
        """Return the SLO of the iteration less the margin."""
        if not self.estimates or draft.due_ns >= UNLIMITED:
            return UNLIMITED
        slack = draft.due_ns - view.now_ns
        return slack - int(self.own.margin * slack) if slack > 0 else 0

    def observe(self, view: View, room: Room) -> None:
        """Let the memory forecast see what interactive requests hold."""
        if self.manages and room.size:
            self.held_back = self.forecast.beyond(view, self.bulk, room.size)

    def bulk_room(self, view: View, draft: Draft, room: Room) -> int:
        """Return what the threshold leaves to bulk requests."""
        return super().bulk_room(view, draft, room) - self.held_back

    def next_bulk(self, view: View, draft: Draft, room: Room, limit_ns: int) -> int | None:
        """Return the first that waits, or the best of the candidates."""
        pool = self.pool
        if isinstance(pool, ArrivalPool):
            return pool.first()
        assert isinstance(pool, Buckets)
        most = draft.largest_chunk(draft.tokens, limit_ns, 0)
        if most <= 0:
            return None
        found = {each: room.peek(each) for each in pool.candidates(self.own.candidates)}
        needed_free = sum(leaving for _, leaving in found.values())
        best, best_score = None, -1.0
        allowed = self.bulk_room(view, draft, room)
        alone = not view.running and not draft.chunks
        step = sum(draft.chunks.values()) + len(draft.decode)  # eq. (4) has the whole step's tokens
        for request, (hit, leaving) in found.items():
            left = view.to_prefill(request) - hit
            new = room.needed(request, hit, left)
            chunk = min(left, most)
            if chunk <= 0 or (new + leaving > allowed and not alone):
                continue
            others = needed_free - leaving
            lost = max(0, new - (room.free - leaving - others)) * room.size
            benefit = step + chunk + self.own.hit_benefit * hit - lost
            score = benefit / max(1, draft.ns_with_chunk(chunk, hit))
            if best is None or score > best_score:
                best, best_score = request, score
        return best

    def victim(self, view: View, draft: Draft, running: Sequence[int]) -> int:
        """Return the request that was admitted last, or the one that costs least per time saved."""
        if not self.chooses:
            return running[-1]
        return max(reversed(running), key=lambda request: self.score_without(view, draft, request))

    def score_without(self, view: View, draft: Draft, request: int) -> float:
        """Return (benefit - punishment) / time of the step without a running bulk request. Its own
        tokens are all still needed; those that others share stay in the cache, but are not told
        apart here."""
        chunks = [tokens for each, tokens in draft.chunks.items() if each != request]
        active, context = len(draft.decode), draft.decode.get(request, 0)
        active -= request in draft.decode
        before = [cached for each, cached in draft.before.items() if each != request]
        load = active, draft.context_sum - context, draft.context_max
        time = self.time.step_ns(chunks, *load, before)
        return (sum(chunks) + active - view.cached(request)) / max(1, time)


ECHO = PolicyMethod(
    "echo",
    (Information.NONE,),
    "bulk work beside interactive requests, by benefit per time under their limits (Echo)",
    lambda instance, params, information, seed: Echo(instance, params),
    EchoParams,
    rounds_at_once=lambda params: 1,
)
