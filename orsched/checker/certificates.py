"""Re-derivation of bound certificates in integers, without the code that made them.

Every claim of a certificate is computed anew from the instance: the sums over the released
requests, the lower bounds on stages and rounds by their stated reason, and the times that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost

if TYPE_CHECKING:
    from collections.abc import Callable

    from orsched.instance import Instance
    from orsched.workers import Worker

Row = tuple[int, int, int, int]
"""Prompt tokens, rounds needed, memory blocks and arrival of a request."""


def certificate_violations(instance: Instance, bound: dict[str, Any]) -> list[str]:
    """Return what is wrong with a bound's certificate; an empty list means it is proven."""
    try:
        certificate = bound["certificate"]
        kind = certificate["bound"]
        if kind not in _KINDS or bound["name"] != kind:
            return [f"unknown bound {bound['name']!r} with certificate {kind!r}"]
        expected = _KINDS[kind](instance, certificate)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        return [f"the certificate is malformed: {error!r}"]
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


def _equal(found: object, expected: object) -> bool:
    return type(found) is type(expected) and found == expected


def _rows(instance: Instance, released: int) -> list[Row]:
    """The requests that arrive at or after a moment."""
    req, memory = instance.requests, instance.worker.memory
    columns = (req.prompt_tokens, req.output_tokens, req.arrival_ns)
    shift = 1 if instance.first_token == "prefill" else 0
    rows = []
    for prompt, output, arrival in zip(*(c.tolist() for c in columns), strict=True):
        if arrival >= released:
            tokens = prompt + output
            held = (
                0 if memory is None else (tokens + memory.block_tokens - 1) // memory.block_tokens
            )
            rows.append((prompt, output - shift, held, arrival))
    return rows


def _empty(instance: Instance, certificate: dict[str, Any]) -> dict[str, Any]:
    if len(instance):
        raise ValueError("the instance has requests")
    return {"bound": "empty"}


def _last_arrival(instance: Instance, certificate: dict[str, Any]) -> dict[str, Any]:
    return {"bound": "last_arrival", "value_ns": max(row[3] for row in _rows(instance, 0))}


def _longest_request(instance: Instance, certificate: dict[str, Any]) -> dict[str, Any]:
    cost, request = instance.worker.cost, certificate["request"]
    if isinstance(cost, BilinearCost | PoolingCost) and cost.warnings():
        raise ValueError("the cost model does not grow with its contents")
    if not isinstance(cost, AffineCost | LevelsCost | BilinearCost | PoolingCost):
        raise ValueError("the cost model is unknown")
    if not 0 <= request < len(instance):
        raise ValueError(f"there is no request {request}")
    rows = _rows(instance, 0)
    prompt, rounds, _, arrival = rows[request]
    # Others in a round make it longer, except that shorter ones lower the mean of a pool.
    active, shortest = 1, 0
    if isinstance(cost, PoolingCost):
        active, shortest = instance.worker.clients, min(p for p, _, _, _ in rows) + 1
    others = (active - 1) * shortest
    if cost.context_matters:
        contexts = range(prompt + 1, prompt + rounds + 1)
        alone = sum(cost.round_ns(active, context + others, context) for context in contexts)
    else:
        alone = rounds * cost.round_ns(1, 0, 0)
    value = arrival + cost.prefill_ns([prompt]) + alone
    return {"bound": "longest_request", "request": request, "value_ns": value}


def _stages_and_rounds(instance: Instance, certificate: dict[str, Any]) -> dict[str, Any]:
    worker, released = instance.worker, certificate["released_ns"]
    rows = _rows(instance, released)
    if not rows:
        raise ValueError(f"no request arrives at {released} or later")
    totals = {
        "requests": len(rows),
        "prompt_tokens": sum(p for p, _, _, _ in rows),
        "rounds_needed": sum(d for _, d, _, _ in rows),
        "context_sum": sum(d * p + d * (d + 1) // 2 for p, d, _, _ in rows),
        "blocks": sum(b for _, _, b, _ in rows),
        "block_rounds": sum(b * d for _, d, b, _ in rows),
    }
    stages = _stages(worker, rows, totals, certificate["prefill_stages"])
    rounds = _rounds(worker, rows, totals, certificate["decode_rounds"])
    prefill_ns = _prefill_ns(worker, totals, stages["value"])
    decode_ns = _decode_ns(worker, totals, rounds["value"])
    return {
        "bound": "stages_and_rounds",
        "released_ns": released,
        **totals,
        "prefill_stages": stages,
        "decode_rounds": rounds,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        "value_ns": released + prefill_ns + decode_ns,
    }


def _ceil(a: int, b: int) -> int:
    return (a + b - 1) // b


def _stages(
    worker: Worker, rows: list[Row], totals: dict[str, int], claim: dict[str, Any]
) -> dict[str, Any]:
    cap, reason = worker.prefill_limit, claim["reason"]
    if reason == "clients":
        value = _ceil(totals["requests"], worker.clients)
    elif reason == "cap" and cap is not None:
        value = _ceil(totals["prompt_tokens"], cap)
    elif reason == "large_prompts" and cap is not None:
        value = sum(1 for p, _, _, _ in rows if 2 * p > cap)
    elif reason == "memory" and worker.memory is not None:
        value = _ceil(totals["blocks"], worker.memory.blocks)
    else:
        raise ValueError(f"no bound on stages by {reason!r}")
    return {"value": value, "reason": reason}


def _rounds(
    worker: Worker, rows: list[Row], totals: dict[str, int], claim: dict[str, Any]
) -> dict[str, Any]:
    reason = claim["reason"]
    if reason == "volume":
        return {"value": _ceil(totals["rounds_needed"], worker.clients), "reason": reason}
    if reason == "longest":
        return {"value": max(d for _, d, _, _ in rows), "reason": reason}
    if reason == "memory" and worker.memory is not None:
        value = _ceil(totals["block_rounds"], worker.memory.blocks)
        return {"value": value, "reason": reason}
    if reason != "lifted":
        raise ValueError(f"no bound on rounds by {reason!r}")
    k, fullest = claim["k"], claim["l"]
    if not (1 <= fullest <= worker.clients and fullest <= k <= len(rows)):
        raise ValueError(f"k={k} and l={fullest} are out of range")
    # Of the k longest jobs, the l clients with most of them hold at least this many.
    held = fullest * (k // worker.clients) + min(fullest, k % worker.clients)
    shortest_of_k = sorted((d for _, d, _, _ in rows), reverse=True)[:k][k - held :]
    return {"value": _ceil(sum(shortest_of_k), fullest), "reason": reason, "k": k, "l": fullest}


def _prefill_ns(worker: Worker, totals: dict[str, int], stages: int) -> int:
    cost, tokens, n = worker.cost, totals["prompt_tokens"], totals["requests"]
    if isinstance(cost, AffineCost):
        return stages * cost.prefill_fixed_ns + tokens * cost.prefill_token_ns
    if isinstance(cost, LevelsCost):
        return max(stages * min(t for _, t in cost.levels), _cover(cost.levels, tokens))
    if isinstance(cost, BilinearCost) and min(cost.p1_fs, cost.p2_fs, cost.p3_fs, cost.p4_fs) >= 0:
        stage_fs = cost.p4_fs - 500_000
        total = tokens * cost.p1_fs + n * cost.p2_fs + tokens * cost.p3_fs // worker.clients
        total += stage_fs * (stages if stage_fs >= 0 else n)
        return max(0, total // 1_000_000) * cost.time_scale
    if isinstance(cost, PoolingCost):
        return max(0, n * (cost.c_fs - 500_000) // 1_000_000) * cost.time_scale
    raise ValueError("the cost model has no floor")


def _decode_ns(worker: Worker, totals: dict[str, int], rounds: int) -> int:
    cost, contexts, needed = worker.cost, totals["context_sum"], totals["rounds_needed"]
    if isinstance(cost, AffineCost):
        return rounds * cost.round_fixed_ns + needed * cost.round_client_ns
    if isinstance(cost, LevelsCost):
        return rounds * cost.round_fixed_ns
    if isinstance(cost, BilinearCost) and min(cost.d1_fs, cost.d2_fs, cost.d3_fs, cost.d4_fs) >= 0:
        round_fs = cost.d4_fs - 500_000
        total = contexts * cost.d1_fs + needed * cost.d2_fs
        total += contexts * cost.d3_fs // worker.clients
        total += round_fs * (rounds if round_fs >= 0 else needed)
        return max(0, total // 1_000_000) * cost.time_scale
    if isinstance(cost, PoolingCost) and min(cost.gamma_fs, cost.delta_fs) >= 0:
        total = contexts * (cost.gamma_fs + cost.delta_fs) // worker.clients - 500_000 * needed
        return max(0, total // 1_000_000) * cost.time_scale
    raise ValueError("the cost model has no floor")


def _cover(levels: tuple[tuple[int, int], ...], tokens: int) -> int:
    """Least time of levels that cover the tokens: exact where small, else by time per token."""
    from math import gcd

    unit = gcd(*[cap for cap, _ in levels])
    units = _ceil(tokens, unit)
    if units > 200_000:
        return min(_ceil(tokens * time, cap) for cap, time in levels)
    least = [0]
    for u in range(1, units + 1):
        options = [time + least[max(u - cap // unit, 0)] for cap, time in levels]
        least.append(min(options))
    return least[units]


_KINDS: dict[str, Callable[[Instance, dict[str, Any]], dict[str, Any]]] = {
    "empty": _empty,
    "last_arrival": _last_arrival,
    "longest_request": _longest_request,
    "stages_and_rounds": _stages_and_rounds,
}
