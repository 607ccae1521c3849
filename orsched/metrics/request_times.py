"""Times of requests, by the reading of a schedule: prefill, first token and finish."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.data.schedule import MIXED
from orsched.metrics.timeline import Timeline
from orsched.metrics.timeline_rows import changes

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def request_times(
    instance: Instance, schedule: Schedule, timeline: Timeline | None = None
) -> dict[str, IntColumn]:
    """Return client, prefill start and end, first token and finish of every request, in ns.

    Columns ``client, prefill_start_ns, prefill_end_ns, first_token_ns, finish_ns``, one row a
    request; -1 where the schedule does not serve a request. Client and prefill start are those of
    the first stay; the prefill ends with the first one that is complete; the finish is the end of
    the last row, invalid tokens included. ``timeline`` is the schedule's, if it is at hand.
    """
    line = Timeline(instance, schedule) if timeline is None else timeline
    return {
        "client": _of_requests(line, slice(None, None, -1), line.client),
        "prefill_start_ns": _of_requests(line, line.prefills[::-1], line.start_ns[line.first]),
        "prefill_end_ns": _prefill_ends(line),
        "first_token_ns": first_tokens_ns(line),
        "finish_ns": finishes_ns(line),
    }


def _of_requests(line: Timeline, rows: IntColumn | slice, values: IntColumn) -> IntColumn:
    """Return the value of the last one of some rows for each request, -1 for none.

    Rows are in order of request, then step: reversed, the first one of a request wins.
    """
    found = np.full(len(line.instance), -1, np.int64)
    found[line.request[rows]] = values[rows]
    return found


def finishes_ns(line: Timeline) -> IntColumn:
    """Return the finish of every request, as ``request_times`` does."""
    return _of_requests(line, slice(None), line.end_ns[line.last])


def first_tokens_ns(line: Timeline, first_round_ns: IntColumn | None = None) -> IntColumn:
    """Return the first token of every request, as ``request_times`` does.

    ``first_round_ns`` is what the first round of each decode step takes, by place, if it is known.
    """
    if line.instance.first_token == "prefill":
        return _prefill_ends(line)
    found = _of_requests(line, line.decodes[::-1], line.first)  # places of the first rounds
    served = np.flatnonzero(found >= 0)
    places = found[served]
    if first_round_ns is None:
        one = first_rounds_ns(line, places)
    else:
        whole = line.phase[places] == MIXED
        one = np.where(whole, (line.end_ns - line.start_ns)[places], first_round_ns[places])
    found[served] = line.start_ns[places] + one
    return found


def _prefill_ends(line: Timeline) -> IntColumn:
    """End of each request's first complete prefill; of its last prefill row if none is complete."""
    rows, prompts = line.prefills, line.instance.requests.prompt_tokens
    final = changes(line.stay_of[rows][::-1])[::-1]
    # Until a prefill is complete nothing is yielded, so the prompt alone completes the first one.
    done = final & (line.cached_after[rows] >= prompts[line.request[rows]])
    ordered = np.concatenate([rows, rows[done][::-1]])
    return _of_requests(line, ordered, line.end_ns[line.last])


def first_rounds_ns(line: Timeline, places: IntColumn) -> IntColumn:
    """Duration of the first round of some steps.

    Exact where all rounds of a step last equally long; where contexts matter, the cost model is
    asked for the first round, unless the run was measured (its steps then have equal rounds).
    """
    duration = (line.end_ns - line.start_ns)[places] // line.rounds[places]
    workers = line.instance.workers
    matters = np.array([worker.cost.context_matters for worker in workers])
    if matters.any() and not line.schedule.is_measured:
        asked = np.flatnonzero(matters[line.worker[places]] & (line.rounds[places] > 1))
        several, which = np.unique(places[asked], return_inverse=True)
        caches = line.caches
        contexts = (caches.active, caches.context_padded, caches.context_max)
        columns = (line.worker[several], *(column[several] for column in contexts))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        found = [workers[index].cost.round_ns(*contexts) for index, *contexts in rows]
        duration[asked] = np.array(found, np.int64)[which]
    return duration
