"""vLLM's asynchronous scheduler with a waiting queue in an order of orsched, and its gate.

Written for vLLM 0.33 and 0.32. Its scheduler interface is not public: what is used of it is the
queue ``waiting``, ``add_request`` and ``_free_request``, and for the gate ``schedule`` and
``_reserve_prefill_lookahead``.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import RequestStatus

from orsched.common.errors import InputError, known_names
from orsched.common.scalars import require_number
from orsched.data.workers import Worker
from orsched.files import load_cost
from orsched.heuristics.gates import Waiting, make_gate
from orsched.runner.vllm_outlet.orders import OrderedRequests, RequestRegistry, make_order
from orsched.simulator.policy import View, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence


GATES = ("prefill_first", "waited_time", "idle_cost")
"""Gates that need to know of an engine what ``StageGate`` sees."""

SAMPLE = 64
"""Waiting requests at the front whose mean prompt stands for all."""


class StageGate:
    """Keeps prefill stages apart from rounds, and begins a stage when its gate opens.

    A pass is a stage, of waiting prompts alone, or a round of all that decode. A stage begins when
    nothing decodes or when the gate opens (Pang et al., section IV-C); a prompt that is longer than
    a pass goes on in the next one. Where vLLM admits no request to a stage, a round follows.

    Args:
        gate: one of ``GATES``; ``prefill_first`` never waits.
        cost: a cost-model file, such as ``orsched calibrate`` writes.
        factor: multiplies the threshold of ``idle_cost``.
    """

    def __init__(self, gate: str, cost: str | None, factor: float = 1.0) -> None:
        if gate not in GATES:
            raise InputError(
                f"unknown gate {gate!r}", field="gate", remedy=known_names(gate, GATES, "one of ")
            )
        if cost is None:
            raise InputError(
                f"the gate {gate} needs the times of steps",
                field="cost",
                remedy="name a file that orsched calibrate writes",
            )
        require_number(factor, "gate_factor", 0, 1e6)
        self.gate, self.cost = make_gate(gate, factor), load_cost(cost)
        self.stage = self.stuck = False

    @classmethod
    def taken_from(cls, settings: dict[str, Any]) -> StageGate | None:
        """Take a gate out of the settings of an order, which keeps a ``cost`` that it needs."""
        gate, factor = settings.pop("gate", None), settings.pop("gate_factor", 1.0)
        if gate is None:
            return None
        own = settings.get("order") == "gittins"
        cost = settings.get("cost") if own else settings.pop("cost", None)
        return cls(gate, cost, factor)

    def start(self, clients: int, tokens: int) -> None:
        """See how many requests run at a time, and how many tokens are in a pass at most."""
        nothing = memoryview(b"")
        self.state = WorkerState(Worker(clients, self.cost, tokens), "prefill", 1)
        self.view, self.tokens = View(self.state, nothing, nothing, None), tokens
        self.gate.start(self.view)

    def choose(
        self, front: Sequence[int], queued: int, free: int, active: int, begun: bool, now_ns: int
    ) -> None:
        """Choose what the next pass is.

        Args:
            front: prompt tokens of requests at the front of the queue, of ``queued`` in all.
            free: requests that could be admitted beside those that run.
            active: requests that decode.
            begun: whether a prompt is processed in part.
            now_ns: the time.
        """
        clients = min(free, queued)
        self.stage = begun or (clients > 0 and not self.stuck)
        if begun or not self.stage or not active:
            return
        state, tokens = self.state, -(-clients * sum(front) // len(front))
        state.now_ns, state.running = now_ns, dict.fromkeys(range(active), 0)
        full = tokens >= self.tokens
        waiting = Waiting(clients, min(tokens, self.tokens), full, queued)
        self.stage = self.gate.rounds_to_wait(self.view, waiting) == 0

    def passed(self, tokens: int) -> None:
        """Record how many tokens vLLM took into the pass."""
        self.stuck = self.stage and not tokens
        if self.stage and tokens:
            self.gate.stage_taken(self.view)
        elif tokens:
            self.state.rounds += 1


SETTINGS = "orsched"  # where the settings are in vLLM's ``additional_config``

_COMPLETED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class OrderedRequestQueue(OrderedRequests, RequestQueue):  # type: ignore[misc]
    """``OrderedRequests`` as a queue of vLLM."""


class OrderedScheduler(AsyncScheduler):  # type: ignore[misc]
    """For ``--scheduler-cls orsched.runner.vllm_outlet.OrderedScheduler``.

    The order is ``additional_config["orsched"]``, as ``make_order`` takes it. All else is vLLM's:
    preempted requests wait again, by the keys that they had. Who is preempted is vLLM's choice by
    its scheduling policy: under ``fcfs`` the last one admitted, under ``priority`` the one with
    the largest key, which is written into ``Request.priority`` for that. With a ``gate``, prefill
    stages are apart from rounds, as ``StageGate`` has them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = self.vllm_config.additional_config
        settings = config.get(SETTINGS) if isinstance(config, dict) else None
        if not isinstance(settings, dict):
            raise InputError(
                "no order is given",
                field=f"additional_config.{SETTINGS}",
                remedy='pass --additional-config \'{"orsched": {"order": "gittins"}}\'',
            )
        replaced = isinstance(getattr(self, "waiting", None), RequestQueue)
        if not replaced or not hasattr(AsyncScheduler, "_free_request"):
            raise InputError(
                "vLLM's scheduler is another than that of 0.33", remedy="pip install orsched[vllm]"
            )
        settings = dict(settings)
        self.stage_gate = StageGate.taken_from(settings)
        if self.stage_gate is not None:
            self.stage_gate.start(self.max_num_running_reqs, self.max_num_scheduled_tokens)
        order = make_order(settings)
        order.start(self.max_num_running_reqs, self.max_model_len)
        self.request_registry = RequestRegistry(order)
        self.writes_priority = self.policy == SchedulingPolicy.PRIORITY
        self.waiting = OrderedRequestQueue(
            lambda each: self.request_registry.put(each, len(self.running))
        )

    def add_request(self, request: Any) -> None:
        """Give the request its key, then let vLLM queue it."""
        if request.request_id not in self.requests:
            key, _ = self.request_registry.put(request, len(self.running))
            if self.writes_priority:
                request.priority = key
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Let the gate choose what the pass is, then let vLLM schedule it."""
        gate, running = self.stage_gate, len(self.running)
        if gate is None:
            return super().schedule(*args, **kwargs)
        begun = sum(each.is_prefill_chunk for each in self.running)
        front = [each.num_tokens for each in self.waiting.some(SAMPLE)]
        free = self.max_num_running_reqs - running
        gate.choose(front, len(self.waiting), free, running - begun, begun > 0, monotonic_ns())
        out = super().schedule(*args, **kwargs)
        gate.passed(out.total_num_scheduled_tokens)
        return out

    def _reserve_prefill_lookahead(self, request: Any, computed: int, tokens: int) -> Any:
        """Return the tokens by which a request advances: none in a pass of the other kind."""
        decodes = request.status == RequestStatus.RUNNING and not request.is_prefill_chunk
        if self.stage_gate is not None and self.stage_gate.stage == decodes:
            return 0
        return super()._reserve_prefill_lookahead(request, computed, tokens)

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        running = (each for each in self.running if each is not request)
        self.request_registry.finish(request, request.status in _COMPLETED, running)
        return super()._free_request(request, *args, **kwargs)
