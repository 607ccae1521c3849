"""Deprecated name of ``orsched.runner.worker_pool``."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from warnings import warn


def __getattr__(name: str) -> Any:
    """Return what the module has under its new name."""
    if name.startswith("__"):
        raise AttributeError(name)
    text = "orsched.runner.fleet is now orsched.runner.worker_pool"
    warn(text, DeprecationWarning, stacklevel=2)
    return getattr(import_module("orsched.runner.worker_pool"), name)
