"""The shortest makespan of a small instance, by exhaustive search.

Dijkstra over progress: which requests wait and how many rounds each running one still needs. To
reach a state earlier is never worse, since a worker may wait; so the first arrival at "all done"
is the optimum over every sequence of prefill stages, rounds and waits.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations


def optimum_ns(instance):
    """Return the least possible makespan in nanoseconds (one worker, few requests)."""
    req, worker = instance.requests, instance.worker
    n = len(req)
    prompts, outputs = req.prompt_tokens.tolist(), req.output_tokens.tolist()
    arrivals = req.arrival_ns.tolist()
    rounds = [d - (instance.first_token == "prefill") for d in outputs]
    blocks = [0] * n
    if worker.memory is not None:
        blocks = [-(-(prompts[i] + outputs[i]) // worker.memory.block_tokens) for i in range(n)]
    start = (frozenset(range(n)), ())
    heap, best, serial = [(0, 0, start)], {start: 0}, 0
    while heap:
        now, _, state = heappop(heap)
        if best[state] < now:
            continue
        waiting, running = state
        if not waiting and not running:
            return now
        for then, following in _moves(
            now, waiting, running, prompts, rounds, blocks, arrivals, worker
        ):
            if then < best.get(following, 2**63):
                best[following] = then
                serial += 1
                heappush(heap, (then, serial, following))
    raise AssertionError("no schedule")


def _moves(now, waiting, running, prompts, rounds, blocks, arrivals, worker):
    """Every next step: a prefill stage of any fitting set, a round, or waiting for an arrival."""
    cost = worker.cost
    if running:
        contexts = [prompts[i] + rounds[i] - left + 1 for i, left in running]
        then = now + cost.round_ns(len(running), sum(contexts), max(contexts))
        yield then, (waiting, tuple((i, left - 1) for i, left in running if left > 1))
    here = sorted(i for i in waiting if arrivals[i] <= now)
    later = [arrivals[i] for i in waiting if arrivals[i] > now]
    if later:
        # The state is the same at a later time: reach on from there, by the next prefill.
        moment = min(later)
        for then, state in _prefills(
            moment, waiting, running, prompts, rounds, blocks, arrivals, worker
        ):
            yield then, state
        for extra in sorted(set(later)):
            yield from _prefills(extra, waiting, running, prompts, rounds, blocks, arrivals, worker)
    if here:
        yield from _prefills(now, waiting, running, prompts, rounds, blocks, arrivals, worker)


def _prefills(moment, waiting, running, prompts, rounds, blocks, arrivals, worker):
    here = sorted(i for i in waiting if arrivals[i] <= moment)
    held = sum(blocks[i] for i, _ in running)
    for size in range(1, min(len(here), worker.clients - len(running)) + 1):
        for stage in combinations(here, size):
            tokens = [prompts[i] for i in stage]
            if worker.prefill_limit is not None and sum(tokens) > worker.prefill_limit:
                continue
            if worker.memory is not None and (
                held + sum(blocks[i] for i in stage) > worker.memory.blocks
            ):
                continue
            then = moment + worker.cost.prefill_ns(tokens)
            now_running = [*running, *((i, rounds[i]) for i in stage if rounds[i])]
            yield then, (waiting - set(stage), tuple(sorted(now_running)))
