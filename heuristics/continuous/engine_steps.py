"""A schedule as an engine sees it: what each iteration processes, for comparison with real ones."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from orsched.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orsched.schedule import Schedule



class EngineStep(NamedTuple):
    """One engine iteration.

    Attributes:
        start_ns: start of the row of steps that the iteration is in; its first round starts then.
        tokens: request -> tokens processed.
        preempted: requests whose caches were freed since the iteration before, by row.
    """

    start_ns: int
    tokens: dict[int, int]
    preempted: list[int]


def engine_steps(schedule: Schedule, worker: int = 0) -> Iterator[EngineStep]:
    """Yield the iterations of one worker in order, each round of a run on its own.

    What is in no schedule is not here: an iteration that preempts and serves nobody. A request that
    was preempted counts as preempted in the first iteration without it.
    """
    steps = schedule.steps
    indices = [i for i, w in enumerate(steps.worker.tolist()) if w == worker]
    place = {index: i for i, index in enumerate(indices)}
    prefills, begins, ends = defaultdict(list), defaultdict(list), defaultdict(list)
    preempted = defaultdict(list)
    for kind, (request, first, last, tokens), lost in _rows(schedule, place):
        if kind == PREFILL:
            prefills[first].append((request, tokens))
        elif kind == DECODE:
            begins[first].append(request)
            ends[last].append(request)
        if lost:
            preempted[last + 1].append(request)
    active: dict[int, None] = {}
    for i, index in enumerate(indices):
        active |= dict.fromkeys(begins[i])
        tokens = dict(prefills[i])
        if steps.phase[index] != PREFILL:
            tokens |= dict.fromkeys(active, 1)
        lost = sorted(preempted[i])
        for round_ in range(int(steps.rounds[index])):
            start = int(steps.start_ns[index])
            yield EngineStep(start, dict(tokens), [] if round_ else lost)
        for request in ends[i]:
            active.pop(request)


def _rows(
    schedule: Schedule, place: dict[int, int]
) -> Iterator[tuple[int, tuple[int, int, int, int], bool]]:
    """Yield the worker's rows of work, and whether the request lost its cache after each."""
    work = schedule.work
    columns = (work.request, work.stay, work.phase, work.first_step, work.last_step, work.tokens)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for i, (request, stay, phase, first, last, tokens) in enumerate(rows):
        if first in place:
            after = rows[i + 1][:2] if i + 1 < len(rows) else (-1, 0)
            lost = after[0] == request and after[1] > stay
            yield phase, (request, place[first], place[last], tokens), lost
