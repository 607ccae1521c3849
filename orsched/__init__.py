"""orsched: scheduling of LLM inference as an optimisation problem.

Give it a workload and a machine; it returns a schedule, a proven lower bound, the gap between
the two and a picture. ``import orsched`` loads nothing heavier than numpy: public names are
imported from their modules at first use (type checkers read ``__init__.pyi``).
"""

from orsched._version import __version__
from orsched.lazy_names import lazy_names

_HOME = {
    "orsched.autoscaling": ("Autoscaling",),
    "orsched.checker": ("Violation", "check"),
    "orsched.comparison": ("Comparison",),
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
    ),
    "orsched.errors": (
        "InfeasibleError",
        "InputError",
        "InvalidScheduleError",
        "OrschedError",
        "PolicyError",
        "TimeLimitError",
    ),
    "orsched.eviction": ("Eviction",),
    "orsched.files": ("load_schedule", "save_instance", "save_schedule"),
    "orsched.frontier_points": ("Frontier", "FrontierPoint"),
    "orsched.frontiers": ("frontier",),
    "orsched.hardware": ("Machine", "machine", "machines"),
    "orsched.instance": ("Instance",),
    "orsched.links": ("Link",),
    "orsched.locate": ("load",),
    "orsched.memory": ("BlockMemory", "PrefixCache"),
    "orsched.methods": ("methods",),
    "orsched.metrics": ("summarise",),
    "orsched.models.bounds": ("Bound", "bound"),
    "orsched.models.bulk_bound": ("BulkBound", "attainment_bound", "bulk_bound"),
    "orsched.plotting.frontier": ("frontier_chart", "save_frontier"),
    "orsched.plotting.gantt": ("gantt", "save_gantt"),
    "orsched.plotting.latency": ("latency", "save_latency"),
    "orsched.plotting.timeline": ("save_timeline", "timeline_chart"),
    "orsched.plotting.usage": ("save_usage", "usage"),
    "orsched.policy": ("ClairvoyantView", "Information", "Policy", "PredictedView", "View"),
    "orsched.report.html": ("write_report",),
    "orsched.prefixes": ("Prefixes",),
    "orsched.requests": ("Requests",),
    "orsched.result": ("Result", "Status", "Termination"),
    "orsched.schedule": ("Schedule", "Steps", "Work"),
    "orsched.service_classes": ("ServiceClass",),
    "orsched.sizing": ("Capacity", "capacity"),
    "orsched.slo": ("SLO",),
    "orsched.solver": ("compare", "simulate", "solve"),
    "orsched.step": ("ARRIVAL", "FINISH", "Step", "decode_rounds", "prefill_stage"),
    "orsched.stop": ("FirstOf", "MaxIterations", "MaxRuntime", "TargetGap"),
    "orsched.transfers": ("Transfers",),
    "orsched.versions": ("show_versions",),
    "orsched.workers": ("Worker",),
}

__all__ = ["__version__", *sorted(name for names in _HOME.values() for name in names)]
__getattr__ = lazy_names("orsched", _HOME)


def __dir__() -> list[str]:
    return __all__
