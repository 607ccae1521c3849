"""Several workers: who gets which request, and one policy a worker below that."""

from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.dispatchers import (
    DISPATCHERS,
    Dispatcher,
    FewestRequests,
    LeastWork,
    RoundRobin,
)

__all__ = ["DISPATCHERS", "Dispatched", "Dispatcher", "FewestRequests", "LeastWork", "RoundRobin"]
