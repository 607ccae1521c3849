"""Parameters of the batching modes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.kv_volume import block_rounds
from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.common.scalars import require_bool, require_one_of
from orsched.common.units import MAX_TIME_NS, MAX_TOKENS, seconds_to_ns
from orsched.data.memory import BlockMemory
from orsched.heuristics.continuous.queues import ArrivalQueue, PriorityQueue
from orsched.simulator.policy import ClairvoyantView, PredictedView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orsched.data.instance import Instance
    from orsched.heuristics.continuous.queues import Queue
    from orsched.simulator.policy import Information, View


POLICIES = ("fcfs", "priority")
PRIORITIES = ("arrival", "service_class", "length")
ORDERS = ("arrival", "service_class", "due", "shortest", "longest", "volume")
LENGTHS = ("known", "group")
MODES = ("mixed", "decode_first", "prefill_first")


@dataclass(frozen=True)
class Order:
    """Which waiting request is next.

    Attributes:
        order: which is next: ``arrival``; ``service_class`` (interactive before batch, or the
            smallest priority of a file); ``due``: the earliest due date, those without one last;
            ``shortest`` or ``longest`` by output tokens; ``volume``: the most blocks over its
            rounds. The last three need information on lengths. Ties go by arrival, then row.
        aging_s: seconds of waiting that count as one level of the order (a service class, a token,
            a block in a round); None: no aging, so that a request may wait for ever.
    """

    order: str = "arrival"
    aging_s: float | None = None

    def __post_init__(self) -> None:
        require_one_of(self.order, "order", ORDERS)
        if self.aging_s is not None:
            seconds_to_ns(self.aging_s, "aging_s")

    @property
    def by(self) -> str:
        """The order, one of ``ORDERS``."""
        return self.order

    @property
    def first_come(self) -> bool:
        """Whether the queue is first come first served, with what was preempted at its front."""
        return self.order == "arrival"

    @property
    def aging_ns(self) -> int | None:
        """The wait that counts as much as one level."""
        return None if self.aging_s is None else seconds_to_ns(self.aging_s, "aging_s")


@dataclass(frozen=True)
class Ordering(Order):
    """Which waiting request is next, in vLLM's words too.

    Attributes:
        policy: ``fcfs``: as ``order`` says; ``priority``: the smallest ``priority`` first.
        priority: ``service_class``, ``length`` (``order=shortest``) or ``arrival``, by which a
            request that was preempted is queued again, where ``order=arrival`` puts it first.
    """

    policy: str = "fcfs"
    priority: str = "service_class"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.policy, "policy", POLICIES)
        require_one_of(self.priority, "priority", PRIORITIES)
        if self.policy == "priority" and self.order != "arrival":
            raise InputError(
                f"order={self.order} and policy=priority both say which request is next",
                field="order",
                remedy="leave one of them out",
            )

    @property
    def by(self) -> str:
        """The order, one of ``ORDERS``."""
        if self.policy == "fcfs":
            return self.order
        return "shortest" if self.priority == "length" else self.priority

    @property
    def first_come(self) -> bool:
        """Whether the queue is first come first served, with what was preempted at its front."""
        return self.policy == "fcfs" and self.order == "arrival"


@dataclass(frozen=True)
class ContinuousParams(Ordering):
    """Parameters of ``vllm``: those of vLLM under the names that they have there.

    The worker's clients are vLLM's ``max_num_seqs``; its paged memory has the KV blocks.

    Attributes:
        max_num_batched_tokens: the token budget, most tokens of a step: one for each request that
            decodes, and the prompt tokens. ``ridge``: the tokens that a step computes in the time
            in which it reads the weights, by the cost model; the least of several workers'.
        max_num_scheduled_tokens: a smaller token budget; None: the same. Only the share of
            ``long_prefill_token_threshold_adaptive`` is of ``max_num_batched_tokens`` then.
        max_num_active_seqs: most requests that run at once, up to the worker's clients; None: them.
        max_num_queued_reqs: vLLM's front end rejects a request that arrives when so many wait or
            run. ``simulate`` and ``solve`` leave it out and count it as missed.
        long_prefill_token_threshold: most prompt tokens of one request in a step; 0: no limit.
            Not with the mode ``prefill_first``.
        long_prefill_token_threshold_adaptive: whether this limit is at least an equal share of
            ``max_num_batched_tokens`` among the requests that wait or run.
        prefill_schedule_interval: steps from one with prompt tokens to the next while requests
            decode. It waits no longer once requests are left over that find no room.
        chunked_prefill: whether a prompt may be split over steps.
        mode: ``mixed``: running requests in the order of admission, then waiting ones (vLLM V1);
            ``decode_first``: what decodes, then begun prefills, then waiting requests
            (Sarathi-Serve); ``prefill_first``: stages of whole prompts whenever some fit, else
            rounds (vLLM V0).
        reserve_full_prompt: admit a request only when its whole prefill fits into the free blocks,
            not its first chunk alone (vLLM: scheduler_reserve_full_isl).
        watermark_blocks: blocks that stay free at an admission beside running requests.
    """

    max_num_batched_tokens: int = 2048
    max_num_scheduled_tokens: int | None = None
    max_num_active_seqs: int | None = None
    max_num_queued_reqs: int | None = None
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    prefill_schedule_interval: int = 1
    chunked_prefill: bool = True
    mode: str = "mixed"
    reserve_full_prompt: bool = True
    watermark_blocks: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self.mode, "mode", MODES)
        for name in _FLAGS:
            require_bool(getattr(self, name), name)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                whole_number(value, name, minimum=least, maximum=MAX_TOKENS)
        if self.mode == "prefill_first":
            divided = self.long_prefill_token_threshold and "long_prefill_token_threshold"
            apart = self.prefill_schedule_interval > 1 and "prefill_schedule_interval"
            if field := divided or apart:
                raise InputError(
                    "mode=prefill_first prefills whole prompts as soon as some fit: it has neither "
                    "a threshold nor an interval",
                    field=field,
                    remedy="leave it out, or set mode to mixed or decode_first",
                )

    @property
    def budget(self) -> int:
        """Most tokens of a step."""
        return min(self.max_num_batched_tokens, self.max_num_scheduled_tokens or MAX_TOKENS)

    @property
    def splits(self) -> bool:
        """Whether a prompt may be split over steps."""
        return self.chunked_prefill and self.mode != "prefill_first"

    @property
    def why_whole(self) -> str:
        """The setting for which prompts are not split."""
        return "mode=prefill_first" if self.mode == "prefill_first" else "chunked_prefill=false"

    def require_fit(self, instance: Instance, given: Mapping[str, Any]) -> None:
        """Refuse a prompt that no step can hold, at the parameter that was given, and limits on
        requests that the workers or the schedule cannot keep."""
        seats, active = min(each.clients for each in instance.workers), self.max_num_active_seqs
        if active is not None and active > seats:
            raise InputError(
                f"{active:,} is more than the {seats:,} clients of a worker",
                field="max_num_active_seqs",
                remedy=f"give at most {seats}",
            )
        if self.max_num_queued_reqs is not None and len(instance) > self.max_num_queued_reqs:
            raise InputError(
                "requests beyond this number are rejected (HTTP 503), and here all methods serve "
                "the same requests",
                field="max_num_queued_reqs",
                remedy="use orsched simulate or solve, which leave them out and count them as "
                f"missed, or give {len(instance)} or more, which rejects none",
            )
        prompts = instance.requests.prompt_tokens
        if self.splits or not len(prompts) or prompts.max() <= self.budget:
            return
        row = int(prompts.argmax())
        scheduled = self.budget < self.max_num_batched_tokens
        limit = "max_num_scheduled_tokens" if scheduled else "max_num_batched_tokens"
        settings = (self.why_whole.partition("=")[0], limit)
        raise InputError(
            f"{self.why_whole} does not split prompts, and request {instance.requests.id_of(row)} "
            f"(row {row}) has {prompts[row]:,} tokens, more than the "
            f"{self.budget:,} of a step",
            field=next((name for name in settings if name in given), settings[0]),
            remedy=f"raise {limit} to {prompts[row]}, or leave {settings[0]} out",
        )


_FLAGS = ("chunked_prefill", "reserve_full_prompt", "long_prefill_token_threshold_adaptive")
_OPTIONAL = ("max_num_scheduled_tokens", "max_num_active_seqs", "max_num_queued_reqs")
_LEAST = {
    "max_num_batched_tokens": 1,
    **dict.fromkeys(_OPTIONAL, 1),
    "long_prefill_token_threshold": 0,
    "prefill_schedule_interval": 1,
    "watermark_blocks": 0,
}


@dataclass(frozen=True)
class VllmParams(ContinuousParams):
    """Parameters of ``vllm``, with how its engine runs.

    Attributes:
        async_scheduling: whether each step is planned while the one before runs (vLLM:
            async_scheduling): arrivals join, and what finished frees its place, a step later.
        lengths: the lengths that ``longest`` and ``shortest`` use: ``known``: what the information
            class shows; ``group``: the mean of finished samples of the same prompt. A group without
            a finished sample is next.
    """

    async_scheduling: bool = False
    lengths: str = "known"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_bool(self.async_scheduling, "async_scheduling")
        require_one_of(self.lengths, "lengths", LENGTHS)


@dataclass(frozen=True)
class StaticParams(Ordering):
    """Parameters of ``static``.

    Attributes:
        batch_size: most requests of a batch; None: the worker's clients.
    """

    batch_size: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size is not None:
            whole_number(self.batch_size, "batch_size", minimum=1, maximum=MAX_TOKENS)


@dataclass(frozen=True)
class DynamicParams(Ordering):
    """Parameters of ``dynamic``.

    Attributes:
        max_batch_size: most requests of a batch; None: the worker's clients.
        batch_wait_timeout_s: how long the oldest waiting request waits for the batch to fill.
    """

    max_batch_size: int | None = None
    batch_wait_timeout_s: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_batch_size is not None:
            whole_number(self.max_batch_size, "max_batch_size", minimum=1, maximum=MAX_TOKENS)
        seconds_to_ns(self.batch_wait_timeout_s, "batch_wait_timeout_s")


def make_queue(instance: Instance, ordering: Order, information: Information) -> Queue:
    """Return an empty queue; raises ``InputError`` when hidden lengths should order it."""
    if ordering.first_come:
        return ArrivalQueue()
    if ordering.by in _BY_LENGTH and information == "none":
        raise InputError(
            "lengths are not known without information",
            field="priority" if ordering.order == "arrival" else "order",
            remedy="run with information predicted or clairvoyant, or order by something else",
        )
    return PriorityQueue(_level(instance, ordering.by), ordering.aging_ns)


def _level(instance: Instance, order: str) -> Callable[[View, int], int]:
    if order == "service_class":
        classes = instance.requests.service_class
        return lambda view, request: int(classes[request])
    if order == "due":
        due = _due_ns(instance)
        return lambda view, request: due[request]
    return _BY_LENGTH.get(order, lambda view, request: 0)


def _due_ns(instance: Instance) -> list[int]:
    """Return when each request is due (Jackson's earliest due date); the largest time for none."""
    limits = instance.deadlines_ns
    if limits is None:
        raise InputError(
            "the order due needs requests with deadlines",
            field="order",
            remedy="give requests a column deadline_s, or classes a deadline",
        )
    due = instance.requests.arrival_ns + limits
    return [int(each) for each in np.where(limits >= 0, due, MAX_TIME_NS)]


def known_tokens(view: View, request: int) -> int:
    """Return the output length as far as the information class knows it."""
    if isinstance(view, PredictedView):
        return view.predicted_tokens[request]
    assert isinstance(view, ClairvoyantView)
    return view.output_tokens[request]


def known_volume(view: View, request: int) -> int:
    """Return the blocks that a request holds, summed over its rounds, if its length is as known;
    without memory in blocks of one token."""
    outputs = known_tokens(view, request)
    rounds = outputs - (view.first_token == "prefill")
    memory = view.worker.memory or _TOKENS
    return block_rounds(view.prompt_tokens[request], outputs, rounds, memory)


_TOKENS = BlockMemory(1, block_tokens=1)

_BY_LENGTH: dict[str, Callable[[View, int], int]] = {
    "shortest": known_tokens,
    "longest": lambda view, request: -known_tokens(view, request),
    "volume": lambda view, request: -known_volume(view, request),
}
