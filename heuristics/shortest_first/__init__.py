"""Shortest (predicted) job first in no, dynamic and continuous batching, with aging (SSJF)."""

from orsched.heuristics.shortest_first.after_prediction import AfterPrediction
from orsched.heuristics.shortest_first.limited import LimitedBatching, LimitedQueue
from orsched.heuristics.shortest_first.params import BatchingParams, ShortestFirstParams

__all__ = [
    "AfterPrediction",
    "BatchingParams",
    "LimitedBatching",
    "LimitedQueue",
    "ShortestFirstParams",
]
