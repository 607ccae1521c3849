"""Names and units of the figures on axes, in one table: ``ttft_ns_p99`` is TTFT p99 (s)."""

from __future__ import annotations

import re
from math import inf
from typing import NamedTuple

from orsched.common.units import NS_PER_S


class AxisName(NamedTuple):
    """How a column is shown.

    Attributes:
        words: name and unit.
        factor: what values are multiplied by.
        better: 1 if more of it is better, -1 if less is, 0 if that cannot be said.
        most: the largest value that there can be, as it is shown.
    """

    words: str
    factor: float = 1.0
    better: int = 0
    most: float = inf


_PER_NS = 1 / NS_PER_S
_NAMES = {
    "makespan_ns": AxisName("makespan (s)", _PER_NS, -1),
    "makespan_s": AxisName("makespan (s)", 1, -1),
    "bound_ns": AxisName("lower bound of the makespan (s)", _PER_NS),
    "bound_s": AxisName("lower bound of the makespan (s)"),
    "gap": AxisName("gap to the bound (%)", 100, -1),
    "itl_max_ns": AxisName("largest gap between tokens (s)", _PER_NS, -1),
    "itl_max_s": AxisName("largest gap between tokens (s)", 1, -1),
    "tokens_per_s": AxisName("throughput (output tokens/s)", 1, 1),
    "goodput_per_s": AxisName("goodput (requests within the limits/s)", 1, 1),
    "slo_attainment": AxisName("SLO attainment (%)", 100, 1, 100),
    "slo_goodput_per_s": AxisName("goodput (requests within the limits/s)", 1, 1),
    "slot_utilization": AxisName("slot utilization (%)", 100, 1, 100),
    "hit_rate": AxisName("prompt tokens found in the cache (%)", 100, 1, 100),
    "arrivals_rate": AxisName("arrivals (requests/s)"),
    "arrivals_cv": AxisName("variation of times between arrivals"),
    "workers": AxisName("workers"),
    "kv_blocks_peak": AxisName("KV blocks, most at once", 1, -1),
}
_LATENCY = re.compile(r"(ttft|tpot|jct)_(?:ns_(mean|p\d+|max)|(mean|p\d+|max)_s)")
_PREFIX = re.compile(r"^(instance|param)_")


def axis_name(column: str) -> AxisName:
    """Return the name, with its unit, of a column of rows, tables or choices.

    Columns in ``_ns`` are shown in seconds, shares of the table in per cent; what it does not have
    is shown by its own words.
    """
    if column in _NAMES:
        return _NAMES[column]
    found = _LATENCY.fullmatch(column)
    if found:
        name, in_ns, in_s = found.groups()
        statistic = "mean" if "mean" in (in_ns, in_s) else in_ns or in_s
        return AxisName(f"{name.upper()} {statistic} (s)", _PER_NS if in_ns else 1.0, -1)
    words = _PREFIX.sub("", column)
    in_ns, in_s = re.search(r"_ns(?=_|$)", words), words.endswith("_s")
    words = re.sub(r"_ns(?=_|$)", "", words)
    words = (words.removesuffix("_s") if in_s else words).replace("_", " ").strip()
    return AxisName(f"{words} (s)" if in_ns or in_s else words, _PER_NS if in_ns else 1.0)
