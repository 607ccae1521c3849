"""Policies, constructive and improvement heuristics."""

if __name__ != "orsched.heuristics":
    raise ImportError("use 'import orsched.heuristics', not 'import heuristics'")
