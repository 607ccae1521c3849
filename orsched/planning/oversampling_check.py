"""Checks of aborted requests: enough of their group were done, and nothing serves them after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.common.units import NEVER
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def keep_violations(
    instance: Instance, keep: int, tokens: IntColumn, served: Instance, schedule: Schedule
) -> list[str]:
    """Return what is wrong with the aborts of a schedule; [] if right.

    ``tokens`` are those that each request of ``instance`` has got; ``served`` holds the requests
    that have some, in the same order and with these as outputs; that the schedule is valid for it
    ``check`` says. A group is full when ``keep`` of its requests are done. Only full groups have
    requests that are not, and none of these is in a step that begins at that moment or later, but
    for the steps up to the next token where a prefill had begun before. Of several workers at one
    moment the first decides first.
    """
    requests, found = instance.requests, []
    rows = np.flatnonzero(tokens > 0)
    expected = requests.take(rows).replace(output_tokens=tokens[rows])
    if requests.group is None or (tokens > requests.output_tokens).any():
        return ["a request has more tokens than it yields, or none has a group"]
    if served.requests.replace(ids=expected.ids) != expected or served.workers != instance.workers:
        return ["the instance that was served is another one"]
    line = Timeline(served, schedule, strict=False)
    times, many = np.unique(np.append(line.start_ns, line.end_ns)), len(instance.workers)
    starts, ends = (np.searchsorted(times, column) * many + line.worker
                    for column in (line.start_ns, line.end_ns))  # fmt: skip
    finish, last = np.full((2, len(instance)), -1, np.int64)
    finish[rows[line.request]] = ends[line.last]
    last[rows[line.request]] = starts[line.last]
    of, had = rows[line.stay_request], line.yielded_before
    before, begun = tokens.copy(), np.full(len(instance), NEVER)
    before[of] = had  # tokens before the last stay
    tried = had == before[of]
    np.minimum.at(begun, of[tried], starts[line.first[line.stay_row]][tried])
    done = tokens == requests.output_tokens
    for group in np.unique(requests.group).tolist():
        mine = requests.group == group
        full = np.sort(finish[mine & done])
        if len(full) < keep:
            found.append(f"group {group} has {len(full)} requests that are done, fewer than {keep}")
            continue
        due = (tokens == before + 1) & (begun < full[keep - 1])
        for row in np.flatnonzero(mine & ~done & (last >= full[keep - 1]) & ~due).tolist():
            found.append(f"request {row} is served after its group is full")
    return found
