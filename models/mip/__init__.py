"""The programs of orsched in a researcher's hands: other rows and objectives, solvers, files.

>>> from orsched.models.mip import build
"""

from orsched.models.mip.build import Mip, build
from orsched.models.mip.files import FORMATS, file_lines
from orsched.models.mip.programs import PROGRAMS, Program, read_program
from orsched.models.mip.result import MipResult, MipStep
from orsched.models.mip.solvers import SOLVERS, available_solvers

__all__ = [
    "FORMATS",
    "PROGRAMS",
    "SOLVERS",
    "Mip",
    "MipResult",
    "MipStep",
    "Program",
    "available_solvers",
    "build",
    "file_lines",
    "read_program",
]
