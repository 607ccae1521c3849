"""Pang's full MIP (1)-(25), and the window MIP that has the same optimum: two references.

>>> from orsched.models.full_mip import solve_full_mip
"""

from orsched.models.full_mip.export import write_full_mip
from orsched.models.full_mip.result import FullMipProgress, FullMipResult
from orsched.models.full_mip.size import Size
from orsched.models.full_mip.solve import MAX_NONZEROS, solve_full_mip, solve_windows_mip

__all__ = [
    "MAX_NONZEROS",
    "FullMipProgress",
    "FullMipResult",
    "Size",
    "solve_full_mip",
    "solve_windows_mip",
    "write_full_mip",
]
