"""A naive simulator: one engine iteration at a time, everything recomputed, scalar costs only.

It drives the same policy objects as ``orsched.simulator`` through the same views, and shares
nothing else with it. It is slow and meant to be read.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from orsched.policy import WorkerState
from orsched.schedule import Schedule, Steps, Work
from orsched.step import ARRIVAL, FINISH
from orsched.views import build_view


@dataclass
class Job:
    """A request and what has happened to it."""

    row: int
    prompt: int
    output: int
    arrival: int
    client: int = -1
    tokens: int = 0
    rounds: int = 0
    status: str = "future"  # future, waiting, running, finished


@dataclass
class Iteration:
    """One engine iteration: a prefill stage or a single decode round."""

    phase: str
    decision: int
    start: int
    end: int
    served: tuple[int, ...]


@dataclass
class Oracle:
    """One naive run; ``run`` returns its schedule."""

    instance: object
    policy: object
    now: int = 0
    decision: int = 0
    log: list[Iteration] = field(default_factory=list)

    def __post_init__(self):
        requests = self.instance.requests
        (self.worker,) = self.instance.workers
        self.jobs = [
            Job(row, int(prompt), int(output), int(arrival))
            for row, (prompt, output, arrival) in enumerate(
                zip(
                    requests.prompt_tokens,
                    requests.output_tokens,
                    requests.arrival_ns,
                    strict=True,
                )
            )
        ]
        self.state = WorkerState(
            self.worker, self.instance.first_token, self.instance.output_limit_tokens
        )
        self.view, self.hidden = build_view(self.instance, self.state, self.policy.information)

    def run(self):
        self.policy.start(self.view)
        self.deliver()
        while any(job.status != "finished" for job in self.jobs):
            step = self.policy.decide(self.view)
            if step is None:
                self.now = min(job.arrival for job in self.jobs if job.status == "future")
            else:
                self.decision += 1
                if step.prefill:
                    self.prefill(step)
                else:
                    self.decode(step)
            self.deliver()
        return self.schedule()

    def running(self):
        return [job for job in self.jobs if job.status == "running"]

    def show(self):
        """Bring what policies see up to date with what has happened."""
        state = self.state
        state.now_ns = self.now
        state.free_clients = self.worker.clients - len(self.running())
        state.client_request[:] = [-1] * self.worker.clients
        for job in self.running():
            state.client_request[job.client] = job.row
        state.blocks_used = sum(self.view.blocks_of(job.row) for job in self.running())

    def deliver(self):
        self.show()
        due = [job for job in self.jobs if job.status == "future" and job.arrival <= self.now]
        for job in sorted(due, key=lambda job: (job.arrival, job.row)):
            job.status = "waiting"
            for shown, truth in self.hidden:
                shown[job.row] = truth[job.row]
            self.policy.on_arrival(self.view, job.row)

    def prefill(self, step):
        chosen = [self.jobs[row] for row in step.prefill]
        free = [c for c in range(self.worker.clients) if self.state.client_request[c] == -1]
        clients = free[: len(chosen)] if step.clients is None else step.clients
        for job, client in zip(chosen, clients, strict=True):
            job.status, job.client = "running", client
            self.state.running[job.row] = client
            self.state.start_round[job.row] = self.state.rounds
        self.iterate("prefill", chosen, self.worker.cost.prefill_ns([j.prompt for j in chosen]))
        if self.instance.first_token == "prefill":
            self.yield_tokens(chosen)

    def decode(self, step):
        rounds = 0
        while True:
            active = self.running()
            for job in active:
                job.rounds += 1
            contexts = [job.prompt + job.rounds for job in active]
            self.state.rounds += 1
            duration = self.worker.cost.round_ns(len(active), sum(contexts), max(contexts))
            self.iterate("decode", active, duration)
            finished = self.yield_tokens(active)
            rounds += 1
            arrived = any(job.status == "future" and job.arrival <= self.now for job in self.jobs)
            if (
                rounds == step.rounds
                or (finished and step.until & FINISH)
                or (arrived and step.until & ARRIVAL)
                or not self.running()
            ):
                return

    def iterate(self, phase, served, duration):
        rows = tuple(job.row for job in served)
        self.log.append(Iteration(phase, self.decision, self.now, self.now + duration, rows))
        self.now += duration
        self.show()

    def yield_tokens(self, served):
        """Give each served request one token; say if any of them is done."""
        for job in served:
            job.tokens += 1
        order = list(self.state.running)  # first tokens are told in the order of admission
        for row in sorted((j.row for j in served if j.tokens == 1), key=order.index):
            self.policy.on_first_token(self.view, row)
        finished = [job for job in served if job.tokens == job.output]
        if self.log[-1].phase == "decode":
            finished.sort(key=lambda job: job.row)
        for job in finished:
            job.status = "finished"
            del self.state.running[job.row]
            del self.state.start_round[job.row]
            self.show()
            self.policy.on_finish(self.view, job.row, job.client)
        return bool(finished)

    def schedule(self):
        """Merge the rounds of one decision that serve the same requests into one step."""
        merged = []
        for iteration in self.log:
            last = merged[-1][-1] if merged else None
            if (
                last is not None
                and iteration.phase == last.phase == "decode"
                and iteration.decision == last.decision
                and set(iteration.served) == set(last.served)
            ):
                merged[-1].append(iteration)
            else:
                merged.append([iteration])
        steps = Steps(
            worker=[0] * len(merged),
            phase=[int(group[0].phase == "decode") for group in merged],
            start_ns=[group[0].start for group in merged],
            end_ns=[group[-1].end for group in merged],
            rounds=[len(group) for group in merged],
        )
        rows = []
        for job in self.jobs:
            for code, phase in enumerate(("prefill", "decode")):
                serving = [
                    index
                    for index, group in enumerate(merged)
                    if group[0].phase == phase and job.row in group[0].served
                ]
                if serving:
                    tokens = job.prompt if phase == "prefill" else 1
                    rows.append((job.row, job.client, code, serving[0], serving[-1], tokens))
        columns = np.array(rows, np.int64).reshape(-1, 6).T
        return Schedule(
            instance_sha256=self.instance.sha256,
            steps=steps,
            work=Work(*columns),
            method=self.policy.name,
            information=self.policy.information.value,
            instance_name=self.instance.name,
        )


def oracle(instance, policy):
    """Run a policy naively and return its schedule."""
    return Oracle(instance, policy).run()
