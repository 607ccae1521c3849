"""The policies that look ahead as registered methods."""

from __future__ import annotations

from orsched.heuristics.lookahead.orders import (
    LongestPossible,
    ShortestPossible,
    ShortestThatFits,
    SmallestVolume,
    SmallestVolumeOfOneBit,
)
from orsched.heuristics.lookahead.params import (
    BatchParams,
    IntervalParams,
    MarginParams,
    OneBitParams,
    PhaseParams,
    ThresholdParams,
)
from orsched.heuristics.lookahead.phases import GeometricBatching, GeometricSlicing
from orsched.heuristics.lookahead.sorted_batches import SortedBatches
from orsched.heuristics.lookahead.thresholds import NestedWait, Wait
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

SVF_1BIT = PolicyMethod(
    "svf_1bit",
    _LENGTHS,
    "least volume first by one bit, short or long (Kong et al.)",
    lambda instance, params, information, seed: SmallestVolumeOfOneBit(params, information),
    OneBitParams,
)

SORTED_F = PolicyMethod(
    "sorted_f",
    _LENGTHS,
    "batches by the least output over size squared (Wang et al.)",
    lambda instance, params, information, seed: SortedBatches(params, information),
    BatchParams,
)

GBA = PolicyMethod(
    "gba",
    _LENGTHS,
    "phases of doubling lengths with evenly spaced starts (Feng et al.)",
    lambda instance, params, information, seed: GeometricBatching(params, information),
    PhaseParams,
)

GSA = PolicyMethod(
    "gsa",
    (Information.NONE,),
    "slices of doubling lengths with evenly spaced starts, lengths unknown (Feng et al.)",
    lambda instance, params, information, seed: GeometricSlicing(params, information),
    PhaseParams,
)

WAIT = PolicyMethod(
    "wait",
    _LENGTHS,
    "a class starts when its threshold of requests wait (Ao et al.)",
    lambda instance, params, information, seed: Wait(params, information),
    ThresholdParams,
)

NESTED_WAIT = PolicyMethod(
    "nested_wait",
    (Information.NONE,),
    "segments by age that start at thresholds, lengths unknown (Ao et al.)",
    lambda instance, params, information, seed: NestedWait(params, information),
    ThresholdParams,
)
