"""How many requests can be in time: prices of clients at moments, and of time in windows, bound it.

A request that is in time starts and ends somewhere. In between it holds a client, of which there
are J at every moment, and is charged all that it takes, for which a window has only its length.
With a price of each, a request is worth serving in time if the cheapest start and end cost less
than it counts. In the same way prices of a client's time bound what late ends cost at least
(docs/proofs.md has the proofs).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.one_machine import Workers
from orsched.common.units import NEVER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from orsched.certificates.charges import Shares
    from orsched.certificates.context import Context
    from orsched.certificates.fields import Budget

    Numbers = NDArray[Any]

FIELDS = ("moments", "held", "time", "one")
"""What a certificate chooses: moments, prices of a client at each, of time from each to the next,
and what a request that is in time counts."""


@dataclass(frozen=True)
class Needs:
    """What each request takes at least, by row, in nanoseconds, and when it is due.

    Attributes:
        first, whole: charges until its first token and until its end, on the machine of all.
        first_alone, alone: the same times if it is served alone.
        first_due, due: when its first and its last token are due; ``NEVER`` without a limit.
        clients: most requests on clients at one time; None where a request may leave its client.
    """

    arrivals: Numbers
    first: Numbers
    whole: Numbers
    first_alone: Numbers
    alone: Numbers
    first_due: Numbers
    due: Numbers
    clients: int | None


def needs_of(context: Context, shares: dict[int, Shares], weights: list[int]) -> Needs:
    """Return the needs of all requests, without limits; ``ValueError`` where nothing is known."""
    if context.instance.link is not None:
        raise ValueError("this bound knows of no links")
    ends, starts = Workers.of(context, shares), Workers.of(context, shares, True)
    whole, first = ends.machine(weights), starts.machine(weights)
    early = [time // first.scale for time in first.times]
    charges = [time // whole.scale for time in whole.times]
    columns = [whole.arrivals, early, charges, first.alone_ns, whole.alone_ns]
    if max(map(max, columns)) >= NEVER // 4:
        raise ValueError("times are too large")
    a, f, t, b, c = (np.array(column, np.int64) for column in columns)
    never = np.full(len(early), NEVER)
    return Needs(a, f, t, b, c, never, never, None if context.scope.restarts else ends.clients)


class Found(NamedTuple):
    """The cheapest way of each request to be in time: cost, and the windows of start and end.

    ``first_at``, ``rest_at``: the windows in which it is charged. ``start`` is -1 where it cannot.
    """

    cost: Numbers
    start: Numbers
    end: Numbers
    first_at: Numbers
    rest_at: Numbers


def cheapest(needs: Needs, moments: Numbers, held: Numbers, time: Numbers) -> Found:
    """Return the least that each request pays for being in time, whole numbers for whole ones.

    Args:
        needs: the requests.
        moments: where windows begin, from 0; the last window has no end.
        held: price of a client at each moment.
        time: price of a nanosecond of the machine in each window.
    """
    count, windows = len(needs.arrivals), len(moments)
    came = np.searchsorted(moments, needs.arrivals, side="right") - 1
    dues = [np.searchsorted(moments, due, side="left") - 1 for due in (needs.first_due, needs.due)]
    after = np.append(moments[1:], NEVER)
    cost = np.full(count, NEVER if time.dtype == np.int64 else np.inf, time.dtype)
    places = [np.full(count, -1) for _ in range(4)]
    for start in range(windows):
        begin = np.maximum(needs.arrivals, moments[start])
        able = (came <= start) & (begin + needs.first_alone <= needs.first_due)
        rows = np.flatnonzero(able & (begin + needs.alone <= needs.due))
        if not len(rows):
            continue
        possible = (begin[rows] + needs.alone[rows])[:, None] < after[None, start:]
        possible &= moments[None, start:] <= needs.due[rows, None]
        least, where = _running_least(time[start:])
        # What is charged before a token is due is not in a window that begins later.
        span = np.arange(windows - start)[None]
        first, last = (np.minimum(span, np.maximum(due[rows] - start, 0)[:, None]) for due in dues)
        early, whole = needs.first[rows, None], needs.whole[rows, None]
        total = early * least[first] + np.maximum(whole - early, 0) * least[last]
        total = total + (np.cumsum(held[start:]) - held[start])[None]
        total = np.where(possible, total, cost[rows, None])
        each = np.arange(len(rows))
        at = total.argmin(1)
        better = total[each, at] < cost[rows]
        rows, each, at = rows[better], each[better], at[better]
        cost[rows] = total[each, at]
        chosen = (0, at, where[first[each, at]], where[last[each, at]])
        for place, new in zip(places, chosen, strict=True):
            place[rows] = new + start
    return Found(cost, *places)


def _running_least(values: Numbers) -> tuple[Numbers, Numbers]:
    """Return the least value so far, and where it is."""
    least = np.minimum.accumulate(values)
    new = np.append(True, values[1:] < least[:-1])
    return least, np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def most_in_time(needs: Needs, claim: dict[str, Any], budget: Budget | None = None) -> int:
    """Return how many of the requests can be in time at most, by the prices of a claim."""
    moments, held, time, one = (claim[name] for name in FIELDS)
    _require_order(moments)
    if not len(held) == len(time) == len(moments) or held[0] or time[-1]:
        raise ValueError("there is not one price for each moment and window, 0 at both ends")
    if needs.clients is None and any(held):
        raise ValueError("with restarts a request may leave its client")
    if budget is not None:
        budget.spend(4 * len(needs.arrivals) * len(moments) ** 2)
        budget.hold(8 * len(needs.arrivals) * len(moments))
    largest = max(int(needs.whole.max()), int(needs.first.max()))
    if 2 * largest * max(time) + sum(held) >= NEVER or moments[-1] >= NEVER:
        raise ValueError("the numbers are too large")
    columns = (np.array(each, np.int64) for each in (moments, held, time))
    cost = cheapest(needs, *columns).cost.tolist()
    total: int = sum(max(0, one - each) for each in cost)
    total += sum(held) * (needs.clients or 0)
    total += sum(price * (b - a) for price, (a, b) in zip(time, pairwise(moments), strict=False))
    return int(total // one)


def _require_order(moments: list[int]) -> None:
    if moments[0] != 0 or any(b <= a for a, b in pairwise(moments)):
        raise ValueError("the moments do not begin at 0 and follow each other")


class Jobs(NamedTuple):
    """Requests of which each holds a client from its start to its end, for its own time at least:
    arrivals, least times alone, from when lateness counts, and how much; no restarts."""

    arrivals: Numbers
    alone: Numbers
    due: Numbers
    weights: Numbers
    clients: int


def starts_of(jobs: Jobs, moments: Numbers) -> Numbers:
    """Return by row the starts of which one is cheapest: where some price or lateness begins."""
    own, came = jobs.alone[:, None], jobs.arrivals[:, None]
    columns = (moments + 0 * own, moments - own, jobs.due[:, None] - own)
    found: Numbers = np.maximum(np.concatenate([came, *columns], 1), came)
    return found


def costs_of(jobs: Jobs, starts: Numbers, moments: Numbers, prices: Numbers, one: Any) -> Numbers:
    """Return what starts cost: lateness by weight, in 1 / ``one``, and the client's time. Prices of
    the type ``object`` are whole numbers of any size, and so are costs."""
    before = np.append(0 * prices[:1], np.cumsum(prices[:-1] * np.diff(moments)))

    def until(times: Numbers) -> Numbers:
        at = np.searchsorted(moments, times, side="right") - 1
        found: Numbers = before[at] + prices[at] * (times - moments[at])
        return found

    ends = starts + jobs.alone[:, None]
    late, weights = np.maximum(0, ends - jobs.due[:, None]), jobs.weights[:, None]
    late, weights = late.astype(prices.dtype), weights.astype(prices.dtype)
    found: Numbers = late * weights * one + until(ends) - until(starts)
    return found


def least_late(jobs: Jobs, claim: dict[str, Any], budget: Budget | None = None) -> int:
    """Return what the prices of a claim prove of the sum of weights times lateness, from 0."""
    moments, prices = claim["moments"], claim["held"]
    _require_order(moments)
    if len(prices) != len(moments) or prices[-1]:
        raise ValueError("there is not one price for each window, 0 for the last, without end")
    if budget is not None:
        budget.spend(100 * len(jobs.alone) * len(moments))
        budget.hold(20 * len(jobs.alone) * len(moments))
    when, paid = np.array(moments, np.int64), np.array(prices, object)
    costs = costs_of(jobs, starts_of(jobs, when), when, paid, claim["one"])
    total: int = sum(costs.min(axis=1).tolist())
    worth: int = sum(p * (b - a) for p, (a, b) in zip(prices, pairwise(moments), strict=False))
    return max(0, int((total - jobs.clients * worth) // claim["one"]))
