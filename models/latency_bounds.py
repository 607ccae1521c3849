"""Lower bounds on the sums of completion times: mean JCT and mean TTFT, with certificates.

Two relaxations, each exact in integers (docs/bounds.md has the proofs). A request cannot end
before it would if served alone where it is fastest. And all workers are one machine
(``bound_charges``): what all requests are charged is a preemptive schedule of one machine, where
shortest remaining time first is optimal.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.models.bound_charges import Machine, machine_of, on_worker
from orsched.models.bound_scope import PLAIN, Scope
from orsched.models.charged_bound import Workers, balanced_weights
from orsched.models.counts import jobs_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orsched.instance import Instance

OBJECTIVES = ("mean_jct", "mean_ttft")


def latency_certificates(
    instance: Instance,
    objective: str,
    out_of_time: Callable[[], bool],
    enough: bool = True,
    scope: Scope = PLAIN,
) -> Iterator[dict[str, Any]]:
    """Yield certificates of lower bounds on the mean JCT or the mean TTFT, each above the last.

    ``sum_ns`` is the bound on the sum over the requests, ``value_ns`` that sum divided by their
    number, rounded down. Candidates: ``alone`` (each request as if served alone), ``ranked`` (the
    k-th end is at least the k-th of requests served alone, and the k-th of shortest remaining time
    first), ``mean_busy`` (mean busy times on the machine, and what must lie after them) and, for
    TTFT, ``queue`` (the k-th start waits for k - J ends) and ``queue_busy`` (these ends by mean
    busy times). Cost models without a known floor get ``arrivals``, and so do
    instances for which there is not time enough. With restarts a request may start before the ends
    that it would have to wait for, and there are no queues. The instance is not empty, and each
    request fits onto a worker.
    """
    best = -1
    for found in _candidates(instance, objective, out_of_time, enough, scope):
        if found["sum_ns"] > best:
            best = found["sum_ns"]
            yield found


def _candidates(
    instance: Instance,
    objective: str,
    out_of_time: Callable[[], bool],
    enough: bool = True,
    scope: Scope = PLAIN,
) -> Iterator[dict[str, Any]]:
    if not (enough and all(scope.has_floor(worker) for worker in instance.workers)):
        yield _certificate(instance, objective, "arrivals", 0, {})
        return
    workers = Workers.of(instance, scope)
    first = _until_first(instance, scope) if objective == "mean_ttft" else workers
    ones = [1] * len(workers.parts)
    alone = machine_of(instance, first.parts, ones).alone_ns
    yield _certificate(instance, objective, "alone", sum(alone), scope.stated())
    balanced = balanced_weights(workers, instance, None)
    for weights in [ones] if balanced == ones else [balanced, ones]:
        if out_of_time():
            return
        choices = {**scope.stated(), "workers": workers.choices(weights)}
        machine = machine_of(instance, first.parts, weights)
        for name, ends in (("ranked", _ranked), ("mean_busy", _mean_busy)):
            total = ends(machine) - sum(machine.arrivals)
            yield _certificate(instance, objective, name, total, choices)
        if objective == "mean_ttft" and not scope.restarts and not out_of_time():
            whole = machine_of(instance, workers.parts, weights)
            clients = sum(part.charges.clients for part in workers.parts)
            for name, starts in (("queue", _queue), ("queue_busy", _queue_busy)):
                total = starts(whole, clients) - sum(machine.arrivals) + sum(alone)
                yield _certificate(instance, objective, name, total, choices)


def _certificate(
    instance: Instance, objective: str, name: str, total: int, choices: dict[str, Any]
) -> dict[str, Any]:
    value = total // len(instance)
    return {"bound": name, "objective": objective, **choices, "sum_ns": total, "value_ns": value}


def _until_first(instance: Instance, scope: Scope) -> Workers:
    """Return the workers with the rounds until the first token: one, or none."""
    first = int(instance.first_token == "decode")
    numbers, parts = [], []
    for number, worker in enumerate(instance.workers):
        rows, jobs = jobs_on(instance, worker, scope.chunks)
        if rows:
            numbers.append(number)
            parts.append(on_worker(worker, jobs, rows, np.full(len(rows), first), scope))
    return Workers(numbers, parts, scope)


def _ranked(machine: Machine) -> int:
    return sum(_ranked_ends(machine))


def _ranked_ends(machine: Machine) -> list[int]:
    """Earliest k-th ends, for each k: of requests served alone, and of the machine.

    Shortest remaining time first has at every moment the most requests done (Schrage 1968).
    """
    alone = sorted(a + t for a, t in zip(machine.arrivals, machine.alone_ns, strict=True))
    ends = shortest_remaining_first(machine.releases(), machine.times)
    return [max(one, -(-end // machine.scale)) for one, end in zip(alone, ends, strict=True)]


def _queue(whole: Machine, clients: int) -> int:
    """Sum of starts: the k-th start is no earlier than the (k - J)-th end."""
    ends = _ranked_ends(whole)[: max(0, len(whole.arrivals) - clients)]
    earliest = [0] * (len(whole.arrivals) - len(ends)) + ends
    return sum(max(a, e) for a, e in zip(sorted(whole.arrivals), earliest, strict=True))


def _queue_busy(whole: Machine, clients: int) -> int:
    """Sum of starts: all but J of them wait for ends, whose sum mean busy times bound.

    Of all sets of n - J requests that may end first, the shortest have the least mean busy times
    (all there at the first arrival), and what must lie after these is least for some such set.
    """
    n = len(whole.arrivals)
    ending = max(0, n - clients)
    twice_busy = clock = 0
    for time in sorted(whole.times)[:ending]:
        twice_busy += 2 * clock + time
        clock += time
    ends = twice_busy // (2 * whole.scale) + sum(sorted(whole.after_ns)[:ending])
    return n * min(whole.arrivals) + ends


def shortest_remaining_first(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the ends, in order, of shortest remaining processing time first on one machine."""
    order = sorted(zip(releases, times, strict=True))
    ends: list[int] = []
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, order[at][0])
        while at < len(order) and order[at][0] <= now:
            heappush(open_jobs, order[at][1])
            at += 1
        left = heappop(open_jobs)
        if at == len(order) or now + left <= order[at][0]:
            now += left
            ends.append(now)
        else:
            heappush(open_jobs, left - (order[at][0] - now))
            now = order[at][0]
    return ends


def _mean_busy(machine: Machine) -> int:
    """Sum over requests of mean busy time on the machine and what must lie after it.

    The sum of mean busy times is least when the machine always serves the shortest request there
    is (Goemans 1996). Each mean is rounded down.
    """
    columns = (machine.times, machine.releases(), machine.after_ns)
    rows = sorted(zip(*columns, strict=True))  # equal rows are served in any order
    squares = _busy_squares([row[1] for row in rows], [row[0] for row in rows])
    total = 0
    for (time, release, after), square in zip(rows, squares, strict=True):
        mean = square // (2 * machine.scale * time) if time else release // machine.scale
        total += mean + after
    return total


def _busy_squares(releases: Sequence[int], times: Sequence[int]) -> list[int]:
    """Return the sum of end^2 - start^2 over each job's pieces, the first job there is first."""
    order = sorted(range(len(times)), key=lambda job: (releases[job], job))
    left, squares = list(times), [0] * len(times)
    open_jobs: list[int] = []
    now = at = 0
    while at < len(order) or open_jobs:
        if not open_jobs:
            now = max(now, releases[order[at]])
        while at < len(order) and releases[order[at]] <= now:
            heappush(open_jobs, order[at])
            at += 1
        job = open_jobs[0]
        end = now + left[job]
        if at < len(order):
            end = min(end, releases[order[at]])
        squares[job] += end * end - now * now
        left[job] -= end - now
        if not left[job]:
            heappop(open_jobs)
        now = end
    return squares
