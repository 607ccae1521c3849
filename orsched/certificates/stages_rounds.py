"""What the two counts prove, stages and rounds: each by its stated reason, and both together.

Few stages make few windows: between the stage that prefills a request and the first one after its
end its client serves no other request, and lengths are rounded up to those of windows. What that
costs at least is bounded by a price for each length used (docs/proofs.md).
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.alignment import proven_rounds, short_windows
from orsched.certificates.context import sum_of_products, whole_memory
from orsched.certificates.fields import STEP, Budget
from orsched.certificates.packing import SEARCHED, proven
from orsched.certificates.step_lower_bounds import decode_floor, prefill_floor

if TYPE_CHECKING:
    from orsched.certificates.context import Context, Jobs
    from orsched.certificates.scope import Scope
    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.workers import Worker


def joint_ns(floor: Floor, jobs: Jobs, certificate: dict[str, Any], budget: Budget) -> int:
    """Return the least time of stages and rounds together that a joint certificate proves.

    Each number of stages that is listed has its prices; what ``ends`` proves for so many stages
    holds for fewer as well.
    """
    if not floor.by_counts:
        raise ValueError("the cost model has no joint bound")
    first = certificate["prefill_stages"]["value"]
    known = rounds_by_stages(jobs, certificate, budget)
    ends = []
    if "ends" in certificate:
        ends = proven_rounds(jobs.rounds.tolist(), jobs.clients, certificate["ends"], budget)
    last = max([first + len(known) - 1, *(stages + 1 for stages, _ in ends)])
    budget.spend(10 * STEP * (last - first) * (1 + len(ends)))
    times = []
    for stages in range(first, last + 1):
        proven = (needed for most, needed in ends if most >= stages)
        rounds = max([known[min(stages - first, len(known) - 1)], *proven])
        times.append(prefill_floor(floor, jobs, stages) + decode_floor(floor, jobs, rounds))
    return min(times)


def rounds_by_stages(jobs: Jobs, certificate: dict[str, Any], budget: Budget) -> list[int]:
    """Return the rounds that a certificate says K, K + 1, ... stages need, and more than listed.

    Of a joint bound, or of stages and rounds each alone.
    """
    least, stages = certificate["decode_rounds"]["value"], certificate["prefill_stages"]["value"]
    long = long_of(jobs, least, certificate["long"]) if "long" in certificate else None
    prices, all_windows = certificate.get("prices", []), Rounding.of(jobs.rounds)
    budget.spend(5 * STEP * len(prices) * (2 + 2 * len(all_windows.lengths)))
    found = []
    for more, listed in enumerate(prices):
        if len(listed) != (1 if long is None else 2):
            raise ValueError(f"{listed!r} are not prices")
        lost = all_windows.least_cost(listed[0], windows(stages + more))
        rounds = max(least, -(-(certificate["rounds_needed"] + lost) // jobs.clients))
        if long is not None:
            values = short_windows(stages + more, long.fitting) + 1
            lost = long.rounding.least_cost(listed[1], values)
            aligned = -(-(certificate["rounds_needed"] + lost) // jobs.clients)
            rounds = max(rounds, min(aligned, long.length * (long.fitting + 1)))
        found.append(rounds)
    return [*found, least]


def windows(stages: int) -> int:
    """Most different lengths of windows: from a stage to a later one, or to the end."""
    return stages * (stages + 1) // 2


class Long(NamedTuple):
    """A length, how many of it fit into the rounds, and the rounding of what is shorter to it."""

    length: int
    fitting: int
    rounding: Rounding


def long_of(jobs: Jobs, rounds: int, length: int) -> Long:
    """Return a length of which some client must serve as many as fit into the rounds.

    If ``q`` fit and more than ``(q - 1) J`` requests are that long, some client has q of them; else
    ``ValueError``.
    """
    fitting = rounds // length
    if fitting < 1 or int((jobs.rounds >= length).sum()) <= (fitting - 1) * jobs.clients:
        raise ValueError(f"no client need serve {fitting} requests of {length} rounds")
    shorter = jobs.rounds[jobs.rounds < length]
    return Long(length, fitting, Rounding.of(np.append(shorter, length)))


class Rounding:
    """Round lengths up to few values at the least cost in client-rounds.

    The cost is convex in the number of values (its increments satisfy the Monge condition), so a
    whole price for each value finds the least cost for every number of them.
    """

    def __init__(self, lengths: list[int], counts: list[int]) -> None:
        """Take different lengths, ascending, and how many requests have each."""
        self.lengths = lengths
        self.requests = [0, *accumulate(counts)]
        weights = (a * b for a, b in zip(lengths, counts, strict=True))
        self.volume = [0, *accumulate(weights)]

    @classmethod
    def of(cls, rounds: IntColumn) -> Rounding:
        """Return that of requests of so many rounds; those without any are left out."""
        lengths, counts = np.unique(rounds[rounds > 0], return_counts=True)
        return cls(lengths.tolist(), counts.tolist())

    def least_cost(self, price: int, values: int) -> int:
        """Return a least cost of rounding to so many values, by a price for each."""
        return self.priced(price)[0] - price * values

    def priced(self, price: int) -> tuple[int, int]:
        """Return the least cost with a price for each value, and the fewest values that reach it.

        Rounding up to a length is a line in it for each length rounded to before: slopes fall
        while the queries grow, so the lines that can be best form a queue.
        """
        unit = len(self.lengths) + 1  # cost * unit + values: the fewest values among equal costs
        lines: deque[tuple[int, int]] = deque()
        cost = 0
        for i, length in enumerate(self.lengths):
            _append(lines, -self.requests[i] * unit, cost + self.volume[i] * unit)
            while len(lines) > 1 and _at(lines[1], length) <= _at(lines[0], length):
                lines.popleft()
            fixed = length * self.requests[i + 1] - self.volume[i + 1] + price
            cost = _at(lines[0], length) + fixed * unit + 1
        return divmod(cost, unit)


def _at(line: tuple[int, int], x: int) -> int:
    return line[0] * x + line[1]


def _append(lines: deque[tuple[int, int]], slope: int, height: int) -> None:
    """Append a line of smaller slope; drop those before it that are nowhere least."""
    while len(lines) > 1:
        (s1, h1), (s2, h2) = lines[-2], lines[-1]
        if (height - h1) * (s1 - s2) > (h2 - h1) * (s1 - slope):
            break
        lines.pop()
    lines.append((slope, height))


def stages_and_rounds(
    context: Context, released: int, stages: dict[str, Any], rounds: dict[str, Any], budget: Budget
) -> dict[str, Any]:
    """Return the certificate of the bound by what one worker's requests need from a moment on.

    ``stages``, ``rounds``: the reasons of the bounds on the counts, with what these choose. Raises
    ``ValueError`` if they prove nothing.
    """
    worker, floor, scope = context.instance.worker, context.floor(0), context.scope
    if scope.yielding:
        raise ValueError("prefills that yield tokens replace rounds")
    jobs = context.released(released)
    if len(jobs) == 0:
        raise ValueError(f"no request arrives at {released} or later")
    stages = {**stages, "value": _stages(jobs, worker, stages, scope)}
    rounds = {**rounds, "value": _rounds(jobs, worker, rounds, scope, budget)}
    prefill_ns = prefill_floor(floor, jobs, stages["value"], scope.chunks)
    decode_ns = decode_floor(floor, jobs, rounds["value"])
    found = {
        "bound": "stages_and_rounds",
        **scope.stated(),
        "released_ns": released,
        **jobs.totals,
        "prefill_stages": stages,
        "decode_rounds": rounds,
        "prefill_ns": prefill_ns,
        "decode_ns": decode_ns,
        "value_ns": released + prefill_ns + decode_ns,
    }
    if scope.mixed:
        saved = _saved(floor, stages["value"], rounds["value"], min(prefill_ns, decode_ns))
        found |= {"saved_ns": saved, "value_ns": found["value_ns"] - saved}
    return found


def _saved(floor: Floor, stages: int, rounds: int, smaller_ns: int) -> int:
    """Return the most that mixed steps take less than their parts one after the other."""
    if floor.mixed == "one_fixed":
        return min(floor.stage.fixed, floor.round.fixed) * floor.times * min(stages, rounds)
    return smaller_ns if floor.mixed == "larger" else 0


def _stages(jobs: Jobs, worker: Worker, claim: dict[str, Any], scope: Scope) -> int:
    cap, memory, reason = worker.prefill_limit, whole_memory(worker), claim["reason"]
    ones = np.ones(len(jobs), np.int64)
    if reason == "clients":
        return -(-len(jobs) // jobs.clients)
    if reason == "cap" and cap is not None:
        return -(-int(jobs.prompts.sum()) // cap)
    if reason == "memory" and memory is not None:
        return -(-int(jobs.blocks.sum()) // memory.blocks)
    if reason == "large_prompts" and cap is not None and not scope.chunks:
        return _few_at_once(jobs.prompts, cap, ones, claim["k"])
    if reason == "large_requests" and memory is not None:
        return _few_at_once(jobs.blocks, memory.blocks, ones, claim["k"])
    raise ValueError(f"no bound on stages by {reason!r}")


def _rounds(jobs: Jobs, worker: Worker, claim: dict[str, Any], scope: Scope, budget: Budget) -> int:
    memory, reason = whole_memory(worker), claim["reason"]
    if reason in ("lifted", *SEARCHED) and scope.restarts:
        raise ValueError("a request may change clients")
    if reason == "memory" and memory is not None:
        return -(-sum_of_products(jobs.blocks, jobs.rounds) // memory.blocks)
    if reason == "large_requests" and memory is not None:
        return _few_at_once(jobs.blocks, memory.blocks, jobs.rounds, claim["k"])
    if reason == "volume":
        return -(-int(jobs.rounds.sum()) // jobs.clients)
    if reason == "longest":
        return int(jobs.rounds.max())
    if reason in ("lifted", *SEARCHED):
        return proven(jobs.rounds.tolist(), jobs.clients, {**claim, "bound": reason}, budget)
    raise ValueError(f"no bound on rounds by {reason!r}")


def _few_at_once(sizes: IntColumn, limit: int, weights: IntColumn, k: int) -> int:
    """Of sizes above limit / (k + 1) at most k go together: their weights are shared by k."""
    return -(-int(weights[sizes > limit // (k + 1)].sum()) // k)
