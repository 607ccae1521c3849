"""Re-derivation of bounds on mean JCT and mean TTFT in integers, by code of its own.

The certificate chooses: which relaxation, how stages and rounds are shared, and a line below all
stages. The choices are checked here, and all that follows from them is computed anew.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Any, NamedTuple

from orsched.checker.certificates import certificate_violations
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost

if TYPE_CHECKING:
    from orsched.instance import Instance


class _Request(NamedTuple):
    """A request with what it accounts for, in units of 1 / scale ns where it is machine time."""

    arrival: int
    rounds: int
    own_stage: int
    alone: int
    stage: int
    a_round: int

    @property
    def machine(self) -> int:
        return self.stage + self.rounds * self.a_round


def bound_violations(
    instance: Instance, bound: dict[str, Any], objective: str = "makespan"
) -> list[str]:
    """Return what is wrong with a bound on an objective; an empty list means it is proven."""
    if objective == "makespan" or len(instance) == 0:
        return certificate_violations(instance, bound)
    if objective not in ("mean_jct", "mean_ttft"):
        return [f"there are no bounds on {objective!r}"]
    try:
        expected = _derive(instance, bound["certificate"], objective)
        value = bound["value_ns"]
        claims = {"name": bound["name"], **bound["certificate"]}
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        return [f"the certificate is malformed: {error!r}"]
    expected["name"] = expected["bound"]
    found = [
        f"{name} is {claims.get(name)!r}, re-derived {value!r}"
        for name, value in expected.items()
        if type(claims.get(name)) is not type(value) or claims[name] != value
    ]
    found += [f"unknown field {name!r}" for name in claims if name not in expected]
    if type(value) is not int or value != expected["value_ns"]:
        found.append(f"value_ns is {value!r}, re-derived {expected['value_ns']!r}")
    return found


def _derive(instance: Instance, claim: dict[str, Any], objective: str) -> dict[str, Any]:
    kind, n, cost = claim["bound"], len(instance), instance.worker.cost
    clients, scale, choices = _clients(instance), 1, {}
    first = objective == "mean_ttft"
    if kind == "arrivals":
        total = 0
    elif kind == "alone":
        _require_floor(cost)
        total = sum(_alone(instance, clients, row, first) for row in range(n))
    elif kind in ("ranked", "mean_busy", "queue", "queue_busy"):
        choices = {key: claim[key] for key in ("stage_share", "round_share", "line")}
        scale = _scale(instance, clients, choices)
        requests = _requests(instance, clients, choices, first)
        total = -sum(request.arrival for request in requests)
        if kind == "ranked":
            total += sum(_ends(requests, scale))
        elif kind == "mean_busy":
            total += _mean_busy(requests, scale, cost.round_ns(1, 0, 0))
        elif first:
            whole = _requests(instance, clients, choices, False)
            total += sum(request.alone for request in requests)
            if kind == "queue":
                total += _starts(requests, _ends(whole, scale), clients)
            else:
                total += _busy_starts(whole, scale, cost.round_ns(1, 0, 0), clients)
        else:
            raise ValueError("queue bounds first tokens only")
    else:
        raise ValueError(f"unknown bound {kind!r}")
    head = {"bound": kind, "objective": objective, "clients": clients}
    return {**head, **choices, "sum_ns": total, "value_ns": total // n}


def _require_floor(cost: object) -> None:
    if isinstance(cost, BilinearCost):
        grows = min(cost.to_dict().values()) >= 0
    elif isinstance(cost, PoolingCost):
        grows = cost.gamma_fs >= 0 and cost.delta_fs >= 0
    else:
        grows = isinstance(cost, AffineCost | LevelsCost)
    if not grows:
        raise ValueError("the cost model has no floor")


def _held(instance: Instance, row: int) -> int:
    """Memory blocks that a request holds."""
    req, memory = instance.requests, instance.worker.memory
    if memory is None:
        return 0
    tokens = int(req.prompt_tokens[row]) + int(req.output_tokens[row])
    return (tokens + memory.block_tokens - 1) // memory.block_tokens


def _clients(instance: Instance) -> int:
    """Most requests on clients at one time."""
    worker, n = instance.worker, len(instance)
    most = min(n, worker.clients)
    if worker.memory is None:
        return most
    room, together = worker.memory.blocks, 0
    for blocks in sorted(_held(instance, row) for row in range(n)):
        room -= blocks
        together += room >= 0
    return min(most, together)


def _rounds(instance: Instance, row: int, first: bool) -> int:
    """Rounds until the end, or until the first token."""
    if first:
        return 1 if instance.first_token == "decode" else 0
    output = int(instance.requests.output_tokens[row])
    return output if instance.first_token == "decode" else output - 1


def _alone(instance: Instance, clients: int, row: int, first: bool) -> int:
    """Time of a request's own stage and rounds; a pool's mean is least beside the shortest."""
    req, cost = instance.requests, instance.worker.cost
    prompt, rounds = int(req.prompt_tokens[row]), _rounds(instance, row, first)
    stage = cost.prefill_ns([prompt])
    if not cost.context_matters:
        return stage + rounds * cost.round_ns(1, 0, 0)
    active, beside = 1, 0
    if isinstance(cost, PoolingCost):
        active, beside = clients, (clients - 1) * (int(req.prompt_tokens.min()) + 1)
    contexts = range(prompt + 1, prompt + rounds + 1)
    return stage + sum(cost.round_ns(active, c + beside, c) for c in contexts)


def _wholes(instance: Instance, clients: int, choices: dict[str, Any]) -> tuple[int, int]:
    """What all shares of one stage, and of one round, add up to at most."""
    worker = instance.worker
    stage, a_round = choices["stage_share"], choices["round_share"]
    if stage == "cap" and worker.prefill_limit is not None:
        whole_stage = worker.prefill_limit
    elif stage == "clients":
        whole_stage = clients
    else:
        raise ValueError(f"a stage is not shared by {stage!r}")
    if a_round == "memory" and worker.memory is not None:
        return whole_stage, worker.memory.blocks
    if a_round == "clients":
        return whole_stage, clients
    raise ValueError(f"a round is not shared by {a_round!r}")


def _scale(instance: Instance, clients: int, choices: dict[str, Any]) -> int:
    """The scale of machine times, once the line is known to lie below every stage."""
    fixed, token, scale = choices["line"]
    cost, limit = instance.worker.cost, instance.worker.prefill_limit
    if type(choices["line"]) is not list or any(type(x) is not int for x in choices["line"]):
        raise ValueError("the line is not of whole numbers")
    if fixed < 0 or token < 0 or scale < 1:
        raise ValueError("the line falls, or has no scale")
    if isinstance(cost, AffineCost):
        below = fixed <= scale * cost.prefill_fixed_ns and token <= scale * cost.prefill_token_ns
    elif isinstance(cost, LevelsCost):
        cap = cost.prefill_limit if limit is None else limit
        below = all(fixed + token * min(c, cap) <= scale * time for c, time in cost.levels)
    else:
        raise ValueError("the cost model has no machine times")
    if not below:
        raise ValueError("the line is above a stage")
    whole_stage, whole_round = _wholes(instance, clients, choices)
    return whole_stage * whole_round * int(scale)


def _requests(
    instance: Instance, clients: int, choices: dict[str, Any], first: bool
) -> list[_Request]:
    whole_stage, whole_round = _wholes(instance, clients, choices)
    fixed, token, scale = choices["line"]
    req, cost = instance.requests, instance.worker.cost
    everyone = cost.round_ns(0, 0, 0)
    each = cost.round_ns(1, 0, 0) - everyone
    listed = []
    for row in range(len(instance)):
        prompt = int(req.prompt_tokens[row])
        of_stage = prompt if choices["stage_share"] == "cap" else 1
        of_round = _held(instance, row) if choices["round_share"] == "memory" else 1
        listed.append(
            _Request(
                int(req.arrival_ns[row]),
                _rounds(instance, row, first),
                cost.prefill_ns([prompt]),
                _alone(instance, clients, row, first),
                whole_round * (fixed * of_stage + token * prompt * whole_stage),
                whole_stage * scale * (everyone * of_round + each * whole_round),
            )
        )
    return listed


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


def _busy_starts(requests: list[_Request], scale: int, round_ns: int, clients: int) -> int:
    """Sum of starts: all but as many as there are clients come after ends.

    Shortest first from the first arrival: a request delays itself by half and the later ones.
    """
    waiting = max(0, len(requests) - clients)
    shortest = sorted(request.machine for request in requests)[:waiting]
    twice = sum(time * (2 * (waiting - k) - 1) for k, time in enumerate(shortest))
    after = sorted(
        _after(r, round_ns) // (2 * r.machine) if r.machine else r.alone for r in requests
    )
    first = min(request.arrival for request in requests)
    return len(requests) * first + twice // (2 * scale) + sum(after[:waiting])


def _mean_busy(requests: list[_Request], scale: int, round_ns: int) -> int:
    """Sum of mean busy times, the shortest first, and of what lies after them; rounded down."""
    ordered = sorted(requests, key=lambda r: (r.machine, r.arrival, _after(r, round_ns), r.alone))
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
        if request.machine == 0:
            total += request.arrival + request.alone
        else:
            after = scale * _after(request, round_ns)
            total += (moment + after) // (2 * scale * request.machine)
    return total


def _after(request: _Request, round_ns: int) -> int:
    """Twice the machine time times the least distance from its mean to the request's end."""
    decode = request.rounds * round_ns
    return request.a_round * request.rounds * decode + request.stage * (
        2 * decode + request.own_stage
    )
