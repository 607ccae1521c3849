"""A schedule as an engine sees it: what each iteration processes, for comparison with real ones."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.data.schedule import DECODE, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orsched.data.schedule import Schedule


class EngineStep(NamedTuple):
    """One engine iteration: ``start_ns`` is the start of the row of steps that it is in (that of
    its first round); ``tokens`` maps requests to the tokens processed; ``preempted`` are the rows
    of requests whose caches were freed since the iteration before."""

    start_ns: int
    tokens: dict[int, int]
    preempted: list[int]


def engine_steps(schedule: Schedule, worker: int = 0) -> Iterator[EngineStep]:
    """Yield the iterations of one worker in order, each round of a run on its own. One that
    preempts and serves none is in no schedule, nor here: a request counts as preempted in the first
    iteration without it."""
    steps = schedule.steps
    indices = [i for i, each in enumerate(steps.worker.tolist()) if each == worker]
    prefills, begins, ends, lost = _by_step(schedule, {i: n for n, i in enumerate(indices)})
    active: dict[int, None] = {}
    for place, index in enumerate(indices):
        active |= dict.fromkeys(begins[place])
        tokens = dict(prefills[place])
        if steps.phase[index] != PREFILL:
            tokens |= dict.fromkeys(active, 1)
        start, preempted = int(steps.start_ns[index]), sorted(lost[place])
        for _ in range(int(steps.rounds[index])):
            yield EngineStep(start, dict(tokens), preempted)
            preempted = []
        for request in ends[place]:
            del active[request]


def _by_step(schedule: Schedule, place: dict[int, int]) -> tuple[dict[int, Any], ...]:
    """Return, by place on the worker: chunks, decode rows that begin, that end, caches lost."""
    prefills, begins, ends, lost = (defaultdict[int, Any](list) for _ in range(4))
    work = schedule.work
    columns = (work.request, work.stay, work.phase, work.first_step, work.last_step, work.tokens)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    for row, after in zip(rows, [*rows[1:], (-1, 0)], strict=True):
        request, stay, phase, first, last, tokens = row
        if first not in place:
            continue
        if phase == PREFILL:
            prefills[place[first]].append((request, tokens))
        elif phase == DECODE:
            begins[place[first]].append(request)
            ends[place[last]].append(request)
        if after[0] == request and after[1] > stay:
            lost[place[last] + 1].append(request)
    return prefills, begins, ends, lost


def as_scheduled(
    iterations: Iterable[tuple[Mapping[int, int], Iterable[int]]],
) -> list[tuple[dict[int, int], list[int]]]:
    """Return what a schedule can show of an engine's own record (request -> tokens and the
    preempted requests of each iteration), to compare it with that: iterations without tokens are
    left out, a preemption is put where ``engine_steps`` has it. One of a request that is never
    served again cost nothing, and is left out: its last token was in flight."""
    shown: list[tuple[dict[int, int], list[int]]] = []
    served: dict[int, int] = {}
    losses = []
    for tokens, preempted in iterations:
        losses += [(served[request] + 1, request) for request in preempted]
        if tokens:
            served |= dict.fromkeys(tokens, len(shown))
            shown.append((dict(tokens), []))
    for place, request in sorted(losses):
        if place <= served[request]:
            shown[place][1].append(request)
    return shown
