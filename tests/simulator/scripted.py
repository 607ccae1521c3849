"""Policies and an instance for examples by hand."""

from orsched import AffineCost, Instance, Policy, Requests, Worker, decode_rounds, prefill_stage
from tests.in_order import in_order

COST = in_order(AffineCost, 0, 1, 10, 0)  # a stage: 1 ns a token; a round: 10 ns


def small(prompts=(5, 6, 7), outputs=(2, 3, 4), *, workers=1, clients=2, cost=COST,
          rule="decode", arrivals=None, **worker):  # fmt: skip
    """Three requests on one worker of two clients, unless said otherwise."""
    owners = tuple(Worker(clients, cost, name=f"worker-{i}", **worker) for i in range(workers))
    return Instance(Requests(list(prompts), list(outputs), arrival_ns=arrivals), owners, rule)


class OneByOne(Policy):
    """Prefills who waits longest, alone, on the worker that asks, and decodes in between."""

    name, many_workers = "one-by-one", True

    def __init__(self):
        self.queue = []

    def on_arrival(self, view, request):
        self.queue.append(request)

    def on_preempt(self, view, request):
        self.queue.append(request)

    def decide(self, view):
        if self.queue and view.free_clients:
            return prefill_stage([self.queue.pop(0)])
        return decode_rounds() if view.running else None


class Script(Policy):
    """Takes the given steps of each worker one after the other, then decodes (or waits). A step may
    be a function of the view. ``told`` holds what it was told: event, request, worker and time."""

    name = "script"
    many_workers = True

    def __init__(self, *steps, others=()):
        self.steps = [list(steps), *map(list, others)]
        self.told = []

    def on_arrival(self, view, request):
        self.told.append(("arrival", request, view.index, view.now_ns))

    def on_finish(self, view, request, client):
        self.told.append(("finish", request, view.index, view.now_ns))

    def on_preempt(self, view, request):
        self.told.append(("preempt", request, view.index, view.now_ns))

    def decide(self, view):
        steps = self.steps[view.index]
        if not steps:
            return decode_rounds() if view.running else None
        step = steps.pop(0)
        return step(view) if callable(step) else step
