"""The precedence graph of a schedule's steps, and its critical path.

Steps follow one another for three reasons: their worker does one at a time, a request decodes
after its prefill, a client takes a request after it has finished the last one. The longest path
through the steps' durations is the time that no idle worker can shorten.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.errors import InputError, MissingDependencyError
from orsched.schedule import DECODE, PHASES, PREFILL

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx as nx

    from orsched.instance import Instance
    from orsched.schedule import Schedule


def precedence_graph(instance: Instance, schedule: Schedule) -> nx.DiGraph[int]:
    """Return the steps of a schedule as a directed acyclic graph.

    Nodes are rows of ``schedule.steps`` with ``worker, phase, start_ns, end_ns, rounds,
    duration_ns``. Arcs carry ``reasons``, a tuple of ``worker`` (the worker's next step),
    ``request`` (from a request's prefill to its decode) and ``client`` (from the last step of a
    client's request to the prefill of its next one).

    Raises ``InputError`` when an arc would lead back in time: the schedule is not valid.
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise MissingDependencyError("networkx is missing: pip install networkx") from error
    steps = schedule.steps
    graph: nx.DiGraph[int] = nx.DiGraph(instance=instance.name, method=schedule.method)
    duration = steps.end_ns - steps.start_ns
    columns = (steps.worker, steps.phase, steps.start_ns, steps.end_ns, steps.rounds, duration)
    names = ("worker", "phase", "start_ns", "end_ns", "rounds", "duration_ns")
    for row, values in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        node = dict(zip(names, values, strict=True))
        graph.add_node(row, **{**node, "phase": PHASES[node["phase"]]})
    for before, after, reason in _arcs(schedule):
        if before >= after or steps.end_ns[before] > steps.start_ns[after]:
            raise InputError(
                f"step {after} starts before step {before} has ended ({reason})",
                field="schedule",
                remedy="check the schedule",
            )
        if graph.has_edge(before, after):
            graph[before][after]["reasons"] += (reason,)
        else:
            graph.add_edge(before, after, reasons=(reason,))
    return graph


def _arcs(schedule: Schedule) -> Iterator[tuple[int, int, str]]:
    """Yield pairs of steps with the reason for their order, without repetition."""
    steps, work = schedule.steps, schedule.work
    order = np.lexsort((np.arange(len(steps)), steps.start_ns, steps.worker)).tolist()
    worker = steps.worker.tolist()
    for before, after in pairwise(order):
        if worker[before] == worker[after]:
            yield before, after, "worker"
    rows = np.lexsort((work.first_step, work.request))
    columns = (work.request, work.phase, work.first_step, work.last_step)
    listed = list(zip(*(column[rows].tolist() for column in columns), strict=True))
    seen: set[tuple[int, int]] = set()
    for (one, _, _, last), (other, _, first, _) in pairwise(listed):
        if one == other and (last, first) not in seen:
            seen.add((last, first))
            yield last, first, "request"
    seen = set()
    place = steps.worker[work.first_step]
    rows = np.lexsort((work.first_step, work.client, place))
    fields = (place, work.client, work.request, work.first_step, work.last_step)
    served = list(zip(*(column[rows].tolist() for column in fields), strict=True))
    for (w, c, one, _, last), (v, d, other, first, _) in pairwise(served):
        if (w, c) == (v, d) and one != other and (last, first) not in seen:
            seen.add((last, first))
            yield last, first, "client"


def critical_path(graph: nx.DiGraph[int]) -> list[int]:
    """Return the steps of a longest path by duration, in order; ties go to the later step.

    Its length, the sum of durations, is the makespan less the idle time of its worker when there
    is one worker: its steps are then a chain, and all of them are on the path. With several, it is
    the path of the worker that is busy longest.
    """
    length: dict[int, int] = {}
    back: dict[int, int | None] = {}
    for step in sorted(graph.nodes):  # rows are in order of start, so arcs lead to later rows
        best: int | None = None
        for before in sorted(graph.predecessors(step)):
            if best is None or length[before] >= length[best]:
                best = before
        back[step] = best
        length[step] = graph.nodes[step]["duration_ns"] + (0 if best is None else length[best])
    if not length:
        return []
    end: int | None = max(length, key=lambda step: (length[step], step))
    path = []
    while end is not None:
        path.append(end)
        end = back[end]
    return path[::-1]


def critical_path_summary(instance: Instance, schedule: Schedule) -> dict[str, Any]:
    """Return the figures of the critical path for a report; plain JSON values.

    ``length_ns`` = ``prefill_ns`` + ``decode_ns``, and ``makespan_ns`` = ``length_ns`` +
    ``idle_ns``, the time in which the path's worker does nothing. ``steps``, ``prefill_stages`` and
    ``decode_rounds`` count what is on the path. ``longest_client`` is the client whose own
    requests' prefill stages and rounds take longest, with those requests in order. An empty
    schedule has no worker and no longest client.
    """
    path = critical_path(precedence_graph(instance, schedule))
    steps = schedule.steps
    rows = np.array(path, np.int64)
    duration = (steps.end_ns - steps.start_ns)[rows]
    phase = steps.phase[rows]
    prefill = int(duration[phase == PREFILL].sum())
    decode = int(duration[phase == DECODE].sum())
    return {
        "worker": int(steps.worker[rows[0]]) if path else None,
        "steps": len(path),
        "prefill_stages": int((phase == PREFILL).sum()),
        "decode_rounds": int(steps.rounds[rows][phase == DECODE].sum()),
        "prefill_ns": prefill,
        "decode_ns": decode,
        "length_ns": prefill + decode,
        "idle_ns": schedule.makespan_ns - prefill - decode,
        "makespan_ns": schedule.makespan_ns,
        "longest_client": _longest_client(instance, schedule),
    }


def _longest_client(instance: Instance, schedule: Schedule) -> dict[str, Any] | None:
    """Return the client whose own stages and rounds take longest, the first of equals."""
    steps, work = schedule.steps, schedule.work
    if len(work) == 0:
        return None
    duration = steps.end_ns - steps.start_ns
    decode = np.where(steps.phase == DECODE, duration, 0)
    workers = np.unique(steps.worker).tolist()
    before = {w: np.concatenate([[0], np.cumsum(decode * (steps.worker == w))]) for w in workers}
    busy: dict[tuple[int, int], int] = {}
    requests: dict[tuple[int, int], list[tuple[int, int]]] = {}
    rows = (work.client, work.request, work.phase, work.first_step, work.last_step)
    for client, request, phase, first, last in zip(*(r.tolist() for r in rows), strict=True):
        worker = int(steps.worker[first])
        key = (worker, client)
        if phase == PREFILL:
            own = int(duration[first])
            requests.setdefault(key, []).append((first, request))
        else:
            own = int(before[worker][last + 1] - before[worker][first])
        busy[key] = busy.get(key, 0) + own
    key = min(busy, key=lambda k: (-busy[k], k))
    served = [instance.requests.id_of(r) for _, r in sorted(requests.get(key, []))]
    return {"worker": key[0], "client": key[1], "busy_ns": busy[key], "requests": served}
