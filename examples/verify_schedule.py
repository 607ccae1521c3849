#!/usr/bin/env python3
"""Verify a schedule of LLM requests and its makespan with Python's standard library alone.

python verify_schedule.py INSTANCE.json SCHEDULE.json prints the makespan, or the first broken rule
with exit code 1. Files may end in .gz (docs, File formats). Costs are affine, or roofline of five
coefficients. Padding, prefix caches, links, closed loops, failures and autoscaling are refused.
"""

import gzip
import json
import sys
from itertools import pairwise

PREFILL, DECODE, MIXED, INVALID = 0, 1, 2, 2
STEPS = ("worker", "phase", "start_ns", "end_ns", "rounds")
WORK = ("request", "client", "phase", "first_step", "last_step", "tokens", "stay")
AFFINE = {"prefill_fixed_ns", "prefill_token_ns", "round_fixed_ns", "round_client_ns"}
ROOFLINE = {"fixed_fs", "weights_fs", "token_fs", "context_fs", "attended_fs", "time_scale"}
KNOWN = {"clients", "cost", "prefill_cap_tokens", "memory", "name"}


def require(condition, rule):
    """Raise ``ValueError`` with the rule where it is broken."""
    if not condition:
        raise ValueError(rule)


def step_ns(cost, chunks, cached, active, contexts):
    """Return the time of a step: chunks of prompts, and a round over ``active`` requests."""
    tokens = sum(chunks)
    if cost["model"] == "affine":
        fixed = max(cost["prefill_fixed_ns"] * bool(chunks), cost["round_fixed_ns"] * bool(active))
        return fixed + cost["prefill_token_ns"] * tokens + cost["round_client_ns"] * active
    attended = sum(n * (n + 1) // 2 + n * k for n, k in zip(chunks, cached, strict=True))
    time = cost["fixed_fs"] + max(cost["weights_fs"], cost["token_fs"] * (tokens + active))
    time += cost["context_fs"] * contexts + cost["attended_fs"] * attended
    return (time + 500_000) // 1_000_000 * cost["time_scale"]


def table(columns, names):
    """Return rows from columns of whole numbers; columns that no name is of must be 0."""
    count = len(columns[names[0]])
    columns = {"stay": [0] * count, **columns}
    for name, column in columns.items():
        require(len(column) == count, "columns have one length")
        require(all(type(v) is int and 0 <= v < 2**62 for v in column), "whole numbers from 0")
        require(name in names or not any(column) or name == "stay", f"{name} is out of reach")
    return [{name: columns[name][k] for name in names} for k in range(count)]


def verify(instance, schedule):
    """Return the makespan of a valid schedule in ns; raise ``ValueError`` for any other."""
    workers, requests = instance["workers"], instance["requests"]
    outputs = requests["output_tokens"]
    for worker in workers:
        plain = not set(worker) - KNOWN and "prefix_cache" not in (worker["memory"] or {})
        plain = plain and set(worker["cost"]) - {"model"} in (AFFINE, ROOFLINE)
        plain = plain and "concurrency" not in instance and "delay_ns" not in requests
        require(plain and not instance.get("link"), "an instance of this kind is out of reach")
    steps, rows = table(schedule["steps"], STEPS), table(schedule["work"], WORK)
    by_worker, free, last = [[] for _ in workers], [0] * len(workers), (0, 0)
    for number, step in enumerate(steps):
        w, key = step["worker"], (step["start_ns"], step["worker"])
        require(w < len(workers) and step["phase"] <= MIXED, "a step is of no worker or phase")
        require(last <= key and free[w] <= step["start_ns"] <= step["end_ns"], "one step at a time")
        require(1 <= step["rounds"] <= (sum(outputs) if step["phase"] == DECODE else 1), "rounds")
        last, free[w], _ = key, step["end_ns"], by_worker[w].append(number)
        step |= {"chunks": [], "cached": [], "contexts": [], "yields": False, "held": 0}
    stays, visits, done, left, key = {}, {}, [0] * len(outputs), {}, ()
    for row in rows:
        last, key = key, (row["request"], row["stay"], row["first_step"])
        require(last < key, "rows are in order of request, stay and step")
        there = row["first_step"] <= row["last_step"] < len(steps) and row["request"] < len(outputs)
        require(there, "a row is of no step or request")
        stays.setdefault((row["request"], row["stay"]), []).append(row)
    for (request, number), mine in stays.items():
        place, first, end = follow(instance, steps, by_worker, mine, done)
        never = (0, requests["arrival_ns"][request], -1, -1)
        start, (stay, before, worker, step) = steps[first]["start_ns"], left.get(request, never)
        after = number == stay and start >= before and (worker != place[0] or first > step)
        require(after, "one stay after the other, from the arrival on")
        left[request] = number + 1, steps[end]["end_ns"], place[0], end
        visits.setdefault(place, []).append((first, end))
    require(done == outputs, "each request yields all its tokens")
    pairs = [pair for visit in visits.values() for pair in pairwise(sorted(visit))]
    require(all(a[1] < b[0] for a, b in pairs), "one request on a client")
    for step in steps:
        check_step(workers[step["worker"]], step)
    return max((step["end_ns"] for step in steps), default=0)


def follow(instance, steps, by_worker, mine, done):
    """Go through the rows of a stay; note in each step what it does there, and what it holds."""
    request, client, first = (mine[0][name] for name in ("request", "client", "first_step"))
    prompt, output = (instance["requests"][n][request] for n in ("prompt_tokens", "output_tokens"))
    w, cache, end, phase, after = steps[first]["worker"], 0, -1, PREFILL, {}
    worker, due, yielded = instance["workers"][w], prompt + done[request], done[request]
    require(client < worker["clients"] and yielded < output, "no client, or after the last token")
    for row in mine:
        a, b, before = row["first_step"], row["last_step"], phase
        phase, tokens = row["phase"], row["tokens"]
        require(row["client"] == client and before <= phase <= INVALID, "one client, in order")
        require(end < a and steps[a]["worker"] == steps[b]["worker"] == w, "one worker, in order")
        fits = steps[a]["phase"] != DECODE if phase == PREFILL else cache == due or before
        require(fits, "prefills in prefill steps, and all that is due before the rounds")
        end = b
        if phase == PREFILL:
            require(a == b and tokens > 0 and cache + tokens <= due, "tokens that are due")
            steps[a]["chunks"].append(tokens)
            steps[a]["cached"].append(cache)
            cache = after[a] = cache + tokens
            yielded += cache == due and instance["first_token"] == "prefill"
            continue
        require(PREFILL not in (steps[a]["phase"], steps[b]["phase"]) and tokens == 1, "rounds")
        for k in [k for k in by_worker[w] if a <= k <= b and steps[k]["phase"] != PREFILL]:
            steps[k]["contexts"].append(cache + 1)
            steps[k]["yields"] |= phase == DECODE
            yielded += steps[k]["rounds"] * (phase == DECODE)
            cache = after[k] = cache + steps[k]["rounds"]
        require(phase == DECODE or yielded == output, "invalid rounds come last")
    memory, held = worker["memory"] or {"block_tokens": 1}, 0
    for k in [k for k in by_worker[w] if first <= k <= end]:
        held = after.get(k, held)
        tokens = held if memory.get("allocation") == "paged" else prompt + output
        steps[k]["held"] += -(-tokens // memory["block_tokens"])
    done[request] = yielded
    return (w, client), first, end


def check_step(worker, step):
    """Check what a step does against its phase, the cap, the memory and the time it takes."""
    chunks, active, took = step["chunks"], len(step["contexts"]), 0
    cost, cap, memory = (worker[name] for name in ("cost", "prefill_cap_tokens", "memory"))
    does = (bool(chunks), step["yields"]) == (step["phase"] != DECODE, step["phase"] != PREFILL)
    require(does, "a step does what its phase says")
    require(cap is None or sum(chunks) <= cap, "the cap of a prefill stage")
    require(memory is None or step["held"] <= memory["blocks"], "the blocks of the memory")
    for k in range(step["rounds"]):
        took += step_ns(cost, chunks, step["cached"], active, sum(step["contexts"]) + k * active)
    require(took == step["end_ns"] - step["start_ns"], f"a step takes {took} ns by the cost model")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        opened = [(gzip.open if p.endswith(".gz") else open)(p, "rt") for p in sys.argv[1:]]
        print(f"valid, makespan {verify(*map(json.load, opened))} ns")
    except (OSError, ValueError, KeyError, TypeError, IndexError) as broken:
        sys.exit(f"not valid: {broken!r}")
