"""The least makespan of a tiny fleet, by exhaustive search over all steps of all its workers.

Any workers, arrivals, chunks, mixed steps, restarts, moves, memory (whole, paged, with prefix
caches). A worker's step begins when the worker and the requests in it are free, so that a schedule
is an order of steps; they are taken by start. Of prefix caches the search knows the best that any
could do: what was computed on a worker is found there for good, by a lookup of any length. So
no schedule is shorter than what it finds, and without caches the best one is as long.
"""

from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

from orsched.costs import mixed_ns

AWAY, DONE = -1, -2


class State(NamedTuple):
    """A request: its worker, tokens in its cache, those that its stay found there, tokens yielded
    before the stay and in all, and the only worker where it may restart, if it may not move."""

    place: int = AWAY
    cached: int = 0
    hit: int = 0
    before: int = 0
    tokens: int = 0
    home: int = AWAY


class FleetSearch:
    """All that the workers of an instance may do, with some allowances.

    ``times`` are the moments from which each worker, then each request is free; -1 if that never
    matters again. Of two ways to the same states one is dropped if nothing in it is free earlier.
    """

    def __init__(self, instance, allows):
        requests = instance.requests
        self.workers, self.allows = instance.workers, set(allows)
        self.prompts, self.outputs = (
            column.tolist() for column in (requests.prompt_tokens, requests.output_tokens)
        )
        self.arrivals = requests.arrival_ns.tolist()
        self.by_prefill = instance.first_token == "prefill"
        self.ids = [[] for _ in self.prompts]
        if requests.prefixes is not None:
            self.ids = [requests.prefixes.of(k).tolist() for k in range(len(self.prompts))]
        self.caching = [worker.caches_prefixes for worker in self.workers]

    def least(self, below=2**62):
        """Return the least makespan, in ns, or ``below`` where no schedule is shorter."""
        states = (State(),) * len(self.prompts)
        caches = tuple(frozenset() for _ in self.workers)
        times = (*(0 for _ in self.workers), *self.arrivals)
        heap, known, serial = [(0, 0, times, states, caches)], {(states, caches): [times]}, 0
        while heap:
            makespan, _, times, states, caches = heappop(heap)
            if all(state.place == DONE for state in states):
                return makespan
            if times not in known[states, caches]:
                continue
            for now, then, label, *following in self.steps(times, states, caches):
                longer = max(makespan, then)
                if longer >= below:
                    continue
                # No later step begins before; what never matters again is -1.
                label = tuple(max(now, each) if each >= 0 else each for each in label)
                front = known.setdefault(tuple(following), [])
                if any(all(a <= b for a, b in zip(old, label, strict=True)) for old in front):
                    continue
                front[:] = [
                    old for old in front if any(a < b for a, b in zip(old, label, strict=True))
                ]
                front.append(label)
                serial += 1
                heappush(heap, (longer, serial, label, *following))
        return below

    def steps(self, times, states, caches):
        """Yield start, end, times, states and caches of each step that can be the next."""
        count, idle = len(self.workers), []
        for w, worker in enumerate(self.workers):
            fresh = not times[w] and not caches[w] and all(s.place != w for s in states)
            if fresh and any(self.alike(v, w) for v in idle):
                continue  # the first of equal workers that were not used stands for the others
            idle += [w] * fresh
            here = [k for k, state in enumerate(states) if state.place == w]
            for gone in product((0, 1), repeat=len(here) if "restarts" in self.allows else 0):
                left = list(states)
                for k, out in zip(here, gone, strict=False):
                    left[k] = self.evicted(states[k]) if out else states[k]
                options = [self.choices(w, k, left) for k in range(len(left))]
                for chosen in product(*options):
                    done = self.taken(w, worker, left, chosen, caches[w])
                    if done is None:
                        continue
                    took, following, found = done
                    inside = [k for k, action in enumerate(chosen) if action]
                    now = max(times[w], *(times[count + k] for k in inside))
                    label = [*times]
                    label[w] = now + took
                    for k, state in enumerate(following):
                        if k in inside:
                            label[count + k] = now + took
                        if state.place == DONE or (state.place == w and "moves" not in self.allows):
                            label[count + k] = -1
                    cached = (*caches[:w], found, *caches[w + 1 :])
                    yield now, now + took, label, tuple(following), cached

    def alike(self, v, w):
        """Whether two workers differ by their names only."""
        one, other = self.workers[v], self.workers[w]
        names = ("clients", "cost", "prefill_limit", "memory", "padding")
        return all(getattr(one, name) == getattr(other, name) for name in names)

    def evicted(self, state):
        """A request whose cache is lost."""
        home = AWAY if "moves" in self.allows else state.place
        return State(AWAY, 0, 0, state.tokens, state.tokens, home)

    def due(self, k, state):
        """Tokens that a stay prefills or finds."""
        return self.prompts[k] + state.before

    def choices(self, w, k, states):
        """Nothing, a round, or a prefill: tokens found in the cache at its begin, and computed."""
        state, chunks = states[k], "chunks" in self.allows
        if state.place == DONE:
            return [None]
        if state.place == w:
            left = self.due(k, state) - state.cached
            if left <= 0:
                return [None, (0, 0)]
            return [None, *((0, t) for t in (range(1, left + 1) if chunks else [left]))]
        if state.place != AWAY:
            if "moves" not in self.allows:
                return [None]
            state = self.evicted(state)
        if state.home not in (AWAY, w):
            return [None]
        due, found = self.due(k, state), [0]
        if self.caching[w]:
            size = self.workers[w].memory.block_tokens
            found = range(0, (due - 1) // size * size + 1, size)
        return [
            None,
            *((h, t) for h in found for t in (range(1, due - h + 1) if chunks else [due - h])),
        ]

    def taken(self, w, worker, states, chosen, cache):
        """Return what a step takes, the states after it and what the cache holds; or None."""
        following, parts, before, contexts = list(states), [], [], []
        for k, action in enumerate(chosen):
            if action is None:
                continue
            state = states[k]
            if state.place not in (w, AWAY):
                state = self.evicted(state)
            hit, tokens = action
            if tokens:
                state = state._replace(place=w, cached=state.cached + hit, hit=state.hit + hit)
                parts.append(tokens)
                before.append(state.cached)
            else:
                contexts.append(state.cached + 1)
            following[k] = self.after(k, state, tokens)
        if not parts and not contexts:
            return None
        if parts and contexts and "mixed" not in self.allows:
            return None
        present = [k for k, s in enumerate(following) if s.place == w or chosen[k]]
        if len(present) > worker.clients:
            return None
        if worker.padding:
            parts = [max(parts, default=0)] * len(parts)
            contexts = [max(contexts, default=0)] * len(contexts)
        if worker.prefill_limit is not None and sum(parts) > worker.prefill_limit:
            return None
        found = cache
        if self.caching[w]:
            found = self.looked_up(w, states, chosen, following, present, cache)
            if found is None:
                return None
        elif not self.fits(worker, present, following):
            return None
        load = len(contexts), sum(contexts), max(contexts, default=0)
        took = mixed_ns(worker.cost, parts, *load, before)
        ended = [State(DONE) if s.tokens == self.outputs[k] else s for k, s in enumerate(following)]
        return took, ended, found

    def after(self, k, state, tokens):
        """A request behind its part of a step, its cache not yet freed."""
        if not tokens:
            return state._replace(cached=state.cached + 1, tokens=state.tokens + 1)
        cached = state.cached + tokens
        yields = self.by_prefill and cached == self.due(k, state)
        return state._replace(cached=cached, tokens=state.tokens + yields)

    def fits(self, worker, present, states):
        """Whether the blocks behind a step are there."""
        memory = worker.memory
        if memory is None:
            return True
        held = [states[k].cached for k in present]
        if not memory.is_paged:
            held = [self.prompts[k] + self.outputs[k] for k in present]
        elif worker.padding:
            held = [max(held)] * len(held)
        return sum(-(-each // memory.block_tokens) for each in held) <= memory.blocks

    def key(self, k, place, size):
        """The key of a full block: of its prefix, or of its request alone."""
        shared = place < len(self.ids[k]) and (place + 1) * size <= self.prompts[k]
        return self.ids[k][place] if shared else (k, place)

    def looked_up(self, w, states, chosen, following, present, cache):
        """Return the keys on a worker behind a step; None where hits or blocks are not there.

        Blocks that a request found count once with all others that have them; what it computed
        itself is its own, but one of those with the same key may be the one that others found.
        """
        size, owned, held, partial = self.workers[w].memory.block_tokens, {}, set(), 0
        for k in present:
            full, hit = following[k].cached // size, following[k].hit // size
            keys = [self.key(k, place, size) for place in range(full)]
            held.update(keys[:hit])
            partial += following[k].cached % size > 0
            for key in keys[hit:]:
                owned[key] = owned.get(key, 0) + 1
        for k in present:
            if chosen[k] and chosen[k][0]:
                keys = [self.key(k, place, size) for place in range(chosen[k][0] // size)]
                if not all(key in cache or key in owned for key in keys):
                    return None
        blocks = partial + sum(owned.values()) + len(held - owned.keys())
        return None if blocks > self.workers[w].memory.blocks else cache.union(owned)
