"""The search for the fewest workers or the cheapest fleet, its simulations, and what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from orsched.common.errors import PolicyError, ResourceError
from orsched.planning.capacity.question import Fleet, price_of
from orsched.planning.capacity.simulation import Estimate, estimate_of, simulation_of
from orsched.planning.study.drive import DIED, CellLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from fractions import Fraction

    from orsched.planning.capacity.question import Fleet, Question
    from orsched.planning.capacity.simulation import Estimate, Replicas, Simulation
    from orsched.planning.study.drive import State, Store
    from orsched.planning.study.pools import Answer, Pool, Processes


FINISHED, TIME_LIMIT, INTERRUPTED = "finished", "time_limit", "interrupted"


class OutOfTimeError(Exception):
    """The time limit has ended in the middle of simulations."""


class Evaluation:
    """Estimates of fleets, simulated when first asked for; as a context manager it ends processes.

    What ``store``, whose lock is held, has from before is not run again. After the ``deadline``, of
    ``monotonic``, ``OutOfTimeError`` is raised; ``callback`` gets fleets under way and runs done.
    """

    def __init__(
        self,
        question: Question,
        store: Store,
        processes: Processes,
        deadline: float | None,
        callback: Callable[[Sequence[Fleet], int, int], None] | None,
    ) -> None:
        self.question, self.store, self.processes = question, store, processes
        self.deadline, self.callback = deadline, callback
        self.known: dict[Fleet, Estimate] = {}
        self.ran = self.simulations = 0
        self._pool: _KeptPool | None = None
        self.path = store.instance_file(question.instance)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pool is not None:
            self._pool.end()

    @property
    def at_once(self) -> int:
        """Fleets whose replications keep all processes busy together."""
        return max(1, self.processes.slots // len(self.question.seeds))

    def out_of_time(self) -> bool:
        """Whether the time limit has ended."""
        return self.deadline is not None and monotonic() >= self.deadline

    def estimate(self, fleet: Fleet) -> Estimate:
        """Return the estimate of a fleet."""
        return self.estimates([fleet])[0]

    def estimates(self, fleets: Iterable[Fleet]) -> list[Estimate]:
        """Return the estimates of some fleets, all simulated side by side.

        Raises ``OutOfTimeError``, what was finished being kept, or ``PolicyError`` of a simulation.
        """
        asked = list(dict.fromkeys(fleets))
        new = [fleet for fleet in asked if fleet not in self.known]
        self._simulate(self.question, new, self.known)
        return [self.known[fleet] for fleet in asked]

    def reference(self, question: Question, fleet: Fleet) -> Estimate:
        """Return the estimate of a fleet for another question about the same instance."""
        found: dict[Fleet, Estimate] = {}
        self._simulate(question, [fleet], found)
        return found[fleet]

    def _simulate(
        self, question: Question, new: Sequence[Fleet], found: dict[Fleet, Estimate]
    ) -> None:
        """Add the estimates of new fleets; whatever ends this, of those that are finished."""
        jobs = [
            simulation_of(question, fleet, seed, self.path)
            for fleet in new
            for seed in question.seeds
        ]
        records: dict[str, dict[str, Any]] = {}
        try:
            self.collect(jobs, records, new)
        finally:
            for fleet in new:
                own = [records.get(job.key) for job in jobs if job.fleet == fleet]
                results = [each["results"] for each in own if each and each["status"] == "ok"]
                if len(results) == len(own):
                    found[fleet] = estimate_of(question, fleet, results)
                    self.simulations += len(own)

    def collect(
        self,
        jobs: Sequence[Simulation],
        records: dict[str, dict[str, Any]],
        fleets: Sequence[Fleet] = (),
        failures: bool = False,
    ) -> None:
        """Add the records of runs that are finished; ``PolicyError``, or ``failures`` as well."""
        records |= self.store.load(job.key for job in jobs)
        for key in [key for key, each in records.items() if each["status"] != "ok"]:
            self.store.forget(key)
            del records[key]
        missing = [job for job in jobs if job.key not in records]
        if missing:
            self._run(missing, records, fleets, failures)

    def _run(
        self,
        missing: Sequence[Simulation],
        records: dict[str, dict[str, Any]],
        fleets: Sequence[Fleet],
        failures: bool,
    ) -> None:
        if self.out_of_time():
            raise OutOfTimeError
        if self._pool is None:
            self._pool = _KeptPool(self.processes.open(), self.deadline)

        def note(state: State) -> None:
            if self.callback is not None:
                self.callback(fleets, state.ran, len(missing))

        before = len(records)
        loop = CellLoop(missing, records, self.store, None, note)
        try:
            loop.run(missing, self._pool)
        finally:
            self.ran += len(records) - before
        failed = [record for record in records.values() if record["status"] != "ok"]
        for record in failed:
            self.store.forget(record["key"])
        if failed and not failures:
            said = str(failed[0]["error"])
            raise ResourceError(said) if said.startswith(DIED) else PolicyError(said)


class _KeptPool:
    """Processes that outlive a batch of simulations, and are ended by a time limit."""

    def __init__(self, pool: Pool, deadline: float | None) -> None:
        self.slots, self._pool, self._deadline = pool.slots, pool, deadline
        self._busy: set[int] = set()

    def submit(self, slot: int, task: dict[str, Any]) -> None:
        self._busy.add(slot)
        self._pool.submit(slot, task)

    def wait(self, timeout_s: float) -> list[Answer]:
        """Return what happened; raise ``OutOfTimeError`` at the deadline."""
        if self._deadline is not None:
            left = self._deadline - monotonic()
            if left <= 0:
                raise OutOfTimeError
            timeout_s = min(timeout_s, left)
        answers = self._pool.wait(timeout_s)
        self._busy -= {slot for slot, _, _ in answers}
        return answers

    def kill(self, slot: int) -> None:
        self._busy.discard(slot)
        self._pool.kill(slot)

    def close(self) -> None:
        """End the processes that are busy: what they run is not wanted any more."""
        for slot in list(self._busy):
            self.kill(slot)

    def end(self) -> None:
        self._pool.close()


_FEW = 3


def fewest_workers(
    evaluation: Evaluation, lower: int, most: int, exhaustive: bool
) -> Estimate | None:
    """Return the estimate of the fewest workers of one machine that suffice, or None up to most.

    Below ``lower`` none suffices, by proof. Upwards in growing steps until a number suffices, then
    between by bisection, several numbers at once where processes are free. The number below the
    answer does not suffice, by simulation or proof. Attainment need not grow with the workers:
    where few numbers below the answer are left, or if ``exhaustive``, all are simulated as well.
    """
    low, high = lower - 1, None
    step = 1
    while high is None:
        if low >= most:
            return None
        numbers, at = [], low
        for _ in range(evaluation.at_once):
            at = min(most, at + step)
            if at not in numbers:
                numbers.append(at)
            step = 1 if exhaustive else 2 * step
        for found in evaluation.estimates((number,) for number in numbers):
            if found.suffices:
                high = found.workers
                break
            low = found.workers
    while high - low > 1:
        for found in evaluation.estimates((m,) for m in _between(low, high, evaluation.at_once)):
            if found.suffices:
                high = found.workers
                break
            low = found.workers
    untried = [m for m in range(lower, high) if (m,) not in evaluation.known]
    if len(untried) <= _FEW:
        for found in evaluation.estimates((m,) for m in untried):
            if found.suffices:
                high = min(high, found.workers)
    return evaluation.known[(high,)]


def _between(low: int, high: int, count: int) -> list[int]:
    """Return some numbers that cut what lies between two others into equal parts."""
    gap = high - low
    cuts = {low + gap * k // (count + 1) for k in range(1, count + 1)}
    return sorted(m for m in cuts if low < m < high) or [low + gap // 2]


def cheapest_fleet(
    evaluation: Evaluation, hopeless: Callable[[Fleet], bool], most: int, exhaustive: bool
) -> Estimate | None:
    """Return the estimate of the cheapest fleet of several machines that suffices, or None.

    ``hopeless``: whether a fleet is proven to be too small. Each machine alone comes first. Then,
    for each choice of the other machines that is cheaper than the best so far, the number of the
    last one by bisection: more workers of any machine are taken to do no harm. Where no machine
    does alone, as with roles, equal numbers come first, each then as few as the others allow.
    ``exhaustive``: all fleets in order of price, until one suffices.
    """
    if exhaustive:
        for fleet in _in_order(evaluation, most):
            if not hopeless(fleet) and evaluation.estimate(fleet).suffices:
                return evaluation.known[fleet]
        return None
    search = _Staircase(evaluation, hopeless, most)
    count = len(evaluation.question.machines)
    for number in range(count):
        search.along(tuple(0 for _ in range(count)), number)
    if all(hopeless(tuple(most * (k == n) for k in range(count))) for n in range(count)):
        search.evenly()
    for prefix in search.prefixes():
        search.along(prefix, count - 1)
    return None if search.best is None else evaluation.known[search.best]


def _in_order(evaluation: Evaluation, most: int) -> Iterator[Fleet]:
    machines = evaluation.question.machines
    fleets = (f for f in product(range(most + 1), repeat=len(machines)) if 0 < sum(f) <= most)
    yield from sorted(fleets, key=lambda fleet: (price_of(machines, fleet), sum(fleet), fleet))


class _Staircase:
    """The border between fleets that suffice and those that do not, as far as it matters."""

    def __init__(
        self, evaluation: Evaluation, hopeless: Callable[[Fleet], bool], most: int
    ) -> None:
        self.evaluation, self.hopeless, self.most = evaluation, hopeless, most
        self.machines = evaluation.question.machines
        self.best: Fleet | None = None
        self.price: Fraction | None = None

    def suffices(self, fleet: Fleet) -> bool:
        """Say if a fleet suffices: by proof, by a smaller or larger one, or by simulation."""
        if self.hopeless(fleet):
            return False
        for other, found in self.evaluation.known.items():
            if found.suffices and all(a >= b for a, b in zip(fleet, other, strict=True)):
                return True
            if not found.suffices and all(a <= b for a, b in zip(fleet, other, strict=True)):
                return False
        return self.evaluation.estimate(fleet).suffices

    def along(self, fleet: Fleet, number: int) -> None:
        """Find the fewest workers of one machine beside the others of a fleet, if it is cheaper."""

        def with_count(count: int) -> Fleet:
            return (*fleet[:number], count, *fleet[number + 1 :])

        others = sum(fleet) - fleet[number]
        most = self.most - others
        if self.price is not None:
            left = self.price - price_of(self.machines, with_count(0))
            if left <= 0:
                return
            most = min(most, -(-left // self.machines[number].price) - 1)
        if most < 0:
            return
        low, high, step = -1 if others else 0, None, 1
        while high is None:
            if low >= most:
                return
            # Beside a price to beat the largest number says at once if there is anything to find.
            at = most if self.price is not None else min(most, low + step)
            if self.suffices(with_count(at)):
                high = at
            else:
                low, step = at, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.suffices(with_count(middle)) else (middle, high)
        self._take(with_count(high))

    def evenly(self) -> None:
        """Find how many of every machine suffice, then the fewest of each beside the others."""
        count, each = len(self.machines), 1
        while self.best is None and each * count <= self.most:
            if self.suffices((each,) * count):
                self._take((each,) * count)
            each = max(each + 1, min(2 * each, self.most // count))
        for number in range(count):
            if self.best is not None:
                self.along(self.best, number)

    def _take(self, fleet: Fleet) -> None:
        if not self.evaluation.estimate(fleet).suffices:  # a smaller one did: it stays the answer
            return
        price = price_of(self.machines, fleet)
        if self.price is None or price < self.price:
            self.best, self.price = fleet, price

    def prefixes(self) -> Iterator[Fleet]:
        """Yield the choices of all machines but the last, cheap ones first."""
        if self.price is None:
            return
        *others, last = self.machines
        ranges = [range(int(self.price / machine.price) + 1) for machine in others]
        del last
        chosen = [(*counts, 0) for counts in product(*ranges) if any(counts)]
        chosen = [f for f in chosen if price_of(self.machines, f) < self.price]
        yield from sorted(chosen, key=lambda fleet: price_of(self.machines, fleet))


def _measured(estimate: Estimate | None) -> dict[str, float | None]:
    """Return attainment and latencies of a fleet by their names in answers."""
    return {
        name: None if estimate is None else getattr(estimate, attribute)
        for name, attribute in (
            ("attainment", "attainment"),
            ("attainment_low", "low"),
            ("attainment_high", "high"),
            ("ttft_p99_s", "ttft_p99_s"),
            ("tpot_p99_s", "tpot_p99_s"),
        )
    }


@dataclass(frozen=True)
class Capacity:
    """What ``capacity`` found.

    Attributes:
        workers: the fewest workers found that suffice, or None; of a mix all together.
        lower_bound_workers: fewer than so many cannot suffice, by proof.
        lower_bounds: by limit, how many workers it alone forces: ``attainment`` is of the limits on
            each request together.
        estimate: what was measured of them, or None.
        curve: all fleets that were simulated, by price and number.
        machines: names of the machines.
        price, lower_bound_price: of the fleet, and one that no cheaper fleet can do with; for
            several machines, else None.
        attainment_wanted, confidence, criterion: as asked.
        bulk_tokens_per_s: output tokens a second of bulk requests, None without any.
        simulations, ran: runs that the answer rests on, and how many of them were run now.
        certificate: what proves the lower bound, or None where nothing is proven.
        termination: ``finished``, ``time_limit`` or ``interrupted``.
        fewest_shown: whether the fleets below the answer were simulated or excluded as far as the
            search goes; False when it was ended before.
        notes: remarks.
        schedule: the fewest workers in each window of time, where that was asked.
    """

    workers: int | None
    lower_bound_workers: int
    estimate: Estimate | None
    curve: tuple[Estimate, ...]
    machines: tuple[str, ...]
    price: float | None
    lower_bound_price: float | None
    attainment_wanted: float
    confidence: float
    criterion: str
    bulk_tokens_per_s: float | None
    simulations: int
    ran: int
    certificate: dict[str, Any] | None = field(repr=False)
    termination: str
    fewest_shown: bool
    notes: tuple[str, ...] = ()
    lower_bounds: dict[str, int] = field(default_factory=dict)
    schedule: Replicas | None = None

    @property
    def fleet(self) -> dict[str, int] | None:
        """How many workers of each machine suffice."""
        if self.estimate is None:
            return None
        return dict(zip(self.machines, self.estimate.fleet, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain JSON values."""
        best = self.estimate
        return {
            "workers": self.workers,
            "lower_bound_workers": self.lower_bound_workers,
            "lower_bounds": self.lower_bounds,
            **_measured(best),
            "bulk_tokens_per_s": self.bulk_tokens_per_s,
            "worker_hours": None if best is None else best.worker_hours,
            "schedule": None if self.schedule is None else self.schedule.to_dict(),
            "simulations": self.simulations,
            "ran": self.ran,
            "fleet": self.fleet,
            "price": self.price,
            "lower_bound_price": self.lower_bound_price,
            "attainment_wanted": self.attainment_wanted,
            "confidence": self.confidence,
            "criterion": self.criterion,
            "interval": None if best is None else best.interval,
            "termination": self.termination,
            "fewest_shown": self.fewest_shown,
            "notes": list(self.notes),
            "curve": self.rows(),
            "certificate": self.certificate,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return what was measured of each fleet, one dictionary each."""
        several = len(self.machines) > 1
        return [
            {
                "workers": each.workers,
                **(dict(zip(self.machines, each.fleet, strict=True)) if several else {}),
                "suffices": each.suffices,
                **_measured(each),
                **({"slo_limits": each.limits} if each.limits else {}),
                "overloaded": each.overloaded,
            }
            for each in self.curve
        ]

    def __str__(self) -> str:
        """Say in a sentence what suffices and what cannot."""
        best, lower = self.estimate, self.lower_bound_workers
        least = f"fewer than {lower} cannot (proven)" if lower > 1 else "nothing less is excluded"
        if lower == 1 and self.certificate is not None:
            least = "no smaller number is proven to be too small"
        if best is None:
            return f"no number of workers that was tried suffices; {least}"
        enough = f"{self.workers} workers suffice" if self.workers != 1 else "1 worker suffices"
        if len(self.machines) > 1:
            parts = [f"{count} {name}" for name, count in (self.fleet or {}).items() if count]
            enough = f"{' and '.join(parts)} suffice for a price of {self.price:g}"
            least = f"no fleet for less than {self.lower_bound_price:g} can (proven)"
        elif self.workers == 1:
            least = "no smaller fleet exists"
        measured = (
            f"measured: attainment {best.attainment:.3f}, {self.confidence:.0%} interval "
            f"{best.low:.3f}-{best.high:.3f}"
        ).replace("%", " %")
        text = f"{enough} ({measured}), {least}"
        return text if self.fewest_shown else f"{text}; ended before fewer were tried"
