"""How late each request may be: slack over the disjunctive graph of a schedule.

Nodes are the steps of all workers and the caches on their way over links. Arcs keep what the
schedule has decided: the order of each worker's steps, of a link's transfers, of the requests on a
client, and of a request's own work. With these orders and all durations as they are, a step may
slip as far as the steps behind it allow before the makespan grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.common.columns import frame
from orsched.common.errors import InputError, unavailable
from orsched.common.registry import attached
from orsched.common.units import NS_PER_S, seconds_text
from orsched.data.schedule import (
    DECODE,
    INVALID,
    MIXED,
    PHASES,
    PREFILL,
    as_schedule,
    served_instance,
)
from orsched.metrics.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    import networkx as nx
    import pandas as pd
    from matplotlib.axes import Axes

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled


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


@dataclass(frozen=True, eq=False)
class RequestSlack:
    """The slack of each step and of each request of a schedule.

    Attributes:
        instance, schedule: of what.
        graph: the disjunctive graph; nodes have ``start_ns``, ``end_ns`` and ``latest_end_ns``,
            steps by their row, transfers by ``("transfer", row)``.
        slack_ns: by how much later each request may begin, its first step with all that is in it.
        late_ns: by how much later it may arrive.
        finish_slack_ns: by how much later it may finish.
        path: a longest chain of steps and transfers without a gap that ends the schedule; what
            began it waited for an arrival, for its policy, or was there at the start.
    """

    instance: Instance = field(repr=False)
    schedule: Schedule = field(repr=False)
    graph: nx.DiGraph[object] = field(repr=False)
    slack_ns: IntColumn = field(repr=False)
    late_ns: IntColumn = field(repr=False)
    finish_slack_ns: IntColumn = field(repr=False)
    path: tuple[object, ...] = field(repr=False)

    @property
    def critical(self) -> list[int]:
        """Rows of the requests that delay the makespan if they begin any later."""
        return np.flatnonzero(self.slack_ns == 0).tolist()

    def to_pandas(self) -> pd.DataFrame:
        """Return a data frame with a row for each request, times in seconds: how much later it may
        begin, arrive and finish, and whether it is critical."""
        ids = [self.instance.requests.id_of(row) for row in range(len(self.slack_ns))]
        return frame({
            "request": ids, "slack_s": self.slack_ns / NS_PER_S, "late_s": self.late_ns / NS_PER_S,
            "finish_slack_s": self.finish_slack_ns / NS_PER_S, "critical": self.slack_ns == 0,
        })  # fmt: skip

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the Gantt chart with the critical steps framed and each request's slack as a line
        behind it; return the axes."""
        drawn: Axes = attached("slack_chart")(self, ax)
        return drawn

    def __repr__(self) -> str:
        most = seconds_text(int(self.slack_ns.max(initial=0)) / NS_PER_S)
        return (
            f"RequestSlack of {self.schedule.method} on {self.schedule.instance_name!r}: "
            f"{len(self.critical):,} of {len(self.slack_ns):,} requests are critical, "
            f"the others may begin up to {most} s later"
        )


def request_slack(instance: Instance, schedule: Scheduled) -> RequestSlack:
    """Return how late each request may be without a longer makespan.

    >>> import orsched
    >>> instance = orsched.load("two-by-two")
    >>> request_slack(instance, orsched.simulate(instance, "fcfs")).critical
    [0, 1, 2, 3]

    With one worker that never idles all steps are critical. With several, only those are that the
    last end depends on: over the worker, a client, the request itself or a link.

    Raises:
        InputError: the schedule is not one of the instance, or a step starts before what it
            follows has ended.
        MissingDependencyError: networkx is missing.
    """
    schedule = as_schedule(schedule)
    instance = served_instance(instance, [schedule])
    instance.require_known_arrivals("the slack of requests")
    graph = disjunctive_graph(instance, schedule)
    _set_latest(graph, schedule.makespan_ns)
    work, n = schedule.work, len(instance)
    first = np.full(n, len(schedule.steps), np.int64)
    last = np.full(n, -1, np.int64)
    np.minimum.at(first, work.request, work.first_step)
    np.maximum.at(last, work.request, work.last_step)
    served = last >= 0
    by_step = np.array(
        [graph.nodes[step]["latest_end_ns"] for step in range(len(schedule.steps))], np.int64
    )
    by_step -= schedule.steps.end_ns
    slack, finish, late = (np.zeros(n, np.int64) for _ in range(3))
    slack[served], finish[served] = by_step[first[served]], by_step[last[served]]
    waited = schedule.steps.start_ns[first[served]] - instance.requests.arrival_ns[served]
    late[served] = slack[served] + waited
    return RequestSlack(instance, schedule, graph, slack, late, finish, _path(graph))


def disjunctive_graph(instance: Instance, schedule: Schedule) -> nx.DiGraph[object]:
    """Return steps and transfers with the orders that a schedule has decided, as a graph without
    circles; arcs carry ``reasons``, those of ``precedence_graph`` and ``link``."""
    graph: nx.DiGraph[object] = precedence_graph(instance, schedule)  # type: ignore[assignment]
    sent, work = schedule.transfers, schedule.work
    if sent is None:
        return graph
    on_link: dict[int, object] = {}
    columns = zip(sent.request.tolist(), sent.source.tolist(), sent.start_ns.tolist(),
                  sent.end_ns.tolist(), strict=True)  # fmt: skip
    starts, ends = schedule.steps.start_ns, schedule.steps.end_ns
    for row, (request, source, start, end) in enumerate(columns):
        node = ("transfer", row)
        graph.add_node(node, worker=source, phase="transfer", start_ns=start, end_ns=end,
                       duration_ns=end - start)  # fmt: skip
        own = work.request == request
        before = work.last_step[own & (ends[work.last_step] <= start)]
        after = work.first_step[own & (starts[work.first_step] >= end)]
        if len(before):
            graph.add_edge(int(before.max()), node, reasons=("request",))
        if len(after):
            graph.add_edge(node, int(after.min()), reasons=("request",))
        if source in on_link:
            graph.add_edge(on_link[source], node, reasons=("link",))
        on_link[source] = node
    return graph


def _set_latest(graph: nx.DiGraph[object], makespan_ns: int) -> None:
    """Give each node the latest end at which the makespan stays."""
    import networkx as nx

    nodes = graph.nodes
    for node in reversed(list(nx.topological_sort(graph))):
        latest = (
            nodes[s]["latest_end_ns"] - nodes[s]["duration_ns"] for s in graph.successors(node)
        )
        nodes[node]["latest_end_ns"] = min(latest, default=makespan_ns)


def _path(graph: nx.DiGraph[object]) -> tuple[object, ...]:
    """Return a chain of nodes, each of which begins as the one before ends, to the last end."""
    nodes = graph.nodes
    if not nodes:
        return ()
    node = max(nodes, key=lambda each: (nodes[each]["end_ns"], nodes[each]["start_ns"]))
    path = [node]
    while True:
        begin = nodes[node]["start_ns"]
        tight = [each for each in graph.predecessors(node) if nodes[each]["end_ns"] == begin]
        if not tight:
            return tuple(path[::-1])
        node = min(tight, key=lambda each: nodes[each]["start_ns"])
        path.append(node)
