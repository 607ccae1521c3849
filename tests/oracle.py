"""A naive simulator: one engine iteration at a time, everything recomputed, scalar costs only.

It drives the same policy objects as ``orsched.simulator`` and shares nothing with it but the
definitions of steps, schedules and cost models. It is slow and meant to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from orsched import Information, PolicyError, Schedule, Steps, Work
from orsched.costs import mixed_ns
from orsched.data.step import ARRIVAL, FINISH, Wait
from tests.simulator.naive_view import VIEWS

PREFILL, DECODE, MIXED, INVALID = 0, 1, 2, 2
ASLEEP = None


@dataclass
class Job:
    """A request and what its policy has been told to have happened to it."""

    row: int
    prompt: int
    output: int
    arrival: int
    predicted: int
    status: str = "future"  # future, waiting, running, finished
    worker: int = -1
    client: int = -1
    stay: int = -1
    since: int = -1  # admissions of all requests before this stay
    target: int = 0  # tokens that this stay has to prefill
    prefilled: int = 0  # of them done
    rounds: int = 0  # decode rounds of this stay
    yielded: int = 0  # tokens over all stays

    @property
    def ready(self):
        return self.prefilled == self.target


@dataclass
class Share:
    """What a request has of an iteration: a chunk of its prefill, a token, or an invalid one."""

    job: Job
    phase: int
    tokens: int
    client: int
    stay: int
    yields: bool  # a token of the answer


@dataclass
class Iteration:
    """One engine iteration of a worker."""

    worker: int
    start: int
    end: int
    shares: list[Share]
    finished: list[Job]

    @property
    def phase(self):
        prefills = {share.phase == PREFILL for share in self.shares}
        return MIXED if len(prefills) == 2 else PREFILL if prefills == {True} else DECODE

    def key(self):
        return {(share.job.row, share.phase) for share in self.shares}


@dataclass
class Oracle:
    """One naive run; ``run`` returns its schedule."""

    instance: object
    policy: object
    now: int = 0
    admissions: int = 0
    log: list[list[Iteration]] = field(default_factory=list)

    def __post_init__(self):
        requests = self.instance.requests
        predicted = requests.predicted_tokens
        columns = [requests.prompt_tokens, requests.output_tokens, requests.arrival_ns]
        columns.append(requests.arrival_ns * 0 if predicted is None else predicted)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self.jobs = [Job(row, *values) for row, values in enumerate(rows)]
        self.workers = self.instance.workers
        self.information = Information(self.policy.information)
        self.assigns = self.policy.assigns and len(self.workers) > 1
        self.rounds = [0] * len(self.workers)
        self.held = [[] for _ in self.workers]
        self.views = tuple(
            VIEWS[self.information](self, index) for index in range(len(self.workers))
        )
        # Of each worker: the step it does and the runs of it that are left, or until when it
        # sleeps; nothing: it is to be asked.
        self.doing = {}
        self.sleeping = {}
        self.to_ask = set()
        self.first = None  # the worker whose event it is, which is asked before the others

    # -- the clock ------------------------------------------------------------------------

    def run(self):
        self.policy.start(self.views[0])
        self.to_ask = set(range(len(self.workers)))
        self.deliver(self.views[0])
        while any(job.status != "finished" for job in self.jobs):
            if self.to_ask:
                index = self.first if self.first in self.to_ask else min(self.to_ask)
                self.first = None
                self.to_ask.remove(index)
                self.ask(index)
            else:
                self.go_on()
        return self.schedule()

    def go_on(self):
        """Go to the next moment at which anything happens, and let one thing happen."""
        ends = {index: runs[0][-1].end for index, (_, runs) in self.doing.items()}
        alarms = {index: until for index, until in self.sleeping.items() if until is not ASLEEP}
        arrivals = [job.arrival for job in self.jobs if job.status == "future"]
        told = self.sleeping or self.assigns  # else they are told at the next border of a step
        moments = [*ends.values(), *alarms.values(), *(arrivals if told else [])]
        if not moments:
            raise PolicyError("all workers wait, and nothing will happen")
        self.now = max(self.now, min(moments))
        due = [index for index, moment in [*ends.items(), *alarms.items()] if moment <= self.now]
        if not due:
            self.deliver(self.views[min(self.sleeping, default=0)])
        elif min(due) in self.sleeping or self.tell(min(due)):
            self.sleeping.pop(min(due), None)
            self.first = min(due)
            self.to_ask.add(min(due))
            self.deliver(self.views[min(due)])

    def deliver(self, view):
        """Tell all arrivals up to now, which wake the workers that sleep, and end rounds."""
        due = [job for job in self.jobs if job.status == "future" and job.arrival <= self.now]
        for job in sorted(due, key=lambda job: (job.arrival, job.row)):
            job.status = "waiting"
            concerned = self.policy.on_arrival(view, job.row)
            if self.assigns:
                for index in list(self.doing) if concerned is None else [concerned]:
                    self.interrupt(index)
        if due:
            self.wake()

    def interrupt(self, index):
        """Let rounds that arrivals end stop after the first one that is over now or later."""
        step, runs = self.doing.get(index, (None, []))
        if step is not None and step.until & ARRIVAL:
            left = [iteration for run in runs for iteration in run]
            last = [iteration.end >= self.now for iteration in left].index(True)
            self.doing[index] = (step, in_runs(left[: last + 1]))

    def wake(self):
        self.to_ask |= set(self.sleeping)
        self.sleeping.clear()

    def ask(self, index):
        answer = self.policy.decide(self.views[index])
        if answer is None:
            self.sleeping[index] = ASLEEP
        elif isinstance(answer, Wait):
            if answer.until_ns <= self.now:
                raise PolicyError("a wait that is over")
            self.sleeping[index] = answer.until_ns
        else:
            self.take(index, answer)

    # -- a step begins ----------------------------------------------------------------------

    def take(self, index, step):
        self.evict(index, step)
        if step.preempt and not step.prefill and step.decode is not None and not len(step.decode):
            self.first = index
            self.to_ask.add(index)
            return
        chunks = self.admit(index, step) if step.prefill else []
        decoders = self.decoders(index, step, chunks)
        if not chunks and not decoders:
            raise PolicyError("a step for nobody")
        self.doing[index] = (step, in_runs(self.play(index, step, chunks, decoders)))

    def evict(self, index, step):
        if len(set(step.preempt)) < len(step.preempt):
            raise PolicyError("a request is evicted twice")
        for job in [self.job(row) for row in step.preempt]:
            if job.worker != index:
                raise PolicyError(f"request {job.row} cannot be evicted: it is not here")
            self.leave(job, "waiting")
            self.policy.on_preempt(self.views[index], job.row)
        if step.preempt:
            self.wake()

    def leave(self, job, status):
        job.status, job.worker, job.client = status, -1, -1
        job.target = job.prefilled = job.rounds = 0

    def admit(self, index, step):
        """Put new requests on clients; return the chunks of prefill in order."""
        jobs = [self.job(row) for row in step.prefill]
        if len({job.row for job in jobs}) < len(jobs):
            raise PolicyError("a request is prefilled twice in a step")
        new = [job for job in jobs if job.worker != index]
        if elsewhere := [job for job in new if job.status != "waiting"]:
            raise PolicyError(f"request {elsewhere[0].row} is {elsewhere[0].status}")
        taken = {job.client for job in self.on(index)}
        free = [client for client in range(self.workers[index].clients) if client not in taken]
        if step.clients is not None and len(step.clients) != len(new):
            raise PolicyError("not one client for each new request")
        if len(new) > len(free):
            raise PolicyError("too few free clients")
        clients = free[: len(new)] if step.clients is None else step.clients
        for job, client in zip(new, clients, strict=True):
            if client not in free:
                raise PolicyError(f"client {client} is not free")
            free.remove(client)
            job.status, job.worker, job.client = "running", index, client
            job.target = job.prompt + job.yielded
            job.stay += 1
            job.since = self.admissions = self.admissions + 1
        left = [job.target - job.prefilled for job in jobs]
        tokens = left if step.tokens is None else step.tokens
        if len(tokens) != len(jobs):
            raise PolicyError("not one number of tokens for each request")
        for chunk, most in zip(tokens, left, strict=True):
            if not 1 <= chunk <= most:
                raise PolicyError(f"a chunk of {chunk} tokens, where {most} are left")
        padded = max(tokens, default=0) * len(tokens)
        total = padded if self.workers[index].padding else sum(tokens)
        limit = self.workers[index].prefill_limit
        if limit is not None and total > limit:
            raise PolicyError(f"{total} tokens are over the cap")
        return list(zip(jobs, tokens, strict=True))

    def decoders(self, index, step, chunks):
        """The requests that take part in the rounds of a step, oldest stay first."""
        if step.rounds < 1:
            raise PolicyError("no rounds")
        if chunks and step.rounds > 1:
            raise PolicyError("a step with prefill has one round")
        if step.hold and (chunks or step.decode is not None):
            raise PolicyError("a static batch decodes all, and nothing else")
        begun = [job for job, _ in chunks]
        ready = [job for job in self.on(index) if job.ready and job not in begun]
        if step.decode is None:
            return ready
        jobs = [self.job(row) for row in step.decode]
        if len({job.row for job in jobs}) < len(jobs) or any(job not in ready for job in jobs):
            raise PolicyError("a request that cannot decode, or twice")
        return [job for job in ready if job in jobs]

    def job(self, row):
        if not 0 <= row < len(self.jobs):
            raise PolicyError(f"request {row} does not exist")
        return self.jobs[row]

    # -- a step goes on ---------------------------------------------------------------------

    def play(self, index, step, chunks, decoders):
        """Return the iterations of a step, which its policy is told of run by run."""
        worker, memory = self.workers[index], self.workers[index].memory
        caches = {job.row: job.prefilled + job.rounds for job in self.on(index)}
        yielded = {job.row: job.yielded for job in self.on(index)}
        clock, played = self.now, []
        while True:
            for job, tokens in chunks:
                caches[job.row] += tokens
            for job in decoders:
                caches[job.row] += 1
            if memory is not None and self.blocks(index, caches) > memory.blocks:
                if not played:
                    raise PolicyError("memory is too small for this step: evict first")
                return played
            shares = self.shares(chunks, decoders, yielded)
            before = [job.prefilled for job, _ in chunks]
            contexts = [caches[job.row] for job in decoders]
            lengths = [tokens for _, tokens in chunks]
            duration = self.duration(worker, lengths, contexts, before)
            for share in shares:
                yielded[share.job.row] += share.yields
            finished = [s.job for s in shares if s.yields and yielded[s.job.row] == s.job.output]
            played.append(Iteration(index, clock, clock + duration, shares, finished))
            clock += duration
            if not step.hold:
                for job in finished:
                    del caches[job.row]
                decoders = [job for job in decoders if job not in finished]
            arrived = any(job.status == "future" and job.arrival <= clock for job in self.jobs)
            arrived = arrived and not self.assigns  # else it interrupts when it happens
            if (
                len(played) == step.rounds
                or (finished and step.until & FINISH)
                or (arrived and step.until & ARRIVAL)
                or all(yielded[job.row] == job.output for job in decoders)
            ):
                return played

    def shares(self, chunks, decoders, yielded):
        """Who does what in the next iteration."""
        shares = []
        for job, tokens in chunks:
            last = job.prefilled + tokens == job.target
            yields = last and self.instance.first_token == "prefill"
            shares.append(Share(job, PREFILL, tokens, job.client, job.stay, yields))
        for job in decoders:
            yields = yielded[job.row] < job.output
            phase = DECODE if yields else INVALID
            shares.append(Share(job, phase, 1, job.client, job.stay, yields))
        return shares

    def duration(self, worker, lengths, contexts, before):
        if worker.padding:
            lengths = [max(lengths)] * len(lengths) if lengths else []
            contexts = [max(contexts)] * len(contexts) if contexts else []
        longest = max(contexts, default=0)
        return mixed_ns(worker.cost, lengths, len(contexts), sum(contexts), longest, before)

    def blocks(self, index, caches):
        """Blocks that are taken when the stays on a worker have these cache tokens."""
        worker, memory = self.workers[index], self.workers[index].memory
        if memory.allocation == "whole":
            return sum(self.set_aside(index, self.jobs[row]) for row in caches)
        longest = max(caches.values(), default=0)
        counted = [longest if worker.padding else tokens for tokens in caches.values()]
        return sum(-(-tokens // memory.block_tokens) for tokens in counted)

    def knows(self, job):
        """Whether the policy may know of a request; of all if none arrives later than the start."""
        offline = all(job.arrival == 0 for job in self.jobs)
        return offline or job.status != "future" or self.information is Information.CLAIRVOYANT

    def set_aside(self, index, job):
        """Blocks of a request that is given all at once what it may need."""
        sighted = self.information is Information.CLAIRVOYANT
        most = job.output if sighted else self.instance.output_limit_tokens
        return -(-(job.prompt + most) // self.workers[index].memory.block_tokens)

    # -- a step ends ------------------------------------------------------------------------

    def tell(self, index):
        """Let everything happen that happened in a run, and tell its policy; is the step over?"""
        step, runs = self.doing[index]
        run, view = runs.pop(0), self.views[index]
        self.log.append(run)
        self.rounds[index] += sum(iteration.phase != PREFILL for iteration in run)
        fresh = []
        for share in [share for iteration in run for share in iteration.shares]:
            if share.phase == PREFILL:
                share.job.prefilled += share.tokens
            else:
                share.job.rounds += 1
            share.job.yielded += share.yields
            if share.yields and share.job.yielded == 1:
                fresh.append(share.job)
        for job in fresh:
            self.policy.on_first_token(view, job.row)
        if not runs:
            del self.doing[index]
        if not step.hold:
            self.release(view, self.in_order(run[-1]))
        else:
            self.held[index] += self.in_order(run[-1])
            if not runs:
                self.release(view, self.held[index])
                self.held[index] = []
        return not runs

    def in_order(self, iteration):
        """Who is done after an iteration: by a round by row, by prefill as the step names them."""
        prefilled = [s.job for s in iteration.shares if s.phase == PREFILL]
        by_prefill = [job for job in iteration.finished if job in prefilled]
        by_round = [job for job in iteration.finished if job not in prefilled]
        return sorted(by_round, key=lambda job: job.row) + by_prefill

    def release(self, view, jobs):
        for job in jobs:
            client = job.client
            self.leave(job, "finished")
            self.policy.on_finish(view, job.row, client)

    def on(self, index):
        """The requests on a worker, oldest stay first."""
        jobs = [job for job in self.jobs if job.worker == index]
        return sorted(jobs, key=lambda job: job.since)

    # -- the schedule -----------------------------------------------------------------------

    def schedule(self):
        groups = sorted(self.log, key=lambda run: (run[0].start, run[0].worker))
        steps = Steps(
            worker=[group[0].worker for group in groups],
            phase=[group[0].phase for group in groups],
            start_ns=[group[0].start for group in groups],
            end_ns=[group[-1].end for group in groups],
            rounds=[len(group) for group in groups],
        )
        rows = [row for job in self.jobs for row in self.rows(job, groups)]
        columns = np.array(rows, np.int64).reshape(-1, 7).T
        return Schedule(
            instance_sha256=self.instance.sha256, steps=steps, work=Work(*columns),
            method=self.policy.name, information=self.information.value,
            instance_name=self.instance.name,
        )  # fmt: skip

    def rows(self, job, groups):
        """The work of a request: a row a chunk, and one for each unbroken run of rounds."""
        rows, open_row = [], {}
        for number, group in enumerate(groups):
            worker = group[0].worker
            share = next((s for s in group[0].shares if s.job is job), None)
            if share is None:
                if group[0].phase != PREFILL:
                    open_row.pop(worker, None)
                continue
            key = (share.phase, share.stay)
            if share.phase != PREFILL and open_row.get(worker, (None, None))[0] == key:
                open_row[worker][1][4] = number
                continue
            tokens = share.tokens
            row = [job.row, share.client, share.phase, number, number, tokens, share.stay]
            open_row[worker] = (key, row)
            rows.append(row)
        # Steps that take no time leave open which stay was first: the number says it.
        return sorted(rows, key=lambda row: (row[6], row[3]))


def in_runs(iterations):
    """Part the iterations of a step where those that take part, or how they do, change."""
    runs = [[iterations[0]]]
    for iteration in iterations[1:]:
        if iteration.key() == runs[-1][-1].key():
            runs[-1].append(iteration)
        else:
            runs.append([iteration])
    return runs


def oracle(instance, policy):
    """Run a policy naively and return its schedule."""
    return Oracle(instance, policy).run()
