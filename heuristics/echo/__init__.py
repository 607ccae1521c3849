"""Echo (Wang et al., arXiv 2504.03651): bulk work beside interactive requests."""

from orsched.heuristics.echo.params import CONFIGURATIONS, EchoParams
from orsched.heuristics.echo.policy import Echo

__all__ = ["CONFIGURATIONS", "Echo", "EchoParams"]
