"""Prefill and decode on different workers: pools, and who is prefilled and decoded where."""

from orsched.heuristics.disaggregated.policy import Disaggregated

__all__ = ["Disaggregated"]
