"""``ssjf`` with oracle SJF and first come first served beside it, as registered methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.common.units import MAX_TOKENS, seconds_to_ns
from orsched.heuristics.continuous.params import ContinuousParams
from orsched.heuristics.continuous.static_batching import StaticBatching
from orsched.heuristics.policy_method import PolicyMethod
from orsched.heuristics.shortest_first.after_prediction import AfterPrediction
from orsched.heuristics.shortest_first.limited import LimitedBatching, LimitedQueue
from orsched.heuristics.shortest_first.params import BatchingParams, ShortestFirstParams
from orsched.simulator.policy import ClairvoyantView, Information, PredictedView

if TYPE_CHECKING:
    from orsched.simulator.policy import View


def known_tokens(view: View, request: int) -> int:
    """Return the output length as far as the information class knows it."""
    if isinstance(view, PredictedView):
        return view.predicted_tokens[request]
    assert isinstance(view, ClairvoyantView)
    return view.output_tokens[request]


def _alike(view: View, request: int) -> int:
    return 0


def batching(
    name: str, params: BatchingParams, information: Information, queue: LimitedQueue
) -> LimitedBatching | StaticBatching:
    """Return the policy of a batching mode that takes requests from a queue."""
    if params.batching == "continuous":
        # Whole prompts, as in Orca: no token budget, the worker's own prefill cap alone.
        steps = ContinuousParams(policy="priority", max_num_batched_tokens=MAX_TOKENS)
        policy = LimitedBatching(steps, information, queue, params.max_batch_size)
        policy.name = name
        return policy
    if params.batching == "none":
        return StaticBatching(name, information, queue, 1, 0)
    wait_ns = seconds_to_ns(params.batch_wait_timeout_s, "batch_wait_timeout_s")
    return StaticBatching(name, information, queue, params.max_batch_size, wait_ns)


def _shortest_first(
    name: str, params: ShortestFirstParams, information: Information
) -> AfterPrediction | LimitedBatching | StaticBatching:
    aging = None if params.aging_s is None else seconds_to_ns(params.aging_s, "aging_s")
    policy = batching(name, params, information, LimitedQueue(known_tokens, aging))
    latency = seconds_to_ns(params.predictor_latency_s, "predictor_latency_s")
    return AfterPrediction(policy, latency) if latency else policy


SSJF = PolicyMethod(
    "ssjf",
    (Information.PREDICTED, Information.CLAIRVOYANT),
    "shortest predicted job first in no, dynamic or continuous batching (SSJF)",
    lambda instance, params, information, seed: _shortest_first("ssjf", params, information),
    ShortestFirstParams,
)

SJF = PolicyMethod(
    "sjf",
    (Information.CLAIRVOYANT,),
    "shortest job first by the true lengths: ssjf with an oracle",
    lambda instance, params, information, seed: _shortest_first("sjf", params, information),
    ShortestFirstParams,
)

FCFS_BATCHED = PolicyMethod(
    "fcfs_batched",
    (Information.NONE,),
    "first come first served in the batching modes of ssjf",
    lambda instance, params, information, seed: batching(
        "fcfs_batched", params, information, LimitedQueue(_alike, None)
    ),
    BatchingParams,
)
