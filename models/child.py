"""Deprecated name of ``orsched.models.killable_call``."""

from orsched.lazy_names import renamed_module

__getattr__ = renamed_module("orsched.models.child", "orsched.models.killable_call")
