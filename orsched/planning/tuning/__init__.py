"""Tuning: the setting of an engine that serves requests best, its rivals, and a bound on both.

``tune`` does all of it: ``space`` has the settings, ``race`` tries them on parts of the trace and
on all of it, and ``answer`` says what was found.
"""

from orsched.planning.tuning.answer import Tuning, tune

__all__ = ["Tuning", "tune"]
