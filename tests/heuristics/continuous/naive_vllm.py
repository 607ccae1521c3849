"""vLLM V1's rules (0.33) read literally: every iteration, and every request in each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Live:
    row: int
    prompt: int
    output: int
    arrival: int
    key: tuple
    yielded: int = 0
    computed: int = 0
    prefills: bool = False  # whether it was in its prefill after the last step that served it

    @property
    def known(self):
        """Tokens that exist: prompt and yielded."""
        return self.prompt + self.yielded


@dataclass
class Naive:
    """The scheduler's state, and what it did: (request -> tokens, preempted) per iteration."""

    instance: object
    params: object
    key: object
    running: list = field(default_factory=list)
    waiting: list = field(default_factory=list)
    log: list = field(default_factory=list)

    def __post_init__(self):
        worker = self.instance.worker
        self.clients = worker.clients
        paged = worker.memory is not None and worker.memory.is_paged
        self.size = worker.memory.block_tokens if paged else 1
        self.blocks = worker.memory.blocks if paged else 10**9
        self.seats = min(self.clients, self.params.max_num_active_seqs or self.clients)
        self.steps, self.last, self.crowded = 0, -self.params.prefill_schedule_interval, False

    def held(self):
        return sum(-(-r.allocated // self.size) for r in self.running)

    def by_arrival(self):
        req = self.instance.requests
        columns = (req.prompt_tokens, req.output_tokens, req.arrival_ns)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        live = [Live(i, *values, self.key(i)) for i, values in enumerate(rows)]
        return sorted(live, key=lambda r: (r.arrival, r.row))

    def run(self, starts):
        """Run until all is done; ``starts`` are the start times of the iterations to expect."""
        todo = self.by_arrival()
        for start in starts:
            while True:
                while todo and todo[0].arrival <= start:
                    self.waiting.append(todo.pop(0))
                tokens, preempted = self.schedule()
                self.log.append((tokens, preempted))
                if tokens:
                    break
                if not preempted:
                    return
            self.update(tokens)
        assert not [*todo, *self.running, *self.waiting]

    def schedule(self):
        params, budget = self.params, self.params.budget
        tokens, preempted, place, prefilled = {}, [], 0, False
        number = len(self.running) + len(self.waiting)
        self.threshold = 0 if number == 1 else params.long_prefill_token_threshold
        if self.threshold and params.long_prefill_token_threshold_adaptive:
            self.threshold = max(self.threshold, params.max_num_batched_tokens // number)
        held = (
            not self.crowded
            and self.steps + 1 - self.last < params.prefill_schedule_interval
            and not all(r.prefills for r in self.running)
        )
        self.allocated = {r.row: r.computed for r in self.running}
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            new = 0 if held and request.prefills else self.wanted(request, budget)
            if not new:
                place += 1
                continue
            while not self.allocate(request, new):
                victim = self.running[-1]
                if params.policy == "priority":
                    victim = max(self.running, key=lambda r: r.key)
                budget += tokens.pop(victim.row, 0)
                place -= self.running.index(victim) < place
                self.running.remove(victim)
                del self.allocated[victim.row]
                victim.computed = 0
                self.waiting.insert(0, victim)
                preempted.append(victim.row)
                if victim is request:
                    break
            else:
                tokens[request.row] = new
                prefilled |= request.prefills
                budget -= new
                place += 1
        if not preempted:
            prefilled |= self.admit(tokens, budget, held)
            if not held:
                self.crowded = bool(self.waiting)
        self.steps += bool(tokens)
        if prefilled:
            self.last = self.steps
        for request in self.running:
            if request.row in tokens:
                done = request.computed + tokens[request.row]
                request.prefills = done < request.known
        return tokens, preempted

    def admit(self, tokens, budget, held):
        params, prefilled = self.params, False
        while self.waiting and budget > 0 and len(self.running) < self.seats:
            if params.policy == "priority":
                self.waiting.sort(key=lambda r: r.key)
            request = self.waiting[0]
            new = request.known
            if held and new > 1:
                break
            if 0 < self.threshold < new:
                new = self.threshold
            if not params.chunked_prefill and new > budget:
                break
            new = min(new, budget)
            water = params.watermark_blocks if self.running else 0
            if params.reserve_full_prompt and not self.fits(request, request.known, water):
                break
            if not self.fits(request, new, water):
                break
            self.allocated[request.row] = new
            self.running.append(self.waiting.pop(0))
            tokens[request.row] = new
            prefilled |= request.known > 1
            budget -= new
        return prefilled

    def wanted(self, request, budget):
        # prefill: what is not computed; decoding: the token of the round
        new = max(request.known - request.computed, 1)
        if 0 < self.threshold < new:
            new = self.threshold
        return min(new, budget)

    def fits(self, request, tokens, water=0):
        others = sum(-(-t // self.size) for row, t in self.allocated.items() if row != request.row)
        return others + -(-tokens // self.size) + water <= self.blocks

    def allocate(self, request, new):
        if not self.fits(request, request.computed + new):
            return False
        self.allocated[request.row] = request.computed + new
        return True

    def update(self, tokens):
        self.advance(tokens)
        self.running = [r for r in self.running if r.yielded < r.output]

    def advance(self, tokens):
        """Count what is computed; return those that have yielded their last token by it."""
        by_row, last = {r.row: r for r in self.running}, set()
        for row, new in tokens.items():
            request = by_row[row]
            decoding = self.decodes(request)
            request.computed += new
            first = self.instance.first_token == "prefill" and request.computed == request.known
            if decoding or first:
                request.yielded += 1
                last |= {row} if request.yielded == request.output else set()
        return last

    def decodes(self, request):
        """Whether the cache holds all that a round needs: the last token itself is not in it."""
        if self.instance.first_token == "decode":
            return request.computed >= request.known
        return request.yielded > 0 and request.computed == request.known - 1


class NaiveAsync(Naive):
    """The same with asynchronous scheduling: a step is planned when the one before it begins. What
    is scheduled counts as computed at once, and the token that will come of it as there, but for
    its end: a request goes when the step's result does."""

    def run(self, starts):
        todo = self.by_arrival()
        ahead = ({}, set())
        for start in starts:
            while todo and todo[0].arrival <= start:
                self.waiting.append(todo.pop(0))
            (tokens, done), lost = ahead, True
            while not tokens:  # nothing is in flight: all results are there
                assert lost
                (tokens, done), lost = self.planned()
            ahead, _ = self.planned()
            self.running = [r for r in self.running if r.row not in done]
            self.waiting = [r for r in self.waiting if r.row not in done]
        assert not [*ahead[0], *todo, *self.running, *self.waiting]

    def planned(self):
        """Plan a step; requests that are done and only lack their result are not preempted."""
        tokens, preempted = self.schedule()
        done = {r.row for r in self.waiting if r.yielded >= r.output}
        preempted = [row for row in preempted if row not in done]
        self.log.append((tokens, preempted))
        return (tokens, self.advance(tokens)), preempted

    def wanted(self, request, budget):
        return super().wanted(request, budget) if request.yielded < request.output else 0
