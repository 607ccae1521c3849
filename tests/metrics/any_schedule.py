"""Random valid schedules of every kind: workers, stays, chunks, mixed steps, paused and held."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from orsched import AffineCost, BlockMemory, Instance, Requests, Worker
from orsched.costs.protocol import mixed_ns
from orsched.data.schedule import DECODE, INVALID, MIXED, PREFILL, Schedule, Steps, Work
from tests.in_order import in_order
from tests.simulator.instances import ContextCost


def any_instance(seed, *, workers=None, requests=None):
    """A small instance whose workers differ in everything."""
    draw = random.Random(seed)
    n = draw.randint(0, 9) if requests is None else requests
    owners = [
        Worker(
            draw.randint(1, 4),
            draw.choice(
                [
                    in_order(AffineCost, 30, 2, 17, 5),
                    ContextCost(),
                    in_order(AffineCost, 0, 0, 3, 0),
                ]
            ),
            memory=draw.choice(
                [
                    None,
                    BlockMemory(10**6, draw.randint(1, 5), "whole"),
                    BlockMemory(10**6, draw.randint(1, 9), "paged"),
                ]
            ),
            name=f"worker-{k}",
            padding=draw.random() < 0.4,
        )
        for k in range(draw.randint(1, 3) if workers is None else workers)
    ]
    table = Requests(
        [draw.randint(1, 9) for _ in range(n)],
        [draw.randint(1, 8) for _ in range(n)],
        arrival_ns=[draw.choice([0, draw.randint(0, 900)]) for _ in range(n)],
    )
    return Instance(table, tuple(owners), first_token=draw.choice(["decode", "prefill"]))


@dataclass
class _Job:
    """A request on its way."""

    row: int
    prompt: int
    output: int
    free_at: int
    yielded: int = 0
    stay: int = -1
    worker: int = -1
    client: int = -1
    prefilled: int = 0
    cached: int = 0
    target: int = 0
    rows: list = field(default_factory=list)

    @property
    def done(self):
        return self.yielded == self.output


class _Maker:
    def __init__(self, instance, seed):
        self.instance, self.draw = instance, random.Random(seed + 10**6)
        table = instance.requests
        columns = (table.prompt_tokens, table.output_tokens, table.arrival_ns)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        self.jobs = [_Job(k, *row) for k, row in enumerate(rows)]
        self.now = [0] * len(instance.workers)
        self.steps = []
        self.decoded = [-1] * len(instance.workers)  # the worker's last decode or mixed step
        self.hold = [self.draw.random() < 0.5 for _ in instance.workers]
        self.chunks = [self.draw.random() < 0.7 for _ in instance.workers]

    def on(self, worker):
        return [job for job in self.jobs if job.worker == worker]

    def run(self):
        while any(not job.done for job in self.jobs):
            worker = min(range(len(self.now)), key=lambda w: (self.now[w], w))
            if self.draw.random() < 0.1:
                self.now[worker] += self.draw.randint(1, 60)
            else:
                self.turn(worker)
        order = sorted(range(len(self.steps)), key=lambda k: (self.steps[k][2], self.steps[k][0]))
        place = {k: p for p, k in enumerate(order)}
        rows = [
            (*row[:3], place[row[3]], place[row[4]], *row[5:])
            for job in self.jobs
            for row in job.rows
        ]
        return Schedule(
            self.instance.sha256,
            in_order(Steps, *map(list, zip(*(self.steps[k] for k in order), strict=True)))
            if order
            else in_order(Steps, [], [], [], [], []),
            Work(*map(list, zip(*rows, strict=True))) if rows else Work([], [], [], [], [], []),
            method="drawn",
            information="clairvoyant",
        )

    def turn(self, worker):
        draw, now = self.draw, self.now[worker]
        for job in self.on(worker):
            # A request that is done leaves sooner or later; others are evicted now and then.
            if draw.random() < (0.3 if job.done else 0.08):
                job.worker, job.free_at = -1, now
        self.admit(worker)
        present = self.on(worker)
        to_prefill = [job for job in present if job.prefilled < job.target]
        if not self.chunks[worker]:
            chosen = to_prefill
        else:
            chosen = [job for job in to_prefill if draw.random() < 0.7]
        ready = [job for job in present if job.prefilled == job.target and not job.done]
        decode = ready if draw.random() < 0.6 else [j for j in ready if draw.random() < 0.6]
        if chosen and draw.random() < 0.5:
            decode = []
        held = [job for job in present if job.done] if decode else []
        if not chosen and not decode:
            self.now[worker] += draw.randint(1, 50)
            return
        self.take(worker, chosen, decode, held)

    def admit(self, worker):
        used = {job.client for job in self.on(worker)}
        free = [c for c in range(self.instance.workers[worker].clients) if c not in used]
        for job in self.jobs:
            waits = job.worker < 0 and not job.done and job.free_at <= self.now[worker]
            if waits and free and self.draw.random() < 0.7:
                job.worker, job.client = worker, free.pop(self.draw.randrange(len(free)))
                job.target, job.prefilled, job.cached = job.prompt + job.yielded, 0, 0
                job.stay = job.rows[-1][6] + 1 if job.rows else 0

    def take(self, worker, chosen, decode, held):
        owner, draw, index = self.instance.workers[worker], self.draw, len(self.steps)
        tokens = []
        for job in chosen:
            left = job.target - job.prefilled
            tokens.append(draw.randint(1, left) if self.chunks[worker] else left)
        active = [*decode, *held]
        rounds = 1
        if decode and not chosen:
            rounds = draw.randint(1, min(job.output - job.yielded for job in decode))
        duration = self.duration(owner, chosen, tokens, active, rounds)
        phase = MIXED if chosen and decode else PREFILL if chosen else DECODE
        now = self.now[worker]
        self.now[worker] = now + duration
        self.steps.append((worker, phase, now, now + duration, rounds))
        for job, count in zip(chosen, tokens, strict=True):
            job.prefilled += count
            job.cached += count
            job.rows.append((job.row, job.client, PREFILL, index, index, count, job.stay))
            if job.prefilled == job.target and self.instance.first_token == "prefill":
                self.give(job, 1)
        for job in active:
            kind = INVALID if job in held else DECODE
            self.extend(job, kind, index, self.decoded[worker])
            job.cached += rounds
            if kind == DECODE:
                self.give(job, rounds)
        if decode:
            self.decoded[worker] = index

    def give(self, job, tokens):
        job.yielded += tokens
        if job.done and not self.hold[job.worker]:
            job.worker = -1

    def extend(self, job, kind, index, before):
        last = job.rows[-1]
        joins = last[2] == kind and last[6] == job.stay and last[4] == before
        if joins and self.draw.random() < 0.9:
            job.rows[-1] = (*last[:4], index, *last[5:])
        else:
            job.rows.append((job.row, job.client, kind, index, index, 1, job.stay))

    def duration(self, owner, chosen, tokens, active, rounds):
        before = [job.prefilled for job in chosen]
        if owner.padding and tokens:
            tokens = [max(tokens)] * len(tokens)
        if not active:
            return mixed_ns(owner.cost, tokens, 0, 0, 0, before)
        total = 0
        for k in range(1, rounds + 1):
            contexts = [job.cached + k for job in active]
            longest = max(contexts)
            whole = len(active) * longest if owner.padding else sum(contexts)
            if tokens:
                total += mixed_ns(owner.cost, tokens, len(active), whole, longest, before)
            else:
                total += owner.cost.round_ns(len(active), whole, longest)
        return total


def any_schedule(seed, **options):
    """Return a random instance and a random valid schedule for it."""
    instance = any_instance(seed, **options)
    return instance, _Maker(instance, seed).run()
