"""Workers that execute schedules (extra ``orsched[runner]``); torch loads when it is needed."""

if __name__ != "orsched.runner":
    raise ImportError("use 'import orsched.runner', not 'import runner'")

from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.calibration.candidates": ("Calibration", "calibrate"),
    "orsched.runner.devices.device": (
        "EngineDevice",
        "TorchDevice",
        "VirtualDevice",
        "WorkerLostError",
    ),
    "orsched.runner.execution": ("RunResult", "run"),
    "orsched.runner.worker_pool": ("RunSettings",),
    "orsched.runner.loop.following": ("FollowSchedule",),
    "orsched.runner.loop.live": ("Executed", "execute_policy"),
    "orsched.calibration.plan_errors": ("PlanAgainstRun", "plan_against_run"),
    "orsched.runner.profiling": ("grid", "profile"),
    "orsched.runner.devices.processes": ("ProcessDevice", "RayDevice"),
    "orsched.runner.loop.resume": ("merge", "residual"),
    "orsched.runner.devices.settings": ("WorkerSettings",),
    "orsched.runner.worker.layout": ("Chunk",),
    "orsched.runner.worker.torch_worker": ("TorchWorker",),
}

__all__ = sorted(name for names in _HOME.values() for name in names)
__getattr__ = lazy_names("orsched.runner", _HOME)


def __dir__() -> list[str]:
    return __all__
