"""Re-derivation of bounds on mean JCT and mean TTFT in integers, by code of its own.

The certificate chooses: which relaxation, how stages and rounds are shared, and a line below all
stages. The choices are checked here, and all that follows from them is computed anew.
"""

from __future__ import annotations

from bisect import insort
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.certificates.budget import DEFAULT_BUDGET
from orsched.certificates.fields import require_bound
from orsched.checker.alone import allowed, least_alone, requests_of, rounds_of
from orsched.checker.certificates import certificate_violations
from orsched.checker.charges import charged_workers, joined

if TYPE_CHECKING:
    from orsched.checker.alone import Allowed
    from orsched.checker.charges import Charge, WorkerCharges
    from orsched.instance import Instance


class _Request(NamedTuple):
    """A request on the machine: its time there, what lies after its mean, and its time alone."""

    arrival: int
    machine: int
    after: int
    alone: int


def bound_violations(
    instance: Instance,
    bound: dict[str, Any],
    objective: str = "makespan",
    budget: int | None = DEFAULT_BUDGET,
) -> list[str]:
    """Return what is wrong with a bound on an objective; an empty list means it is proven.

    ``budget``: cells of tables that may be filled to verify it; None: any number.
    """
    if objective == "makespan" or len(instance) == 0:
        return certificate_violations(instance, bound, budget)
    if objective not in ("mean_jct", "mean_ttft"):
        return [f"there are no bounds on {objective!r}"]
    try:
        require_bound(bound, objective)
        claims = {"name": bound["name"], **bound["certificate"]}
        expected = _derive(instance, bound["certificate"], objective)
    except Exception as error:  # whatever is wrong with it, it proves nothing
        return [f"the certificate is malformed: {error!r}"]
    expected["name"] = expected["bound"]
    found = [
        f"{name} is {claims.get(name)!r}, re-derived {value!r}"
        for name, value in expected.items()
        if claims.get(name) != value
    ]
    found += [f"unknown field {name!r}" for name in claims if name not in expected]
    if bound["value_ns"] != expected["value_ns"]:
        found.append(f"value_ns is {bound['value_ns']}, re-derived {expected['value_ns']}")
    return found


def _derive(instance: Instance, claim: dict[str, Any], objective: str) -> dict[str, Any]:
    kind, first = claim["bound"], objective == "mean_ttft"
    choices: dict[str, Any] = {}
    may = allowed(instance, {} if kind == "arrivals" else claim)
    if kind == "arrivals":
        total = 0
    elif kind == "alone":
        total = sum(least_alone(instance, first, may).values())
    elif kind in ("ranked", "mean_busy", "queue", "queue_busy"):
        choices = {"workers": claim["workers"]}
        workers = charged_workers(instance, claim["workers"], may)
        scale = lcm(*[worker.scale for worker in workers])
        total = _total(instance, workers, scale, kind, first, may)
    else:
        raise ValueError(f"unknown bound {kind!r}")
    head = {"bound": kind, "objective": objective, **may.stated(), **choices}
    return {**head, "sum_ns": total, "value_ns": total // len(instance)}


def _total(
    instance: Instance,
    workers: list[WorkerCharges],
    scale: int,
    kind: str,
    first: bool,
    may: Allowed,
) -> int:
    """Sum over the requests that a bound by charges proves."""
    speed = scale * sum(worker.weight for worker in workers)
    arrivals = int(instance.requests.arrival_ns.sum(dtype=object))
    queues = kind in ("queue", "queue_busy")
    if queues and not first:
        raise ValueError("queue bounds first tokens only")
    if queues and may.restarts:
        raise ValueError("with restarts nobody need wait for an end")
    requests = _requests(instance, workers, scale, first and not queues, may)
    clients = sum(worker.clients for worker in workers)
    if kind == "ranked":
        return sum(_ends(requests, speed)) - arrivals
    if kind == "mean_busy":
        return _mean_busy(requests, speed) - arrivals
    alone = sum(least_alone(instance, True, may).values())
    if kind == "queue":
        return _starts(requests, _ends(requests, speed), clients) + alone - arrivals
    return _busy_starts(requests, speed, clients) + alone - arrivals


def _requests(
    instance: Instance, workers: list[WorkerCharges], scale: int, first: bool, may: Allowed
) -> list[_Request]:
    """Each request with its least machine time on any worker, and the least of what follows."""
    alone, listed = least_alone(instance, first, may), []
    known = [(worker.weight * (scale // worker.scale), worker.rows) for worker in workers]
    if may.restarts:
        known = [(1, joined(instance, workers, scale))]
    for row, (_, output, arrival) in enumerate(requests_of(instance)):
        rounds = rounds_of(instance, 1 if first else output)
        times, afters = [], []
        for factor, charges in known:
            if row in charges:
                charge = charges[row]
                time = charge.until(rounds)
                times.append(factor * time)
                afters.append(_after(charge, rounds, time) if time else alone[row])
        listed.append(_Request(arrival, min(times), min(afters), alone[row]))
    return listed


def _after(charge: Charge, rounds: int, time: int) -> int:
    """Least distance from the mean time of a request's charges to its end, rounded down.

    Round k is charged ``base + k growth``, half a round and all later ones before the end; the
    stage half itself and all rounds. A prefill in place of a round may be in chunks, of which it
    is known only that they are before all later rounds.
    """
    squares = rounds * (rounds + 1) * (2 * rounds + 1) // 6
    halves = charge.own_round_ns * (charge.base * rounds**2 + charge.growth * squares)
    halves += charge.stage * (charge.own_stage_ns + 2 * rounds * charge.own_round_ns)
    if charge.lost_half:
        halves -= charge.own_round_ns * (charge.until(rounds) - charge.stage)
    return halves // (2 * time)


def _ends(requests: list[_Request], scale: int) -> list[int]:
    """The k-th end at the earliest, by requests served alone and by one machine."""
    alone = sorted(request.arrival + request.alone for request in requests)
    machine = _machine_ends(sorted((r.arrival * scale, r.machine) for r in requests))
    return [max(a, (m + scale - 1) // scale) for a, m in zip(alone, machine, strict=True)]


def _machine_ends(jobs: list[tuple[int, int]]) -> list[int]:
    """Ends of shortest remaining time first; what is left is kept sorted, the shortest last."""
    waiting: list[int] = []
    ends: list[int] = []
    clock = 0
    for at, (release, time) in enumerate(jobs):
        clock = max(clock, release)
        insort(waiting, -time)
        horizon = jobs[at + 1][0] if at + 1 < len(jobs) else None
        while waiting and (horizon is None or clock < horizon or waiting[-1] == 0):
            shortest = -waiting.pop()
            if horizon is not None and clock + shortest > horizon:
                insort(waiting, horizon - clock - shortest)
                clock = horizon
                break
            clock += shortest
            ends.append(clock)
    return ends


def _starts(requests: list[_Request], ends: list[int], clients: int) -> int:
    """Sum of the earliest starts: after the arrivals, and with a client that is free."""
    arrivals = sorted(request.arrival for request in requests)
    total = 0
    for k, arrival in enumerate(arrivals):
        total += arrival if k < clients else max(arrival, ends[k - clients])
    return total


def _busy_starts(requests: list[_Request], scale: int, clients: int) -> int:
    """Sum of starts: all but as many as there are clients come after ends.

    Shortest first from the first arrival: a request delays itself by half and the later ones.
    """
    waiting = max(0, len(requests) - clients)
    shortest = sorted(request.machine for request in requests)[:waiting]
    twice = sum(time * (2 * (waiting - k) - 1) for k, time in enumerate(shortest))
    after = sorted(request.after for request in requests)[:waiting]
    first = min(request.arrival for request in requests)
    return len(requests) * first + twice // (2 * scale) + sum(after)


def _mean_busy(requests: list[_Request], scale: int) -> int:
    """Sum of mean busy times, the shortest first, and of what lies after them; rounded down."""
    ordered = sorted(requests, key=lambda r: (r.machine, r.arrival, r.after))
    by_arrival = sorted(range(len(ordered)), key=lambda job: ordered[job].arrival)
    left = [request.machine for request in ordered]
    moments = [0] * len(ordered)
    waiting: list[int] = []
    clock = 0
    for at, job in enumerate(by_arrival):
        clock = max(clock, scale * ordered[job].arrival)
        insort(waiting, -job)
        last = at + 1 == len(by_arrival)
        horizon = 0 if last else scale * ordered[by_arrival[at + 1]].arrival
        while waiting and (last or clock < horizon):
            served = -waiting[-1]
            piece = left[served] if last else min(left[served], horizon - clock)
            moments[served] += piece * (2 * clock + piece)
            clock, left[served] = clock + piece, left[served] - piece
            if left[served] == 0:
                waiting.pop()
    total = 0
    for request, moment in zip(ordered, moments, strict=True):
        mean = request.arrival
        if request.machine:
            mean = moment // (2 * scale * request.machine)
        total += mean + request.after
    return total
