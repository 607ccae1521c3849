"""The policies that look ahead as registered methods."""

from __future__ import annotations

from orsched.heuristics.lookahead.orders import (
    LongestPossible,
    ShortestPossible,
    ShortestThatFits,
    SmallestVolume,
)
from orsched.heuristics.lookahead.params import IntervalParams, MarginParams
from orsched.heuristics.policy_method import PolicyMethod
from orsched.policy import Information

_LENGTHS = (Information.CLAIRVOYANT, Information.PREDICTED)
_INTERVALS = (Information.PREDICTED, Information.CLAIRVOYANT)

MC_SF = PolicyMethod(
    "mc_sf",
    _LENGTHS,
    "the shortest answer first while memory holds at every expected end (Jaillet et al.)",
    lambda instance, params, information, seed: ShortestThatFits(params, information),
    MarginParams,
)

SVF = PolicyMethod(
    "svf",
    _LENGTHS,
    "the least memory times rounds first, admitted as by mc_sf (Kong et al.)",
    lambda instance, params, information, seed: SmallestVolume(params, information),
    MarginParams,
)

A_MAX = PolicyMethod(
    "a_max",
    _INTERVALS,
    "intervals of lengths: the least upper end first, memory for upper ends (Chen et al.)",
    lambda instance, params, information, seed: LongestPossible(params, information),
    IntervalParams,
)

A_MIN = PolicyMethod(
    "a_min",
    _INTERVALS,
    "intervals of lengths: the least lower end first, evictions where it was too low (Chen et al.)",
    lambda instance, params, information, seed: ShortestPossible(params, information),
    IntervalParams,
)
