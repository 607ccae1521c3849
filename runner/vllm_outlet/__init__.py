"""vLLM as an outlet: plans as priorities, orders for its scheduler, its results read back.

Nothing here imports vLLM but ``OrderedScheduler``, which vLLM itself loads by its path
``orsched.runner.vllm_outlet.OrderedScheduler``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.runner.vllm_outlet.assignment import Assignment, in_order, worker_names
from orsched.runner.vllm_outlet.bench_results import (
    PlanRow,
    RequestTimes,
    priorities,
    read_request_times,
    write_batch,
    write_priorities,
    write_timed_trace,
)
from orsched.runner.vllm_outlet.orders import Known, Order, make_order

if TYPE_CHECKING:
    from orsched.runner.vllm_outlet.scheduler import OrderedScheduler as OrderedScheduler

__all__ = [
    "Assignment", "Known", "Order", "PlanRow", "RequestTimes", "in_order", "make_order",
    "priorities", "read_request_times", "worker_names", "write_batch", "write_priorities",
    "write_timed_trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "OrderedScheduler":
        from orsched.runner.vllm_outlet.scheduler import OrderedScheduler

        return OrderedScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
