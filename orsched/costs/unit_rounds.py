"""The cost of the unit-round model: every round takes one unit of time."""

from __future__ import annotations

from orsched.costs.affine import AffineCost
from orsched.units import NS_PER_S

ROUND_NS = NS_PER_S
"""A round takes one second, so that figures in seconds are counts of rounds."""

UNIT_COST = AffineCost(0, 0, ROUND_NS, 0)
"""A round takes one unit however many take part, and a prompt nothing beside its first round."""
