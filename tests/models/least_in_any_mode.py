"""The least makespan, or sum of ends or first tokens, with chunks, mixed steps and restarts. By
exhaustive search (Dijkstra) over all sequences of steps of one worker; whoever may wait may do
nothing better with an earlier time. The sums are searched where nobody arrives later."""

from heapq import heappop, heappush
from itertools import product
from typing import NamedTuple

from orsched.costs import mixed_ns

AWAY, HERE, DONE = range(3)


class State(NamedTuple):
    """A request: where it is, tokens prefilled in this stay, yielded before it, and in all."""

    place: int = AWAY
    prefilled: int = 0
    before: int = 0
    tokens: int = 0


class Search:
    """All that a worker may do; ``objective`` is ``makespan``, ``mean_jct`` or ``mean_ttft``."""

    def __init__(self, instance, allows, objective="makespan"):
        req = instance.requests
        self.worker, self.allows, self.objective = instance.worker, set(allows), objective
        self.prompts, self.outputs = req.prompt_tokens.tolist(), req.output_tokens.tolist()
        self.arrivals = req.arrival_ns.tolist()
        self.by_prefill = instance.first_token == "prefill"
        self.sums = objective != "makespan"

    def least(self):
        start = (State(),) * len(self.prompts)
        heap, best = [(0, 0, start)], {start: 0}
        serial = 0
        while heap:
            now, _, states = heappop(heap)
            if best[states] < now:
                continue
            if all(state.place == DONE for state in states):
                return now
            for then, following in self.moves(now, states):
                if then < best.get(following, 2**63):
                    best[following] = then
                    serial += 1
                    heappush(heap, (then, serial, following))
        raise AssertionError("no schedule")

    def moves(self, now, states):
        """Every step that can be taken, at once or after an arrival."""
        moments = {now} if self.sums else {now, *(a for a in self.arrivals if a > now)}
        here = [k for k, state in enumerate(states) if state.place == HERE]
        for at in sorted(moments):
            for gone in product((0, 1), repeat=len(here) if "restarts" in self.allows else 0):
                left = list(states)
                for k, out in zip(here, gone, strict=False):
                    if out:
                        left[k] = State(AWAY, 0, states[k].tokens, states[k].tokens)
                yield from self.steps(at, tuple(left))

    def steps(self, at, states):
        options = [self.choices(at, k, state) for k, state in enumerate(states)]
        for chosen in product(*options):
            parts = [t for t in chosen if t > 0]
            decoders = [k for k, t in enumerate(chosen) if t < 0]
            if not parts and not decoders:
                continue
            if parts and decoders and "mixed" not in self.allows:
                continue
            step = self.taken(states, chosen, parts, decoders)
            if step is not None:
                duration, following = step
                weight = sum(self.counts(state) for state in states) if self.sums else 1
                yield at + weight * duration, following

    def choices(self, at, k, state):
        """Tokens to prefill, 0 for none, -1 for a round."""
        if state.place == DONE or self.arrivals[k] > at:
            return [0]
        left = self.prompts[k] + state.before - state.prefilled
        if state.place == HERE and left == 0:
            return [0, -1]
        return [0, *(range(1, left + 1) if "chunks" in self.allows else [left])]

    def taken(self, states, chosen, parts, decoders):
        worker, limit = self.worker, self.worker.prefill_limit
        following = tuple(self.after(k, states[k], t) for k, t in enumerate(chosen))
        there = [k for k, s in enumerate(states) if s.place == HERE or chosen[k]]
        if len(there) > worker.clients:
            return None
        if worker.padding:
            parts = [max(parts)] * len(parts) if parts else []
        if limit is not None and sum(parts) > limit:
            return None
        if worker.memory is not None:
            held = [self.prompts[k] + self.outputs[k] for k in there]
            if sum(-(-h // worker.memory.block_tokens) for h in held) > worker.memory.blocks:
                return None
        contexts = [self.cached(k, states[k]) + 1 for k in decoders]
        if worker.padding and contexts:
            contexts = [max(contexts)] * len(contexts)
        load = len(decoders), sum(contexts), max(contexts, default=0)
        before = [states[k].prefilled for k, t in enumerate(chosen) if t > 0]
        return mixed_ns(worker.cost, parts, *load, before), following

    def cached(self, k, state):
        """Tokens in the cache of a request that can decode."""
        rounds = state.tokens - state.before - int(self.by_prefill)
        return self.prompts[k] + state.before + rounds

    def after(self, k, state, tokens):
        if tokens == 0:
            return state
        yielded, prefilled = state.tokens + 1, state.prefilled
        if tokens > 0:
            prefilled += tokens
            complete = prefilled == self.prompts[k] + state.before
            yielded = state.tokens + int(complete and self.by_prefill)
        if yielded == self.outputs[k]:
            return State(DONE)
        return State(HERE, prefilled, state.before, yielded)

    def counts(self, state):
        """Whether time counts for a request."""
        if self.objective == "mean_jct":
            return state.place != DONE
        return state.place != DONE and state.tokens == 0
