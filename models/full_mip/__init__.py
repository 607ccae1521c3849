"""Pang's full MIP (1)-(25), and other MIPs, solved here or in a researcher's hands.

>>> from orsched.models.full_mip import solve_full_mip
"""

from orsched.models.exact_search.bounded import FullMipProgress
from orsched.models.full_mip.programs import Size
from orsched.models.full_mip.solve import (
    MAX_NONZEROS,
    FullMipResult,
    solve_full_mip,
    solve_windows_mip,
)

__all__ = [
    "MAX_NONZEROS",
    "FullMipProgress",
    "FullMipResult",
    "Size",
    "solve_full_mip",
    "solve_windows_mip",
]
