"""What a schedule does beyond whole prefills in a single stay: a bound must allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orsched.schedule import MIXED, PREFILL

if TYPE_CHECKING:
    from orsched.instance import Instance
    from orsched.schedule import Schedule


def allowances_of(instance: Instance, schedule: Schedule) -> frozenset[str]:
    """Return what a schedule does beyond whole prefills, between rounds, in single stays."""
    steps, work = schedule.steps, schedule.work
    found = set()
    if (steps.phase == MIXED).any():
        found.add("mixed")
    rows = work.phase == PREFILL
    if (work.stay[rows] > 0).any():  # what comes over a link is not prefilled again
        found.add("restarts")
    had = (work.tokens + work.hit)[rows]
    request, stay = work.request[rows], work.stay[rows]
    order = np.lexsort((stay, request))
    request, stay, tokens = request[order], stay[order], had[order]
    parted = (request[1:] == request[:-1]) & (stay[1:] == stay[:-1])
    if parted.any() or (tokens < instance.requests.prompt_tokens[request]).any():
        found.add("chunks")
    return frozenset(found)
