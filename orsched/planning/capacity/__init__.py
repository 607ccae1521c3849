"""Capacity: the fewest workers, or the cheapest mix, that keep latency limits, with a proof.

``capacity`` does all of it: it simulates fleets in parallel processes and proves which are too
small. docs/capacity.md explains both.
"""

from orsched.planning.capacity.answer import Capacity
from orsched.planning.capacity.capacity import capacity
from orsched.planning.capacity.proof import proof_violations

__all__ = ["Capacity", "capacity", "proof_violations"]
