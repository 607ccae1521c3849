"""Random policies for all batching modes on any number of workers; each finishes every instance.
``BATCHING`` maps a name to a function from a seed to a fresh policy object."""

import random

from orsched import ARRIVAL, Information, Policy
from orsched.data.step import FINISH, FOREVER, Step, Wait, batch_rounds, decode_rounds, evict

EVENTS = (0, FINISH, ARRIVAL, FINISH | ARRIVAL)


class Sharing(Policy):
    """One queue for all workers; says what fits, and makes progress where all else fails."""

    many_workers = True

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.waiting = []
        self.taken = ()
        self.future = None
        self.decisions = 0

    def start(self, view):
        self.future = len(view.prompt_tokens)

    def on_arrival(self, view, request):
        self.waiting.append(request)
        self.future -= 1

    def on_preempt(self, view, request):
        if request not in self.taken:
            self.waiting.append(request)

    def decide(self, view):
        self.decisions += 1
        assert self.decisions < 20_000, "no end in sight"
        step = self.choose(view)
        self.taken = step.prefill if isinstance(step, Step) else ()
        self.waiting = [request for request in self.waiting if request not in self.taken]
        return step

    def possible(self, view):
        """Waiting requests that the worker could hold alone, whatever they yield."""
        return [r for r in self.waiting if self.holds(view, r)]

    def holds(self, view, request):
        memory = view.worker.memory
        if memory is None:
            return True
        if memory.allocation == "whole":
            return view.blocks_of(request) <= memory.blocks
        most = view.prompt_tokens[request] + view.output_limit_tokens
        return -(-most // memory.block_tokens) <= memory.blocks

    def left(self, view, request, gone=()):
        """Tokens to prefill of a request, before which its cache is lost if it is gone."""
        if request in view.running and request not in gone:
            return view.to_prefill(request)
        return view.prompt_tokens[request] + view.generated(request)

    def fits(self, view, chunks, decoders=(), gone=()):
        """Whether a step of one round can be taken: clients, cap and memory."""
        worker, memory = view.worker, view.worker.memory
        stay = [request for request in view.running if request not in gone]
        new = [request for request in chunks if request not in stay]
        if len(stay) + len(new) > worker.clients:
            return False
        total = max(chunks.values(), default=0) * len(chunks)
        total = total if worker.padding else sum(chunks.values())
        if worker.prefill_limit is not None and total > worker.prefill_limit:
            return False
        if memory is None:
            return True
        if memory.allocation == "whole":
            return sum(map(view.blocks_of, stay + new)) <= memory.blocks
        caches = [
            (view.cached(r) if r in stay else 0) + chunks.get(r, 0) + (r in decoders)
            for r in stay + new
        ]
        if worker.padding:
            caches = [max(caches, default=0)] * len(caches)
        return sum(-(-tokens // memory.block_tokens) for tokens in caches) <= memory.blocks

    def largest(self, view, request, chunks, decoders=(), gone=(), most=10**9):
        """The largest chunk of a request that fits beside others, up to ``most``; 0: none."""
        size = min(most, self.left(view, request, gone))
        while size and not self.fits(view, {**chunks, request: size}, decoders, gone):
            size //= 2
        return size

    def ready(self, view, gone=()):
        return [r for r in view.running if r not in gone and view.to_prefill(r) == 0]

    def rank(self, view, request):
        return view.arrival_ns[request], request

    def advance(self, view):
        """Serve the first of all alone, if need be without the others on the worker."""
        ranked = sorted(view.running or self.possible(view), key=lambda r: self.rank(view, r))
        if not ranked:
            return None
        first, gone = ranked[0], []
        victims = [request for request in reversed(ranked[1:]) if request in view.running]
        while True:
            if self.left(view, first):
                size = self.largest(view, first, {}, (), gone)
                if size:
                    return Step(prefill=[first], tokens=[size], decode=(), preempt=gone)
            elif self.fits(view, {}, [first], gone):
                return Step(decode=[first], preempt=gone)
            gone.append(victims.pop(0))


class Anything(Sharing):
    """Random steps of every kind; ``odds`` says how often it does what."""

    def __init__(self, seed, **odds):
        super().__init__(seed)
        self.odds = odds
        self.evictions = 30

    def on(self, what):
        return self.random.random() < self.odds.get(what, 0)

    def some(self, values):
        values = list(values)
        return self.random.sample(values, self.random.randint(0, len(values)))

    def choose(self, view):
        if self.future and self.on("doze"):
            return None
        if not view.running and not self.possible(view):
            return None
        if self.on("wait"):
            return Wait(view.now_ns + self.random.choice((1, 7, self.random.randint(1, 2000))))
        return self.step(view) or self.advance(view)

    def step(self, view):
        """A random step, or None where none of the kind drawn can be taken."""
        gone = self.victims(view)
        mixed = self.on("mix")
        decoders = self.decoders(view, gone) if mixed else []
        chunks = {} if self.on("rounds") else self.chunks(view, gone, decoders or [])
        if chunks:
            return self.prefill(view, chunks, gone, decoders, mixed)
        if gone and self.on("only"):
            return evict(gone)
        return self.decode(view, gone)

    def victims(self, view):
        if not view.running or not self.evictions or not self.on("evict"):
            return []
        self.evictions -= 1
        return self.some(view.running)

    def decoders(self, view, gone):
        ready = self.ready(view, gone)
        if self.on("part"):
            ready = self.some(ready)
        return ready if self.fits(view, {}, ready, gone) else []

    def chunks(self, view, gone, decoders):
        """Random chunks of requests in prefill, of new ones and perhaps of evicted ones."""
        begun = [r for r in view.running if r not in gone and view.to_prefill(r)]
        again = [r for r in gone if self.on("again")]
        fresh = self.possible(view) + again
        order = self.random.sample(begun + fresh, len(begun + fresh))
        if self.on("drain") and view.running:
            order = [request for request in order if request in begun]
        chunks = {}
        for request in order[: self.random.choice((1, 2, 3, len(order)))]:
            most = self.left(view, request, gone)
            if self.on("chunk"):
                most = self.random.randint(1, most)
            size = self.largest(view, request, chunks, decoders, gone, most)
            if size:
                chunks[request] = size
        return chunks

    def prefill(self, view, chunks, gone, decoders, mixed):
        requests = list(chunks)
        tokens = [chunks[request] for request in requests]
        whole = all(chunks[r] == self.left(view, r, gone) for r in requests)
        if whole and self.on("none"):
            tokens = None
        everyone = mixed and sorted(decoders) == sorted(self.ready(view, gone))
        decode = None if everyone and self.on("none") else decoders
        return Step(requests, tokens, self.clients(view, requests, gone), decode, preempt=gone)

    def clients(self, view, requests, gone):
        new = [r for r in requests if r not in view.running or r in gone]
        if not self.on("clients"):
            return None
        taken = [client for r, client in view.running.items() if r not in gone]
        free = [client for client in range(view.worker.clients) if client not in taken]
        return self.random.sample(free, len(new))

    def decode(self, view, gone):
        ready = self.ready(view, gone)
        rounds = self.random.choice((1, 1, 2, 3, 5, FOREVER))
        until = self.random.choice(EVENTS)
        if ready and self.fits(view, {}, ready, gone) and self.on("hold"):
            until = self.random.choice((0, 0, until))
            return Step(rounds=rounds, until=until, preempt=gone, hold=True)
        part = self.on("part")
        if part:
            ready = self.some(ready)
        if not ready or not self.fits(view, {}, ready, gone):
            return None
        return Step(decode=ready if part else None, rounds=rounds, until=until, preempt=gone)


class Assigning(Anything):
    """Says of each arrival that it concerns some worker, or all of them."""

    assigns = True

    def on_arrival(self, view, request):
        super().on_arrival(view, request)
        return self.random.choice((None, *range(len(view.workers))))


class TokenBudget(Sharing):
    """Mixed steps: all that can decode beside chunks up to a budget, the oldest first."""

    name = "token-budget"

    def choose(self, view):
        decoders = self.ready(view)
        if not self.fits(view, {}, decoders):
            return self.advance(view)
        budget = self.random.choice((1, 3, 8, 20)) - len(decoders)
        begun = [r for r in view.running if view.to_prefill(r)]
        chunks = {}
        for request in begun + sorted(self.possible(view), key=lambda r: self.rank(view, r)):
            most = budget - sum(chunks.values())
            if most < 1:
                break
            if size := self.largest(view, request, chunks, decoders, (), most):
                chunks[request] = size
        if chunks:
            return Step(list(chunks), list(chunks.values()))
        return decode_rounds(FOREVER, ARRIVAL | FINISH) if decoders else self.advance(view)


class Batches(Sharing):
    """Static batches: fill the clients, then rounds until all are done or a slice is over. After it
    those that are not done are evicted and wait for a place in a later batch (anywhere), at once or
    beside the prefill of the next one."""

    def __init__(self, seed, slices=()):
        super().__init__(seed)
        self.slices = slices

    def choose(self, view):
        begun = {r: view.to_prefill(r) for r in view.running if view.to_prefill(r)}
        ready = self.ready(view)
        if begun:  # part of a batch, alone: its prefill is longer than the cap
            return self.advance(view)
        if ready and not self.sliced(view):
            if not self.fits(view, {}, ready):
                return self.advance(view)
            rounds = self.random.choice(self.slices) if self.slices else FOREVER
            self.served[view.index] = True
            return batch_rounds(rounds)
        gone = list(view.running)
        self.served[view.index] = False
        if gone and self.random.random() < 0.5:
            return evict(gone)
        return self.batch(view, gone) or (evict(gone) if gone else self.advance(view))

    def start(self, view):
        super().start(view)
        self.served = [False] * len(view.workers)

    def sliced(self, view):
        return bool(self.slices) and self.served[view.index]

    def batch(self, view, gone):
        """Whole prefills of waiting requests that fit together, beside the eviction of others."""
        chunks = {}
        order = self.possible(view)
        for request in self.random.sample(order, len(order)):
            more = {**chunks, request: self.left(view, request, gone)}
            if self.fits(view, more, list(more), gone):
                chunks = more
        return Step(list(chunks), decode=(), preempt=gone) if chunks else None


class Wild(Anything):
    """Does anything, and now and then what may be impossible."""

    def choose(self, view):
        step = super().choose(view)
        if not self.on("wild"):
            return step
        step = step if isinstance(step, Step) else Step()
        for field in self.random.sample(Step._fields, self.random.choice((1, 1, 2, 3))):
            step = step._replace(**{field: self.invented(view, field, step)})
        return step._replace(rounds=1) if step.prefill else step

    def invented(self, view, field, step):
        """A value for a field of a step that may be wrong."""
        draw, n = self.random, len(view.prompt_tokens)
        length = draw.choice((0, 1, 1, 2, 3))
        if field == "hold":
            return not step.hold
        if field == "until":
            return draw.choice(EVENTS)
        if field == "rounds":
            return draw.choice((-1, 0, 1, 2, FOREVER))
        if field in ("tokens", "clients", "decode") and draw.random() < 0.3:
            return None
        if field == "tokens":
            return [draw.randint(0, 9) for _ in step.prefill[: draw.choice((1, None))]]
        if field == "clients":
            return [draw.randint(-1, view.worker.clients) for _ in range(length)]
        known = draw.choice((list(view.running), self.waiting, range(-1, n + 1))) or range(n)
        return [draw.choice(known) for _ in range(length)]


ALL = {
    "chunk": 0.5, "mix": 0.5, "part": 0.4, "evict": 0.3, "only": 0.5, "again": 0.3, "hold": 0.3,
    "wait": 0.1, "doze": 0.1, "rounds": 0.4, "none": 0.5, "clients": 0.3,
}  # fmt: skip

KINDS = {
    "chunks": {"chunk": 0.8, "rounds": 0.4, "none": 0.5},
    "mixed": {"chunk": 0.9, "mix": 0.9, "rounds": 0.2, "none": 0.6},
    "partial": {"part": 0.8, "rounds": 0.5, "mix": 0.4, "chunk": 0.4},
    "evictions": {"evict": 0.4, "only": 0.5, "again": 0.3, "rounds": 0.5, "clients": 0.3},
    "waits": {"wait": 0.3, "doze": 0.3, "rounds": 0.5},
    "holds": {"hold": 0.9, "rounds": 0.5, "drain": 0.7, "evict": 0.2},
    "anything": ALL,
    "assigning": {"rounds": 0.6, "chunk": 0.3, "mix": 0.3, "doze": 0.1, "hold": 0.1},
    "clairvoyant": ALL,
    "predicted": ALL,
}


def named(policy, name):
    policy.name = name
    if name in ("clairvoyant", "predicted"):
        policy.information = Information(name)
    return policy


def anything(kind, seed):
    return named((Assigning if kind == "assigning" else Anything)(seed, **KINDS[kind]), kind)


def wild(seed):
    return named(Wild(seed, **ALL, wild=0.2), "wild")


BATCHING = {
    **{kind: lambda seed, kind=kind: anything(kind, seed) for kind in KINDS},
    "token-budget": TokenBudget,
    "static": lambda seed: named(Batches(seed), "static"),
    "slices": lambda seed: named(Batches(seed, (1, 2, 5)), "slices"),
}
