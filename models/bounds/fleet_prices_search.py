"""The search for prices of requests that prove how long a fleet takes at least.

For a time T a linear program packs the requests, in parts, onto workers of each kind with so many
steps: where not all fit, its duals are prices and factors that prove that no schedule ends by T
(``orsched.certificates.fleet_prices``). T is bisected. Requests of like length are one group: what
the program proposes is verified over single requests, whose prices follow from those of a group.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fields import Budget
from orsched.certificates.fleet_prices import Duals, Kind, fleet_prices, kinds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.certificates.context import Context

    Floats = NDArray[np.float64]

_SINGLES, _GROUPS = 48, (72, 112)
_ONE = 2**40
_PRECISION = 4_000
_STEPS = 12
_SURELY = 1 - 2**-26


def price_certificates(
    context: Context, released: int, least_ns: int, out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield growing certificates over what is released at or after a moment.

    ``least_ns``: a bound that is known; where prices do not prove more, nothing is yielded.
    """
    try:
        kinds = kinds_of(context, released)
    except ValueError:
        return
    best = max(1, least_ns - released)
    for groups in _GROUPS:
        search, time_ns = _Search(context, released, groups, kinds), best
        while not out_of_time():
            found = search.proof(time_ns)
            if found is None and time_ns < 4 * best:
                time_ns += time_ns // 4 + 1  # too little for any packing, or for these groups
                continue
            if found is None or found["value_ns"] <= released + best:
                break
            yield found
            before, best = best, found["value_ns"] - released
            time_ns = best + best // _PRECISION
            if best - before <= best // _PRECISION:
                break


class _Groups(NamedTuple):
    """Requests of like length together: where each begins in the order, and how many it has."""

    order: list[int]
    begins: list[int]
    sizes: Floats

    def means(self, values: Floats) -> Floats:
        """Return the mean of a group's values; they are in the requests' order of rows."""
        sums: Floats = np.add.reduceat(values[self.order], self.begins)
        return sums / self.sizes


class _Proposal(NamedTuple):
    """Prices and factors: of one kind's intervals those on lines, clients and memory."""

    prices: Floats
    factors: dict[int, list[tuple[Floats, float, float]]]


@dataclass
class _Search:
    context: Context
    released: int
    levels: int
    kinds: dict[int, Kind]

    def __post_init__(self) -> None:
        self.idle = [number for number, kind in self.kinds.items() if not kind.rows]
        self.kinds = {number: kind for number, kind in self.kinds.items() if kind.rows}
        self.count = int((self.context.instance.requests.arrival_ns >= self.released).sum())
        self.columns = {number: self._columns(kind) for number, kind in self.kinds.items()}

    def _columns(self, kind: Kind) -> dict[str, Floats]:
        """Return what each request needs, infinite of a kind onto which it does not fit."""
        found = {"tokens": np.full(self.count, np.inf), "blocks": np.zeros(self.count)}
        found["tokens"][kind.rows] = kind.tokens
        found["blocks"][kind.rows] = kind.block_rounds
        for at, (line, own) in enumerate(zip(kind.lines, kind.own, strict=True)):
            found[f"line {at}"] = np.zeros(self.count)
            found[f"line {at}"][kind.rows] = np.array(own, float) / line.unit * kind.times
        return found

    @cached_property
    def groups(self) -> _Groups:
        """The longest requests alone, the others in groups of lengths in like proportion."""
        first = next(iter(self.columns.values()))
        tokens = np.max([columns["tokens"] for columns in self.columns.values()], axis=0)
        keys = (first["line 0"], np.where(np.isfinite(tokens), tokens, 2.0**62))
        order = np.lexsort(keys)[::-1]
        begins = list(range(min(_SINGLES, self.count)))
        logarithms = np.log1p(keys[1][order][len(begins) :])
        if len(logarithms):
            width = max(1e-9, float(logarithms[0] - logarithms[-1]) / self.levels)
            levels = ((logarithms[0] - logarithms) / width).astype(int)
            begins += (len(begins) + np.unique(levels, return_index=True)[1]).tolist()
        sizes = np.diff([*begins, self.count]).astype(float)
        return _Groups(order.tolist(), begins, sizes)

    def edges(self, kind: Kind, time_ns: int) -> list[int]:
        """Return where intervals of steps begin: 0, and the shortest lengths of the groups.

        So where the shortest request of a group may be hosted, all of them may.
        """
        last, tokens = kind.most_steps(time_ns), np.zeros(self.count)
        tokens[kind.rows] = kind.tokens
        lengths = np.minimum.reduceat(tokens[self.groups.order], self.groups.begins)
        return sorted({0, *(int(each) for each in lengths if 0 < each <= last)})

    def proof(self, time_ns: int) -> dict[str, Any] | None:
        """Return a certificate by the duals at a time, of the largest bound that they prove."""
        edges = {number: self.edges(kind, time_ns) for number, kind in self.kinds.items()}
        program = _Program(self, time_ns, edges)
        if not program.solved():
            return None
        proposal = program.proposal()
        prices = [max(0, round(price)) for price in proposal.prices.tolist()]
        listed = {number: self._whole(number, edges[number], proposal) for number in self.kinds}
        listed |= {number: [[0, [], 0, 0]] for number in self.idle}
        workers = sum(kind.workers for kind in self.kinds.values())
        earned = [self._earner(k, prices, listed[number]) for number, k in self.kinds.items()]
        best, tried, paid = 0, time_ns, float(sum(prices))
        for _ in range(_STEPS):
            over = paid * _SURELY - sum(earner(tried) for earner in earned)
            best = max(best, tried) if over > 0 else best
            tried += int(over / workers) - (over <= 0) * (tried >> 20)
            if tried <= best + (best >> 16):
                break
        if not best:
            return None
        certificate = {
            "bound": "fleet_prices",
            **self.context.scope.stated(),
            "released_ns": self.released,
            "one": _ONE,
            "prices": prices,
            "workers": [{"worker": n, "intervals": found} for n, found in sorted(listed.items())],
            "value_ns": self.released + best + 1,
        }
        try:
            return fleet_prices(self.context, certificate, Budget(None))
        except ValueError:  # the last digits of floating-point numbers
            return None

    def _earner(
        self, kind: Kind, prices: list[int], listed: list[list[Any]]
    ) -> Callable[[int], float]:
        """Return what gives the most that the workers of a kind earn in a time, nearly.

        ``orsched.certificates.fleet_prices.most_profit`` says it exactly, and slower.
        """
        own = np.array(kind.own, float).reshape(len(kind.lines), len(kind.rows))
        tokens, held = np.array(kind.tokens, float), np.array(kind.block_rounds, float)
        paid = np.array(prices, float)[kind.rows]
        gains, slopes, intervals = [], [], [Duals(*each) for each in listed]
        for at, duals in enumerate(intervals):
            factors = np.array(duals.lines, float) / _ONE
            gain = paid - factors @ own - (duals.clients * tokens + duals.blocks * held) / _ONE
            end = intervals[at + 1].begins - 1 if at + 1 < len(intervals) else np.inf
            gains.append(float(gain[(gain > 0) & (tokens <= end)].sum()))
            steps = (duals.clients * kind.clients + duals.blocks * kind.blocks) / _ONE
            rounds = [line.round for line in kind.lines]
            slopes.append(steps - float(factors @ np.array(rounds, float)))

        def earned(time_ns: int) -> float:
            last, most = kind.most_steps(time_ns), 0.0
            rooms = np.array(kind.room(time_ns), float) - np.array(kind.fixed, float)
            for at, duals in enumerate(intervals):
                end = intervals[at + 1].begins - 1 if at + 1 < len(intervals) else last
                if duals.begins > last:
                    break
                room = float(np.array(duals.lines, float) @ rooms) / _ONE
                steps = duals.begins if slopes[at] < 0 else min(end, last)
                most = max(most, gains[at] + room + slopes[at] * steps)
            return kind.workers * most

        return earned

    def _whole(self, number: int, edges: list[int], proposal: _Proposal) -> list[list[Any]]:
        """Return the factors as whole numbers, of the units in which the certificate counts."""
        kind, scale = self.kinds[number], _ONE
        found = list[list[Any]]()
        for begins, (lines, clients, blocks) in zip(edges, proposal.factors[number], strict=True):
            whole = [
                int(max(0.0, float(factor)) * scale * kind.times) // line.unit
                for factor, line in zip(lines, kind.lines, strict=True)
            ]
            item = [begins, whole, int(max(0.0, clients) * scale), int(max(0.0, blocks) * scale)]
            if not found or item[1:] != found[-1][1:]:
                found.append(item)
        return found


class _Program:
    """Workers of each kind and interval (x), their steps (R) and the requests on them (y).

    All requests are hosted; what is least is the time beyond T that the workers need.
    """

    def __init__(self, search: _Search, time_ns: int, edges: dict[int, list[int]]) -> None:
        from ortools.linear_solver import pywraplp

        self.search, self.time, self.edges = search, float(time_ns), edges
        self.solver = pywraplp.Solver.CreateSolver("GLOP")
        self.infinity = self.solver.infinity()
        self.covers = [
            self.solver.Constraint(size, self.infinity) for size in search.groups.sizes.tolist()
        ]
        self.rows: dict[int, list[tuple[list[Any], Any, Any]]] = {}
        self.hosted: dict[int, list[list[tuple[int, Any]]]] = {}
        self.objective = self.solver.Objective()
        self.objective.SetMinimization()
        for number in search.kinds:
            self._add(number)

    def _add(self, number: int) -> None:
        kind, columns = self.search.kinds[number], self.search.columns[number]
        groups, edges = self.search.groups, self.edges[number]
        means = {name: groups.means(np.where(np.isfinite(v), v, 0)) for name, v in columns.items()}
        shortest = np.minimum.reduceat(columns["tokens"][groups.order], groups.begins)
        last = kind.most_steps(int(self.time))
        fleet = self.solver.Constraint(-self.infinity, float(kind.workers))
        self.rows[number], self.hosted[number] = [], []
        for at, begins in enumerate(edges):
            end = edges[at + 1] - 1 if at + 1 < len(edges) else last
            x = self.solver.NumVar(0, self.infinity, "")
            steps = self.solver.NumVar(0, self.infinity, "")
            fleet.SetCoefficient(x, 1)
            if at + 1 < len(edges):  # beyond the last one, time is what is lacking
                self._row({steps: 1.0, x: -float(end)})
            self._row({steps: -1.0, x: float(begins)})
            over = self.solver.NumVar(0, self.infinity, "")
            self.objective.SetCoefficient(over, 1)
            lines = []
            for line, fixed in zip(kind.lines, kind.fixed, strict=True):
                scale = kind.times / line.unit / self.time
                lines.append(
                    self._row({x: fixed * scale - 1, steps: line.round * scale, over: -1.0})
                )
            slots = self._row({steps: -1.0})
            memory = self._row({steps: -1.0}) if kind.blocks else None
            hosted = []
            last_one = at + 1 == len(edges)  # beyond its end, time is what is lacking
            hosts = np.flatnonzero(np.isfinite(shortest) & ((shortest <= end) | last_one))
            for group in hosts.tolist():
                y = self.solver.NumVar(0, self.infinity, "")
                self.covers[group].SetCoefficient(y, 1)
                self._row({y: 1.0, x: -float(groups.sizes[group])})
                for index, row in enumerate(lines):
                    row.SetCoefficient(y, float(means[f"line {index}"][group]) / self.time)
                slots.SetCoefficient(y, float(means["tokens"][group]) / kind.clients)
                if memory is not None:
                    memory.SetCoefficient(y, float(means["blocks"][group]) / kind.blocks)
                hosted.append((group, y))
            self.rows[number].append((lines, slots, memory))
            self.hosted[number].append(hosted)

    def _row(self, terms: dict[Any, float]) -> Any:
        row = self.solver.Constraint(-self.infinity, 0.0)
        for variable, coefficient in terms.items():
            row.SetCoefficient(variable, coefficient)
        return row

    def solved(self) -> bool:
        """Solve the program; say if there is an optimum at which time is lacking."""
        found = self.solver.Solve() == self.solver.OPTIMAL
        return bool(found and self.objective.Value() > 0)

    def proposal(self) -> _Proposal:
        """Return prices and factors by the duals.

        Between the means of two groups a price is interpolated by the length, and follows what a
        request needs more than others of its length where its group is hosted.
        """
        search, groups = self.search, self.search.groups
        length = np.max(
            [
                np.where(np.isfinite(each["tokens"]), each["tokens"], 0)
                for each in search.columns.values()
            ],
            axis=0,
        )
        group_of = np.empty(search.count, int)
        group_of[groups.order] = np.repeat(np.arange(len(groups.sizes)), groups.sizes.astype(int))
        mean, at = groups.means(length)[::-1], np.arange(len(groups.sizes))[::-1]

        def between(values: Floats) -> Floats:
            found: Floats = np.interp(length, mean, values[at])
            return found

        paid = np.array([max(0.0, float(cover.dual_value())) for cover in self.covers])
        prices, factors = between(paid * self.time), {}
        single = groups.sizes[group_of] == 1  # of like ones each may have a price of its own
        prices[single] = self.time * paid[group_of[single]]
        for number, kind in search.kinds.items():
            columns, found = search.columns[number], []
            for (lines, slots, memory), hosted in zip(
                self.rows[number], self.hosted[number], strict=True
            ):
                own = np.array([_price(row) for row in lines])
                client = _price(slots) * self.time / kind.clients
                block = 0.0 if memory is None else _price(memory) * self.time / kind.blocks
                found.append((own, client, block))
                shares = np.zeros(len(groups.sizes))
                for group, y in hosted:
                    shares[group] = y.solution_value() / groups.sizes[group]
                if shares.any():
                    used = client * length + block * columns["blocks"]
                    for index, factor in enumerate(own):
                        used = used + factor * columns[f"line {index}"]
                    more = np.where(single, 0.0, used - between(groups.means(used)))
                    prices += shares[group_of] * more
            factors[number] = found
        return _Proposal(prices, factors)


def _price(row: Any) -> float:
    """Return what a unit more of a row's room would save."""
    return max(0.0, -float(row.dual_value()))
