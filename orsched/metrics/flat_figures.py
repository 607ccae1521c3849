"""The figures that people ask for: one flat table of floats, times in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.common.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orsched.common.columns import IntColumn


PERCENTILES = (50, 90, 95, 99)


def ratio(numerator: int, denominator: int) -> float | None:
    """Return the quotient of two integers, correctly rounded; None for a denominator of 0."""
    return numerator / denominator if denominator else None


def distribution(
    values: IntColumn | Sequence[int], counts: IntColumn | None = None
) -> dict[str, int | float] | None:
    """Return mean, nearest-rank percentiles and maximum of integers; None when there are none.
    ``counts``: how often each occurs (None: once)."""
    import numpy as np  # which help texts do without

    from orsched.common.columns import exact_sum
    from orsched.metrics.timeline_rows import exact_product

    values = np.asarray(values, np.int64)
    n = len(values) if counts is None else exact_sum(counts)
    if n == 0:
        return None
    total = exact_sum(values) if counts is None else exact_product(counts, values)
    found = ranked(values, counts, [*(-(-percent * n // 100) for percent in PERCENTILES), n])
    names = (*(f"p{percent}" for percent in PERCENTILES), "max")
    return {"mean": total / n, **dict(zip(names, found, strict=True))}


def ranked(values: IntColumn, counts: IntColumn | None, ranks: Sequence[int]) -> list[int]:
    """Return the values of some ranks, from 1 for the smallest, each occurring ``counts`` times."""
    import numpy as np

    if counts is None:
        ordered = np.sort(values)
        return [int(ordered[rank - 1]) for rank in ranks]
    order = np.argsort(values, kind="stable")
    places = np.searchsorted(np.cumsum(counts[order]), ranks)
    return [int(each) for each in values[order][places]]


_OF_LATENCIES = {
    "ttft": ("mean", "p50", "p99"),
    "tpot": ("mean", "p50", "p99"),
    "itl": ("p50", "p95", "p99", "max"),
    "stall": ("p50", "p99"),
    "jct": ("mean", "p50", "p99"),
}

FIGURES = (
    "makespan_s",
    *(f"{name}_{figure}_s" for name, figures in _OF_LATENCIES.items() for figure in figures),
    "weighted_jct_mean_s",
    "weighted_tardiness_mean_s",
    "lateness_max_s",
    "slo_attainment",
    "goodput_per_s",
    "tokens_per_s",
    "slot_utilization",
    "bound_s",
    "gap",
)  # names of the figures, in the order in which they are listed


def flat_figures(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures of a schedule's results by their names in ``FIGURES``: times are seconds,
    shares fractions, None what is not defined (latencies of a run that was stopped, the attainment
    without limits, what an older file does not report). ``slo_attainment`` is that of the objective
    that was given; without one, that of the limits of the classes: requests within them by all
    requests of classes that have some. ``goodput_per_s`` are the requests within the limits by the
    makespan."""
    figures: dict[str, float | None] = {
        "makespan_s": _seconds(results.get("makespan_ns")),
        "bound_s": _seconds(results.get("bound_ns")),
    }
    older = "stall_ns" not in results  # its itl_ns is what stall_ns is now
    for name, statistics in _OF_LATENCIES.items():
        spread = {} if older and name == "itl" else results.get(f"{name}_ns") or {}
        for figure in statistics:
            figures[f"{name}_{figure}_s"] = _seconds(spread.get(figure))
    weighted = results.get("weighted_jct_ns") or results.get("jct_ns") or {}
    figures["weighted_jct_mean_s"] = _seconds(weighted.get("mean"))
    due = results.get("due") or {}
    figures["weighted_tardiness_mean_s"] = _seconds(due.get("weighted_tardiness_ns"))
    figures["lateness_max_s"] = _seconds(due.get("max_lateness_ns"))
    for name in ("tokens_per_s", "slot_utilization", "gap"):
        figures[name] = results.get(name)
    attained, figures["slo_attainment"] = _attained(results)
    makespan_ns = results.get("makespan_ns")
    figures["goodput_per_s"] = None
    if attained is not None and makespan_ns:
        figures["goodput_per_s"] = attained * NS_PER_S / makespan_ns
    return {name: figures[name] for name in FIGURES}


def event_figures(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return what happened beside plain stages and rounds: restarts, losses, what workers took.
    ``slo_limits`` has the limit and the value of each limited figure in seconds, ``slo_kept``
    whether all are kept.
    ``worker_s`` are the worker-seconds of a fleet that changes: with autoscaling from each order of
    a worker to its end, else while workers are available until the makespan. With groups there are
    ``bubble_share``, of client time in which no token of a request is made, and ``tail_s``."""
    fleet, busy = results.get("fleet") or {}, results.get("slot_utilization")
    slo = results.get("slo") or {}
    names = ("restarts", "mixed_steps", "invalid_tokens", "pad_tokens", "hit_rate")
    return {
        **{name: results.get(name) for name in names},
        "kv_blocks_peak": (results.get("kv_blocks") or {}).get("peak"),
        "worker_s": _seconds(fleet.get("ordered_ns", fleet.get("available_ns"))),
        "lost_steps": fleet.get("lost_steps"),
        "lost_s": _seconds(fleet.get("lost_ns")),
        "starts": fleet.get("starts"),
        "refused": results.get("refused"),
        "slo_limits": {
            name: {
                "limit_s": _seconds(each["limit_ns"]),
                "value_s": _seconds(each["value_ns"]),
                "kept": each["kept"],
            }
            for name, each in (slo.get("limits") or {}).items()
        }
        or None,
        "slo_kept": slo.get("kept"),
        "overloaded": results.get("overloaded"),
        "bubble_share": None if busy is None or "tail_ns" not in results else 1 - busy,
        "tail_s": _seconds(results.get("tail_ns")),
    }


def _attained(results: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Requests within the limits and their share of those that have some; None without limits."""
    slo = results.get("slo")
    if slo is not None and slo["attained"] is not None:
        return slo["attained"], slo["attainment"]
    limited = [part for part in (results.get("classes") or {}).values() if part["slo"]]
    if not limited:
        return None, None
    attained = sum(part["slo"]["attained"] for part in limited)
    return attained, ratio(
        attained, sum(part["requests"] + part.get("refused", 0) for part in limited)
    )


def _seconds(ns: float | None) -> float | None:
    return None if ns is None else ns / NS_PER_S
