"""Lower bound on the makespan of a fleet by prices of requests: what no worker can earn more of.

Suppose that a schedule ends all requests by T. A worker that hosts some of them, in R steps that
yield tokens, is above each line of its floor, has R times its clients and its memory, and yields
at most R tokens of each. With a factor on each of these it earns at most a profit that is linear
in R; where no worker's profit can pay for its share of the prices, T is too early (docs/proofs.md
has the proof). The bound does not hold where requests may move to another worker.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.kv_volume import Line, Needs, lines_of, prompts_known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.certificates.context import Context
    from orsched.certificates.fields import Budget


class Kind(NamedTuple):
    """A kind of worker: how many there are, its lines, and what requests need of it.

    ``rows``: places, among those released, of the requests that fit; ``own``: by line, what each
    of them adds to the line; ``fixed``: by line, what the first prefill adds.
    """

    workers: int
    times: int
    clients: int
    blocks: int
    lines: list[Line]
    fixed: list[int]
    rows: list[int]
    tokens: list[int]
    block_rounds: list[int]
    own: list[list[int]]

    def room(self, time_ns: int) -> list[int]:
        """Return by line what time there is, in its unit."""
        return [time_ns // self.times * line.unit for line in self.lines]

    def most_steps(self, time_ns: int) -> int:
        """Return the most steps that end in a time; there are requests."""
        rooms = zip(self.room(time_ns), self.lines, strict=True)
        return min(room // line.round for room, line in rooms if line.round)


def kinds_of(context: Context, released: int) -> dict[int, Kind]:
    """Return the kinds of workers, by the number of the first, for what is released later.

    Raises ``ValueError`` where nothing is proven by prices.
    """
    kinds = needs_by_kind(context, released)
    if any(kind.rows and not any(line.round for line in kind.lines) for kind in kinds.values()):
        raise ValueError("steps may take no time")
    return kinds


def needs_by_kind(context: Context, released: int) -> dict[int, Kind]:
    """Return the kinds of workers, whose steps may take no time; ``ValueError`` without floors, and
    for requests that do not stay."""
    instance, scope = context.instance, context.scope
    if instance.link is not None or scope.moves or not context.has_floors:
        raise ValueError("prices are of requests that stay on workers with floors")
    prompts_known(context)
    later = np.flatnonzero(instance.requests.arrival_ns >= released)
    if not len(later):
        raise ValueError(f"no request arrives at {released} or later")
    place = {row: at for at, row in enumerate(later.tolist())}
    return {kind: _kind(context, kind, place) for kind in dict.fromkeys(context.kinds)}


def _kind(context: Context, number: int, place: dict[int, int]) -> Kind:
    worker, scope = context.instance.workers[number], context.scope
    rows = [row for row in context.fit(number).rows if row in place]
    count, times = context.kinds.count(number), context.floor(number).times
    blocks = 0 if worker.memory is None else worker.memory.blocks
    head = (count, times, worker.clients, blocks)
    if not rows:
        return Kind(*head, [], [], [], [], [], [])
    needs = Needs.of(context, number, np.array(rows))
    lines = lines_of(context, number, needs.least_context)
    tokens, held = needs.tokens.tolist(), needs.block_rounds.tolist()
    prompts, attended, contexts = (
        column.tolist() for column in (needs.prompts, needs.attended, needs.contexts)
    )
    each = list(zip(prompts, attended, tokens, contexts, strict=True))
    own = [
        [
            line.each + line.prompt * p + line.attended * a + line.request * d + line.context * c
            for p, a, d, c in each
        ]
        for line in lines
    ]
    fixed = [line.stage if line.adds or not scope.mixed else 0 for line in lines]
    places = [place[row] for row in rows]
    return Kind(*head, lines, fixed, places, tokens, held, own)


class Duals(NamedTuple):
    """Factors, for as many steps as an interval has, on lines, on clients and on memory."""

    begins: int
    lines: Sequence[int]
    clients: int
    blocks: int


def most_profit(
    kind: Kind, time_ns: int, prices: Sequence[int], one: int, intervals: Sequence[Duals]
) -> int:
    """Return the most that a worker earns above what its requests use, by these factors.

    ``prices`` count ``one`` each. The intervals begin at 0 and end with the most steps.
    """
    if not kind.rows:
        return 0
    last, rooms, most = kind.most_steps(time_ns), kind.room(time_ns), 0
    ends = [*(later.begins - 1 for later in intervals[1:]), last]
    for duals, end in zip(intervals, ends, strict=True):
        if duals.begins > last:
            break
        end, gained = min(end, last), 0
        for at, place in enumerate(kind.rows):
            if kind.tokens[at] <= end:
                used = duals.clients * kind.tokens[at] + duals.blocks * kind.block_rounds[at]
                for factor, own in zip(duals.lines, kind.own, strict=True):
                    used += factor * own[at]
                gained += max(0, one * prices[place] - used)
        a_step = duals.clients * kind.clients + duals.blocks * kind.blocks
        for factor, room, line, fixed in zip(
            duals.lines, rooms, kind.lines, kind.fixed, strict=True
        ):
            gained += factor * (room - fixed)
            a_step -= factor * line.round
        most = max(most, gained + a_step * (duals.begins if a_step < 0 else end))
    return most


def fleet_prices(context: Context, certificate: dict[str, Any], budget: Budget) -> dict[str, Any]:
    """Return the certificate that prices and factors prove; ``ValueError`` if they prove nothing.

    The bound is a nanosecond more than the time in which no schedule can end.
    """
    released, value = certificate["released_ns"], certificate["value_ns"]
    prices, one, listed = certificate["prices"], certificate["one"], certificate["workers"]
    kinds = kinds_of(context, released)
    rows = int((context.instance.requests.arrival_ns >= released).sum())
    if len(prices) != rows or [each["worker"] for each in listed] != list(kinds):
        raise ValueError("not one price for each request, or not one entry for each kind of worker")
    profit = 0
    for kind, each in zip(kinds.values(), listed, strict=True):
        intervals = [Duals(*item) for item in each["intervals"]]
        begins = [duals.begins for duals in intervals]
        if begins[0] != 0 or any(a >= b for a, b in pairwise(begins)):
            raise ValueError("intervals begin at 0 and grow")
        if any(len(duals.lines) != len(kind.lines) for duals in intervals):
            raise ValueError("not one factor for each line")
        if kind.blocks == 0 and any(duals.blocks for duals in intervals):
            raise ValueError("the workers have no memory limit, so blocks have no factor")
        budget.spend(len(intervals) * len(kind.rows) * (2 + len(kind.lines)) * 10)
        profit += kind.workers * most_profit(kind, value - 1 - released, prices, one, intervals)
    if profit >= one * sum(prices):
        raise ValueError("the workers can earn all prices in that time")
    return {**certificate, "bound": "fleet_prices"}
