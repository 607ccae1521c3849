"""Metrics: the reported numbers of a schedule, exact in integers until the last division."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.client_time import client_time
from orsched.columns import exact_sum, whole_number
from orsched.kv_blocks import kv_figures
from orsched.schedule import INVALID, MIXED, PREFILL
from orsched.timeline import Timeline, request_times
from orsched.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.schedule import Schedule

PERCENTILES = (50, 90, 95, 99)

_OF_WHOLE_RUNS = ("tokens_per_s", "ttft_ns", "tpot_ns", "jct_ns", "slo", "gap")
"""Numbers that a run has only if it was not stopped."""


@dataclass(frozen=True)
class SLO:
    """A service-level objective: limits on TTFT and TPOT, in nanoseconds."""

    ttft_ns: int
    tpot_ns: int

    def __post_init__(self) -> None:
        whole_number(self.ttft_ns, "slo.ttft_ns")
        whole_number(self.tpot_ns, "slo.tpot_ns")


def summarise(instance: Instance, schedule: Schedule, slo: SLO | None = None) -> dict[str, Any]:
    """Return all reported numbers of a schedule as plain JSON values.

    Times are integer nanoseconds, means and ratios floats (one correctly rounded division of
    integers), percentiles nearest rank. A number that is not defined is None.

    ``prefill_stages`` counts steps that prefill only, ``mixed_steps`` those that also decode;
    ``decode_rounds`` are the rounds of decode and mixed steps. A request finishes when its batch
    returns it, after ``invalid_tokens`` if it was held that long. ``restarts`` are stays after a
    request's first, ``pad_tokens`` what padding adds to prefills. ``batch_size`` has the mean
    number of requests prefilled in a step that prefills any, and of those that take part in a
    round. ``kv_blocks`` is ``orsched.kv_blocks.kv_figures``.

    There is no gap below the bound: a run that ends there had a worker that is faster than its
    cost model. A run that was stopped has no gap, no rate and no latencies either: most requests
    are not done.
    """
    steps, work = schedule.steps, schedule.work
    makespan = schedule.makespan_ns
    requests = instance.requests
    line = Timeline(instance, schedule)
    times = request_times(instance, schedule, line)
    busy, bubbles = client_time(instance, line)
    clients = sum(w.clients for w in instance.workers)
    output_tokens = int(requests.output_tokens.sum())
    ttft = times["first_token_ns"] - requests.arrival_ns
    several = requests.output_tokens >= 2
    tpot = (times["finish_ns"] - times["first_token_ns"])[several] // (
        requests.output_tokens[several] - 1
    )
    bound_ns = None if schedule.bound is None else int(schedule.bound["value_ns"])
    results = {
        "makespan_ns": makespan,
        "busy_client_ns": busy,
        "slot_utilization": ratio(busy, clients * makespan),
        "bubble_ns": bubbles,
        "prefill_stages": int((steps.phase == PREFILL).sum()),
        "decode_rounds": int(line.rounds_before[-1]),
        "mixed_steps": int((steps.phase == MIXED).sum()),
        "restarts": int((work.stay[line.stay_row] >= 1).sum()),
        "invalid_tokens": exact_sum(line.row_rounds[work.phase == INVALID]),
        "pad_tokens": _pad_tokens(instance, line),
        "batch_size": _batch_sizes(line),
        "worker_end_ns": _worker_ends(instance, line),
        "kv_blocks": kv_figures(instance, line, makespan),
        "prompt_tokens": int(requests.prompt_tokens.sum()),
        "output_tokens": output_tokens,
        "tokens_per_s": ratio(output_tokens * NS_PER_S, makespan),
        "ttft_ns": distribution(ttft),
        "tpot_ns": distribution(tpot),
        "jct_ns": distribution(times["finish_ns"] - requests.arrival_ns),
        "slo": None if slo is None else _attainment(slo, ttft, tpot, several),
        "bound_ns": bound_ns,
        "gap": gap(makespan, bound_ns),
    }
    if schedule.is_measured and schedule.is_partial:
        results |= dict.fromkeys(_OF_WHOLE_RUNS)
    return results


def gap(makespan_ns: int, bound_ns: int | None) -> float | None:
    """Return (makespan - bound) / bound; None without a bound, and for what ends before it."""
    if bound_ns is None or makespan_ns < bound_ns:
        return None
    return ratio(makespan_ns - bound_ns, bound_ns)


def ratio(numerator: int, denominator: int) -> float | None:
    """Return the quotient of two integers, correctly rounded; None for a denominator of 0."""
    return numerator / denominator if denominator else None


def distribution(values: IntColumn | Sequence[int]) -> dict[str, int | float] | None:
    """Return mean, nearest-rank percentiles and maximum of integers; None when there are none."""
    n = len(values)
    if n == 0:
        return None
    ordered = np.sort(np.asarray(values, np.int64))
    summary: dict[str, int | float] = {"mean": exact_sum(ordered) / n}
    for percent in PERCENTILES:
        summary[f"p{percent}"] = int(ordered[-(-percent * n // 100) - 1])
    summary["max"] = int(ordered[-1])
    return summary


def _batch_sizes(line: Timeline) -> dict[str, float | None]:
    """Mean requests in a step's prefill, and mean requests that decode in a round."""
    prefills = np.zeros(len(line.order), bool)
    prefills[line.first[line.is_prefill]] = True
    return {
        "prefill": ratio(int(line.is_prefill.sum()), int(prefills.sum())),
        "decode": ratio(exact_sum(line.row_rounds), int(line.rounds_before[-1])),
    }


def _pad_tokens(instance: Instance, line: Timeline) -> int:
    """Tokens by which prefills on padding workers are lengthened to the longest of their step."""
    padding = np.array([worker.padding for worker in instance.workers])
    rows = np.flatnonzero(line.is_prefill & padding[line.row_worker])
    place, tokens = line.first[rows], line.work.tokens[rows]
    longest = np.zeros(len(line.order), np.int64)
    np.maximum.at(longest, place, tokens)
    return exact_sum(longest[place] - tokens)


def _worker_ends(instance: Instance, line: Timeline) -> dict[str, Any]:
    """Minimum, maximum and population standard deviation of the workers' last ends."""
    heads = line.heads(len(instance.workers))
    last = heads[1:][heads[1:] > heads[:-1]] - 1
    ends = [*line.end_ns[last].tolist(), *[0] * (len(instance.workers) - len(last))]
    n = len(ends)
    spread = math.sqrt(n * sum(end * end for end in ends) - sum(ends) ** 2) / n
    return {"min": min(ends), "max": max(ends), "std": spread}


def _attainment(
    slo: SLO, ttft: IntColumn, tpot: IntColumn, several: NDArray[np.bool_]
) -> dict[str, Any]:
    met = ttft <= slo.ttft_ns
    met[several] &= tpot <= slo.tpot_ns
    attained = int(met.sum())
    return {
        "ttft_ns": slo.ttft_ns,
        "tpot_ns": slo.tpot_ns,
        "attained": attained,
        "attainment": ratio(attained, len(ttft)),
    }
