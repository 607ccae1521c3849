"""Deprecated name of ``orsched.runner.worker_pool``."""

from orsched.lazy_names import renamed_module

__getattr__ = renamed_module("orsched.runner.fleet", "orsched.runner.worker_pool")
