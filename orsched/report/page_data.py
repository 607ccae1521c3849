"""Compact columns from which the page's script builds its charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.plotting.spans import (
    decode_spans,
    lane_offsets,
    prefill_spans,
    rank_in_lane,
)
from orsched.schedule import PREFILL
from orsched.timeline import request_times

if TYPE_CHECKING:
    from orsched.columns import IntColumn
    from orsched.instance import Instance
    from orsched.plotting.spans import Spans
    from orsched.schedule import Schedule, Steps

MAX_BARS = 6_000
"""Most bars and most stages of one interactive chart; more, and it shows the first part only."""


def instance_data(instance: Instance) -> dict[str, Any]:
    """Return what all charts share: the workers and their lanes."""
    return {
        "offsets": lane_offsets(instance).tolist(),
        "workers": [worker.name for worker in instance.workers],
    }


def chart_data(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return the columns of one schedule's chart; times are integer nanoseconds.

    ``shown_ns`` is the end of the part that is shown: the makespan unless the schedule has more
    than ``MAX_BARS`` bars or stages.
    """
    prefill, decode = prefill_spans(instance, schedule), decode_spans(instance, schedule)
    stages = stage_columns(schedule)
    shown = _shown_ns(schedule, prefill, decode, stages)
    shade = rank_in_lane(decode) % 2
    visible = decode.start_ns < shown
    prefill, decode, shade = (
        prefill.take(prefill.start_ns < shown),
        decode.take(visible),
        shade[visible],
    )
    requests = np.unique(np.concatenate([prefill.request, decode.request]))
    bin_of = bins(schedule.steps)
    part = stages["start"] < shown
    return {
        "shown_ns": shown,
        "requests": _request_columns(instance, schedule, requests),
        "prefill": _bar_columns(prefill, requests, bin_of),
        "decode": {**_bar_columns(decode, requests, bin_of), "shade": shade.tolist()},
        "stages": {name: column[part].tolist() for name, column in stages.items()},
    }


def bins(steps: Steps) -> IntColumn:
    """Return the bin of each step: the number, from 0, of its worker's latest prefill stage.

    -1 for steps before the first prefill stage.
    """
    result = np.empty(len(steps), np.int64)
    for worker in np.unique(steps.worker):
        mine = np.flatnonzero(steps.worker == worker)
        result[mine] = np.cumsum(steps.phase[mine] == PREFILL) - 1
    return result


def stage_columns(schedule: Schedule) -> dict[str, IntColumn]:
    """Return the stages in order of worker, then start; a decode stage joins its runs of rounds.

    Columns ``worker, phase, bin, start, end, rounds, requests`` (the requests that are
    prefilled, or the most that decode at a time) and ``tokens`` (prompt tokens prefilled).
    """
    steps, work = schedule.steps, schedule.work
    order = np.lexsort((steps.start_ns, steps.worker))
    worker, phase, start = steps.worker[order], steps.phase[order], steps.start_ns[order]
    head = np.ones(len(order), bool)
    # A prefill stage stands alone; runs of rounds join across no change and no pause.
    head[1:] = (
        (phase[1:] == PREFILL)
        | (phase[1:] != phase[:-1])
        | (worker[1:] != worker[:-1])
        | (start[1:] != steps.end_ns[order][:-1])
    )
    heads = np.flatnonzero(head)
    if len(heads) == 0:
        names = ("worker", "phase", "bin", "start", "end", "rounds", "requests", "tokens")
        return {name: np.empty(0, np.int64) for name in names}
    last = np.append(heads[1:], len(order)) - 1
    tokens = np.zeros(len(steps), np.int64)
    own = work.phase == PREFILL
    np.add.at(tokens, work.first_step[own], work.tokens[own])
    serving = _serving(schedule)
    return {
        "worker": worker[heads],
        "phase": phase[heads],
        "bin": bins(steps)[order][heads],
        "start": start[heads],
        "end": steps.end_ns[order][last],
        "rounds": np.add.reduceat(steps.rounds[order], heads),
        "requests": np.maximum.reduceat(serving[order], heads),
        "tokens": tokens[order][heads],
    }


def _serving(schedule: Schedule) -> IntColumn:
    """Return the number of requests that each step serves."""
    steps, work = schedule.steps, schedule.work
    result = np.zeros(len(steps), np.int64)
    work_worker = steps.worker[work.first_step]
    for worker in np.unique(steps.worker):
        for phase in np.unique(steps.phase):
            rows = np.flatnonzero((work.phase == phase) & (work_worker == worker))
            change = np.zeros(len(steps) + 1, np.int64)
            np.add.at(change, work.first_step[rows], 1)
            np.add.at(change, work.last_step[rows] + 1, -1)
            mine = (steps.worker == worker) & (steps.phase == phase)
            result[mine] = np.cumsum(change)[:-1][mine]
    return result


def _shown_ns(
    schedule: Schedule, prefill: Spans, decode: Spans, stages: dict[str, IntColumn]
) -> int:
    shown = schedule.makespan_ns
    for starts in (prefill.start_ns, decode.start_ns, stages["start"]):
        if len(starts) > MAX_BARS:
            shown = min(shown, int(np.partition(starts, MAX_BARS)[MAX_BARS]))
    return shown


def _request_columns(
    instance: Instance, schedule: Schedule, rows: IntColumn
) -> dict[str, list[Any] | None]:
    table, times = instance.requests, request_times(instance, schedule)
    return {
        "row": rows.tolist(),
        "id": None if table.ids is None else [table.ids[r] for r in rows.tolist()],
        "prompt": table.prompt_tokens[rows].tolist(),
        "output": table.output_tokens[rows].tolist(),
        "arrival": table.arrival_ns[rows].tolist(),
        "admit": times["prefill_start_ns"][rows].tolist(),
        "prefilled": times["prefill_end_ns"][rows].tolist(),
        "first": times["first_token_ns"][rows].tolist(),
        "finish": times["finish_ns"][rows].tolist(),
    }


def _bar_columns(spans: Spans, requests: IntColumn, bin_of: IntColumn) -> dict[str, list[int]]:
    """Return bars; ``request`` points into the request columns of the chart."""
    return {
        "request": np.searchsorted(requests, spans.request).tolist(),
        "lane": spans.lane.tolist(),
        "start": spans.start_ns.tolist(),
        "end": spans.end_ns.tolist(),
        "first": bin_of[spans.first_step].tolist(),
        "last": bin_of[spans.last_step].tolist(),
    }
