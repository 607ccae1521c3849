"""Pools of workers: requests are prefilled in one, and decode in the other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_bool, require_one_of
from orsched.common.units import MAX_TOKENS, NEVER, seconds_to_ns
from orsched.costs.protocol import prefill_ns
from orsched.data.step import FINISH, UNTIL_EVENT, Step
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import MODES, ContinuousParams
from orsched.heuristics.continuous.queues import ArrivalQueue
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.data.instance import Instance
    from orsched.data.step import Wait
    from orsched.data.workers import Worker
    from orsched.simulator.policy import View


PLACES = ("requests", "memory")


@dataclass(frozen=True)
class DisaggregatedParams:
    """Parameters of ``disaggregated``; the first four are those of ``vllm``, on every worker.

    Attributes:
        max_num_batched_tokens: the token budget of a step.
        chunked_prefill: whether a prompt may be split over steps.
        mode: as in ``vllm``; it matters on workers that prefill and decode.
        watermark_blocks: blocks that stay free when a request joins others.
        decode_place: where a prefilled request goes: ``requests``: to the worker with the fewest
            for each client; ``memory``: to the one with the most free blocks.
        local_prompt_tokens: longest prompts that are prefilled where they decode, if a worker has
            both roles (Dynamo: max_local_prefill_length).
        prefill_queue_tokens: the same for all prompts while each prefill worker has more prompt
            tokens to prefill than this (Dynamo: max_prefill_queue_size, in requests there;
            Splitwise: the queue from which on machines are mixed). None: never.
        ttft_s: limit by which workers that only prefill order prompts: those that can be in time
            come first and whole, each on the last worker that is in time; late ones wait, and are
            chunks of the token budget. None: by arrival.
    """

    max_num_batched_tokens: int = 2048
    chunked_prefill: bool = True
    mode: str = "mixed"
    watermark_blocks: int = 0
    decode_place: str = "requests"
    local_prompt_tokens: int = 0
    prefill_queue_tokens: int | None = None
    ttft_s: float | None = None

    def __post_init__(self) -> None:
        require_one_of(self.mode, "mode", MODES)
        require_one_of(self.decode_place, "decode_place", PLACES)
        require_bool(self.chunked_prefill, "chunked_prefill")
        for name, least in (
            ("max_num_batched_tokens", 1),
            ("watermark_blocks", 0),
            ("local_prompt_tokens", 0),
        ):
            whole_number(getattr(self, name), name, minimum=least, maximum=MAX_TOKENS)
        if self.prefill_queue_tokens is not None:
            whole_number(self.prefill_queue_tokens, "prefill_queue_tokens")
        if self.ttft_s is not None:
            seconds_to_ns(self.ttft_s, "ttft_s")

    def require_fit(self, instance: Instance, given: Mapping[str, Any]) -> None:
        """Refuse a prompt that no step can hold, at the parameter that was given."""
        if self.ttft_s is not None and instance.caches_prefixes:
            raise InputError(
                "ttft_s does not know how much of a prompt a prefix cache holds",
                field="ttft_s",
                remedy="leave it out, or the prefix caches",
            )
        self.of_worker.require_fit(instance, given)

    @property
    def of_worker(self) -> ContinuousParams:
        """The parameters of the batching on each worker."""
        return ContinuousParams(
            max_num_batched_tokens=self.max_num_batched_tokens,
            chunked_prefill=self.chunked_prefill,
            mode=self.mode,
            watermark_blocks=self.watermark_blocks,
        )


class DecodeQueue(ArrivalQueue):
    """First come first served; the victim is the last admitted that has decoded here."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: dict[int, int] = {}  # request -> tokens as it was taken over, until it decodes

    def victim(self, running: Sequence[int]) -> int:
        """Return the last admitted request that is not fresh. There is one where memory is short:
        blocks for its next token are kept with a fresh one."""
        return next((each for each in reversed(running) if each not in self.fresh), running[-1])

    def forget(self, request: int) -> None:
        """Take note that a request is done."""
        self.fresh.pop(request, None)


class Disaggregated(Policy):
    """Continuous batching on every worker; prefilled requests go to the pool that decodes.

    An arriving request is prefilled by the worker of the role prefill with the fewest prompt tokens
    to prefill for its cost, or, where the parameters say so, by one of both roles, where it stays.
    From its prefill's end it belongs to a worker that decodes, which takes requests over in order
    of hand-over while it has clients and blocks. Preempted requests are prefilled again: where they
    were if that worker prefills, else as if they arrived.
    """

    name = "disaggregated"
    many_workers = True
    waits_for_workers = True
    assigns = True
    roles = True

    def __init__(self, params: DisaggregatedParams) -> None:
        self.params = params
        self.information = Information.NONE
        self.chunks = params.of_worker.chunked_prefill and params.mode != "prefill_first"

    def start(self, view: View) -> None:
        """Make a policy for each worker, and the pools."""
        views = view.workers
        self.queues = [DecodeQueue() for _ in views]
        self.policies = [
            ContinuousBatching(self.params.of_worker, self.information, queue)
            for queue in self.queues
        ]
        for policy, own in zip(self.policies, views, strict=True):
            policy.start(own)
        roles = [each.worker.role for each in views]
        self.prefill_pool = [i for i, role in enumerate(roles) if role == "prefill"]
        self.decode_pool = [i for i, role in enumerate(roles) if role != "prefill"]
        self.both = [i for i, role in enumerate(roles) if role == "both"]
        self.tokens = [_tokens(each.worker) for each in views]
        self.to_prefill = [0] * len(views)  # prompt tokens placed and not prefilled yet
        self.open = [0] * len(views)  # requests that decode or will decode on a worker
        self.owner: dict[int, int] = {}
        self.due: dict[int, tuple[int, int]] = {}  # request -> worker that prefills, its tokens
        self.handed: list[deque[int]] = [deque() for _ in views]
        self.counts = {"prefilled_remotely": 0, "prefilled_locally": 0}

    # -- where ----------------------------------------------------------------------------

    def on_arrival(self, view: View, request: int) -> int:
        """Let a worker prefill the request."""
        chosen = self._place(view, request)
        self.policies[chosen].on_arrival(view.workers[chosen], request)
        return chosen

    def _place(self, view: View, request: int) -> int:
        """Choose who prefills a request, and let it be due there."""
        tokens = view.to_prefill(request)
        chosen = self._least_prefill(view, request)
        if self.both and (chosen < 0 or self._is_local(tokens, self.to_prefill[chosen])):
            chosen = self._fewest(view, self._able(view, request, self.both))
            self._own(request, chosen)
            self.counts["prefilled_locally"] += 1
        else:
            self.counts["prefilled_remotely"] += 1
        self.to_prefill[chosen] += tokens
        self.due[request] = chosen, tokens
        return chosen

    def _is_local(self, tokens: int, queued: int) -> bool:
        limit = self.params.prefill_queue_tokens
        return tokens <= self.params.local_prompt_tokens or (limit is not None and queued > limit)

    def _able(self, view: View, request: int, pool: list[int]) -> list[int]:
        """Return those of a pool that hold a request of any length, else the largest ones."""
        most = max((self.tokens[each] for each in pool), default=0)
        needed = min(most, view.prompt_tokens[request] + view.output_limit_tokens)
        return [each for each in pool if self.tokens[each] >= needed]

    def _least_prefill(self, view: View, request: int) -> int:
        """Return the prefill worker with the least to prefill, -1 without a pool; ties go first."""
        able = self._able(view, request, self.prefill_pool)
        return min(able, key=self.to_prefill.__getitem__, default=-1)

    def _fewest(self, view: View, pool: list[int]) -> int:
        """Return the worker of a pool with the fewest requests for each client; ties go first."""
        views = view.workers
        return min(pool, key=lambda each: self.open[each] / views[each].worker.clients)

    def _decode_place(self, view: View, request: int) -> int:
        pool = self._able(view, request, self.decode_pool)
        if self.params.decode_place == "memory":
            free = [(view.workers[each].blocks_unused, each) for each in pool]
            if all(blocks is not None for blocks, _ in free):
                most = max(blocks for blocks, _ in free if blocks is not None)
                fullest = [each for blocks, each in free if blocks == most]
                return self._fewest(view, fullest)
        return self._fewest(view, pool)

    def _own(self, request: int, worker: int) -> None:
        self.owner[request] = worker
        self.open[worker] += 1

    def _disown(self, request: int) -> None:
        worker = self.owner.pop(request, None)
        if worker is not None:
            self.open[worker] -= 1

    def _prefilled(self, request: int) -> None:
        worker, tokens = self.due.pop(request, (0, 0))
        self.to_prefill[worker] -= tokens

    # -- what happens ---------------------------------------------------------------------

    def on_prefilled(self, view: View, request: int) -> int | None:
        """Hand the request to a worker that decodes, unless it is one already."""
        self._prefilled(request)
        if view.worker.decodes:
            return None
        chosen = self._decode_place(view, request)
        self._own(request, chosen)
        self.handed[chosen].append(request)
        return chosen

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Forget the request."""
        self._prefilled(request)
        self._disown(request)
        self.queues[view.index].forget(request)

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again, here or where it is prefilled again."""
        if view.worker.prefills:
            self._prefilled(request)
            tokens = view.to_prefill(request)
            self.to_prefill[view.index] += tokens
            self.due[request] = view.index, tokens
            self.queues[view.index].put_back(request)
            return
        self._disown(request)
        chosen = self._place(view, request)
        self.queues[chosen].put_back(request)

    def decide(self, view: View) -> Step | Wait | None:
        """Take over who fits, else ask the worker's own policy."""
        index = view.index
        taken = self._take_over(view) if self.handed[index] else []
        if taken:
            return Step(receive=taken, decode=())
        fresh = self.queues[index].fresh
        for request in [each for each in fresh if view.decodes(each)]:
            if view.generated(request) > fresh[request]:
                del fresh[request]
        step = self.policies[index].decide(view)
        if step is not None and step.until == FINISH and not step.prefill and self.prefill_pool:
            return step._replace(until=UNTIL_EVENT)  # a cache that comes ends the rounds, too
        return step

    def _take_over(self, view: View) -> list[int]:
        """Return the requests that are taken over now, in order, until the first that lacks room:
        blocks for the cache and a further token, beside those of the next round."""
        handed, fresh = self.handed[view.index], self.queues[view.index].fresh
        memory, taken = view.worker.memory, []
        clients, free = view.free_clients, view.blocks_left(1)
        beside = bool(view.running or view.receiving)
        while handed and clients:
            request = handed[0]
            if memory is not None and free is not None:
                by_prefill = view.first_token == "prefill"
                tokens = view.prompt_tokens[request] + view.generated(request) - by_prefill
                blocks = -(-(tokens + 1) // memory.block_tokens)
                if blocks + (self.params.watermark_blocks if beside else 0) > free:
                    break
                free -= blocks
            taken.append(handed.popleft())
            fresh[request] = view.generated(request)
            clients -= 1
            beside = True
        return taken

    def counted(self) -> dict[str, int]:
        """Return how many prefills were remote and local."""
        return dict(self.counts)


class InTime(Disaggregated):
    """``disaggregated`` with a limit on TTFT, by which workers of the role prefill order prompts.

    A request goes to the worker that would prefill it last and still in time, so that others stay
    free for long prompts. A late one, which no worker prefills in time, goes to the worker with the
    fewest of them, and waits until nothing that is in time does.
    """

    def __init__(self, params: DisaggregatedParams) -> None:
        super().__init__(params)
        assert params.ttft_s is not None
        self.ttft_ns = seconds_to_ns(params.ttft_s, "ttft_s")

    def start(self, view: View) -> None:
        """Make a queue of requests in time and one of late ones for each worker."""
        super().start(view)
        self.queued = [(deque[int](), deque[int]()) for _ in view.workers]
        self.free_ns = [0] * len(view.workers)  # when a worker has prefilled what is in time

    def on_arrival(self, view: View, request: int) -> int:
        """Let a worker prefill the request."""
        chosen = self._place(view, request)
        if view.workers[chosen].worker.decodes:
            self.policies[chosen].on_arrival(view.workers[chosen], request)
        return chosen

    def _least_prefill(self, view: View, request: int) -> int:
        """Return the prefill worker that is last in time, else that with the fewest late ones."""
        able = self._able(view, request, self.prefill_pool)
        due, tokens = view.arrival_ns[request] + self.ttft_ns, view.to_prefill(request)
        ends = {each: self._end_ns(view, each, tokens) for each in able}
        in_time = [each for each in able if ends[each] <= due]
        if in_time:
            return max(in_time, key=ends.__getitem__)
        return min(able, key=lambda each: (len(self.queued[each][1]), ends[each]), default=-1)

    def _end_ns(self, view: View, index: int, tokens: int) -> int:
        """Return when a worker would have prefilled a further prompt, whole if a step holds it."""
        worker = view.workers[index].worker
        most = worker.prefill_limit or NEVER
        parts = (([min(most, tokens - at)], [at]) for at in range(0, tokens, most))
        own = sum(prefill_ns(worker.cost, *part) for part in parts)
        return max(view.now_ns, self.free_ns[index]) + own

    def _place(self, view: View, request: int) -> int:
        chosen = super()._place(view, request)
        if not view.workers[chosen].worker.decodes:
            end_ns = self._end_ns(view, chosen, view.to_prefill(request))
            late = end_ns > view.arrival_ns[request] + self.ttft_ns
            self.queued[chosen][late].append(request)
            if not late:
                self.free_ns[chosen] = end_ns
        return chosen

    def on_preempt(self, view: View, request: int) -> None:
        """Queue the request again: one in time first, a late one last."""
        if view.worker.decodes:
            super().on_preempt(view, request)
            return
        if not any(request in queue for queue in self.queued[view.index]):
            self.queued[view.index][1].append(request)

    def decide(self, view: View) -> Step | Wait | None:
        """Prefill the next prompt in time, else a chunk of a late one (the token budget)."""
        index = view.index
        if view.worker.decodes:
            return super().decide(view)
        soon, late = self.queued[index]
        queue = soon or late
        if not queue:
            return None
        request, most = queue[0], view.worker.prefill_limit or NEVER
        if queue is late and self.params.chunked_prefill:
            most = min(most, self.params.max_num_batched_tokens)
        tokens = min(most, left := view.to_prefill(request))
        if not _has_room(view, request, tokens):
            begun = [each for each in late if each != request and each in view.running]
            return Step(preempt=begun, decode=()) if begun else None
        if tokens == left:
            queue.popleft()
        if queue is late:
            self.free_ns[index] = view.now_ns + prefill_ns(view.worker.cost, [tokens])
        return Step(prefill=[request], tokens=[tokens], decode=())


def _has_room(view: View, request: int, tokens: int) -> bool:
    """Whether a client and blocks are free for a chunk."""
    memory, free, cached = view.worker.memory, view.blocks_unused, view.cached(request)
    if request not in view.running and not view.free_clients:
        return False
    if memory is None or free is None:
        return True
    size = memory.block_tokens
    return -(-(cached + tokens) // size) + cached // -size <= free


def _tokens(worker: Worker) -> float:
    """Return the most tokens that a worker's memory holds."""
    memory = worker.memory
    return inf if memory is None else memory.tokens


DISAGGREGATED = PolicyMethod(
    "disaggregated",
    (Information.NONE,),
    "prefill and decode on different workers; caches go over links (DistServe, Splitwise, Dynamo)",
    lambda instance, params, information, seed: (
        Disaggregated(params) if params.ttft_s is None else InTime(params)
    ),
    DisaggregatedParams,
    many_workers=True,
    needs_roles=True,
)
