"""Capacity: the fewest workers, or the cheapest mix, that keep latency limits, with a proof.

``capacity`` does all of it: it simulates fleets in parallel processes and proves which are too
small. docs/capacity.md explains both.
"""

from orsched.planning.capacity.answer import capacity, save_capacity
from orsched.planning.capacity.proof import proof_violations
from orsched.planning.capacity.search import Capacity

__all__ = ["Capacity", "capacity", "proof_violations", "save_capacity"]
