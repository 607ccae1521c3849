"""Which cloud gets which request: by groups of length with balanced loads, or by number."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING

from orsched.common.scalars import require_bool, require_one_of, set_whole
from orsched.common.units import MAX_TOKENS
from orsched.heuristics.forecast import known_lengths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orsched.simulator.policy import View


_CHOICES = {
    "distribution": (None, "workload", "quantity"),
    "batching": ("iteration", "batch"),
    "shares": ("power", "equal"),
    "order": ("arrival", "random", "short_prompt", "long_answer"),
    "insertion": ("mixed", "decoupled", "cheaper"),
}


@dataclass(frozen=True)
class MicoParams:
    """Parts of MICO (Q: ``distribution``, I: ``batching``); ``InputError`` for values out of range.

    Attributes:
        distribution: workload (Q: groups of predicted length, in descending order) or quantity
            (not Q: as many requests for each cloud, in turn); None: workload if the lengths are
            known, else quantity.
        batching: iteration (I: the place of a finished request is taken at once) or batch (not I:
            static batches, returned as a whole).
        buckets: classes of predicted length.
        longest_tokens: l_max, the length that the buckets divide; None: the output limit.
        shares: power (a cloud's share grows with its clients and its speed) or equal.
        backoff: whether a cloud without waiting requests takes some from others.
        batch_size: most requests at once on a cloud; None: adaptive, as many as clients and memory
            hold.
        order: which of a cloud's waiting requests is next: the first to arrive, any (by the seed;
            section 4.2.2), the one with the shortest prompt (section 3.5.1) or the longest
            predicted answer.
        insertion: mixed (the prompt is processed beside the round of the others), decoupled (in a
            step of its own, section 3.5.1) or cheaper (by the cost model, each time).
        trade_off: whether an insertion waits while it would hold the running requests up for
            longer than it lets a place rest (section 3.5.1).
    """

    distribution: str | None = None
    batching: str = "iteration"
    buckets: int = 10
    longest_tokens: int | None = None
    shares: str = "power"
    backoff: bool = True
    batch_size: int | None = None
    order: str = "arrival"
    insertion: str = "cheaper"
    trade_off: bool = False

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            require_one_of(getattr(self, name), name, choices)
        for name in ("backoff", "trade_off"):
            require_bool(getattr(self, name), name)
        set_whole(self, "buckets", minimum=1, maximum=MAX_TOKENS)
        limits = ("longest_tokens", "batch_size")
        set_whole(self, *limits, minimum=1, maximum=MAX_TOKENS, optional=True)


ABLATION: dict[str, dict[str, str]] = {
    "QI": {"distribution": "workload", "batching": "iteration"},
    "Q": {"distribution": "workload", "batching": "batch"},
    "I": {"distribution": "quantity", "batching": "iteration"},
    "neither": {"distribution": "quantity", "batching": "batch"},
}  # what the four variants of section 4.1.3 set of ``MicoParams``


Weighted = tuple[int, int]  # tokens (prompt and the middle of the bucket) and row


class Distributor:
    """Deals requests to clouds in proportion to whole shares; loads are compared per share, in
    units of ``load * factor``. ``loads`` are M_k, the tokens that each cloud was dealt and has not
    finished; the paper's counts those of prompts alone."""

    def __init__(self, shares: Sequence[int]) -> None:
        self.shares = list(shares)
        whole = lcm(*shares)
        self.factors = [whole // share for share in shares]
        self.round = sum(shares)
        self.clouds = range(len(shares))
        self.loads = [0] * len(shares)
        self.given = [0] * len(shares)  # how many requests each cloud was dealt in turn

    def deal(self, groups: Sequence[Sequence[Weighted]]) -> Iterator[tuple[int, Weighted]]:
        """Yield (cloud, request) for groups in descending order of length (section 3.3).

        Each group is dealt in rounds, in which every cloud gets its share. What is left of a group
        makes a round with requests that are borrowed from the groups after it; what is left of the
        last one goes to the clouds one by one. After full rounds the loads of two clouds, per
        share, differ by no more than before, or no more than two requests of one round do: a cloud
        with less gets the heavier ones of a round. The number of operations is linear in the
        requests.
        """
        rest: list[Weighted] = []
        for group in groups:
            start = 0
            if rest:
                start = min(self.round - len(rest), len(group))
                rest += group[:start]
                if len(rest) < self.round:
                    continue
                yield from self._deal_round(rest)
            end = start + (len(group) - start) // self.round * self.round
            for begin in range(start, end, self.round):
                yield from self._deal_round(group[begin : begin + self.round])
            rest = list(group[end:])
        for each in sorted(rest, key=lambda item: (-item[0], item[1])):
            yield self.least_loaded(each[0], self.clouds), each

    def _deal_round(self, requests: Sequence[Weighted]) -> Iterator[tuple[int, Weighted]]:
        """Deal a whole round: the heaviest requests to the clouds with the least load."""
        loads, factors, shares = self.loads, self.factors, self.shares
        if self.round == 1:
            clouds: Sequence[int] = self.clouds
        else:
            clouds = sorted(self.clouds, key=lambda cloud: loads[cloud] * factors[cloud])
            requests = sorted(requests, key=_weight, reverse=True)
        at = 0
        for cloud in clouds:
            for each in requests[at : at + shares[cloud]]:
                loads[cloud] += each[0]
                yield cloud, each
            at += shares[cloud]

    def least_loaded(self, weight: int, clouds: Sequence[int]) -> int:
        """Deal one request to the cloud that has the least load with it; return the cloud."""
        loads, factors = self.loads, self.factors
        chosen = min(clouds, key=lambda cloud: (loads[cloud] + weight) * factors[cloud])
        loads[chosen] += weight
        return chosen

    def in_turn(self, weight: int, clouds: Sequence[int]) -> int:
        """Deal one request to the cloud that was dealt the fewest for its share."""
        given, factors = self.given, self.factors
        chosen = min(clouds, key=lambda cloud: (given[cloud] + 1) * factors[cloud])
        given[chosen] += 1
        self.loads[chosen] += weight
        return chosen

    def done(self, cloud: int, weight: int) -> None:
        """Take a finished request off a cloud's load."""
        self.loads[cloud] -= weight

    def moved(self, source: int, target: int, weight: int) -> None:
        """Count a request for the cloud that took it."""
        self.loads[source] -= weight
        self.loads[target] += weight


def _weight(item: Weighted) -> int:
    return item[0]


MOST_PARTS = 16
PRECISION = Fraction(1, 50)


def round_times_ns(views: Sequence[View], batch_size: int | None) -> list[int]:
    """Return the duration of a round on each cloud with all places taken: the time of a token. A
    place's context is taken to be the output limit. All clouds count as equally fast if one of them
    takes no time."""
    times = []
    for view in views:
        places, limit = places_of(view, batch_size), view.output_limit_tokens
        times.append(view.worker.cost.round_ns(places, places * limit, limit))
    return times if all(times) else [1] * len(times)


def powers(views: Sequence[View], batch_size: int | None) -> list[Fraction]:
    """Return the tokens that each cloud yields in a nanosecond with all places taken."""
    times = round_times_ns(views, batch_size)
    return [
        Fraction(places_of(view, batch_size), time) for view, time in zip(views, times, strict=True)
    ]


def places_of(view: View, batch_size: int | None) -> int:
    """Return how many requests a cloud serves at once."""
    clients = view.worker.clients
    return clients if batch_size is None else min(batch_size, clients)


def whole_shares(values: Sequence[Fraction]) -> list[int]:
    """Return small whole numbers in the proportion of positive values, to 2 % where 16 parts do."""
    least = min(values)
    ratios = [value / least for value in values]
    for parts in range(1, MOST_PARTS + 1):
        shares = [round(ratio * parts) for ratio in ratios]
        if all(
            abs(Fraction(share, parts) / ratio - 1) <= PRECISION
            for share, ratio in zip(shares, ratios, strict=True)
        ):
            break
    divisor = gcd(*shares)
    return [share // divisor for share in shares]


class Lengths:
    """Predicted output lengths, known no finer than their bucket: ``floor(l / (l_max / N))`` of N,
    the last one for longer predictions too; l is taken to be the middle of its bucket. By bucket:
    ``middles``, at least 1, and ``ends``, its most tokens, at most the output limit."""

    def __init__(self, view: View, buckets: int, longest_tokens: int | None) -> None:
        self.count = buckets
        self.limit = view.output_limit_tokens
        self.longest = self.limit if longest_tokens is None else longest_tokens
        self.middles = [
            max(1, (2 * bucket + 1) * self.longest // (2 * buckets)) for bucket in range(buckets)
        ]
        self.ends = [
            min(-(-(bucket + 1) * self.longest // buckets), self.limit) for bucket in range(buckets)
        ]
        self.ends[-1] = self.limit
        self.known = known_lengths(view)

    def bucket(self, request: int) -> int:
        """Return the bucket of a request, the last one without information."""
        if self.known is None:
            return self.count - 1
        label = self.known[request] * self.count // self.longest
        return label if label < self.count else self.count - 1

    def middle(self, request: int) -> int:
        """Return the tokens that stand for a request's answer."""
        return self.middles[self.bucket(request)]

    def end(self, request: int) -> int:
        """Return the most tokens of a request's bucket, at most the output limit."""
        return self.ends[self.bucket(request)]
