"""Gittins index policies: the distribution of output lengths decides, not a point."""

from orsched.heuristics.gittins.lengths import LengthModel, Lengths
from orsched.heuristics.gittins.policy import Gittins
from orsched.heuristics.gittins.worker_model import GittinsParams

__all__ = ["Gittins", "GittinsParams", "LengthModel", "Lengths"]
