"""The virtual token counter: waiting tenants get equal service (Sheng et al., OSDI 2024)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.common.columns import whole_number
from orsched.common.errors import InputError
from orsched.data.step import decode_rounds
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import ContinuousParams
from orsched.heuristics.policy_method import ANY, PolicyMethod
from orsched.metrics.class_metrics import OUTPUT_WEIGHT, PROMPT_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.step import Step
    from orsched.heuristics.continuous.continuous_batching import Plan
    from orsched.simulator.policy import Information, View

_MOST_WEIGHT = 1_000_000


@dataclass(frozen=True)
class VtcParams(ContinuousParams):
    """Parameters of ``vtc``: those of ``vllm`` but for the order, and the weights of tokens.

    Attributes:
        policy, priority: ``priority`` by counters is the only order.
        prompt_weight, output_weight: what a prompt token and an output token count (w_p, w_q).
    """

    policy: str = "priority"
    priority: str = "arrival"
    prompt_weight: int = PROMPT_WEIGHT
    output_weight: int = OUTPUT_WEIGHT

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.policy, self.priority, self.aging_s) != ("priority", "arrival", None):
            raise InputError(
                "vtc orders requests by the counters of their tenants",
                field="policy",
                remedy="leave order, policy, priority and aging_s out, or take vllm",
            )
        for name in ("prompt_weight", "output_weight"):
            whole_number(getattr(self, name), name, minimum=1, maximum=_MOST_WEIGHT)


class FairQueue:
    """Waiting requests by tenant, each first come first served; the least served tenant is next.

    A counter for each tenant holds its weighted tokens: those of a prompt once its request is
    admitted for the first time, an output token when it is yielded. A tenant that had none waiting
    is lifted to the least counter of those that wait (where none does: to that of the tenant whose
    request left last), so that it saves nothing up while it is idle (algorithm 2).
    """

    arrival_may_lead = True

    def __init__(self, prompt_weight: int, output_weight: int) -> None:
        self.prompt_weight, self.output_weight = prompt_weight, output_weight
        self.counters: dict[int, int] = {}
        self.queues: dict[int, deque[int]] = {}  # of tenants with waiting requests
        self.count = 0
        self.last_left: int | None = None
        self.owner: dict[int, int] = {}
        self.arrival: dict[int, int] = {}
        self.due: dict[int, int] = {}  # what a first admission will count

    def __len__(self) -> int:
        return self.count

    def put(self, view: View, request: int) -> None:
        """Queue a request that has arrived; lift its tenant's counter if none of its waited."""
        tenant = 0 if view.tenant is None else view.tenant[request]
        self.owner[request], self.arrival[request] = tenant, view.arrival_ns[request]
        self.due[request] = self.prompt_weight * view.prompt_tokens[request]
        if tenant not in self.queues:
            if self.queues:
                level = min([self.counters[each] for each in self.queues])
            else:
                level = 0 if self.last_left is None else self.counters[self.last_left]
            self.counters[tenant] = max(self.counters.get(tenant, 0), level)
        self.queues.setdefault(tenant, deque()).append(request)
        self.count += 1

    def put_back(self, request: int) -> None:
        """Let a preempted request be the next of its tenant, which was not idle."""
        self.queues.setdefault(self.owner[request], deque()).appendleft(request)
        self.count += 1

    def first(self) -> int:
        """Return the first request of the tenant with the least counter."""
        return self.queues[self._least()][0]

    def pop(self) -> int:
        """Remove and return that request; its prompt counts now."""
        tenant = self._least()
        request = self._remove(tenant, 0)
        self.counters[tenant] += self.due.pop(request, 0)
        self.last_left = tenant
        return request

    def surrender(self) -> int:
        """Remove and return the last request of the tenant with the largest counter."""
        request = self._remove(max(self.queues, key=self._key), -1)
        self.forget(request)
        return request

    def oldest(self) -> int:
        """Return the waiting request that arrived first."""
        return min((queue[0] for queue in self.queues.values()), key=self.arrival.__getitem__)

    def victim(self, running: Sequence[int]) -> int:
        """Return the request that was admitted last of the tenant with the largest counter."""
        return max(reversed(running), key=lambda request: self.counters[self.owner[request]])

    def forget(self, request: int) -> None:
        """Drop what is known of a request; the counter of its tenant stays."""
        del self.owner[request], self.arrival[request]
        self.due.pop(request, None)

    def served(self, request: int, tokens: int) -> None:
        """Count output tokens of a request."""
        self.counters[self.owner[request]] += self.output_weight * tokens

    def _least(self) -> int:
        return min(self.queues, key=self._key)

    def _key(self, tenant: int) -> tuple[int, int, int]:
        return self.counters[tenant], self.arrival[self.queues[tenant][0]], tenant

    def _remove(self, tenant: int, place: int) -> int:
        queue = self.queues[tenant]
        request = queue[place]
        del queue[place]
        if not queue:
            del self.queues[tenant]
        self.count -= 1
        return request


class VirtualTokenCounter(ContinuousBatching):
    """Continuous batching that admits requests of the tenant with the least counter.

    Nothing else is changed: a request that fits is admitted whenever clients, tokens and blocks
    allow, so no work is wasted. Between two times at which requests of two tenants wait throughout,
    these get service that differs by at most ``2 max(w_p L, w_q M)``, with L the longest prompt and
    M the most tokens, prompts included, that requests on the worker can have (theorem 4.4). Where a
    dispatcher divides requests among workers, each has counters of its own.
    """

    name = "vtc"
    shares_queue = False

    def __init__(self, params: VtcParams, information: Information) -> None:
        self.fair = FairQueue(params.prompt_weight, params.output_weight)
        super().__init__(params, information, self.fair)
        self.seen: dict[int, int] = {}  # output tokens of unfinished requests that are counted
        self.decoding: set[int] = set()
        self.rounds = 0

    def on_arrival(self, view: View, request: int) -> None:
        """Queue the request; counters are those of now."""
        self._count(view)
        super().on_arrival(view, request)

    def on_finish(self, view: View, request: int, client: int) -> None:
        """Count the last tokens of the request and forget it."""
        decoded = request in self.decoding
        self.fair.served(request, view.rounds - self.rounds if decoded else 1)
        self.seen.pop(request, None)
        super().on_finish(view, request, client)

    def decide(self, view: View) -> Step | None:
        """Return the next step as ``vllm`` would, with the tenants' order."""
        self._count(view)
        return super().decide(view)

    def _rounds(self, view: View, plan: Plan) -> Step:
        """Return one round where another tenant could come first before a request finishes."""
        if self.queue and self.own.seats(view) > 0 and not plan.victims and plan.decode is None:
            return decode_rounds(1)
        return super()._rounds(view, plan)

    def _count(self, view: View) -> None:
        """Count the tokens that running requests have yielded since the last time."""
        self.rounds = view.rounds
        for request in view.running:
            tokens = view.generated(request)
            new = tokens - self.seen.get(request, 0)
            if new:
                self.fair.served(request, new)
                self.seen[request] = tokens
        self.decoding = {request for request in view.running if view.decodes(request)}


VTC = PolicyMethod(
    "vtc",
    ANY,
    "continuous batching, equal service for waiting tenants: virtual token counters (Sheng et al.)",
    lambda instance, params, information, seed: VirtualTokenCounter(params, information),
    VtcParams,
)
