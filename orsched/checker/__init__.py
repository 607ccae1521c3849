"""The independent checker: it shares no code with what makes schedules."""

from orsched.checker.checker import TIMES, check
from orsched.checker.violations import DEFAULT_LIMIT, Violation, ViolationKind

__all__ = ["DEFAULT_LIMIT", "TIMES", "Violation", "ViolationKind", "check"]
