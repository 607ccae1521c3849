"""Best-first search over finish events: optima of small instances without arrivals."""

from orsched.models.best_first.solve import BestFirstResult, solve_best_first

__all__ = ["BestFirstResult", "solve_best_first"]
