"""What requests that keep their limits take of a fleet's time at least, window by window.

Every step's time is divided among the requests in it (a *measure* says how), so that no step
charges more than it takes. A request that keeps its limits is charged its prefill between its
arrival and its latest first token, and its further tokens between its earliest first token and its
latest end. Steps that lie wholly within a window take no more than the window, on each worker.
docs/capacity.md has the proofs. They allow chunks, mixed steps, restarts and pauses: any policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import floor as down
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orsched.certificates.fields import STEP, WEIGHT, Budget, Field, listed, one_of, table, whole
from orsched.certificates.scope import Scope, cut_tokens, has_prefix_cache
from orsched.certificates.step_lower_bounds import lost_in_round, lost_in_stage, own_rounds_ns
from orsched.costs.exact import round_half_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orsched.common.columns import IntColumn
    from orsched.costs import Floor
    from orsched.data.instance import Instance
    from orsched.data.workers import Worker


UNIT = 64
"""Charges are in 1 / UNIT nanoseconds, rounded down."""
PARTS = 4
"""A measure takes so many of these parts of stages and of rounds."""
PACE = 4096
"""The price of time in a measure is in 1 / PACE of a nanosecond charged."""
FAR = 2**60
"""Moments from here on are never: there is no limit."""
_SAFE = 2.0**62
_LONGEST_LIFE = 2**42


class Measure(NamedTuple):
    """How a step's time is divided among the requests in it.

    Attributes:
        stage, round: parts of ``PARTS`` of a stage and of a round that are charged.
        fixed: whose fixed time is charged: ``stage``, ``round`` or ``both``.
        share: what divides that of a round: ``clients`` (equally), or ``memory`` (by tokens held).
        pace: price of a request's time between its tokens, which its TPOT limits; 0: unused.
    """

    stage: int
    round: int
    fixed: str
    share: str
    pace: int


@dataclass(frozen=True)
class Limits:
    """Latency limits of the rows of the instance that count (ascending); 2**62 and above: none.

    TPOT is (end - first token) // (tokens - 1), as in ``metrics``.
    """

    rows: IntColumn
    ttft_ns: IntColumn
    tpot_ns: IntColumn

    def __len__(self) -> int:
        return len(self.rows)


class _Terms(NamedTuple):
    """What no step of a machine is below: parts in nanoseconds, rounding given away."""

    stage_fixed: Fraction
    stage_request: Fraction
    stage_token: Fraction
    round_fixed: Fraction
    round_request: Fraction
    round_context: Fraction
    growth: Fraction | None  # of a round with the number of requests in it, if that is known


class Work(NamedTuple):
    """Charges under a measure, one row a request that counts.

    Attributes:
        first: until the first token.
        token, growth: of the first token after it, and by how much each further one takes more.
        own, own_growth, equal: the same with the fixed time divided by how many really take part:
            own parts, and ``equal`` less the price of the time between the tokens.
        pace: that price a nanosecond, 0 where it is of no use.
        rate: what one request is charged of a nanosecond until its first token, at most.
    """

    first: IntColumn
    token: IntColumn
    growth: IntColumn
    own: IntColumn
    own_growth: int
    equal: int
    pace: IntColumn
    rate: int


class Demand:
    """The requests that count, and what they take of machines with weights.

    Attributes:
        computed: tokens of the prompts that no prefix cache can hold, all without one.
        first_by, end_by: latest first tokens that keep the limit, and latest ends.
        after: tokens after the first.
        begin: earliest first tokens.
        gap: least time from a token to the next.
        possible: whether a request that is alone can keep its limits.

    Raises ``ValueError`` if a model states no floor under mixed steps, or a number is too large.
    """

    def __init__(
        self, instance: Instance, limits: Limits, machines: Sequence[Worker], weights: Sequence[int]
    ) -> None:
        if instance.arrivals_follow:
            raise ValueError("requests arrive when others have ended, at no time known beforehand")
        self.instance, self.limits = instance, limits
        self.machines, self.weights = list(machines), list(weights)
        req, rows = instance.requests, limits.rows
        self.by_prefill = instance.first_token == "prefill"
        fleet = instance.replace(workers=tuple(machines))
        self.cached = has_prefix_cache(fleet)
        scope = Scope(True, True, True, self.by_prefill)
        self.floors = [scope.require_floor(worker) for worker in machines]
        self.least = int(req.prompt_tokens.min(initial=2**31))
        self.prompts = req.prompt_tokens[rows].astype(np.int64)
        self.computed: IntColumn = self.prompts - cut_tokens(fleet)[rows]
        self.outputs = req.output_tokens[rows].astype(np.int64)
        self.arrival: IntColumn = req.arrival_ns[rows]
        if len(rows) and int(self.arrival.max()) > FAR // 4:
            raise ValueError("requests arrive too late")
        self.after: IntColumn = self.outputs - 1
        self._moments()
        self._terms = [
            _terms(worker, floor, self.least)
            for worker, floor in zip(machines, self.floors, strict=True)
        ]

    def _moments(self) -> None:
        """Work out when what can happen, for requests alone in their steps."""
        pairs = list(zip(self.machines, self.floors, strict=True))
        known: dict[tuple[int, int], tuple[int, int, int]] = {}
        lengths = list(zip(self.prompts.tolist(), self.computed.tolist(), strict=True))
        for prompt, computed in set(lengths):
            stage = min(_prefill_ns(worker, floor, computed) for worker, floor in pairs)
            a_round = min(
                own_rounds_ns(floor, worker.clients, self.least, prompt, 1)
                for worker, floor in pairs
            )
            gap = a_round
            if self.by_prefill:  # a restart yields a token as well, and may find all but one
                again = 1 if self.cached else prompt + 1
                gap = min(gap, *(_prefill_ns(worker, floor, again) for worker, floor in pairs))
            known[prompt, computed] = (stage, a_round, gap)
        rows = [known[pair] for pair in lengths]
        stage_ns, round_ns, gap_ns = np.array(rows, np.int64).reshape(-1, 3).T
        self.stage_ns: IntColumn = stage_ns
        self.gap: IntColumn = gap_ns
        self.alone_ns: IntColumn = stage_ns if self.by_prefill else stage_ns + round_ns
        self.begin: IntColumn = self.arrival + self.alone_ns
        ttft = np.minimum(self.limits.ttft_ns, FAR)
        self.first_by: IntColumn = np.minimum(self.arrival + ttft, FAR)
        count = np.maximum(self.after, 1)
        endless = (self.limits.tpot_ns >= FAR // (count + 1)) & (self.after > 0)
        pace = np.where(endless, 0, self.limits.tpot_ns)
        # (end - first) // after <= limit means end - first <= (limit + 1) after - 1.
        self.between: IntColumn = np.where(self.after > 0, (pace + 1) * self.after - 1, 0)
        self.between[endless] = FAR
        self.end_by: IntColumn = np.minimum(self.first_by + self.between, FAR)
        if float(self.gap.max(initial=0)) * float(self.after.max(initial=0)) > _SAFE / 4:
            raise ValueError("tokens take too long")
        self.possible = (self.alone_ns <= ttft) & (self.gap * self.after <= self.between)

    def work(self, measure: Measure) -> Work:
        """Return the charges under a measure; ``ValueError`` if a step may take less than these."""
        parts = [self._of_machine(number, measure) for number in range(len(self.machines))]
        first = np.minimum.reduce([part.first for part in parts])
        token = np.minimum.reduce([part.token for part in parts])
        growth = np.minimum.reduce([part.growth for part in parts])
        own = np.minimum.reduce([part.own for part in parts])
        own_growth = min(part.own_growth for part in parts)
        equal = min(part.equal for part in parts)
        pace = np.full(len(self.after), measure.pace, np.int64)
        pace[(self.between >= _LONGEST_LIFE) | (equal < 0)] = 0
        if self.by_prefill:
            again = np.minimum.reduce([self._again(k, measure) for k in range(len(parts))])
            most = token + growth * self.after
            capped = again < most
            token, growth = np.where(capped, np.minimum(token, again), token), growth.copy()
            growth[capped] = 0
            pace[again < own + own_growth * self.after + max(0, equal)] = 0
        rate = max(self.weights) * UNIT
        if self.by_prefill:  # no round is in it
            rate = max(1, rate * measure.stage // PARTS)
        found = Work(first, np.maximum(token, 0), growth, own, own_growth, equal, pace, rate)
        self._require_small(found)
        if not self.by_prefill:
            return found._replace(first=found.first + found.token)
        return found

    def _require_small(self, work: Work) -> None:
        most, count = float(self.after.max(initial=0)), float(len(self.after) + 1)
        growing = float(max(int(work.growth.max(initial=0)), work.own_growth))
        each = float(max(int(work.token.max(initial=0)), int(work.own.max(initial=0)), work.equal))
        total = (each + growing * most) * (most + 1) + float(work.first.max(initial=0))
        if total * 2 > _SAFE or count > 2**31:
            raise ValueError("charges are too large")

    def _of_machine(self, number: int, measure: Measure) -> Work:
        """Return the charges on one machine, times its weight."""
        worker, terms, weight = self.machines[number], self._terms[number], self.weights[number]
        _require_valid(measure, self.floors[number])
        stage = Fraction(measure.stage * weight * UNIT, PARTS)
        rounds = Fraction(measure.round * weight * UNIT, PARTS)
        once, each = self._stage_parts(number, measure)
        first = down(stage * once) + down(stage * each) * self.computed
        own = down(rounds * terms.round_request)
        context = down(rounds * terms.round_context)
        fixed = terms.round_fixed if measure.fixed != "stage" else Fraction(0)
        token: IntColumn = own + context * (self.prompts + 1)
        with_own: IntColumn = token.copy()
        growth = np.full(len(token), context, np.int64)
        if measure.share == "memory":
            memory = worker.memory
            if memory is None:
                raise ValueError("there is no memory to share a round by")
            held = down(rounds * fixed / (memory.blocks * memory.block_tokens))
            if memory.is_paged:
                token += held * self._held(memory.block_tokens)
                growth += held
            else:
                token += held * (self.prompts + self.outputs)  # never cached
        else:
            token += down(rounds * fixed / worker.clients)
        equal = -1
        if measure.pace and measure.share == "clients" and terms.growth is not None:
            price = Fraction(measure.pace * UNIT, PACE)
            equal = down(_equal_share(rounds * fixed, price, fixed, terms.growth, worker.clients))
        return Work(first, token, growth, with_own, context, equal, token, 0)

    def _held(self, block_tokens: int) -> IntColumn:
        """Return how many tokens of each prompt stand in blocks that no other request holds.

        Of the full blocks whose keys others have, all but perhaps the last are cut.
        """
        if not self.cached:
            return self.prompts
        held: IntColumn = np.maximum(0, self.computed - block_tokens)
        return held

    def _stage_parts(self, number: int, measure: Measure) -> tuple[Fraction, Fraction]:
        """Return what a prefill is charged once and for each token; the fixed time by cap if so."""
        worker, terms = self.machines[number], self._terms[number]
        once, each = terms.stage_request, terms.stage_token
        if measure.fixed != "round":
            limit = worker.prefill_limit
            prompts = self.instance.requests.prompt_tokens
            if limit is not None and int(prompts.sum()) * worker.clients >= limit * len(prompts):
                each += terms.stage_fixed / limit
            else:
                once += terms.stage_fixed / worker.clients
        return once, each

    def _again(self, number: int, measure: Measure) -> IntColumn:
        """Return the least charge of a token that comes from a repeated prefill."""
        stage = Fraction(measure.stage * self.weights[number] * UNIT, PARTS)
        tokens = np.ones_like(self.prompts) if self.cached else self.prompts + 1
        charged: IntColumn = down(stage * self._terms[number].stage_token) * tokens
        return charged

    def within(self, work: Work, start_ns: int, end_ns: int) -> IntColumn:
        """Return what each request is charged in a window if it keeps its limits.

        Of its prefill at least what does not fit into the rest of its time until the first token.
        """
        outside = np.maximum(0, start_ns - self.arrival) + np.maximum(0, self.first_by - end_ns)
        enough = work.first // work.rate + 1  # nanoseconds for all of it
        first = np.maximum(0, work.first - work.rate * np.minimum(outside, enough))
        gap = np.maximum(self.gap, 1)
        low = np.maximum(0, -((self.begin - start_ns) // gap))
        late = np.maximum(0, self.end_by - end_ns)
        high = np.where(
            self.gap > 0, self.after - -(-late // gap), np.where(late > 0, 0, self.after)
        )
        low = np.where((self.gap == 0) & (self.begin < start_ns), self.after, low)
        count = np.clip(high - low, 0, self.after)
        count[self.end_by >= FAR] = 0
        charged: IntColumn = first + self.tokens(work, count)
        return charged

    def tokens(self, work: Work, count: IntColumn) -> IntColumn:
        """Return the least charge of so many of each request's tokens after the first."""
        triangle = count * (count - 1) // 2
        plain = count * work.token + work.growth * triangle
        left = np.minimum(self.between, _LONGEST_LIFE) - (self.after - count) * self.gap
        price = -(-(work.pace * np.maximum(left, 0)) // (PACE // UNIT))
        paced = count * (work.own + work.equal) + work.own_growth * triangle - price
        charged: IntColumn = np.where(work.pace > 0, np.maximum(plain, paced), plain)
        return charged


def _require_valid(measure: Measure, floor: Floor) -> None:
    """Raise ``ValueError`` if a step may take less than is charged of it."""
    both = measure.stage + measure.round
    if floor.mixed == "larger" and both > PARTS:
        raise ValueError("a mixed step takes at least the larger part: not both are charged whole")
    if floor.mixed == "one_fixed" and measure.fixed == "both":
        raise ValueError("a mixed step has one fixed part only")
    if measure.pace and measure.share != "clients":
        raise ValueError("paces go with equal shares")


def _equal_share(
    charged: Fraction, price: Fraction, fixed: Fraction, growth: Fraction, clients: int
) -> Fraction:
    """Return the least of ``charged / y + price (fixed + growth y)`` over y = 1 ... clients.

    A round of y requests takes at least ``fixed + growth y``; each is charged a y-th of the fixed
    part, and pays a price for the time. Convex in y: the least is beside the root.
    """
    slope = price * growth
    root = clients if not slope else isqrt(down(charged / slope))
    near = {min(clients, max(1, y)) for y in (root, root + 1)}
    return min(charged / y + slope * y for y in near) + price * fixed


def _terms(worker: Worker, floor: Floor, least: int) -> _Terms:
    """Return the parts that no step is below, whatever chunks prompts are cut into."""
    scale, parts = Fraction(floor.times, floor.unit), floor.round
    fixed, request, token = _stage_terms(worker, floor)
    lost, clients = lost_in_round(floor), worker.clients
    own, context = Fraction(parts.request), parts.context + Fraction(parts.longest, clients)
    context += Fraction(parts.mean or 0, clients)
    growth: Fraction | None = None
    round_fixed = Fraction(0)
    if parts.fixed >= lost:
        round_fixed = Fraction(parts.fixed - lost)
        growth = Fraction(parts.request + parts.context * (least + 1))
    else:
        own -= lost
        if parts.mean is None or own + context * (least + 1) < 0:
            own = context = Fraction(0)
    return _Terms(
        scale * fixed,
        scale * request,
        scale * token,
        scale * round_fixed,
        scale * own,
        scale * context,
        None if growth is None else scale * growth,
    )


def _stage_terms(worker: Worker, floor: Floor) -> tuple[Fraction, Fraction, Fraction]:
    """Return fixed part, that of a request and that of a token, in chunks of any size."""
    stage, zero = floor.stage, Fraction(0)
    if stage.levels is not None:
        limit = worker.prefill_limit
        caps = [(cap if limit is None else min(cap, limit), time) for cap, time in stage.levels]
        return zero, zero, min(Fraction(time, cap) for cap, time in caps)
    lost = lost_in_stage(floor)
    longest = Fraction(stage.longest, worker.clients)
    if not stage.is_curved:
        if stage.fixed < lost:
            return zero, zero, zero
        return Fraction(stage.fixed - lost), Fraction(stage.request), stage.token + longest
    # x^2 >= x for whole chunks x >= 1.
    token = Fraction(stage.square + stage.token) if stage.grows else zero
    if stage.fixed >= lost:
        return Fraction(stage.fixed - lost), Fraction(stage.request), token
    least = stage.least or 0
    # A chunk takes at least ``least``: what rounding takes off is no more than that share of it.
    return zero, zero, token * Fraction(least - lost, least) if least > lost else zero


def _prefill_ns(worker: Worker, floor: Floor, tokens: int) -> int:
    """Return the least time of the steps that prefill a request's tokens, in chunks or not."""
    stage, limit = floor.stage, worker.prefill_limit
    fixed, request, token = _stage_terms(worker, floor)
    if stage.levels is not None:
        return max(stage.levels[0][1], -(-token.numerator * tokens // token.denominator))
    chunks = 1 if limit is None else -(-tokens // limit)
    whole = (fixed * chunks + request * chunks + token * tokens) / floor.unit
    if not stage.is_curved and stage.fixed >= lost_in_stage(floor):  # alone, it is the longest
        whole += Fraction(stage.longest * tokens, floor.unit) - Fraction(
            stage.longest * tokens, worker.clients * floor.unit
        )
    least = round_half_up(stage.fixed + stage.request + (stage.least or 0), floor.unit)
    return max(down(whole), least) * floor.times


_COST = 20
"""Cells that a request in a window counts for."""

_measure = table(
    {
        "stage": whole(0, 5),
        "round": whole(0, 5),
        "fixed": one_of("stage", "round", "both"),
        "share": one_of("clients", "memory"),
        "pace": whole(0, 2**20),
    }
)
_window = table(
    {
        "start_ns": whole(0, FAR),
        "end_ns": whole(0, FAR),
        "measure": whole(0, 64),
        "weight": whole(1, 2**120),
    }
)
FIELDS: dict[str, Field] = {
    "bound": one_of("attainment"),
    "weights": listed(whole(1, WEIGHT), 1, 64),
    "speed": whole(0, WEIGHT),
    "one": whole(1, 2**120),
    "measures": listed(_measure, 0, 64),
    "windows": listed(_window, 0, 4096),
    "attained": whole(0, 2**62),
}
_require = table(FIELDS)


def attained_at_most(
    instance: Instance,
    limits: Limits,
    machines: Sequence[Worker],
    claim: dict[str, Any],
    budget: Budget | None = None,
) -> int:
    """Return how many requests keep their limits at most, by a certificate's choices.

    The fleet is any number of each of the machines whose ``weights`` add up to at most ``speed``.
    Raises ``ValueError`` if the claim has wrong fields, or proves nothing of these machines.
    """
    _require(claim, "certificate")
    if len(claim["weights"]) != len(machines):
        raise ValueError(f"{len(claim['weights'])} weights for {len(machines)} machines")
    budget = budget or Budget()
    budget.spend(STEP * len(limits) + _COST * len(limits) * len(claim["windows"]))
    demand = Demand(instance, limits, machines, claim["weights"])
    return value_of(demand, claim)


def value_of(demand: Demand, claim: dict[str, Any]) -> int:
    """Return what the windows of a certificate prove of a demand, already worked out."""
    works = [demand.work(Measure(**each)) for each in claim["measures"]]
    priced = np.zeros(len(demand.after), object)
    total = 0
    for window in claim["windows"]:
        start, end = window["start_ns"], window["end_ns"]
        if end < start or window["measure"] >= len(works):
            raise ValueError("a window ends before it starts, or has no measure")
        charges: IntColumn = demand.within(works[window["measure"]], start, end)
        priced += charges.astype(object) * window["weight"]
        total += window["weight"] * claim["speed"] * (end - start) * UNIT
    one = claim["one"]
    for each in priced[demand.possible]:
        if each < one:
            total += one - each
    return int(min(total // one, int(demand.possible.sum())))
