"""The least sum of JCT or TTFT of a small instance with one worker, by exhaustive search."""

from __future__ import annotations

from heapq import heappop, heappush

from tests.brute_force import _moves


def least_sum_ns(instance, objective, weights=None):
    """Return the least sum of JCT (times ``weights``) or TTFT. Dijkstra over (time, who waits,
    rounds left): a step costs its duration for each request that has not ended, or has no token
    yet; waits are for arrivals, steps otherwise without delay."""
    req, worker = instance.requests, instance.worker
    weighs = [1] * len(req) if weights is None else weights
    n, arrivals = len(instance), instance.requests.arrival_ns.tolist()
    prompts, outputs = req.prompt_tokens.tolist(), req.output_tokens.tolist()
    rounds = instance.rounds_needed.tolist()
    blocks = [0] * n
    if worker.memory is not None:
        blocks = [-(-(prompts[i] + outputs[i]) // worker.memory.block_tokens) for i in range(n)]
    start = (0, frozenset(range(n)), ())
    heap, best, serial = [(0, 0, start)], {start: 0}, 0
    while heap:
        cost, _, state = heappop(heap)
        if best[state] < cost:
            continue
        now, waiting, running = state
        if not waiting and not running:
            return cost - sum(w * at for w, at in zip(weighs, arrivals, strict=True))
        open_requests = sum(weighs[i] for i in waiting) + sum(weighs[i] for i, _ in running)
        if objective == "mean_ttft":
            untold = instance.first_token == "decode"
            open_requests = len(waiting) + sum(untold and left == rounds[i] for i, left in running)
        for then, following in _moves(
            now, waiting, running, prompts, rounds, blocks, arrivals, worker
        ):
            after, total = (then, *following), cost + (then - now) * open_requests
            if total < best.get(after, 2**63):
                best[after] = total
                serial += 1
                heappush(heap, (total, serial, after))
    raise AssertionError("no schedule")
