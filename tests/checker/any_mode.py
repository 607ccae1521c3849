"""Random valid schedules of all batching modes: an engine without a policy, driven by dice."""

from dataclasses import dataclass

import numpy as np

from orsched import BlockMemory, Instance, Requests, Schedule, Steps, Work, Worker
from orsched.costs import AffineCost, BilinearCost, LevelsCost, PoolingCost, RooflineCost, mixed_ns
from tests.in_order import in_order
from tests.simulator.instances import ContextCost

PREFILL, DECODE, MIXED, INVALID = 0, 1, 2, 2
NS = 10**6  # femtoseconds
COSTS = (
    in_order(AffineCost, 30, 2, 17, 5),
    in_order(AffineCost, 0, 0, 0, 0),
    ContextCost(),
    LevelsCost(levels=((4, 11), (30, 40), (200, 90)), round_fixed_ns=13),
    in_order(BilinearCost, 2 * NS, 3 * NS, NS // 3, 5 * NS, NS // 7, NS, 3 * NS, 4 * NS),
    in_order(PoolingCost, NS // 5, 2 * NS, 9 * NS, 3 * NS, NS // 3, 1_300_000),
    in_order(RooflineCost, 2 * NS, 40 * NS + 1, 3 * NS, NS // 3, NS // 5),
)


def random_instance(dice, most=6):
    """A small instance with one to three workers, all different."""
    n = int(dice.integers(1, most + 1))
    prompts, outputs = dice.integers(1, 8, n), dice.integers(1, 7, n)
    arrivals = dice.integers(0, dice.choice([1, 100, 400]), n)
    workers = []
    for index in range(dice.integers(1, 4)):
        memory, size = None, int(dice.integers(1, 6))
        if dice.random() < 0.7:
            least = -(-(7 + 6) // size)
            blocks = int(dice.integers(least, 3 * least))
            memory = BlockMemory(blocks, size, str(dice.choice(["whole", "paged", "paged"])))
        clients, cost = int(dice.integers(1, 4)), COSTS[dice.integers(len(COSTS))]
        cap = int(dice.integers(8, 20)) if dice.random() < 0.5 else None
        padding = bool(dice.random() < 0.4)
        workers.append(Worker(clients, cost, cap, memory, f"worker-{index}", padding=padding))
    rule = str(dice.choice(["decode", "prefill"]))
    requests = Requests(prompts, outputs, arrival_ns=arrivals)
    return Instance(requests, tuple(workers), first_token=rule)


@dataclass
class Job:
    """A request; ``since`` is when it can start a stay."""

    row: int
    prompt: int
    output: int
    since: int
    worker: int = -1
    client: int = -1
    stay: int = -1
    due: int = 0
    prefilled: int = 0
    rounds: int = 0
    yielded: int = 0

    @property
    def cache(self):
        return self.prefilled + self.rounds

    @property
    def ready(self):
        return self.prefilled == self.due


class Dice:
    """An engine that does whatever the dice say, as long as it is allowed."""

    def __init__(self, seed, most=6, instance=None):
        self.dice = np.random.default_rng(seed)
        self.instance = random_instance(self.dice, most) if instance is None else instance
        columns = self.instance.requests
        rows = zip(columns.prompt_tokens, columns.output_tokens, columns.arrival_ns, strict=True)
        self.jobs = [Job(row, *map(int, values)) for row, values in enumerate(rows)]
        self.free_at = [0] * len(self.instance.workers)
        self.steps, self.shares, self.turns = [], [], 0

    def run(self):
        """Return the instance and a schedule of it."""
        while any(job.yielded < job.output for job in self.jobs):
            self.turns += 1
            worker = int(np.argmin(self.free_at))
            if not self.take(worker):
                self.free_at[worker] += int(self.dice.integers(1, 60))
        return self.instance, self.schedule()

    def on(self, worker):
        return [job for job in self.jobs if job.worker == worker]

    def some(self, jobs, likely=0.6):
        return [job for job in jobs if self.dice.random() < likely]

    def take(self, worker):
        """Let a worker do a step that is allowed; say if it did."""
        now = self.free_at[worker]
        in_a_hurry = self.turns > 200
        for job in self.some(self.on(worker), 0.7 if in_a_hurry else 0.05):
            self.leave(job, now)
        kind = self.dice.choice([PREFILL, DECODE, MIXED, MIXED])
        chunks = self.chunks(worker, now, in_a_hurry) if kind != DECODE else []
        ready = [job for job in self.on(worker) if job.ready and job.yielded < job.output]
        chosen = [job for job, _ in chunks]
        ready = [job for job in self.some(ready, 0.8) if job not in chosen]
        if kind == PREFILL or (kind == MIXED and not (chunks and ready)):
            ready = []
        if not chunks and not ready:
            return False
        if not self.fits(worker, chunks, ready):
            for job, _ in chunks:
                if job.prefilled == 0:
                    self.never_mind(job)
            return False
        hold = not chunks and self.dice.random() < 0.6
        self.play(worker, chunks, ready, hold)
        return True

    def chunks(self, worker, now, in_a_hurry):
        spec = self.instance.workers[worker]
        taken = {job.client for job in self.on(worker)}
        free = [client for client in range(spec.clients) if client not in taken]
        self.dice.shuffle(free)
        chunks = []
        for job in self.jobs:
            waiting = job.worker < 0 and job.since <= now and job.yielded < job.output
            new = waiting and free and self.dice.random() < 0.6
            if not new and not (job.worker == worker and not job.ready):
                continue
            due = job.prompt + job.yielded if new else job.due
            left = due - (0 if new else job.prefilled)
            whole = in_a_hurry or self.dice.random() < 0.5
            tokens = left if whole else int(self.dice.integers(1, left + 1))
            lengths = [*(other for _, other in chunks), tokens]
            total = max(lengths) * len(lengths) if spec.padding else sum(lengths)
            if spec.prefill_limit is not None and total > spec.prefill_limit:
                continue
            if new:
                job.worker, job.client, job.stay, job.due = worker, free.pop(), job.stay + 1, due
            chunks.append((job, tokens))
        return chunks

    def never_mind(self, job):
        job.worker, job.stay = -1, job.stay - 1

    def leave(self, job, now):
        job.worker, job.since = -1, now
        job.prefilled = job.rounds = job.due = 0

    def fits(self, worker, chunks, ready):
        """Whether the memory holds all caches after a round of the step."""
        spec = self.instance.workers[worker]
        memory = spec.memory
        if memory is None:
            return True
        more = {job.row: tokens for job, tokens in chunks} | {job.row: 1 for job in ready}
        held = [job.cache + more.get(job.row, 0) for job in self.on(worker)]
        if memory.allocation == "whole":
            held = [job.prompt + job.output for job in self.on(worker)]
        elif spec.padding:
            held = [max(held)] * len(held)
        return sum(-(-tokens // memory.block_tokens) for tokens in held) <= memory.blocks

    def play(self, worker, chunks, active, hold):
        """A step, and as long as a static batch is held further ones."""
        rounds = 1 if chunks else int(self.dice.integers(1, 8))
        done = []
        while rounds and any(job.yielded < job.output for job in active or [chunks[0][0]]):
            going = [job for job in active if job.yielded < job.output]
            count = min([rounds, *(job.output - job.yielded for job in going)])
            counts = (c for c in range(count, 0, -1) if self.room(worker, active, c, chunks))
            if (count := next(counts, 0)) == 0:
                break
            self.step(worker, chunks, active, count)
            rounds -= count
            done = [job for job in self.on(worker) if job.yielded == job.output]
            if chunks or not hold:
                break
        for job in done:
            self.leave(job, self.free_at[worker])

    def room(self, worker, active, count, chunks):
        for job in active:
            job.rounds += count - 1
        fits = self.fits(worker, chunks, active)
        for job in active:
            job.rounds -= count - 1
        return fits

    def step(self, worker, chunks, active, count):
        spec, start = self.instance.workers[worker], self.free_at[worker]
        phase = DECODE if not chunks else MIXED if active else PREFILL
        lengths, shares, now = [tokens for _, tokens in chunks], [], start
        before = [job.prefilled for job, _ in chunks]
        for job, tokens in chunks:
            shares.append((job.row, job.client, PREFILL, tokens, job.stay))
        for job in active:
            mine = DECODE if job.yielded < job.output else INVALID
            shares.append((job.row, job.client, mine, 1, job.stay))
            job.yielded += count if mine == DECODE else 0
        for _ in range(count):
            for job in active:
                job.rounds += 1
            contexts = [job.cache for job in active]
            if spec.padding:
                lengths = [max(lengths)] * len(lengths) if lengths else []
                contexts = [max(contexts)] * len(contexts) if contexts else []
            load = len(contexts), sum(contexts), max(contexts, default=0)
            now += mixed_ns(spec.cost, lengths, *load, before)
        for job, tokens in chunks:
            job.prefilled += tokens
            if job.ready and self.instance.first_token == "prefill":
                job.yielded += 1
        self.steps.append((worker, phase, start, now, count))
        self.shares.append(shares)
        self.free_at[worker] = now

    def schedule(self):
        starts = [(start, worker, k) for k, (worker, _, start, *_) in enumerate(self.steps)]
        order = [k for *_, k in sorted(starts)]
        rows, places = [], {}  # the last row of a request, and the round step of its worker then
        counts = [0] * len(self.instance.workers)
        for number, k in enumerate(order):
            worker, phase = self.steps[k][:2]
            counts[worker] += phase != PREFILL
            for request, client, kind, tokens, stay in self.shares[k]:
                row, then = places.get(request, (None, -1))
                same = row is not None and kind != PREFILL and (row[2], row[6]) == (kind, stay)
                if same and then == counts[worker] - 1 and self.dice.random() < 0.8:
                    row[4] = number
                else:
                    row = [request, client, kind, number, number, tokens, stay]
                    rows.append(row)
                places[request] = (row, counts[worker])
        rows.sort(key=lambda row: (row[0], row[3]))
        work = Work(*np.array(rows, np.int64).reshape(-1, 7).T)
        steps = np.array([self.steps[k] for k in order], np.int64).reshape(-1, 5).T
        steps = in_order(Steps, *steps)
        return Schedule(self.instance.sha256, steps, work, "dice", "clairvoyant")


def random_schedule(seed, most=6):
    """Return an instance and a valid schedule of it, both made by dice."""
    return Dice(seed, most).run()
