"""Deprecated name of ``orsched.heuristics.mico``."""

from orsched.lazy_names import renamed_module

__getattr__ = renamed_module("orsched.heuristics.multi_cloud", "orsched.heuristics.mico")
