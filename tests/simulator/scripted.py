"""A policy that takes given steps, for examples by hand."""

from __future__ import annotations

from orsched import Policy, decode_rounds


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
