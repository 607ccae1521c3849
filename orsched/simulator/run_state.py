"""What all workers share in a run: true lengths, the place of each request, and what views show:
what an information class grants a policy, and nothing more."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import read_only
from orsched.common.errors import InputError
from orsched.common.units import NEVER
from orsched.data.feasibility import roles_of, takes_prompt
from orsched.data.memory import AHEAD, LRU
from orsched.data.service_classes import LABELLED
from orsched.simulator.block_cache import BlockCache
from orsched.simulator.free_blocks import (
    BlockWorth,
    FutureUsers,
    LeastRecent,
    LeastWorth,
    PrefixChains,
)
from orsched.simulator.policy import (
    ClairvoyantView,
    Information,
    PredictedView,
    View,
    WorkerState,
    overridden,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.memory import BlockMemory, Eviction
    from orsched.simulator.free_blocks import Arrivals
    from orsched.simulator.policy import Policy, WorkerState


WAITING, SERVED, DONE = 0, 1, 2

_CHECK_DEADLINE_EVERY = 4095


class RunState:
    """Requests, arrivals and hooks of one run. ``assigns``: whether arrivals end rounds only where
    the policy says so. ``follows``: whether some arrive when others have ended."""

    follows = False

    def __init__(self, instance: Instance, policy: Policy) -> None:
        requests, n = instance.requests, len(instance)
        self.prompts = read_only(requests.prompt_tokens)
        self.outputs = read_only(requests.output_tokens)
        self.arrivals: memoryview = read_only(requests.arrival_ns)
        self.first_from_prefill = instance.first_token == "prefill"
        self.status = bytearray(n)  # WAITING, SERVED or DONE by request
        self.stays: dict[int, int] = {}  # number of the present (or next) stay, of those evicted
        self.yielded: dict[int, int] = {}  # tokens of those that do not decode now
        self.left = n  # unfinished requests
        self.most: int | None = None  # that wait or run: others are rejected as they arrive
        self.rejected: list[int] = []
        self.ended: list[int] = []  # when requests ended, in order
        self.assigns = policy.assigns and len(instance.workers) > 1
        self.concerned: list[int | None] = []  # what the policy said of the arrivals told last
        self.now_ns = 0  # the time of the event that is being handled
        self.hidden: list[tuple[memoryview, memoryview]] = []
        order = np.argsort(requests.arrival_ns, kind="stable")
        self.arrival_order: Sequence[int] = read_only(order)
        self.arrival_times: Sequence[int] = read_only(requests.arrival_ns[order])
        self.next_arrival = 0
        self.next_arrival_ns = self.arrival_times[0] if n else NEVER  # of the next one to tell
        self.deadline: Callable[[], None] | None = None
        self.prefix_caches = (
            PrefixCaches(instance, policy, self) if instance.caches_prefixes else None
        )
        hooks = overridden(policy)
        self.on_arrival = policy.on_arrival if "on_arrival" in hooks else None
        self.on_first_token = policy.on_first_token if "on_first_token" in hooks else None
        self.on_finish = policy.on_finish if "on_finish" in hooks else None
        self.on_preempt = policy.on_preempt if "on_preempt" in hooks else None
        self.on_prefilled = policy.on_prefilled if "on_prefilled" in hooks else None

    def eviction(self) -> dict[str, Any] | None:
        """Return the eviction rule that a policy put in place of the workers' own, or None."""
        made = self.prefix_caches
        return None if made is None or made.eviction is None else made.eviction.to_dict()

    def finished(self, request: int, now_ns: int) -> None:
        """See a request end: nothing follows from it here."""

    def _rejects(self, request: int, moment_ns: int) -> bool:
        """Whether a request is rejected, since as many were taken that have not ended before."""
        taken = self.next_arrival - 1 - len(self.rejected)
        if self.most is None or taken - bisect_left(self.ended, moment_ns) < self.most:
            return False
        self.rejected.append(request)
        self.status[request] = DONE
        self.left -= 1
        return True

    def deliver_arrivals(self, view: View) -> bool:
        """Tell the policy of the arrivals up to now; say if there were any."""
        now, times, order = self.now_ns, self.arrival_times, self.arrival_order
        hook, hidden, limited = self.on_arrival, self.hidden, self.most is not None
        i, n = self.next_arrival, len(times)
        first = i
        while i < n and times[i] <= now:
            request = order[i]
            i += 1
            self.next_arrival = i
            if not i & _CHECK_DEADLINE_EVERY and self.deadline is not None:
                self.deadline()
            if limited and self._rejects(request, times[i - 1]):
                continue
            for live, truth in hidden:
                live[request] = truth[request]
            if hook is not None:
                worker = hook(view, request)
                if self.assigns:
                    self.concerned.append(worker)
        self.next_arrival_ns = times[i] if i < n else NEVER
        return i > first

    def _tell(self, view: View, request: int) -> None:
        """Show a request that arrives, and tell the policy."""
        for live, truth in self.hidden:
            live[request] = truth[request]
        if self.on_arrival is not None:
            worker = self.on_arrival(view, request)
            if self.assigns:
                self.concerned.append(worker)


class PrefixCaches:
    """Makes the workers' caches."""

    def __init__(self, instance: Instance, policy: Policy, run_state: Arrivals) -> None:
        self.instance = instance
        self.eviction: Eviction | None = policy.eviction  # in place of the workers' own rules
        self.chains: dict[int, PrefixChains] = {}
        self.users: dict[tuple[int, Eviction], FutureUsers] = {}
        self.run_state = run_state

    def of(self, state: WorkerState) -> BlockCache | None:
        """Return the cache of a worker, or None where it has none."""
        memory = state.worker.memory
        if memory is None or memory.prefix_cache is None:
            return None
        size = memory.block_tokens
        if size not in self.chains:
            self.chains[size] = PrefixChains(self.instance, size)
        rule = memory.prefix_cache.rule if self.eviction is None else self.eviction
        if rule in (LRU, AHEAD):
            order = LeastRecent(memory.blocks)
            return BlockCache(memory.blocks, size, self.chains[size], order, rule.ahead)
        return self._counting(state.index, memory.blocks, size, rule)

    def _counting(self, worker: int, blocks: int, size: int, rule: Eviction) -> BlockCache:
        """Return a cache whose free blocks are taken by what they are worth."""
        chains, users = self.chains[size], self.users.get((size, rule))
        if users is None:
            users = FutureUsers(self.instance, self.run_state, chains, rule)
            self.users[size, rule] = users
        worth = BlockWorth(self.instance, users, worker, rule)
        cache = worth.cache = BlockCache(blocks, size, chains, LeastWorth(blocks, worth))
        cache.users, cache.worker = users, worker
        users.watch(worker, cache)
        return cache


def evicts_by_age(instance: Instance, policy: Policy) -> bool:
    """Whether all prefix caches evict the oldest content, by the policy's rule or their own."""
    caches = [w.memory.prefix_cache for w in instance.workers if w.memory is not None]
    rules = {policy.eviction or each.rule for each in caches if each is not None}
    return rules <= {LRU, AHEAD}


_UNLIMITED = 2**62


LABELS = ("service_class", *LABELLED, "deadline_ns", "weights")
"""Columns of requests, where the instance has them, that views of every information class hold."""


def build_views(
    instance: Instance,
    states: Sequence[WorkerState],
    information: Information,
    chunks: bool = False,
    arrivals: memoryview | None = None,
) -> tuple[list[View], list[tuple[memoryview, memoryview]]]:
    """Return the workers' views that an information class grants, and what is hidden from them.
    Prompts, arrivals, predictions, classes, tenants, groups, deadlines, weights and memory needs of
    requests that have not arrived read as 0 unless the policy is clairvoyant. The second value
    pairs each shown column with its truth: at a request's arrival the executor copies that row.
    ``chunks``: the policy may prefill a prompt in parts. ``arrivals``: times that follow from ends;
    no policy knows them beforehand, nor which requests they are of."""
    req = instance.requests
    sighted = information is Information.CLAIRVOYANT
    times = req.arrival_ns if arrivals is None else np.asarray(arrivals)
    columns = [req.prompt_tokens, times]
    if information is Information.PREDICTED:
        if req.predicted_tokens is None:
            raise InputError(
                "the instance has no predicted lengths",
                field="predicted_tokens",
                remedy="--predictions classes adds some, in Python predictions='classes'; or "
                "choose a policy with other information",
            )
        columns.append(req.predicted_tokens)
        if req.predicted_quantiles is not None:
            columns.extend(np.ascontiguousarray(req.predicted_quantiles.T))  # one a level
    levels = req.quantile_levels or ()
    labels = {name: getattr(req, name) for name in LABELS if getattr(req, name) is not None}
    columns += labels.values()
    models = blocks_set_aside(instance, sighted, chunks)
    columns += models.values()
    hide = arrivals is not None or (not sighted and bool(req.arrival_ns.any()))
    live = [np.zeros(len(req), np.int64) if hide else c for c in columns]
    shown = [read_only(c) for c in live]
    blocks = dict(zip(models, shown[len(shown) - len(models) :], strict=True))
    labelled = dict(zip(labels, shown[len(shown) - len(models) - len(labels) :], strict=False))
    views: list[View] = []
    for state in states:
        own = blocks[state.worker.memory] if state.worker.memory is not None else None
        if information is Information.PREDICTED:
            seen = PredictedView(state, *shown[:2], own, predicted_tokens=shown[2])
            seen.show_quantiles(levels, shown[3 : 3 + len(levels)])
            views.append(seen)
        elif sighted:
            truth = read_only(req.output_tokens)
            views.append(ClairvoyantView(state, *shown[:2], own, output_tokens=truth))
        else:
            views.append(View(state, shown[0], shown[1], own))
        views[-1].classes = instance.classes
        for name, column in labelled.items():
            setattr(views[-1], name, column)
    everyone = tuple(views)
    for view in views:
        view.workers = everyone  # one tuple: a copy each would take the square of the workers
    pairs = zip(live, columns, strict=True) if hide else ()
    return views, [(memoryview(shows), read_only(truth)) for shows, truth in pairs]  # type: ignore[arg-type]


def blocks_set_aside(
    instance: Instance, sighted: bool, chunks: bool
) -> dict[BlockMemory, IntColumn]:
    """Return the blocks to set aside for each request, by memory: all that any policy goes by.
    Those of prompt and output limit, for a clairvoyant policy of prompt and true output. Where no
    worker has as many, the largest of those that take the prompt sets all its blocks aside: the
    request runs alone there, as one of a server runs whose limit is cut to what its memory
    holds."""
    req = instance.requests
    tokens = req.prompt_tokens + (req.output_tokens if sighted else instance.output_limit_tokens)
    models = dict.fromkeys(w.memory for w in instance.workers if w.memory is not None)
    needed: dict[BlockMemory, IntColumn] = {m: -(-tokens // m.block_tokens) for m in models}
    for able in roles_of(instance):
        whole = not chunks and able == "prefills"
        kinds = dict.fromkeys(
            (w.memory, w.prefill_limit if whole else None)
            for w in instance.workers
            if getattr(w, able)
        )
        rooms = [
            (memory, np.where(takes_prompt(req, limit), _tokens_of(memory), -1))
            for memory, limit in kinds
        ]
        most = np.max([room for _, room in rooms], axis=0)
        for memory, room in rooms:
            if memory is not None:
                alone = (tokens > most) & (room == most)
                needed[memory] = np.where(alone, memory.blocks, needed[memory])
    return needed


def _tokens_of(memory: BlockMemory | None) -> int:
    return _UNLIMITED if memory is None else memory.tokens
