"""Best-first search over finish events: optima of small instances without arrivals."""

from orsched.models.best_first.solve import solve_best_first
from orsched.models.exact_search.bounded import BestFirstResult

__all__ = ["BestFirstResult", "solve_best_first"]
