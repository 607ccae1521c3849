"""Cost models: the time of a step as a function of what is in it."""

from orsched.costs.affine import AffineCost
from orsched.costs.bilinear import BilinearCost
from orsched.costs.levels import LevelsCost
from orsched.costs.pooling import PoolingCost
from orsched.costs.profiled import ProfiledCost
from orsched.costs.protocol import CostModel, mixed_ns

__all__ = [
    "AffineCost",
    "BilinearCost",
    "CostModel",
    "LevelsCost",
    "PoolingCost",
    "ProfiledCost",
    "mixed_ns",
]
