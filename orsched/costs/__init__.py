"""Cost models: the time of a step as a function of what is in it."""

from orsched.costs.affine import AffineCost, LevelsCost
from orsched.costs.bilinear import BilinearCost, as_bilinear
from orsched.costs.floor import (
    Floor,
    RoundFloor,
    StageFloor,
    StepLine,
    floor_faults,
    floor_of,
    splits,
)
from orsched.costs.linear import LinearCost
from orsched.costs.pooling import PoolingCost
from orsched.costs.profiled import ProfiledCost
from orsched.costs.protocol import CostModel, knows_cached, mixed_ns, prefill_ns
from orsched.costs.roofline import RooflineCost, ridge_tokens

__all__ = [
    "AffineCost",
    "BilinearCost",
    "CostModel",
    "Floor",
    "LevelsCost",
    "LinearCost",
    "PoolingCost",
    "ProfiledCost",
    "RooflineCost",
    "RoundFloor",
    "StageFloor",
    "StepLine",
    "as_bilinear",
    "floor_faults",
    "floor_of",
    "knows_cached",
    "mixed_ns",
    "prefill_ns",
    "ridge_tokens",
    "splits",
]
