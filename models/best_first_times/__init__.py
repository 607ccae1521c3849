"""Best-first search over states for sums of times: exact means of small instances."""

from orsched.models.best_first_times.solve import solve_best_first_times

__all__ = ["solve_best_first_times"]
