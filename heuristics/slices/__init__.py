"""Slice-level scheduling (SCLS), with the sequence-level and iteration-level baselines."""

from orsched.heuristics.slices.batching import SlicedBatch
from orsched.heuristics.slices.continuous import ContinuousParams, ContinuousSlices
from orsched.heuristics.slices.estimate import bilinear_of
from orsched.heuristics.slices.iteration import IterationLevel
from orsched.heuristics.slices.methods import ABLATION
from orsched.heuristics.slices.sliced import SlicedPolicy, SliceParams

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
