"""How late each request may be: slack over the disjunctive graph of a schedule.

Nodes are the steps of all workers and the caches on their way over links. Arcs keep what the
schedule has decided: the order of each worker's steps, of a link's transfers, of the requests on a
client, and of a request's own work. With these orders and all durations as they are, a step may
slip as far as the steps behind it allow before the makespan grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from orsched.common.columns import frame
from orsched.common.registry import attached
from orsched.common.units import NS_PER_S, seconds_text
from orsched.data.schedule import as_schedule, served_instance
from orsched.models.bounds.precedence import precedence_graph

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.axes import Axes

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule, Scheduled


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
