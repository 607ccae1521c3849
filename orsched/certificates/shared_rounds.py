"""What requests that arrive over time cost each other: rounds that are shared, prefills in between.

A request waits for more than itself: for its prefill, in each round that it shares with another
for the other's part, and of two that share a round one waits for the prefill of the other after
its own. Which requests share rounds is the schedule's choice, but all tokens have to be yielded in
the rounds for which there is time. Prices of windows of time bound the least of both
(docs/proofs.md has the proof).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.charges import alone_on
from orsched.certificates.step_lower_bounds import lost_in_round, lost_in_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.context import Context, Jobs
    from orsched.certificates.fields import Budget
    from orsched.costs import Floor

    Numbers = NDArray[Any]

LATE = 1024
"""Shares of what requests cost each other are in 1 / LATE; the rest is of pure lateness."""

FINE = 2**13
"""Prices of time are in 1 / FINE."""

WEIGHT = 2**12
"""What a request of one round weighs; others less, as the square root of their rounds."""

WINDOW_FIELDS = ("starts", "levels", "late", "rounds", "meet")
"""What a certificate chooses: windows, levels of prefill, and by window the share of what requests
cost each other, how many meet in a round, and what they weigh at each level."""

UNIT = 2 * LATE * WEIGHT**2
"""What rounds charge is in 1 / UNIT nanoseconds."""

_MOST = 2**62


@dataclass(frozen=True)
class Parts:
    """What each request takes at least, on any worker, in nanoseconds.

    Attributes:
        prefill, first: of its prefill, as part of any steps: it adds to what else is in them; and
            what its own prefill takes beside that.
        decode, tokens: all its rounds, with no other request in them, and their number.
        longest: the longest of these; at least 1.
        token: what it adds to a round at least.
        fixed: of a round.
        shared: what any request adds to a round, so what one more costs those in it.
    """

    arrivals: Numbers
    prefill: Numbers
    first: Numbers
    decode: Numbers
    longest: Numbers
    token: Numbers
    tokens: Numbers
    fixed: int
    shared: int
    workers: int

    @property
    def own(self) -> Numbers:
        """Least times of the requests alone."""
        found: Numbers = self.prefill + self.first + self.decode
        return found

    def weights(self) -> Numbers:
        """Weights of the requests: of two the product is at most 1 / the fewer rounds, over 1."""
        rounds, at = np.unique(self.tokens, return_inverse=True)
        known = [isqrt(WEIGHT**2 // each) if each else 0 for each in rounds.tolist()]
        found: Numbers = np.array(known, np.int64)[at.reshape(-1)]
        return found


def parts_of(context: Context) -> Parts:
    """Return the least parts of the requests over all workers that can serve them.

    Raises ``ValueError`` if it is unknown how the parts of steps add up in these schedules.
    """
    return context.once(_parts)


def _parts(context: Context) -> Parts:
    instance = context.instance
    if context.scope.restarts or instance.link is not None:
        raise ValueError("requests may change workers, and then share no rounds for certain")
    n, names = len(instance), ("prefill", "stage", "decode", "longest", "token")
    least = {name: np.full(n, _MOST, np.int64) for name in names}
    fixed, shared = [], []
    for kind in dict.fromkeys(context.kinds[number] for number in context.able):
        rows, jobs = context.fit(kind)
        floor = context.floor(kind)
        columns = {**_stages(context, kind, jobs), **_rounds(floor, jobs)}
        for name, column in columns.items():
            least[name][rows] = np.minimum(least[name][rows], column)
        fixed.append(_round_fixed(floor) * floor.times // floor.unit)
        shared.append(int(columns["token"].min()))
    if not fixed or min(fixed) < 1 or int(least["stage"].max(initial=0)) >= _MOST:
        raise ValueError("rounds have no fixed part, or a request fits onto no worker")
    return Parts(
        instance.requests.arrival_ns,
        np.minimum(least["prefill"], least["stage"]),
        np.maximum(0, least["stage"] - least["prefill"]),
        least["decode"],
        least["longest"],
        least["token"],
        instance.rounds_needed,
        min(fixed),
        min(shared),
        len(instance.workers),
    )


def _round_fixed(floor: Floor) -> int:
    """Return a round's fixed part less what rounding may take off, in 1 / unit nanoseconds."""
    if floor.round.mean is not None:
        raise ValueError("a mean context falls beside shorter ones, so that parts do not add up")
    return max(0, floor.round.fixed - lost_in_round(floor))


def _rounds(floor: Floor, jobs: Jobs) -> dict[str, Numbers]:
    """Return each request's rounds, the longest of them, and what it adds to one, in whole ns."""
    fixed, parts = _round_fixed(floor), floor.round
    found: dict[str, list[int]] = {"decode": [], "longest": [], "token": []}
    for p, d in zip(jobs.prompts.tolist(), jobs.rounds.tolist(), strict=True):
        all_of = (fixed + parts.request) * d + parts.context * (p * d + d * (d + 1) // 2)
        last = fixed + parts.request + parts.context * (p + d)
        first = parts.request + parts.context * (p + 1)
        found["decode"].append(all_of * floor.times // floor.unit)
        found["longest"].append(max(1, -(-last * floor.times // floor.unit)))
        found["token"].append(first * floor.times // floor.unit)
    return {name: _whole(column) for name, column in found.items()}


def _stages(context: Context, kind: int, jobs: Jobs) -> dict[str, Numbers]:
    """Return what each prefill adds to steps, and all that it takes alone, in whole ns."""
    worker, floor, scope = context.instance.workers[kind], context.floor(kind), context.scope
    stage, prompts = floor.stage, jobs.prompts.tolist()
    if stage.levels is not None:
        caps = [(min(cap, worker.prefill_limit or cap), time) for cap, time in stage.levels]
        tokens = [min(p * time // cap for cap, time in caps) for p in prompts]
        return {"prefill": _whole(tokens), "stage": _whole(tokens)}
    fixed = stage.fixed - lost_in_stage(floor)
    adds_up = not scope.mixed or floor.mixed in ("sum", "one_fixed")
    if fixed < 0 or not adds_up or (scope.chunks and stage.is_curved):
        alone = alone_on(context, kind)
        whole = [alone.prefill(p, scope.chunks) for p in prompts]
        return {"prefill": _whole([0] * len(whole)), "stage": _whole(whole)}
    if scope.mixed and floor.mixed == "one_fixed":
        fixed = min(fixed, floor.round.fixed)
    tokens = [stage.own(p) * floor.times // floor.unit for p in prompts]
    whole = [(fixed + stage.own(p)) * floor.times // floor.unit for p in prompts]
    return {"prefill": _whole(tokens), "stage": _whole(whole)}


def _whole(column: list[int]) -> Numbers:
    if max(column, default=0) >= _MOST or min(column, default=0) < 0:
        raise ValueError("times are too large, or below 0")
    return np.array(column, np.int64)


def least_so_far(late: list[int]) -> list[int]:
    """Return the least share up to each window: prefills lie before the rounds that follow them."""
    return list(accumulate(late, min))


def round_prices(
    claim: dict[str, Any], shared: int, kinds: list[tuple[int, int]]
) -> tuple[list[list[int]], list[int]]:
    """Return what a round charges each kind of request, by window, and what each round gives back.

    A kind is the levels that a request reaches and its weight. Charges and what is given back are
    in 1 / ``UNIT`` nanoseconds. m requests in a round meet in m (m - 1) ordered pairs, at least
    2 a m - a (a + 1) for each whole a. Of those of a level, weights s pay for their pairs: the sum
    of the products of two is at least the sum over any of them of b s - s^2 / 2, less b^2 / 2.
    """
    rises = [b - a for a, b in pairwise([0, *claim["levels"]])]
    prices: list[list[int]] = [[] for _ in kinds]
    back: list[int] = []
    columns = (claim["late"], least_so_far(claim["late"]), claim["rounds"], claim["meet"])
    for late, before, a, of_levels in zip(*columns, strict=True):
        all_pay = 2 * late * shared * a * (UNIT // LATE)
        pay = [before * rise for rise in rises]
        for row, (level, s) in zip(prices, kinds, strict=True):
            met = zip(pay[:level], of_levels, strict=False)
            row.append(all_pay + sum(each * max(0, 2 * b * s - s * s) for each, b in met))
        squares = sum(each * b * b for each, b in zip(pay, of_levels, strict=True))
        back.append(late * shared * a * (a + 1) * (UNIT // LATE) + squares)
    return prices, back


def shared_rounds(context: Context, claim: dict[str, Any], budget: Budget | None = None) -> int:
    """Return what the windows, levels and numbers of a claim prove of the sum of JCTs.

    Raises ``ValueError`` if they prove nothing, or nothing is known of these schedules.
    """
    starts, levels = claim["starts"], claim["levels"]
    _require_shape(claim)
    if budget is not None:
        table = len(context.arrivals) * len(starts)
        budget.spend(table * (len(starts) + len(levels)))
        budget.hold(8 * table)
    parts = parts_of(context)
    level = np.searchsorted(np.array(levels, np.int64), parts.prefill, side="right")
    kinds, kind = np.unique(np.stack([level, parts.weights()], 1), axis=0, return_inverse=True)
    if budget is not None:
        budget.spend(len(kinds) * len(starts) * (4 + 4 * len(levels)))
        budget.hold(40 * len(kinds) * len(starts))
    prices, back = round_prices(claim, parts.shared, [(a, s) for a, s in kinds.tolist()])
    if back[-1]:
        raise ValueError("the last window has no end, and nothing can be given back there")
    time = [-(-given * FINE // (UNIT * parts.fixed)) for given in back]
    spent = sum(
        price * parts.workers * (end - start)
        for price, start, end in zip(time, starts, starts[1:], strict=False)
    )
    per_token = [[each * FINE // UNIT for each in row] for row in prices]
    if max(map(max, per_token)) + max(time) * int(parts.token.max()) >= _MOST:
        raise ValueError("the numbers are too large")
    rates = np.array(per_token, np.int64).reshape(len(kinds), len(starts))[kind.reshape(-1)]
    rates += _column(time)[None] * parts.token[:, None]
    rates //= parts.longest[:, None]
    _require_small(rates, time, starts, parts)
    shares = _column([each * (FINE // LATE) for each in claim["late"]])
    found = least_costs(parts, _column(starts), rates, _column(time), shares, FINE)
    total: int = sum(found.cost.tolist()) - spent
    return sum(int(each) for each in parts.own) + total // FINE


def _column(values: list[int]) -> Numbers:
    return np.array(values, np.int64)


def _require_shape(claim: dict[str, Any]) -> None:
    starts, levels, late = claim["starts"], claim["levels"], claim["late"]
    windows = len(starts)
    if starts[0] != 0 or any(b <= a for a, b in pairwise(starts)):
        raise ValueError("the windows do not begin at 0 and follow each other")
    if any(b <= a for a, b in pairwise([0, *levels])):
        raise ValueError("the levels do not grow")
    same = len(late) == len(claim["rounds"]) == len(claim["meet"]) == windows
    if not same or any(len(each) != len(levels) for each in claim["meet"]):
        raise ValueError("there is not one number for each window and level")


def require_room(parts: Parts, last: int, most: int = 0) -> None:
    """Refuse times that 64 bits have no room for: windows up to a last one, and what is paid."""
    horizon = last + int(parts.arrivals.max()) + int(parts.own.max())
    if most + 4 * FINE * horizon >= _MOST:
        raise ValueError("the numbers are too large")


def _require_small(rates: Numbers, time: list[int], starts: list[int], parts: Parts) -> None:
    """Refuse numbers with which 64 bits might overflow."""
    columns = (rates.max(1).tolist(), parts.decode.tolist(), parts.prefill.tolist())
    highest = max(time)
    most = max(rate * u + highest * s for rate, u, s in zip(*columns, strict=True))
    require_room(parts, starts[-1], most)


class Found(NamedTuple):
    """The cheapest behaviour of each request, in windows after that of its arrival (``first``).

    ``decode``, ``prefill``, ``served``: time of its rounds, of its prefill, and of both, by window.
    ``last``: the window of its end, counted from that of its arrival.
    """

    cost: Numbers
    decode: Numbers
    prefill: Numbers
    served: Numbers
    last: Numbers
    first: Numbers


def least_costs(
    parts: Parts,
    starts: Numbers,
    rates: Numbers,
    time: Numbers,
    shares: Numbers,
    one: float,
    most: int | None = None,
) -> Found:
    """Return the least that each request can cost, wherever it is served.

    It ends in a window, takes each part of its time in that and those before, at most as much as a
    window has after its arrival, and pays the cheapest of them. For windows that it spans it
    pays what is not ``shares`` for the time without being served, and ``shares`` before its
    prefill. Whole numbers give whole numbers.

    Args:
        parts, starts: the requests, and where windows begin; the last has no end.
        rates: prices of own rounds, by request and window.
        time: of a worker's time, by window.
        shares: of what requests cost each other, by window, in units of which ``one`` is all.
        one: 1 in these units, in which prices are, too.
        most: windows after the arrival that are looked at (a search may); None: all.
    """
    n, windows = len(parts.arrivals), len(starts)
    width = windows if most is None else min(windows, most)
    first = np.searchsorted(starts, parts.arrivals, side="right") - 1
    at = first[:, None] + np.arange(width)[None]
    inside, at = at < windows, np.minimum(at, windows - 1)
    own = parts.own
    endless = max(starts[-1], parts.arrivals.max(initial=0)) + own.max(initial=0)
    ends = np.append(starts[1:], endless)
    room = ends[at] - np.maximum(parts.arrivals[:, None], starts[at])
    room = np.where(inside, np.maximum(room, 0), 0)
    rate = np.take_along_axis(rates, at, 1)
    late = np.where(inside, one - shares[at], 0)
    time = time[at] + _before_prefill(parts.prefill, shares[at], room)
    waited = np.concatenate([np.zeros((n, 1), room.dtype), np.cumsum(late * room, 1)], 1)
    reach, credit = np.cumsum(room, 1), late.max(initial=0) * own
    cost = np.full(n, _MOST if rates.dtype == np.int64 else np.inf, rates.dtype)
    shape = (n, width)
    decode, prefill, served = (np.zeros(shape, rates.dtype) for _ in range(3))
    last, alive = np.zeros(n, np.int64), np.ones(n, bool)
    for end in range(width):
        alive &= inside[:, end] & (waited[:, end] - credit < cost)
        rows = np.flatnonzero(alive & (reach[:, end] >= own))
        if not len(rows):
            if not alive.any():
                break
            continue
        span, open_late = slice(0, end + 1), late[rows, : end + 1].copy()
        open_late[:, -1] = 0
        some = room[rows, span]
        u = _cheapest(parts.decode[rows], rate[rows, span] - open_late, some)
        s = _cheapest(parts.prefill[rows], time[rows, span] - open_late, some)
        w = u + s + _cheapest(parts.first[rows], -open_late, some)  # what is served is not late
        total = waited[rows, end] - (w * open_late).sum(1)
        total = total + (u * rate[rows, span]).sum(1) + (s * time[rows, span]).sum(1)
        better = total < cost[rows]
        rows = rows[better]
        cost[rows], last[rows] = total[better], end
        for kept, new in ((decode, u), (prefill, s), (served, w)):
            kept[rows, span] = new[better]
    return Found(cost, decode, prefill, served, last, first)


def _before_prefill(prefill: Numbers, share: Numbers, room: Numbers) -> Numbers:
    """Return the price of a prefill's time for having waited until a window begins.

    A request has been there through the windows before, by request and window after its arrival,
    and may have been prefilled there for no longer than the prefill takes.
    """
    none = np.zeros((len(prefill), 1), share.dtype)
    length = np.maximum(prefill, 1)[:, None]
    waited = np.concatenate([none, np.cumsum(share * room, 1)[:, :-1]], 1)
    most = np.concatenate([none, np.maximum.accumulate(share, 1)[:, :-1]], 1)
    waited = np.maximum(waited - most * length, 0)
    found: Numbers = waited // length if share.dtype == np.int64 else waited / length
    return found


def _cheapest(needed: Numbers, rate: Numbers, room: Numbers) -> Numbers:
    """Return how much of each window is taken if the cheapest are filled first."""
    order = np.argsort(rate, axis=1, kind="stable")
    rooms = np.take_along_axis(room, order, 1)
    before = np.cumsum(rooms, 1) - rooms
    taken = np.clip(needed[:, None] - before, 0, rooms)
    found: Numbers = np.zeros_like(taken)
    np.put_along_axis(found, order, taken, 1)
    return found
