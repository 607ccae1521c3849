"""Workers that execute schedules (imported with the extra ``orsched[runner]``).

Public names are imported from their modules at first use: a worker needs torch, a plan held
against a run does not.
"""

from importlib import import_module
from typing import Any
from warnings import warn

if __name__ != "orsched.runner":
    raise ImportError("use 'import orsched.runner', not 'import runner'")

_HOME = {
    "orsched.runner.calibration.fitting": ("Calibration", "calibrate"),
    "orsched.runner.devices.device": ("TorchDevice", "VirtualDevice"),
    "orsched.runner.execution": ("RunResult", "run"),
    "orsched.runner.worker_pool": ("RunSettings",),
    "orsched.runner.loop.following": ("FollowSchedule",),
    "orsched.runner.loop.live": ("Executed", "execute_policy"),
    "orsched.runner.devices.lost": ("WorkerLostError",),
    "orsched.measured.plan_errors": ("PlanAgainstRun", "plan_against_run"),
    "orsched.runner.devices.processes": ("ProcessDevice",),
    "orsched.runner.calibration.profiling": ("grid", "profile"),
    "orsched.runner.devices.ray_devices": ("RayDevice",),
    "orsched.runner.loop.resume": ("merge", "residual"),
    "orsched.runner.devices.settings": ("WorkerSettings",),
    "orsched.runner.worker.torch_worker": ("TorchWorker",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a public name from its module at first use (PEP 562)."""
    if name == "Ran":  # kept for one release
        text = "orsched.runner.Ran is now orsched.runner.RunResult"
        warn(text, DeprecationWarning, stacklevel=2)
        name = "RunResult"
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'orsched.runner' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
