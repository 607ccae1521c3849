"""Measured runs of a server: read, fitted by one recipe, and simulated beside what was measured."""

from orsched.fidelity.recipe import RunFit, fit_run
from orsched.fidelity.runs import MeasuredRun, Server, Times, read_run, recorded_settings

__all__ = ["MeasuredRun", "RunFit", "Server", "Times", "fit_run", "read_run", "recorded_settings"]
