"""Slice-level scheduling (SCLS), with the sequence-level and iteration-level baselines."""

from orsched.heuristics.scls.batching import SlicedBatch
from orsched.heuristics.scls.continuous import ContinuousParams, ContinuousSlices
from orsched.heuristics.scls.estimate import bilinear_of
from orsched.heuristics.scls.iteration import IterationLevel
from orsched.heuristics.scls.methods import ABLATION
from orsched.heuristics.scls.sliced import SlicedPolicy, SliceParams

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
