"""The checker's own computation of every number that a schedule may report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.checker.intervals import before, exact_sum
from orsched.checker.reading import MIXED, PREFILL
from orsched.checker.use import batch_sizes, kv_blocks, pad_tokens, worker_ends

if TYPE_CHECKING:
    from orsched.checker.durations import Durations
    from orsched.checker.intervals import Ints
    from orsched.checker.reading import Reading

PERCENTILES = (50, 90, 95, 99)
SECOND_NS = 10**9


class Times:
    """Times of each request in a schedule whose structure is sound.

    Attributes:
        arrival, first_token, finish: nanoseconds, one value a request.
    """

    def __init__(self, reading: Reading, durations: Durations, measured: bool) -> None:
        r, s = reading, reading.stays
        self.arrival: Ints = r.instance.requests.arrival_ns
        self.first_token: Ints = np.zeros(r.n, np.int64)
        self.finish: Ints = np.zeros(r.n, np.int64)
        self.finish[s.request] = r.end[s.last]  # the last row of a request is written last
        if r.first_by_prefill:
            stays = np.flatnonzero(s.complete)[::-1]  # and here the first one
            row = s.begin[stays] + s.prefill_rows[stays] - 1
            self.first_token[s.of[stays]] = r.end[s.last[row]]
            return
        rows = s.decodes[::-1]
        step = s.first[rows]
        if measured:
            one = (r.end[step] - r.start[step]) // r.rounds[step]
        else:
            one = np.maximum(durations.first_round[step], 0)
        after = np.where(r.phase[step] == MIXED, r.end[step], r.start[step] + one)
        self.first_token[s.request[rows]] = after


def figures(reading: Reading, times: Times, bound_ns: int | None) -> dict[str, Any]:
    """Return all reported numbers but those of the SLO, under their names in ``results``."""
    r, s, requests = reading, reading.stays, reading.instance.requests
    makespan = int(r.end.max(initial=0))
    clients = sum(worker.clients for worker in r.instance.workers)
    busy, bubbles = _client_time(reading, makespan, clients)
    output = exact_sum(requests.output_tokens)
    several = requests.output_tokens >= 2
    span = (times.finish - times.first_token)[several]
    return {
        "makespan_ns": makespan,
        "busy_client_ns": busy,
        "slot_utilization": busy / (clients * makespan) if makespan else None,
        "bubble_ns": bubbles,
        "prefill_stages": int((r.phase == PREFILL).sum()),
        "mixed_steps": int((r.phase == MIXED).sum()),
        "decode_rounds": int(r.rounds_before[-1]),
        "prompt_tokens": exact_sum(requests.prompt_tokens),
        "output_tokens": output,
        "invalid_tokens": exact_sum(s.rounds[s.invalids]),
        "pad_tokens": pad_tokens(reading),
        "restarts": int((s.number[s.begin] > 0).sum()),
        "batch_size": batch_sizes(reading),
        "tokens_per_s": output * SECOND_NS / makespan if makespan else None,
        "worker_end_ns": worker_ends(reading),
        "kv_blocks": kv_blocks(reading, makespan),
        "ttft_ns": distribution(times.first_token - times.arrival),
        "jct_ns": distribution(times.finish - times.arrival),
        "tpot_ns": distribution(span // (requests.output_tokens[several] - 1)),
        "bound_ns": bound_ns,
        "gap": (makespan - bound_ns) / bound_ns if bound_ns and makespan >= bound_ns else None,
    }


def _client_time(r: Reading, makespan: int, clients: int) -> tuple[int, dict[str, int]]:
    """Split clients x makespan into busy time and the causes of bubbles."""
    s = r.stays
    took = r.end - r.start
    all_before, rounds_before = before(took), before(np.where(r.has_rounds, took, 0))

    def in_rounds(rows: Ints) -> int:
        return exact_sum(rounds_before[s.last[rows] + 1] - rounds_before[s.first[rows]])

    busy = exact_sum(took[s.first[s.prefills]]) + in_rounds(s.decodes)
    invalid = in_rounds(s.invalids)
    begin, end = s.places
    first, last = s.first[begin], s.last[end]
    held = exact_sum(r.end[last] - r.start[first])
    steps = exact_sum(all_before[last + 1] - all_before[first])
    # Before each stay: the time since its client's last stay, or since the start.
    client, worker = s.client[begin], s.worker[begin]
    follows = np.zeros(len(begin), bool)
    follows[1:] = (client[1:] == client[:-1]) & (worker[1:] == worker[:-1])
    earlier = np.flatnonzero(follows)
    free_from, ran_before = np.zeros(len(begin), np.int64), all_before[r.heads()[worker]]
    free_from[earlier] = r.end[last[earlier - 1]]
    ran_before[earlier] = all_before[last[earlier - 1] + 1]
    gaps = exact_sum(r.start[first] - free_from)
    waiting = exact_sum(all_before[first] - ran_before)
    bubbles = {
        "waiting_for_prefill": waiting,
        "other_prefill": steps - busy - invalid,
        "no_request": (held - steps) + (gaps - waiting),
        "tail": clients * makespan - held - gaps,
        "invalid": invalid,
    }
    return busy, bubbles


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
