"""The programs of orsched in a researcher's hands: other rows and objectives, solvers, files.

>>> from orsched.models.mip import build
"""

from orsched.models.full_mip.mathopt_model import Mip, MipResult, MipStep, build
from orsched.models.full_mip.mathopt_solvers import SOLVERS, available_solvers
from orsched.models.full_mip.model_files import FORMATS, file_lines, write_model
from orsched.models.full_mip.programs import PROGRAMS, Program, read_program

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
    "write_model",
]
