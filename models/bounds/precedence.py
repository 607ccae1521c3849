"""The precedence graph of a schedule's steps, and its critical path.

Steps follow one another for three reasons: their worker does one at a time, a step follows the last
one that served each of its requests, a client takes a request after it has finished the last one.
The longest path through the steps' durations is the time that no idle worker can shorten. Where a
request that was evicted continues on another worker, the path changes workers with it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.errors import InputError, unavailable
from orsched.data.schedule import DECODE, INVALID, MIXED, PHASES, PREFILL
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx as nx

    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule


def precedence_graph(instance: Instance, schedule: Schedule) -> nx.DiGraph[int]:
    """Return the steps of a schedule as a directed acyclic graph.

    Nodes are rows of ``schedule.steps`` with ``worker, phase, start_ns, end_ns, rounds,
    duration_ns``. Arcs carry ``reasons``, a tuple of ``worker`` (the worker's next step),
    ``request`` (from the last step of a row of a request's work to the first of its next row:
    prefill, chunks, decode, invalid rounds, and what follows an eviction) and ``client`` (from the
    last step of a client's stay to the first one of its next stay). Within a row a request's steps
    follow one another as their worker's do.

    Raises ``InputError`` when an arc would lead back in time: the schedule is not valid.
    """
    try:
        import networkx as nx
    except ImportError as error:
        raise unavailable(error, "networkx is missing: pip install networkx") from None
    steps = schedule.steps
    graph: nx.DiGraph[int] = nx.DiGraph(instance=instance.name, method=schedule.method)
    duration = steps.end_ns - steps.start_ns
    columns = (steps.worker, steps.phase, steps.start_ns, steps.end_ns, steps.rounds, duration)
    names = ("worker", "phase", "start_ns", "end_ns", "rounds", "duration_ns")
    for row, values in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        node = dict(zip(names, values, strict=True))
        graph.add_node(row, **{**node, "phase": PHASES[node["phase"]]})
    for before, after, reason in _arcs(instance, schedule):
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


def client_flow(instance: Instance, schedule: Schedule) -> nx.MultiDiGraph[int]:
    """Return the flow of a worker's clients through its prefill stages, as the window model has it.

    Node k is the k-th stage, the last node is the end. A request is an arc of ``flow`` 1, its row
    as key, from its stage to the first stage after its last token. The arc ``idle`` between two
    neighbours has the clients that hold no request. All clients enter at node 0 and leave at the
    end. Each division into paths is a plan by clients, so windows need not name them.

    Raises ``InputError`` for several workers, chunks, mixed steps and evictions.
    """
    steps, work = schedule.steps, schedule.work
    prefills = work.request[work.phase == PREFILL]
    repeated = len(np.unique(prefills)) < len(prefills)
    if len(instance.workers) > 1 or repeated or (steps.phase == MIXED).any():
        raise InputError(
            "the flow is that of one worker with whole prefills",
            field="schedule",
            remedy="take a schedule of fcfs, hybrid or exact",
        )
    import networkx as nx

    begins = steps.start_ns[steps.phase == PREFILL]
    times = schedule.request_times(instance)
    first = np.searchsorted(begins, times["prefill_start_ns"])
    last = np.searchsorted(begins, times["finish_ns"])
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    for row in prefills.tolist():
        graph.add_edge(int(first[row]), int(last[row]), row, flow=1)
    for node in range(len(begins)):
        held = int(((first <= node) & (node < last))[prefills].sum())
        graph.add_edge(node, node + 1, "idle", flow=instance.workers[0].clients - held)
    return graph


def _arcs(instance: Instance, schedule: Schedule) -> Iterator[tuple[int, int, str]]:
    """Yield pairs of steps with the reason for their order, without repetition."""
    steps, work = schedule.steps, schedule.work
    order = np.lexsort((np.arange(len(steps)), steps.start_ns, steps.worker)).tolist()
    worker = steps.worker.tolist()
    for before, after in pairwise(order):
        if worker[before] == worker[after]:
            yield before, after, "worker"
    line = Timeline(instance, schedule)
    follows = np.flatnonzero(work.request[1:] == work.request[:-1])
    # Work rows are in order of request, then step.
    pairs = np.stack([work.last_step[follows], work.first_step[follows + 1]], axis=1)
    for before, after in dict.fromkeys(map(tuple, pairs.tolist())):
        yield before, after, "request"
    client = work.client[line.stay_row]
    rows = np.lexsort((line.stay_first, client, line.stay_worker))
    place, client = line.stay_worker[rows], client[rows]
    first, last = work.first_step[line.stay_row][rows], work.last_step[line.stay_end][rows]
    same = np.flatnonzero((place[1:] == place[:-1]) & (client[1:] == client[:-1]))
    pairs = np.stack([last[same], first[same + 1]], axis=1)
    for before, after in dict.fromkeys(map(tuple, pairs.tolist())):
        yield before, after, "client"


def critical_path(graph: nx.DiGraph[int]) -> list[int]:
    """Return the steps of a longest path by duration, in order; ties go to the later step.

    Its length, the sum of durations, is the makespan less the idle time of its worker when there
    is one worker: its steps are then a chain, and all of them are on the path. With several, it is
    the path of the worker that is busy longest, unless requests change workers.
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

    ``length_ns`` = ``prefill_ns`` + ``mixed_ns`` + ``decode_ns``, and ``makespan_ns`` =
    ``length_ns`` + ``idle_ns``, the time in which nothing on the path is done. ``steps``,
    ``prefill_stages``, ``mixed_steps`` and ``decode_rounds`` (those of mixed steps included) count
    what is on the path. ``worker`` is that of its last step. ``longest_client`` is the client whose
    own requests' prefills and rounds take longest, invalid ones not counted, with those requests in
    order; one that starts again is there again. An empty schedule has no worker and no longest
    client.
    """
    path = critical_path(precedence_graph(instance, schedule))
    steps = schedule.steps
    rows = np.array(path, np.int64)
    duration = (steps.end_ns - steps.start_ns)[rows]
    phase = steps.phase[rows]
    prefill = int(duration[phase == PREFILL].sum())
    decode, mixed = (int(duration[phase == kind].sum()) for kind in (DECODE, MIXED))
    length = prefill + mixed + decode
    return {
        "worker": int(steps.worker[rows[-1]]) if path else None,
        "steps": len(path),
        "prefill_stages": int((phase == PREFILL).sum()),
        "mixed_steps": int((phase == MIXED).sum()),
        "decode_rounds": int(steps.rounds[rows][phase != PREFILL].sum()),
        "prefill_ns": prefill,
        "mixed_ns": mixed,
        "decode_ns": decode,
        "length_ns": length,
        "idle_ns": schedule.makespan_ns - length,
        "makespan_ns": schedule.makespan_ns,
        "longest_client": _longest_client(instance, schedule),
    }


def _longest_client(instance: Instance, schedule: Schedule) -> dict[str, Any] | None:
    """Return the client whose own prefills and rounds take longest, the first of equals."""
    line, work = Timeline(instance, schedule), schedule.work
    if len(work) == 0:
        return None
    busy: dict[tuple[int, int], int] = {}
    own = np.where(work.phase == INVALID, 0, line.row_time_ns)
    rows = (line.row_worker, work.client, own)
    for worker, client, time in zip(*(r.tolist() for r in rows), strict=True):
        busy[worker, client] = busy.get((worker, client), 0) + time
    key = min(busy, key=lambda k: (-busy[k], k))
    client = work.client[line.stay_row]
    mine = np.flatnonzero((line.stay_worker == key[0]) & (client == key[1]))
    mine = mine[np.argsort(line.stay_first[mine], kind="stable")]
    served = [instance.requests.id_of(r) for r in line.stay_request[mine].tolist()]
    return {"worker": key[0], "client": key[1], "busy_ns": busy[key], "requests": served}
