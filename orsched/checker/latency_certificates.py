"""Re-derivation of bounds on mean JCT and mean TTFT in integers.

The certificate chooses: which relaxation, how stages and rounds are shared, and a line below all
stages. The choices are checked here, and all that follows from them is computed anew.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any

from orsched.certificates.budget import DEFAULT_BUDGET
from orsched.certificates.fields import require_bound
from orsched.certificates.single_machine import Machine, mean_busy, queue, queue_busy, ranked
from orsched.checker.alone import allowed, least_alone, requests_of, rounds_of
from orsched.checker.certificates import certificate_violations
from orsched.checker.charges import charged_workers, joined

if TYPE_CHECKING:
    from orsched.checker.alone import Allowed
    from orsched.checker.charges import Charge, WorkerCharges
    from orsched.instance import Instance


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
    arrivals = int(instance.requests.arrival_ns.sum(dtype=object))
    queues = kind in ("queue", "queue_busy")
    if queues and not first:
        raise ValueError("queue bounds first tokens only")
    if queues and may.restarts:
        raise ValueError("with restarts nobody need wait for an end")
    machine = _machine(instance, workers, scale, first and not queues, may)
    if not queues:
        return (ranked if kind == "ranked" else mean_busy)(machine) - arrivals
    clients = sum(worker.clients for worker in workers)
    alone = sum(least_alone(instance, True, may).values())
    return (queue if kind == "queue" else queue_busy)(machine, clients) + alone - arrivals


def _machine(
    instance: Instance, workers: list[WorkerCharges], scale: int, first: bool, may: Allowed
) -> Machine:
    """Each request with its least machine time on any worker, and the least of what follows."""
    alone = least_alone(instance, first, may)
    speed = scale * sum(worker.weight for worker in workers)
    machine = Machine(speed, [], [], [], [])
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
        machine.arrivals.append(arrival)
        machine.times.append(min(times))
        machine.after_ns.append(min(afters))
        machine.alone_ns.append(alone[row])
    return machine


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
