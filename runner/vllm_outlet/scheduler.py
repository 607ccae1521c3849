"""vLLM's asynchronous scheduler with a waiting queue in an order of orsched, and its gate.

Written for vLLM 0.33 and 0.32. Its scheduler interface is not public: what is used of it is the
queue ``waiting``, ``add_request`` and ``_free_request``, and for the gate ``schedule`` and
``_reserve_prefill_lookahead``.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import RequestStatus

from orsched.common.errors import InputError
from orsched.runner.vllm_outlet.orders import OrderedRequests, RequestRegistry, make_order
from orsched.runner.vllm_outlet.stage_gate import SAMPLE, StageGate

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
