"""The old name of ``orsched.measured.plan_errors``, kept for one release."""

import warnings

from orsched.measured.plan_errors import PlanAgainstRun, plan_against_run

__all__ = ["PlanAgainstRun", "plan_against_run"]

warnings.warn(
    "orsched.runner.measured.plan_errors is now orsched.measured.plan_errors",
    DeprecationWarning,
    stacklevel=2,
)
