"""Capacity: the fewest workers, or the cheapest mix, that keep latency limits, with a proof.

docs/capacity.md explains how: fleets are simulated, and those that are too small proven to be so.
"""

from orsched.planning.capacity.answer import capacity
from orsched.planning.capacity.proof import proof_violations
from orsched.planning.capacity.question import Given
from orsched.planning.capacity.search import Capacity
from orsched.views.planning_charts import save_capacity

__all__ = ["Capacity", "Given", "capacity", "proof_violations", "save_capacity"]
