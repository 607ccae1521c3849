"""What a search minimises: prices of stages, by tokens or starts, and the time of the rounds. At
one moment several stages may follow each other, so tokens take the time of the cheapest stages that
hold them together; under the affine cost, of as many as the cap makes necessary. While the moves
search, it is not known which request starts where: they use a price by the number of starts. Swaps
will fill one stage and empty another down to a level, so the price of a number of tokens lies on
the line between those of two numbers near it: the least such one, a lower convex hull."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from orsched.calibration.observed import step_contents
from orsched.certificates.context import Context
from orsched.certificates.step_lower_bounds import level_floor
from orsched.costs import AffineCost, floor_of, splits
from orsched.data.schedule import DECODE, PREFILL
from orsched.models.bounds.stages_rounds_bound import round_bound, stage_bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from orsched.common.columns import IntColumn
    from orsched.data.instance import Instance
    from orsched.data.schedule import Schedule
    from orsched.models.windows.window_state import Windows

    Floats = NDArray[np.float64]


def affine_beside(instance: Instance, schedule: Schedule) -> Instance:
    """Return the instance with the affine cost that is nearest to the times of a schedule's steps.
    The search counts stages and rounds; where a round's time depends on contexts, or a stage's on
    more than its tokens, it searches under the line through the steps of a schedule at hand (stages
    by tokens, rounds by requests, least squares, each part at least 0, a round at least 1 ns), and
    every plan that it finds is carried out under the real cost."""
    steps, worker = step_contents(instance, schedule), instance.worker
    took = (steps.end_ns - steps.start_ns).astype(np.float64)
    stages, rounds = steps.phase == PREFILL, steps.phase == DECODE
    stage = _line(steps.tokens[stages], took[stages], np.ones(int(stages.sum())))
    each = steps.rounds[rounds].astype(np.float64)
    round_ = _line(steps.active[rounds], took[rounds] / each, each)
    cost = AffineCost(
        prefill_fixed_ns=stage[0],
        prefill_token_ns=stage[1],
        round_fixed_ns=max(1, round_[0]),
        round_client_ns=round_[1],
    )
    # caps that the real cost model has of its own are those of its worker from now on
    line = replace(worker, cost=cost, prefill_cap_tokens=worker.prefill_limit)
    return instance.replace(workers=line)


def _line(x: Floats, times: Floats, weights: Floats) -> tuple[int, int]:
    """Return a fixed part and one a unit, at least 0 each, by weighted least squares."""
    if len(x) == 0:
        return 0, 0
    at, mean = float(np.average(x, weights=weights)), float(np.average(times, weights=weights))
    spread = float(np.average((x - at) ** 2, weights=weights))
    slope = float(np.average((x - at) * (times - mean), weights=weights))
    per = max(0.0, slope / spread) if spread > 0 else 0.0
    fixed = mean - per * at
    if fixed < 0:
        return 0, max(0, round(mean / at))
    return round(fixed), round(per)


def smoothed(instance: Instance) -> Instance | None:
    """Return the instance with a fixed time and a time a token in the levels' place; None where the
    cost has no levels, only one, or a line through them that begins below 0.

    Under levels the price of a start bends with the number of starts, so a start hardly ever leaves
    a stage, and windows that fit are found late. On the line through the smallest and the largest
    level all starts cost the same. What it finds is then carried out, and searched further, under
    the levels."""
    worker = instance.worker
    floor, limit = floor_of(worker.cost), worker.prefill_limit
    if floor is None or floor.stage.levels is None or limit is None:
        return None
    levels = [(cap, time) for cap, time in floor.stage.levels if cap <= limit]
    if len(levels) < 2:
        return None
    (small, short), (large, long) = levels[0], levels[-1]
    token_ns = (long - short) // (large - small)
    fixed_ns = short - token_ns * small
    if fixed_ns < 0:
        return None
    line = AffineCost(
        prefill_fixed_ns=fixed_ns,
        prefill_token_ns=token_ns,
        round_fixed_ns=floor.round.fixed,
        round_client_ns=floor.round.request,
    )
    return instance.replace(workers=replace(worker, cost=line, prefill_cap_tokens=limit))


SPREAD = 0.3  # the tokens of a stage may be more or less than those of mean prompts by this share
LATE_SPREAD = 0.03  # the same where only requests of about equal lengths can be exchanged


@dataclass(frozen=True)
class Prices:
    """Times by tokens and by starts."""

    levels: tuple[tuple[int, int], ...]  # capacity and time of each level
    least_ns: IntColumn  # least time of stages that hold 0, 1, ... tokens
    choice: IntColumn  # the level of one of these stages
    unit_ns: int  # nanoseconds a unit of ``by_starts``: a round's time on one client
    by_starts: list[int]  # price of 0, 1, ... starts at one moment
    late: list[int]  # the same after the last moment at which a longest request can start
    by_tokens: bool  # whether these are token rows: one level, which the clients' prompts overfill

    def stages_of(self, tokens: int) -> list[int]:
        """Return the capacities of the cheapest stages that hold these tokens, largest first."""
        found = []
        while tokens > 0:
            found.append(self.levels[int(self.choice[tokens])][0])
            tokens -= found[-1]
        return sorted(found, reverse=True)

    def divide(self, requests: Sequence[int], prompts: IntColumn) -> list[list[int]]:
        """Divide requests that start at one moment into stages, the smallest ones filled first."""
        left = list(requests)
        parts: list[list[int]] = []
        while True:
            caps = self.stages_of(sum(int(prompts[request]) for request in left))
            if len(caps) < 2:
                return [*parts, left] if left else parts
            part = _fullest(left, prompts, caps[-1]) or _fullest(left, prompts, self.levels[-1][0])
            parts.append(part)
            left = [request for request in left if request not in part]


def _fullest(requests: Sequence[int], prompts: IntColumn, cap: int) -> list[int]:
    """Return requests whose prompts fill a capacity best: a subset sum."""
    reached, within = [1], (1 << (cap + 1)) - 1
    for request in requests:
        reached.append((reached[-1] | reached[-1] << int(prompts[request])) & within)
    tokens, part = reached[-1].bit_length() - 1, []
    for k in range(len(requests) - 1, -1, -1):
        if not reached[k] >> tokens & 1:
            part.append(requests[k])
            tokens -= int(prompts[requests[k]])
    return part[::-1]


def prices_of(
    levels: Sequence[tuple[int, int]],
    prompts: IntColumn,
    clients: int,
    round_ns: int,
    lengths: IntColumn | None = None,
) -> Prices:
    """Return the prices for a number of clients: no more requests start at one moment. ``lengths``:
    rounds of the requests, by which those of one level are priced as token rows."""
    most = min(clients, len(prompts))
    ordered = np.sort(prompts)
    shortest, longest = np.cumsum(ordered), np.cumsum(ordered[::-1])
    least, choice = _cover(levels, int(longest[most - 1]))
    unit = max(1, round_ns // clients)
    mean = float(prompts.mean())
    by_starts = [0]
    for count in range(1, most + 1):
        few = max(int(shortest[count - 1]), int(count * mean * (1 - SPREAD)))
        many = min(int(longest[count - 1]), math.ceil(count * mean * (1 + SPREAD)))
        by_starts.append(round(_hull(least, few, many, count * mean) / unit))
    late, by_tokens = by_starts, False
    if len(levels) == 1 and lengths is not None and most * mean > levels[0][0]:
        by_tokens = True
        spread = _exchange_spread(prompts, lengths)
        by_starts = _token_row(least, prompts, most, unit, *spread)
        late = _token_row(least, prompts, most, unit, 1 - LATE_SPREAD, 1 + LATE_SPREAD)
    return Prices(tuple(levels), least, choice, unit, by_starts, late, by_tokens)


def _exchange_spread(prompts: IntColumn, lengths: IntColumn) -> tuple[float, float]:
    """Return how little and how much the tokens of a stage can be, over those of mean prompts.
    Longest requests can be exchanged between any two stages: one has the half of them with short
    prompts, another that with long ones."""
    longest = np.sort(prompts[lengths == lengths.max()])
    half, share = len(longest) // 2, len(longest) / len(prompts)
    if half == 0:
        return 1 - LATE_SPREAD, 1 + LATE_SPREAD
    few, many = (
        float(part.mean()) / float(prompts.mean()) for part in (longest[:half], longest[half:])
    )
    few, many = 1 + share * (few - 1), 1 + share * (many - 1)
    return min(few, 1 - LATE_SPREAD), max(many, 1 + LATE_SPREAD)


def _token_row(
    least: IntColumn, prompts: IntColumn, most: int, unit: int, low: float, high: float
) -> list[int]:
    """Return prices of 0, 1, ... starts whose tokens are a share of mean prompts, low to high.
    Tokens that one stage does not have another has, at the price of a token in a full stage: so a
    stage costs its tokens at that price, and what its least waste takes."""
    tokens = np.arange(len(least))
    token_ns = float((least[1:] / tokens[1:]).min())
    waste, mean = least - token_ns * tokens, float(prompts.mean())
    ordered = np.sort(prompts)
    shortest, longest = np.cumsum(ordered), np.cumsum(ordered[::-1])
    prices = [0]
    for count in range(1, most + 1):
        few = max(int(shortest[count - 1]), int(count * mean * low))
        many = min(int(longest[count - 1]), math.ceil(count * mean * high))
        wasted = float(waste[few : max(few, many) + 1].min())
        prices.append(round((wasted + token_ns * count * mean) / unit))
    return prices


def _hull(times: IntColumn, few: int, many: int, at: float) -> float:
    """Return the least value at a point on lines between times of few and of many tokens."""
    steps = few + np.flatnonzero(np.diff(times[few : many + 1]))
    points = np.unique([few, *steps.tolist(), many])
    below, above = points[points <= at], points[points >= at]
    if not len(below) or not len(above):
        return float(times[round(at)])
    width = np.maximum(above[None, :] - below[:, None], 1)
    part = (at - below[:, None]) / width
    return float((times[below][:, None] * (1 - part) + times[above][None, :] * part).min())


def _cover(levels: Sequence[tuple[int, int]], tokens: int) -> tuple[IntColumn, IntColumn]:
    """Return for 0, 1, ... tokens the least time of levels that hold them, and one of these. As
    many tokens at once as the smallest level holds: without any level they are further back."""
    least, choice = np.zeros(tokens + 1, np.int64), np.zeros(tokens + 1, np.int64)
    smallest = levels[0][0]
    for first in range(1, tokens + 1, smallest):
        held = np.arange(first, min(first + smallest, tokens + 1))
        times = np.array([least[np.maximum(0, held - cap)] + time for cap, time in levels])
        best = len(levels) - 1 - times[::-1].argmin(axis=0)  # the largest of equal ones
        least[held], choice[held] = times[best, np.arange(len(held))], best
    return least, choice


@dataclass(frozen=True)
class Terms:
    """Makespan = ``constant_ns`` + the stages' times + ``round_ns`` R. ``constant_ns``: the arrival
    of all, and what tokens and active clients take in every schedule."""

    constant_ns: int
    stage_ns: int  # what a stage takes beyond its tokens
    token_ns: int  # what a token takes beyond that in a full stage; 0 where it is in the constant
    round_ns: int  # fixed time of a round
    stages_ns: int  # lower bound on the stages' times
    rounds: int  # lower bound on R
    starts: int  # how many requests there are
    tokens: int  # of all of them
    prices: Prices  # the stages' times by their requests

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
        """Return how many stages about this time allows, one of them the first, and their time. All
        clients start in the first one; the others are as full as they have to be."""
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
