"""The old name of ``orsched.scenario``."""

from orsched.lazy_names import renamed_module

__getattr__ = renamed_module("orsched.study.scenario", "orsched.scenario")
