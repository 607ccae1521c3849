"""Policies that the simulator is compared with the oracle on: name -> function that makes one."""

import random

from orsched.data.step import ARRIVAL, FINISH, FOREVER, Step, decode_rounds, prefill_stage
from orsched.heuristics.gated import GatedPolicy
from orsched.heuristics.pang import HYBRID, OFFLINE, ONLINE, FirstComeFirstServed
from orsched.simulator.policy import Information, Policy


class Queueing(Policy):
    """Keeps the waiting requests and finds those that fit into a stage, in a given order."""

    def __init__(self):
        self.waiting = []

    def on_arrival(self, view, request):
        self.waiting.append(request)

    def fitting(self, view, order, most=10**9):
        """Requests from the order that fit together under clients, cap and memory."""
        stage, tokens, blocks = [], 0, 0
        limit, room = view.worker.prefill_limit, view.blocks_free
        for request in order:
            if len(stage) == min(view.free_clients, most):
                break
            more_tokens = tokens + view.prompt_tokens[request]
            more_blocks = blocks + view.blocks_of(request)
            if (limit is not None and more_tokens > limit) or (
                room is not None and more_blocks > room
            ):
                continue
            stage.append(request)
            tokens, blocks = more_tokens, more_blocks
        return stage

    def take(self, view, order, clients=None, most=10**9):
        stage = self.fitting(view, order, most)
        for request in stage:
            self.waiting.remove(request)
        return prefill_stage(stage, None if clients is None else clients(stage)) if stage else None


class Repeated(Queueing):
    """Decodes with a given repeat count and given events; prefills in between."""

    def __init__(self, rounds, until):
        super().__init__()
        self.name = f"rounds-{rounds}-until-{until}"
        self.step = Step(rounds=rounds, until=until)

    def decide(self, view):
        return self.take(view, self.waiting) or (self.step if view.running else None)


class StaticBatch(Queueing):
    """Fills the clients, decodes until all are done, then starts again."""

    name = "static-batch"

    def decide(self, view):
        if view.running:
            return decode_rounds(until=0)
        return self.take(view, self.waiting)


class PatientClairvoyant(Queueing):
    """Idles until all requests have arrived, even with requests on clients; longest first."""

    name = "patient"
    information = Information.CLAIRVOYANT

    def start(self, view):
        self.future = len(view.prompt_tokens)

    def on_arrival(self, view, request):
        super().on_arrival(view, request)
        self.future -= 1

    def decide(self, view):
        if self.future and (view.running or not self.waiting):
            return None
        order = sorted(self.waiting, key=lambda r: (-view.output_tokens[r], r))
        return self.take(view, order, most=2) or decode_rounds()


class ShortestPredicted(Queueing):
    """Shortest predicted output first, one request a stage; uses every hook."""

    name = "shortest-predicted"
    information = Information.PREDICTED

    def __init__(self):
        super().__init__()
        self.first_tokens = 0

    def on_first_token(self, view, request):
        self.first_tokens += 1

    def on_finish(self, view, request, client):
        self.first_tokens -= 1

    def decide(self, view):
        order = sorted(self.waiting, key=lambda r: (view.predicted_tokens[r], r))
        if self.first_tokens < 3 and (stage := self.take(view, order, most=1)):
            return stage
        return decode_rounds(rounds=4) if view.running else None


class Erratic(Queueing):
    """Random stages, clients, repeat counts and events from a seed; waits only if it must."""

    def __init__(self, seed):
        super().__init__()
        self.name = f"erratic-{seed}"
        self.random = random.Random(seed)

    def decide(self, view):
        if self.waiting and (not view.running or self.random.random() < 0.6):
            order = self.random.sample(self.waiting, len(self.waiting))
            free = [c for c in range(view.worker.clients) if view.request_on(c) == -1]
            self.random.shuffle(free)
            clients = (lambda stage: free[: len(stage)]) if self.random.random() < 0.5 else None
            if stage := self.take(view, order, clients, most=self.random.randint(1, 3)):
                return stage
        if not view.running:
            return None
        rounds = self.random.choice((1, 2, 5, FOREVER))
        return Step(rounds=rounds, until=self.random.choice((0, FINISH, ARRIVAL, FINISH | ARRIVAL)))


POLICIES = {
    "fcfs": FirstComeFirstServed, "static-batch": StaticBatch, "patient": PatientClairvoyant,
    "shortest-predicted": ShortestPredicted, "one-round": lambda: Repeated(1, FINISH | ARRIVAL),
    "three-rounds": lambda: Repeated(3, 0), "until-finish": lambda: Repeated(FOREVER, FINISH),
    "until-arrival": lambda: Repeated(FOREVER, ARRIVAL),
    "erratic-0": lambda: Erratic(0), "erratic-1": lambda: Erratic(1),
}  # fmt: skip

for method in (OFFLINE, ONLINE, HYBRID):
    for information in method.information:
        POLICIES[f"{method.name}-{information}"] = lambda m=method, i=information: GatedPolicy(
            m.defaults, i, m.name
        )
