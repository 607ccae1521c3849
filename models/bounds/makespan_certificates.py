"""Certificates of bounds on the makespan, cheap ones first, for what schedules may do. By the two
counts (``stages_rounds_bound``), by pools, and by what requests are charged: all workers are one
machine (``one_machine``). What is released at or after a moment is charged after it; while few
requests have arrived, rounds have few active requests and take more than they charge; and a request
that would end too late on a worker must be served by another."""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.charges import Shares, charges_of
from orsched.certificates.context import sum_of_products
from orsched.certificates.kv_volume import alone_ns, kv_volume, lines_of, stage_lines
from orsched.certificates.one_machine import Charged, Workers
from orsched.certificates.pools import pools
from orsched.models.bounds.fleet_prices_search import price_certificates
from orsched.models.bounds.stages_rounds_bound import (
    by_counts,
    by_ends,
    by_packing,
    larger,
    release_moments,
    shared,
    stages_and_rounds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from orsched.certificates.context import Context, Jobs
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


def best_shares(context: Context) -> dict[int, Shares]:
    """Share the steps of all workers onto which a request fits so that much is charged."""
    return {number: context.once(_best_shares, context.kinds[number]) for number in context.able}


def _best_shares(context: Context, kind: int) -> Shares:
    """Share a worker's steps in the way that charges most: by parts, or by a line under all steps
    where steps are mixed or prefills that are done again yield tokens."""
    scope, by_parts = context.scope, _shares_by_parts(context, kind)
    found = [by_parts]
    several = len(context.floor(kind).lines) > 1
    if (scope.mixed or scope.yielding or several) and context.instance.link is None:
        lines = lines_of(context, kind, int(context.fit(kind).jobs.prompts.min()) + 1)
        found += [by_parts._replace(line=None, step=number) for number in range(len(lines))]
    return max(found, key=lambda shares: _charged(context, kind, shares))


def _charged(context: Context, kind: int, shares: Shares) -> Fraction:
    """Return what requests are charged in all, in ns."""
    charges, rounds = charges_of(context, kind, shares), context.fit(kind).jobs.rounds.tolist()
    return Fraction(sum(charges.machine_times(rounds)), charges.scale)


def _shares_by_parts(context: Context, kind: int) -> Shares:
    """Share a worker's steps by clients, or by cap or memory where that charges more."""
    worker, jobs, floor = (
        context.instance.workers[kind],
        context.fit(kind).jobs,
        context.floor(kind),
    )
    by_stage, by_round = _shared_by(worker, jobs)
    if not floor.by_counts:
        return Shares(by_stage, by_round)
    if context.scope.mixed and floor.mixed != "sum":
        token = floor.stage.token if floor.mixed == "one_fixed" else 0
        return Shares(by_stage, by_round, (0, token, 1))
    return Shares(by_stage, by_round, _best_line(worker, floor, jobs, by_stage))


def stated(shares: dict[int, Shares]) -> list[dict[str, Any]]:
    """Return choices as they stand in a certificate, all workers of weight 1."""
    return [{"worker": number, "weight": 1, **own.stated()} for number, own in shares.items()]


def _shared_by(worker: Worker, jobs: Jobs) -> tuple[str, str]:
    """Say what divides the fixed parts: whatever adds up to at most 1 in a step, and more in all.
    By clients each request has one J-th; by the cap a stage is shared by prompt tokens, by memory a
    round by blocks."""
    by_stage, by_round = "clients", "clients"
    if worker.prefill_limit is not None:
        by_tokens = Fraction(int(jobs.prompts.sum()), worker.prefill_limit)
        if by_tokens > Fraction(len(jobs), jobs.clients):
            by_stage = "cap"
    if memory := worker.memory:
        held = Fraction(sum_of_products(jobs.blocks, jobs.rounds), memory.blocks)
        if memory.is_paged:
            held = Fraction(jobs.totals["context_sum"], memory.blocks * memory.block_tokens)
        if held > Fraction(int(jobs.rounds.sum()), jobs.clients):
            by_round = "memory"
    return by_stage, by_round


def _best_line(worker: Worker, floor: Floor, jobs: Jobs, by_stage: str) -> tuple[int, int, int]:
    """Return (a, b, scale): a stage takes at least (a + b tokens) / scale; that of most charge."""
    tokens = int(jobs.prompts.sum())
    stages = Fraction(len(jobs), jobs.clients)
    if by_stage == "cap":
        stages = Fraction(tokens, worker.prefill_limit or 1)
    lines = stage_lines(floor, worker.prefill_limit)
    return max(lines, key=lambda line: ((line[0] * stages + line[1] * tokens) / line[2], line))


_STEPS, _SAMPLE, _WHOLE = 300, 4_000, 1 << 20
_FEWEST_MOMENTS, _MOST_MOMENTS, _ROWS_IN_ALL = 4, 24, 100_000


def balanced_weights(workers: Workers, makespan: int | None) -> list[int]:
    """Return a weight for each worker that makes the sum of least times on the machine large. Such
    weights are the dual of assigning requests, in parts, to workers so that the largest load is
    least; they are found by multiplicative steps. A worker that cannot end a request before the
    makespan, if one is given, does not serve it."""
    if len(workers.parts) == 1:
        return [1]
    arrivals = workers.context.arrivals
    columns: dict[int, NDArray[np.float64]] = {}
    for part in workers.parts:
        if id(part) in columns:
            continue
        column = columns[id(part)] = np.full(len(arrivals), np.inf)
        column[part.rows] = [time / part.charges.scale for time in part.times]
        if makespan is not None:
            alone = zip(part.rows, part.alone_ns, strict=True)
            column[[row for row, time in alone if arrivals[row] + time >= makespan]] = np.inf
    times = np.stack([columns[id(part)] for part in workers.parts])
    times = times[:, np.isfinite(times).any(axis=0)]
    if times.shape[1] > _SAMPLE:
        times = times[:, :: -(-times.shape[1] // _SAMPLE)]
    best = _ascend(times)
    whole = [max(1, round(float(weight) * _WHOLE)) for weight in best / best.max()]
    divisor = gcd(*whole)
    return [weight // divisor for weight in whole]


def _ascend(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Maximise the sum of least weighted times over the sum of weights."""
    count, columns, finite = times.shape[0], np.arange(times.shape[1]), np.isfinite(times)
    best, most = np.ones(count), -1.0
    if not len(columns):
        return best
    known = np.where(finite, times, 0.0)
    sums = known[:, finite.all(axis=0)].sum(axis=1)
    speeds = np.where(
        sums > 0, sums.min(initial=np.inf, where=sums > 0) / np.maximum(sums, 1e-9), 1.0
    )
    for start in (np.ones(count), speeds):
        now = np.where(finite.any(axis=1), start, 0.0)
        for step in range(_STEPS):
            weighted = np.where(finite, now[:, None] * known, np.inf)
            chosen = np.argmin(weighted, axis=0)
            value = float(weighted[chosen, columns].sum() / now.sum())
            if value > most:
                best, most = now, value
            loads = np.bincount(chosen, weights=times[chosen, columns], minlength=count)
            if not loads.max() > 0:
                break
            now = now * (1.0 + 0.5 / (1.0 + 0.2 * step) * (loads / loads.max()))
            now = now / now.max()
    return best


def charged_certificates(
    context: Context, out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield certificates of bounds by charges, at several moments and for several weights."""
    workers = Workers.of(context, best_shares(context))
    bounds = ChargedBound(workers, balanced_weights(workers, None))
    best: dict[str, Any] | None = None
    for moment in bounds.likely_moments():
        if best is not None and out_of_time():
            return
        found = bounds.certificate(moment)
        if best is None or found["value_ns"] > best["value_ns"]:
            best = found
            yield found
    if best is not None and bounds.late_are_elsewhere and not out_of_time():
        weights = balanced_weights(workers, best["value_ns"])
        yield ChargedBound(workers, weights).certificate(best["released_ns"])


class ChargedBound(Charged):
    """Makespan bounds over the requests released at or after a moment, for given weights."""

    def certificate(self, moment: int) -> dict[str, Any]:
        """Return the certificate of the bound by what is released at or after a moment."""
        first = bisect_left(self.arrivals, moment)
        lost = self.lost(first)
        value = moment + -(-(lost + self.needed_from[first]) // self.speed)
        value = max(value, self.last_end_from[first])
        if self.late_are_elsewhere:
            value = self._without_late(moment, lost, first, value)
        return {
            "bound": "charged",
            **self.workers.context.scope.stated(),
            "released_ns": moment,
            "workers": self.workers.choices(self.weights),
            "value_ns": value,
        }

    def _without_late(self, moment: int, lost: int, first: int, value: int) -> int:
        """Return the largest makespan bound that proves itself. Below a makespan V no worker serves
        a request that it cannot end before V. If what is left needs at least V, no schedule is
        shorter."""
        rows = range(first, len(self.arrivals))
        contested = [at for at in rows if max(self.ends[at]) >= value]
        settled = lost + sum(min(self.times[at]) for at in rows if max(self.ends[at]) < value)

        def needed(makespan: int) -> int:
            total = settled
            for at in contested:
                in_time = self.in_time(at, makespan)
                if not in_time:
                    return makespan
                total += min(in_time)
            return moment - (-total // self.speed)

        # Beyond all ends nothing is late.
        low = high = value
        if contested:
            high = max(value, max(max(self.ends[at]) for at in contested))
        while low < high:
            middle = (low + high + 1) // 2
            if needed(middle) >= middle:
                low = middle
            else:
                high = middle - 1
        return low

    def likely_moments(self) -> list[int]:
        """Return the moments whose later requests need most, the first one always."""
        needed = np.array([total / self.speed for total in self.needed_from])
        moments, first = np.unique(np.array(self.arrivals, np.int64), return_index=True)
        estimate = moments + needed[first]
        tried = max(_FEWEST_MOMENTS, min(_MOST_MOMENTS, _ROWS_IN_ALL // len(self.arrivals)))
        likely = moments[np.argsort(-estimate, kind="stable")[:tried]]
        return list(dict.fromkeys([int(moments[0]), *likely.tolist()]))


_LIKELY_LONGEST, _VOLUMES = 8, 3
_MOMENTS = 16  # moments of release that are tried, evenly among the arrivals


def pool_certificates(
    context: Context, out_of_time: Callable[[], bool]
) -> Iterator[dict[str, Any]]:
    """Yield certificates of bounds over what is released at or after some moments."""
    choices = stated(best_shares(context))
    arrivals = sorted(set(context.arrivals))
    step = max(1, len(arrivals) // _MOMENTS)
    for moment in arrivals[::step]:
        yield pools(context, moment, choices)
        if out_of_time():
            return


_CHARGED_SECONDS_A_ROW = 3e-5
_PRICED_SECONDS_A_ROW = 1e-4


class Limits(NamedTuple):
    """What there is time for; work that takes longer than ``seconds_left`` seconds is left out."""

    out_of_time: Callable[[], bool]  # whether to begin nothing more
    seconds_left: Callable[[], float]
    search: bool  # whether to search for dual prices, too

    def allow(self, instance: Instance, seconds_a_row: float) -> bool:
        """Whether work on every request on every worker can be done in time."""
        rows = len(instance) * len(instance.workers)
        return not self.out_of_time() and rows * seconds_a_row <= self.seconds_left()


def _plain_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules of stages and rounds."""
    best = last = last_arrival(context)
    if context.equal:
        for found in by_counts(context, last, limits.out_of_time):
            best = larger(best, found)
            yield found
    else:
        yield last
    late = context.arrive_over_time or not context.equal
    if (late or not context.floor(0).by_counts) and limits.allow(
        context.instance, _CHARGED_SECONDS_A_ROW
    ):
        yield from charged_certificates(context, limits.out_of_time)
    if context.equal and limits.search and not limits.out_of_time():
        for found in by_packing(context, best, limits.seconds_left):
            best = larger(best, found)
            yield found
        yield from by_ends(context, best, limits.out_of_time)


def _scoped_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds for schedules that do more than plain ones."""
    yield last_arrival(context)
    if context.equal and not context.scope.yielding:
        for moment in context.one.once(release_moments):
            yield shared(context, stages_and_rounds(context.one, moment))
            if limits.out_of_time():
                return
    if limits.allow(context.instance, _CHARGED_SECONDS_A_ROW):
        yield from charged_certificates(context, limits.out_of_time)


def _pooled_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds where caches may change workers."""
    yield last_arrival(context)
    yield from pool_certificates(context, limits.out_of_time)


def volume_certificates(context: Context) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds by volume at some moments: of equal workers only."""
    if not (context.equal and context.has_floors and context.instance.link is None):
        return
    requests = context.instance.requests
    size = requests.prompt_tokens.astype(float) * 1e-3 + context.instance.rounds_needed
    likely = np.argsort(-size, kind="stable")[:_LIKELY_LONGEST].tolist()
    ends = {row: context.arrivals[row] + alone_ns(context, row) for row in likely}
    longest = max(ends, key=ends.__getitem__)
    for moment in context.one.once(release_moments)[:_VOLUMES]:
        yield kv_volume(context, moment, longest)


def priced_certificates(
    context: Context, best: dict[str, Any], limits: Limits
) -> Iterator[dict[str, Any]]:
    """Yield certificates by prices for several workers between which no request moves."""
    several = len(context.instance.workers) > 1 and not context.scope.moves
    if not several or context.instance.link is not None or not context.has_floors:
        return
    released = best.get("one_worker", best).get("released_ns", min(context.arrivals))
    if limits.allow(context.instance, _PRICED_SECONDS_A_ROW):
        yield from price_certificates(context, released, best["value_ns"], limits.out_of_time)


def last_arrival(context: Context) -> dict[str, Any]:
    """Return the certificate that holds under any cost: nothing ends before the last arrival."""
    return {"bound": "last_arrival", "value_ns": max(context.arrivals)}


def makespan_certificates(context: Context, limits: Limits) -> Iterator[dict[str, Any]]:
    """Yield certificates of makespan bounds in no order of size, for instances with requests."""
    if not context.has_floors:
        return iter([last_arrival(context)])
    if context.instance.link is not None:
        return _pooled_certificates(context, limits)
    if context.scope.is_plain:
        return _plain_certificates(context, limits)
    return _scoped_certificates(context, limits)
