"""The baselines of co-location as registered methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orsched.heuristics.colocation.conserve import Conserve, ConserveParams
from orsched.heuristics.colocation.hygen import Hygen, HygenParams
from orsched.heuristics.policy_method import PolicyMethod
from orsched.simulator.policy import Information

if TYPE_CHECKING:
    from orsched.data.instance import Instance
    from orsched.simulator.policy import Policy


def _hygen(instance: Instance, params: HygenParams, information: Information, seed: int) -> Policy:
    return Hygen(instance, params)


def _conserve(
    instance: Instance, params: ConserveParams, information: Information, seed: int
) -> Policy:
    return Conserve(instance, params)


HYGEN = PolicyMethod(
    "hygen",
    (Information.NONE,),
    "bulk work within a latency budget of each step, by shared prefixes (HyGen-like)",
    _hygen,
    HygenParams,
)

CONSERVE = PolicyMethod(
    "conserve",
    (Information.NONE,),
    "bulk work that gives way at once and keeps what it computed (ConServe-like)",
    _conserve,
    ConserveParams,
)
