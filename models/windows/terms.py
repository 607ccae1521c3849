"""What the search minimises: the time of the stages by level, and of the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from orsched.costs import LevelsCost
from orsched.models.counts import all_jobs, round_bound, stage_bound
from orsched.models.floors import level_floor
from orsched.models.windows.assignment import FEW_REQUESTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.columns import IntColumn
    from orsched.instance import Instance

ROUNDING = 0.2
"""A level has room for one start more than its tokens are of mean prompts from this rest on."""


class Level(NamedTuple):
    """A kind of prefill stage.

    Attributes:
        tokens: most prompt tokens, or None.
        time_ns: its time; under the affine cost without that of its tokens.
        room: most starts, by the prompts' mean.
    """

    tokens: int | None
    time_ns: int
    room: int


@dataclass(frozen=True)
class Terms:
    """Makespan = ``constant_ns`` + the stages' times + ``round_ns`` R.

    Attributes:
        constant_ns: the arrival of all, and what tokens take in every schedule.
        levels: kinds of stages, by size; one under the affine cost.
        round_ns: fixed time of a round.
        stages_ns: lower bound on the stages' times.
        rounds: lower bound on R.
        starts: how many requests there are.
    """

    constant_ns: int
    levels: tuple[Level, ...]
    round_ns: int
    stages_ns: int
    rounds: int
    starts: int

    @property
    def room(self) -> list[int]:
        """Most starts by level; of several one more, for stages of shorter prompts."""
        several = 1 if len(self.levels) > 1 else 0
        return [level.room + several for level in self.levels]

    def level_of(self, tokens: int) -> int:
        """Return the smallest level that holds these tokens."""
        fits = (
            k for k, kind in enumerate(self.levels) if kind.tokens is None or tokens <= kind.tokens
        )
        return next(fits, len(self.levels) - 1)

    def makespan(self, levels: Sequence[int], end: int) -> int:
        """Return the makespan of stages at these levels and an end after so many rounds."""
        stages = sum(self.levels[level].time_ns for level in levels)
        return self.constant_ns + stages + self.round_ns * end

    def end(self, levels: Sequence[int], makespan: int) -> int:
        """Return the latest end with which these stages take at most a makespan."""
        return (makespan - self.makespan(levels, 0)) // self.round_ns

    @property
    def least(self) -> int:
        """Lower bound on the makespan."""
        return self.constant_ns + self.stages_ns + self.round_ns * self.rounds

    def most_stages(self, time_ns: int, slack: float) -> list[int] | None:
        """Return levels of as many stages as this time allows, with room for all and some slack.

        None where it is not enough for any. Larger levels come first.
        """
        best: list[int] | None = None
        for count in range(1, self.starts + 1):
            found = self._cheapest(count, slack)
            if found is not None:
                if sum(self.levels[level].time_ns for level in found) > time_ns:
                    if best is not None:
                        break
                else:
                    best = found
        return best

    def _cheapest(self, count: int, slack: float) -> list[int] | None:
        """Return the cheapest levels of so many stages that have room; two kinds suffice."""
        needed = self.starts + int(self.starts * slack)
        found: tuple[int, list[int]] | None = None
        for small, large in combinations_with_replacement(range(len(self.levels)), 2):
            low, high = self.levels[small], self.levels[large]
            more = max(0, -(-(needed - count * low.room) // max(1, high.room - low.room)))
            if more > count or (high.room == low.room and more):
                continue
            time = more * high.time_ns + (count - more) * low.time_ns
            if found is None or time < found[0]:
                found = time, [large] * more + [small] * (count - more)
        return None if found is None else found[1]


def terms_of(instance: Instance) -> Terms:
    """Return the terms of an instance whose time splits into stages and rounds."""
    worker, n = instance.worker, len(instance)
    jobs, prompts = all_jobs(instance), instance.requests.prompt_tokens
    stages, rounds = stage_bound(jobs, worker)["value"], round_bound(jobs, worker)["value"]
    limit, cost, tokens = worker.prefill_limit, worker.cost, int(prompts.sum())
    if isinstance(cost, LevelsCost):
        constant, round_ns = 0, cost.round_fixed_ns
        kinds = _useful(cost.levels, limit)
        least = level_floor(cost.levels, tokens, stages)
    else:
        client_ns = cost.round_ns(2, 0, 0) - cost.round_ns(1, 0, 0)
        round_ns = cost.round_ns(1, 0, 0) - client_ns
        many = limit is None or limit > 1
        token_ns = cost.prefill_ns([2]) - cost.prefill_ns([1]) if many else 0
        stage_ns = cost.prefill_ns([1]) - token_ns
        constant = token_ns * tokens + client_ns * int(jobs.rounds.sum())
        kinds, least = [(limit, stage_ns)], stages * stage_ns
    constant += int(instance.requests.arrival_ns.min())
    rooms = [_room(cap, prompts, worker.clients) for cap, _ in kinds]
    levels = tuple(
        Level(cap, time, room) for (cap, time), room in zip(kinds, rooms, strict=True) if room
    )
    return Terms(constant, levels, max(1, round_ns), least, rounds, n)


def _useful(levels: Sequence[tuple[int, int]], limit: int | None) -> list[tuple[int | None, int]]:
    """Return the levels under the cap without those that a larger one of the same time replaces."""
    found: list[tuple[int | None, int]] = []
    for cap, time in levels:
        if found and found[-1][1] == time:
            found.pop()
        found.append((cap if limit is None else min(cap, limit), time))
        if limit is not None and cap >= limit:
            break
    return found


def _room(cap: int | None, prompts: IntColumn, clients: int) -> int:
    """Return the starts that prompts of mean length leave room for; for a few, of the shortest."""
    if cap is None:
        return clients
    most = int((np.cumsum(np.sort(prompts)) <= cap).sum())
    if len(prompts) > FEW_REQUESTS:
        most = min(most, max(1, int(cap * len(prompts) / int(prompts.sum()) + ROUNDING)))
    return min(clients, most)
