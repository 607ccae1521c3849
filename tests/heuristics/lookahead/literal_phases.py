"""GBA, GSA and WAIT in unit rounds, one round at a time, without any structure."""

from __future__ import annotations

from tests.heuristics.lookahead.literal import held


def fits(prompts, running, request, ends, moment, memory):
    """Whether memory holds at every end of ``ends`` (request -> round) if one starts now.

    ``running`` maps requests to (round of the start, tokens that the cache held then).
    """
    trial = [*running, request]
    for end in {ends[j] for j in trial}:
        held_then = 0
        for j in trial:
            start, tokens = (moment, prompts[j][1]) if j == request else running[j]
            held_then += tokens + end - start if ends[j] >= end else 0
        if held_then > memory:
            return False
    return True


def together(held_at_start, span, memory, clients):
    """The most c with sum of held + ceil(j span / c), j = 1..c, within the memory, at least 1."""
    best = 1
    for c in range(1, clients + 1):
        if sum(held_at_start - (-j * span // c) for j in range(1, c + 1)) <= memory:
            best = c
    return best


def phase(tokens):
    """The least p with tokens <= 2**p."""
    p = 0
    while 2**p < tokens:
        p += 1
    return p


def phases(prompts, outputs, memory, limit, known):
    """Return the end of each request, all at 0: GBA if lengths are known, else GSA."""
    n = len(prompts)
    yielded, ends = [0] * n, {}
    queues: dict[int, list[int]] = {}
    for i in range(n):
        queues.setdefault(phase(outputs[i]) if known else 0, []).append(i)
    running, now, p = {}, 0, None
    begin = started = c = span = 0

    def stop(i):
        return outputs[i] if known else min(2**p, limit)

    while len(ends) < n:
        if not running:
            p = min(k for k, each in queues.items() if each)
            before = 0 if known or p == 0 else 2 ** (p - 1)
            span = max(stop(i) for i in queues[p]) - before
            prompt = max(prompts[i] for i in queues[p])
            c = together(prompt + before, span, memory, n)
            begin, started = now, 0
        while queues.get(p) and started * span <= (now - begin) * c:
            i = queues[p][0]
            held_now = [(s, s + y) for s, y in zip(prompts, yielded, strict=True)]
            until = {j: k + stop(j) - y for j, (k, _, y) in running.items()}
            until[i] = now + stop(i) - yielded[i]
            caches = {j: (k, tokens) for j, (k, tokens, _) in running.items()}
            if running and not fits(held_now, caches, i, until, now, memory):
                break
            running[i] = (now, prompts[i] + yielded[i], yielded[i])
            queues[p].pop(0)
            started += 1
        now += 1
        for i in list(running):
            yielded[i] += 1
            if yielded[i] == outputs[i]:
                ends[i] = now
                del running[i]
        for i in list(running):
            if yielded[i] >= stop(i):
                del running[i]
                queues.setdefault(p + 1, []).append(i)
    return [ends[i] for i in range(n)]


def wait(prompts, outputs, arrivals, memory, threshold):
    """Return the start of each request under WAIT with one threshold for all classes."""
    starts, batch, now = {}, [], 0
    while len(starts) < len(prompts):
        queues: dict[int, list[int]] = {}
        for i in sorted(range(len(prompts)), key=lambda i: (arrivals[i], i)):
            if arrivals[i] <= now and i not in starts and i not in batch:
                queues.setdefault(phase(outputs[i]), []).append(i)
        running = {i: k for i, k in starts.items() if k + outputs[i] > now}
        idle = not running
        while True:
            if not batch:
                ready = [each for each in queues.values() if len(each) >= threshold]
                if not ready and idle:
                    ready = [each for each in queues.values() if each]
                if not ready:
                    break
                queue = min(ready, key=lambda each: (arrivals[each[0]], each[0]))
                batch, queue[:] = queue[:threshold], queue[threshold:]
            idle, i = False, batch[0]
            trial = {**running, i: now}
            ends = [k + outputs[j] for j, k in trial.items()]
            if any(held(prompts, outputs, trial, end) > memory for end in ends):
                break
            starts[i] = running[i] = now
            batch.pop(0)
        now += 1
    return starts
