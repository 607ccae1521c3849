"""Formulations and bounds: what can be proven about a schedule. ``pack`` is makespan packing,
``bound`` the family of lower bounds, ``solve_full_mip`` the full MIP; ``orsched.models.batch`` is
the DP batcher, ``orsched.models.windows`` the search at full scale."""

if __name__ != "orsched.models":
    raise ImportError("use 'import orsched.models', not 'import models'")

from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.models.bounds.bounds": ("bound",),
    "orsched.models.packing": ("pack",),
    "orsched.models.full_mip": ("solve_full_mip",),
}

__all__ = ["bound", "pack", "solve_full_mip"]
__getattr__ = lazy_names("orsched.models", _HOME)
