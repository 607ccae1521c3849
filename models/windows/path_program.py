"""The best paths for given stage times: a linear program with its prices, and the same in integers.
A variable counts the clients that go from a start at one moment to the next start, or the end, at a
later one: they have a window of that length. Clients are interchangeable, so this is a flow from
the clients' first starts to the end, with a row for every length: as many windows of at least that
length as requests, or what is missing of them, in client-rounds. That is V under the best paths,
and the dual prices of these rows say what a round more of each window is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.models.windows.window_state import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.models.windows.stage_prices import Prices


SPARE = 64  # a window may be so much longer than the longest request


class Relaxed(NamedTuple):
    """Optimum of the linear program. ``worth``: what a window of 0, 1, ... rounds is worth, by the
    dual prices, in client-rounds."""

    missing: float  # V under the best fractional paths; a lower bound on that of whole ones
    flow: NDArray[np.float64]  # clients on each arc
    worth: NDArray[np.float64]
    room: NDArray[np.float64]  # what a unit of each moment's capacity is worth


@dataclass(frozen=True)
class PathProgram:
    """Requests and clients; moments with their capacities come with each question. ``few_tokens``,
    ``many_tokens``: what one before a window for a longest request takes at least and at most:
    these requests can be exchanged between stages, so that one of them has those with short prompts
    and another those with long ones."""

    lengths: IntColumn  # rounds of the requests
    clients: int  # J
    tokens: int  # what a start takes of a stage's capacity, on average
    few_tokens: int
    many_tokens: int

    def needed(self, starts: int, longest: int) -> int:
        """Return the tokens of so many starts at least, that many with longest windows among."""
        return starts * self.tokens - longest * (self.tokens - self.few_tokens)

    def arcs(self, times: Sequence[int]) -> list[tuple[int, int]]:
        """Return the windows that there can be between moments; the last time is the end."""
        longest = int(self.lengths.max()) + SPARE
        last = len(times) - 1
        return [
            (a, b)
            for a in range(last)
            for b in range(a + 1, last + 1)
            if times[b] - times[a] > 0 and (times[b] - times[a] <= longest or b == last)
        ]

    def _lengths(self, times: Sequence[int], arcs: list[tuple[int, int]]) -> IntColumn:
        """Return the lengths at which the surplus of windows over requests can change."""
        longest = int(self.lengths.max())
        spans = [min(longest, times[b] - times[a]) for a, b in arcs]
        return np.unique(np.array([*spans, *self.lengths.tolist()], np.int64))

    def relaxed(self, times: Sequence[int], capacity: Sequence[int]) -> Relaxed:
        """Return the optimum of the linear program for these moments, the end the last of them."""
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        model = _Rows(
            lambda low, high: solver.NumVar(low, high, ""),
            lambda terms, low, high: _row(solver, terms, low, high),
        )
        arcs, flow, short = self._build(model, times, capacity)
        objective = solver.Objective()
        lengths = self._lengths(times, arcs)
        for each, part in zip(short, np.diff(lengths, prepend=0).tolist(), strict=True):
            objective.SetCoefficient(each, part)
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return Relaxed(float(self.lengths.sum()), np.zeros(len(arcs)), np.zeros(1), np.zeros(1))
        prices = np.zeros(int(lengths[-1]) + 1)
        prices[lengths] = [max(0.0, row.dual_value()) for row in model.needs]
        found = np.array([each.solution_value() for each in flow])
        room = np.array([-each.reduced_cost() for each in model.held])
        return Relaxed(float(objective.Value()), found, np.cumsum(prices), room)

    def whole(
        self, times: Sequence[int], capacity: Sequence[int], seconds: float
    ) -> tuple[int, list[list[int]]] | None:
        """Return V and the paths of the best whole flow found in time, or None where there is none.
        A path is the list of moments at which a client starts."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        rows = _Rows(
            lambda low, high: model.new_int_var(low, int(high), ""),
            lambda terms, low, high: model.add_linear_constraint(
                sum(factor * each for each, factor in terms), low, int(high)
            ),
        )
        arcs, flow, short = self._build(rows, times, capacity)
        parts = np.diff(self._lengths(times, arcs), prepend=0).tolist()
        model.minimize(sum(part * each for each, part in zip(short, parts, strict=True)))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, seconds
        if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        counts = {arc: solver.value(each) for arc, each in zip(arcs, flow, strict=True)}
        return round(solver.objective_value), _paths(counts, len(times) - 1)

    def _build(
        self, rows: _Rows, times: Sequence[int], capacity: Sequence[int]
    ) -> tuple[list[tuple[int, int]], list[Any], list[Any]]:
        """Add the variables and rows; return the arcs, their flows, and what each length lacks."""
        last, n, longest = len(times) - 1, len(self.lengths), int(self.lengths.max())
        arcs, held = self.arcs(times), rows.held
        flow = [rows.variable(0, self.clients) for _ in arcs]
        first = [rows.variable(0, self.clients) for _ in range(last)]
        rows.add([(each, 1) for each in first], 0, self.clients)
        rows.add([(each, 1) for each in flow], n, n)
        for k in range(last):
            out = [(x, 1) for (a, _), x in zip(arcs, flow, strict=True) if a == k]
            back = [(x, -1) for (_, b), x in zip(arcs, flow, strict=True) if b == k]
            rows.add([*out, *back, (first[k], -1)], 0, 0)
            held.append(rows.variable(0, capacity[k]))
            for of_longest, sign in ((self.few_tokens, 1), (self.many_tokens, -1)):
                tokens = [
                    (x, sign * (of_longest if times[b] - times[k] >= longest else self.tokens))
                    for (a, b), x in zip(arcs, flow, strict=True)
                    if a == k
                ]
                rows.add([*tokens, (held[k], -sign)], -(1 << 30), 0)
        rows.add([(each, 1) for each in held], n * self.tokens, n * self.tokens)
        lengths = self._lengths(times, arcs)
        counts = len(self.lengths) - np.searchsorted(np.sort(self.lengths), lengths)
        of = np.searchsorted(lengths, [times[b] - times[a] for a, b in arcs], side="right") - 1
        short, longer = [], None
        for j in range(len(lengths) - 1, -1, -1):
            windows = rows.variable(0, n)  # of at least this length
            here = [(flow[i], -1) for i in np.flatnonzero(of == j).tolist()]
            rows.add([(windows, 1), *here, *([] if longer is None else [(longer, -1)])], 0, 0)
            short.append(rows.variable(0, n))
            rows.need([(windows, 1), (short[-1], 1)], int(counts[j]))
            longer = windows
        rows.needs.reverse()
        return arcs, flow, short[::-1]


class _Rows:
    """A model as it is built, the same for both solvers."""

    def __init__(self, variable: Any, add: Any) -> None:
        self.variable, self.add = variable, add
        self.needs: list[Any] = []
        self.held: list[Any] = []

    def need(self, terms: list[tuple[Any, int]], least: int) -> None:
        """Add a row of a length: so many windows at least."""
        self.needs.append(self.add(terms, least, 1 << 30))


def _row(solver: Any, terms: list[tuple[Any, int]], low: int, high: int) -> Any:
    far = solver.infinity()
    row = solver.Constraint(-far if low == -(1 << 30) else low, far if high == 1 << 30 else high)
    for each, factor in terms:
        row.SetCoefficient(each, factor)
    return row


def _paths(counts: dict[tuple[int, int], int], last: int) -> list[list[int]]:
    """Take a flow apart into the paths of clients, each from its first start to the end."""
    left = dict(counts)
    into = [0] * (last + 1)
    for (_, b), count in counts.items():
        into[b] += count
    paths = []
    for k in range(last):
        leaving = sum(count for (a, _), count in counts.items() if a == k)
        for _ in range(leaving - into[k]):
            path, now = list[int](), k
            while now != last:
                path.append(now)
                now = next(b for b in range(now + 1, last + 1) if left.get((now, b), 0))
                left[path[-1], now] -= 1
            paths.append(path)
    return paths


PARTS = 16  # tokens are counted in these parts, so that means are whole numbers
MORE_STAGES = 3
WHOLE_S = 4.0  # most stages put in, and seconds for whole paths


class PathRepair:
    """Repairs the states of one instance whose stages have one capacity. The moves change a path or
    a stage at a time, and end where no such change helps. The program over all paths at once ends
    lower, and its prices say at which moment one stage more helps most: often it costs less than
    the rounds that would make up for what is missing."""

    def __init__(
        self, lengths: IntColumn, prompts: IntColumn, clients: int, prices: Prices
    ) -> None:
        """Take the requests, J, and prices with one level."""
        longest = np.sort(prompts[lengths == lengths.max()])
        half = max(1, len(longest) // 2)
        mean, few, many = (
            round(PARTS * float(part.mean())) for part in (prompts, longest[:half], longest[-half:])
        )
        few, many = min(mean, few), max(mean, many)
        self.program = PathProgram(lengths, clients, mean, few, many)
        self.full = PARTS * prices.levels[0][0]
        self.prices = prices

    def __call__(
        self, state: Windows, seconds: float, give_up: Callable[[], bool] = lambda: False
    ) -> Windows | None:
        """Return a state with the same end, better paths and a few stages more at its moments. None
        where there are no such paths. V need not be 0."""
        times, stages = self.moments(state)
        for added in range(MORE_STAGES + 1):
            found = self.program.relaxed(times, [self.full * each for each in stages])
            if found.missing < 0.5 or give_up():
                break
            if added == MORE_STAGES or not found.room.any():
                break
            stages[int(found.room.argmax())] += 1
        whole = self.program.whole(
            times, [self.full * each for each in stages], min(WHOLE_S, seconds)
        )
        if whole is None:
            return None
        tables = state.tables
        return Windows(
            state.lengths, times[:-1], times[-1], whole[1], tables.price, tables.late_price
        )

    def moments(self, state: Windows) -> tuple[list[int], list[int]]:
        """Return the times at which requests start, and the end; and the stages of each."""
        tables = state.tables
        starts: dict[int, int] = {}
        longest: dict[int, int] = {}
        most = int(state.lengths.max())
        for stage, span in zip(tables.start, state.spans().tolist(), strict=True):
            time = tables.times[stage]
            starts[time] = starts.get(time, 0) + 1
            longest[time] = longest.get(time, 0) + (span >= most)
        times = sorted(starts)
        tokens = [self.program.needed(starts[time], longest[time]) for time in times]
        return [*times, state.end], [max(1, -(-each // self.full)) for each in tokens]
