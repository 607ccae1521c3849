"""Deprecated name of ``orsched.models.killable_call``."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from warnings import warn


def __getattr__(name: str) -> Any:
    """Return what the module has under its new name."""
    if name.startswith("__"):
        raise AttributeError(name)
    text = "orsched.models.child is now orsched.models.killable_call"
    warn(text, DeprecationWarning, stacklevel=2)
    return getattr(import_module("orsched.models.killable_call"), name)
