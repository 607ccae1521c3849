"""The policy that carries out the steps of a decoded plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from orsched.data.step import Step, decode_rounds
from orsched.models.latency_search.decoding import (
    ROW_CHUNK,
    ROW_MIXED,
    ROW_ROUNDS,
    ROW_STAGE,
)
from orsched.simulator.policy import Information, Policy, View

if TYPE_CHECKING:
    from collections.abc import Sequence


class PlannedStep(NamedTuple):
    """A step of one worker.

    Attributes:
        requests, tokens: what it prefills; none: rounds alone.
        rounds: how many; 0: a stage without a round.
    """

    requests: tuple[int, ...]
    tokens: tuple[int, ...]
    rounds: int


def steps_of(rows: Sequence[Sequence[int]]) -> list[PlannedStep]:
    """Return the steps that the rows of a script say; waits follow from the arrivals."""
    steps: list[PlannedStep] = []
    requests: list[int] = []
    tokens: list[int] = []
    for kind, first, second, _ in rows:
        if kind == ROW_CHUNK:
            requests.append(first)
            tokens.append(second)
        elif kind in (ROW_STAGE, ROW_MIXED):
            steps.append(PlannedStep(tuple(requests), tuple(tokens), int(kind == ROW_MIXED)))
            requests, tokens = [], []
        elif kind == ROW_ROUNDS:
            steps.append(PlannedStep((), (), first))
    return steps


class FollowSteps(Policy):
    """Carry out each worker's steps in their order; wait for requests that have not arrived."""

    information = Information.CLAIRVOYANT
    many_workers = True
    chunks = True

    def __init__(self, steps: Sequence[Sequence[PlannedStep]], name: str) -> None:
        self.name = name
        self.steps = steps
        self.next = [0] * len(steps)
        self.arrived: set[int] = set()

    def on_arrival(self, view: View, request: int) -> None:
        """Know that it is there."""
        self.arrived.add(request)

    def decide(self, view: View) -> Step | None:
        """Return the worker's next step, or None until its requests are there."""
        steps, number = self.steps[view.index], self.next[view.index]
        if number == len(steps):
            return None
        step = steps[number]
        if not self.arrived.issuperset(step.requests):
            return None
        self.next[view.index] += 1
        if not step.requests:
            return decode_rounds(step.rounds, until=0)
        return Step(step.requests, step.tokens, None, None if step.rounds else ())
