"""Deprecated name of ``orsched.heuristics.scls``."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from warnings import warn


def __getattr__(name: str) -> Any:
    """Return what the package has under its new name."""
    if name.startswith("__"):
        raise AttributeError(name)
    text = "orsched.heuristics.slices is now orsched.heuristics.scls"
    warn(text, DeprecationWarning, stacklevel=2)
    return getattr(import_module("orsched.heuristics.scls"), name)
