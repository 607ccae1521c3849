"""``vllm``: continuous batching, and asynchronous scheduling, where steps are planned ahead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.errors import InputError
from orsched.data.memory import AHEAD, LRU
from orsched.data.step import evict
from orsched.heuristics.continuous.by_group import GroupBatching
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import VllmParams, make_queue
from orsched.heuristics.policy_method import ANY, PolicyMethod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orsched.data.instance import Instance
    from orsched.data.step import Step
    from orsched.heuristics.continuous.params import ContinuousParams, Queue
    from orsched.simulator.paging import PrefixView, Trial
    from orsched.simulator.policy import Information, Policy, View


class AsyncBatching(ContinuousBatching):
    """``vllm`` with ``async_scheduling``: an engine that plans a step while another one runs.

    Of the step in flight a plan knows which tokens it processes, and nothing of what comes of it:
    requests that finish in it keep their clients and blocks for the next step, in which they get no
    token (vLLM knows ``max_tokens``; where an end-of-sequence token ends a request, an engine
    processes one more for nothing), and requests that arrive during it join a step later. Where
    nothing is in flight, or the plan serves no request, all is known.
    """

    eviction = AHEAD

    def __init__(self, params: ContinuousParams, information: Information, queue: Queue) -> None:
        super().__init__(params, information, queue)
        self.leaving: dict[int, int] = {}  # cached tokens of what finished in the last step
        self.newcomers: list[int] = []  # requests that arrived during the last step
        self.places: dict[int, int] = {}  # request -> place in the order of all admissions
        self.admitted = 0
        self.before: dict[int, int] = {}  # request -> tokens yielded when the last step began
        self.prefilled: frozenset[int] = frozenset()
        self.rounds = 0

    def start(self, view: View) -> None:
        """Know the worker; raises ``InputError`` for one that pads or has another eviction rule."""
        memory = view.worker.memory
        cache = None if memory is None else memory.prefix_cache
        if cache is not None and cache.rule != LRU:
            raise InputError(
                f"is modelled with the eviction rule lru, not {cache.eviction}",
                field="async_scheduling",
                remedy="leave it out, or set the rule of the worker's prefix cache to lru",
            )
        super().start(view)
        self.own.leaving = self.leaving

    def on_arrival(self, view: View, request: int) -> None:
        """Keep the request back from the step that is planned."""
        self.newcomers.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Let the request keep its blocks for the step that is planned."""
        tokens = self.before[request]
        tokens += 1 if request in self.prefilled else view.rounds - self.rounds
        cached = tokens - (view.first_token == "prefill")
        self.leaving[request] = view.prompt_tokens[request] + cached

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        del self.places[request]
        super().on_preempt(view, request)

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.queue) + len(self.newcomers)

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.newcomers.pop() if self.newcomers else super().surrender()

    def decide(self, view: View) -> Step | None:
        """Return the step that was planned while the last one ran, if it serves anybody."""
        step = self._planned(view) if self.leaving or self.newcomers else None
        self._learn(view)
        if step is None:
            step = super().decide(view)
        if step is not None:
            self._remember(view, step)
        return step

    def _planned(self, view: View) -> Step | None:
        """Return what the last step's successor does, or None where it serves no request."""
        if not view.running and not self.leaving:
            return None  # nothing was in flight
        step = super().decide(InFlight(view, self))  # type: ignore[arg-type]
        if step is None:
            return None
        preempt = [request for request in step.preempt if request not in self.leaving]
        if not step.prefill and step.decode == ():
            return evict(preempt) if preempt else None
        # one round: what the next one does depends on what is known now
        return step._replace(preempt=preempt, rounds=1)

    def _learn(self, view: View) -> None:
        for request in self.leaving:
            del self.places[request]
            self.queue.forget(request)
        self.leaving.clear()
        for request in self.newcomers:
            self.queue.put(view, request)
        self.newcomers.clear()

    def _remember(self, view: View, step: Step) -> None:
        self.rounds, self.prefilled = view.rounds, frozenset(step.prefill)
        self.before = {each: view.generated(each) for each in (*view.running, *step.prefill)}
        for request in step.prefill:
            if request not in self.places:
                self.places[request] = self.admitted
                self.admitted += 1


class InFlight:
    """A view of a worker as it was known when the last step began, its tokens counted."""

    def __init__(self, view: View, policy: AsyncBatching) -> None:
        self._view, self._leaving = view, policy.leaving
        everyone: Iterable[int] = (*view.running, *policy.leaving)
        self.running = dict.fromkeys(sorted(everyone, key=policy.places.__getitem__), 0)
        self.free_clients = view.free_clients - len(policy.leaving)
        memory = view.worker.memory
        if memory is None:
            self._blocks = 0
        elif view.prefixes is not None:
            self._blocks = view.prefixes.held_by_left
        elif memory.is_paged:
            size = memory.block_tokens
            self._blocks = sum(-(-cached // size) for cached in policy.leaving.values())
        else:
            self._blocks = sum(map(view.blocks_of, policy.leaving))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    @property
    def prefixes(self) -> PlannedAhead | None:
        """The prefix cache, in which what finished still has its blocks."""
        prefixes = self._view.prefixes
        return None if prefixes is None else PlannedAhead(prefixes)

    @property
    def blocks_unused(self) -> int | None:
        """Blocks that no cache fills."""
        blocks = self._view.blocks_unused
        return None if blocks is None else blocks - self._blocks

    def blocks_left(self, rounds: int) -> int | None:
        """Blocks that no cache fills after further rounds."""
        blocks = self._view.blocks_left(rounds)
        return None if blocks is None else blocks - self._blocks

    def cached(self, request: int) -> int:
        """Tokens in the cache of a request."""
        cached = self._leaving.get(request)
        return self._view.cached(request) if cached is None else cached


class PlannedAhead:
    """A prefix cache on which trials are as the next step is planned: ahead."""

    def __init__(self, prefixes: PrefixView) -> None:
        self._prefixes = prefixes

    def trial(self) -> Trial:
        """Begin to try a step."""
        return self._prefixes.trial(ahead=True)


def _continuous(
    instance: Instance, params: VllmParams, information: Information, seed: int
) -> Policy:
    if params.lengths == "group":
        return GroupBatching(params, information)
    kind = AsyncBatching if params.async_scheduling else ContinuousBatching
    return kind(params, information, make_queue(instance, params, information))


VLLM = PolicyMethod(
    "vllm",
    ANY,
    "continuous batching with chunked prefill under a token budget and preemption (vLLM V1)",
    _continuous,
    VllmParams,
)
