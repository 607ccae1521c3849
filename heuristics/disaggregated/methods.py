"""Disaggregated prefill and decode as a registered method."""

from __future__ import annotations

from orsched.heuristics.disaggregated.policy import Disaggregated, DisaggregatedParams
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

DISAGGREGATED = PolicyMethod(
    "disaggregated",
    (Information.NONE,),
    "prefill and decode on different workers; caches go over links (DistServe, Splitwise, Dynamo)",
    lambda instance, params, information, seed: Disaggregated(params),
    DisaggregatedParams,
    many_workers=True,
    needs_roles=True,
)
