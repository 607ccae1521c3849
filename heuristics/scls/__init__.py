"""Slice-level scheduling (SCLS), with the sequence-level and iteration-level baselines."""

from orsched.heuristics.scls.continuous import ContinuousParams, ContinuousSlices, IterationLevel
from orsched.heuristics.scls.offloading import SlicedBatch, bilinear_of
from orsched.heuristics.scls.sliced import ABLATION, SlicedPolicy, SliceParams

__all__ = [
    "ABLATION",
    "ContinuousParams",
    "ContinuousSlices",
    "IterationLevel",
    "SliceParams",
    "SlicedBatch",
    "SlicedPolicy",
    "bilinear_of",
]
