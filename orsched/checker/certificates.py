"""Re-derivation of bound certificates in integers, without the code that made them.

Every claim of a certificate is computed anew from the instance: the sums over the released
requests, the lower bounds on stages and rounds by their stated reason, and the times that follow.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from orsched.certificates.budget import DEFAULT_BUDGET, STEP, Budget, BudgetError
from orsched.certificates.ends import proven_rounds
from orsched.certificates.fields import require_bound
from orsched.certificates.packing import SEARCHED, proven
from orsched.checker.alone import (
    PLAIN,
    allowed,
    blocks_of,
    held_blocks,
    own_rounds_ns,
    require_floor,
    round_given_away,
    same_workers,
    stage_given_away,
)
from orsched.checker.charged_certificates import charged

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.costs import Floor
    from orsched.instance import Instance
    from orsched.timeline import Timeline
    from orsched.workers import Worker

Row = tuple[int, int, int, int]
"""Prompt tokens, rounds needed, memory blocks and arrival of a request."""


def certificate_violations(
    instance: Instance, bound: dict[str, Any], budget: int | None = DEFAULT_BUDGET
) -> list[str]:
    """Return what is wrong with a bound's certificate; an empty list means it is proven.

    ``budget``: cells of tables that may be filled to verify it; None: any number.
    """
    try:
        require_bound(bound)
        return _differences(instance, bound, Budget(budget))
    except BudgetError as error:
        return [str(error)]
    except Exception as error:  # whatever is wrong with it, it proves nothing
        return [f"the certificate is malformed: {error!r}"]


def _differences(instance: Instance, bound: dict[str, Any], budget: Budget) -> list[str]:
    """Return how a bound differs from what its certificate's choices prove."""
    certificate = bound["certificate"]
    kind = certificate["bound"]
    if len(instance.workers) > 1 and kind not in ("empty", "last_arrival", "charged"):
        return _several_workers(instance, bound, budget)
    if kind not in _KINDS or bound["name"] != kind:
        return [f"unknown bound {bound['name']!r} with certificate {kind!r}"]
    expected = _KINDS[kind](instance, certificate, budget)
    found = [
        f"{name} is {certificate.get(name)!r}, re-derived {value!r}"
        for name, value in expected.items()
        if not _equal(certificate.get(name), value)
    ]
    found += [f"unknown field {name!r}" for name in certificate if name not in expected]
    value = expected.get("value_ns", 0)
    if not _equal(bound.get("value_ns"), value):
        found.append(f"value_ns is {bound.get('value_ns')!r}, re-derived {value!r}")
    return found


def _several_workers(instance: Instance, bound: dict[str, Any], budget: Budget) -> list[str]:
    """Equal workers: no request is faster for more of them, and they share the busy time."""
    if not same_workers(instance):
        return ["the workers are not equal"]
    one, claim = instance.replace(workers=instance.workers[0]), bound["certificate"]
    if claim["bound"] == "longest_request":
        return _differences(one, bound, budget)
    if claim["bound"] != "shared":
        return [f"unknown bound {claim['bound']!r} on several workers"]
    inner, workers = claim["one_worker"], len(instance.workers)
    document = {"name": inner["bound"], "value_ns": inner["value_ns"], "certificate": inner}
    found = _differences(one, document, budget)
    if found:
        return found
    released = inner["released_ns"]
    value = released + _ceil(inner["value_ns"] - released, workers)
    expected = {"bound": "shared", "workers": workers, "one_worker": inner, "value_ns": value}
    if claim != expected or bound["name"] != "shared":
        found.append(f"the shares of {workers} workers do not follow from the bound on one")
    if not _equal(bound["value_ns"], value) or not _equal(claim["value_ns"], value):
        found.append(f"value_ns is {bound['value_ns']!r}, re-derived {value!r}")
    return found


def _equal(found: object, expected: object) -> bool:
    return type(found) is type(expected) and found == expected


def _rows(instance: Instance, released: int) -> list[Row]:
    """The requests that arrive at or after a moment."""
    req = instance.requests
    columns = (req.prompt_tokens, req.output_tokens, req.arrival_ns)
    shift = 1 if instance.first_token == "prefill" else 0
    worker = instance.worker
    holds = blocks_of(worker) is not None
    return [
        (prompt, output - shift, held_blocks(worker, prompt, output) if holds else 0, arrival)
        for prompt, output, arrival in zip(*(c.tolist() for c in columns), strict=True)
        if arrival >= released
    ]


def _clients(instance: Instance) -> int:
    """Most requests on clients at one time: no more than there are, and those fit into memory."""
    worker, together, room = instance.worker, 0, 0
    memory = blocks_of(worker)
    if memory is None:
        return min(worker.clients, len(instance))
    for blocks in sorted(held for _, _, held, _ in _rows(instance, 0)):
        room += blocks
        if together == worker.clients or (memory and room > memory[0]):
            break
        together += 1
    return together


def _empty(instance: Instance, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    if len(instance):
        raise ValueError("the instance has requests")
    return {"bound": "empty"}


def _last_arrival(
    instance: Instance, certificate: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    arrivals = instance.requests.arrival_ns.tolist()
    return {"bound": "last_arrival", "value_ns": max(arrivals)}


def _longest_request(
    instance: Instance, certificate: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    floor, request = require_floor(instance.worker, PLAIN), certificate["request"]
    if not 0 <= request < len(instance):
        raise ValueError(f"there is no request {request}")
    rows = _rows(instance, 0)
    prompt, rounds, _, arrival = rows[request]
    shortest = min(p for p, _, _, _ in rows)
    decode = own_rounds_ns(floor, _clients(instance), shortest, prompt, rounds)
    value = arrival + floor.prefill_ns([prompt]) + decode
    return {"bound": "longest_request", "request": request, "value_ns": value}


def _stages_and_rounds(
    instance: Instance, certificate: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    worker, released = instance.worker, certificate["released_ns"]
    may = allowed(instance, certificate)
    floor = require_floor(worker, may)
    if may.again:
        raise ValueError("prefills that yield tokens stand for rounds")
    clients, rows = _clients(instance), _rows(instance, released)
    if not rows:
        raise ValueError(f"no request arrives at {released} or later")
    totals = {
        "requests": len(rows),
        "clients": clients,
        "prompt_tokens": sum(p for p, _, _, _ in rows),
        "rounds_needed": sum(d for _, d, _, _ in rows),
        "context_sum": sum(d * p + d * (d + 1) // 2 for p, d, _, _ in rows),
        "blocks": sum(b for _, _, b, _ in rows),
        "block_rounds": sum(b * d for _, d, b, _ in rows),
    }
    stages = _stages(worker, rows, totals, certificate["prefill_stages"])
    rounds = _rounds(worker, rows, totals, certificate["decode_rounds"], budget)
    if may.chunks and stages["reason"] == "large_prompts":
        raise ValueError("a large prompt may be prefilled in chunks")
    if may.restarts and rounds["reason"] in ("lifted", *SEARCHED):
        raise ValueError("a request may change clients")
    prefill_ns = _prefill_ns(floor, rows, totals, stages["value"], may.chunks)
    decode_ns = _decode_ns(floor, rows, totals, rounds["value"])
    saved: dict[str, int] = {}
    if may.mixed:
        most = _saved_by_mixing(floor, stages["value"], rounds["value"])
        saved = {"saved_ns": min(prefill_ns, decode_ns) if most is None else most}
    return {
        "bound": "stages_and_rounds",
        **may.stated(),
        "released_ns": released,
        **totals,
        "prefill_stages": stages,
        "decode_rounds": rounds,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        **saved,
        "value_ns": released + prefill_ns + decode_ns - sum(saved.values()),
    }


def _saved_by_mixing(floor: Floor, stages: int, rounds: int) -> int | None:
    """What mixed steps save at most: one fixed part each; None if the smaller of both parts."""
    if floor.mixed == "one_fixed":
        mixed = min(stages, rounds) * floor.times
        return min(mixed * floor.stage.fixed, mixed * floor.round.fixed)
    return None if floor.mixed == "larger" else 0


def _joint(instance: Instance, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """K stages end requests at few moments: each K listed has its price, the rest have none.

    What ``ends`` proves for so many stages holds for fewer as well.
    """
    if "allows" in certificate:
        raise ValueError("windows are of plain schedules")
    claims = _stages_and_rounds(instance, certificate, budget)
    del claims["prefill_ns"], claims["decode_ns"]
    floor, prices = require_floor(instance.worker, PLAIN), certificate["prices"]
    if not floor.by_counts:
        raise ValueError("the cost model has no joint bound")
    rows, clients = _rows(instance, certificate["released_ns"]), claims["clients"]
    first, long = claims["prefill_stages"]["value"], certificate.get("long")
    ends: list[tuple[int, int]] = []
    if "ends" in certificate:
        ends = proven_rounds([d for _, d, _, _ in rows], clients, certificate["ends"], budget)
    last = max([first + len(prices), *(stages + 1 for stages, _ in ends)])
    budget.spend(STEP * (last - first) * (1 + len(ends)))
    lengths = [d for _, d, _, _ in rows]
    times = []
    for stages in range(first, last + 1):
        rounds = claims["decode_rounds"]["value"]
        if stages - first < len(prices):
            budget.spend(STEP * len(rows))
            rounds = _joint_rounds(lengths, claims, stages, prices[stages - first], long, budget)
        rounds = max([rounds, *(needed for most, needed in ends if most >= stages)])
        prefill = _prefill_ns(floor, rows, claims, stages)
        times.append(prefill + _decode_ns(floor, rows, claims, rounds))
    return claims | {
        "bound": "joint",
        **({} if long is None else {"long": long}),
        "prices": prices,
        **({"ends": certificate["ends"]} if "ends" in certificate else {}),
        "value_ns": certificate["released_ns"] + min(times),
    }


def _joint_rounds(
    lengths: list[int],
    claims: dict[str, Any],
    stages: int,
    prices: list[int],
    long: int | None,
    budget: Budget,
) -> int:
    """Rounds that so many stages need: lengths are rounded up to those of windows.

    If more than (q - 1) J requests are ``long`` and q of these fit into the rounds, some client
    serves q. The starts of these and the end are that far apart, so that any other stage makes at
    most two shorter windows with them. If q + 1 fit, there are that many rounds at least.
    """
    fewest: int = claims["decode_rounds"]["value"]
    clients: int = claims["clients"]
    if len(prices) != (1 if long is None else 2):
        raise ValueError(f"{prices!r} are no prices")
    idle = _rounded_up(lengths, prices[0], budget)
    idle -= prices[0] * (stages * (stages + 1) // 2)
    rounds = max(fewest, _ceil(claims["rounds_needed"] + idle, clients))
    if long is None:
        return rounds
    fitting = fewest // long
    if fitting < 1 or sum(d >= long for d in lengths) <= (fitting - 1) * clients:
        raise ValueError(f"no client need serve {fitting} requests of {long} rounds")
    others = max(0, stages - fitting)
    idle = _rounded_up([*(d for d in lengths if d < long), long], prices[1], budget)
    idle -= prices[1] * (others * (others + 3) // 2 + 1)
    aligned = max(rounds, _ceil(claims["rounds_needed"] + idle, clients))
    beyond = (fitting + 1) * long
    return aligned if aligned < beyond else max(rounds, beyond)


def _rounded_up(rounds: list[int], price: int, budget: Budget) -> int:
    """Least idle client-rounds, lengths rounded up, with a price for each value rounded to."""
    lengths = sorted(d for d in rounds if d > 0)
    if lengths and lengths[-1] * len(lengths) >= 2**61:
        raise ValueError("the rounds are too many")
    ends = [i + 1 for i in range(len(lengths)) if lengths[i : i + 2] != [lengths[i]] * 2]
    budget.spend(len(ends) * (5 * STEP + 2 * len(ends)))
    before = np.array([0, *ends])
    sums = np.concatenate([[0], np.cumsum(np.array(lengths, np.int64))])
    least = np.zeros(len(before), np.int64)
    for at, end in enumerate(ends, start=1):
        top, first = lengths[end - 1], before[:at]
        idle = top * (end - first) - (sums[end] - sums[first])
        least[at] = int((least[:at] + idle).min()) + price
        if least[at] >= 2**62:
            raise ValueError("the prices are too high")
    return int(least[-1])


def _ceil(a: int, b: int) -> int:
    return (a + b - 1) // b


def _stages(
    worker: Worker, rows: list[Row], totals: dict[str, int], claim: dict[str, Any]
) -> dict[str, Any]:
    cap, memory, reason = worker.prefill_limit, blocks_of(worker), claim["reason"]
    if reason == "clients":
        return {"value": _ceil(totals["requests"], totals["clients"]), "reason": reason}
    if reason == "cap" and cap is not None:
        return {"value": _ceil(totals["prompt_tokens"], cap), "reason": reason}
    if reason == "memory" and memory is not None:
        return {"value": _ceil(totals["blocks"], memory[0]), "reason": reason}
    if reason == "large_prompts" and cap is not None:
        return _few_at_once([(p, 1) for p, _, _, _ in rows], cap, claim)
    if reason == "large_requests" and memory is not None:
        return _few_at_once([(b, 1) for _, _, b, _ in rows], memory[0], claim)
    raise ValueError(f"no bound on stages by {reason!r}")


def _rounds(
    worker: Worker,
    rows: list[Row],
    totals: dict[str, int],
    claim: dict[str, Any],
    budget: Budget,
) -> dict[str, Any]:
    memory, reason = blocks_of(worker), claim["reason"]
    if reason == "volume":
        return {"value": _ceil(totals["rounds_needed"], totals["clients"]), "reason": reason}
    if reason == "longest":
        return {"value": max(d for _, d, _, _ in rows), "reason": reason}
    if reason == "lifted":
        lengths = [d for _, d, _, _ in rows]
        value = proven(lengths, totals["clients"], {**claim, "bound": reason}, budget)
        return {**claim, "value": value}
    if reason == "memory" and memory is not None:
        return {"value": _ceil(totals["block_rounds"], memory[0]), "reason": reason}
    if reason == "large_requests" and memory is not None:
        return _few_at_once([(b, d) for _, d, b, _ in rows], memory[0], claim)
    if reason in SEARCHED:
        lengths = [d for _, d, _, _ in rows]
        value = proven(lengths, totals["clients"], {**claim, "bound": reason}, budget)
        return {**claim, "value": value}
    raise ValueError(f"no bound on rounds by {reason!r}")


def _few_at_once(parts: list[tuple[int, int]], limit: int, claim: dict[str, Any]) -> dict[str, Any]:
    """Of sizes above limit / (k + 1) at most k go together: their weights are shared by k."""
    k = claim["k"]
    weight = sum(weight for size, weight in parts if (k + 1) * size > limit)
    return {"value": _ceil(weight, k), "reason": claim["reason"], "k": k}


def _prefill_ns(
    floor: Floor,
    rows: list[Row],
    totals: dict[str, int],
    stages: int,
    chunks: bool = False,
) -> int:
    tokens, n, clients = totals["prompt_tokens"], len(rows), totals["clients"]
    stage, lost, longest = floor.stage, stage_given_away(floor), 0
    if stage.levels is not None:
        return _levels_ns(stage.levels, tokens, stages)
    curved = bool(stage.square) or stage.least is not None
    if chunks and (curved or stage.fixed < lost):
        return 0
    if stage.longest and chunks:  # a step's longest chunk is at least the mean over the clients
        longest = _ceil(tokens, clients)
    elif stage.longest:  # those of the stages add up to least with the prompts sorted
        prompts = sorted((p for p, _, _, _ in rows), reverse=True)
        firsts = [prompts[i] for i in range(0, n, clients)]
        longest = sum(firsts) + prompts[-1] * (stages - len(firsts))
    own = stage.token * tokens
    if curved:
        parts = [stage.square * p * p + stage.token * p for p, _, _, _ in rows]
        own = sum(parts if stage.least is None else (max(part, stage.least) for part in parts))
    total = own + n * stage.request + longest * stage.longest
    total += (stage.fixed - lost) * (stages if stage.fixed >= lost else n)
    return max(0, _ceil(total, floor.unit)) * floor.times


def _decode_ns(floor: Floor, rows: list[Row], totals: dict[str, int], rounds: int) -> int:
    contexts, needed, clients = totals["context_sum"], totals["rounds_needed"], totals["clients"]
    parts, lost = floor.round, round_given_away(floor)
    total = contexts * parts.context + needed * parts.request
    if parts.longest:
        alone = max(d * p + d * (d + 1) // 2 for p, d, _, _ in rows)
        total += max(_ceil(contexts, clients), alone) * parts.longest
    total += contexts * (parts.mean or 0) // clients
    total += (parts.fixed - lost) * (rounds if parts.fixed >= lost else needed)
    return max(0, _ceil(total, floor.unit)) * floor.times


def _levels_ns(levels: tuple[tuple[int, int], ...], tokens: int, stages: int) -> int:
    """Least time of ``stages`` levels or more that hold the tokens, by three relaxations."""
    step = _step(levels)
    candidates = [stages * min(time for _, time in levels), _cover(levels, tokens)]
    for (cap, time), (next_cap, next_time) in pairwise(levels):
        # A stage of level (c, t) takes at least slope * c + height, both over next_cap - cap.
        slope, scale = next_time - time, next_cap - cap
        height = min(t * scale - c * slope for c, t in levels)
        if height >= 0:
            candidates.append(_ceil(slope * tokens + height * stages, scale * step) * step)
    return max(candidates)


def _step(levels: tuple[tuple[int, int], ...]) -> int:
    """What divides the time of every sum of levels."""
    step = 0
    for _, time in levels:
        step = gcd(step, time)
    return step or 1


@lru_cache(maxsize=64)
def _cover(levels: tuple[tuple[int, int], ...], tokens: int) -> int:
    """Least time of levels that cover the tokens: exact where small, else by time per token."""
    unit = gcd(*[cap for cap, _ in levels])
    units = _ceil(tokens, unit)
    if units > 200_000:
        step = _step(levels)
        return min(_ceil(tokens * time, cap * step) * step for cap, time in levels)
    least = [0]
    for u in range(1, units + 1):
        options = [time + least[max(u - cap // unit, 0)] for cap, time in levels]
        least.append(min(options))
    return least[units]


_KINDS: dict[str, Callable[[Instance, dict[str, Any], Budget], dict[str, Any]]] = {
    "charged": charged,
    "empty": _empty,
    "joint": _joint,
    "last_arrival": _last_arrival,
    "longest_request": _longest_request,
    "stages_and_rounds": _stages_and_rounds,
}


def inapplicable(reading: Timeline, bound: dict[str, Any]) -> list[str]:
    """Return what a schedule does that its bound does not allow; each is a fault of the bound."""
    certificate = bound["certificate"]
    if certificate["bound"] in ("empty", "last_arrival", "arrivals"):
        return []
    may = allowed(reading.instance, certificate.get("one_worker", certificate))
    work, requests = reading.schedule.work, reading.instance.requests
    prefills = (work.phase == 0) & (work.request < len(requests))
    stays = np.stack([work.request[prefills], work.stay[prefills]])
    short = work.tokens[prefills] < requests.prompt_tokens[stays[0]]
    in_parts = stays.shape[1] > np.unique(stays, axis=1).shape[1]
    faults = {
        "prefills in chunks": not may.chunks and (in_parts or bool(short.any())),
        "mixed steps": not may.mixed and bool((reading.schedule.steps.phase == 2).any()),
        "restarts": not may.restarts and bool((work.stay > 0).any()),
    }
    return [
        f"the schedule has {what}, for which the bound is not proven"
        for what, faulty in faults.items()
        if faulty
    ]
