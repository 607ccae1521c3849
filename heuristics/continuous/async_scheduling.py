"""``vllm``: continuous batching, its queue by group, and steps as the engine counts them.

With asynchronous scheduling steps are planned ahead.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.common.errors import InputError
from orsched.data.memory import AHEAD, LRU
from orsched.data.schedule import DECODE, PREFILL
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import VllmParams, make_queue
from orsched.heuristics.continuous.queues import GroupQueue
from orsched.heuristics.policy_method import ANY, PolicyMethod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.data.step import Step
    from orsched.heuristics.continuous.params import ContinuousParams
    from orsched.heuristics.continuous.queues import Queue
    from orsched.simulator.paging import PrefixView, Trial
    from orsched.simulator.policy import Information, Policy, View


class GroupBatching(ContinuousBatching):
    """``vllm`` with ``lengths=group``: it learns from each finish, and knows nothing before."""

    def __init__(self, params: VllmParams, information: Information) -> None:
        if params.by not in ("longest", "shortest") or params.async_scheduling:
            raise InputError(
                "lengths=group orders requests longest or shortest first, as steps end",
                field="lengths",
                remedy="give order=longest or order=shortest, and no async_scheduling",
            )
        super().__init__(params, information, GroupQueue(params.by))
        self.fresh: dict[int, None] = {}  # being prefilled
        self.origin: dict[int, int] = {}  # request -> the round from which its tokens count

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again."""
        self.fresh.pop(request, None)
        self.origin.pop(request, None)
        super().on_preempt(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Learn how long the request was."""
        self.fresh.pop(request, None)
        origin = self.origin.pop(request, None)
        learned: GroupQueue = self.queue  # type: ignore[assignment]  # shared by workers
        learned.learn(request, 1 if origin is None else view.rounds - origin)
        super().on_finish(view, request, client)

    def decide(self, view: View) -> Step | None:
        """Return the next step."""
        for request in [each for each in self.fresh if view.decodes(each)]:
            del self.fresh[request]
            self.origin[request] = view.rounds - view.generated(request)
        step = super().decide(view)
        if step is not None:
            self.fresh.update(dict.fromkeys(step.prefill))
        return step


class EngineStep(NamedTuple):
    """One engine iteration: ``start_ns`` is the start of the row of steps that it is in (that of
    its first round); ``tokens`` maps requests to the tokens processed; ``preempted`` are the rows
    of requests whose caches were freed since the iteration before."""

    start_ns: int
    tokens: dict[int, int]
    preempted: list[int]


def engine_steps(schedule: Schedule, worker: int = 0) -> Iterator[EngineStep]:
    """Yield the iterations of one worker in order, each round of a run on its own. One that
    preempts and serves none is in no schedule, nor here: a request counts as preempted in the first
    iteration without it."""
    steps = schedule.steps
    indices = [i for i, each in enumerate(steps.worker.tolist()) if each == worker]
    prefills, begins, ends, lost = _by_step(schedule, {i: n for n, i in enumerate(indices)})
    active: dict[int, None] = {}
    for place, index in enumerate(indices):
        active |= dict.fromkeys(begins[place])
        tokens = dict(prefills[place])
        if steps.phase[index] != PREFILL:
            tokens |= dict.fromkeys(active, 1)
        start, preempted = int(steps.start_ns[index]), sorted(lost[place])
        for _ in range(int(steps.rounds[index])):
            yield EngineStep(start, dict(tokens), preempted)
            preempted = []
        for request in ends[place]:
            del active[request]


def _by_step(schedule: Schedule, place: dict[int, int]) -> tuple[dict[int, Any], ...]:
    """Return, by place on the worker: chunks, decode rows that begin, that end, caches lost."""
    prefills, begins, ends, lost = (defaultdict[int, Any](list) for _ in range(4))
    work = schedule.work
    columns = (work.request, work.stay, work.phase, work.first_step, work.last_step, work.tokens)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for row, after in zip(rows, [*rows[1:], (-1, 0)], strict=True):
        request, stay, phase, first, last, tokens = row
        if first not in place:
            continue
        if phase == PREFILL:
            prefills[place[first]].append((request, tokens))
        elif phase == DECODE:
            begins[place[first]].append(request)
            ends[place[last]].append(request)
        if after[0] == request and after[1] > stay:
            lost[place[last] + 1].append(request)
    return prefills, begins, ends, lost


def as_scheduled(
    iterations: Iterable[tuple[Mapping[int, int], Iterable[int]]],
) -> list[tuple[dict[int, int], list[int]]]:
    """Return what a schedule can show of an engine's own record (request -> tokens and the
    preempted requests of each iteration), to compare it with that: iterations without tokens are
    left out, a preemption is put where ``engine_steps`` has it. One of a request that is never
    served again cost nothing, and is left out: its last token was in flight."""
    shown: list[tuple[dict[int, int], list[int]]] = []
    served: dict[int, int] = {}
    losses = []
    for tokens, preempted in iterations:
        losses += [(served[request] + 1, request) for request in preempted]
        if tokens:
            served |= dict.fromkeys(tokens, len(shown))
            shown.append((dict(tokens), []))
    for place, request in sorted(losses):
        if place <= served[request]:
            shown[place][1].append(request)
    return shown


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
        if view.prefixes is None:  # blocks that hold nothing are free at once
            preempt = [request for request in step.preempt if request not in self.leaving]
            if not (preempt or step.prefill or step.decode != ()):
                return None
            step = step._replace(preempt=preempt)
        # one round: what the next one does depends on what is known now
        return step._replace(rounds=1, ahead=True)

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
