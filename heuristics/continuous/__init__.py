"""Batching modes as policies: continuous, static, dynamic batching, and none."""

from orsched.heuristics.continuous.async_scheduling import EngineStep, as_scheduled, engine_steps
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import (
    ContinuousParams,
    DynamicParams,
    Ordering,
    StaticParams,
    make_queue,
)
from orsched.heuristics.continuous.static_batching import StaticBatching

__all__ = [
    "ContinuousBatching",
    "ContinuousParams",
    "DynamicParams",
    "EngineStep",
    "Ordering",
    "StaticBatching",
    "StaticParams",
    "as_scheduled",
    "engine_steps",
    "make_queue",
]
