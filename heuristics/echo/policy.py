"""Echo: bulk requests chosen by benefit per time, memory kept free for interactive ones."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.errors import InputError
from orsched.data.eviction import TASK_AWARE
from orsched.heuristics.colocation.draft import UNLIMITED
from orsched.heuristics.colocation.policy import Colocation
from orsched.heuristics.colocation.pools import ArrivalPool, PrefixGroups
from orsched.heuristics.echo.estimators import MemoryForecast, PoolingTime, fitted_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.data.instance import Instance
    from orsched.heuristics.colocation.draft import Draft, StepTime
    from orsched.heuristics.colocation.room import Room
    from orsched.heuristics.echo.params import EchoParams
    from orsched.simulator.policy import View


class Buckets:
    """Bulk requests by quantiles of their prompt lengths, in each by the prefixes they share.

    The bounds are the quantiles of all bulk requests of the instance (they are submitted in
    advance; prompts only, no output length).
    """

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
        """Yield the first requests of the groups, bucket by bucket, each from where it was.

        At most so many in all; every bucket gives the same number as far as it has them.
        """
        trees = [each for each in range(len(self.trees)) if len(self.trees[each])]
        for place in trees:
            groups = self.trees[place]
            chains = groups.chains
            begin = bisect_left(chains, self.last_chain[place])
            for step in range(min(len(chains), -(-most // len(trees)))):
                yield groups.groups[chains[(begin + step) % len(chains)]][0]


LEAST_LONGEST = 1024
"""Micro-benchmarks go up to the longest prompt, but at least so far."""


class Echo(Colocation):
    """Echo (Wang et al., arXiv 2504.03651) in one of its four configurations.

    The iteration's SLO is the least time to the due token of any interactive request in it
    (5.1). Without the scheduler (S) bulk requests are first come first served; with it the best of
    the candidates of all buckets is taken by (benefit - punishment) / time: eq. (4), but with the
    benefit of the candidate alone in the place of all the step's. The one of the running bulk
    requests without which (4) is largest, of the whole step, is preempted. With the KV manager (M)
    the worker evicts blocks by Echo's priorities, and bulk requests are admitted only as long as
    the blocks that interactive ones are expected to need beyond those they have stay free.

    The punishment, eq. (2), of an admission are the tokens of cached blocks that waiting candidates
    would find and that have to go, if whatever else is in the free blocks goes first.
    """

    def __init__(self, instance: Instance, params: EchoParams) -> None:
        self.own = params
        parts = params.configuration.split("+")
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
        if not self.manages or not room.size:
            return
        bulk, size = self.bulk, room.size
        held = sum(-(-view.cached(each) // size) for each in view.running if not bulk[each])
        self.forecast.see(view.now_ns, held)
        self.held_back = max(0, self.forecast.blocks(view.now_ns) - held)

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
        for request, (hit, leaving) in found.items():
            left = view.to_prefill(request) - hit
            new = room.needed(request, hit, left)
            chunk = min(left, most)
            if chunk <= 0 or (new + leaving > allowed and not alone):
                continue
            others = needed_free - leaving
            lost = max(0, new - (room.free - leaving - others)) * room.size
            benefit = chunk + self.own.hit_benefit * hit - lost
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
        """Return (benefit - punishment) / time of the step without a running bulk request.

        Its tokens are all still needed, by itself; those that others share stay in the cache, but
        are not told apart here.
        """
        chunks = [tokens for each, tokens in draft.chunks.items() if each != request]
        active, context = len(draft.decode), draft.decode.get(request, 0)
        active -= request in draft.decode
        before = [cached for each, cached in draft.before.items() if each != request]
        load = active, draft.context_sum - context, draft.context_max
        time = self.time.step_ns(chunks, *load, before)
        return (sum(chunks) + active - view.cached(request)) / max(1, time)
