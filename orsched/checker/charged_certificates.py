"""Re-derivation of makespan bounds by what requests are charged (docs/bounds.md)."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.checker.alone import allowed, alone_ns, least_alone, requests_of, rounds_of
from orsched.checker.charges import charged_workers, joined

if TYPE_CHECKING:
    from orsched.certificates.budget import Budget
    from orsched.checker.alone import Allowed
    from orsched.checker.charges import WorkerCharges
    from orsched.instance import Instance


class _Served(NamedTuple):
    """A worker that can serve a request: the earliest end, and the charges on the machine."""

    end: int
    machine: int
    stage: int


def charged(instance: Instance, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """Return what a certificate of a bound by charges must say.

    The value is proven if no schedule can be shorter: each request must end before it on some
    worker, and all that is released at or after the moment must be charged in what is left.
    """
    released, value = certificate["released_ns"], certificate["value_ns"]
    may = allowed(instance, certificate)
    workers = charged_workers(instance, certificate["workers"], may)
    scale = lcm(*[worker.scale for worker in workers])
    speed = scale * sum(worker.weight for worker in workers)
    known = (_changing if may.restarts else _staying)(instance, workers, scale, may)
    arrivals = enumerate(requests_of(instance))
    served = {row: known[row] for row, (_, _, arrival) in arrivals if arrival >= released}
    if not served:
        raise ValueError(f"no request arrives at {released} or later")
    in_time = [[o for o in options if o.end < value] for options in served.values()]
    if all(in_time):
        total = sum(min(option.machine for option in options) for options in in_time)
        total += _wasted(instance, workers, scale, served)
        value = min(value, released + (total + speed - 1) // speed)
    return {
        "bound": "charged",
        **may.stated(),
        "released_ns": released,
        "workers": certificate["workers"],
        "value_ns": value,
    }


def _staying(
    instance: Instance, workers: list[WorkerCharges], scale: int, may: Allowed
) -> list[list[_Served]]:
    """The workers for each request, one of which serves it from its prefill to its end."""
    alone = [alone_ns(instance, w.worker, list(w.rows), False, may) for w in workers]
    found = []
    for row, (_, output, arrival) in enumerate(requests_of(instance)):
        rounds, options = rounds_of(instance, output), []
        for worker, times in zip(workers, alone, strict=True):
            if row in worker.rows:
                factor, charge = worker.weight * (scale // worker.scale), worker.rows[row]
                time, stage = factor * charge.until(rounds), factor * charge.stage
                options.append(_Served(arrival + times[row], time, stage))
        if not options:
            raise ValueError(f"no worker serves request {row}")
        found.append(options)
    return found


def _changing(
    instance: Instance, workers: list[WorkerCharges], scale: int, may: Allowed
) -> list[list[_Served]]:
    """All workers as one; where prefills may be repeated for tokens, all charges may be theirs."""
    alone, charges = least_alone(instance, False, may), joined(instance, workers, scale)
    found = []
    for row, (_, output, arrival) in enumerate(requests_of(instance)):
        time = charges[row].until(rounds_of(instance, output))
        stage = time if may.again else charges[row].stage
        found.append([_Served(arrival + alone[row], time, stage)])
    return found


def requests_of_row(instance: Instance, row: int) -> tuple[int, int, int]:
    """Prompt tokens, output tokens and arrival of a request."""
    req = instance.requests
    return int(req.prompt_tokens[row]), int(req.output_tokens[row]), int(req.arrival_ns[row])


def _wasted(
    instance: Instance,
    workers: list[WorkerCharges],
    scale: int,
    served: dict[int, list[_Served]],
) -> int:
    """What rounds take but charge nobody, between arrivals, while fewer are there than clients.

    Stages waste nothing, so what they may charge until then is taken off, at the largest share
    that a round wastes; early is best, since shares fall as more arrive.
    """
    arrivals = {row: requests_of_row(instance, row)[2] for row in served}
    order = sorted(served, key=lambda row: arrivals[row])
    speed = scale * sum(worker.weight for worker in workers)
    full = max(worker.clients for worker in workers)
    wasted = in_stages = 0
    for there, (row, following) in enumerate(pairwise(order), start=1):
        in_stages += max(option.stage for option in served[row])
        span = arrivals[following] - arrivals[row]
        if there >= full:
            break
        if span:
            shares = [worker.wasted(there) for worker in workers]
            stages = min(in_stages, span * speed)
            in_stages -= stages
            largest = max(Fraction(*share) for share in shares)
            wasted -= -(-stages * largest.numerator // largest.denominator)
            for worker, (part, whole) in zip(workers, shares, strict=True):
                wasted += span * scale * worker.weight * part // whole
    return max(wasted, 0)
