"""The best value of each objective on a small instance, by exhaustive search.

Dijkstra over progress: which requests wait and how many rounds each running one still needs. To
reach a state earlier is never worse, since a worker may wait; so the first arrival at "all done"
is the optimum over every sequence of prefill stages, rounds and waits. With ``pauses`` a round may
leave out any of those that run.

For sums of times a state is reached at a cost besides; for attainment everything is tried.
"""

from heapq import heappop, heappush
from itertools import combinations


def optimum_ns(instance, pauses=False):
    """Return the least possible makespan in nanoseconds (one worker, few requests)."""
    setting = (*_setting(instance), pauses)
    start = (frozenset(range(len(instance))), ())
    heap, best, serial = [(0, 0, start)], {start: 0}, 0
    while heap:
        now, _, state = heappop(heap)
        if best[state] < now:
            continue
        waiting, running = state
        if not waiting and not running:
            return now
        for then, following in _moves(now, waiting, running, *setting):
            if then < best.get(following, 2**63):
                best[following] = then
                serial += 1
                heappush(heap, (then, serial, following))
    raise AssertionError("no schedule")


def least_total(instance, makespan, finish, first, pauses=False):
    """Return the least sum of times with coefficients, in nanoseconds, arrivals taken off.

    Costs grow with time at the rate of what is not done yet. Of two ways to a state one is dropped
    if the other is there earlier, and waiting for it would be no dearer; without arrivals the
    dearer one, since time no longer matters.
    """
    setting, n = (*_setting(instance), pauses), len(instance)
    arrivals, rounds = instance.requests.arrival_ns.tolist(), setting[1]
    timed, in_round = any(arrivals), instance.first_token != "prefill"

    def rate(waiting, running):
        due = sum(finish[i] + first[i] * (in_round and left == rounds[i]) for i, left in running)
        return makespan + due + sum(finish[i] + first[i] for i in waiting)

    start = (frozenset(range(n)), ())
    heap, labels, serial = [(0, 0, 0, start)], {start: [(0, 0)]}, 0
    while heap:
        cost, _, now, state = heappop(heap)
        waiting, running = state
        if not waiting and not running:
            both = zip(finish, first, arrivals, strict=True)
            return cost - sum((a + b) * arrival for a, b, arrival in both)
        if (now, cost) not in labels[state]:
            continue
        grows = rate(waiting, running)
        for then, following in _moves(now, waiting, running, *setting):
            label = (then if timed else 0, cost + grows * (then - now))
            known = labels.setdefault(following, [])
            waits = rate(*following)
            if any(_no_worse(each, label, waits) for each in known):
                continue
            known[:] = [each for each in known if not _no_worse(label, each, waits)]
            known.append(label)
            serial += 1
            heappush(heap, (label[1], serial, label[0], following))
    raise AssertionError("no schedule")


def _no_worse(one, other, rate):
    """Whether the first label, having waited for the time of the second, has cost no more."""
    return one[0] <= other[0] and one[1] + rate * (other[0] - one[0]) <= other[1]


def most_attained(instance, met, pauses=False):
    """Return how many requests can be within limits; ``met(i, first_ns, finish_ns)`` says so.

    Every sequence of stages and rounds, without a wait that no arrival asks for: with arrivals and
    limits between tokens such a wait may help.
    """
    setting, n = (*_setting(instance), pauses), len(instance)
    rounds, in_round = setting[1], instance.first_token != "prefill"
    known = {}

    def best(now, waiting, running, firsts):
        key = (now, waiting, running, firsts)
        if key in known:
            return known[key]
        if not waiting and not running:
            return 0
        most, when, left = 0, dict(firsts), dict(running)
        for then, (others, decoding) in _moves(now, waiting, running, *setting):
            inside, seen, count = dict(decoding), dict(when), 0
            for i in range(n):
                came = i in waiting and i not in others
                begun = i in left and left[i] == rounds[i] and inside.get(i) != left[i]
                if (begun if in_round else came) and i not in seen:
                    seen[i] = then
                if (came or i in left) and i not in inside:
                    count += met(i, seen.pop(i), then)
            kept = tuple(sorted(seen.items()))
            most = max(most, count + best(then, others, decoding, kept))
        known[key] = most
        return most

    return best(0, frozenset(range(n)), (), ())


def least_late(instance, late, joined, pauses=False):
    """Return the least of ``late(i, finish_ns)`` of all requests, ``joined`` by sum or max.

    It must not fall with time: so no wait helps that no arrival asks for.
    """
    setting, known = (*_setting(instance), pauses), {}

    def best(now, waiting, running):
        if not waiting and not running:
            return None
        if (key := (now, waiting, running)) not in known:
            values = []
            for then, (others, decoding) in _moves(now, waiting, running, *setting):
                there = set(waiting) | {i for i, _ in running}
                done = sorted(there - others - {i for i, _ in decoding})
                rest = best(then, others, decoding)
                parts = [late(i, then) for i in done] + ([] if rest is None else [rest])
                values.append(joined(parts))
            known[key] = min(values)
        return known[key]

    return best(0, frozenset(range(len(instance))), ())


def _setting(instance):
    """Return prompts, rounds, blocks, arrivals and the worker."""
    req, worker = instance.requests, instance.worker
    prompts, outputs = req.prompt_tokens.tolist(), req.output_tokens.tolist()
    rounds = [d - (instance.first_token == "prefill") for d in outputs]
    blocks = [0] * len(req)
    if worker.memory is not None:
        tokens = zip(prompts, outputs, strict=True)
        blocks = [-(-(p + d) // worker.memory.block_tokens) for p, d in tokens]
    return prompts, rounds, blocks, req.arrival_ns.tolist(), worker


def _moves(now, waiting, running, prompts, rounds, blocks, arrivals, worker, pauses=False):
    """Every next step: a prefill stage of any fitting set, a round, or waiting for an arrival."""
    cost = worker.cost
    for size in range(1 if pauses else max(1, len(running)), len(running) + 1):
        for served in combinations(running, size):
            contexts = [prompts[i] + rounds[i] - left + 1 for i, left in served]
            then = now + cost.round_ns(size, sum(contexts), max(contexts))
            after = ((i, left - (i in dict(served))) for i, left in running)
            yield then, (waiting, tuple((i, left) for i, left in after if left))
    # The state is the same at a later time: reach on from there, by the next prefill.
    for moment in sorted({now} | {arrivals[i] for i in waiting if arrivals[i] > now}):
        yield from _prefills(moment, waiting, running, prompts, rounds, blocks, arrivals, worker)


def _prefills(moment, waiting, running, prompts, rounds, blocks, arrivals, worker):
    here = sorted(i for i in waiting if arrivals[i] <= moment)
    held = sum(blocks[i] for i, _ in running)
    for size in range(1, min(len(here), worker.clients - len(running)) + 1):
        for stage in combinations(here, size):
            tokens = [prompts[i] for i in stage]
            if worker.prefill_limit is not None and sum(tokens) > worker.prefill_limit:
                continue
            taken = held + sum(blocks[i] for i in stage)
            if worker.memory is not None and taken > worker.memory.blocks:
                continue
            then = moment + worker.cost.prefill_ns(tokens)
            now_running = [*running, *((i, rounds[i]) for i in stage if rounds[i])]
            yield then, (waiting - set(stage), tuple(sorted(now_running)))


def least_sum_ns(instance, objective, weights=None):
    """Return the least sum of JCT (times ``weights``) or TTFT, ``mean_jct`` or ``mean_ttft``."""
    each, none = weights or [1] * len(instance), [0] * len(instance)
    of_ends, of_first = (none, each) if objective == "mean_ttft" else (each, none)
    return least_total(instance, 0, of_ends, of_first)
