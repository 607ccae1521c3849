"""orsched: scheduling of LLM inference as an optimisation problem.

Give it a workload and a machine; it returns a schedule, a proven lower bound, the gap between
the two and a picture. ``import orsched`` loads nothing heavier than numpy: public names are
imported from their modules at first use (type checkers read ``__init__.pyi``).
"""

from orsched._version import __version__
from orsched.common.lazy_names import lazy_names

_HOME = {
    "orsched.data.autoscaling": ("Autoscaling",),
    "orsched.checker": ("Violation", "check"),
    "orsched.solving.comparison": ("Comparison",),
    "orsched.costs": (
        "AffineCost",
        "BilinearCost",
        "CostModel",
        "Floor",
        "LevelsCost",
        "LinearCost",
        "PoolingCost",
        "ProfiledCost",
        "RooflineCost",
        "RoundFloor",
        "StageFloor",
        "StepLine",
    ),
    "orsched.common.errors": (
        "InfeasibleError",
        "InputError",
        "InvalidScheduleError",
        "OrschedError",
        "PolicyError",
        "TimeLimitError",
    ),
    "orsched.files": ("load_schedule", "save_instance", "save_schedule"),
    "orsched.heuristics.gates": ("Gate", "Waiting"),
    "orsched.heuristics.scls.offloading": ("Offloading", "offload"),
    "orsched.heuristics.stealing": ("StealingQueues", "sort_with_stealing"),
    "orsched.models.batch": ("Batches", "batch"),
    "orsched.models.full_mip.mathopt_model": ("Mip", "MipResult", "full_mip"),
    "orsched.models.packing": ("PackingResult", "pack"),
    "orsched.papers.running": ("Rerunning", "paper"),
    "orsched.calibration": ("Machine", "machine", "machines"),
    "orsched.data.instance": ("Instance",),
    "orsched.data.links": ("Link", "Transfers"),
    "orsched.files.locate": ("load",),
    "orsched.data.memory": ("BlockMemory", "Eviction", "PrefixCache"),
    "orsched.solving.methods": ("methods",),
    "orsched.metrics.summary": ("summarise",),
    "orsched.models.bounds.bounds": ("Bound", "bound"),
    "orsched.models.bounds.request_slack": ("RequestSlack", "request_slack"),
    "orsched.models.bounds.sensitivity": ("Sensitivity", "sensitivity"),
    "orsched.models.bounds.bulk_bound": ("BulkBound", "attainment_bound", "bulk_bound"),
    "orsched.views.gantt": ("gantt", "save_gantt"),
    "orsched.views.latency": ("latency", "save_latency"),
    "orsched.views.over_time": ("save_timeline", "save_usage", "timeline_chart", "usage"),
    "orsched.simulator.policy": (
        "ClairvoyantView",
        "Information",
        "Policy",
        "PredictedView",
        "View",
    ),
    "orsched.views.html": ("write_report",),
    "orsched.data.prefixes": ("Prefixes",),
    "orsched.data.requests": ("Requests",),
    "orsched.solving.result": ("Result", "Status", "Termination"),
    "orsched.data.schedule": ("Schedule", "Steps", "Work"),
    "orsched.data.service_classes": ("SLO", "ServiceClass"),
    "orsched.planning.capacity": ("Capacity", "capacity"),
    "orsched.planning.tuning": ("Tuning", "tune"),
    "orsched.solving.solver": ("compare", "simulate", "solve"),
    "orsched.data.step": ("ARRIVAL", "FINISH", "Step", "decode_rounds", "prefill_stage"),
    "orsched.common.stop": ("CpuSeconds", "FirstOf", "MaxIterations", "MaxRuntime", "TargetGap"),
    "orsched.common.versions": ("show_versions",),
    "orsched.data.workers": ("Worker",),
}

__all__ = ["__version__", *sorted(name for names in _HOME.values() for name in names)]
__getattr__ = lazy_names("orsched", _HOME)


def __dir__() -> list[str]:
    return __all__
