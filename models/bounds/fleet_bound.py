"""The search for windows and prices that prove how many requests can keep their limits. A linear
program over the requests with a row for each window and measure, solved by row generation: windows
between moments of a grid that the present solution overfills are added. What it finds is a
proposal; ``orsched.certificates.fleet_demand`` says what it proves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fleet_demand import FAR, PACE, PARTS, UNIT, Demand, Measure, value_of
from orsched.costs import floor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from orsched.certificates.fleet_demand import Limits, Work
    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker

    Floats = NDArray[np.float64]

ONE = 2**80
_MOMENTS = 512
_ATOMS = 6
_IN_PROGRAM = 8000
_ROUNDS = 16
_AT_ONCE = 6


class _Window(NamedTuple):
    start_ns: int
    end_ns: int
    measure: int


@dataclass
class AttainmentSearch:
    """Certificates for one trace; windows that were found for one speed serve for others.
    ``limits``: of the requests that count; ``machines``, ``weights``: kinds of workers, and what
    one of each adds to a fleet's speed. Raises ``ValueError``: nothing can be proven of these
    machines."""

    instance: Instance
    limits: Limits
    machines: Sequence[Worker]
    weights: Sequence[int]
    windows: list[_Window] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.demand = Demand(self.instance, self.limits, self.machines, self.weights)
        self.measures = measures_for(self.demand)
        self.works = [self.demand.work(measure) for measure in self.measures]
        kept = [k for k, work in enumerate(self.works) if work.first.any() or work.token.any()]
        self.measures = [self.measures[k] for k in kept]
        self.works = [self.works[k] for k in kept]
        self._columns: dict[_Window, IntColumn] = {}
        possible = np.flatnonzero(self.demand.possible)
        step = max(1, -(-len(possible) // _IN_PROGRAM))
        by_time = possible[np.argsort(self.demand.arrival[possible], kind="stable")]
        self._sample: IntColumn = by_time[::step]
        self._multiple = len(possible) / max(1, len(self._sample))
        self._grids = [_Grid(self.demand, work, self._sample) for work in self.works]

    def certificate(
        self, speed: int, fewer_than: int, out_of_time: Callable[[], bool] = lambda: False
    ) -> dict[str, Any]:
        """Return the best certificate found; the search ends when it proves less than asked."""
        best = self._claim(speed, [])
        share = np.ones(len(self._sample))
        for _ in range(_ROUNDS):
            if best["attained"] < fewer_than or out_of_time() or not self.works:
                break
            added = self._overfull(share, speed)
            if self.windows:
                share, weights = self._solve(speed)
                found = self._claim(speed, weights)
                if found["attained"] < best["attained"]:
                    best = found
            if not added and not self._overfull(share, speed):
                break
        return best

    def _overfull(self, share: Floats, speed: int) -> bool:
        """Add the windows that are most overfull; say if there was one."""
        found: list[tuple[float, _Window]] = []
        for number, grid in enumerate(self._grids):
            found += grid.overfull(share, speed, self._multiple, number)
        found.sort(key=lambda pair: -pair[0])
        new = [window for _, window in found if window not in self._columns][:_AT_ONCE]
        for window in new:
            self._columns[window] = self._within(window)
        self.windows += new
        return bool(new)

    def _within(self, window: _Window) -> IntColumn:
        return self.demand.within(self.works[window.measure], window.start_ns, window.end_ns)

    def _solve(self, speed: int) -> tuple[Floats, list[float]]:
        """Solve the linear program over a sample: shares of the requests, prices of windows."""
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("GLOP")
        solver.SetTimeLimit(20_000)
        shares = [solver.NumVar(0.0, 1.0, "") for _ in self._sample]
        rows = []
        for window in self.windows:
            charges = self._columns[window][self._sample] * self._multiple
            length = max(1.0, float(speed) * (window.end_ns - window.start_ns) * UNIT)
            row = solver.Constraint(-solver.infinity(), 1.0)
            for at in np.flatnonzero(charges).tolist():
                row.SetCoefficient(shares[at], float(charges[at]) / length)
            rows.append((row, length))
        objective = solver.Objective()
        for share in shares:
            objective.SetCoefficient(share, 1.0)
        objective.SetMaximization()
        if solver.Solve() not in (solver.OPTIMAL, solver.FEASIBLE):
            return np.ones(len(shares)), [0.0] * len(rows)
        # A price in requests of the sample; each stands for ``multiple`` of all.
        prices = [max(0.0, row.dual_value()) * self._multiple / length for row, length in rows]
        return np.array([share.solution_value() for share in shares]), prices

    def _claim(self, speed: int, prices: Sequence[float]) -> dict[str, Any]:
        """Return what prices prove, with windows of no weight left out."""
        whole = [int(price * ONE) for price in prices]
        pairs = [(w, weight) for w, weight in zip(self.windows, whole, strict=False) if weight > 0]
        used = sorted({window.measure for window, _ in pairs})
        claim: dict[str, Any] = {
            "bound": "attainment",
            "weights": [int(weight) for weight in self.weights],
            "speed": int(speed),
            "one": ONE,
            "measures": [self.measures[k]._asdict() for k in used],
            "windows": [
                {
                    "start_ns": int(window.start_ns),
                    "end_ns": int(window.end_ns),
                    "measure": used.index(window.measure),
                    "weight": weight,
                }
                for window, weight in pairs
            ],
        }
        return {**claim, "attained": value_of(self.demand, claim)}


class _Grid:
    """Charges of a measure as atoms, each between two moments of a grid."""

    def __init__(self, demand: Demand, work: Work, sample: IntColumn) -> None:
        after = demand.after[sample]
        releases, latest, charges = [], [], []
        first = work.first[sample]
        least_ns = first // work.rate  # part by part, in order
        totals = demand.tokens(work, demand.after)[sample]
        for part in range(_ATOMS):
            releases.append(demand.arrival[sample] + least_ns * part // _ATOMS)
            latest.append(demand.first_by[sample] - least_ns * (_ATOMS - 1 - part) // _ATOMS)
            charges.append(first // _ATOMS)
            low, high = after * part // _ATOMS, after * (part + 1) // _ATOMS
            releases.append(demand.begin[sample] + low * demand.gap[sample])
            latest.append(demand.end_by[sample] - (after - high) * demand.gap[sample])
            charges.append(totals // np.maximum(after, 1) * (high - low))
        self.releases = np.concatenate(releases)
        self.latest = np.concatenate(latest)
        self.charges = np.concatenate(charges).astype(float)
        self.charges[self.latest >= FAR // 2] = 0
        kept = self.charges > 0
        self.atoms = np.flatnonzero(kept) % max(1, len(sample))
        self.releases, self.latest = self.releases[kept], self.latest[kept]
        self.charges = self.charges[kept]
        self.starts = _spread(self.releases)
        self.ends = _spread(self.latest)
        self.from_start = np.searchsorted(self.starts, self.releases, side="right") - 1
        self.to_end = np.searchsorted(self.ends, self.latest, side="left")

    def overfull(
        self, share: Floats, speed: int, multiple: float, number: int
    ) -> list[tuple[float, _Window]]:
        """Return windows that hold more than the fleet's time, by how much, a few of the worst."""
        if not len(self.charges):
            return []
        table = np.zeros((len(self.starts), len(self.ends)))
        np.add.at(
            table, (self.from_start, self.to_end), self.charges * share[self.atoms] * multiple
        )
        held = table[::-1].cumsum(axis=0)[::-1].cumsum(axis=1)
        lengths = (self.ends[None, :] - self.starts[:, None]).astype(float)
        room = float(speed) * UNIT * np.maximum(lengths, 1.0)
        over = np.where(held > 1.000001 * room, held - room, -1.0)
        over[lengths <= 0] = -1.0
        found, near = [], max(1, len(self.starts) // 32)
        for _ in range(_AT_ONCE):
            at = int(np.argmax(over))
            i, j = divmod(at, over.shape[1])
            if over[i, j] <= 0:
                break
            window = _Window(int(self.starts[i]), int(self.ends[j]), number)
            found.append((float(over[i, j]), window))
            # Windows that are nearly the same say nearly the same.
            over[max(0, i - near) : i + near + 1, max(0, j - near) : j + near + 1] = -1
        return found


def _spread(values: IntColumn) -> IntColumn:
    """Return some of the values, the least and the largest among them, evenly by rank."""
    ordered = np.unique(values)
    if len(ordered) > _MOMENTS:
        ordered = ordered[np.linspace(0, len(ordered) - 1, _MOMENTS).round().astype(int)]
    return ordered


def measures_for(demand: Demand) -> list[Measure]:
    """Return the measures that are worth trying on these machines."""
    floors = demand.floors
    mixed = {floor.mixed for floor in floors}
    if mixed == {"sum"}:
        splits = [(PARTS, PARTS, "both")]
    elif "larger" in mixed:
        splits = [(k, PARTS - k, "both") for k in range(PARTS + 1)]
        if "one_fixed" in mixed:
            splits = [(k, r, "round") for k, r, _ in splits]
    else:
        splits = [(PARTS, PARTS, "round"), (PARTS, PARTS, "stage")]
    memory = all(worker.memory is not None for worker in demand.machines)
    found = []
    for stage, rounds, fixed in splits:
        found.append(Measure(stage, rounds, fixed, "clients", 0))
        if rounds and fixed != "stage":
            if memory:
                found.append(Measure(stage, rounds, fixed, "memory", 0))
            found += [
                Measure(stage, rounds, fixed, "clients", pace) for pace in _paces(demand, rounds)
            ]
    return found


def _paces(demand: Demand, rounds: int) -> list[int]:
    """Return prices of the time between tokens, for the batches that the TPOT limits allow."""
    limits = np.unique(demand.limits.tpot_ns[demand.after > 0])
    found = set()
    for limit in limits[np.linspace(0, len(limits) - 1, min(4, len(limits))).astype(int)].tolist():
        for worker, weight in zip(demand.machines, demand.weights, strict=True):
            floor = floor_of(worker.cost)
            assert floor is not None
            scale = floor.times / floor.unit
            least = demand.least + 1
            fixed = floor.round.fixed * scale
            each = (floor.round.request + floor.round.context * least) * scale
            if each <= 0 or limit <= fixed:
                continue
            batch = (limit - fixed) / each  # mean requests in its rounds, at most
            if batch >= worker.clients:
                continue
            price = weight * rounds / PARTS * fixed / (each * batch * batch)
            found.add(int(min(2**20 - 1, max(1, round(price * PACE)))))
    return sorted(found)
