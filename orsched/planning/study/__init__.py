"""Studies: grids of runs in parallel that survive a kill at any time, with a tidy table.

``run`` does all of it; ``read_study`` reads the grid, ``over_seeds`` and ``paired`` evaluate its
rows, ``save_plots`` draws them.
"""

from orsched.calibration.intervals import Interval, mean_interval
from orsched.planning.study.drive import State, StudyResult, run
from orsched.planning.study.plan import Study, read_study
from orsched.planning.study.plots import save_plots
from orsched.planning.study.table import Group, over_seeds, paired

__all__ = [
    "Group",
    "Interval",
    "State",
    "Study",
    "StudyResult",
    "mean_interval",
    "over_seeds",
    "paired",
    "read_study",
    "run",
    "save_plots",
]
