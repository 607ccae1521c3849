"""vLLM's asynchronous scheduler with a waiting queue in an order of orsched.

Written for vLLM 0.33. Its scheduler interface is not public: what is used of it is the queue
``waiting``, ``add_request`` and ``_free_request``.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.request import RequestStatus

from orsched.common.errors import InputError
from orsched.runner.vllm_outlet.orders import OrderedRequests, RequestRegistry, make_order

SETTINGS = "orsched"  # where the settings are in vLLM's ``additional_config``

_COMPLETED = (RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_LENGTH_CAPPED)


class OrderedRequestQueue(OrderedRequests, RequestQueue):  # type: ignore[misc]
    """``OrderedRequests`` as a queue of vLLM."""


class OrderedScheduler(AsyncScheduler):  # type: ignore[misc]
    """For ``--scheduler-cls orsched.runner.vllm_outlet.OrderedScheduler``.

    The order is ``additional_config["orsched"]``, as ``make_order`` takes it. All else is vLLM's:
    preempted requests wait again, by the keys that they had. Who is preempted is vLLM's choice by
    its scheduling policy: under ``fcfs`` the last one admitted, under ``priority`` the one with
    the largest key, which is written into ``Request.priority`` for that.
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

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        running = (each for each in self.running if each is not request)
        self.request_registry.finish(request, request.status in _COMPLETED, running)
        return super()._free_request(request, *args, **kwargs)
