"""The checker's own computation of every number that a schedule may report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.durations import UNKNOWN
from orsched.checker.reading import PREFILL, before, exact_sum

if TYPE_CHECKING:
    from orsched.checker.durations import Durations
    from orsched.checker.reading import Ints, Reading

PERCENTILES = (50, 90, 95, 99)
SECOND_NS = 10**9


class Times:
    """Times of each request in a schedule whose structure is sound.

    Attributes:
        arrival, begin, first_token, finish: nanoseconds, one value a request.
        first, last: positions of the prefill stage and of the last step.
    """

    def __init__(self, reading: Reading, durations: Durations, measured: bool) -> None:
        r = reading
        prefill = r.first[r.prefill_of]
        decoded = np.flatnonzero(r.decode_of >= 0)
        rows = r.decode_of[decoded]
        last = prefill.copy()
        last[decoded] = r.last[rows]
        self.arrival: Ints = r.instance.requests.arrival_ns
        self.first, self.last = prefill, last
        self.begin, self.finish = r.start[prefill], r.end[last]
        self.first_token = r.end[prefill].copy()
        if r.instance.first_token != "prefill":
            step = r.first[rows]
            if measured:
                one = (r.end[step] - r.start[step]) // r.rounds[step]
            else:
                one = durations.first_round[step]
                one = np.where(one == UNKNOWN, 0, one)
            self.first_token[decoded] = r.start[step] + one


def figures(reading: Reading, times: Times, bound_ns: int | None) -> dict[str, Any]:
    """Return all reported numbers but those of the SLO, under their names in ``results``."""
    r, requests = reading, reading.instance.requests
    makespan = int(r.end.max(initial=0))
    clients = sum(worker.clients for worker in r.instance.workers)
    busy, bubbles = _client_time(reading, times, makespan, clients)
    output = exact_sum(requests.output_tokens)
    decode = r.phase != PREFILL
    several = requests.output_tokens >= 2
    span = (times.finish - times.first_token)[several]
    return {
        "makespan_ns": makespan,
        "busy_client_ns": busy,
        "slot_utilization": busy / (clients * makespan) if makespan else None,
        "bubble_ns": bubbles,
        "prefill_stages": int((~decode).sum()),
        "decode_rounds": exact_sum(r.rounds[decode]),
        "prompt_tokens": exact_sum(requests.prompt_tokens),
        "output_tokens": output,
        "tokens_per_s": output * SECOND_NS / makespan if makespan else None,
        "ttft_ns": distribution(times.first_token - times.arrival),
        "jct_ns": distribution(times.finish - times.arrival),
        "tpot_ns": distribution(span // (requests.output_tokens[several] - 1)),
        "bound_ns": bound_ns,
        "gap": (makespan - bound_ns) / bound_ns if bound_ns else None,
    }


def _client_time(
    r: Reading, times: Times, makespan: int, clients: int
) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and the causes of bubbles."""
    took = r.end - r.start
    all_before = before(took)
    prefill_before = before(np.where(r.phase == PREFILL, took, 0))
    first, last = times.first, times.last
    # While a client holds a request, all steps are its own but other requests' prefills.
    others = exact_sum(prefill_before[last + 1] - prefill_before[first + 1])
    steps = exact_sum(all_before[last + 1] - all_before[first])
    held = exact_sum(times.finish - times.begin)
    # Before each request: the time since its client's last request, or since the start.
    work = r.schedule.work
    client, worker = work.client[r.prefill_of], r.worker[first]
    order = np.lexsort((first, client, worker))
    follows = np.zeros(len(order), bool)
    follows[1:] = (client[order][1:] == client[order][:-1]) & (
        worker[order][1:] == worker[order][:-1]
    )
    free_from, ran_before = np.zeros(len(order), np.int64), all_before[_heads(r)[worker[order]]]
    earlier = np.flatnonzero(follows)
    free_from[earlier] = times.finish[order][earlier - 1]
    ran_before[earlier] = all_before[last[order][earlier - 1] + 1]
    gaps = exact_sum(times.begin[order] - free_from)
    waiting = exact_sum(all_before[first[order]] - ran_before)
    bubbles = {
        "waiting_for_prefill": waiting,
        "other_prefill": others,
        "no_request": (held - steps) + (gaps - waiting),
        "tail": clients * makespan - held - gaps,
    }
    return steps - others, bubbles


def _heads(r: Reading) -> Ints:
    """First position of each worker."""
    return np.searchsorted(r.worker, np.arange(len(r.instance.workers)))


def distribution(values: Ints) -> dict[str, Any] | None:
    """Mean, nearest-rank percentiles and maximum; None for no values."""
    count = len(values)
    if count == 0:
        return None
    ranked = np.sort(values)
    result: dict[str, Any] = {"mean": exact_sum(ranked) / count}
    for percent in PERCENTILES:
        result[f"p{percent}"] = int(ranked[(percent * count + 99) // 100 - 1])
    result["max"] = int(ranked[-1])
    return result


def attained(reading: Reading, times: Times, ttft_ns: int, tpot_ns: int) -> dict[str, Any]:
    """Requests within both objectives; an undefined TPOT counts as met."""
    output = reading.instance.requests.output_tokens
    pace = (times.finish - times.first_token) // np.maximum(output - 1, 1)
    met = (times.first_token - times.arrival <= ttft_ns) & ((output < 2) | (pace <= tpot_ns))
    count = int(met.sum())
    return {
        "ttft_ns": ttft_ns,
        "tpot_ns": tpot_ns,
        "attained": count,
        "attainment": count / len(output) if len(output) else None,
    }
