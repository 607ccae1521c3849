"""The batching modes as registered methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.units import seconds_to_ns
from orsched.heuristics.continuous.async_scheduling import AsyncBatching
from orsched.heuristics.continuous.continuous_batching import ContinuousBatching
from orsched.heuristics.continuous.params import (
    DynamicParams,
    Ordering,
    StaticParams,
    VllmParams,
)
from orsched.heuristics.continuous.static_batching import StaticBatching
from orsched.heuristics.continuous.waiting import make_queue
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy

_ANY = (Information.NONE, Information.PREDICTED, Information.CLAIRVOYANT)


def _continuous(
    instance: Instance, params: VllmParams, information: Information, seed: int
) -> Policy:
    kind = AsyncBatching if params.async_scheduling else ContinuousBatching
    return kind(params, information, make_queue(instance, params, information))


def _static(
    instance: Instance, params: StaticParams, information: Information, seed: int
) -> Policy:
    queue = make_queue(instance, params, information)
    return StaticBatching("static", information, queue, params.batch_size, 0)


def _dynamic(
    instance: Instance, params: DynamicParams, information: Information, seed: int
) -> Policy:
    queue = make_queue(instance, params, information)
    wait_ns = seconds_to_ns(params.batch_wait_timeout_s, "batch_wait_timeout_s")
    return StaticBatching("dynamic", information, queue, params.max_batch_size, wait_ns)


def _one_at_a_time(
    instance: Instance, params: Ordering, information: Information, seed: int
) -> Policy:
    return StaticBatching(
        "one_at_a_time", information, make_queue(instance, params, information), 1, 0
    )


VLLM = PolicyMethod(
    "vllm",
    _ANY,
    "continuous batching with chunked prefill under a token budget and preemption (vLLM V1)",
    _continuous,
    VllmParams,
)

STATIC = PolicyMethod(
    "static",
    _ANY,
    "static batches at sequence level: nobody leaves before the longest request is done",
    _static,
    StaticParams,
)

DYNAMIC = PolicyMethod(
    "dynamic",
    _ANY,
    "static batches, formed when full or when the oldest request has waited long enough",
    _dynamic,
    DynamicParams,
)

ONE_AT_A_TIME = PolicyMethod(
    "one_at_a_time",
    _ANY,
    "no batching: one request after the other",
    _one_at_a_time,
    Ordering,
)
