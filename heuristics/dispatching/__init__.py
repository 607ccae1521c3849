"""Several workers: a dispatcher gives each request to one, with a policy of its own."""

from orsched.heuristics.dispatching.dispatched import Dispatched
from orsched.heuristics.dispatching.dispatchers import (
    DEFAULT,
    DISPATCHERS,
    Dispatcher,
    FewestRequests,
    Latency,
    LeastWork,
    MostHits,
    RoundRobin,
    Soonest,
)

__all__ = [
    "DEFAULT",
    "DISPATCHERS",
    "Dispatched",
    "Dispatcher",
    "FewestRequests",
    "Latency",
    "LeastWork",
    "MostHits",
    "RoundRobin",
    "Soonest",
]
