"""What the search minimises: the prices of the stages, and the time of the rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orsched.certificates.context import Context
from orsched.certificates.step_lower_bounds import level_floor
from orsched.costs import splits
from orsched.models.bounds.stages_rounds_bound import round_bound, stage_bound
from orsched.models.windows.prices import Prices, prices_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.data.instance import Instance
    from orsched.models.windows.structure import Windows


@dataclass(frozen=True)
class Terms:
    """Makespan = ``constant_ns`` + the stages' times + ``round_ns`` R.

    Attributes:
        constant_ns: the arrival of all, and what tokens and active clients take in every schedule.
        stage_ns: what a stage takes beyond its tokens.
        token_ns: what a token takes beyond that in a full stage; 0 where it is in the constant.
        round_ns: fixed time of a round.
        stages_ns: lower bound on the stages' times.
        rounds: lower bound on R.
        starts: how many requests there are.
        tokens: of all of them.
        prices: the stages' times by their requests.
    """

    constant_ns: int
    stage_ns: int
    token_ns: int
    round_ns: int
    stages_ns: int
    rounds: int
    starts: int
    tokens: int
    prices: Prices

    @property
    def least(self) -> int:
        """Lower bound on the makespan."""
        return self.constant_ns + self.stages_ns + self.round_ns * self.rounds

    def estimate(self, state: Windows) -> int:
        """Return the makespan of a state with V = 0, as far as prices by starts are right."""
        return self.makespan(state.tables.spent[0], state.end)

    def makespan(self, spent: int, end: int) -> int:
        """Return the makespan of stages at these prices and an end after a number of rounds."""
        return self.constant_ns + self.prices.unit_ns * spent + self.round_ns * end

    def budget(self, makespan: int, end: int) -> int:
        """Return what stages may cost where the makespan and the end are given."""
        return (makespan - self.constant_ns - self.round_ns * end) // self.prices.unit_ns

    def stages_for(self, time_ns: int) -> tuple[int, int]:
        """Return how many stages about this time allows, one of them the first, and their time.

        All clients start in the first one; the others are as full as they have to be.
        """
        by_starts = self.prices.by_starts
        clients = len(by_starts) - 1
        mean = self.tokens / self.starts
        base = self.prices.unit_ns * by_starts[-1]
        base += int(self.token_ns * mean * (self.starts - clients))
        least = -(-self.starts // clients)
        more = max(0, time_ns - base) // max(1, self.stage_ns)
        count = min(self.starts, max(least, 1 + more))
        return count, base + (count - 1) * self.stage_ns


def terms_of(instance: Instance) -> Terms:
    """Return the terms of an instance whose time splits into stages and rounds."""
    worker, n = instance.worker, len(instance)
    jobs, prompts = Context(instance).jobs, instance.requests.prompt_tokens
    stages, rounds = stage_bound(jobs, worker)["value"], round_bound(jobs, worker)["value"]
    limit, floor, tokens = worker.prefill_limit, splits(worker.cost), int(prompts.sum())
    assert floor is not None
    stage, round_ns = floor.stage, floor.round.fixed
    constant = int(instance.requests.arrival_ns.min())
    constant += floor.round.request * int(jobs.rounds.sum())
    if stage.levels is not None:
        levels = _useful(stage.levels, limit)
        (small, short), (large, long) = levels[0], levels[-1]
        token_ns = (long - short) // max(1, large - small)
        stage_ns = max(0, short - token_ns * small)
        least = level_floor(stage.levels, tokens, stages)
    else:
        stage_ns, token_ns = stage.fixed, 0
        constant += stage.token * tokens
        levels, least = [(limit or tokens, stage_ns)], stages * stage_ns
    round_ns = max(1, round_ns)
    prices = prices_of(levels, prompts, worker.clients, round_ns, jobs.rounds)
    return Terms(constant, stage_ns, token_ns, round_ns, least, rounds, n, tokens, prices)


def _useful(levels: Sequence[tuple[int, int]], limit: int | None) -> list[tuple[int, int]]:
    """Return the levels under the cap without those that a larger one of the same time replaces."""
    found: list[tuple[int, int]] = []
    for cap, time in levels:
        if found and found[-1][1] == time:
            found.pop()
        found.append((cap if limit is None else min(cap, limit), time))
        if limit is not None and cap >= limit:
            break
    return found
