"""``ssjf`` with oracle SJF and first come first served beside it, as registered methods."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.scalars import require_one_of
from orsched.common.units import MAX_TOKENS, seconds_to_ns
from orsched.data.step import FINISH, Step, Wait
from orsched.heuristics.continuous.continuous_batching import UNLIMITED, ContinuousBatching
from orsched.heuristics.continuous.params import ContinuousParams, known_tokens
from orsched.heuristics.continuous.queues import PriorityQueue
from orsched.heuristics.continuous.static_batching import StaticBatching
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information, Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.heuristics.continuous.continuous_batching import Plan
    from orsched.simulator.policy import View


class AfterPrediction(Policy):
    """Hold each request back for the predictor's latency, which passes beside what is served.

    Each prediction takes the same time, side by side. While one is awaited, rounds are taken one by
    one, so that a request can join at the first border after its prediction."""

    def __init__(self, inner: ContinuousBatching | StaticBatching, latency_ns: int) -> None:
        self.inner = inner
        self.latency_ns = latency_ns
        self.name = inner.name
        self.information = Information(inner.information)
        self.chunks = inner.chunks
        self.awaited: deque[int] = deque()

    def start(self, view: View) -> None:
        """Pass the worker on."""
        self.inner.start(view)

    def on_arrival(self, view: View, request: int) -> None:
        """Await the prediction; a request taken over from another worker may have it already."""
        if view.arrival_ns[request] + self.latency_ns <= view.now_ns:
            self.inner.on_arrival(view, request)
        else:
            self.awaited.append(request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Pass it on."""
        self.inner.on_finish(view, request, client)

    def on_preempt(self, view: View, request: int) -> None:
        """Pass it on: a request that has run needs no further prediction."""
        self.inner.on_preempt(view, request)

    def hears_of_evictions(self) -> bool:
        """Return whether the policy does to which they are passed on."""
        return self.inner.hears_of_evictions()

    def waiting(self) -> int:
        """Return how many requests with a prediction wait."""
        return self.inner.waiting()

    def surrender(self) -> int:
        """Give up the request that is last."""
        return self.inner.surrender()

    def decide(self, view: View) -> Step | Wait | None:
        """Tell of the predictions made by now, and ask."""
        awaited, now, latency = self.awaited, view.now_ns, self.latency_ns
        while awaited and view.arrival_ns[awaited[0]] + latency <= now:
            self.inner.on_arrival(view, awaited.popleft())
        step = self.inner.decide(view)
        if not awaited:
            return step
        due = view.arrival_ns[awaited[0]] + latency
        if step is None:
            return Wait(due)
        if isinstance(step, Wait):
            return Wait(min(due, step.until_ns))
        if step.rounds > 1 and not step.hold:
            return step._replace(rounds=1)
        return step


class LimitedQueue(PriorityQueue):
    """A queue by priority that seems to hold no more requests than there is room for."""

    def __init__(self, level: Callable[[View, int], int], aging_ns: int | None) -> None:
        super().__init__(level, aging_ns)
        self.room = UNLIMITED  # how many requests may be taken

    def __len__(self) -> int:
        """Return how many requests may be taken."""
        return min(len(self.heap), self.room)

    def pop(self) -> int:
        """Remove and return the request of the smallest key."""
        self.room -= 1
        return super().pop()


class LimitedBatching(ContinuousBatching):
    """Iterations of at most ``most`` requests; early finishers are replaced from the queue (Orca).
    None is preempted for a shorter one; where paged memory runs out, the largest key is."""

    def __init__(
        self,
        params: ContinuousParams,
        information: Information,
        queue: LimitedQueue,
        most: int | None,
    ) -> None:
        super().__init__(params, information, queue)
        self.most = UNLIMITED if most is None else most

    @property
    def limited(self) -> LimitedQueue:
        """The queue, which workers may share."""
        return self.queue  # type: ignore[return-value]

    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self.limited.heap)

    def decide(self, view: View) -> Step | None:
        """Return the next step, with the queue closed at the limit."""
        self.limited.room = self.most - len(view.running)
        return super().decide(view)

    def _rounds(self, view: View, plan: Plan) -> Step:
        """Return rounds that arrivals do not end when the batch is full."""
        step = super()._rounds(view, plan)
        if step.rounds > 1 and self.limited.room <= 0:
            return step._replace(until=FINISH)
        return step


BATCHING = ("none", "dynamic", "continuous")


@dataclass(frozen=True)
class BatchingParams:
    """The three batching modes of SSJF (Qiu et al., section 3.2).

    Attributes:
        batching: ``none``: one request after the other; ``dynamic``: a static batch when it is full
            or its oldest request has waited for the timeout; ``continuous``: a request that is done
            makes room for the next at once, prompts are prefilled beside rounds (Orca).
        max_batch_size: most requests at a time under ``dynamic`` and ``continuous``; None: the
            worker's clients. The paper has 4.
        batch_wait_timeout_s: how long ``dynamic`` waits for a batch to fill.
    """

    batching: str = "continuous"
    max_batch_size: int | None = None
    batch_wait_timeout_s: float = 0.01

    def __post_init__(self) -> None:
        require_one_of(self.batching, "batching", BATCHING)
        if self.max_batch_size is not None:
            whole_number(self.max_batch_size, "max_batch_size", minimum=1, maximum=MAX_TOKENS)
        seconds_to_ns(self.batch_wait_timeout_s, "batch_wait_timeout_s")


@dataclass(frozen=True)
class ShortestFirstParams(BatchingParams):
    """Parameters of ``ssjf`` and ``sjf``.

    Attributes:
        aging_s: seconds of waiting that count as one token less. None: no aging, as in the paper's
            experiments, so that a long request may wait forever. A request of known length L is
            overtaken only by those that arrive within (L - 1) * aging_s after it.
        predictor_latency_s: time from a request's arrival until its length is predicted; it cannot
            start before. 0: the prediction is off the critical path, made while others are served.
            The paper measures 0.0076 on average.
    """

    aging_s: float | None = None
    predictor_latency_s: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aging_s is not None:
            seconds_to_ns(self.aging_s, "aging_s")
        seconds_to_ns(self.predictor_latency_s, "predictor_latency_s")


def _alike(view: View, request: int) -> int:
    return 0


def batching(
    name: str, params: BatchingParams, information: Information, queue: LimitedQueue
) -> LimitedBatching | StaticBatching:
    """Return the policy of a batching mode that takes requests from a queue."""
    if params.batching == "continuous":
        # Whole prompts, as in Orca: no token budget, the worker's own prefill cap alone.
        steps = ContinuousParams(policy="priority", max_num_batched_tokens=MAX_TOKENS)
        policy = LimitedBatching(steps, information, queue, params.max_batch_size)
        policy.name = name
        return policy
    if params.batching == "none":
        return StaticBatching(name, information, queue, 1, 0)
    wait_ns = seconds_to_ns(params.batch_wait_timeout_s, "batch_wait_timeout_s")
    return StaticBatching(name, information, queue, params.max_batch_size, wait_ns)


def _shortest_first(
    name: str, params: ShortestFirstParams, information: Information
) -> AfterPrediction | LimitedBatching | StaticBatching:
    aging = None if params.aging_s is None else seconds_to_ns(params.aging_s, "aging_s")
    policy = batching(name, params, information, LimitedQueue(known_tokens, aging))
    latency = seconds_to_ns(params.predictor_latency_s, "predictor_latency_s")
    return AfterPrediction(policy, latency) if latency else policy


SSJF = PolicyMethod(
    "ssjf",
    (Information.PREDICTED, Information.CLAIRVOYANT),
    "shortest predicted job first in no, dynamic or continuous batching (SSJF)",
    lambda instance, params, information, seed: _shortest_first("ssjf", params, information),
    ShortestFirstParams,
)

SJF = PolicyMethod(
    "sjf",
    (Information.CLAIRVOYANT,),
    "shortest job first by the true lengths: ssjf with an oracle",
    lambda instance, params, information, seed: _shortest_first("sjf", params, information),
    ShortestFirstParams,
)

FCFS_BATCHED = PolicyMethod(
    "fcfs_batched",
    (Information.NONE,),
    "first come first served in the batching modes of ssjf",
    lambda instance, params, information, seed: batching(
        "fcfs_batched", params, information, LimitedQueue(_alike, None)
    ),
    BatchingParams,
)
