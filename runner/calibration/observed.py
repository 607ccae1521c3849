"""The old name of ``orsched.measured.observed``, kept for one release."""

import warnings

from orsched.measured.observed import Observed, averaged, observed, together

__all__ = ["Observed", "averaged", "observed", "together"]

warnings.warn(
    "orsched.runner.calibration.observed is now orsched.measured.observed",
    DeprecationWarning,
    stacklevel=2,
)
