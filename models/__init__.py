"""Formulations and bounds: what can be proven about a schedule.

``pack`` is makespan packing, ``bound`` the family of lower bounds, ``solve_full_mip`` the full MIP;
``orsched.models.batch`` is the DP batcher, ``orsched.models.windows`` the search at full scale.
"""

if __name__ != "orsched.models":
    raise ImportError("use 'import orsched.models', not 'import models'")

from importlib import import_module
from typing import Any

_HOME = {
    "bound": "orsched.models.bounds",
    "pack": "orsched.models.packing",
    "solve_full_mip": "orsched.models.full_mip",
}

__all__ = ["bound", "pack", "solve_full_mip"]


def __getattr__(name: str) -> Any:
    """Import a public function from its module at first use (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module 'orsched.models' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
