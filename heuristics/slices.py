"""Deprecated name of ``orsched.heuristics.scls``."""

from orsched.lazy_names import renamed_module

__getattr__ = renamed_module("orsched.heuristics.slices", "orsched.heuristics.scls")
